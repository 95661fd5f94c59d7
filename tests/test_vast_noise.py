"""Numbers near the ends of the doubles: no warning, and an answer above the truth, not absurd."""

from __future__ import annotations

import warnings
from fractions import Fraction

import pytest
from scipy.special import ndtr

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
)

SCHEMES = {
    "full": (FullBatch(), "zero-out"),
    "cyclic": (Cyclic(10), "zero-out"),
    "shuffled": (Shuffled(10), "zero-out"),
    "reshuffled": (Reshuffled(10), "zero-out"),
    "Poisson": (Poisson(0.1), "zero-out"),
    "Poisson, replace": (Poisson(0.1), "replace"),
    "without replacement": (WithoutReplacement(10), "replace"),
    "without replacement, zero-out": (WithoutReplacement(10), "zero-out"),
}
SAMPLED = {
    **{f"Poisson {q}": (Poisson(q), "zero-out") for q in (1.0, 1e-12, 1e-300)},
    **{f"Poisson, replace {q}": (Poisson(q), "replace") for q in (1.0, 1e-12, 1e-300)},
    "without replacement, all": (WithoutReplacement(100), "replace"),
    "without replacement, one": (WithoutReplacement(1), "replace"),
    "without replacement, all, zero-out": (WithoutReplacement(100), "zero-out"),
}


def run(batches, adjacency, **changes):
    fields = dict(records=100, steps=20, step_size=0.1, noise=1.0, gradient_norm=1.0)
    return Training(**{**fields, "batches": batches, "adjacency": adjacency, **changes})


def moved(mu):
    """Total variation of N(mu, 1) against N(0, 1)."""
    return float(ndtr(mu / 2) - ndtr(-mu / 2))


@pytest.mark.parametrize("noise", [1e15, 1.7e308])
@pytest.mark.parametrize("diameter", [1e-200, float("inf")])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_vast_noise_hides_everything_quietly(noise, diameter, scheme) -> None:
    batches, adjacency = SCHEMES[scheme]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training = run(batches, adjacency, noise=noise, diameter=diameter)
        guarantee = account(training, Loss(smoothness=1.0))
        assert 0.0 <= guarantee.epsilon(1e-5) < 1e-6
        # The last step alone moves the mean by 0.1 / 100 at most times the chance of being used.
        assert moved(0.1 * 0.1 / 100 / 20 / noise) <= guarantee.delta(0.0) < 1e-6


@pytest.mark.parametrize("scheme", SAMPLED)
@pytest.mark.parametrize(
    "changes",
    [
        {"noise": 1e308},
        {"noise": 1e18},
        {"noise": 1e3},
        {"step_size": 1e-300},
        {"step_size": 5e-324, "noise": 1e308},
        {"step_size": 1e300, "noise": 1e301},
        {"step_size": 1e300},
        {"step_size": 1e308, "noise": 5e-324},
    ],
    ids=str,
)
def test_extreme_rates_sizes_and_steps(scheme, changes) -> None:
    batches, adjacency = SAMPLED[scheme]
    training = run(batches, adjacency, steps=3, **changes)
    rate = getattr(batches, "rate", getattr(batches, "size", 100) / 100)
    shift = Fraction(float(training.step_sizes[0])) / Fraction(float(training.noises[0]))
    push = float(min(shift / (Fraction(rate) * 100), Fraction(10) ** 9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guarantee = account(training, Loss.unknown())
        found = guarantee.delta(0.0)
        assert rate * moved(push) <= found * (1 + 1e-9)
        assert found <= 1.0
        # At most the sum over the steps of a record that is moved twice its length. (Moves of a
        # million standard deviations count as no protection, however rare they are.)
        if push < 1e5:
            assert found <= 1.01 * 3 * rate * moved(2 * push) + 1e-6
        assert guarantee.epsilon(1e-5) >= 0.0
