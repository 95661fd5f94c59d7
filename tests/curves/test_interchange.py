"""Curves handed to dp-accounting stay pessimistic and close."""

from __future__ import annotations

import math
import subprocess
import sys

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


@pytest.mark.parametrize("missing", ["dp_accounting", "attr"])
def test_without_the_extra_the_error_says_what_to_install(missing):
    program = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None  # as if it were not installed\n"
        "from lastiterate import FullBatch, LastIterateError, Loss, Training, account\n"
        "run = Training(5, 2, 0.1, 1.0, 2.0, FullBatch())\n"
        "guarantee = account(run, Loss(smoothness=1.0))\n"
        "try:\n"
        "    guarantee.to_dp_accounting()\n"
        "except LastIterateError as error:\n"
        "    assert isinstance(error, ImportError)\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{missing} is not installed" in done.stdout
    assert "pip install 'lastiterate[interchange]'" in done.stdout
