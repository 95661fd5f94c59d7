import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.integrate import quad
from scipy.special import comb, ndtr

from lastiterate.curves import gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.errors import DescriptionError


@pytest.mark.parametrize(("mu", "times"), [(1.0, 1), (0.5, 4), (0.05, 900), (3.0, 2), (20.0, 1)])
def test_gaussians_compose_to_one_gaussian(mu, times):
    curve = LossDistribution.gaussian(mu).self_compose(times)
    exact = mu * math.sqrt(times)
    for epsilon in (0.0, 0.3, 1.0, 4.0, exact**2 / 2 + 3 * exact):
        truth = float(gaussian.delta(exact, epsilon))
        assert truth * (1 - 1e-9) <= curve.delta(epsilon) <= truth * (1 + 1e-3)
    for delta in (0.1, 1e-5, 1e-12, 1e-17):
        truth = float(gaussian.epsilon(exact, delta))
        assert truth * (1 - 1e-9) <= curve.epsilon(delta) <= truth * (1 + 1e-3) + 1e-6
    assert curve.rdp(8.0) == pytest.approx(8.0 * exact**2 / 2, rel=1e-9)
    assert curve.rdp(8.0) >= 8.0 * exact**2 / 2


def test_delta_far_below_the_truncated_tails_is_still_sound():
    curve = LossDistribution.gaussian(1.0)
    for delta in (1e-25, 1e-40, 1e-80):
        truth = float(gaussian.epsilon(1.0, delta))
        assert truth <= curve.epsilon(delta) <= 1.15 * truth


def _exact_deltas(rate, low, high, epsilon):
    """Hockey sticks of the pair: the likelihood ratio is increasing, so thresholds are optimal."""

    def loss(x):
        parts = [math.log(rate) + high * x - high**2 / 2]
        if rate < 1:
            parts.append(math.log1p(-rate) + low * x - low**2 / 2)
        return np.logaddexp.reduce(parts)

    def threshold(level):
        left, right = -60.0, 60.0 + high
        if loss(left) > level:
            return -math.inf
        for _ in range(200):
            middle = (left + right) / 2
            left, right = (middle, right) if loss(middle) < level else (left, middle)
        return left

    def mixture(x, side):
        return (1 - rate) * ndtr(side * (x - low)) + rate * ndtr(side * (x - high))

    gamma = math.exp(epsilon)
    up, down = threshold(epsilon), threshold(-epsilon)
    return mixture(up, -1) - gamma * ndtr(-up), ndtr(down) - gamma * mixture(down, 1)


def test_one_pair_against_its_closed_form_in_both_orders():
    rng = np.random.default_rng(1)
    for _ in range(120):
        rate = float(rng.choice([rng.uniform(0, 1), 10 ** rng.uniform(-4, 0), 1.0]))
        high = 10 ** rng.uniform(-1.5, 0.7)
        low = float(rng.choice([0.0, rng.uniform(0, high), high * 10 ** rng.uniform(-5, -1)]))
        curve = LossDistribution.sampled_pair(rate, low, high)
        for epsilon in rng.uniform(0, 5, 3):
            truth = max(_exact_deltas(rate, low, high, epsilon))
            if truth > 1e-11:
                bound = curve.delta(epsilon)
                assert bound >= truth * (1 - 1e-9)
                assert bound <= truth * (1 + 5e-3)


def test_the_replaced_pair_has_the_profile_it_is_named_after():
    rng = np.random.default_rng(2)
    for _ in range(60):
        rate, mu = 10 ** rng.uniform(-3, 0), 10 ** rng.uniform(-1, 0.7)
        curve = LossDistribution.replaced(rate, mu)
        for epsilon in rng.uniform(0, 4, 3):
            inner = math.log1p(math.expm1(epsilon) / rate)
            truth = rate * float(gaussian.delta(mu, inner))
            if truth > 1e-11:
                assert truth * (1 - 1e-9) <= curve.delta(epsilon) <= truth * (1 + 5e-3)


def test_renyi_moments_of_sampled_pairs_against_the_binomial_sum():
    rng = np.random.default_rng(3)
    for _ in range(100):
        rate, high = rng.uniform(0.001, 1), 10 ** rng.uniform(-1, 0.5)
        low, order = rng.uniform(0, high), int(rng.integers(2, 20))
        j = np.arange(order + 1)
        sums = (order - j) * low + j * high
        own = (order - j) * low**2 + j * high**2
        logs = np.log(comb(order, j)) + (order - j) * np.log1p(-rate) + j * np.log(rate)
        truth = np.logaddexp.reduce(logs + (sums**2 - own) / 2) / (order - 1)
        assert LossDistribution.sampled_pair(rate, low, high).rdp(order) >= truth * (1 - 1e-12)
        # the other order is never the larger one by much, and both are maximised
        forward = LossDistribution.sampled_pair(rate, low, high)
        pair = next(iter(forward.counts))
        assert pair.log_moments(order - 1.0)[0] / (order - 1) == pytest.approx(truth, rel=1e-9)


def test_renyi_moments_in_the_other_order_against_quadrature():
    rng = np.random.default_rng(4)
    for _ in range(40):
        rate, high, order = rng.uniform(0.01, 0.99), rng.uniform(0.1, 3), rng.uniform(1.1, 40)
        low = rng.uniform(0, high)
        pair = next(iter(LossDistribution.sampled_pair(rate, low, high).counts))

        def log_integrand(x, rate=rate, low=low, high=high, order=order):
            ratio = np.logaddexp(
                np.log1p(-rate) + low * x - low**2 / 2, np.log(rate) + high * x - high**2 / 2
            )
            return (1 - order) * ratio - x * x / 2 - math.log(2 * math.pi) / 2

        x = np.linspace(-order * high - 15, 15, 20001)
        top = x[np.argmax(log_integrand(x))]
        peak = float(log_integrand(top))
        truth = quad(
            lambda x, f=log_integrand, peak=peak: math.exp(f(x) - peak),
            top - 15,
            top + 15,
            points=[top],
            limit=400,
            epsabs=0,
        )[0]
        assert pair.log_moments(order - 1.0)[1] == pytest.approx(
            peak + math.log(truth), rel=1e-8, abs=1e-9
        )


def test_agrees_with_dp_accounting_where_that_is_precise():
    ours = LossDistribution.sampled_gaussian(0.01, 1.0).self_compose(1000)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.01, value_discretization_interval=1e-4
    ).self_compose(1000)
    for delta in (1e-4, 1e-6, 1e-8):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=2e-4)


def test_composition_of_different_pairs():
    rng = np.random.default_rng(5)
    parts = [
        LossDistribution.sampled_pair(0.2, a, a + b) for a, b in rng.uniform(0.05, 0.6, (4, 2))
    ]
    together = parts[0].compose(*parts[1:])
    backwards = parts[3].compose(parts[2], parts[1], parts[0])
    assert together.epsilon(1e-6) == pytest.approx(backwards.epsilon(1e-6), rel=1e-9)
    assert together.epsilon(1e-6) > parts[0].compose(parts[1]).epsilon(1e-6)
    assert together.rdp(4.0) == pytest.approx(sum(part.rdp(4.0) for part in parts), rel=1e-9)
    mixed = LossDistribution.gaussian(0.6).compose(LossDistribution.gaussian(0.8))
    truth = float(gaussian.epsilon(1.0, 1e-6))
    assert truth * (1 - 1e-9) <= mixed.epsilon(1e-6) <= truth * (1 + 1e-3)


def test_inverse_is_on_the_safe_side():
    curve = LossDistribution.sampled_gaussian(0.05, 1.3).self_compose(200)
    for delta in (0.3, 1e-3, 1e-7, 1e-11):
        assert curve.delta(curve.epsilon(delta)) <= delta
    assert LossDistribution.gaussian(0.1).epsilon(0.5) == 0.0


def test_ends():
    nothing = LossDistribution.nothing()
    assert (nothing.delta(0.0), nothing.epsilon(0.0), nothing.rdp(2.0)) == (0.0, 0.0, 0.0)
    curve = LossDistribution.sampled_gaussian(0.1, 1.0)
    assert curve.epsilon(0.0) == math.inf
    assert curve.epsilon(1.0) == 0.0
    assert curve.self_compose(0).epsilon(1e-9) == 0.0
    bare = LossDistribution.gaussian(math.inf)
    assert (bare.delta(5.0), bare.epsilon(0.5), bare.rdp(2.0)) == (1.0, math.inf, math.inf)
    assert curve.delta(-1.0) >= 1 - math.exp(-1.0)
    with pytest.raises(DescriptionError, match="rate"):
        LossDistribution.sampled_gaussian(1.5, 1.0)
    with pytest.raises(DescriptionError, match="low"):
        LossDistribution.sampled_pair(0.5, 2.0, 1.0)


def test_very_many_steps_fall_back_to_moments():
    curve = LossDistribution.gaussian(1e-5).self_compose(10**9)
    truth = float(gaussian.epsilon(1e-5 * math.sqrt(1e9), 1e-6))
    assert truth <= curve.epsilon(1e-6) <= 1.15 * truth
