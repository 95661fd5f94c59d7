"""Sums of losses: every order of additions gives the exact convolution, rounded up."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, fmpz_poly

from lastiterate.kernel.balls import KernelError, divide_up, gaussian_delta, precision
from lastiterate.kernel.privacy_loss import (
    MOST_PAIRS,
    GaussianPair,
    Law,
    Scale,
    Total,
    gaussian,
    labelled,
    opposed,
    replaced,
    sampled,
    sum_of,
)

BITS = 60


def random_law(random: np.random.Generator) -> Law:
    """A few masses that sum to one, some of it infinite."""
    parts = random.integers(1, 1 << 40, size=int(random.integers(2, 6))).tolist()
    masses = [part * (1 << BITS) // sum(parts) for part in parts]
    infinite = (1 << BITS) - sum(masses[:-1])
    return Law(int(random.integers(-5, 5)), fmpz_poly(masses[:-1]), infinite)


def exact_sum(laws: list[tuple[Law, int]]) -> tuple[dict[int, Fraction], Fraction]:
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
    assert [int(mass) for mass in divide_up(fmpz_poly(masses), bits).coeffs()] == expected
    assert divide_up(fmpz_poly([]), bits).coeffs() == []


@pytest.mark.parametrize("seed", range(30))
def test_the_sum_is_the_convolution_rounded_up(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.choice([1, 1, 2, 3, 3, 5, 8], size=int(random.integers(1, 5))).tolist()
    laws = [(random_law(random), count) for count in counts]
    found = sum_of(laws, BITS, budget=0)
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
    trimmed = sum_of(laws, BITS, 1 << (BITS - 8))
    assert len(trimmed.coefficients) < len(masses)
    for loss in masses:
        kept = trimmed.coefficients[max(loss - trimmed.first, 0) :]
        found = trimmed.infinite + sum(int(mass) for mass in kept)
        exact = infinite + sum(mass for other, mass in masses.items() if other >= loss)
        assert Fraction(found, 1 << BITS) >= exact


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.3, 1.0, 2.7, 6.0, 200.0])
def test_delta_is_the_sum_over_all_losses(epsilon: float) -> None:
    """Against the obvious sum, one loss at a time."""
    total = Total([(sampled(0.1, [0.0, 1.0]), 7), (sampled(0.1, [0.2, 1.0]), 3)], 1e-6)
    scale = total.scale
    with precision(scale.precision):
        found = total.delta(arb(epsilon))
        slow = []
        for law in total.laws:
            width, mass = scale.width, arb(law.infinite)
            for k, units in enumerate(law.coefficients):
                loss = (law.first + k) * width
                mass += arb(units) * (1 - (arb(epsilon) - loss).exp()).max(arb(0))
            slow.append(mass / arb(2) ** scale.bits)
        worst = slow[0] if slow[0] > slow[1] else slow[1]
        assert found >= worst.lower()
        assert math.isclose(float(found), min(float(worst), 1.0), rel_tol=1e-12)


def test_too_many_different_pairs_are_refused():
    """Each different pair costs a tenth of a second: no file may ask for hours."""
    pairs = [(sampled(0.01, [0.0, 1.0 + k * 1e-6]), 1) for k in range(MOST_PAIRS + 1)]
    with pytest.raises(KernelError, match="1,025 different pairs"):
        Total(pairs, 1e-5)


def both_sides(random: np.random.Generator) -> tuple[GaussianPair, list[tuple[float, float]], ...]:
    """A random pair, and the mixtures (weight, mean) that it is made of."""
    q = float(random.choice([1e-4, 0.02, 0.3, 1.0]))
    low, high, back = np.sort(random.uniform(0, 2.5, 3)).tolist()
    if random.random() < 0.5:
        return opposed(q, low, high, back), [(1 - q, low), (q, high)], [(1 - q, 0), (q, -back)]
    shifts = [low, *np.sort(random.uniform(low, 3, int(random.integers(1, 4)))).tolist()]
    k = len(shifts) - 1
    weights = [math.comb(k, i) * q**i * (1 - q) ** (k - i) for i in range(k + 1)]
    return sampled(q, shifts), list(zip(weights, shifts, strict=True)), [(1.0, 0.0)]


def hockey_sticks(above, below, epsilon: float) -> tuple[float, float]:
    """Both orders, by quadrature."""
    x = np.linspace(-14, 17, 400_001)
    p, q = (
        sum(w * np.exp(-((x - m) ** 2) / 2) for w, m in law) / math.sqrt(2 * math.pi)
        for law in (above, below)
    )
    one, two = np.maximum(p - math.exp(epsilon) * q, 0), np.maximum(q - math.exp(epsilon) * p, 0)
    return float(np.trapezoid(one, x)), float(np.trapezoid(two, x))


@pytest.mark.parametrize("seed", range(60))
def test_one_pair_is_close_above_its_hockey_sticks(seed):
    random = np.random.default_rng(seed)
    pair, above, below = both_sides(random)
    with precision(300):
        total = Total([(pair, 1)], 1e-9)
        for epsilon in (0.0, 0.2, 1.0, 3.0):
            for law, truth in zip(total.laws, hockey_sticks(above, below, epsilon), strict=True):
                found = float(law.delta(arb(epsilon), total.scale))
                assert truth - 1e-9 <= found <= truth * 1.01 + 1e-9  # quadrature is off by less


@pytest.mark.parametrize("seed", range(30))
def test_a_coin_with_two_distances_has_its_profile(seed):
    """min over t of (1-q) delta_low(log t) + q delta_high(...), at gamma >= 1, by brute force."""
    random = np.random.default_rng(seed)
    q = float(random.choice([0.01, 0.2, 0.9]))
    low, high = np.sort(random.uniform(0.01, 2.5, 2)).tolist()
    low = low if seed % 3 else 0.0
    with precision(200):
        total = Total([(replaced(q, low, high), 1)], 1e-9)
        for epsilon in (0.0, 0.1, 0.7, 2.0):
            gamma, best = math.exp(epsilon), 1.0
            for t in (1.0, *np.linspace(0, gamma, 400)[1:].tolist()):
                rest = (gamma - (1 - q) * t) / q
                sides = [(1 - q, low, t), (q, high, rest)]
                best = min(best, sum(w * gaussian_above(m, g) for w, m, g in sides))
            found = float(total.delta(arb(epsilon)))
            assert best * (1 - 1e-3) - 1e-5 <= found <= best * (1 + 1e-2) + 1e-9


def gaussian_above(mu: float, gamma: float) -> float:
    """H_gamma of N(mu, 1) against N(0, 1), also for gamma < 1."""
    if mu == 0:
        return max(1 - gamma, 0.0)
    if gamma >= 1:
        return float(gaussian_delta(arb(mu) ** 2, arb(gamma).log()))
    return 1 - gamma + gamma * float(gaussian_delta(arb(mu) ** 2, -arb(gamma).log()))


def test_a_revealed_label_gives_the_average_of_gaussian_profiles():
    levels = [(0.0, 0.3), (0.7, 0.25), (2.0, 0.45)]
    with precision(200):
        total = Total([(labelled(levels), 1)], 1e-9)
        for epsilon in (0.0, 0.4, 2.0):
            truth = sum(w * gaussian_delta(arb(mu) ** 2, arb(epsilon)) for mu, w in levels)
            found = total.delta(arb(epsilon))
            assert truth <= found <= truth * 1.001 + 1e-9


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_gaussians_compose_to_a_gaussian(count):
    with precision(200):
        total = Total([(gaussian(0.9 / count**0.5), count)], 1e-9)
        for epsilon in (0.0, 0.5, 2.0, 4.0):
            truth = gaussian_delta(arb(0.9) ** 2 * arb(1 - 1e-12), arb(epsilon))
            assert truth <= total.delta(arb(epsilon)) <= truth * 1.01 + 1e-11


def test_a_huge_epsilon_leaves_only_what_was_cut_off():
    with precision():
        total = Total([(sampled(0.1, [0.0, 1.0]), 5)], 1e-6)
        for epsilon in (1e3, 1e9, 1e300):
            assert total.delta(arb(epsilon)) <= 1e-9


def test_cells_of_one_scale_are_exact_powers_of_two():
    with precision():
        assert Scale(3, 80, 8.0).width == 0.125
