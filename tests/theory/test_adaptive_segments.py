"""Stretches that are chosen by what was released before, against exact laws of the whole story.

Outputs are Gaussians whose means and whose very existence depend on earlier ones. The divergence of
all outputs together is an integral over the first output of closed forms. Both orders of the pair.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate import (
    Cyclic,
    DescriptionError,
    FullBatch,
    LifetimeBudget,
    LifetimeBudgetError,
    Loss,
    Poisson,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    account,
    compare,
)
from lastiterate.curves import gaussian
from lastiterate.description.unit import ONE_RECORD
from lastiterate.theory import BY_KEY, inapplicable_reason
from lastiterate.theory.run import Run

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
EPSILONS = (0.0, 0.4, 1.0, 2.5)


def density(y):
    return np.exp(-y * y / 2) / math.sqrt(2 * math.pi)


def quadrature(breaks):
    """Nodes and weights on [-10, 14], cut where an integrand is not smooth."""
    edges = np.unique(np.concatenate([np.linspace(-10, 14, 25), np.clip(breaks, -10, 14)]))
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    nodes = middle[:, None] + half[:, None] * NODES
    return nodes.ravel(), (half[:, None] * WEIGHTS).ravel()


def second(level, mu, p, q):
    """Integrand of p P(L > level) - e^epsilon q Q(L > level) for a second Gaussian of ``mu``.

    ``level``: what is left of epsilon after the first output; ``q`` has the factor e^epsilon.
    """
    quiet = mu == 0
    safe = np.where(quiet, 1.0, mu)
    value = p * ndtr(safe / 2 - level / safe) - q * ndtr(-safe / 2 - level / safe)
    return np.where(quiet, np.maximum(p - q, 0.0), value)


def story_delta(epsilon, first, thresholds, mus):
    """delta of Y1 = N(first, 1) or N(0, 1), then a Gaussian of mus[piece of Y1]; both orders."""
    kinks = [(sign * epsilon + first**2 / 2) / first for sign in (1, -1)] if first else []
    y, w = quadrature(np.array([*thresholds, *kinks]))
    mu, ratio = np.asarray(mus)[np.searchsorted(thresholds, y)], first * y - first**2 / 2
    one, zero, e = density(y - first), density(y), math.exp(epsilon)
    forth = (second(epsilon - ratio, mu, one, e * zero) * w).sum()
    back = (second(epsilon + ratio, mu, zero, e * one) * w).sum()
    return max(forth, back)


def accepted(lifetime_budget, spent, wanted):
    """``wanted`` if the lifetime budget takes it, else nothing is released."""
    try:
        lifetime_budget.check([*spent, wanted])
    except LifetimeBudgetError:
        return 0.0
    return wanted


def check_filter(seed):
    rng = np.random.default_rng(seed)
    lifetime_budget = LifetimeBudget(mu=float(rng.uniform(0.3, 2.5)))
    first = float(lifetime_budget.mu * rng.uniform(0.1, 1.0))
    thresholds = np.sort(rng.normal(first / 2, 1.5, int(rng.integers(1, 4))))
    left = lifetime_budget.remaining_mu([first])
    wishes = [
        left if rng.random() < 0.5 else float(rng.uniform(0.1, 1.5) * max(left, 0.1))
        for _ in range(len(thresholds) + 1)
    ]
    mus = [accepted(lifetime_budget, [first], wish) for wish in wishes]
    for epsilon in EPSILONS:
        truth = story_delta(epsilon, first, thresholds, mus)
        claim = gaussian.delta(lifetime_budget.mu, epsilon)
        assert truth <= claim * (1 + 1e-7) + 1e-10, (seed, epsilon)
    return mus, left


@pytest.mark.parametrize("seed", range(60))
def test_a_story_under_an_allowance_is_one_gaussian(seed):
    check_filter(seed)


@pytest.mark.slow
def test_stories_many():
    attained = 0
    for seed in range(1000, 1700):
        mus, left = check_filter(seed)
        attained += all(mu == left for mu in mus)
    assert attained > 20


def test_an_allowance_that_is_spent_in_every_case_is_attained():
    lifetime_budget = LifetimeBudget(mu=1.3)
    left = lifetime_budget.remaining_mu([0.7])
    for epsilon in EPSILONS:
        truth = story_delta(epsilon, 0.7, [0.1, 0.9], [left] * 3)
        assert truth == pytest.approx(gaussian.delta(1.3, epsilon), rel=1e-8)


def test_a_sum_that_is_read_off_at_the_end_bounds_nothing():
    """Y1 decides whether a loud round follows; whoever sees none claims the cost of Y1 alone."""
    quiet = story_delta(1.0, 0.5, [1.5], [0.0, 3.0])
    assert quiet > 5 * gaussian.delta(0.5, 1.0)
    with pytest.raises(LifetimeBudgetError, match="Day 2"):
        LifetimeBudget(mu=0.5).check([0.5, 3.0])


def random_day(rng, scheme):
    size, batches = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    steps = int(rng.integers(1, 10))
    many = rng.random() < 0.5
    return Training(
        records=size * batches,
        steps=steps if scheme is not Reshuffled else batches * int(rng.integers(1, 3)),
        step_size=float(rng.uniform(0.1, 1.0)),
        noise=rng.uniform(0.3, 2.0, steps) if many and scheme is not Reshuffled else 0.7,
        gradient_norm=float(rng.uniform(0.3, 1.5)),
        batches=FullBatch() if scheme is FullBatch else scheme(size),
        adjacency="zero-out",
    )


def charged(run, loss, person=ONE_RECORD):
    """mu of a day that is one of several: what a chain charges for it."""
    return BY_KEY["adaptive-segments"].prove(Run(run, loss, (), person)).curve.mu


def linear_day(rng, run, loss, person):
    """mu of the last iterate of one linear run of the class: some position, greedy factors."""
    batches = run.batches_per_epoch or 1
    at = np.arange(run.steps)
    used = at % batches == rng.integers(batches)
    if run.batches.full:
        used = np.ones(run.steps, bool)
    used &= (at >= person.first_step) & (
        at < (run.steps if person.last_step is None else person.last_step)
    )
    gap = variance = 0.0
    for eta, nu, here in zip(run.step_sizes, run.noises, used, strict=True):
        s = eta * run.gradient_norm / run.batches.divisor(run.records) * here
        low = max(1 - eta * loss.smoothness, 0.0)
        ideal = gap * nu**2 / (variance * s) if variance * s > 0 else 1.0
        c = min(max(ideal, low), 1.0)
        gap, variance = c * gap + s, c * c * variance + nu**2
    return gap / math.sqrt(variance)


def check_days(seed):
    """A first day, then one of several days by where its released model lies, or none."""
    rng = np.random.default_rng(seed)
    loss = Loss(smoothness=float(rng.uniform(0, 1.5)))
    schemes = [FullBatch, Cyclic, Shuffled, Reshuffled if seed % 5 == 0 else Shuffled]
    today = random_day(rng, schemes[rng.integers(4)])
    timed = rng.random() < 0.3
    person = PrivacyUnit(first_step=int(rng.integers(today.steps + 1))) if timed else PrivacyUnit()
    lifetime_budget = LifetimeBudget(mu=float(rng.uniform(0.5, 3.0)))
    spent = charged(today, loss, person)
    if not accepted(lifetime_budget, [], spent):
        return False
    first = linear_day(rng, today, loss, person)
    thresholds = np.sort(rng.normal(first / 2, 1.0, 2))
    mus = []
    for _ in range(3):
        tomorrow, left = (
            random_day(rng, schemes[rng.integers(4)]),
            lifetime_budget.remaining_mu([spent]),
        )
        if rng.random() < 0.5 and left:  # as much as is left
            free = charged(tomorrow, loss)
            tomorrow = tomorrow.scale_noise(max(free / left, 1e-3) * (1 + 1e-9))
        taken = accepted(lifetime_budget, [spent], charged(tomorrow, loss))
        mus.append(linear_day(rng, tomorrow, loss, PrivacyUnit()) if taken else 0.0)
    for epsilon in EPSILONS:
        truth = story_delta(epsilon, first, thresholds, mus)
        claim = gaussian.delta(lifetime_budget.mu, epsilon)
        assert truth <= claim * (1 + 1e-7) + 1e-10, (seed, epsilon)
    return True


@pytest.mark.parametrize("seed", range(40))
def test_days_that_depend_on_the_released_model(seed):
    check_days(seed)


@pytest.mark.slow
def test_days_many():
    assert sum(check_days(seed) for seed in range(5000, 5800)) >= 500


def test_the_adaptive_counterexample():
    """Others delete by the sign of a released model: the string of the whole history is void."""
    c, s, T, K = 0.8, 0.5, 10, 40
    run = Training(
        records=1,
        steps=T + K,
        step_size=1.0,
        noise=1.0,
        gradient_norm=s,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    loss, person = Loss(smoothness=0.0, regularization=1 - c), PrivacyUnit(last_step=T)
    silent = account(run, loss, unit=person)
    spread = (1 - c ** (2 * T)) / (1 - c * c)
    gap, noise = s * (1 - c**T) / (1 - c), (1 - c ** (2 * K)) / (1 - c * c)
    y = np.linspace(-14, 16, 30_001) * math.sqrt(spread)
    drift = np.sign(y) * 3 * (1 - c**K) / (1 - c) + c**K * y
    laws, x = [], np.linspace(-30, 30, 1201)
    for mean in (0.0, gap):
        weight = density((y - mean) / math.sqrt(spread))
        kernel = np.zeros(len(x))
        for part in np.array_split(np.arange(len(y)), 60):
            kernel += density((x[:, None] - drift[part]) / math.sqrt(noise)) @ weight[part]
        laws.append(kernel / kernel.sum())

    def truth(epsilon):
        p, q = laws
        e = math.exp(epsilon)
        return max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum())

    assert truth(0.0) == pytest.approx(0.4117, abs=2e-3)
    assert truth(1.0) == pytest.approx(0.2579, abs=2e-3)
    assert silent.delta(0.0) < 1e-4 < truth(0.0)
    paid = BY_KEY["adaptive-segments"].evaluate(run, loss, (T,), person).curve
    assert paid.mu == pytest.approx(1.3467, abs=1e-4)
    assert truth(0.0) <= paid.delta(0.0) == pytest.approx(0.4993, abs=1e-4)
    assert truth(1.0) <= paid.delta(1.0) == pytest.approx(0.2593, abs=1e-4)


RUN = Training(
    records=40,
    steps=60,
    step_size=0.5,
    noise=0.3,
    gradient_norm=1.0,
    batches=Shuffled(4),
    adjacency="replace",
)
LOSS = Loss(smoothness=1.0, regularization=0.05)


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        RUN.replace(batches=Cyclic(4), final_noise=3.0),
        RUN.replace(batches=Cyclic(4), schedule="equalised"),
        pytest.param(RUN.replace(batches=Reshuffled(4)), marks=pytest.mark.slow),
        RUN.replace(batches=FullBatch(), release=TailAverage(7)),
        RUN.replace(batches=Cyclic(4), release=TailAverage(7)),
        RUN.replace(batches=Cyclic(4), momentum=0.5),
    ],
)
@pytest.mark.parametrize(
    "unit", [PrivacyUnit(), PrivacyUnit(records=3), PrivacyUnit(first_step=7, last_step=33)]
)
def test_fixed_stretches_cost_no_more_than_adaptive_ones(run, unit):
    """What is claimed for every choice is not below what is claimed for one."""
    theorem = BY_KEY["adaptive-segments"]
    for releases in ((20,), (10, 20, 50)):
        paid = theorem.evaluate(run, LOSS, releases, unit).curve
        fixed = account(run, LOSS, releases=releases, unit=unit)
        for delta in (1e-3, 1e-6):
            assert fixed.epsilon(delta) <= paid.epsilon(delta) * (1 + 1e-9)
        assert fixed.theorem.key != theorem.key
    if run.constant and unit.default and not isinstance(run.release, TailAverage):
        whole = theorem.evaluate(run, LOSS, (20, 40)).curve.mu
        day = charged(run.replace(steps=20), LOSS)
        assert whole == pytest.approx(math.sqrt(3) * day, rel=1e-9)


def test_what_is_no_gaussian_is_no_stretch():
    theorem = BY_KEY["adaptive-segments"]
    assert "stated for" in inapplicable_reason(
        theorem, Run(RUN.replace(batches=Poisson(0.1)), LOSS, (7,))
    )
    renewed = Run(RUN.replace(batches=Reshuffled(4)), LOSS, (7,))
    assert "epoch boundaries" in inapplicable_reason(theorem, renewed)
    assert charged(RUN.replace(noise=0.0), LOSS) in (None, math.inf)
    listed = compare(RUN, LOSS, releases=(20,))
    assert "adaptive-segments" in {row.theorem.key for row in listed}
    assert "nothing to choose" in inapplicable_reason(BY_KEY["adaptive-segments"], Run(RUN, LOSS))


def test_allowances_are_exact():
    half = 0.1
    squares = LifetimeBudget(mu=math.sqrt(3) * half * (1 - 1e-16))
    with pytest.raises(LifetimeBudgetError):
        squares.check([half, half, half])
    for mu, spent in ((1.0, [0.3, 0.4]), (0.1, [0.05] * 3), (1e-160, [1e-161])):
        left = LifetimeBudget(mu=mu).remaining_mu(spent)
        LifetimeBudget(mu=mu).check([*spent, left])
        with pytest.raises(LifetimeBudgetError):
            LifetimeBudget(mu=mu).check([*spent, left * (1 + 1e-14) + 5e-324])
    weekly = LifetimeBudget(mu=1.0, days=2, daily=0.8)
    weekly.check([0.8, 0.59, 0.59, 0.1])
    assert weekly.remaining_mu([0.8, 0.59, 0.59, 0.1]) == pytest.approx(0.6)
    with pytest.raises(LifetimeBudgetError, match="no day may cost more"):
        weekly.check([0.81])
    with pytest.raises(LifetimeBudgetError):
        weekly.check([0.8, 0.61])
    assert weekly.person(1) == 0.8
    assert weekly.person() == weekly.person(2) == 1.0
    with pytest.raises(DescriptionError):
        weekly.person(3)


@pytest.mark.parametrize("mus", [[math.nan], [math.inf], [-1.0], ["1"], [True], [None]])
def test_no_day_costs_what_is_no_number(mus):
    with pytest.raises(DescriptionError):
        LifetimeBudget(mu=1.0).check(mus)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mu": 0.0},
        {"mu": math.inf},
        {"mu": math.nan},
        {"mu": 1.0, "days": 0},
        {"mu": 1.0, "days": 1.5},
        {"mu": 1.0, "daily": 1.1},
        {"mu": 1.0, "daily": 0.0},
        {"mu": 1.0, "weekly": 1},
    ],
)
def test_an_allowance_that_cannot_be(fields):
    with pytest.raises(DescriptionError):
        LifetimeBudget.from_dict(fields)


def test_text_and_back():
    for lifetime_budget in (
        LifetimeBudget(1.0),
        LifetimeBudget(1.0, 7, 0.25),
        LifetimeBudget(1.0, daily=1.0),
    ):
        assert LifetimeBudget.from_json(lifetime_budget.to_json()) == lifetime_budget
        assert LifetimeBudget.from_toml(lifetime_budget.to_toml()) == lifetime_budget
