"""The Gaussian curve against ball arithmetic, and against what must hold for any curve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ball_arithmetic import excess, gaussian_delta, log_gaussian_delta, upper_tail
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx, ndtri

from lastiterate.curves import gaussian
from lastiterate.curves.gaussian import Gaussian
from lastiterate.errors import DescriptionError

mus = st.floats(1e-12, 1e3)
epsilons = st.one_of(st.just(0.0), st.floats(1e-12, 1e4))
deltas = st.floats(-300, math.log10(0.999)).map(lambda power: 10.0**power)


def points(count: int, seed: int) -> list[tuple[float, float]]:
    """(mu, epsilon) over all scales, with delta between 1e-300 and 1."""
    rng = np.random.default_rng(seed)
    mu = 10.0 ** rng.uniform(-12, 3, count)
    a = rng.uniform(-0.5 * np.minimum(mu, 16), 35.5, count)  # a = epsilon/mu - mu/2
    near = rng.random(count) < 0.3
    a[near] = -mu[near] / 2 * rng.random(near.sum()) ** 3
    epsilon = np.maximum(mu * (a + mu / 2), 0.0)
    return list(zip(mu.tolist(), epsilon.tolist(), strict=True))


EXTREMES = [
    (mu, epsilon)
    for mu in (1e-12, 1e-6, 0.1, math.nextafter(0.1, 0), 1.0, 30.0, 1e3)
    for epsilon in (0.0, 1e-300, 1e-15, 1e-12, 1e-6, 0.5, 1.0, mu * mu / 2, 1e2, 1e4)
]


def test_erfcx_is_as_accurate_as_the_error_budget_says() -> None:
    rng = np.random.default_rng(1)
    scales = np.concatenate([rng.uniform(-0.08, 8, 3000), 10 ** rng.uniform(-14, 12, 1000)])
    worst = 0.0
    for x in scales.tolist():
        ball = arb(x)
        truth = (ball * ball).exp() * ball.erfc() if x < 1e3 else None
        if truth is not None:
            worst = max(worst, abs(float((arb(float(erfcx(x))) - truth) / truth)))
        else:  # beyond, erfcx lies between two terms and one term of its expansion
            top = 1 / (ball * arb.pi().sqrt())
            value = arb(float(erfcx(x)))
            slack = arb(gaussian.ERFCX) * top
            assert top * (1 - 1 / (2 * ball * ball)) - slack <= value
            assert value <= top + slack
    assert worst <= gaussian.ERFCX / 2


@pytest.mark.parametrize("slope", [gaussian._steep, gaussian._flat])
def test_slope_of_erfcx(slope) -> None:  # type: ignore[no-untyped-def]
    low, high = (-0.04, 6.7) if slope is gaussian._steep else (6.0, 60.0)
    for t in np.random.default_rng(2).uniform(low, high, 1500).tolist():
        ball = arb(t)
        truth = 2 / arb.pi().sqrt() - 2 * ball * (ball * ball).exp() * ball.erfc()
        assert abs(float((arb(float(slope(t))) - truth) / truth)) < 4.5e-13


@pytest.mark.parametrize(
    ("count", "seed"), [(10_000, 3), pytest.param(200_000, 30, marks=pytest.mark.fuzz)]
)
def test_delta_is_never_below_the_truth_and_hardly_above(count: int, seed: int) -> None:
    cases = points(count, seed)
    values = gaussian.delta(*np.array(cases).T)
    worst = 0.0
    for (mu, epsilon), value in zip(cases, values.tolist(), strict=True):
        assert gaussian.delta(mu, epsilon) == pytest.approx(value, rel=1e-14)
        truth = gaussian_delta(mu, epsilon)
        assert arb(1e-300) <= truth  # the region this test is about
        worst = max(worst, excess(value, truth), excess(gaussian.delta(mu, epsilon), truth))
    print(f"largest relative excess of delta: {worst:.3g}")
    assert worst < 1e-11


def test_delta_at_the_extremes() -> None:
    for mu, epsilon in EXTREMES:
        truth = log_gaussian_delta(mu, epsilon)
        logarithm, value = gaussian.log_delta(mu, epsilon), gaussian.delta(mu, epsilon)
        assert logarithm == 0 or truth <= arb(logarithm)  # 0 is safe: delta is a probability
        assert float((arb(logarithm) - truth) / (abs(truth) + 1)) < 1e-12
        if truth > -690:
            assert excess(value, gaussian_delta(mu, epsilon)) < 1e-11
        else:
            assert 0 < value < 2e-300


def test_log_delta_far_below_the_smallest_double() -> None:
    rng = np.random.default_rng(4)
    for _ in range(1000):
        mu = float(10 ** rng.uniform(-12, 0))
        epsilon = float(mu * 10 ** rng.uniform(1.6, 15))
        truth, value = log_gaussian_delta(mu, epsilon), gaussian.log_delta(mu, epsilon)
        assert truth <= arb(value)
        assert float((arb(value) - truth) / abs(truth)) < 1e-13


def test_epsilon_zero_is_the_total_variation() -> None:
    for mu in (10 ** np.random.default_rng(5).uniform(-12, 1.1, 300)).tolist():
        truth = (arb(mu) / (2 * arb(2).sqrt())).erf()
        assert excess(gaussian.delta(mu, 0.0), truth) < 1e-11


def test_limits() -> None:
    assert gaussian.delta(0.0, 0.0) == 0
    assert gaussian.log_delta(0.0, 1.0) == -math.inf
    assert gaussian.delta(math.inf, 1e4) == 1
    assert gaussian.delta(1.0, math.inf) == 0
    assert gaussian.epsilon(math.inf, 0.5) == math.inf
    assert gaussian.epsilon(0.0, 0.0) == 0
    assert gaussian.epsilon(1.0, 0.0) == math.inf
    assert gaussian.epsilon(1.0, 1.0) == 0
    assert gaussian.mu(1.0, 0.0) == 0
    assert gaussian.mu(1.0, 1.0) == math.inf
    assert gaussian.rdp(math.inf, 2.0) == math.inf
    assert gaussian.rdp(0.0, math.inf) == 0


def test_no_nan_anywhere() -> None:
    tiny, big = 5e-324, 1.7e308
    grid = np.array([0.0, tiny, 1e-310, 1e-300, 1e-12, 1.0, 1e3, 1e149, 1e155, 1e300, big, np.inf])
    logs = gaussian.log_delta(grid[:, None], grid[None, :])
    assert logs.shape == (12, 12)
    assert not np.isnan(logs).any()
    assert np.all(logs <= 0)
    assert np.all(gaussian.delta(grid[1:, None], grid[None, :-1]) > 0)
    levels = np.array([0.0, tiny, 1e-300, 1e-5, 0.5, 1 - 2**-53, 1.0])
    losses = gaussian.epsilon(grid[:, None], levels[None, :])
    assert np.all(losses >= 0)
    for mu in grid.tolist():
        for other in grid.tolist():
            assert gaussian.log_delta(mu, other) <= 0
            assert Gaussian(mu).compose(Gaussian(other)).mu >= max(mu, other)
        for level in levels.tolist():
            assert gaussian.epsilon(mu, level) >= 0
            assert gaussian.mu(mu, level) >= 0
            assert 0 <= gaussian.tradeoff(mu, level) <= 1
        assert gaussian.rdp(mu, 1.0 + 2**-52) >= 0


def true_epsilon(mu: float, delta: float, near: float) -> tuple[arb, arb]:
    """A proved bracket of the exact epsilon: delta(low) > delta >= delta(high)."""
    width = arb(near) * arb(2) ** -10 + arb(2) ** -100
    low, high = arb(near) - width, arb(near) + width
    low = low if low > 0 else arb(0)
    if not gaussian_delta(mu, low) > arb(delta):
        low = arb(0)
    assert gaussian_delta(mu, low) > arb(delta) >= gaussian_delta(mu, high)
    for _ in range(130):
        middle = ((low + high) / 2).mid()
        if gaussian_delta(mu, middle) > arb(delta):
            low = middle
        else:
            high = middle
    return low, high


def test_epsilon_against_the_exact_root() -> None:
    worst = 0.0
    rng = np.random.default_rng(6)
    for _ in range(250):
        mu = float(10 ** rng.uniform(-12, 3))
        top = float(gaussian_delta(mu, 0.0))
        delta = max(
            float(top * 10 ** -rng.choice([rng.uniform(0, 280), rng.uniform(0, 3)])), 1e-300
        )
        value = gaussian.epsilon(mu, delta)
        low, high = true_epsilon(mu, delta, value)
        assert low <= arb(value)
        assert gaussian_delta(mu, value) <= arb(delta)
        # Near epsilon = 0 the digits of delta(0) itself limit epsilon: 1e-12 of mu.
        surplus = float(arb(value) - high)
        assert surplus <= 1e-11 * value + 1e-12 * mu
        worst = max(worst, surplus / (value + 1e-3 * mu))
    print(f"largest relative excess of epsilon: {worst:.3g}")
    assert worst < 1e-9


def test_epsilon_and_mu_at_the_extremes() -> None:
    for mu in (1e-12, 1e-6, 1.0, 1e3):
        for delta in (1e-300, 1e-100, 1e-30, 1e-5, 0.3, 0.999):
            value = gaussian.epsilon(mu, delta)
            assert gaussian_delta(mu, value) <= arb(delta)
            if value > 0:
                below = value * (1 - 1e-9)
                assert gaussian_delta(mu, below) > arb(delta)
    for epsilon in (0.0, 1e-12, 1.0, 1e4):
        for delta in (1e-300, 1e-30, 1e-5, 0.3, 0.999):
            shift = gaussian.mu(epsilon, delta)
            assert (
                gaussian_delta(shift, epsilon)
                <= arb(delta)
                < gaussian_delta(shift * (1 + 1e-9), epsilon)
            )


@given(epsilons, deltas)
@settings(max_examples=150, deadline=None)
def test_mu_is_the_largest_that_meets_the_target(epsilon: float, delta: float) -> None:
    shift = gaussian.mu(epsilon, delta)
    assert gaussian_delta(shift, epsilon) <= arb(delta)
    assert gaussian_delta(shift * (1 + 1e-9), epsilon) > arb(delta)
    assert gaussian.epsilon(shift, delta) <= epsilon * (1 + 1e-9) + 1e-11 * shift


@given(mus, mus, epsilons, epsilons)
@settings(max_examples=300, deadline=None)
def test_delta_rises_with_mu_and_falls_with_epsilon(
    mu: float, other: float, epsilon: float, later: float
) -> None:
    weak, strong = sorted((mu, other))
    early, late = sorted((epsilon, later))
    slack = 2e-11  # twice the largest excess the first test allows
    assert gaussian.delta(weak, late) <= gaussian.delta(strong, late) * (1 + slack)
    assert gaussian.delta(weak, late) <= gaussian.delta(weak, early) * (1 + slack)


@given(mus, deltas, deltas)
@settings(max_examples=200, deadline=None)
def test_epsilon_falls_with_delta_and_inverts_delta(mu: float, delta: float, other: float) -> None:
    small, large = sorted((delta, other))
    assert gaussian.epsilon(mu, large) <= gaussian.epsilon(mu, small) * (1 + 1e-11) + 1e-12 * mu
    value = gaussian.epsilon(mu, delta)
    assert gaussian.log_delta(mu, value) <= math.log(delta)


def test_arrays_agree_with_single_numbers() -> None:
    rng = np.random.default_rng(7)
    mu, delta = 10 ** rng.uniform(-12, 3, 400), 10 ** -rng.uniform(0.01, 299, 400)
    values = gaussian.epsilon(mu, delta)
    for one, level, value in zip(mu.tolist(), delta.tolist(), values.tolist(), strict=True):
        assert gaussian_delta(one, value) <= arb(level)
        assert value == pytest.approx(gaussian.epsilon(one, level), rel=1e-11, abs=1e-12 * one)
    assert gaussian.epsilon(mu[:, None], delta[None, :5]).shape == (400, 5)


def test_rdp_is_rounded_up() -> None:
    rng = np.random.default_rng(8)
    for _ in range(500):
        mu, order = float(10 ** rng.uniform(-12, 3)), float(1 + 10 ** rng.uniform(-10, 6))
        assert excess(gaussian.rdp(mu, order), arb(order) * arb(mu) ** 2 / 2) < 1e-14


def test_tradeoff_is_never_above_the_truth() -> None:
    """At the rate alpha = P(N(0,1) > t) the least false negative rate is P(N(mu,1) <= t)."""
    rng = np.random.default_rng(9)
    for _ in range(1500):
        mu = float(10 ** rng.uniform(-12, 1.5))
        rate = float(rng.choice([10 ** -rng.uniform(0, 300), 1 - 10 ** -rng.uniform(0.1, 15)]))
        threshold = arb(-float(ndtri(rate)))
        for _ in range(6):  # Newton doubles the digits: from 15 to far beyond 100
            density = (-(threshold**2) / 2).exp() / (2 * arb.pi()).sqrt()
            threshold = (threshold + (upper_tail(threshold) - arb(rate)) / density).mid()
        truth = upper_tail(arb(mu) - threshold)
        value = gaussian.tradeoff(mu, rate)
        assert arb(value) <= truth * (1 + arb(1e-60))
        if truth > arb(1e-290):
            assert float((truth - arb(value)) / truth) < 1e-10
    assert gaussian.tradeoff(1.0, 0.0) == 1
    assert gaussian.tradeoff(1.0, 1.0) == 0
    assert np.all(gaussian.tradeoff(math.inf, [0.0, 0.5, 1.0]) == 0)


def test_tradeoff_is_the_dual_of_delta() -> None:
    """1 - f(alpha) <= e^epsilon alpha + delta(epsilon), with equality at the touching point."""
    for mu in (0.1, 1.0, 3.0):
        for epsilon in (0.0, 0.5, 2.0):
            rate = float(upper_tail(arb(epsilon / mu + mu / 2)))
            line = math.exp(epsilon) * rate + gaussian.delta(mu, epsilon)
            assert 1 - gaussian.tradeoff(mu, rate) == pytest.approx(line, rel=1e-12)


def test_composition_adds_squares() -> None:
    rng = np.random.default_rng(10)
    for _ in range(300):
        first, second = (10 ** rng.uniform(-12, 3, 2)).tolist()
        both = Gaussian(first).compose(Gaussian(second))
        assert excess(both.mu, (arb(first) ** 2 + arb(second) ** 2).sqrt()) < 1e-14
    assert Gaussian(0.0).compose(Gaussian(0.3)) == Gaussian(0.3)


def test_a_curve_is_a_value() -> None:
    assert Gaussian(mu=1.0) == Gaussian(1.0)
    assert len({Gaussian(1.0), Gaussian(1.0), Gaussian(2.0)}) == 2
    with pytest.raises(AttributeError):
        Gaussian(1.0)._mu = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_nonsense_is_refused(bad: float) -> None:
    for call in (
        lambda: gaussian.delta(bad, 1.0),
        lambda: gaussian.delta(1.0, bad),
        lambda: gaussian.delta(np.array([1.0, bad]), 1.0),
        lambda: gaussian.epsilon(1.0, bad),
        lambda: gaussian.mu(bad, 0.1),
        lambda: gaussian.rdp(1.0, bad),
        lambda: Gaussian(bad),
    ):
        with pytest.raises(DescriptionError):
            call()
    with pytest.raises(DescriptionError):
        gaussian.epsilon(1.0, 1.5)


def test_reference_values() -> None:
    """The coefficients of order of three known runs, as Gaussian curves at delta 1e-5."""
    for coefficient, expected in ((0.060800, 1.336), (0.160062, 2.289), (0.273172, 3.095)):
        value = gaussian.epsilon(math.sqrt(2 * coefficient), 1e-5)
        assert value == pytest.approx(expected, abs=6e-4)
