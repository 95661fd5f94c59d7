"""Renyi conversions against exactly solvable pairs, high precision, and published numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from ball_arithmetic import excess, gaussian_delta
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.curves import gaussian
from lastiterate.curves.renyi import Linear, Renyi, linear
from lastiterate.errors import DescriptionError

coefficients = st.floats(-24, 5).map(lambda power: 10.0**power)
deltas = st.floats(-300, -0.01).map(lambda power: 10.0**power)


def exact_conversion(coefficient: float, delta: float, order: arb) -> arb:
    epsilon = arb(coefficient) * order + ((order - 1) / order).log()
    return epsilon - (arb(delta).log() + order.log()) / (order - 1)


def mironov(coefficient: float, delta: float) -> float:
    """The older conversion, min over a of coefficient a + log(1/delta)/(a - 1) (Mironov 2017)."""
    return coefficient + 2 * math.sqrt(coefficient * -math.log(delta))


def exact_delta(coefficient: float, epsilon: float, order: arb) -> arb:
    power = (order - 1) * (arb(coefficient) * order - arb(epsilon))
    return power.exp() / order * ((order - 1) * (1 - 1 / order).log()).exp()


def least(function, low: float = -30.0, high: float = 42.0):  # type: ignore[no-untyped-def]
    """Minimum of a unimodal function of log(order - 1), by ternary search with 500 bits."""
    left, right = arb(low), arb(high)
    for _ in range(200):
        first = ((2 * left + right) / 3).mid()
        second = ((left + 2 * right) / 3).mid()
        if function(1 + first.exp()) < function(1 + second.exp()):
            right = second
        else:
            left = first
    return function(1 + ((left + right) / 2).mid().exp())


def test_published_reference_values() -> None:
    """Epsilon at delta 1e-5 of three known runs: Mironov's conversion and the best one."""
    for coefficient, old, best in (
        (0.066659, 1.819, 1.531),
        (0.160062, 2.875, 2.485),
        (0.273172, 3.820, 3.352),
    ):
        assert mironov(coefficient, 1e-5) == pytest.approx(old, abs=6e-4)
        assert linear(coefficient).epsilon(1e-5) == pytest.approx(best, abs=6e-4)


@pytest.mark.parametrize("coefficient", [1e-20, 1e-8, 1e-3, 0.0608, 1.0, 50.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-5, 0.01])
def test_epsilon_is_the_minimum_over_real_orders(coefficient: float, delta: float) -> None:
    truth = least(lambda order: exact_conversion(coefficient, delta, order))
    value = linear(coefficient).epsilon(delta)
    if truth < 0:
        assert value == 0
    else:
        assert excess(value, truth) < 1e-9


@pytest.mark.parametrize("coefficient", [1e-12, 1e-3, 0.0608, 1.0, 50.0])
def test_delta_is_the_minimum_over_real_orders(coefficient: float) -> None:
    for spread in (1.0, 3.0, 10.0, 35.0):
        epsilon = coefficient + spread * math.sqrt(2 * coefficient)
        truth = least(lambda order, loss=epsilon: exact_delta(coefficient, loss, order))
        value = linear(coefficient).delta(epsilon)
        assert excess(value, truth) < 1e-9


@given(coefficients, deltas)
@settings(max_examples=60, deadline=None)
def test_never_below_the_exact_gaussian_nor_above_mironov(coefficient: float, delta: float) -> None:
    """N(mu, 1) against N(0, 1) has exactly the divergence order mu^2/2."""
    curve = linear(coefficient)
    value = curve.epsilon(delta)
    mu = math.sqrt(2 * coefficient) * (1 - 1e-15)
    assert gaussian_delta(mu, value) <= arb(delta)
    assert value <= mironov(coefficient, delta) * (1 + 1e-12)
    assert curve.delta(value) <= delta * (1 + 1e-9)
    assert curve.delta(value) >= gaussian.delta(mu, value) * (1 - 1e-11)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5), st.data())
@settings(max_examples=40, deadline=None)
def test_never_below_exact_discrete_pairs(weights: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(0.01, 1.0), min_size=len(weights), max_size=len(weights)))
    p, q = np.array(weights) / sum(weights), np.array(others) / sum(others)

    def divergence(order: float) -> float:
        ways = []
        for one, two in ((p, q), (q, p)):
            logs = order * np.log(one) + (1 - order) * np.log(two)
            ways.append(float(np.logaddexp.reduce(logs)) / (order - 1))
        return max(0.0, max(ways) + 1e-13 * (1 + 1 / (order - 1)))

    curve = Renyi(divergence)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        truth = max(
            float(np.maximum(p - math.exp(epsilon) * q, 0).sum()),
            float(np.maximum(q - math.exp(epsilon) * p, 0).sum()),
        )
        assert curve.delta(epsilon) >= truth
        if 0 < truth < 1:
            assert curve.epsilon(truth * (1 - 1e-12)) >= epsilon


def test_randomised_response() -> None:
    """Both conversions approach the pure guarantee of randomised response from above."""
    loss = 1.0
    p = math.exp(loss) / (1 + math.exp(loss))

    def divergence(order: float) -> float:
        logs = (
            order * math.log(p) + (1 - order) * math.log1p(-p),
            order * math.log1p(-p) + (1 - order) * math.log(p),
        )
        top = max(logs)
        total = top + math.log(sum(math.exp(one - top) for one in logs))
        return max(0.0, total / (order - 1) * (1 + 1e-14) + 1e-15 / (order - 1))

    curve = Renyi(divergence)
    for delta in (1e-12, 1e-5, 0.1):
        exact = math.log((p - delta) / (1 - p))
        assert exact <= curve.epsilon(delta) <= loss * (1 + 1e-12)


def test_zero_only_where_it_is_proved() -> None:
    for coefficient in (1e-6, 1e-3, 0.1, 1.0):
        curve = linear(coefficient)
        threshold = curve.delta(0.0)
        assert threshold >= gaussian.delta(math.sqrt(2 * coefficient), 0.0) * (1 - 1e-11)
        assert curve.epsilon(min(threshold * (1 + 1e-9), 1.0)) == 0
        if threshold < 1:
            assert curve.epsilon(threshold * (1 - 1e-6)) > 0
    nothing = linear(0.0)
    assert nothing.epsilon(0.0) == nothing.delta(0.0) == nothing.rdp(math.inf) == 0


def test_a_narrower_range_of_orders_is_weaker() -> None:
    wide, narrow = linear(0.0608), Renyi(Linear(0.0608), orders=(1, 5))
    single = Renyi(Linear(0.0608), orders=(3, 3))
    assert wide.epsilon(1e-5) < narrow.epsilon(1e-5) < single.epsilon(1e-5)
    exact = exact_conversion(0.0608, 1e-5, arb(3))
    assert excess(single.epsilon(1e-5), exact) < 1e-12
    assert narrow.rdp(6.0) == math.inf
    assert single.rdp(2.0) == single.rdp(3.0)  # the divergence does not decrease with its order


def test_monotone_in_delta_and_epsilon() -> None:
    curve = linear(0.3)
    levels = np.logspace(-300, -0.01, 40)
    losses = [curve.epsilon(float(level)) for level in levels]
    assert all(late <= early * (1 + 1e-12) for early, late in itertools.pairwise(losses))
    values = [curve.delta(float(loss)) for loss in np.linspace(0, 40, 40)]
    assert all(late <= early * (1 + 1e-12) for early, late in itertools.pairwise(values))


def test_no_nan_at_the_extremes() -> None:
    for coefficient in (0.0, 5e-324, 1e-300, 1e-24, 1.0, 5e5, 1e300, math.inf):
        curve = linear(coefficient)
        for delta in (0.0, 5e-324, 1e-300, 1e-5, 1 - 2**-53, 1.0):
            assert curve.epsilon(delta) >= 0
        for epsilon in (0.0, 1e-300, 1.0, 1e4, 1e300, math.inf):
            assert 0 <= curve.delta(epsilon) <= 1
        assert curve.rdp(1 + 2**-52) >= 0
    assert linear(1.0).delta(1e4) > 0  # rounded up, never to zero


def test_a_linear_curve_is_a_value() -> None:
    assert linear(0.5) == linear(0.5)
    assert len({linear(0.5), linear(0.5), linear(0.6)}) == 2


def test_nonsense_is_refused() -> None:
    for call in (
        lambda: linear(-1.0),
        lambda: linear(math.nan),
        lambda: linear(1.0).epsilon(1.5),
        lambda: linear(1.0).delta(-0.1),
        lambda: linear(1.0).rdp(1.0),
        lambda: Renyi(Linear(1.0), orders=(0.5, 3)),
        lambda: Renyi(lambda order: math.nan).epsilon(1e-5),
    ):
        with pytest.raises(DescriptionError):
            call()
