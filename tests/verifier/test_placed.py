"""The verifier's laws of hidden groups, against enumeration and beside the fast path."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from placed_records import minorant_energy, placements

from lastiterate.bounds.cycle_law import Placement, cycle_law
from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import arb, precision
from lastiterate.verifier.placed import cycles, superposed

CASES = [(6, 2, 2, False), (6, 3, 1, False), (5, 3, 3, False), (7, 4, 2, True), (1, 3, 4, False)]


def assert_above(law, truth):
    behind = Fraction(0)
    for value in sorted(truth, reverse=True):
        behind += truth[value]
        found = sum(float(mass) for cost, mass in law if float(cost) >= float(value) * (1 - 1e-14))
        assert found >= float(behind) * (1 - 1e-13)


@pytest.mark.parametrize(("batches", "records", "size", "spread"), CASES)
def test_cycles_are_never_below_enumeration_and_near_it(batches, records, size, spread):
    truth = defaultdict(Fraction)
    for m, chance in placements(batches, size, records, spread=spread):
        truth[minorant_energy(m)] += chance
    worst = records * (1 if spread else min(size, records))
    for circle in (worst * 20 + records + 1, worst * 12):
        with precision():
            law = cycles(batches, records, size, spread, 20, circle, 2.0)
        assert_above(law, truth)
    full = worst * 20 + records + 1
    with precision():
        law = cycles(batches, records, size, spread, 20, full, 2.0)[:-1]
    mean = sum(float(cost) * float(mass) for cost, mass in law)
    exact = float(sum(g * p for g, p in truth.items()))
    assert exact <= mean * (1 + 1e-12) <= exact + records / 20 + 1e-9
    assert sum(float(mass) for _, mass in law) == pytest.approx(1, abs=1e-12)


def test_the_fast_law_is_not_below_the_verifiers():
    """The same cells and circle: every mass of the fast path is at least the ball's."""
    fast = cycle_law(Placement(12, 3, 4, spread=True), 1e-6, 10)
    with precision():
        slow = cycles(12, 3, 4, True, 10, 3 * 10 + 3 + 1, 2.0)[:-1]
    masses = dict.fromkeys(range(40), 0.0)
    for cost, mass in zip(fast.costs, fast.weights, strict=True):
        masses[round(cost * 10)] += mass
    found = dict.fromkeys(range(40), 0.0)
    for cost, mass in slow:
        found[round(float(cost) * 10)] += float(mass)
    assert all(masses[i] >= found[i] - 1e-25 for i in range(40))


@pytest.mark.parametrize("seed", range(8))
def test_superposed_is_never_below_enumeration(seed):
    random = np.random.default_rng(seed)
    batches, records, size, spread = CASES[seed % 4]
    mus = random.exponential(size=batches)
    truth = defaultdict(Fraction)
    for m, chance in placements(batches, size, records, spread=spread):
        truth[math.fsum(n * mu for n, mu in zip(m, mus, strict=True))] += chance
    with precision():
        law = superposed([arb(mu) for mu in mus.tolist()], records, size, spread, 3.0, 60)
    assert_above(law, truth)
    assert sum(float(mass) for _, mass in law) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "given", [(6, 7, 1, True, 10, 10, 1.0), (6, 2, 1, True, 0, 10, 1.0), (6, 2, 1, True, 9, 1, 1.0)]
)
def test_nonsense_is_refused(given):
    with pytest.raises(CertificateError), precision():
        cycles(*given)


def test_a_witness_cannot_ask_for_a_year():
    with pytest.raises(CertificateError), precision():
        cycles(10**6, 100, 10, True, 1000, 10**6, 1.0)
    with pytest.raises(CertificateError), precision():
        superposed([arb(k + 1) for k in range(1000)], 100, 1, True, 1e4, 10**8)
