"""Poisson batches, one record replaced: never below exact laws, on the line and in the plane."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from planar_laws import in_disc, planar_deltas
from sampled_laws import Mixtures
from scipy.special import ndtr

from lastiterate import Loss, Poisson, Training, account
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import OpposedPair
from lastiterate.theory import inapplicable_reason
from lastiterate.theory import poisson as theorem
from lastiterate.theory import without_replacement as absorption
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.poisson import POISSON_REPLACE_ABSORPTION, published
from lastiterate.theory.run import Run

EPSILONS = (0.0, 0.1, 0.5, 1.2, 2.5, 4.0)
ORDERS = (1.2, 2.0, 5.0, 16.0)


def run(**changes):
    fields = {
        "records": 100,
        "steps": 40,
        "step_size": 0.1,
        "noise": 0.02,
        "gradient_norm": 1.0,
        "batches": Poisson(0.1),
    }
    return Training(**{"adjacency": "replace", **fields, **changes})


def random_payments(rng, c, left, tail):
    """Payments that absorb a distance along a random path."""
    z, pays = left, []
    for k, factor in enumerate(np.broadcast_to(c, tail)):
        after = 0.0 if k == tail - 1 else factor * z * rng.uniform()
        pays.append((factor * z - after) * (1 + 1e-12) + 1e-300)
        z = after
    return np.array(pays)


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(0.01, 1.0, 1000), (0.1, 2.0, 30), (0.5, 3.0, 4)]
)
def test_the_same_as_dp_accounting(rate, noise, steps):
    pair = oracle.from_gaussian_mechanism(
        noise, sampling_prob=rate, neighboring_relation=oracle.NeighborRel.REPLACE_ONE
    )
    for delta in (1e-4, 1e-6):
        theirs = pair.self_compose(steps).get_epsilon_for_delta(delta)
        ours = theorem.opposed_curve(Steps(1.0, 1.0, noise, steps), rate).epsilon(delta)
        assert ours == pytest.approx(theirs, rel=1e-3)
    if steps == 1000:
        assert ours == pytest.approx(3.214, abs=1e-3)


def test_a_described_run_has_that_value():
    training = Training(
        records=10_000,
        steps=1000,
        step_size=0.5,
        noise=0.5 / 100,
        gradient_norm=1.0,
        batches=Poisson(0.01),
        adjacency="replace",
    )
    guarantee = account(training, Loss.unknown())
    assert guarantee.epsilon(1e-6) == pytest.approx(3.214, abs=1e-3)
    assert 2.8 < guarantee.lower(1e-6) <= guarantee.epsilon(1e-6)


def _planar_instance(rng):
    rate, h = 10 ** rng.uniform(-1.5, -0.05), rng.uniform(0.3, 2.0)
    steps, c = int(rng.integers(1, 4)), rng.uniform(0.2, 1.0)
    plain = theorem.opposed_curve(Steps(1.0, h, 1.0, steps), rate)
    turn = rng.uniform(0, 2 * np.pi)
    matrix = c * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    powers = [np.linalg.matrix_power(matrix, steps - 1 - k) for k in range(steps)]
    noise = math.sqrt(sum(c ** (2 * k) for k in range(steps)))
    patterns = np.array(list(itertools.product((0, 1), repeat=steps)))
    weights = np.prod(np.where(patterns, rate, 1 - rate), axis=1)
    sides = []
    for _ in range(2):
        moves = np.array([power @ in_disc(rng, h) for power in powers])
        sides += [patterns @ moves / noise, weights]
    return plain, planar_deltas(*sides, EPSILONS), (rate, h, steps, c)


def test_opposite_gradients_are_the_worst_in_the_plane():
    rng = np.random.default_rng(1)
    for _ in range(150):
        plain, truth, instance = _planar_instance(rng)
        for epsilon, least in zip(EPSILONS, truth, strict=True):
            assert plain.delta(epsilon) >= least - 1e-12, (epsilon, *instance)


@pytest.mark.slow
def test_opposite_gradients_are_the_worst_in_the_plane_many():
    rng = np.random.default_rng(2)
    for _ in range(600):
        plain, truth, instance = _planar_instance(rng)
        for epsilon, least in zip(EPSILONS, truth, strict=True):
            assert plain.delta(epsilon) >= least - 1e-12, (epsilon, *instance)


def test_one_step_is_attained():
    """The pair itself is a step on the line: equality up to cutting."""
    rng = np.random.default_rng(3)
    for _ in range(8):
        rate, h = 10 ** rng.uniform(-2, -0.05), rng.uniform(0.2, 2.0)
        centres, weights = np.array([0.0, h]), np.array([1 - rate, rate])
        truth = Mixtures(centres, weights, -centres, weights).deltas(EPSILONS)
        for epsilon, least in zip(EPSILONS, truth, strict=True):
            value = theorem.opposed_curve(Steps(1.0, h, 1.0, 1), rate).delta(epsilon)
            assert value >= least
            if least > 1e-9:
                assert value == pytest.approx(least, rel=2e-3)


def _line_law(c, one, two, nu, rate):
    """x -> c_k x + xi_k impulse_k + noise, with the impulses of the two records."""
    steps = len(one)
    later = np.array([np.prod(c[k + 1 :]) for k in range(steps)])
    noise = np.sqrt(np.sum((later * nu) ** 2))
    patterns = np.array(list(itertools.product((0, 1), repeat=steps)))
    weights = np.prod(np.where(patterns, rate, 1 - rate), axis=1)
    return Mixtures(
        patterns @ (later * one) / noise, weights, patterns @ (later * two) / noise, weights
    )


def _line_instance(rng):
    steps, rate = int(rng.integers(1, 7)), 10 ** rng.uniform(-1.5, -0.03)
    c = rng.uniform(0.1, 1.1) if rng.random() < 0.5 else rng.uniform(0.1, 1.1, steps)
    h = rng.uniform(0.1, 2.0) if rng.random() < 0.5 else rng.uniform(0.1, 2.0, steps)
    nu = 1.0 if rng.random() < 0.5 else rng.uniform(0.5, 1.5, steps)
    gap = 2 * h
    tail = int(rng.integers(1, steps + 1))
    first = steps - tail
    run = Steps(c, h, nu, steps, gap=gap)
    left = absorption.distance(run[:first])
    pays = random_payments(rng, run[first:].c, left, tail)
    curve = absorption.absorbing(theorem.opposed_pair(rate), run, pays)
    shrink = rng.choice([1.0, rng.uniform(0, 1)], steps) * rng.choice([-1, 1], steps)
    sizes = np.broadcast_to(h, steps) * rng.choice([1.0, rng.uniform()], steps)
    signs = rng.choice([-1, 1], steps) if rng.random() < 0.5 else np.ones(steps)
    one, two = sizes * signs, -sizes * signs * rng.choice([1.0, -1.0, 0.3, 0.0])
    law = _line_law(np.broadcast_to(c, steps) * shrink, one, two, np.broadcast_to(nu, steps), rate)
    return curve, law, (steps, rate, c, h, nu, pays)


def _never_below(curve, law, instance):
    for epsilon, least in zip(EPSILONS, law.deltas(EPSILONS), strict=True):
        if least > 1e-13:
            assert curve.delta(epsilon) >= least, (epsilon, *instance)
    for order, least in zip(ORDERS, law.renyis(ORDERS), strict=True):
        assert curve.rdp(order) >= least * (1 - 1e-12), (order, *instance)


def test_never_below_the_exact_law_on_the_line():
    rng = np.random.default_rng(4)
    for _ in range(60):
        _never_below(*_line_instance(rng))


@pytest.mark.slow
def test_never_below_the_exact_law_on_the_line_many():
    rng = np.random.default_rng(5)
    for _ in range(600):
        _never_below(*_line_instance(rng))


def test_the_search_never_falls_below_the_exact_law():
    rng = np.random.default_rng(6)
    for _ in range(15):
        steps, rate = int(rng.integers(2, 9)), rng.uniform(0.2, 0.9)
        c, h = rng.uniform(0.1, 0.9), rng.uniform(0.3, 2.0)
        found = absorption.best(
            theorem.opposed_pair(rate), Steps(c, h, 1.0, steps, gap=2 * h), 1e-3
        )
        same = np.ones(steps)
        law = _line_law(c * same, h * same, -h * same, same, rate)
        _never_below(found.curve, law, (steps, rate, c, h))


def test_updates_that_fold_and_gradients_that_depend_on_the_iterate():
    """x -> c|x| + xi h(x) + noise on a fine grid, h(x) = s sin(5x) against -s cos(3x)."""
    x = np.linspace(-9, 9, 601)
    half = (x[1] - x[0]) / 2
    edges = np.concatenate([[-np.inf], x[:-1] + half, [np.inf]])
    rate, c, s, steps = 0.3, 0.6, 1.2, 4
    laws = []
    for push in (s * np.sin(5 * x), -s * np.cos(3 * x)):
        centres = (c * np.abs(x), c * np.abs(x) + push)
        kernel = sum(
            weight * np.diff(ndtr(edges[:, None] - centre), axis=0)
            for weight, centre in zip((1 - rate, rate), centres, strict=True)
        )
        law = np.eye(len(x))[300]
        for _ in range(steps):
            law = kernel @ law
        laws.append(law)
    p, q = laws
    rng = np.random.default_rng(7)
    for tail in range(1, steps + 1):
        run = Steps(c, s, 1.0, steps, gap=2 * s)
        pays = random_payments(rng, c, absorption.distance(run[:-tail]), tail)
        curve = absorption.absorbing(theorem.opposed_pair(rate), run, pays)
        for epsilon in EPSILONS:
            gamma = math.exp(epsilon)
            truth = max(np.maximum(p - gamma * q, 0).sum(), np.maximum(q - gamma * p, 0).sum())
            assert curve.delta(epsilon) >= truth


def test_gradients_that_are_declared_to_be_close():
    """|g|, |g'| <= h and |g - g'| <= s: never below the law in the plane, and better than 2h."""
    rng = np.random.default_rng(8)
    for _ in range(25):
        rate, share = rng.uniform(0.05, 0.9), rng.uniform(0.05, 1.0)
        training = run(steps=1, batches=Poisson(rate), sensitivity=2 * share)
        case = Run(training, Loss.unknown())
        h = training.step_size / (rate * 100) / training.noise
        g = in_disc(rng, h)
        move = in_disc(rng, 2 * h * share)
        other = g + move
        if np.linalg.norm(other) > h:
            other *= h / np.linalg.norm(other)  # a projection, so it stays close
        weights = np.array([1 - rate, rate])
        zero = np.zeros(2)
        truth = planar_deltas(
            np.array([zero, g]), weights, np.array([zero, other]), weights, EPSILONS
        )
        curves = [published(case, 0, 1, delta) for delta in (1e-2, 1e-6)]
        for epsilon, least in zip(EPSILONS, truth, strict=True):
            for curve in curves:
                assert curve.delta(epsilon) >= least - 1e-12
    wide, close = (account(run(sensitivity=s), Loss.unknown()).epsilon(1e-6) for s in (2.0, 1.0))
    assert close < 0.9 * wide
    assert account(run(sensitivity=0.0), Loss.unknown()).epsilon(1e-9) == 0.0


def test_payments_that_leave_something_over_protect_nothing():
    pays = np.array([0.1, 0.1])
    steps = Steps(0.9, 1.0, 1.0, 5, gap=2.0)
    assert absorption.absorbing(theorem.opposed_pair(0.1), steps, pays).delta(3.0) == 1.0


def test_forgetting_gains_with_the_l2_term_and_never_costs():
    losses = [Loss(smoothness=1.0, regularization=r) for r in (0.0, 0.5, 2.0)]
    training = run(steps=200)
    epsilons = [account(training, loss).epsilon(1e-6) for loss in losses]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in itertools.pairwise(epsilons))
    assert epsilons[-1] < 0.6 * epsilons[0]


def test_the_lower_reference_is_below_the_exact_law_and_not_far():
    """The reference is a linear run; the exact law of the same run has at least that epsilon."""
    rng = np.random.default_rng(9)
    for _ in range(12):
        steps, rate, lam = int(rng.integers(1, 9)), rng.uniform(0.1, 0.9), rng.uniform(0, 3)
        training = run(steps=steps, batches=Poisson(rate), noise=rng.uniform(0.005, 0.05) / rate)
        guarantee = account(training, Loss(smoothness=1.0, regularization=lam))
        h = training.step_size / (rate * 100)
        law = _line_law(
            np.full(steps, 1 - 0.1 * lam),
            np.full(steps, h),
            np.full(steps, -h),
            np.full(steps, training.noise),
            rate,
        )
        for delta in (1e-2, 1e-4):
            low = guarantee.lower(delta)
            assert low <= guarantee.epsilon(delta)
            if low > 0:
                assert law.deltas([low * (1 - 1e-9)])[0] >= delta * (1 - 2e-3)


def test_no_lower_reference_where_no_loss_of_the_class_is_linear():
    strong = Loss(smoothness=1.0, strong_convexity=0.5, regularization=0.1)
    assert account(run(steps=3), strong).lower(1e-3) == 0.0


def test_rounding_of_sums_is_charged_at_every_step():
    exact = run(steps=200)
    loss = Loss(smoothness=1.0, regularization=1.0)
    values = [
        account(exact.replace(arithmetic=arithmetic), loss).epsilon(1e-6)
        for arithmetic in ("exact", {"error": 1e-5}, {"error": 1e-3})
    ]
    assert values == sorted(values)
    assert values[0] < values[1] < values[2]


def test_the_two_orders_of_an_absorbing_pair_differ_and_both_count():
    pair = OpposedPair(0.2, 0.5, 1.5, 1.0)
    one = LossDistribution({pair: 1})
    law = Mixtures(
        np.array([0.5, 1.5]), np.array([0.8, 0.2]), np.array([0.0, -1.0]), np.array([0.8, 0.2])
    )
    for epsilon, least in zip(EPSILONS, law.deltas(EPSILONS), strict=True):
        assert least <= one.delta(epsilon) <= least * 1.01 + 1e-9
    for order, least in zip(ORDERS, law.renyis(ORDERS), strict=True):
        assert least * (1 - 1e-12) <= one.rdp(order) <= least * 1.01 + 1e-9


def test_objections():
    theorem_ = POISSON_REPLACE_ABSORPTION
    smooth = Loss(smoothness=1.0, regularization=0.1)
    assert inapplicable_reason(theorem_, Run(run(), smooth)) is None
    assert "replace" in inapplicable_reason(theorem_, Run(run(adjacency="zero-out"), smooth))
    assert "smooth" in inapplicable_reason(theorem_, Run(run(), Loss.unknown()))
    assert "L2" in inapplicable_reason(theorem_, Run(run(), Loss(smoothness=1.0)))


@pytest.mark.parametrize("shift", [1e-300, 1e-9, 30.0, 1e3, 1e5, 1e7, math.inf])
@pytest.mark.parametrize("rate", [1e-12, 0.5, 1.0])
def test_extreme_pairs_answer_without_an_exception(shift, rate):
    curve = LossDistribution({OpposedPair(rate, 0.0, shift, shift): 3})
    values = [curve.delta(epsilon) for epsilon in (0.0, 1.0, 50.0)]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(values))
    most = 3 * rate * math.erf(min(shift, 1e3) / math.sqrt(2))  # each coin falls with this chance
    assert values[0] <= min(most, 1.0) * (1 + 1e-6) + 1e-9 or shift >= 1e5
    assert values[0] >= min(rate * math.erf(min(shift, 1e3) / math.sqrt(2)), 1.0) * (1 - 1e-6)
