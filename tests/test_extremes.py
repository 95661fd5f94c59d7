"""Extreme inputs: right, or a clear refusal; never NaN, never a negative epsilon, never a hang."""

from __future__ import annotations

import math
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from flint import arb
from patience import HANG_SECONDS

from lastiterate import (
    Arithmetic,
    Cyclic,
    FullBatch,
    LastIterateError,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
    calibrate,
    certify,
    compare,
    plateau,
    verify,
)
from lastiterate.curves import gaussian
from lastiterate.verifier.balls import gaussian_delta, precision

STRONG = Loss(smoothness=1.0, strong_convexity=1.0)
CONVEX = Loss(smoothness=1.0)


@contextmanager
def deadline():
    def late(number, frame):
        raise TimeoutError(f"took longer than {HANG_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(math.ceil(HANG_SECONDS))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(batches=None, **changes):
    fields = dict(records=1000, steps=20, step_size=0.1, noise=0.01, gradient_norm=1.0)
    return Training(
        **{"adjacency": "replace", **fields, "batches": batches or FullBatch(), **changes}
    )


def asked(training, loss, delta):
    """epsilon, after checking that it is a number that means something."""
    with deadline():
        epsilon = account(training, loss).epsilon(delta)
    assert not math.isnan(epsilon)
    assert epsilon >= 0
    return epsilon


def certified(training, loss, delta):
    """The same epsilon, signed and verified in ball arithmetic."""
    with deadline():
        certificate = certify(training, loss, delta)
        verify(certificate)
    assert certificate.epsilon == asked(training, loss, delta)
    return certificate


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-4, 0.4])
@pytest.mark.parametrize("mu", [1e-12, 1e-3, 1.0, 1e3])
def test_deltas_and_mus(delta, mu):
    impulse = 0.1 * 2.0 / 1000
    training = run(steps=1, noise=impulse / mu)
    certificate = certified(training, CONVEX, delta)
    assert certificate.mu == pytest.approx(mu, rel=1e-10)
    if certificate.epsilon > 0:
        assert gaussian_delta(arb(mu) ** 2, arb(certificate.epsilon * (1 - 1e-6))) > delta


@pytest.mark.parametrize("steps", [1, 10**6, 10**12])
@pytest.mark.parametrize("loss", [STRONG, CONVEX, Loss.nonconvex(smoothness=1.0), Loss.unknown()])
def test_lengths(steps, loss):
    certificate = certified(run(steps=steps), loss, 1e-5)
    with precision(300):
        s = arb(0.1) * 2 / 1000 / arb(0.01)
        if loss is STRONG:
            c = 1 - arb(0.1)
            q = c**steps
            square = s * s * (1 - q) / (1 + q) * (1 + c) / (1 - c)
        else:
            square = s * s * steps
        assert arb(certificate.mu) >= square.sqrt()
    assert certificate.mu <= float(square.sqrt()) * (1 + 1e-9)


@pytest.mark.parametrize("gap", [1e-15, 2.3e-16, 1e-17, 1e-300, 0.0])
@pytest.mark.parametrize("steps", [100, 10**12])
def test_contraction_next_to_one(gap, steps):
    loss = Loss(smoothness=1.0, strong_convexity=gap)
    certificate = certified(run(steps=steps, step_size=1.0), loss, 1e-5)
    plain = account(run(steps=steps, step_size=1.0), Loss.unknown()).epsilon(1e-5)
    assert 0 < certificate.epsilon <= plain * (1 + 1e-9)


def test_expansion_next_to_one():
    loss = Loss.nonconvex(smoothness=1e-16)
    for steps in (100, 10**12):
        certified(run(steps=steps, diameter=1.0), loss, 1e-5)


@pytest.mark.parametrize("ratio", [1e12, 1e-12])
def test_noise_ratios(ratio):
    noise = np.geomspace(1e-2, 1e-2 * ratio, 50)
    for diameter in (math.inf, 1e-3):
        certified(run(steps=50, noise=noise, diameter=diameter), STRONG, 1e-5)
        certified(run(Shuffled(100), steps=50, noise=noise, diameter=diameter), STRONG, 1e-5)


SCHEMES = [
    Cyclic(100),
    Shuffled(100),
    Reshuffled(500),
    Poisson(0.1),
    WithoutReplacement(100),
]


@pytest.mark.parametrize("batches", SCHEMES, ids=lambda b: b.name)
@pytest.mark.parametrize(
    "change",
    [
        {"noise": 1e-10},
        {"noise": 1e10},
        {"noise": 0.0},
        {"gradient_norm": 0.0},
        {"step_size": 0.0},
        {"step_size": 1e6},
        {"steps": 0},
        {"steps": 1},
        {"diameter": 0.0},
        {"diameter": 1e-12},
        {"records": 10**9},
    ],
    ids=str,
)
@pytest.mark.parametrize("delta", [1e-300, 1e-5])
def test_corners_of_every_scheme(batches, change, delta):
    adjacency = "zero-out" if isinstance(batches, Poisson) else "replace"
    training = run(batches, **{"steps": 4, "adjacency": adjacency, **change})
    if training.records > 10**6 and batches.name in ("cyclic", "shuffled", "reshuffled"):
        pytest.skip("ten million batches in an epoch of four steps are a matter of memory")
    epsilon = asked(training, STRONG, delta)
    used = training.gradient_norm > 0 and training.steps > 0 and "step_size" not in change
    if change.get("noise") == 0.0:
        assert epsilon == math.inf
    if not used and change.get("step_size", 0.0) == 0.0:
        assert epsilon == 0.0


@pytest.mark.parametrize("batches", SCHEMES[:4], ids=lambda b: b.name)
def test_long_runs_of_every_scheme(batches):
    adjacency = "zero-out" if isinstance(batches, Poisson) else "replace"
    training = run(batches, steps=10**12, adjacency=adjacency)
    shorter = asked(training.replace(steps=10**6), Loss.unknown(), 1e-5)
    assert shorter < asked(training, Loss.unknown(), 1e-5) < math.inf


def test_a_length_without_a_theorem_is_refused():
    training = run(WithoutReplacement(100), steps=10**12)
    with pytest.raises(LastIterateError, match=r"1,000,000,000,000 steps"):
        asked(training, Loss.unknown(), 1e-5)


def test_absurd_questions_are_refused():
    guarantee = account(run(), STRONG)
    for delta in (0.0, -1.0, 2.0, math.nan):
        with pytest.raises(LastIterateError):
            guarantee.epsilon(delta)
    assert guarantee.delta(1e6) >= 0.0
    assert guarantee.delta(0.0) <= 1.0


# --- the ends of the range of doubles ---------------------------------------------------------

EDGES = [
    (dict(step_size=[1, 1], steps=2, noise=1e-160, diameter=1), CONVEX),
    (dict(batches=WithoutReplacement(1), records=2, steps=2, noise=1e-200), CONVEX),
    (
        dict(batches=Cyclic(1), records=1, steps=1, step_size=10, diameter=1),
        Loss(smoothness=1.0, regularization=1e300),
    ),
    (dict(step_size=10.0, diameter=1), Loss(smoothness=1.0, regularization=1e300)),
    (dict(batches=Poisson(1e-300)), CONVEX),
    (dict(batches=Poisson(1e-300), noise=1e298), CONVEX),
    (dict(batches=Poisson(1.0), noise=1e-200), CONVEX),
    (dict(batches=Poisson(1.0), noise=1e-200, diameter=1.0), CONVEX),
    (dict(batches=Reshuffled(500)), Loss(smoothness=1e300)),
    (dict(batches=Reshuffled(500), noise=1.7e308), CONVEX),
    (dict(noise=[1e200, 1], steps=2), CONVEX),
]
TINY, HUGE = (1e-320, 1e-300, 1e-160, 1e-30), (1e30, 1e160, 1e300, 1.7e308)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize(("changes", "loss"), EDGES, ids=lambda value: str(value)[:60])
def test_numbers_beyond_doubles_are_bounded_or_refused(changes, loss, adjacency):
    check_answers(run(**{"adjacency": adjacency, **changes}), loss, 1e-5)


def test_the_lower_reference_of_uneven_noise_is_that_of_its_last_step():
    """The first step's noise is forgotten (c = 0): one Gaussian of shift s remains."""
    training = run(steps=2, step_size=[1.0, 1.0], noise=[1e200, 1.0], records=1)
    assert account(training, STRONG).lower(1e-5) == pytest.approx(
        gaussian.epsilon(2.0, 1e-5), rel=1e-6
    )


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(1), Poisson(1.0)], ids=lambda b: b.name)
@pytest.mark.parametrize("unit", [1e-160, 1e-170, 1.0, 1e160])
def test_the_lower_reference_does_not_depend_on_the_unit(batches, unit):
    noise = unit if isinstance(batches, Poisson) else [unit]
    training = run(batches, records=1, steps=1, step_size=unit, noise=noise, adjacency="zero-out")
    lower = account(training, Loss.unknown()).lower(1e-5)
    truth = gaussian.epsilon(1.0, 1e-5)
    assert truth * (1 - 1e-3) <= lower <= truth


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(12)], ids=lambda b: b.name)
def test_the_lower_reference_of_a_huge_mu_is_not_above_the_truth(batches):
    """mu = 4.4e19: its epsilon is mu^2/2 + z mu, where delta = Phi(-z), and no more."""
    training = run(batches, records=12, steps=7, step_size=1e-300, noise=1e-320)
    mu = 1e-300 * 2 / 12 / 1e-320 * math.sqrt(7)
    assert 0.499 * mu * mu <= account(training, STRONG).lower(1e-5) <= mu * mu / 2 + 4.3 * mu


@pytest.mark.parametrize("arithmetic", ["exact", Arithmetic(error=1e-9)])
@pytest.mark.parametrize("sizes", [1.0, [1.0] * 4], ids=["constant", "per step"])
@pytest.mark.parametrize(
    "batches",
    [FullBatch(), Cyclic(1), Shuffled(1), Reshuffled(1), Poisson(0.5), WithoutReplacement(1)],
    ids=lambda b: b.name,
)
def test_a_domain_of_one_point_shows_nothing(batches, sizes, arithmetic):
    """Projection on one point: accountant and verifier agree on 0, except for what sums round."""
    training = run(
        batches, records=2, steps=4, step_size=sizes, noise=0.5, diameter=0.0, adjacency="zero-out"
    ).replace(arithmetic=arithmetic)
    for loss in (CONVEX, STRONG, Loss.nonconvex(smoothness=1.0), Loss.unknown()):
        certificate = certify(training, loss, 1e-5)
        verify(certificate)
        assert account(training, loss).delta(0.0) < 1e-7
        assert certificate.epsilon == 0.0


def check_answers(training, loss, delta, *, searches=False):
    """Every public question: an answer that is not below the exact law, or a LastIterateError."""
    questions = [
        lambda: account(training, loss).epsilon(delta),
        lambda: compare(training, loss, delta)[0].epsilon,
    ]
    answers = [asked_or_refused(ask) for ask in questions]
    for epsilon in answers:
        if epsilon is not None:
            assert law_allows(training, loss, epsilon, delta), (training, loss, delta, epsilon)
    lower = asked_or_refused(lambda: account(training, loss).lower(delta))
    if answers[0] is not None and lower is not None:
        assert lower <= answers[0] * (1 + 1e-9), (training, loss, delta)
    asked_or_refused(lambda: account(training, loss).delta(1.0))
    asked_or_refused(lambda: account(training, loss).rdp(2.0))
    if training.batches.ordered:  # words search at one more delta
        asked_or_refused(lambda: len(str(account(training, loss))))
    if searches:
        found = asked_or_refused(lambda: calibrate(training, loss, 1.0, 1e-6), number=False)
        if found is not None:
            epsilon = account(found, loss).epsilon(1e-6)
            assert epsilon <= 1.0
            assert law_allows(found, loss, epsilon, 1e-6)
        if training.batches.full:  # with others a million steps are walked
            asked_or_refused(lambda: plateau(training, loss, delta=delta) or 0)


def asked_or_refused(ask, *, number=True):
    """The answer, which is a number at least 0, or None if it is refused."""
    try:
        answer = ask()
    except LastIterateError:
        return None
    assert not number or answer >= 0  # and not NaN
    return answer


def law_allows(training, loss, epsilon, delta):
    """Whether linear losses, whose law is exact here, are (epsilon, delta)-private.

    Any linear update of full or cyclic batches is one Gaussian; one step of random batches is a
    mixture of two, or a Gaussian clipped to the domain. Everything else is allowed.
    """
    steps, batches = training.steps, training.batches
    known = steps and training.release == "last" and not training.momentum
    if not known or steps > 12 or loss.strong_convexity or math.isinf(epsilon):
        return True
    clipped = math.isfinite(training.diameter)
    if training.batches.divisor(training.records) == 0 or training.diameter == 0:
        return True
    with precision(6000):
        etas, noises = (map(arb, x.tolist()) for x in (training.step_sizes, training.noises))
        rate = getattr(batches, "rate", None)
        divisor = arb(rate if rate is not None else 1) * training.records
        divisor = divisor if rate is not None or batches.full else arb(batches.size)
        rows = [(arb(eta), arb(nu)) for eta, nu in zip(etas, noises, strict=True)]
        per_epoch = training.batches_per_epoch or 1
        ordered = batches.full or batches.name == "cyclic"
        if not (ordered or steps == 1) or (clipped and not (ordered and steps == 1)):
            return True
        for position in range(min(per_epoch, steps) if ordered else 1):
            gap, variance = arb(0), arb(0)
            for k, (eta, nu) in enumerate(rows):
                c = 1 - eta * arb(loss.regularization)
                used = not ordered or k % per_epoch == position
                s = eta * arb(float(training.sensitivity)) / divisor if used else arb(0)
                gap, variance = c * gap + s, c * c * variance + nu * nu
            if gap == 0:
                continue
            if variance == 0:
                return not (abs(gap) > 0)  # both are certain: only an infinite epsilon holds
            share = arb(1) if ordered else arb(batches.divisor(training.records)) / training.records
            if not ordered and training.adjacency == "replace":
                continue
            half = arb(training.diameter) / 2 if clipped else None
            if not not_above(abs(gap) / variance.sqrt(), share, epsilon, delta, half, variance):
                return False
    return True


def not_above(mu, share, epsilon, delta, half, variance):
    """Whether (1-q) N(0, 1) + q N(mu, 1) against N(0, 1) is not proved to exceed delta."""
    e, root = arb(epsilon).exp(), arb(2).sqrt()
    # The likelihood ratio is e^epsilon at this threshold; any other one proves less, but holds.
    threshold = (1 + (e - 1) / share).log() / mu + mu / 2
    if half is not None:  # of the clipped iterate only thresholds inside of the domain are seen
        edge = half / variance.sqrt() * (1 - arb(2) ** -40)
        threshold = threshold.min(mu / 2 + edge)  # both runs start mu/2 away from the middle
        if not threshold > mu / 2 - edge:
            return True
        if not threshold < edge:
            threshold = edge * (1 - arb(2) ** -40)
    above = ((threshold - mu) / root).erfc() / 2
    below = (threshold / root).erfc() / 2
    return not (1 - share) * below + share * above - e * below > arb(delta)


def extreme_run(rng, batches, loss, adjacency):
    """A description with each number tiny, normal or huge."""

    def size(normal):
        return float(rng.choice([rng.choice(TINY), normal, normal, rng.choice(HUGE)]))

    def steps_of(normal, steps):
        return [size(normal) for _ in range(steps)] if rng.random() < 0.25 else size(normal)

    steps = int(rng.choice([1, 1, 2, 7]))
    fields = dict(
        records=12,
        steps=steps,
        step_size=steps_of(0.1, steps),
        noise=steps_of(0.01, steps),
        gradient_norm=size(1.0),
        adjacency=adjacency,
        clipping=str(rng.choice(["none", "none", "gradient", "margin"])),
    )
    if rng.random() < 0.4:
        fields["diameter"] = size(1.0)
    if isinstance(batches, Poisson):
        batches = Poisson(min(size(0.1), 1.0))
    curvature = dict(regularization=size(0.1)) if rng.random() < 0.3 else {}
    beta = size(1.0)
    known = {
        "convex": lambda: Loss(smoothness=beta, **curvature),
        "strong": lambda: Loss(smoothness=beta, strong_convexity=beta, **curvature),
        "nonconvex": lambda: Loss.nonconvex(smoothness=beta, **curvature),
        "unknown": lambda: Loss.unknown(**curvature),
    }[loss]()
    return Training(batches=batches, **({"adjacency": "replace"} | fields)), known


FUZZED = [FullBatch(), Cyclic(4), Shuffled(4), Reshuffled(6), Poisson(0.1), WithoutReplacement(4)]
KINDS = ["convex", "strong", "nonconvex", "unknown"]


def check_extremes(seed, draws, batches, searches):
    for loss in KINDS:
        for adjacency in ("replace", "zero-out"):
            rng = np.random.default_rng([seed, KINDS.index(loss), adjacency == "replace"])
            for draw in range(draws):
                try:
                    training, known = extreme_run(rng, batches, loss, adjacency)
                except LastIterateError:
                    continue
                delta = float(rng.choice([1e-300, 1e-5, 0.01]))
                check_answers(training, known, delta, searches=draw < searches)


@pytest.mark.parametrize("batches", FUZZED, ids=lambda b: b.name)
def test_extreme_numbers_are_bounded_or_refused(batches):
    check_extremes(1, 3, batches, searches=0)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(2, 10))
@pytest.mark.parametrize("batches", FUZZED, ids=lambda b: b.name)
def test_many_extreme_numbers_are_bounded_or_refused(batches, seed):
    check_extremes(seed, 20, batches, searches=3)
