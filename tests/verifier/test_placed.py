"""The verifier's laws of hidden groups, against enumeration and beside the fast path."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from placed_records import minorant_energy, placements

from lastiterate.curves import gaussian
from lastiterate.errors import CertificateError
from lastiterate.theory.cycle_law import Placement, cycle_law
from lastiterate.verifier.balanced import Balanced
from lastiterate.verifier.balls import arb, precision
from lastiterate.verifier.placed import cycles, summed, superposed

CASES = [(6, 2, 2, False), (6, 3, 1, False), (5, 3, 3, False), (7, 4, 2, True), (1, 3, 4, False)]


def assert_above(law, truth):
    behind = Fraction(0)
    for value in sorted(truth, reverse=True):
        behind += truth[value]
        found = sum(float(mass) for cost, mass in law if float(cost) >= float(value) * (1 - 1e-14))
        assert found >= float(behind) * (1 - 1e-13)


def in_units(cells, *given):
    with precision():
        return [(cell / cells, mass) for cell, mass in cycles(*given)]


@pytest.mark.parametrize(("batches", "records", "size", "spread"), CASES)
@pytest.mark.parametrize("cells", [1, 7, 20])
def test_cycles_are_balanced_around_enumeration(batches, records, size, spread, cells):
    """Means of (g - t)+ are never below the true ones, nor those of any convex rising function."""
    truth = defaultdict(Fraction)
    for m, chance in placements(batches, size, records, spread=spread):
        truth[minorant_energy(m)] += chance
    worst = records * (1 if spread else min(size, records))
    full = worst * cells + records + 1
    for circle in {full, max(worst * cells * 6 // 10, 2)}:
        law = in_units(cells, batches, records, size, spread, cells, circle, 2.0)
        for place in range(3 * worst):
            start = place / 3
            mean = sum(float(mass) * max(float(cost) - start, 0) for cost, mass in law)
            exact = sum(float(p) * max(float(g) - start, 0) for g, p in truth.items())
            assert mean >= exact * (1 - 1e-12)
        assert_above([(cost + records / cells, mass) for cost, mass in law], truth)
    law = in_units(cells, batches, records, size, spread, cells, full, 2.0)
    mean = sum(float(cost) * float(mass) for cost, mass in law)
    exact = float(sum(g * p for g, p in truth.items()))
    assert exact <= mean * (1 + 1e-12) <= exact + records / cells / 16 + 1e-9
    assert sum(float(mass) for _, mass in law) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_sums_of_epochs_are_balanced_around_enumeration(times):
    truth = {Fraction(0): Fraction(1)}
    for _ in range(times):
        grown = defaultdict(Fraction)
        for m, chance in placements(4, 2, 2, spread=False):
            for before, mass in truth.items():
                grown[before + minorant_energy(m)] += mass * chance
        truth = grown
    for cells, circle in ((3, 20), (50, 203), (300, 1300)):
        with precision():
            law, moved = summed(cycles(4, 2, 2, False, cells, circle, 2.0), times)
        law = [(cell / cells, float(mass)) for cell, mass in law]
        for place in range(12 * times):
            mean = sum(mass * max(cost - place / 3, 0) for cost, mass in law)
            exact = sum(float(p) * max(float(g) - place / 3, 0) for g, p in truth.items())
            assert mean >= exact * (1 - 1e-12)
        assert_above([(cost + (2 * times + moved) / cells, mass) for cost, mass in law], truth)
    assert mean <= exact + 0.02 * times
    with pytest.raises(CertificateError), precision():
        summed([(10**6, arb(1))], 10**6)


@pytest.mark.parametrize("seed", range(30))
def test_a_balanced_law_is_never_below_what_it_was_rounded_from(seed):
    """One q between two points that share its mass: the profile of q is at most what is found."""
    random = np.random.default_rng(seed)
    q, width = 10 ** random.uniform(-3, 1.5), 10 ** random.uniform(-3, 0.5)
    low = q - random.uniform() * min(width, q)
    high = low + max(width, q - low)
    right = (q - low) / (high - low)
    squares, weights = [low, high], [1 - right, right]
    for epsilon in (1e-9, 0.01, 0.3, 1.0, 4.0, 20.0):
        with precision():
            found = Balanced([arb(x) for x in squares], [arb(x) for x in weights]).delta(epsilon)
        assert float(found) >= gaussian.delta(math.sqrt(q), epsilon) * (1 - 1e-9) - 1e-300
    assert Balanced([arb(q)], [arb(1)]).delta(0.0) == 1


def test_the_fast_law_is_not_below_the_verifiers():
    """The mean under the fast law, rounded up, is at least that of the balanced one."""
    fast = cycle_law(Placement(12, 3, 4, spread=True), 1e-6, 10)
    slow = in_units(40, 12, 3, 4, True, 40, 3 * 40 + 3 + 1, 2.0)
    for start in np.linspace(0, 3, 13):
        ours = float(fast.weights @ np.maximum(fast.costs - start, 0))
        theirs = sum(float(mass) * max(float(cost) - start, 0) for cost, mass in slow)
        assert ours >= theirs - 3 / 40 / 16


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
        cycles(10**9, 10**6, 10**9, False, 1, 2, 1.0)
    with pytest.raises(CertificateError), precision():
        cycles(10**8, 1, 1, True, 1, 2, 1.0)
    with pytest.raises(CertificateError), precision():
        superposed([arb(k + 1) for k in range(1000)], 100, 1, True, 1e4, 10**8)
