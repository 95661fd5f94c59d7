"""The attacker's table is never below what the best test achieves, and not far above."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from lastiterate import FullBatch, Loss, Shuffled, Training, account, certify
from lastiterate.printing import percent
from lastiterate.report.attacker import FALSE_ALARMS, detection_rate, proved_pairs


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


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_pairs_of_a_certificate_give_the_whole_test(noise: float) -> None:
    """One step on all records is one Gaussian: without its mu, the pairs come close to it."""
    run = Training(
        records=10, steps=1, step_size=1.0, noise=noise, gradient_norm=1.0, batches=FullBatch()
    )
    certificate = certify(run, Loss(smoothness=1.0), delta=1e-5)
    for rate in FALSE_ALARMS:
        truth = norm.sf(norm.isf(rate) - 0.2 / noise)
        found = detection_rate(rate, proved_pairs(certificate))
        assert truth <= found <= 1.01 * truth


def test_pairs_of_a_hidden_position_are_those_of_the_accountant() -> None:
    run = Training(
        records=100, steps=30, step_size=0.5, noise=0.2, gradient_norm=1.0, batches=Shuffled(10)
    )
    loss = Loss(smoothness=1.0, regularization=0.1)
    guarantee = account(run, loss)
    for delta, epsilon in proved_pairs(certify(run, loss, delta=1e-6)):
        assert guarantee.delta(epsilon) == pytest.approx(delta, rel=1e-6)


@given(rate=st.floats(1e-12, 1.0))
def test_printed_rates_are_rounded_up(rate: float) -> None:
    printed = float(percent(rate).removesuffix(" %")) / 100
    assert rate * (1 - 1e-12) <= printed <= rate * 1.0101
