"""Groups of records in hidden places: the cycle law and superposition, against enumerated truth."""

from __future__ import annotations

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

from lastiterate.bounds.cycle_law import Placement, cycle_law, fineness
from lastiterate.bounds.positions import constant_position_mus, position_mus
from lastiterate.bounds.superposed_groups import superposed_law, worst_sum
from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.errors import DescriptionError


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
