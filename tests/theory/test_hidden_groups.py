"""Groups of records in hidden places: the cycle law and superposition, against enumerated truth."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from placed_records import (
    energies_of_cycles,
    energies_of_orders,
    minorant_energy,
    mixture_deltas,
    placements,
)

from lastiterate import (
    Arithmetic,
    Loss,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
    Training,
    account,
    calibrate,
    certify,
    compare,
)
from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.theory import BY_KEY
from lastiterate.theory.cycle_law import Placement, _rough_total, _totals, cycle_law, fineness
from lastiterate.theory.groups import superposed_law, worst_sum
from lastiterate.theory.positions import constant_position_mus, position_mus, released_mus
from lastiterate.theory.taut_string import taut_string


def cycle_curve(placement, ratio, epochs, delta, cells=None):
    law = cycle_law(placement, delta, cells)
    base = (epochs - 1) * placement.records**2 / placement.batches
    return Mixture(ratio * np.sqrt(base + law.costs) * (1 + 1e-15), law.weights)


def exact_law(placement):
    law = defaultdict(Fraction)
    each = (placement.batches, placement.size, placement.records)
    for m, chance in placements(*each, spread=placement.spread):
        law[minorant_energy(m)] += chance
    return law


def assert_above(costs, weights, truth):
    """The law is at least the true one: no threshold is passed with more mass in truth."""
    order = np.argsort(costs)
    costs, weights = np.asarray(costs)[order], np.asarray(weights)[order]
    behind = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    true_behind = Fraction(0)
    for value in sorted(truth, reverse=True):
        true_behind += truth[value]
        at = float(behind[np.searchsorted(costs, float(value) * (1 - 1e-15))])
        assert at >= float(true_behind) * (1 - 1e-14)


@pytest.mark.parametrize(
    "m",
    [
        (1, 1, 0, 0, 0, 0),
        (2, 1, 0, 0, 0),
        (3, 1, 1, 0, 0),
        (1, 1, 1, 1, 0, 0, 0),
        (2, 2, 1, 0, 0, 0),
        (4, 0, 0, 1),
        (1, 1, 1),
    ],
)
def test_faces_are_like_cycles_in_rational_arithmetic(m):
    assert energies_of_orders(m) == energies_of_cycles(m)


@pytest.mark.parametrize(
    ("batches", "size", "records", "mean", "delta"),
    [
        (6, 2, 2, "1.1060606061", ".1414428766"),
        (6, 1, 3, "1.935", ".2742942898"),
        (5, 3, 3, "2.46", ".3381545274"),
        (8, 1, 4, "2.4908163265", ".3486408150"),
    ],
)
def test_small_cases(batches, size, records, mean, delta):
    placement = Placement(batches, records, size, spread=False)
    truth = exact_law(placement)
    assert sum(truth.values()) == 1
    assert float(sum(g * p for g, p in truth.items())) == pytest.approx(float(mean), abs=6e-11)
    exact = sum(float(p) * gaussian.delta(math.sqrt(g), 1.0) for g, p in truth.items())
    assert exact == pytest.approx(float(delta), abs=6e-11)
    law = cycle_law(placement, 1e-6)
    assert_above(law.costs, law.weights, truth)
    assert exact <= cycle_curve(placement, 1.0, 1, 1e-6).delta(1.0) <= exact * 1.01


def random_placement(random):
    spread = bool(random.integers(2))
    batches = int(random.integers(1, 8))
    size = int(random.integers(1, 5))
    room = batches if spread else batches * size
    return Placement(batches, int(random.integers(1, min(room, 5) + 1)), size, spread)


def check_laws(seed):
    random = np.random.default_rng(seed)
    placement = random_placement(random)
    delta = 10.0 ** -random.uniform(0.1, 14)
    cells = int(random.integers(8, 60))
    law = cycle_law(placement, delta, cells)
    assert_above(law.costs, law.weights, exact_law(placement))
    assert law.costs.max() <= placement.worst * (1 + 1e-12)
    mus = random.exponential(size=placement.batches) * random.choice([0.0, 1.0], placement.batches)
    found = superposed_law(mus, placement.size, placement.records, delta, spread=placement.spread)
    truth = defaultdict(Fraction)
    each = (placement.batches, placement.size, placement.records)
    for m, chance in placements(*each, spread=placement.spread):
        truth[math.fsum(n * mu for n, mu in zip(m, mus, strict=True))] += chance
    assert_above(found.costs, found.weights, truth)


@pytest.mark.parametrize("seed", range(40))
def test_laws_are_never_below_the_enumerated_ones(seed):
    check_laws(seed)


def check_truth(seed):
    """Linear maps with factors below the declared ones, all gradients in one direction."""
    random = np.random.default_rng(seed)
    placement = random_placement(random)
    batches, records = placement.batches, placement.records
    epochs = int(random.integers(1, 4))
    ratio, epsilon = random.uniform(0.05, 1.5), random.uniform(0, 3)
    steps, most = epochs * batches, random.choice([1.0, random.uniform(0.5, 1)])
    factors = most * random.choice([1.0, random.uniform(0, 1)], steps)
    if random.integers(2):
        factors[random.integers(steps)] = 0.0  # forgets everything: the end alone counts
    behind = np.append(np.cumprod(factors[::-1])[::-1][1:], 1.0)
    deviation = math.sqrt(float(behind @ behind))
    carried = ratio * behind.reshape(epochs, batches).sum(axis=0)
    shifts, shares = [], []
    for m, chance in placements(batches, placement.size, records, spread=placement.spread):
        shifts.append(float(np.dot(m, carried)))
        shares.append(float(chance))
    truth = max(mixture_deltas(np.array(shifts), np.array(shares), deviation, epsilon))
    curve = cycle_curve(placement, ratio, epochs, 1e-6, cells=25)
    assert curve.delta(epsilon) >= truth * (1 - 1e-9) - 1e-15
    mus = constant_position_mus(most, ratio, 1.0, steps, batches)
    law = superposed_law(mus, placement.size, records, 1e-6, spread=placement.spread)
    assert Mixture(law.costs, law.weights).delta(epsilon) >= truth * (1 - 1e-9) - 1e-15


@pytest.mark.parametrize("seed", range(40))
def test_never_below_exact_mixtures(seed):
    check_truth(seed)


@pytest.mark.slow
def test_hundreds_of_laws_and_mixtures():
    for seed in range(1000, 1600):
        check_laws(seed)
        check_truth(seed)


@pytest.mark.parametrize("seed", range(12))
def test_superposition_under_schedules(seed):
    """Steps, noises and factors that change: linear maps at the declared factors."""
    random = np.random.default_rng(seed)
    placement = random_placement(random)
    batches, epochs = placement.batches, int(random.integers(1, 4))
    steps = epochs * batches
    c = random.uniform(0.3, 1.3, steps)
    s, nu = random.exponential(size=steps), random.uniform(0.5, 3, steps)
    behind = np.append(np.cumprod(c[::-1])[::-1][1:], 1.0)
    deviation = float(np.linalg.norm(behind * nu))
    carried = (behind * s).reshape(epochs, batches).sum(axis=0)
    each = (batches, placement.size, placement.records)
    places = list(placements(*each, spread=placement.spread))
    shifts = np.array([float(np.dot(m, carried)) for m, _ in places])
    shares = np.array([float(chance) for _, chance in places])
    law = superposed_law(position_mus(c, s, nu, batches), *each[1:], 1e-6, spread=placement.spread)
    for epsilon in (0.0, 0.5, 2.0):
        truth = max(mixture_deltas(shifts, shares, deviation, epsilon))
        assert Mixture(law.costs, law.weights).delta(epsilon) >= truth * (1 - 1e-9) - 1e-15


def test_one_record_is_the_hidden_position():
    mus = constant_position_mus(1.0, 0.5, 1.0, 120, 40)
    exact = Mixture(mus).epsilon(1e-5)
    found = cycle_curve(Placement(40, 1, 10, spread=False), 0.5, 3, 1e-5).epsilon(1e-5)
    assert exact * (1 - 1e-9) <= found <= exact * 1.002


def test_tiny_deltas_do_not_drown_in_the_error_of_transforms():
    placement = Placement(6, 3, 2, spread=True)
    truth = exact_law(placement)
    curve = cycle_curve(placement, 0.3, 1, 1e-18)
    for epsilon in (2.0, 3.0, 4.0):
        exact = sum(
            float(p) * gaussian.delta(0.3 * math.sqrt(g), epsilon) for g, p in truth.items()
        )
        assert exact <= curve.delta(epsilon)


@pytest.mark.parametrize("given", [(3, 4, 2, True), (2, 5, 2, False), (3, 0, 1, False)])
def test_records_without_a_place_are_refused(given):
    with pytest.raises(DescriptionError):
        Placement(*given)


def test_work_beyond_reach_is_said_before_it_begins():
    assert fineness(Placement(4001, 2, 1, spread=True), 1e-6) == 0
    assert fineness(Placement(4000, 201, 1, spread=True), 1e-6) == 0


def test_edges_of_superposition():
    none = superposed_law(np.zeros(3), 2, 2, 1e-5, spread=False)
    assert none.costs.tolist() == [0.0]
    assert none.weights.tolist() == [1.0]
    hopeless = superposed_law(np.array([0.0, math.inf]), 2, 2, 1e-5, spread=False)
    assert hopeless.costs.tolist() == [math.inf]
    assert worst_sum(np.array([1.0, 3.0, 2.0]), 2, 3) == pytest.approx(8.0, rel=1e-14)
    assert worst_sum(np.array([1.0, 3.0, 2.0]), 1, 2) == pytest.approx(5.0, rel=1e-14)


# Through the public functions: described runs, late, early and quiet people, rounding

THEOREMS = ("superposed-groups", "cycle-law")


class Described:
    """A random shuffled run, a person, and the law of linear updates of its class, enumerated."""

    def __init__(self, seed, *, plain=False, batches=Shuffled):
        random = self.random = np.random.default_rng(seed)
        most = 6 if batches is Shuffled else 4
        size, per_epoch = int(random.integers(1, most - 2)), int(random.integers(2, most))
        steps = per_epoch * int(random.integers(1, 4))
        if not plain and random.random() < 0.3:
            steps += int(random.integers(per_epoch))
        changing = not plain and random.random() < 0.4
        self.training = Training(
            records=size * per_epoch + int(random.integers(size)),  # some may be left out
            steps=steps,
            step_size=random.uniform(0.1, 1.5, steps) if changing else random.uniform(0.1, 1.5),
            noise=random.uniform(0.3, 2.0, steps) if changing else random.uniform(0.3, 2.0),
            gradient_norm=random.uniform(0.3, 2.0),
            batches=batches(size),
            adjacency=str(random.choice(["replace", "zero-out"])),
        )
        if random.random() < 0.4:  # spacings up to a third of the noise
            rounding = Arithmetic(2.0 ** -int(random.integers(3, 12)), random.uniform(0, 0.1), 2)
            self.training = self.training.replace(arithmetic=rounding)
        spread = bool(random.integers(2))
        room = per_epoch if spread else size * per_epoch
        records = int(random.integers(2, max(min(room, 5), 2) + 1))
        if records > room:
            records, spread = 2, True
        timed = not plain and random.random() < 0.3
        joined = int(random.integers(steps + 1)) if timed else 0
        left = int(random.integers(joined, steps + 1)) if timed else None
        norm = self.training.gradient_norm * random.uniform() if random.random() < 0.3 else None
        self.person = PrivacyUnit(records, 1 if spread else None, joined, left, norm)
        largest = float(self.training.step_sizes.max())
        l2 = random.choice([0.0, random.uniform(0, 0.4)]) / largest
        self.loss = Loss(smoothness=random.uniform(0, 1.4) / largest, regularization=l2)

    def deltas(self, epsilon, *, drifting=True):
        """Both orders of a linear run whose records, and whose rounding, all push one way.

        Bounds that publish every iterate need not cover drifts where two runs are at one point.
        """
        run, person, random = self.training, self.person, self.random
        etas, batches = run.step_sizes, run.batches_per_epoch
        tops = np.maximum(1 - etas * self.loss.regularization, 0)
        least = np.maximum(tops - etas * self.loss.smoothness, 0)
        factors = least + random.choice([1.0, random.uniform()]) * (tops - least)
        behind = np.append(np.cumprod(factors[::-1])[::-1][1:], 1.0)
        deviation = float(np.linalg.norm(behind * run.noises))
        norm = run.gradient_norm if person.gradient_norm is None else person.gradient_norm
        each = etas * norm * (2 if run.adjacency == "replace" else 1) / run.batches.size
        there = np.arange(run.steps)
        late = run.steps if person.last_step is None else person.last_step
        each = np.where((person.first_step <= there) & (there < late), each, 0.0)
        drift = 0.0
        if drifting and isinstance(run.arithmetic, Arithmetic):
            told = run.arithmetic
            drift = etas * 2 * told.error + 4 * told.grid * math.sqrt(told.coordinates)
        shifts, shares = [], []
        slots = (batches, run.batches.size, person.records)
        places = list(placements(*slots, spread=person.per_batch == 1))
        drawn = 1 if run.batches.repeated else -(-run.steps // batches)
        for sequence in itertools.product(places, repeat=drawn):
            held = np.resize(np.concatenate([m for m, _ in sequence]), run.steps)
            shifts.append(float(behind @ (held * each + drift)))
            shares.append(float(math.prod(chance for _, chance in sequence)))
        return mixture_deltas(np.array(shifts), np.array(shares), deviation, epsilon)


def check_described(seed, *, plain=False, batches=Shuffled):
    """How many of the theorems of this file spoke; none may be below the truth."""
    case = Described(seed, plain=plain, batches=batches)
    truths = {epsilon: case.deltas(epsilon) for epsilon in (0.0, 0.5, 2.0)}
    asked = {key: BY_KEY[key] for key in THEOREMS}
    run = case.training, case.loss, (), case.person
    spoke = dict.fromkeys(asked, 0)
    for key, theorem in asked.items():
        try:
            bound = theorem.evaluate(*run)
        except LastIterateError:
            continue
        spoke[key] = 1
        for epsilon, truth in truths.items():
            assert bound.curve.delta(epsilon) >= max(truth) * (1 - 1e-9) - 1e-15, (key, run)
    return spoke


@pytest.mark.parametrize("seed", range(30))
def test_described_runs_are_never_below_enumerated_laws(seed):
    check_described(seed, plain=bool(seed % 2))


@pytest.mark.parametrize("seed", range(20))
def test_reshuffled_runs_are_never_below_enumerated_laws(seed):
    assert check_described(seed, plain=True, batches=Reshuffled)["cycle-law"] == 1


@pytest.mark.slow
def test_hundreds_of_reshuffled_runs():
    for seed in range(4000, 4500):
        check_described(seed, plain=True, batches=Reshuffled)


@pytest.mark.slow
def test_hundreds_of_described_runs():
    totals = dict.fromkeys(THEOREMS, 0)
    for seed in range(2000, 3000):
        for key, spoke in check_described(seed, plain=bool(seed % 3)).items():
            totals[key] += spoke
    assert min(totals.values()) >= 500


RUN = Training(
    records=60_000,
    steps=1000,
    step_size=1.0,
    noise=1.0,
    gradient_norm=15.0,
    batches=Shuffled(60),
    adjacency="replace",
)
CONVEX = Loss(smoothness=1.0)


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.606), (5, 2.239), (10, 3.207)])
def test_superposition_of_the_reference_table(k, epsilon):
    bound = BY_KEY["superposed-groups"].evaluate(
        RUN, CONVEX, (), PrivacyUnit(records=k, per_batch=1)
    )
    assert bound.curve.epsilon(1e-6) <= epsilon + 5e-4


@pytest.mark.parametrize(
    ("k", "free", "spread"),
    [
        (2, 1.488, 1.477),
        (5, 1.747, 1.667),
        pytest.param(10, 2.171, 1.903, marks=pytest.mark.slow),
    ],
)
def test_cycles_of_the_reference_table(k, free, spread):
    for person, epsilon in ((PrivacyUnit(k), free), (PrivacyUnit(k, 1), spread)):
        found = account(RUN, CONVEX, unit=person)
        assert found.epsilon(1e-6) <= epsilon + 5e-4
        assert found.best_at(1e-6).theorem.key == "cycle-law"


@pytest.mark.parametrize(
    ("k", "free", "spread"), [(2, 2.393, 2.104), (5, 4.594, 4.218), (10, 9.212, 8.916)]
)
def test_cycles_of_the_reference_table_in_five_epochs(k, free, spread):
    run = RUN.replace(steps=200, gradient_norm=375.0, batches=Shuffled(1500))
    for person, epsilon in ((PrivacyUnit(k), free), (PrivacyUnit(k, 1), spread)):
        assert account(run, CONVEX, unit=person).epsilon(1e-5) <= epsilon + 5e-4


@pytest.mark.filterwarnings("ignore:delta")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("batches", [Shuffled, Reshuffled])
def test_what_is_sealed_is_never_below_enumerated_laws(seed, batches):
    case = Described(seed, plain=bool(seed % 2), batches=batches)
    sealed = certify(case.training, case.loss, 1e-3, unit=case.person)
    for delta, epsilon in ((sealed.delta, sealed.epsilon), *sealed.curve):
        assert max(case.deltas(epsilon, drifting=False)) <= delta * (1 + 1e-9)


def test_what_is_not_known_is_refused_by_name():
    reasons = {
        row.theorem.key: row.reason
        for row in compare(RUN, CONVEX, unit=PrivacyUnit(records=4, per_batch=2)).inapplicable
    }
    for key in THEOREMS:
        assert "per_batch=1" in reasons[key]
    huge = RUN.replace(records=60_000_000, steps=10**6)
    reasons = {
        row.theorem.key: row.reason
        for row in compare(huge, CONVEX, unit=PrivacyUnit(records=400)).inapplicable
    }
    assert set(THEOREMS) <= set(reasons)


def test_rounding_is_charged_on_coarse_grids():
    """Steps that hold nobody's record drift all the same."""
    run, person = RUN.replace(steps=200, records=1200), PrivacyUnit(records=3, per_batch=1)
    exact = run.replace(batches=Shuffled(60))
    before = 0.0
    for exponent in (-30, -14, -10, -7):
        rounded = exact.replace(arithmetic=Arithmetic(2.0**exponent, 1e-9, 4))
        for key in THEOREMS:
            plain, charged = (
                BY_KEY[key].evaluate(r, CONVEX, (), person).curve.epsilon(1e-5)
                for r in (exact, rounded)
            )
            assert charged > plain
        assert charged > before
        before = charged


def test_calibrate_for_a_person_in_hidden_batches():
    run, person = RUN.replace(records=6000, steps=100), PrivacyUnit(records=4, per_batch=1)
    found = calibrate(run, CONVEX, epsilon=1.0, unit=person)
    assert 0.998 <= account(found, CONVEX, unit=person).epsilon(1e-5) <= 1.0


@pytest.mark.parametrize("seed", range(20))
def test_single_strings_pay_for_all_records_between_releases(seed):
    """mu^2 adds over the stretches; each stretch's string of all records, placed at random."""
    random = np.random.default_rng(seed)
    batches, steps = 4, int(random.integers(4, 14))
    c, s, nu = random.uniform(0.2, 1.2, steps), random.exponential(size=steps), np.ones(steps)
    releases = tuple(sorted({*random.integers(1, steps + 1, 2).tolist(), steps}))
    mus = released_mus(c, s, nu, batches, releases, 1, math.inf)
    held = random.integers(0, 3, batches)
    total = 0.0
    for first, last in zip((0, *releases), releases, strict=False):
        stretch = slice(first, last)
        impulses = (np.resize(held, steps) * s)[stretch]
        total += taut_string(c[stretch], impulses, nu[stretch]).mu ** 2
    assert math.sqrt(total) <= float(held @ mus) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("k", [57, 100])
def test_many_records_are_certified_with_what_was_accounted(k):
    run = RUN.replace(steps=800, step_size=np.linspace(1.0, 0.5, 800), records=24_000)
    person = PrivacyUnit(records=k)
    sealed = certify(run, CONVEX, 1e-6, unit=person)
    assert sealed.theorem_key == "superposed-groups"
    assert sealed.epsilon <= account(run, CONVEX, unit=person).epsilon(1e-6) * (1 + 1e-6)


@pytest.mark.parametrize("batches", [1, 2, 7, 60, 301])
@pytest.mark.parametrize("records", [1, 2, 5, 9])
def test_the_quick_guess_of_a_moment_is_the_moment(batches, records):
    """Whoever asks whether the law applies gets the same answer as by the sums themselves."""
    shares = Placement(batches, min(records, batches), 60, spread=False).shares
    for tilt in (0.0, 0.5, 3.0):
        lifted = shares * np.exp(tilt / np.arange(1, batches + 1))
        assert _rough_total(lifted) == pytest.approx(_totals(lifted)[-1].sum(), rel=1e-6)
