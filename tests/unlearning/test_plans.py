"""Plans of forgetting against exact laws: linear, curved and discontinuous updates, both orders."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr
from tests.laws.grid_laws import bounded, lipschitz, stick
from tests.laws.sampled_laws import Mixtures, poisson_law

from lastiterate import (
    Arithmetic,
    Cyclic,
    DescriptionError,
    FullBatch,
    Loss,
    Poisson,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
    TailAverage,
    TargetError,
    Training,
    UnsupportedError,
    WithoutReplacement,
    account,
    certify,
    verify,
)
from lastiterate.curves import gaussian
from lastiterate.unlearning import plan_requests, plan_unlearning
from lastiterate.unlearning.going_on import going_on

pytestmark = pytest.mark.filterwarnings("ignore:delta =")


def random_problem(rng, batches=None):
    size, per_epoch = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    scheme = batches(size) if batches else rng.choice([FullBatch(), Cyclic(size)])
    steps = int(rng.integers(1, 40))
    run = Training(
        records=size * per_epoch,
        steps=steps,
        step_size=float(rng.uniform(0.1, 1.0)),
        noise=float(rng.uniform(0.3, 2.0)),
        gradient_norm=float(rng.uniform(0.3, 2.0)),
        batches=scheme,
        adjacency=str(rng.choice(["replace", "zero-out"])),
        final_noise=float(rng.choice([1.0, 1.0, rng.uniform(0.3, 5)])),
    )
    l2 = rng.uniform(0.02, 0.4) / run.step_size
    smooth = rng.uniform(0, 1 / run.step_size - l2)
    records = int(rng.integers(1, run.records + 1)) if run.batches.full else 1
    return run, Loss(smoothness=smooth, regularization=l2), PrivacyUnit(records=records)


def linear_mu(rng, training, loss, unit, share):
    """mu of x -> c'x + impulse + noise where the record sits in the worst place or another one."""
    if training.batches.full:
        held = np.full(training.steps, float(unit.records))
    else:
        held = np.zeros(training.steps)
        per_epoch = training.batches_per_epoch
        place = (unit.last_step - 1) % per_epoch if share == 1 else int(rng.integers(per_epoch))
        held[place::per_epoch] = 1.0
    held[unit.last_step :] = 0.0
    each = training.sensitivity / training.batches.divisor(training.records)
    gap = variance = 0.0
    for eta, s, nu in zip(
        training.step_sizes, training.step_sizes * each * held, training.noises, strict=True
    ):
        top = 1 - eta * loss.regularization
        c = top - (1 - share) * eta * loss.smoothness
        gap, variance = c * gap + s, c * c * variance + nu**2
    return gap / math.sqrt(variance)


def check_linear(seed):
    rng = np.random.default_rng(seed)
    run, loss, deleted = random_problem(rng)
    epsilon, delta = float(rng.uniform(0.1, 2)), float(10 ** rng.uniform(-7, -2))
    plan = plan_unlearning(run, loss, deleted, epsilon, delta)
    allowed = gaussian.mu(epsilon, delta) * (1 + 1e-9)
    runs = [plan.guarantee.training] if plan.steps is not None else []
    for share in (1.0, 1.0, float(rng.uniform()), 0.0):
        for each in runs:
            assert linear_mu(rng, each, loss, plan.deleted, share) <= allowed
        untouched = linear_mu(rng, run, loss, plan.deleted, share)
        assert untouched <= gaussian.mu(plan.nothing, delta) * (1 + 1e-9)
    if plan.steps and run.batches.full and run.final_noise == 1:
        # One step less: a loss of the class really breaks the target. Nobody can certify it.
        shorter = run.replace(steps=run.steps + plan.steps - 1)
        truth = linear_mu(rng, shorter, loss, plan.deleted, 1.0)
        assert truth > gaussian.mu(epsilon, delta) * (1 - 1e-9)
    return plan


@pytest.mark.parametrize("part", range(4))
def test_plans_keep_their_promise_on_linear_losses_and_no_shorter_one_could(part):
    plans = [check_linear(1000 * part + seed) for seed in range(40)]
    assert sum(bool(plan.steps) for plan in plans) > 10


@pytest.mark.slow
def test_many_linear_losses():
    for seed in range(10_000, 10_600):
        check_linear(seed)


class Cells:
    """Runs that are rounded to the middles of cells after every step: their laws are vectors.

    Rounding leaves two runs farther apart by a cell at most, which ``error`` charges at every step.
    """

    width, reach = 2.0**-5, 10.0

    def __init__(self):
        self.x = np.arange(-self.reach, self.reach + self.width / 2, self.width)
        self.edges = np.concatenate([[-np.inf], (self.x[1:] + self.x[:-1]) / 2, [np.inf]])

    def error(self, eta):
        return self.width / (2 * eta)

    def step(self, phi):
        """The matrix of x -> phi(x) + N(0, 1)."""
        return np.diff(ndtr(self.edges[:, None] - phi(self.x)), axis=0)

    def law(self, steps, start=0):
        law = np.zeros(len(self.x))
        law[len(law) // 2 + start] = 1.0
        for each in steps:
            law = each @ law
        return law


def check_curved(seed):
    """Clean maps: any c-Lipschitz ones, folded and waved too. What is deleted jumps as it likes."""
    rng = np.random.default_rng(seed)
    steps, eta, cells = int(rng.integers(1, 9)), 0.5, Cells()
    c, norm = float(rng.uniform(0.5, 0.95)), float(rng.uniform(0.5, 4.0))
    scheme = rng.choice([FullBatch(), Cyclic(1)])
    run = Training(
        records=int(rng.integers(2, 5)),
        steps=steps,
        step_size=eta,
        noise=1.0,
        gradient_norm=norm,
        batches=scheme,
        adjacency="zero-out",
        arithmetic=Arithmetic(error=cells.error(eta)),
    )
    epsilon, delta = float(rng.uniform(0.1, 1.0)), float(10 ** rng.uniform(-3, -1))
    loss = Loss(smoothness=0.1, regularization=(1 - c) / eta)
    plan = plan_unlearning(run, loss, None, epsilon, delta)
    phi = lipschitz(rng, c, 1.0)
    pull = bounded(rng, eta * norm / run.batches.divisor(run.records), 1.0)
    clean, dirty = cells.step(phi), cells.step(lambda x: phi(x) + pull(x))
    every = run.batches_per_epoch or 1
    place = int(rng.integers(every))
    used = [dirty if k % every == place else clean for k in range(steps)]
    later = [0, 1, int(rng.integers(2, 12)), *([plan.steps] if plan.steps else [])]
    for more in later:
        tail = [clean] * min(more, 25)  # post-processing beyond that
        truth = stick(cells.law(used + tail), cells.law([clean] * (steps + len(tail))), epsilon)
        longer = run.replace(steps=steps + len(tail))
        assert truth <= account(longer, loss, unit=plan.deleted).delta(epsilon) + 1e-12
        if more == plan.steps == len(tail):
            assert truth <= delta


@pytest.mark.parametrize("seed", range(12))
def test_curved_and_discontinuous_updates(seed):
    check_curved(seed)


@pytest.mark.slow
def test_many_curved_and_discontinuous_updates():
    for seed in range(100, 520):
        check_curved(seed)


def check_poisson(seed):
    """A coin for every step decides whether the record is in: all patterns, before clean steps."""
    rng = np.random.default_rng(seed)
    steps, rate = int(rng.integers(1, 8)), float(rng.uniform(0.05, 0.9))
    run = Training(
        records=20,
        steps=steps,
        step_size=0.5,
        noise=1.0,
        gradient_norm=float(rng.uniform(5.0, 60.0)) * rate,
        batches=Poisson(rate),
        adjacency="zero-out",
    )
    c = float(rng.uniform(0.5, 1.0))
    loss = Loss(smoothness=0.0, regularization=(1 - c) / run.step_size)
    epsilon, delta = float(rng.uniform(0.1, 1.5)), float(10 ** rng.uniform(-5, -2))
    plan = plan_unlearning(run, loss, None, epsilon, delta)
    impulse = run.step_size * run.gradient_norm / (rate * run.records)
    runs = [run, run.replace(steps=steps + 3)]
    runs += [plan.continued] if plan.steps else []
    for each in runs:
        factors = 1 - each.step_sizes * loss.regularization
        impulses = np.where(np.arange(each.steps) < steps, impulse, 0.0)
        truth = poisson_law(factors, impulses, each.noises, rate).deltas([epsilon])[0]
        proved = account(each, loss, unit=plan.deleted).delta(epsilon)
        assert truth <= proved
        if each not in runs[:2]:
            assert truth <= delta
            assert proved <= delta * (1 + 1e-9)
    return plan


def check_hidden(seed, scheme):
    """Hidden places: mixtures over all of them, one for the run or one for every epoch."""
    rng = np.random.default_rng(seed)
    run, loss, _ = random_problem(rng, scheme)
    run = run.replace(steps=min(run.steps, 3 * run.batches_per_epoch), adjacency="zero-out")
    every, epsilon = run.batches_per_epoch, float(rng.uniform(0.1, 2))
    gone, clean = PrivacyUnit(last_step=run.steps), int(rng.integers(0, 10))
    runs = [going_on(run, clean)]
    if scheme is Shuffled:
        plan = plan_unlearning(run, loss, None, epsilon, float(10 ** rng.uniform(-6, -2)))
        runs += [plan.continued] if plan.steps else []
    epochs = -(-run.steps // every)
    places = [[j] * epochs for j in range(every)]
    if scheme is Reshuffled:
        places = list(itertools.product(range(every), repeat=epochs))
    impulse = run.step_size * run.gradient_norm / run.batches.divisor(run.records)
    for each in runs:
        guarantee = account(each, loss, unit=gone)
        for share in (1.0, float(rng.uniform())):
            c = 1 - each.step_sizes * (loss.regularization + (1 - share) * loss.smoothness)
            later = np.append(np.cumprod(c[:0:-1])[::-1], 1.0)
            spread = math.sqrt(np.sum((later * each.noises) ** 2))
            used = [[e * every + j for e, j in enumerate(row)] for row in places]
            means = [impulse / spread * sum(later[k] for k in row if k < run.steps) for row in used]
            even = np.full(len(means), 1 / len(means))
            law = Mixtures(np.array(means), even, np.zeros(1), np.ones(1))
            truth = law.deltas([epsilon])[0]
            assert truth <= guarantee.delta(epsilon) * (1 + 1e-9)
            if len(runs) > 1 and each is runs[1]:
                assert truth <= plan.delta


@pytest.mark.parametrize("scheme", [Shuffled, Reshuffled])
def test_hidden_places(scheme):
    for seed in range(20 if scheme is Shuffled else 4):
        check_hidden(seed, scheme)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [Shuffled, Reshuffled])
def test_many_hidden_places(scheme):
    for seed in range(100, 250 if scheme is Shuffled else 130):
        check_hidden(seed, scheme)


def test_poisson_batches():
    assert check_poisson(1).steps


@pytest.mark.slow
def test_many_poisson_batches():
    plans = [check_poisson(seed) for seed in range(100, 112)]
    assert sum(bool(plan.steps) for plan in plans) > 3


@pytest.mark.parametrize(
    ("c", "steps", "clean", "mu"),
    [
        (0.99, 500, 0, 1.4014350422),
        (0.99, 500, 100, 0.5129609602),
        (0.99, 500, 300, 0.0687261475),
        (1.0, 100, 100, 0.7071067812),
    ],
)
def test_reference_values_of_full_batches(c, steps, clean, mu):
    run = Training(
        records=10,
        steps=steps + clean,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=0.0, regularization=1 - c)
    assert account(run, loss, unit=PrivacyUnit(last_step=steps)).mu == pytest.approx(mu, rel=1e-9)


def mnist(adjacency="replace"):
    n = 11982
    l2 = 1e-6 * n
    eta = 1 / (0.25 + l2)
    run = Training(
        records=n,
        steps=10_000,
        step_size=eta,
        noise=math.sqrt(2 * eta) * 0.03,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency=adjacency,
    )
    return run, Loss(smoothness=0.25, regularization=l2), 1 / n


@pytest.mark.parametrize(
    ("adjacency", "records", "epsilon", "steps"),
    [("replace", 10, 1.0, 11), ("replace", 100, 1.0, 60), ("zero-out", 1000, 1.0, 94)],
)
def test_the_table_of_single_requests(adjacency, records, epsilon, steps):
    run, loss, delta = mnist(adjacency)
    assert plan_unlearning(run, loss, PrivacyUnit(records=records), epsilon, delta).steps == steps


def test_the_table_of_requests_in_groups():
    run, loss, delta = mnist()
    plan = plan_requests(run, loss, PrivacyUnit(records=20), 1.0, delta, requests=5)
    assert plan.total == 150


@pytest.mark.parametrize(
    ("c", "clean", "square"),
    [(0.9, 3, 137.489672), (0.97, 10, 517.928751), (0.99, 50, 466.865397)],
)
def test_requests_for_ever_and_the_closed_form(c, clean, square):
    """K is the smallest one whose closed form meets the target, and long finite streams agree."""
    run = Training(
        records=10**6,
        steps=50,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1e6,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=0.0, regularization=1 - c)
    for slack, found in ((1 + 1e-6, clean), (1 - 1e-6, clean + 1)):
        mu = math.sqrt(square) * slack
        epsilon = gaussian.epsilon(mu, 1e-7)
        assert plan_requests(run, loss, None, epsilon, 1e-7).steps == (found,)
    few = plan_requests(run, loss, None, epsilon, 1e-7, requests=8)
    assert max(few.steps) <= clean + 1


@pytest.mark.parametrize("reference", ["retrained", "never joined"])
@pytest.mark.parametrize("seed", range(12))
def test_requests_one_by_one_against_linear_laws(seed, reference):
    rng = np.random.default_rng(seed)
    run, loss, _ = random_problem(rng, lambda _: FullBatch())
    run = run.replace(final_noise=1.0, records=12)
    many = int(rng.integers(2, 5))
    plan = plan_requests(run, loss, None, 0.5, 1e-5, requests=many, reference=reference)
    allowed = gaussian.mu(0.5, 1e-5) * (1 + 1e-9)
    s = run.step_size * run.sensitivity / run.records
    ever = plan_requests(run, loss, None, 0.5, 1e-5, reference=reference).steps * many
    for gaps in (plan.steps, ever):
        before = [0] * run.steps
        for now, gap in enumerate(gaps, start=1):
            before += [now] * gap
            for share in (1.0, float(rng.uniform())):
                c = 1 - run.step_size * (loss.regularization + (1 - share) * loss.smoothness)
                mean = variance = 0.0
                for came in before:
                    lacked = now - came if reference == "retrained" else float(came < now)
                    mean, variance = c * mean + s * lacked, c * c * variance + run.noise**2
                assert mean / math.sqrt(variance) <= allowed


def test_a_request_that_rests_on_a_released_model_is_refused():
    """The counterexample: others delete by the sign of a model that was released.

    c = 0.8, s = 0.5, 10 steps, 40 clean ones whose drift is 3 or -3 by the sign of X_10.
    """
    c, s, steps, clean = 0.8, 0.5, 10, 40
    run = Training(
        records=2,
        steps=steps,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=0.0, regularization=1 - c)
    mean, variance = s * (1 - c**steps) / (1 - c), (1 - c ** (2 * steps)) / (1 - c * c)
    x = np.linspace(-9, 9, 4001) * math.sqrt(variance) + mean / 2
    drift = 3 * (1 - c**clean) / (1 - c)
    spread = math.sqrt((1 - c ** (2 * clean)) / (1 - c * c))
    edges = np.linspace(-30, 30, 401)
    centres = c**clean * x + np.where(x > 0, drift, -drift)
    cells = np.diff(ndtr((edges[:, None] - centres) / spread), axis=0)
    laws = []
    for centre in (mean, 0.0):
        weights = np.exp(-((x - centre) ** 2) / (2 * variance))
        laws.append(cells @ (weights / weights.sum()))
    truth = stick(*laws, 0.0)
    # The sign is nearly all that is left to see: Phi(mean/deviation) against 1/2.
    positive = ndtr(mean / math.sqrt(variance))
    assert truth == pytest.approx(positive - 0.5, abs=1e-3)
    assert stick(*laws, 1.0) == pytest.approx(0.5 - math.e * (1 - positive), abs=1e-3)
    naive = plan_unlearning(run, loss, None, 0.0, 1e-4)
    assert naive.steps is not None
    assert naive.steps <= clean
    assert "only if nobody's request was made because of such a model" in str(naive)
    joint = account(
        run.replace(steps=50), loss, releases=(steps,), unit=PrivacyUnit(last_step=steps)
    )
    assert joint.mu == pytest.approx(1.3467, abs=5e-5)
    assert truth <= joint.delta(0.0)
    assert stick(*laws, 1.0) <= joint.delta(1.0)
    alone = account(run.replace(steps=50), loss, unit=PrivacyUnit(last_step=steps))
    assert alone.delta(0.0) == pytest.approx(7.1e-5, abs=5e-7)  # what the whole history would claim
    with pytest.raises(TargetError, match="no later step takes that back"):
        plan_unlearning(run, loss, None, 0.0, 1e-4, releases=(steps,))
    # An earlier release: clean steps clean the last stretch alone, and the plan counts both.
    early = plan_unlearning(run, loss, None, 3.0, 1e-2, releases=(2,))
    assert early.guarantee.delta(3.0) <= 1e-2
    assert "released after steps 2 told" in str(early)


def test_curvature_of_deleted_records_is_gone():
    """n squares of curvature 1; the slots of half of them stay empty: clean steps forget slower."""
    n, gone, steps, eta = 4, 2, 30, 0.5
    run = Training(
        records=n,
        steps=steps,
        step_size=eta,
        noise=1.0,
        gradient_norm=3.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    plan = plan_unlearning(run, loss, PrivacyUnit(records=gone), 0.5, 1e-3)
    c = 1 - eta * (n - gone) / n  # of the reference, and of every clean step

    def truth(clean, c=c):
        # The gap when both worlds are at distance z: c z + eta gone/n K, the deleted pull with K.
        gap = variance = 0.0
        for k in range(steps + clean):
            gap = c * gap + (eta * gone / n * 3.0 if k < steps else 0.0)
            variance = c * c * variance + 1.0
        return gap / math.sqrt(variance)

    allowed = gaussian.mu(0.5, 1e-3)
    assert truth(plan.steps) <= allowed * (1 + 1e-9)
    for k in (0, 1, 5, 20):
        left = PrivacyUnit(records=gone, last_step=steps)
        guarantee = account(run.replace(steps=steps + k), loss, unit=left)
        assert guarantee.delta(0.5) >= gaussian.delta(truth(k), 0.5) * (1 - 1e-9)
    naive = next(k for k in range(100) if truth(k, c=1 - eta) <= allowed)
    assert truth(naive) > allowed  # what forgetting the trap would have promised


def test_noise_for_given_steps_and_a_burst_that_stays_where_it_was():
    run, loss, delta = mnist("zero-out")
    small = run.replace(steps=200, final_noise=4.0)
    plan = plan_unlearning(small, loss, PrivacyUnit(records=100), 1.0, delta, steps=5)
    assert plan.steps == 5
    assert plan.noise > run.noise
    assert plan.continued.noises[199] == pytest.approx(2 * run.noise)
    assert plan.guarantee.delta(1.0) <= delta
    less = plan.continued.replace(
        noise=[*plan.continued.noises[:200], *plan.continued.noises[200:] * 0.999]
    )
    assert account(less, loss, unit=plan.deleted).delta(1.0) > delta
    with pytest.raises(TargetError, match="No noise in 0 clean steps"):
        plan_unlearning(small, loss, PrivacyUnit(records=100), 1.0, delta, steps=0)


def test_clean_steps_of_a_grid_are_never_without_noise():
    """Rounding drives two runs apart at every step, so that even a met target needs some noise."""
    run, loss, delta = mnist("zero-out")
    fine = run.replace(steps=20, arithmetic=Arithmetic(grid=2.0**-40, error=1e-12, coordinates=10))
    for records in (1, 100):
        plan = plan_unlearning(fine, loss, PrivacyUnit(records=records), 1.0, delta, steps=3)
        assert plan.noise > 0
        assert plan.guarantee.delta(1.0) <= delta


@pytest.mark.parametrize("batches", [Cyclic(1500), Shuffled(1500)])
def test_retraining_and_doing_nothing_stand_beside_the_plan(batches):
    run = Training(
        records=60_000,
        steps=2_000,
        step_size=0.05,
        noise=0.0005,
        gradient_norm=5.0,
        batches=batches,
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, regularization=0.002)
    plan = plan_unlearning(run, loss, None, 1.0, 1e-5)
    assert plan.nothing == account(run, loss, unit=plan.deleted).epsilon(1e-5) > 1.0
    assert plan.steps > run.steps
    assert plan.restart.better
    lines = [line.strip() for line in str(plan).splitlines()]
    assert lines[1].startswith("do nothing: epsilon = ")
    assert lines[2].startswith("BETTER: start again")
    enough = plan_unlearning(run, loss, None, 1.01 * plan.nothing, 1e-5)
    assert enough.steps == 0
    assert "(enough)" in str(enough)


def test_a_known_place_takes_fewer_steps_than_the_worst_and_keeps_its_promise():
    run = Training(
        records=60,
        steps=63,
        step_size=0.5,
        noise=0.5,
        gradient_norm=4.0,
        batches=Cyclic(3),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=1.0, regularization=0.02)
    every, needed = run.batches_per_epoch, []
    for place in range(every):
        used = np.arange(place, run.steps, every)
        plan = plan_unlearning(run, loss, PrivacyUnit(last_step=int(used[-1]) + 1), 1.0, 1e-3)
        needed.append(plan.steps)
        for c in (0.99, 0.7, 0.5):  # 1 - eta (l2 + curvature of the data)
            gap = variance = 0.0
            for k in range(run.steps + plan.steps):
                there = k % every == place and k < run.steps
                gap = c * gap + there * run.step_size * run.gradient_norm / 3
                variance = c * c * variance + run.noise**2
            assert gap / math.sqrt(variance) <= gaussian.mu(1.0, 1e-3) * (1 + 1e-9)
    worst = plan_unlearning(run, loss, None, 1.0, 1e-3)
    assert max(needed) == worst.steps
    assert min(needed) <= worst.steps // 2
    hidden = plan_unlearning(run.replace(batches=Shuffled(3)), loss, None, 1.0, 1e-3)
    assert hidden.steps < worst.steps
    sealed = certify(plan.continued, loss, 1e-3, unit=plan.deleted)
    assert verify(sealed).epsilon <= 1.0 + 1e-9


def test_the_certificate_is_the_ordinary_one():
    run, loss, delta = mnist("zero-out")
    plan = plan_unlearning(run.replace(steps=50), loss, PrivacyUnit(records=100), 1.0, delta)
    sealed = certify(plan.continued, plan.loss, delta, unit=plan.deleted)
    assert sealed.epsilon <= 1.0 + 1e-9
    verify(sealed)
    assert not plan.restart.better


def test_what_is_refused():
    run, loss, delta = mnist()
    good = {"training": run.replace(steps=20), "loss": loss, "epsilon": 1.0, "delta": delta}
    for field, value in (
        ("deleted", PrivacyUnit(last_step=21)),
        ("deleted", PrivacyUnit(records=10**6)),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("delta", 0.0),
        ("delta", 0.9),
        ("reference", "forgotten"),
        ("releases", (21,)),
        ("releases", (0,)),
        ("releases", (True,)),
        ("releases", ("last",)),
        ("releases", (math.nan,)),
        ("releases", 3),
        ("steps", -1),
        ("steps", 1.5),
    ):
        with pytest.raises(DescriptionError):
            plan_unlearning(**{**good, field: value})
    for hidden in (Shuffled(6), Reshuffled(6), Poisson(0.01)):
        with pytest.raises(DescriptionError, match="keep secret"):
            plan_unlearning(run.replace(steps=20, batches=hidden), loss, PrivacyUnit(last_step=15))
    for training in (
        run.replace(steps=20, release=TailAverage(3)),
        run.replace(steps=20, batches=Poisson(0.01)),
        run.replace(steps=20, batches=WithoutReplacement(6)),
    ):
        with pytest.raises(UnsupportedError):
            plan_unlearning(**{**good, "training": training})
    for training in (
        run.replace(batches=Cyclic(6)),
        run.replace(momentum=0.5),
    ):
        with pytest.raises(UnsupportedError):
            plan_requests(training, loss, None, 1.0, delta, requests=2)
    with pytest.raises(UnsupportedError, match="from the start"):
        plan_requests(run, loss, PrivacyUnit(last_step=3), 1.0, delta, requests=2)
    with pytest.raises(TargetError, match="steps that forget"):
        plan_requests(run, Loss(smoothness=0.1), None, 1.0, delta)
    with pytest.raises(DescriptionError, match="nobody is left"):
        plan_requests(run, loss, PrivacyUnit(records=6000), 1.0, delta, requests=2)
    with pytest.raises(UnsupportedError, match="how fast this run forgets"):
        plan_requests(run, Loss.unknown(), None, 1.0, delta, requests=2)


@pytest.mark.parametrize("batches", [FullBatch(), Shuffled(3)])
def test_extremes(batches):
    run = Training(
        records=12,
        steps=8,
        step_size=0.5,
        noise=0.5,
        gradient_norm=1.0,
        batches=batches,
        adjacency="zero-out",
    )
    loss = Loss(smoothness=1.0, regularization=0.1)
    assert plan_unlearning(run.replace(steps=0), loss, None, 0.1, 1e-5).steps == 0
    assert plan_unlearning(run.replace(gradient_norm=0.0), loss, None, 0.1, 1e-5).nothing == 0
    silent = plan_unlearning(run.replace(noise=0.0), loss, None, 1.0, 1e-5)
    assert silent.steps is None
    assert silent.restart.better
    assert silent.nothing == math.inf
    with pytest.raises(TargetError, match="no plan of clean steps"):
        _ = silent.continued
    expanding = plan_unlearning(run, Loss(smoothness=9.0), None, 0.1, 1e-5)
    assert expanding.nothing > 0.1
