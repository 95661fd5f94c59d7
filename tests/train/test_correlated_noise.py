"""Noise that later steps take back: what the trainer adds, and what it says about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lastiterate import L1, FullBatch, Loss, Shuffled, Training, account
from lastiterate.audit.shadow import LinearCohort
from lastiterate.description import fractional
from lastiterate.errors import UnsupportedError
from lastiterate.losses import Logistic
from lastiterate.noise import SeededSource
from lastiterate.train import MemoryCheckpoint, noisy_descent

RUN = Training(
    records=20,
    steps=9,
    step_size=0.5,
    noise=0.3,
    gradient_norm=1.0,
    batches=FullBatch(),
    correlation=fractional(0.5, 5),
    adjacency="replace",
)
X = np.random.default_rng(0).standard_normal((20, 3))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def test_the_noise_is_the_described_one():
    """Without gradients the parameters are the sum of L xi, by the matrix."""
    done = noisy_descent(lambda x, rows: np.zeros((20, 3)), None, RUN, start=np.zeros(3),
                         noise=SeededSource(4))  # fmt: skip
    source = SeededSource(4)
    RUN.batches.rows(20, source)
    xi = np.array([source.normal((3,)) for _ in range(9)])
    L = sum(value * np.eye(9, k=-d) for d, value in enumerate(RUN.correlation))
    assert np.allclose(done.parameters, 0.3 * (L @ xi).sum(axis=0), atol=1e-14)


def test_taking_everything_back_leaves_the_last_noise():
    run = RUN.replace(correlation=(1.0, -1.0), steps=400)
    done = [
        noisy_descent(lambda x, rows: np.zeros((20, 3)), None, run, start=np.zeros(3),
                      random_state=seed).parameters
        for seed in range(60)
    ]  # fmt: skip
    assert 0.2 < np.std(done) < 0.4  # and not 0.3·√400


@pytest.mark.parametrize("batches", [FullBatch(), Shuffled(4)])
def test_both_backends_add_the_same(batches):
    run = RUN.replace(batches=batches, proximal=L1(0.01), steps=10)
    one = noisy_descent(Logistic(), X, run, labels=Y, random_state=1)
    other = noisy_descent(Logistic(), torch.from_numpy(X), run, labels=Y, random_state=1)
    assert np.allclose(one.parameters, other.parameters, atol=1e-12)


def test_it_is_an_experiment_with_a_number_for_real_numbers():
    done = noisy_descent(Logistic(), X, RUN, labels=Y)
    assert done.experiment
    assert "take back" in done.objection
    assert done.training.arithmetic == "exact"
    assert done.training.correlation == RUN.correlation
    assert account(done.training, Loss(smoothness=0.25)).epsilon(1e-3) > 0


def test_what_cannot_carry_it_refuses():
    with pytest.raises(UnsupportedError, match="checkpoint"):
        noisy_descent(Logistic(), X, RUN, labels=Y, checkpoint=MemoryCheckpoint())
    with pytest.raises(UnsupportedError, match="correlated"):
        LinearCohort(Logistic(), RUN)
