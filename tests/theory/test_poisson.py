import math

import numpy as np
import pytest
from sampled_laws import Mixtures, poisson_law
from scipy.special import ndtr
from scipy.stats import binom

from lastiterate import Loss, Poisson, Training, account, certify, verify
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import SampledPair
from lastiterate.errors import DescriptionError
from lastiterate.lower.minibatch import linear_lower
from lastiterate.theory import Run
from lastiterate.theory import poisson_paths as poisson
from lastiterate.theory import without_replacement as absorption
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.poisson import batch_contraction

EPSILONS = (0.0, 0.2, 0.7, 1.5, 3.0, 5.0)
ORDERS = (1.1, 1.5, 2.0, 5.0, 20.0, 64.0)

# steps, contraction: composition, joint pair, linear lower reference, as printed in the derivation
# (delta = 1e-6, rate 0.01, s = nu); its composition column was computed on a coarse grid and is up
# to 1 % above the values reached here.
TABLE = [
    (1000, 0.99, 2.136, 1.676, 0.672),
    (1000, 0.999, 2.136, 2.136, 1.412),
    (10_000, 0.99, 6.962, 1.678, 0.672),
    (10_000, 0.999, 6.962, 5.258, 2.101),
]


@pytest.mark.parametrize(("steps", "c", "composed", "joint", "linear"), TABLE[:2])
def test_table(steps, c, composed, joint, linear):
    _check_row(steps, c, composed, joint, linear)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "c", "composed", "joint", "linear"), TABLE[2:])
def test_table_long(steps, c, composed, joint, linear):
    _check_row(steps, c, composed, joint, linear)


def _check_row(steps, c, composed, joint, linear):
    bound = poisson.best(Steps(c, 1.0, 1.0, steps), 0.01, 1e-6).curve.epsilon(1e-6)
    plain = poisson.plain_curve(Steps(1.0, 1.0, 1.0, steps), 0.01).epsilon(1e-6)
    lower = linear_lower(Steps(c, 1.0, 1.0, steps), 0.01, 1e-6)
    assert linear * 0.995 <= lower <= linear + 0.0005
    assert lower <= bound <= joint + 0.0005
    assert composed * 0.99 <= plain <= composed + 0.0005
    assert bound <= plain + 1e-6


def _random_run(rng):
    steps = int(rng.integers(1, 7))
    c = rng.uniform(0.2, 1.0) if rng.random() < 0.7 else rng.uniform(0.2, 1.2, steps)
    s = rng.uniform(0.1, 2.0) if rng.random() < 0.6 else rng.uniform(0.0, 2.0, steps)
    nu = rng.uniform(0.5, 1.5) if rng.random() < 0.6 else rng.uniform(0.5, 1.5, steps)
    rate = float(rng.choice([rng.uniform(0.02, 1.0), 10 ** rng.uniform(-2, 0)]))
    return steps, c, s, nu, rate


def _random_path(rng, steps, c, s, nu, rate):
    if rng.random() < 0.5:
        order = float(rng.choice([1.1, 1.7, 2.0, 4.3, 8.0, 14.0]))
        return poisson.deferral_path(Steps(c, s, nu, steps), rate, order)
    factors, impulses = np.broadcast_to(c, steps), np.broadcast_to(s, steps)
    left = [0.0]
    for factor, impulse in zip(factors, impulses, strict=True):
        left.append(rng.uniform(0, 1) * (factor * left[-1] + impulse))
    left[-1] = 0.0
    return poisson.follow(Steps(c, s, nu, steps), rate, left)


def _check_instance(rng):
    steps, c, s, nu, rate = _random_run(rng)
    path = _random_path(rng, steps, c, s, nu, rate)
    curve = poisson.poisson_curve(path)
    shrink = rng.choice([1.0, rng.uniform(0, 1)], steps)
    law = poisson_law(
        np.broadcast_to(c, steps) * shrink * rng.choice([-1, 1], steps),
        np.broadcast_to(s, steps) * rng.choice([-1, 1], steps),
        np.broadcast_to(nu, steps),
        rate,
    )
    truth = law.deltas(EPSILONS)
    for epsilon, least in zip(EPSILONS, truth, strict=True):
        if least > 1e-13:
            assert curve.delta(epsilon) >= least, (steps, c, s, nu, rate, epsilon)
    for order, least in zip(ORDERS, law.renyis(ORDERS), strict=True):
        assert curve.rdp(order) >= least * (1 - 1e-12), (steps, c, s, nu, rate, order)


def test_no_path_is_below_the_exact_law():
    rng = np.random.default_rng(11)
    for _ in range(40):
        _check_instance(rng)


@pytest.mark.slow
def test_no_path_is_below_the_exact_law_many():
    rng = np.random.default_rng(12)
    for _ in range(500):
        _check_instance(rng)


def test_one_step_is_attained():
    for rate, s in ((0.1, 1.0), (0.5, 2.0), (0.02, 0.7)):
        curve = poisson.best(Steps(0.9, s, 1.0, 1), rate, 1e-5).curve
        law = poisson_law(np.ones(1), np.array([s]), np.ones(1), rate)
        truth = law.deltas([0.5])[0]
        assert truth <= curve.delta(0.5) <= truth * 1.002


def test_updates_that_are_not_linear():
    """|x| folds, the record's pull depends on the iterate: the law on a fine grid."""
    x = np.linspace(-14, 14, 1401)
    width = x[1] - x[0]
    rng = np.random.default_rng(13)
    for _ in range(6):
        steps, c, s, rate = 4, rng.uniform(0.5, 1), rng.uniform(0.5, 1.5), rng.uniform(0.1, 0.6)
        calm = c * np.abs(x)
        pulled = calm + s * np.sin(rng.uniform(1, 5) * x + rng.uniform(0, 6))

        def kernel(mean, width=width, x=x):
            return np.exp(-((x[:, None] - mean) ** 2) / 2) * width / math.sqrt(2 * math.pi)

        without, with_ = kernel(calm), kernel(pulled)
        q = kernel(calm)[:, len(x) // 2]
        p = (1 - rate) * q + rate * kernel(pulled)[:, len(x) // 2]
        for _ in range(steps - 1):
            q, p = without @ q, (1 - rate) * (without @ p) + rate * (with_ @ p)
        for order in (2, 8):
            path = poisson.deferral_path(Steps(c, s, 1.0, steps), rate, order)
            curve = poisson.poisson_curve(path)
            for epsilon in (0.0, 0.5, 1.5):
                gamma = math.exp(epsilon)
                truth = max(np.maximum(p - gamma * q, 0).sum(), np.maximum(q - gamma * p, 0).sum())
                assert curve.delta(epsilon) >= truth * (1 - 1e-4)


def test_a_bounded_domain_is_left_at_any_step():
    """Restarting from the diameter: the walk projected on an interval, on a fine grid."""
    D, s, rate, steps = 1.0, 0.8, 0.5, 60
    x = np.linspace(0, D, 401)
    half = (x[1] - x[0]) / 2

    def kernel(mean):
        edges = np.concatenate([[-np.inf], x[:-1] + half, [np.inf]])
        return np.diff(ndtr(edges[:, None] - mean), axis=0)

    calm, pulled = kernel(x), kernel(x + s)
    p = q = np.eye(len(x))[0]
    for _ in range(steps):
        p, q = (1 - rate) * (calm @ p) + rate * (pulled @ p), calm @ q
    run = Steps(1.0, s, 1.0, steps)
    bound = poisson.best(run, rate, 1e-5, diameter=D)
    assert bound.first > 0
    assert bound.curve.epsilon(1e-5) < 0.5 * poisson.plain_curve(run, rate).epsilon(1e-5)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        gamma = math.exp(epsilon)
        truth = max(np.maximum(p - gamma * q, 0).sum(), np.maximum(q - gamma * p, 0).sum())
        assert bound.curve.delta(epsilon) >= truth


def test_the_naive_contraction_is_refuted_by_two_records():
    """n = 2, rate 1/2, eta = strong convexity = smoothness = 1, two steps, s = nu, epsilon 1.

    The other record contracts to a point when it is drawn and not at all when it is not.
    """
    epsilon = 1.0
    naive = poisson.poisson_curve(poisson.follow(Steps(0.0, 1.0, 1.0, 2), 0.5, [0.0, 1.0, 0.0]))
    by_batch = [poisson_law(np.array([c, c]), np.ones(2), np.ones(2), 0.5) for c in (0.0, 1.0)]
    # The other record's coin at the second step is hidden too: mix both cases, cell by cell.
    scales = (1.0, math.sqrt(2.0))
    edges = np.linspace(-12, 14, 40_001)

    def masses(means, weights, scale):
        return np.diff(ndtr(edges[:, None] / scale - means) @ weights)

    p = sum(0.5 * masses(law.p, law.p_weights, z) for law, z in zip(by_batch, scales, strict=True))
    q = sum(0.5 * masses(law.q, law.q_weights, z) for law, z in zip(by_batch, scales, strict=True))
    gamma = math.exp(epsilon)
    truth = max(np.maximum(p - gamma * q, 0).sum(), np.maximum(q - gamma * p, 0).sum())
    assert truth == pytest.approx(0.0450, abs=5e-5)
    assert naive.delta(epsilon) == pytest.approx(0.0289, abs=5e-5)
    run = Training(
        records=2,
        steps=2,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=Poisson(0.5),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    c, _, failure = batch_contraction(Run(run, loss), 1e-5)
    assert (c >= 1.0).all()
    assert failure in (0.0, 1e-8)
    assert account(run, loss).delta(epsilon) >= truth


def test_only_the_l2_term_contracts_and_crowds_are_paid_in_delta():
    run = Training(
        records=10_000,
        steps=100,
        step_size=0.5,
        noise=1.0,
        gradient_norm=1.0,
        batches=Poisson(0.01),
        adjacency="zero-out",
    )
    gentle = Loss(smoothness=0.01, strong_convexity=0.01, regularization=0.2)
    c, _, failure = batch_contraction(Run(run, gentle), 1e-5)
    assert c == pytest.approx(0.9)
    assert failure == 0.0
    rough = Loss(smoothness=2.0, regularization=0.2)  # a batch of everybody would overshoot
    c, _, failure = batch_contraction(Run(run, rough), 1e-5)
    cap = poisson.batch_cap(10_000, 0.01, 100, failure)
    assert failure == pytest.approx(1e-8)
    assert c == pytest.approx(max(0.9, abs(1 - 0.5 * (0.2 + 2.0 * cap / 100))))


def test_cap():
    for records, rate, steps, failure in ((500, 0.1, 50, 1e-8), (10_000, 0.01, 1000, 1e-9)):
        cap = poisson.batch_cap(records, rate, steps, failure)
        assert steps * binom.sf(cap, records, rate) <= failure
        assert steps * binom.sf(cap - 1, records, rate) > failure * (1 - 1e-6)
    assert poisson.batch_cap(30, 1.0, 5, 1e-3) == 30


def test_paths_that_prove_nothing_are_refused():
    with pytest.raises(DescriptionError, match="left"):
        poisson.follow(Steps(0.9, 1.0, 1.0, 2), 0.1, [0.0, 0.5, 0.1])
    with pytest.raises(DescriptionError, match="left"):
        poisson.follow(Steps(0.9, 1.0, 1.0, 2), 0.1, [0.0, 1.5, 0.0])
    with pytest.raises(DescriptionError, match="left"):
        poisson.follow(Steps(0.9, 1.0, 1.0, 2), 0.1, [0.5, 0.5, 0.0])
    with pytest.raises(DescriptionError, match="3 numbers"):
        poisson.deferral_path(Steps([0.9, 0.9], 1.0, 1.0, 3), 0.1, 4)
    with pytest.raises(DescriptionError, match="rate"):
        poisson.best(Steps(0.9, 1.0, 1.0, 3), 0.0, 1e-5)


def _moment(path, order):
    """By the quadrature of the pairs, not by the one of the search."""
    shifts = zip(path.low.tolist(), path.high.tolist(), strict=True)
    return sum(SampledPair(path.rate, *pair).log_moments(order - 1.0)[0] for pair in shifts)


def test_no_path_nearby_or_far_has_a_smaller_moment():
    """Among all feasible z, of unlike steps too, where the past must be paid before its end."""
    rng = np.random.default_rng(14)
    cut = 0
    for _ in range(12):
        steps = int(rng.integers(2, 7))
        run = Steps(*(rng.uniform(low, 1.0, steps) for low in (0.5, 0.1, 0.3)), steps)
        rate, order = rng.uniform(0.05, 0.6), float(rng.choice([1.3, 2.0, 5.0]))
        found = poisson.deferral_path(run, rate, order)
        least = _moment(found, order)
        cut += bool(np.any(found.left[1:-1] == 0.0) and np.any(found.left > 0.0))
        for width in np.geomspace(1e-4, 1.0, 30):
            left = found.left + width * rng.normal(size=steps + 1) * (rng.random(steps + 1) < 0.5)
            left[0] = left[-1] = 0.0
            for k in range(1, steps):
                left[k] = np.clip(left[k], 0.0, run.c[k - 1] * left[k - 1] + run.s[k - 1] * 0.999)
            assert _moment(poisson.follow(run, rate, left), order) >= least * (1 - 1e-6)
    assert cut > 2  # some paths come back to zero on the way


def test_a_path_that_defers_everything_at_first_is_verified():
    """What a step leaves over is there in exact numbers too, not only in doubles rounded up."""
    run = Training(
        records=1000,
        steps=60,
        step_size=np.linspace(1.0, 0.3, 60),
        noise=0.05,
        gradient_norm=1.0,
        batches=Poisson(0.05),
        adjacency="zero-out",
    )
    proof = certify(run, Loss(smoothness=0.5, regularization=0.5), 1e-6)
    assert verify(proof).epsilon == proof.epsilon


@pytest.mark.parametrize("rounding_drift", [0.0, 0.005])
def test_a_release_on_the_way_never_helps(rounding_drift):
    """Stretches are chosen together: with one more known point the best is no smaller."""
    rng = np.random.default_rng(15)
    for steps in (4, 6):
        c, s, nu = (rng.uniform(low, 1.0, steps) for low in (0.8, 0.1, 0.3))
        run, rate = Steps(c, s, nu, steps, rounding_drift=rounding_drift), rng.uniform(0.1, 0.4)
        hidden = poisson.best(run, rate, 1e-5).curve.epsilon(1e-5)
        for cut in (steps // 2,):
            parts = poisson.best_segments_of_one([run[:cut], run[cut:]], rate, 1e-5)
            known = parts[0].curve.compose(parts[1].curve).epsilon(1e-5)
            assert hidden <= known * (1 + 1e-4), (c, s, nu, rate, cut)


def test_schedules_gain_too_and_rounding_up_is_small():
    steps = 600
    eta = np.linspace(1.0, 0.2, steps)
    best = poisson.best(Steps(1 - 0.02 * eta, eta, 1.0, steps), 0.02, 1e-6)
    plain = poisson.plain_curve(Steps(1.0, eta, 1.0, steps), 0.02).epsilon(1e-6)
    assert best.curve.epsilon(1e-6) < 0.8 * plain
    exact = LossDistribution.nothing()
    for value in eta[::4]:
        exact = exact.compose(LossDistribution.sampled_gaussian(0.02, value).self_compose(4))
    assert exact.rdp(4.0) * 0.95 <= poisson.plain_curve(Steps(1.0, eta, 1.0, steps), 0.02).rdp(4.0)
    assert poisson.plain_curve(Steps(1.0, eta, 1.0, steps), 0.02).rdp(4.0) <= exact.rdp(4.0) * 1.05


def test_edges():
    assert poisson.best(Steps(0.9, 0.0, 1.0, 10), 0.1, 1e-5).curve.epsilon(1e-9) == 0.0
    assert poisson.best(Steps(0.9, 1.0, 1.0, 0), 0.1, 1e-5).curve.epsilon(1e-9) == 0.0
    assert poisson.best(Steps(0.9, 1.0, 0.0, 10), 0.1, 1e-5).curve.epsilon(1e-9) == math.inf
    harsh = Steps([1.5, 1.0, 0.0], [1e3, 1e-12, 1.0], [1e-150, 1e-150, 1.0], 3, rounding_drift=1e-9)
    assert poisson.best(harsh, 0.3, 1e-5).curve.epsilon(1e-5) > 0.0  # and nothing overflows
    assert poisson.best(Steps(0.0, 1.0, 1.0, 50), 0.3, 1e-5).curve.epsilon(1e-5) == pytest.approx(
        LossDistribution.sampled_gaussian(0.3, 1.0).epsilon(1e-5), rel=1e-4
    )  # nothing survives a step: only the last one is paid


def test_lower_reference_is_below_the_exact_law():
    rng = np.random.default_rng(15)
    for _ in range(8):
        steps, rate = int(rng.integers(1, 8)), rng.uniform(0.05, 0.9)
        c, s, nu = rng.uniform(0.3, 1, (3, steps)) * np.array([[1], [2], [1]])
        law = poisson_law(c, s, nu, rate)
        for delta in (1e-2, 1e-5):
            lower = linear_lower(Steps(c, s, nu, steps), rate, delta)
            fine = Mixtures(law.p, law.p_weights, law.q, law.q_weights)
            assert fine.deltas([lower * 0.99 - 1e-6])[0] >= delta * (1 - 1e-3)
            assert fine.deltas([lower * 1.02 + 0.01])[0] <= delta  # and not far below
    # equal impulses, no contraction: a binomial mixture, in closed form
    steps, rate, delta = 40, 0.1, 1e-4
    k = np.arange(steps + 1)
    law = Mixtures(k / math.sqrt(steps), binom.pmf(k, steps, rate), np.zeros(1), np.ones(1))
    lower = linear_lower(Steps(1.0, 1.0, 1.0, steps), rate, delta)
    assert law.deltas([lower - 1e-6])[0] >= delta * (1 - 1e-3)
    assert law.deltas([lower * 1.01])[0] <= delta


def test_a_path_that_is_no_number_is_refused() -> None:
    """Its steps would cost nothing: comparisons with nan are false."""
    for bad in (math.nan, math.inf, -1.0):
        with pytest.raises(DescriptionError, match="left"):
            poisson.follow(Steps(0.99, 1.0, 1.0, 3), 0.1, [0.0, bad, bad, 0.0])


def extreme(rng):
    """Steps with numbers from all over the doubles, a rate, an order, a diameter and a start."""

    def about(least, most):
        return float(10 ** rng.uniform(least, most))

    factors = [about(-4, 0), 1.0, 1 - about(-9, -1), about(0, 2)]
    sizes = float(rng.choice(factors)), about(-9, 6), about(-9, 3), int(about(0, 2.5))
    steps = Steps(*sizes, rounding_drift=float(rng.choice([0.0, about(-12, -2)])))
    diameter = float(rng.choice([math.inf, about(-3, 4)]))
    start = 0.0 if math.isinf(diameter) or rng.random() < 0.5 else diameter
    return steps, about(-5, 0), about(0.01, 4), start, diameter


def test_prices_beyond_doubles_give_a_path_of_numbers():
    rng = np.random.default_rng(0)
    overflowing = Steps(47.6, 2e5, 0.23, 205, rounding_drift=5e-12), 1.76e-4, 5723.0, 0.0, math.inf
    for steps, rate, *asked in [overflowing, *(extreme(rng) for _ in range(20))]:
        path = poisson.deferral_path(steps, rate, *asked)
        assert np.all(np.isfinite(path.left))
        # The last step's own impulse is the whole law of some run: nothing may cost less.
        assert path.high[-1] >= steps.s[-1] / steps.nu[-1]


@pytest.mark.fuzz
def test_prices_beyond_doubles_give_paths_of_numbers_many():
    rng = np.random.default_rng()
    for _ in range(3000):
        steps, rate, *asked = extreme(rng)
        path = poisson.deferral_path(steps, rate, *asked)
        assert np.all(np.isfinite(path.left))
        assert path.high[-1] >= steps.s[-1] / steps.nu[-1]


def test_payments_that_are_no_number_protect_nothing():
    steps = Steps(2.0, 1.0, 1.0, 3)
    for bad in (math.nan, math.inf):
        curve = absorption.absorbing(
            lambda *shifts: SampledPair(0.5, *shifts), steps, np.full(2, bad)
        )
        assert curve.epsilon(1e-5) == math.inf
