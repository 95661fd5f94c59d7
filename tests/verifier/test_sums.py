"""Sums of losses: every order of additions gives the exact convolution, rounded up."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, fmpz_poly

from lastiterate import Loss, Poisson, Training
from lastiterate.errors import CertificateError
from lastiterate.verifier import losses, sampled
from lastiterate.verifier.balls import precision, units_up
from lastiterate.verifier.losses import LossLaw, Shift, Total, _sum_of
from lastiterate.verifier.steps import Case

BITS = 60


def random_law(random: np.random.Generator) -> LossLaw:
    """A few masses that sum to one, some of it infinite."""
    parts = random.integers(1, 1 << 40, size=int(random.integers(2, 6))).tolist()
    masses = [part * (1 << BITS) // sum(parts) for part in parts]
    infinite = (1 << BITS) - sum(masses[:-1])
    return LossLaw(int(random.integers(-5, 5)), fmpz_poly(masses[:-1]), infinite, arb(0))


def exact_sum(laws: list[tuple[LossLaw, int]]) -> tuple[dict[int, Fraction], Fraction]:
    """Masses and infinite mass of the sum, one loss after another, without rounding."""
    unit = Fraction(1, 1 << BITS)
    total = {0: Fraction(1)}
    for law, count in laws:
        one = {law.first + k: int(m) * unit for k, m in enumerate(law.masses.coeffs())}
        for _ in range(count):
            grown: dict[int, Fraction] = {}
            for a, p in total.items():
                for b, q in one.items():
                    grown[a + b] = grown.get(a + b, Fraction(0)) + p * q
            total = grown
    return total, 1 - sum(total.values())


@pytest.mark.parametrize("bits", [1, 7, 113])
def test_every_mass_is_rounded_up(bits: int) -> None:
    """The smallest ones too: a polynomial divided by a number rounds those to zero."""
    unit = 1 << bits
    masses = [0, 1, unit - 1, unit, unit + 1, 5 * unit, 5 * unit + 1, 0, 1]
    expected = [-(-mass // unit) for mass in masses]
    assert [int(mass) for mass in units_up(fmpz_poly(masses), bits).coeffs()] == expected
    assert units_up(fmpz_poly([]), bits).coeffs() == []


@pytest.mark.parametrize("seed", range(30))
def test_the_sum_is_the_convolution_rounded_up(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.choice([1, 1, 2, 3, 3, 5, 8], size=int(random.integers(1, 5))).tolist()
    laws = [(random_law(random), count) for count in counts]
    found = _sum_of(laws, BITS, budget=0)
    masses, infinite = exact_sum(laws)
    slack = Fraction(2000 * sum(counts), 1 << BITS)
    got = {found.first + k: Fraction(int(m), 1 << BITS) for k, m in enumerate(found.coefficients)}
    for loss in {*masses, *got}:
        exact = masses.get(loss, Fraction(0))
        assert exact <= got.get(loss, Fraction(0)) <= exact + slack
    assert infinite <= Fraction(found.infinite, 1 << BITS) <= infinite + slack


def test_what_is_trimmed_is_never_lost() -> None:
    """Thin ends move up: beyond every loss there is at least the exact mass."""
    random = np.random.default_rng(7)
    laws = [(random_law(random), 6), (random_law(random), 3)]
    masses, infinite = exact_sum(laws)
    trimmed = _sum_of(laws, BITS, 1 << (BITS - 8))
    assert len(trimmed.coefficients) < len(masses)
    for loss in masses:
        kept = trimmed.coefficients[max(loss - trimmed.first, 0) :]
        found = trimmed.infinite + sum(int(mass) for mass in kept)
        exact = infinite + sum(mass for other, mass in masses.items() if other >= loss)
        assert Fraction(found, 1 << BITS) >= exact


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.3, 1.0, 2.7, 6.0, 200.0])
def test_delta_is_the_sum_over_all_losses(epsilon: float) -> None:
    """Against the obvious sum, one loss at a time."""
    total = Total([(Shift(0.1, 0.0, 1.0), 7), (Shift(0.1, 0.2, 1.0), 3)], 1e-6)
    scale = total._scale
    with precision(scale.precision):
        found = total.delta(arb(epsilon))
        slow = []
        for law in total._orders:
            width, mass = arb(scale.width), arb(law.infinite)
            for k, units in enumerate(law.coefficients):
                loss = (law.first + k) * width + law.lift
                mass += arb(units) * (1 - (arb(epsilon) - loss).exp()).max(arb(0))
            slow.append(mass / arb(2) ** scale.bits)
        worst = slow[0] if slow[0] > slow[1] else slow[1]
        assert found >= worst.lower()
        assert math.isclose(float(found), min(float(worst), 1.0), rel_tol=1e-12)


def test_a_witness_with_thousands_of_different_pairs_is_refused():
    """Each different pair costs the verifier a tenth of a second: no file may ask for hours."""
    menu = [(0.0, 1.0 + k * 1e-6) for k in range(losses.MOST_PAIRS + 1)]
    steps = [(losses.Shift(0.01, low, high), 1) for low, high in menu]
    with pytest.raises(CertificateError, match="1,025 different pairs"):
        losses.Total(steps, 1e-5)
    highs = np.linspace(0.5, 1.0, 100)
    run = Training(
        records=100,
        steps=100,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=Poisson(0.01),
        adjacency="replace",
    )
    case = Case(run, Loss.unknown())
    with pytest.raises(CertificateError, match="different pairs"):
        sampled.charged(case, 0.01, (np.zeros(100), highs, highs), menu)
    rows = np.stack([highs, np.zeros(100), highs], axis=1)
    with pytest.raises(CertificateError, match="different pairs"):
        sampled.priced((rows, 1), [(high, 0.0) for _, high in menu], sampled.replaced(0.01))
    assert len(sampled.charged(case, 0.01, (np.zeros(100), highs, highs), menu[:1])) == 1
