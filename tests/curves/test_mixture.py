"""Averages of Gaussian curves against ball arithmetic and exactly solvable mixtures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ball_arithmetic import excess, gaussian_delta, mixture_delta, upper_tail
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.curves import gaussian
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.errors import DescriptionError

shifts = st.lists(st.floats(-12, 1.5).map(lambda p: 10.0**p), min_size=1, max_size=6)
deltas = st.floats(-300, -0.01).map(lambda power: 10.0**power)


def random_weights(rng: np.random.Generator, count: int) -> list[float]:
    return (rng.dirichlet(np.full(count, 0.5)) + 1e-12).tolist()


def test_delta_is_the_average_of_the_profiles() -> None:
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(300):
        count = int(rng.integers(1, 8))
        mus = (10 ** rng.uniform(-6, 1.5, count)).tolist()
        weights = random_weights(rng, count)
        weights = [one / math.fsum(weights) for one in weights]
        epsilon = float(max(mus) * (max(mus) / 2 + rng.uniform(-max(mus) / 2, 35)))
        truth = mixture_delta(mus, weights, epsilon)
        worst = max(worst, excess(Mixture(mus, weights).delta(epsilon), truth))
    print(f"largest relative excess of a mixture's delta: {worst:.3g}")
    assert worst < 2e-11


def test_equal_weights_and_merged_components() -> None:
    curve = Mixture([0.5, 1.0, 0.5, 2.0, 0.5])
    assert curve.mus.tolist() == [0.5, 1.0, 2.0]
    for epsilon in (0.0, 1.0, 10.0, 60.0):
        truth = mixture_delta([0.5, 1.0, 2.0], [3, 1, 1], epsilon)
        assert excess(curve.delta(epsilon), truth) < 1e-11
    assert curve.mu is None
    assert Mixture([0.5, 0.5]).mu == 0.5


@given(shifts, deltas)
@settings(max_examples=100, deadline=None)
def test_epsilon_is_the_exact_root_from_above(mus: list[float], delta: float) -> None:
    curve = Mixture(mus)
    value = curve.epsilon(delta)
    weights = [1.0] * len(mus)
    assert mixture_delta(mus, weights, value) <= arb(delta)
    below = value * (1 - 1e-9) - 1e-11 * max(mus)  # near 0 the digits of delta(0) are the limit
    if below > 0:
        assert mixture_delta(mus, weights, below) > arb(delta)


def threshold(mus: list[float], weights: list[float], level: float) -> arb:
    """Where the likelihood ratio sum_j w_j exp(mu_j x - mu_j^2/2), rising in x, reaches level."""
    low, high = arb(-60), arb(60)
    for _ in range(250):
        x = ((low + high) / 2).mid()
        ratio = arb(0)
        for mu, weight in zip(mus, weights, strict=True):
            ratio += arb(weight) * (arb(mu) * x - arb(mu) ** 2 / 2).exp()
        low, high = (x, high) if ratio < arb(level) else (low, x)
    return x


def test_never_below_the_truth_of_a_hidden_label() -> None:
    """sum_j w_j N(mu_j, 1) against N(0, 1), both orders: the likelihood ratio is monotone."""
    rng = np.random.default_rng(2)
    touched = 0.0
    for _ in range(60):
        count = int(rng.integers(1, 5))
        mus = rng.uniform(0.1, 3, count).tolist()
        weights = rng.dirichlet(np.ones(count)).tolist()
        epsilon = float(rng.uniform(0, 3))
        curve, factor = Mixture(mus, weights), arb(epsilon).exp()
        x = threshold(mus, weights, math.exp(epsilon))
        pairs = list(zip(mus, weights, strict=True))
        forward = sum((arb(w) * upper_tail(x - arb(mu)) for mu, w in pairs), arb(0))
        forward -= factor * upper_tail(x)
        x = threshold(mus, weights, math.exp(-epsilon))
        backward = upper_tail(-x)
        backward -= factor * sum((arb(w) * upper_tail(arb(mu) - x) for mu, w in pairs), arb(0))
        value = arb(curve.delta(epsilon))
        assert forward <= value
        assert backward <= value
        touched = max(touched, float(forward / value))
    assert touched > 0.5  # the bound is not vacuous


def test_a_known_label_attains_it() -> None:
    """The label is released too: the hockey-stick divergence is the average, by definition."""
    mus, weights, epsilon = [0.3, 1.5], [0.75, 0.25], 0.7
    exact = arb(0)
    for mu, weight in zip(mus, weights, strict=True):
        cut = arb(epsilon) / arb(mu) + arb(mu) / 2  # where N(mu,1) outweighs e^epsilon N(0,1)
        inside, outside = upper_tail(cut - arb(mu)), upper_tail(cut)
        exact += arb(weight) * (inside - arb(epsilon).exp() * outside)
    assert excess(Mixture(mus, weights).delta(epsilon), exact) < 1e-11


def test_neither_mu_nor_epsilon_is_averaged() -> None:
    """Averaging mu, or epsilon, would report less than the truth of the known label."""
    curve = Mixture([0.1, 2.0])
    truth = arb(curve.delta(1.0))
    assert gaussian_delta(1.05, 1.0) < mixture_delta([0.1, 2.0], [1, 1], 1.0) <= truth
    naive = (gaussian.epsilon(0.1, 1e-5) + gaussian.epsilon(2.0, 1e-5)) / 2
    assert mixture_delta([0.1, 2.0], [1, 1], naive) > arb(1e-5)
    assert curve.epsilon(1e-5) > naive


def test_rdp_against_ball_arithmetic() -> None:
    rng = np.random.default_rng(3)
    for _ in range(400):
        count = int(rng.integers(1, 8))
        mus = (10 ** rng.uniform(-12, 2, count)).tolist()
        weights = rng.dirichlet(np.ones(count)).tolist()
        order = float(1 + 10 ** rng.uniform(-6, 4))
        pairs = list(zip(mus, weights, strict=True))
        power = arb(order) * (arb(order) - 1) / 2
        total = sum((arb(w) * (power * arb(mu) ** 2).exp() for mu, w in pairs), arb(0))
        truth = (total / sum((arb(w) for w in weights), arb(0))).log() / (arb(order) - 1)
        assert excess(Mixture(mus, weights).rdp(order), truth) < 1e-9


def test_rdp_of_order_two_covers_the_hidden_label() -> None:
    """E_Q (P/Q)^2 = sum_ij w_i w_j exp(mu_i mu_j) for P = sum_j w_j N(mu_j, 1), Q = N(0, 1)."""
    rng = np.random.default_rng(4)
    for _ in range(100):
        mus, weights = rng.uniform(0, 2, 4), rng.dirichlet(np.ones(4))
        truth = math.log(weights @ np.exp(np.outer(mus, mus)) @ weights)
        assert Mixture(mus, weights).rdp(2.0) >= truth


def test_hopeless_components() -> None:
    curve = Mixture([0.5, math.inf], [1 - 1e-6, 1e-6])
    assert curve.delta(1e4) >= 1e-6
    assert curve.epsilon(1e-7) == math.inf
    assert curve.epsilon(1e-6) == math.inf
    finite = curve.epsilon(1e-5)
    spent = arb(1e-6) + arb(1 - 1e-6) * gaussian_delta(0.5, finite)
    assert arb(9.999e-6) < spent <= arb(1e-5)
    assert curve.rdp(2.0) == math.inf
    assert Mixture([math.inf]).delta(1e4) == 1
    assert Mixture([0.0, 0.0]).delta(0.0) == 0
    assert Mixture([0.0]).epsilon(0.0) == 0
    half = Mixture([0.0, 1.0])
    assert excess(half.delta(1.0), gaussian_delta(1.0, 1.0) / 2) < 1e-11


def test_one_component_is_one_gaussian() -> None:
    for mu in (1e-12, 0.3, 5.0, 1e3):
        for delta in (1e-300, 1e-5, 0.2):
            assert Mixture([mu]).epsilon(delta) == pytest.approx(
                gaussian.epsilon(mu, delta), rel=1e-9, abs=1e-11 * mu
            )
        assert Mixture([mu]).rdp(3.0) == pytest.approx(gaussian.rdp(mu, 3.0), rel=1e-9)


@given(shifts, deltas, st.floats(0, 1e4), st.floats(0, 1e4))
@settings(max_examples=100, deadline=None)
def test_between_the_best_and_the_worst_component(
    mus: list[float], delta: float, one: float, two: float
) -> None:
    curve = Mixture(mus)
    assert curve.delta(one) <= gaussian.delta(max(mus), one) * (1 + 1e-10)
    assert curve.delta(one) >= gaussian.delta(min(mus), one) * (1 - 1e-10)
    early, late = sorted((one, two))
    assert curve.delta(late) <= curve.delta(early) * (1 + 1e-10)
    assert curve.epsilon(delta) <= gaussian.epsilon(max(mus), delta) * (1 + 1e-9) + 1e-11 * max(mus)
    assert gaussian.log_delta(min(mus), curve.epsilon(delta)) <= math.log(delta) + 1e-10


def test_composition() -> None:
    first, second = Mixture([0.3, 1.0], [0.25, 0.75]), Mixture([0.0, 0.5])
    both = first.compose(second)
    pairs = [(0.3, 0.0, 0.125), (1.0, 0.0, 0.375), (0.3, 0.5, 0.125), (1.0, 0.5, 0.375)]
    for epsilon in (0.0, 1.0, 8.0):
        truth = arb(0)
        for mu, other, weight in pairs:
            root = (arb(mu) ** 2 + arb(other) ** 2).sqrt()
            truth += arb(weight) * gaussian_delta(root, epsilon)
        assert excess(both.delta(epsilon), truth) < 1e-11
    joint = first.compose(Gaussian(2.0))
    assert joint.mus.tolist() == pytest.approx(np.hypot([0.3, 1.0], 2.0).tolist(), rel=1e-14)
    assert np.all(joint.weights >= first.weights)


def test_lost_mass_is_refused_or_restored() -> None:
    with pytest.raises(DescriptionError):
        Mixture([1.0, 2.0], [0.5, 0.4])
    with pytest.raises(DescriptionError):
        Mixture([1.0, 2.0], [0.5, 0.6])
    third = Mixture([0.1, 0.2, 0.3], [0.3333333333] * 2 + [0.3333333333])
    assert sum((arb(w) for w in third.weights.tolist()), arb(0)) >= 1
    for count in (3, 7, 49, 1000):
        curve = Mixture(np.linspace(0.1, 1, count))
        assert sum((arb(w) for w in curve.weights.tolist()), arb(0)) >= 1


def test_many_components() -> None:
    rng = np.random.default_rng(5)
    mus = rng.choice(10 ** rng.uniform(-3, 0, 2000), 100_000)
    curve = Mixture(mus)
    assert curve.mus.size <= 2000
    values, counts = np.unique(mus, return_counts=True)
    truth = mixture_delta(values.tolist(), counts.tolist(), 2.0)
    assert excess(curve.delta(2.0), truth) < 1e-10
    assert curve.delta(curve.epsilon(1e-6)) <= 1e-6 * (1 + 1e-12)


def test_no_nan_at_the_extremes() -> None:
    for mus in ([5e-324], [1e-12, 1e3], [0.0, 1e-300, 1e155], [1e-12], [1e3, math.inf]):
        curve = Mixture(mus)
        for epsilon in (0.0, 1e-300, 1.0, 1e4, 1e300, math.inf):
            assert 0 <= curve.delta(epsilon) <= 1
        for delta in (0.0, 5e-324, 1e-300, 1e-5, 1 - 2**-53, 1.0):
            assert curve.epsilon(delta) >= 0
        for order in (1 + 2**-52, 2.0, 1e300, math.inf):
            assert curve.rdp(order) > 0
    for bad in ([], [-1.0], [math.nan], [[1.0]]):
        with pytest.raises(DescriptionError):
            Mixture(bad)
    with pytest.raises(DescriptionError):
        Mixture([1.0, 2.0], [math.nan, 1.0])


def test_a_mixture_is_a_value() -> None:
    assert Mixture([1.0, 2.0]) == Mixture([2.0, 1.0])
    assert len({Mixture([1.0, 2.0]), Mixture([2.0, 1.0]), Mixture([3.0])}) == 2
    with pytest.raises(ValueError, match="read-only"):
        Mixture([1.0, 2.0]).weights[0] = 0.0
    with pytest.raises(AttributeError):
        Mixture([1.0]).mus = np.zeros(1)  # type: ignore[misc]
