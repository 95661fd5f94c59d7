"""Extreme inputs: right, or a clear refusal; never NaN, never a negative epsilon, never a hang."""

from __future__ import annotations

import math
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from flint import arb

from lastiterate import (
    Cyclic,
    FullBatch,
    LastIterateError,
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
from lastiterate.verifier.balls import gaussian_delta, precision

STRONG = Loss(smoothness=1.0, strong_convexity=1.0)
CONVEX = Loss(smoothness=1.0)


@contextmanager
def deadline(seconds):
    def late(number, frame):
        raise TimeoutError(f"took longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(batches=None, **changes):
    fields = dict(records=1000, steps=20, step_size=0.1, noise=0.01, gradient_norm=1.0)
    return Training(**{**fields, "batches": batches or FullBatch(), **changes})


def asked(training, loss, delta):
    """epsilon, after checking that it is a number that means something."""
    with deadline(30):
        epsilon = account(training, loss).epsilon(delta)
    assert not math.isnan(epsilon)
    assert epsilon >= 0
    return epsilon


def certified(training, loss, delta):
    """The same epsilon, signed and verified in ball arithmetic."""
    with deadline(60):
        certificate = certify(training, loss, delta)
        verify(certificate)
    assert certificate.epsilon == asked(training, loss, delta)
    return certificate


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-4, 0.4])
@pytest.mark.parametrize("mu", [1e-12, 1e-3, 1.0, 1e3])
def test_deltas_and_mus(delta, mu):
    impulse = 0.1 * 2.0 / 1000
    training = run(steps=1, noise=impulse / mu)
    certificate = certified(training, CONVEX, delta)
    assert certificate.mu == pytest.approx(mu, rel=1e-10)
    if certificate.epsilon > 0:
        assert gaussian_delta(arb(mu) ** 2, arb(certificate.epsilon * (1 - 1e-6))) > delta


@pytest.mark.parametrize("steps", [1, 10**6, 10**12])
@pytest.mark.parametrize("loss", [STRONG, CONVEX, Loss.nonconvex(smoothness=1.0), Loss.unknown()])
def test_lengths(steps, loss):
    certificate = certified(run(steps=steps), loss, 1e-5)
    with precision(300):
        s = arb(0.1) * 2 / 1000 / arb(0.01)
        if loss is STRONG:
            c = 1 - arb(0.1)
            q = c**steps
            square = s * s * (1 - q) / (1 + q) * (1 + c) / (1 - c)
        else:
            square = s * s * steps
        assert arb(certificate.mu) >= square.sqrt()
    assert certificate.mu <= float(square.sqrt()) * (1 + 1e-9)


@pytest.mark.parametrize("gap", [1e-15, 2.3e-16, 1e-17, 1e-300, 0.0])
@pytest.mark.parametrize("steps", [100, 10**12])
def test_contraction_next_to_one(gap, steps):
    loss = Loss(smoothness=1.0, strong_convexity=gap)
    certificate = certified(run(steps=steps, step_size=1.0), loss, 1e-5)
    plain = account(run(steps=steps, step_size=1.0), Loss.unknown()).epsilon(1e-5)
    assert 0 < certificate.epsilon <= plain * (1 + 1e-9)


def test_expansion_next_to_one():
    loss = Loss.nonconvex(smoothness=1e-16)
    for steps in (100, 10**12):
        certified(run(steps=steps, diameter=1.0), loss, 1e-5)


@pytest.mark.parametrize("ratio", [1e12, 1e-12])
def test_noise_ratios(ratio):
    noise = np.geomspace(1e-2, 1e-2 * ratio, 50)
    for diameter in (math.inf, 1e-3):
        certified(run(steps=50, noise=noise, diameter=diameter), STRONG, 1e-5)
        certified(run(Shuffled(100), steps=50, noise=noise, diameter=diameter), STRONG, 1e-5)


SCHEMES = [
    Cyclic(100),
    Shuffled(100),
    Reshuffled(500),
    Poisson(0.1),
    WithoutReplacement(100),
]


@pytest.mark.parametrize("batches", SCHEMES, ids=lambda b: b.name)
@pytest.mark.parametrize(
    "change",
    [
        {"noise": 1e-10},
        {"noise": 1e10},
        {"noise": 0.0},
        {"gradient_norm": 0.0},
        {"step_size": 0.0},
        {"step_size": 1e6},
        {"steps": 0},
        {"steps": 1},
        {"diameter": 0.0},
        {"diameter": 1e-12},
        {"records": 10**9},
    ],
    ids=str,
)
@pytest.mark.parametrize("delta", [1e-300, 1e-5])
def test_corners_of_every_scheme(batches, change, delta):
    adjacency = "zero-out" if isinstance(batches, Poisson) else "replace"
    training = run(batches, **{"steps": 4, "adjacency": adjacency, **change})
    if training.records > 10**6 and batches.name in ("cyclic", "shuffled", "reshuffled"):
        pytest.skip("ten million batches in an epoch of four steps are a matter of memory")
    epsilon = asked(training, STRONG, delta)
    used = training.gradient_norm > 0 and training.steps > 0 and "step_size" not in change
    if change.get("noise") == 0.0:
        assert epsilon == math.inf
    if not used and change.get("step_size", 0.0) == 0.0:
        assert epsilon == 0.0


@pytest.mark.parametrize("batches", SCHEMES[:4], ids=lambda b: b.name)
def test_long_runs_of_every_scheme(batches):
    adjacency = "zero-out" if isinstance(batches, Poisson) else "replace"
    training = run(batches, steps=10**12, adjacency=adjacency)
    shorter = asked(training.replace(steps=10**6), Loss.unknown(), 1e-5)
    assert shorter < asked(training, Loss.unknown(), 1e-5) < math.inf


def test_a_length_without_a_theorem_is_refused():
    training = run(WithoutReplacement(100), steps=10**12)
    with pytest.raises(LastIterateError, match=r"1,000,000,000,000 steps"):
        asked(training, Loss.unknown(), 1e-5)


def test_absurd_questions_are_refused():
    guarantee = account(run(), STRONG)
    for delta in (0.0, -1.0, 2.0, math.nan):
        with pytest.raises(LastIterateError):
            guarantee.epsilon(delta)
    assert guarantee.delta(1e6) >= 0.0
    assert guarantee.delta(0.0) <= 1.0
