"""Steps that hardly move anything are certified too: a shift of 1e-18 or 1e-300 of the noise."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import (
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
    certify,
    verify,
)
from lastiterate.kernel.balls import arb, gaussian_delta, precision
from lastiterate.kernel.privacy_loss import Total, gaussian, opposed, replaced, sampled

LOSSES = {"convex": Loss(smoothness=1.0), "unknown": Loss.unknown()}
SCHEMES = {
    "Poisson": (Poisson(0.1), "zero-out"),
    "Poisson, replace": (Poisson(0.1), "replace"),
    "without replacement": (WithoutReplacement(10), "replace"),
    "without replacement, zero-out": (WithoutReplacement(10), "zero-out"),
}


def run(batches, **changes):
    fields = dict(records=100, steps=20, step_size=0.1, noise=0.1, gradient_norm=1.0)
    return Training(**{"adjacency": "replace", **fields, "batches": batches, **changes})


@pytest.mark.parametrize("noise", [1e16, 1e300])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_certified_and_verified(scheme, loss, noise):
    batches, adjacency = SCHEMES[scheme]
    training = run(batches, adjacency=adjacency, noise=noise)
    certificate = certify(training, LOSSES[loss], 1e-6)
    assert certificate.epsilon <= account(training, LOSSES[loss]).epsilon(1e-6) + 1e-9
    assert verify(certificate).epsilon == certificate.epsilon


@pytest.mark.parametrize("mu", [1e-9, 1e-15, 1e-18, 1e-20])
@pytest.mark.parametrize("delta", [1e-12, 1e-30])
def test_the_verifiers_sum_of_tiny_gaussian_steps_is_the_exact_one(mu, delta):
    count = 30
    with precision(400):
        square = arb(mu) ** 2 * count
        total = Total([(gaussian(mu), count)], delta)
        for share in (0.0, 1.0, 3.0):
            epsilon = share * mu * count**0.5
            truth = gaussian_delta(square, arb(epsilon))
            bound = total.delta(arb(epsilon))
            assert bound >= truth
            # Cells of 2^-64 are all that is told apart.
            assert bound <= 1.01 * truth + arb(delta) + arb(2.0**-62 * count)


def moved(mu):
    """The total variation of N(mu, 1) against N(0, 1), in high precision."""
    return 1 - (arb(mu) / arb(8).sqrt()).erfc()


@pytest.mark.parametrize("mu", [1e-10, 1e-17, 1e-19, 1e-30, 1e-160, 5e-324])
@pytest.mark.parametrize("rate", [1e-200, 1e-12, 0.3, 1.0])
def test_no_step_is_bounded_below_its_total_variation(mu, rate):
    with precision(4000):
        once, twice = arb(rate) * moved(mu), arb(rate) * moved(2 * mu)
    for pair, truth in (
        (sampled(rate, [0.0, mu]), once),
        (replaced(rate, 0.0, mu), once),
        (opposed(rate, 0.0, mu, mu), twice),
    ):
        with precision(400):
            bound = Total([(pair, 1)], 1e-30).delta(arb(0))
            assert bound >= truth
            assert bound <= 1.01 * truth + arb(2.0**-60)


def test_a_tiny_step_beside_a_large_one_adds_little():
    large, tiny = sampled(0.3, [0.0, 1.0]), sampled(0.3, [0.0, 1e-18])
    with precision(400):
        alone = Total([(large, 10)], 1e-10).delta(arb(1.0))
        both = Total([(large, 10), (tiny, 10)], 1e-10).delta(arb(1.0))
    # A loss within one wide cell counts as the whole cell: a little is lost.
    assert alone * 0.999 <= both <= alone * 1.05


@pytest.mark.parametrize("diameter", [0.03, np.inf])
@pytest.mark.parametrize(
    "changes",
    [
        {"step_size": 0.0},
        {"step_size": 5e-324},
        {"sensitivity": 0.0},
        {"gradient_norm": 0.0},
        {"step_size": 0.0, "noise": 0.0},
    ],
    ids=str,
)
def test_reshuffled_runs_that_never_use_a_record(changes, diameter):
    ridge = Loss(smoothness=1.0, regularization=0.1)
    training = run(Reshuffled(10), diameter=diameter, **changes)
    for releases in ((), (10,)):
        certificate = certify(training, ridge, 1e-6, releases=releases)
        assert verify(certificate).epsilon == 0.0


@pytest.mark.parametrize("pull", [1e-320, 1e-100, 1e-40, 1e-19])
def test_a_pull_that_nobody_sees_costs_nothing(pull):
    """Before: up to 7 % more than without it, or "could not confirm"."""
    training = run(Shuffled(7), step_size=1.3, noise=0.02, gradient_norm=0.2)
    none, tiny = (certify(training, Loss(1.0, regularization=r), 1e-6) for r in (0.0, pull))
    assert tiny.epsilon == pytest.approx(none.epsilon, rel=1e-9)
    assert verify(tiny)
