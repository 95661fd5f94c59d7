"""``optimal`` against enumeration, high precision and what composition must obey."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.composition import OptimalComposition, optimal
from lastiterate.errors import DescriptionError


def enumerated(epsilon: float, delta: float, rounds: int, target: float) -> mpmath.mpf:
    """Hockey-stick divergence of the T-fold four-atom mechanism, all 4^T outcomes."""
    e, d = mpmath.mpf(epsilon), mpmath.mpf(delta)
    honest = (1 - d) / (1 + mpmath.exp(-e))
    liar = (1 - d) / (1 + mpmath.exp(e))
    atoms = ((d, mpmath.mpf(0)), (honest, liar), (liar, honest), (mpmath.mpf(0), d))
    price = mpmath.exp(mpmath.mpf(target))
    total = mpmath.mpf(0)
    for outcome in itertools.product(atoms, repeat=rounds):
        p = mpmath.fprod(a for a, _ in outcome)
        q = mpmath.fprod(b for _, b in outcome)
        total += max(mpmath.mpf(0), p - price * q)
    return total


def summed(epsilon: float, delta: float, rounds: int, target: float) -> mpmath.mpf:
    """The binomial sum in 60 digits, term by term from the largest count down."""
    e, t = mpmath.mpf(epsilon), mpmath.mpf(target)
    count = rounds // 2
    while count >= 0 and (rounds - 2 * count) * e <= t:
        count -= 1
    total = mpmath.mpf(0)
    if count >= 0:
        liar = 1 / (1 + mpmath.exp(e))
        term = mpmath.binomial(rounds, count) * liar**count * (1 - liar) ** (rounds - count)
        for left in range(count, -1, -1):
            total += term * -mpmath.expm1(t - (rounds - 2 * left) * e)
            if left:
                ratio = left * mpmath.exp(e) / (rounds - left + 1)
                term *= ratio
                if ratio < 1 and term < total * (1 - ratio) * mpmath.mpf(10) ** -40:
                    break
    revealed = -mpmath.expm1(rounds * mpmath.log1p(-mpmath.mpf(delta)))
    return total + (1 - total) * revealed


@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
def test_enumeration_of_all_outcomes(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    with mpmath.workdps(40):
        for _ in range(4):
            epsilon, delta = float(rng.uniform(0.01, 3)), float(rng.uniform(0, 0.2))
            target = float(rng.uniform(0, rounds * epsilon))
            truth = enumerated(epsilon, delta, rounds, target)
            found = optimal(epsilon, delta, rounds, target)
            assert truth <= found <= truth * (1 + mpmath.mpf("1e-12"))


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, 7, 8])
def test_enumeration_of_all_outcomes_longer(rounds: int) -> None:
    with mpmath.workdps(30):
        truth = enumerated(0.7, 0.01, rounds, 1.1)
        assert truth <= optimal(0.7, 0.01, rounds, 1.1) <= truth * (1 + mpmath.mpf("1e-12"))


@settings(max_examples=60, deadline=None)
@given(
    log_rounds=st.floats(0, 5),
    log_epsilon=st.floats(-4, 1),
    delta=st.sampled_from([0.0, 1e-12, 1e-7, 1e-3]),
    deviations=st.floats(-2, 12),
)
def test_high_precision(
    log_rounds: float, log_epsilon: float, delta: float, deviations: float
) -> None:
    rounds, epsilon = int(10**log_rounds), 10**log_epsilon
    mean = rounds * epsilon * math.tanh(epsilon / 2)
    target = min(max(0.0, mean + deviations * epsilon * math.sqrt(rounds)), rounds * epsilon)
    with mpmath.workdps(60):
        truth = min(summed(epsilon, delta, rounds, target), mpmath.mpf(1))  # its own rounding
        found = mpmath.mpf(optimal(epsilon, delta, rounds, target))
        assert found >= truth
        if truth > mpmath.mpf("1e-300"):
            assert found <= truth * (1 + mpmath.mpf("1e-9"))


@pytest.mark.parametrize("short", [1e-16, 1e-13, 1e-9, 1e-3])
def test_just_below_the_sum_of_epsilons(short: float) -> None:
    # only the term where every round tells the truth is left, times a cancelling difference
    epsilon, rounds = 0.3, 99_999
    target = rounds * epsilon * (1 - short)
    with mpmath.workdps(60):
        truth = summed(epsilon, 1e-12, rounds, target)
        found = mpmath.mpf(optimal(epsilon, 1e-12, rounds, target))
        assert truth <= found <= truth * (1 + mpmath.mpf("1e-9"))


def test_deltas_below_the_smallest_double_are_not_zero() -> None:
    assert 0.0 < optimal(1.0, 0.0, 10_000, 9_900.0) <= 1e-300


def test_a_million_rounds() -> None:
    found = optimal(0.01, 1e-12, 10**6, 90.0)
    with mpmath.workdps(60):
        truth = summed(0.01, 1e-12, 10**6, 90.0)
        assert truth <= found <= truth * (1 + mpmath.mpf("1e-9"))


@settings(max_examples=40, deadline=None)
@given(
    epsilon=st.floats(1e-3, 3),
    rounds=st.integers(1, 3000),
    delta=st.sampled_from([0.0, 1e-9, 1e-6]),
    log_wanted=st.floats(-12, -0.5),
)
def test_epsilon_inverts_delta_from_the_safe_side(
    epsilon: float, rounds: int, delta: float, log_wanted: float
) -> None:
    curve = optimal(epsilon, delta, rounds)
    wanted = 10**log_wanted
    found = curve.epsilon(wanted)
    if math.isinf(found):
        assert -math.expm1(rounds * math.log1p(-delta)) > wanted * (1 - 1e-9)
        return
    assert curve.delta(found) <= wanted
    if found > 0.0:
        assert curve.delta(found * (1 - 1e-9)) > wanted * (1 - 1e-9)


def test_pure_rounds_need_no_delta_at_the_sum() -> None:
    curve = optimal(0.1, 0.0, 10)
    assert curve.epsilon(0.0) == pytest.approx(1.0, rel=1e-12)
    assert curve.epsilon(0.0) >= 1.0
    assert curve.delta(math.nextafter(1.0, 2.0)) == 0.0


def test_below_the_revealed_bits_nothing_helps() -> None:
    assert optimal(0.1, 1e-6, 100).epsilon(9.9e-5) == math.inf
    assert optimal(0.1, 1e-6, 100).epsilon(1.01e-4) < 10.0


def test_extreme_parameters() -> None:
    assert optimal(0.0, 0.0, 10, 0.0) == 0.0
    assert optimal(0.0, 1e-3, 2, 0.0) == pytest.approx(1 - 0.999**2, rel=1e-12)
    assert optimal(math.inf, 0.0, 1, 5.0) == 1.0
    assert optimal(800.0, 0.0, 3, 1.0) == 1.0
    assert optimal(1.0, 1.0, 3, 1.0) == 1.0


@pytest.mark.parametrize("order", [1.01, 2.0, 7.5, 200.0])
def test_renyi_divergence_of_randomised_response(order: float) -> None:
    with mpmath.workdps(40):
        e = mpmath.mpf("0.3")
        p, q, a = 1 / (1 + mpmath.exp(-e)), 1 / (1 + mpmath.exp(e)), mpmath.mpf(order)
        one = mpmath.log(p**a * q ** (1 - a) + q**a * p ** (1 - a)) / (a - 1)
        found = OptimalComposition(0.3, 0.0, 7).rdp(order)
        assert 7 * one * (1 - mpmath.mpf("1e-15")) <= found <= 7 * one * (1 + mpmath.mpf("1e-11"))
    assert OptimalComposition(0.3, 1e-9, 7).rdp(order) == math.inf


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((-1.0, 0.0, 1), "epsilon"),
        ((math.nan, 0.0, 1), "epsilon"),
        ((1.0, 1.5, 1), "delta"),
        ((1.0, 0.0, 0), "rounds"),
        ((1.0, 0.0, 1.5), "rounds"),
        ((1.0, 0.0, 1, -0.5), "target"),
    ],
)
def test_bad_input_is_named(arguments: tuple[float, ...], field: str) -> None:
    with pytest.raises(DescriptionError, match=field):
        optimal(*arguments)  # type: ignore[call-overload]
