"""Curves handed to dp-accounting stay pessimistic and close."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.interchange import to_dp_accounting
from lastiterate.curves.mixture import Mixture


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 6.0])
def test_gaussian_alone_and_composed(mu):
    handed_over = to_dp_accounting(Gaussian(mu))
    for count in (1, 5):
        composed = handed_over.self_compose(count)
        exact = Gaussian(mu * math.sqrt(count))
        for delta in (1e-3, 1e-6):
            epsilon = composed.get_epsilon_for_delta(delta)
            assert epsilon >= exact.epsilon(delta) * (1 - 1e-6)
            assert epsilon <= exact.epsilon(delta) * 1.01 + 1e-3


def test_a_mixture_against_its_own_profile():
    rng = np.random.default_rng(5)
    curve = Mixture(rng.uniform(0.1, 2.0, 7))
    handed_over = to_dp_accounting(curve)
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        assert handed_over.get_delta_for_epsilon(epsilon) >= curve.delta(epsilon) * (1 - 1e-9)
        assert handed_over.get_delta_for_epsilon(epsilon) <= curve.delta(epsilon) * 1.001 + 1e-12


def test_no_privacy_at_all():
    assert to_dp_accounting(Gaussian(math.inf)).get_delta_for_epsilon(100.0) == 1.0
