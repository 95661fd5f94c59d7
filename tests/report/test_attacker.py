"""The attacker's table is never below what the best test achieves, and not far above."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from lastiterate import FullBatch, Loss, Shuffled, Training, account, certify
from lastiterate._internal.formatting import percent
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.report.attacker import (
    FALSE_ALARMS,
    deciding_pairs,
    detection_rate,
    proved_pairs,
)
from lastiterate.theory.ordered_batches import HIDDEN_POSITION


def best_power(p: np.ndarray, q: np.ndarray, rate: float) -> float:
    """Neyman and Pearson on finitely many outcomes: accuse where q/p is largest, up to ``rate``."""
    order = np.argsort([-np.inf if a == 0 else -b / a for a, b in zip(p, q, strict=True)])
    left, power = rate, 0.0
    for k in order:
        share = 1.0 if p[k] <= left else left / p[k]
        power += share * q[k]
        left -= share * p[k]
    return power


@given(
    epsilon=st.floats(0, 6),
    delta=st.floats(0, 0.4),
    rate=st.floats(1e-6, 1.0),
)
def test_a_pair_is_attained_by_the_mechanism_that_is_only_just_private(
    epsilon: float, delta: float, rate: float
) -> None:
    """Randomised response that reveals the truth with probability delta (Kairouz et al. 2015)."""
    high = (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
    low = (1 - delta) / (1 + np.exp(epsilon))
    p, q = np.array([delta, high, low, 0.0]), np.array([0.0, low, high, delta])
    truth = best_power(p, q, rate)
    found = detection_rate(rate, [(delta, epsilon)])
    assert found >= truth - 1e-15
    assert found <= truth + 1e-9


@given(mu=st.floats(0.01, 4), rate=st.sampled_from(FALSE_ALARMS))
def test_a_gaussian_is_known_exactly(mu: float, rate: float) -> None:
    truth = norm.sf(norm.isf(rate) - mu)
    found = detection_rate(rate, [(1e-5, 50.0)], mu)
    assert truth * (1 - 1e-12) <= found <= truth + 1e-9


def known_position(mus: np.ndarray, weights: np.ndarray, rate: float) -> float:
    """The best test of an average of Gaussians whose label is known: one likelihood ratio c.

    Given j it accuses wrongly with Phi(-log(c)/mu_j - mu_j/2) and rightly with + mu_j/2; c is where
    the average rate of false alarms is ``rate``.
    """

    def average(log_ratio: float, sign: float) -> float:
        return float(weights @ norm.cdf(-log_ratio / mus + sign * mus / 2))

    log_ratio = brentq(lambda t: average(t, -1.0) - rate, -60.0, 60.0, xtol=1e-14)
    return average(log_ratio, 1.0)


RATES = st.floats(1e-4, 0.9)


@given(mu=st.floats(1e-4, 8), rate=RATES)
def test_all_pairs_together_are_the_gaussian_test(mu: float, rate: float) -> None:
    truth = norm.sf(norm.isf(rate) - mu)
    found = detection_rate(rate, deciding_pairs(Gaussian(mu).delta, [rate]))
    assert truth * (1 - 1e-12) <= found <= 1.01 * truth


@given(
    mus=st.lists(st.floats(0.01, 6), min_size=1, max_size=8),
    shares=st.lists(st.floats(0.01, 1), min_size=8, max_size=8),
    rate=RATES,
)
def test_the_whole_curve_of_a_hidden_position_is_used(
    mus: list[float], shares: list[float], rate: float
) -> None:
    weights = np.array(shares[: len(mus)]) / np.sum(shares[: len(mus)])
    truth = known_position(np.array(mus), weights, rate)
    found = detection_rate(rate, deciding_pairs(Mixture(mus, weights).delta, [rate]))
    assert truth * (1 - 1e-9) <= found <= 1.01 * truth


@given(q=st.floats(0.01, 1), mu=st.floats(0.05, 5), rate=RATES)
def test_a_sampled_gaussian_is_never_undersold(q: float, mu: float, rate: float) -> None:
    """(1 - q) N(0, 1) + q N(mu, 1) against N(0, 1), both ways: the test is a threshold."""

    def found_in(threshold: float) -> float:
        return float((1 - q) * norm.sf(threshold) + q * norm.sf(threshold - mu))

    low = brentq(lambda t: 1 - found_in(t) - rate, -12, 20, xtol=1e-14)
    truth = max(found_in(norm.isf(rate)), norm.cdf(low))

    def delta(epsilon: float) -> float:
        """The larger of both orders, by its formula."""

        def order(ratio):
            t = np.log((ratio - 1 + q) / q) / mu + mu / 2
            return found_in(t) - ratio * norm.sf(t)

        x = np.exp(epsilon)
        one = order(x)
        other = 0.0
        if 1 / x > 1 - q:  # else no outcome is e^epsilon times likelier without the record
            t = np.log((1 / x - 1 + q) / q) / mu + mu / 2
            other = norm.cdf(t) - x * (1 - found_in(t))
        return max(one, other, 0.0)

    found = detection_rate(rate, deciding_pairs(delta, [rate]))
    assert found >= truth * (1 - 1e-9)
    assert found <= 1.2 * truth  # the curve knows not which order it is


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_pairs_of_a_certificate_give_the_whole_test(noise: float) -> None:
    """One step on all records is one Gaussian: without its mu, the pairs come close to it."""
    run = Training(
        records=10,
        steps=1,
        step_size=1.0,
        noise=noise,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    certificate = certify(run, Loss(smoothness=1.0), delta=1e-5)
    for rate in FALSE_ALARMS:
        truth = norm.sf(norm.isf(rate) - 0.2 / noise)
        found = detection_rate(rate, proved_pairs(certificate))
        assert truth <= found <= 1.01 * truth


def test_pairs_of_a_hidden_position_are_those_of_the_accountant() -> None:
    run = Training(
        records=100,
        steps=30,
        step_size=0.5,
        noise=0.2,
        gradient_norm=1.0,
        batches=Shuffled(10),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, regularization=0.1)
    guarantee = account(run, loss)
    for delta, epsilon in proved_pairs(certify(run, loss, delta=1e-6)):
        # The certificate's masses are chosen for its own delta, the guarantee's for each.
        assert guarantee.delta(epsilon) <= 1.001 * delta


@given(rate=st.floats(1e-12, 1.0))
def test_printed_rates_are_rounded_up(rate: float) -> None:
    printed = float(percent(rate).removesuffix(" %")) / 100
    assert rate * (1 - 1e-12) <= printed <= rate * 1.0101


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1, 0.4])
def test_a_certificate_of_shuffled_batches_uses_its_whole_curve(noise: float) -> None:
    """Where the position is hidden there is no mu: the verifier's own average is the truth."""
    run = Training(
        records=60,
        steps=12,
        step_size=0.5,
        noise=noise,
        gradient_norm=1.0,
        batches=Shuffled(10),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, regularization=0.1)
    certificate = certify(run, loss, delta=1e-6)
    assert certificate.mu is None
    curve = HIDDEN_POSITION.evaluate(run, loss).curve
    assert isinstance(curve, Mixture)
    pairs = proved_pairs(certificate)
    for rate in FALSE_ALARMS:
        truth = known_position(curve.mus, curve.weights, rate)
        assert detection_rate(rate, pairs) <= 1.01 * truth
