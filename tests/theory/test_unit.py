"""Whom a guarantee speaks of, against exact laws: persons with several records, late, early, quiet.

The exact laws are those of linear updates x -> c'x + impulse + noise, c' in [0, c]: one Gaussian
for a known placement, a mixture for a hidden one. Both orders of the pair.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from tests.laws.exact_laws import Pair

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
    Training,
    UnsupportedError,
    WithoutReplacement,
    account,
    calibrate,
    compare,
    plateau,
)
from lastiterate.audit import audit_scores
from lastiterate.curves import gaussian
from lastiterate.errors import AssumptionError
from lastiterate.theory import BY_KEY, THEOREMS
from lastiterate.theory.registry import UNIT_FIELDS


def random_run(rng, batches, *, schedule=None):
    """A run of a few epochs; one record of the person moves a step by s = step size / batch."""
    size = int(rng.integers(1, 4))
    per_epoch = int(rng.integers(2, 6))
    epochs = int(rng.integers(1, 4))
    steps = per_epoch * epochs + (int(rng.integers(0, per_epoch)) if rng.random() < 0.3 else 0)
    scheme = FullBatch() if batches is FullBatch else batches(size)
    schedule = rng.random() < 0.5 if schedule is None else schedule
    eta, nu = float(rng.uniform(0.1, 1.5)), float(rng.uniform(0.2, 2.0))
    return Training(
        records=size * per_epoch,
        steps=steps,
        step_size=rng.uniform(0.1, 1.5, steps) if schedule else eta,
        noise=rng.uniform(0.2, 2.0, steps) if schedule else nu,
        gradient_norm=float(rng.uniform(0.3, 2.0)),
        batches=scheme,
        adjacency=str(rng.choice(["replace", "zero-out"])),
    )


def random_unit(rng, run, *, several=True):
    records, per_batch = 1, None
    if several:
        records = int(rng.integers(1, min(run.records, 6) + 1))
        if not run.batches.full and rng.random() < 0.5:
            least = -(-records // (run.batches_per_epoch or 1))
            per_batch = int(rng.integers(least, records + 1))
    joined = int(rng.integers(0, run.steps + 1)) if rng.random() < 0.4 else 0
    left = int(rng.integers(joined, run.steps + 1)) if rng.random() < 0.4 else None
    norm = float(run.gradient_norm * rng.uniform()) if rng.random() < 0.4 else None
    return PrivacyUnit(records, per_batch, joined, left, norm)


def person_impulses(run, unit, held):
    """What the person adds at each step when ``held[k]`` records are in the batch of step k."""
    ends = 2.0 if run.adjacency == "replace" else 1.0
    norm = run.gradient_norm if unit.gradient_norm is None else unit.gradient_norm
    s = run.step_sizes * ends * norm / run.batches.divisor(run.records) * held
    there = np.arange(run.steps)
    last = run.steps if unit.last_step is None else unit.last_step
    return np.where((unit.first_step <= there) & (there < last), s, 0.0)


def linear_mu(rng, run, loss, impulses):
    """mu of the last iterate of x -> c'x + impulse + noise, c' anywhere the class can reach."""
    gap = variance = 0.0
    ends = 1 - run.step_sizes * loss.regularization
    low = np.maximum(ends - run.step_sizes * loss.smoothness, 0.0)
    greedy = rng.random() < 0.6
    steps = zip(low, np.maximum(ends, 0.0), impulses, run.noises, strict=True)
    for least, most, s, nu in steps:
        c = rng.uniform(least, most)
        if greedy:  # the best multiplier for this step
            ideal = gap * nu**2 / (variance * s) if variance * s > 0 else math.inf
            c = min(max(ideal, least), most)
        gap, variance = c * gap + s, c * c * variance + nu**2
    return gap / math.sqrt(variance) if variance else 0.0


def random_loss(rng, run):
    largest = float(run.step_sizes.max(initial=0.1))
    l2 = float(rng.choice([0.0, rng.uniform(0, 0.4)])) / largest
    return Loss(smoothness=float(rng.uniform(0, 1.4)) / largest, regularization=l2)


def placements(rng, run, unit, many):
    """Numbers of the person's records in the batches of an epoch: some random, some extreme."""
    batches, most = run.batches_per_epoch or 1, unit.most_in_a_batch(run)
    for _ in range(many):
        held, order = np.zeros(batches, dtype=int), rng.permutation(batches)
        if rng.random() < 0.5:
            order = np.arange(batches)[::-1]  # the last batches have nothing after them
        left = unit.records
        for j in order:
            held[j] = (
                min(most, left) if rng.random() < 0.8 else rng.integers(0, min(most, left) + 1)
            )
            left -= held[j]
        yield held


def check_known_placement(seed):
    rng = np.random.default_rng(seed)
    run = random_run(rng, FullBatch if rng.random() < 0.3 else Cyclic)
    unit, loss = random_unit(rng, run), random_loss(rng, run)
    guarantee = account(run, loss, unit=unit)
    proved = guarantee.mu
    assert proved is not None
    for held in placements(rng, run, unit, 8):
        full = run.batches.full
        each = np.resize(np.array([unit.records]) if full else held, run.steps)
        truth = linear_mu(rng, run, loss, person_impulses(run, unit, each))
        assert truth <= proved * (1 + 1e-9), (run, unit, held)


@pytest.mark.parametrize("seed", range(60))
def test_a_known_placement_costs_no_more_than_proved(seed):
    check_known_placement(seed)


@pytest.mark.parametrize("seed", range(60))
def test_releases_averages_bursts_and_expanding_steps(seed):
    """All that is released of x -> c'x + impulse + noise is one Gaussian vector."""
    rng = np.random.default_rng(seed)
    run = random_run(rng, FullBatch if rng.random() < 0.3 else Cyclic)
    if run.constant and rng.random() < 0.5:
        run = run.replace(final_noise=float(rng.uniform(1, 9)))
    if rng.random() < 0.5:
        run = run.replace(release=TailAverage(int(rng.integers(1, run.steps + 1))))
    unit, etas = random_unit(rng, run), run.step_sizes
    loss, most = Loss(smoothness=0.5 / etas.max()), np.ones(run.steps)
    if rng.random() < 0.5:
        loss, most = Loss.nonconvex(smoothness=0.5 / etas.max()), 1 + etas * 0.5 / etas.max()
    releases = tuple(t for t in range(1, run.steps) if rng.random() < 0.3)
    proved = account(run, loss, releases=releases, unit=unit).mu
    paths, c = np.eye(run.steps), most * rng.choice([1.0, rng.uniform(0.5, 1)])
    for t in range(1, run.steps):
        paths[t] += c[t] * paths[t - 1]
    window = run.release.window if isinstance(run.release, TailAverage) else 1
    seen = np.vstack([paths[np.array(releases, dtype=int) - 1], paths[-window:].mean(axis=0)])
    root = np.linalg.cholesky(seen @ np.diag(run.noises**2) @ seen.T)
    for held in placements(rng, run, unit, 4):
        each = np.resize([unit.records] if run.batches.full else held, run.steps)
        shift = seen @ person_impulses(run, unit, each)
        assert np.linalg.norm(np.linalg.solve(root, shift)) <= proved * (1 + 1e-7)


@pytest.mark.slow
def test_known_placements_many():
    for seed in range(1000, 2200):
        check_known_placement(seed)


def check_hidden_position(seed, batches):
    rng = np.random.default_rng(seed)
    run = random_run(rng, batches)
    unit, loss = random_unit(rng, run, several=False), random_loss(rng, run)
    guarantee = account(run, loss, unit=unit)
    per_epoch = run.batches_per_epoch
    epochs = -(-run.steps // per_epoch)
    repeat = 1 if batches is Shuffled else epochs
    if per_epoch**repeat > 300:
        return
    share = rng.uniform()
    sequences = list(itertools.product(range(per_epoch), repeat=repeat))
    means, variance = [], 0.0
    for sequence in sequences:
        place = np.resize(np.array(sequence), epochs)
        held = np.zeros(epochs * per_epoch)
        held[np.arange(epochs) * per_epoch + place] = 1.0
        impulses = person_impulses(run, unit, held[: run.steps])
        gap = variance = 0.0
        for eta, s, nu in zip(run.step_sizes, impulses, run.noises, strict=True):
            top = max(1 - eta * loss.regularization, 0.0)
            bottom = max(top - eta * loss.smoothness, 0.0)
            c = bottom + share * (top - bottom)
            gap, variance = c * gap + s, c * c * variance + nu**2
        means.append(gap / math.sqrt(variance))
    p = np.array(means)
    pair = Pair(p, np.zeros(len(p)), np.full(len(p), 1 / len(p)))
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        assert pair.delta(epsilon) <= guarantee.delta(epsilon) * (1 + 1e-9) + 1e-15, (run, unit)


@pytest.mark.parametrize("batches", [Shuffled, Reshuffled])
@pytest.mark.parametrize("seed", range(15))
def test_a_hidden_position_of_somebody_late_early_or_quiet(seed, batches):
    check_hidden_position(seed, batches)


@pytest.mark.slow
def test_hidden_positions_many():
    for seed in range(500):
        check_hidden_position(3000 + seed, Shuffled)
        if seed % 5 == 0:
            check_hidden_position(3000 + seed, Reshuffled)


RUN = Training(
    records=60_000,
    steps=2_000,
    step_size=0.05,
    noise=0.0005,
    gradient_norm=5.0,
    batches=Shuffled(1500),
    adjacency="replace",
)
L2 = Loss(smoothness=1.0, regularization=0.002)


@pytest.mark.parametrize(
    ("unit", "epsilon"),
    [
        (PrivacyUnit(), 3.483),
        (PrivacyUnit(gradient_norm=2.5), 1.567),
        (PrivacyUnit(gradient_norm=0.5), 0.263),
        (PrivacyUnit(first_step=1600), 2.374),
        (PrivacyUnit(last_step=1600), 2.379),
        (PrivacyUnit(last_step=400), 0.483),
        (PrivacyUnit(first_step=1000, last_step=1040), 0.0595),
    ],
)
def test_personal_numbers_of_the_reference_table(unit, epsilon):
    assert account(RUN, L2, unit=unit).epsilon(1e-5) <= epsilon + 6e-4


@pytest.mark.parametrize(
    ("k", "anywhere", "spread"),
    [(2, 4.887, 3.308), (5, 14.451, 5.551), (10, 35.566, 8.306)],
)
def test_groups_of_the_reference_table(k, anywhere, spread):
    run = RUN.replace(steps=1000, step_size=1.0, noise=1.0, gradient_norm=15.0, batches=Cyclic(60))
    for unit, epsilon in (
        (PrivacyUnit(records=k), anywhere),
        (PrivacyUnit(records=k, per_batch=1), spread),
    ):
        found = account(run, Loss(smoothness=1.0), unit=unit)
        assert found.epsilon(1e-6) == pytest.approx(epsilon, abs=6e-4)
        assert found.theorem.key == "known-groups"


def test_full_batches_hold_all_records_of_a_person():
    run = RUN.replace(batches=FullBatch())
    alone, ten = account(run, L2), account(run, L2, unit=PrivacyUnit(records=10))
    assert ten.mu == pytest.approx(10 * alone.mu, rel=1e-9)
    assert ten.mu >= 10 * alone.mu * (1 - 1e-12)


def test_a_released_model_is_paid_for_once():
    """C1: used once, at step t; after the first release that follows, nothing is left to pay."""
    run = RUN.replace(steps=300, step_size=1.0, noise=1.0, gradient_norm=15.0, batches=Cyclic(600))
    loss, once = Loss(smoothness=1.0), PrivacyUnit(first_step=0, last_step=100)
    releases = (100, 200)
    forever = account(run, loss, releases=releases, unit=once)
    day = account(run.replace(steps=100), loss)
    assert forever.mu == pytest.approx(day.mu, rel=1e-9)


def test_the_default_unit_changes_no_number():
    for run in (RUN, RUN.replace(batches=FullBatch()), RUN.replace(batches=Cyclic(1500))):
        plain, said = account(run, L2), account(run, L2, unit=PrivacyUnit(per_batch=1))
        assert plain.epsilon(1e-5) == said.epsilon(1e-5)
        assert said.unit == PrivacyUnit()
        assert said.unit.default


def test_steps_without_the_person_still_drift():
    """Rounding moves two runs apart at every step, whoever is there."""
    rounded = Arithmetic(grid=2.0**-20, error=1e-9, coordinates=4)
    for batches in (FullBatch(), Cyclic(1500), Shuffled(1500)):
        run = RUN.replace(batches=batches, arithmetic=rounded, steps=400)
        nobody = PrivacyUnit(first_step=400)
        drift = account(run, L2, unit=nobody)
        assert drift.epsilon(1e-5) > 0
        assert account(run.replace(arithmetic="exact"), L2, unit=nobody).epsilon(1e-5) == 0


def test_what_nobody_taught_is_refused():
    """Every theorem either covers a unit by name or objects to it."""
    units = [PrivacyUnit(records=2), PrivacyUnit(last_step=5), PrivacyUnit(gradient_norm=0.1)]
    for unit in units:
        for batches in (FullBatch(), Cyclic(1500), Shuffled(1500), Reshuffled(1500)):
            table = compare(RUN.replace(batches=batches, steps=80), L2, unit=unit)
            assert all(unit.differs <= row.theorem.supports for row in table.rows)
            assert table.rows
            assert not table.other_algorithms
    with pytest.raises(UnsupportedError, match="10 of the 60,000 records"):
        account(
            RUN.replace(batches=WithoutReplacement(1500)),
            L2,
            unit=PrivacyUnit(records=10),
        )
    untaught = [t for t in THEOREMS if not t.supports & UNIT_FIELDS]
    assert len(untaught) > 4
    assert "stopped-coupling" in {t.key for t in untaught}
    with pytest.raises(AssumptionError, match="not of a single record, used before step 5 only"):
        BY_KEY["stopped-coupling"].evaluate(
            RUN.replace(diameter=1.0, batches=FullBatch()), L2, (), PrivacyUnit(last_step=5)
        )


@pytest.mark.parametrize(
    ("unit", "batches"),
    [
        (PrivacyUnit(records=60_001), Cyclic(1500)),
        (PrivacyUnit(records=41, per_batch=1), Cyclic(1500)),
        (PrivacyUnit(records=5, per_batch=1), FullBatch()),
        (PrivacyUnit(records=5, per_batch=1), Poisson(0.1)),
        (PrivacyUnit(first_step=2001), Cyclic(1500)),
        (PrivacyUnit(last_step=2001), Cyclic(1500)),
        (PrivacyUnit(gradient_norm=5.1), Cyclic(1500)),
    ],
)
def test_a_unit_that_cannot_be(unit, batches):
    with pytest.raises(DescriptionError):
        account(RUN.replace(batches=batches), L2, unit=unit)


@pytest.mark.parametrize(
    "fields",
    [
        {"records": 0},
        {"records": 1.0},
        {"records": True},
        {"per_batch": 0, "records": 3},
        {"first_step": -1},
        {"first_step": 5, "last_step": 4},
        {"gradient_norm": -1.0},
        {"gradient_norm": math.nan},
        {"gradient_norm": math.inf},
        {"person": 1},
    ],
)
def test_a_malformed_unit(fields):
    with pytest.raises(DescriptionError):
        PrivacyUnit.from_dict(fields)


def test_text_and_back():
    for unit in (PrivacyUnit(), PrivacyUnit(10, 1, 3, 7, 0.1), PrivacyUnit(gradient_norm=0.0)):
        assert PrivacyUnit.from_json(unit.to_json()) == unit
        assert PrivacyUnit.from_toml(unit.to_toml()) == unit


def test_nobody_is_said_to_be_covered_with_longer_gradients_than_counted():
    assert str(PrivacyUnit(gradient_norm=0.9999996)).endswith("no longer than 0.999999")
    assert str(PrivacyUnit(gradient_norm=2.5)).endswith("no longer than 2.5")


def test_records_that_are_kept_apart_may_cost_more_than_records_placed_anyhow():
    """c = 0: the last batch alone counts, and two records in two batches are always in it."""
    loss, kept_apart = Loss(smoothness=0.0, regularization=1.0), PrivacyUnit(records=2, per_batch=1)
    run = Training(
        records=4,
        steps=2,
        step_size=1.0,
        noise=0.1,
        gradient_norm=1.0,
        batches=Shuffled(2),
        adjacency="zero-out",
    )
    anyhow, apart = (account(run, loss, unit=e) for e in (PrivacyUnit(records=2), kept_apart))
    truth = gaussian.Gaussian(0.5 / 0.1).delta(0.0)  # N(1/2, 0.1) against N(0, 0.1)
    assert anyhow.delta(0.0) < truth <= apart.delta(0.0) * (1 + 1e-9)
    assert not PrivacyUnit(records=2).covers(kept_apart)
    assert not kept_apart.covers(PrivacyUnit(records=2))
    assert PrivacyUnit(records=5, per_batch=2).covers(kept_apart)  # any placement of two in a batch
    assert all(e.covers(PrivacyUnit()) for e in (PrivacyUnit(records=2), kept_apart))


def test_more_records_than_an_epoch_has_slots():
    """Nine records, two batches of four: one of them is left out, and any of them may be."""
    run = RUN.replace(records=9, steps=4, batches=Shuffled(4))
    most = [account(run, L2, unit=PrivacyUnit(records=k)).epsilon(1e-5) for k in (7, 8, 9)]
    assert most == sorted(most)


def test_a_child_may_not_count_in_its_own_way():
    class Sly(PrivacyUnit):
        def sensitivity(self, training):
            return 0.0

    with pytest.raises(DescriptionError):
        account(RUN, L2, unit=Sly(records=2))


def test_calibrate_and_plateau_for_a_person():
    run = RUN.replace(batches=Cyclic(1500), steps=400)
    person = PrivacyUnit(records=10, per_batch=1)
    found = calibrate(run, L2, epsilon=2.0, unit=person)
    reached = account(found, L2, unit=person).epsilon(1e-5)
    assert 2.0 * 0.998 <= reached <= 2.0
    for find, unit in (("steps", PrivacyUnit(last_step=5)), ("records", person)):
        with pytest.raises(UnsupportedError):
            calibrate(run, L2, find=find, unit=unit)
    full = run.replace(batches=FullBatch())
    assert plateau(full, L2, 1e-5, unit=PrivacyUnit(records=3)) is not None
    with pytest.raises(UnsupportedError):
        plateau(full, L2, 1e-5, unit=PrivacyUnit(last_step=3))


@pytest.mark.parametrize("batches", [Shuffled, Reshuffled])
def test_somebody_who_is_there_for_a_part_costs_no_more_where_data_curve_nothing(batches):
    run = RUN.replace(batches=batches(6000), steps=30)
    for k, r in ((1, None), (3, None), (3, 1)):
        always = PrivacyUnit(records=k, per_batch=r)
        most = account(run, L2, unit=always).epsilon(1e-5)
        for times in ({"first_step": 3}, {"last_step": 27}, {"first_step": 12, "last_step": 14}):
            part = account(run, L2, unit=dataclasses.replace(always, **times))
            assert part.epsilon(1e-5) <= most * (1 + 1e-3)


def test_a_larger_unit_never_costs_less():
    run = RUN.replace(batches=Cyclic(1500), steps=200)
    values = [
        account(run, L2, unit=PrivacyUnit(records=k, per_batch=1)).mu for k in (1, 2, 5, 20, 40)
    ]
    assert values == sorted(values)
    values = [
        account(run, L2, unit=PrivacyUnit(records=8, per_batch=r)).mu for r in (1, 2, 4, None)
    ]
    assert values == sorted(values)
    assert gaussian.epsilon(values[0], 1e-5) > 0


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(2)])
def test_who_is_exposed_less_never_pays_more(batches):
    run = Training(
        records=12,
        steps=12,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=batches,
        adjacency="zero-out",
    )
    spread = (None,) if batches.full else (None, 1, 2)
    choices = itertools.product((1, 2, 4), spread, (0, 3), (None, 5, 9), (None, 0.5))
    people = {PrivacyUnit(*fields) for fields in choices}
    for loss in (Loss(smoothness=1.0), Loss(smoothness=1.0, strong_convexity=0.9)):
        mus = {person: account(run, loss, unit=person).mu for person in people}
        for more, less in itertools.product(people, repeat=2):
            if more.covers(less, loss):
                assert mus[less] <= mus[more] * (1 + 1e-9), (more, less)


def test_a_guarantee_for_who_stays_does_not_cover_who_leaves_where_data_curve():
    """One record of loss (θ − x)²/2, x = ±1/4, replaced. It is read by a step of size 50; a step of
    size 1 replaces the iterate by x, or adds noise alone once the record's slot is empty.
    """
    run = Training(
        records=1,
        steps=2,
        step_size=[50.0, 1.0],
        noise=[1e-3, 1.0],
        gradient_norm=0.25,
        batches=FullBatch(),
        adjacency="replace",
    )
    curved, left = Loss(smoothness=1.0, strong_convexity=1.0), PrivacyUnit(last_step=1)
    stays, leaves = account(run, curved), account(run, curved, unit=left)
    exact = {}
    for name, curvature, impulse in (("stays", 1.0, 2 * 0.25), ("leaves", 0.0, 0.0)):
        mean, variance = 50.0 * 2 * 0.25, 1e-6  # of the difference after the first step
        mean, variance = (1 - curvature) * mean + impulse, (1 - curvature) ** 2 * variance + 1.0
        exact[name] = mean / math.sqrt(variance)
    assert stays.mu == pytest.approx(exact["stays"], rel=1e-6)
    assert exact["leaves"] > 49 * stays.mu
    assert leaves.mu >= exact["leaves"] * (1 - 1e-9)
    assert not PrivacyUnit().covers(left, curved)
    assert not PrivacyUnit().covers(left)  # nobody says what the loss is
    assert PrivacyUnit().covers(left, Loss(smoothness=1.0, regularization=1.0))
    rng = np.random.default_rng(0)
    audited = audit_scores(rng.normal(exact["leaves"], 1.0, 400), rng.normal(size=400))
    assert audited.epsilon_lower > stays.epsilon(audited.delta)
    for claim in (stays, (stays.epsilon(1e-5), 1e-5)):
        with pytest.raises(UnsupportedError, match="says nothing"):
            audited.contradicts(claim, audited=left)
    assert not audited.contradicts(leaves, audited=left)


@pytest.mark.parametrize("seed", range(20))
def test_a_share_of_the_positions_against_their_exact_laws(seed):
    """At least so many positions have linear runs that all stay below the share's epsilon."""
    rng = np.random.default_rng(9000 + seed)
    run = random_run(rng, Cyclic)
    unit, loss = random_unit(rng, run, several=False), random_loss(rng, run)
    guarantee, batches = account(run, loss, unit=unit), run.batches_per_epoch
    truths = []
    for j in range(batches):
        held = (np.arange(run.steps) % batches == j).astype(float)
        impulses = person_impulses(run, unit, held)
        truths.append(max(linear_mu(rng, run, loss, impulses) for _ in range(6)))
    for quantile in (0.01, 0.3, 0.5, 0.9, 1.0):
        epsilon = guarantee.epsilon_quantile(quantile)
        fine = sum(gaussian.epsilon(mu, 1e-5) <= epsilon * (1 + 1e-6) for mu in truths)
        assert fine >= quantile * batches - 1e-9
    assert guarantee.epsilon_quantile(1.0) == pytest.approx(guarantee.epsilon(1e-5), rel=1e-12)


def test_a_share_of_what_has_no_positions():
    for batches in (FullBatch(), Shuffled(1500)):
        found = account(RUN.replace(batches=batches), L2)
        assert found.epsilon_quantile(0.1) == found.epsilon(1e-5)
    for quantile in (0.0, 1.1, math.nan, "half"):
        with pytest.raises(DescriptionError):
            account(RUN, L2).epsilon_quantile(quantile)
