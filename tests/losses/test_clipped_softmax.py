"""Clipped softmax regression does not contract: the counterexample, and what accounts for it.

For three or more classes a gradient step of softmax regression with clipped gradients can drive
two runs apart although step size and curvature are in the range where unclipped steps contract
(against Proposition F.2 of Y).
"""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import FullBatch, Training, account
from lastiterate.losses import Softmax
from lastiterate.theory.run import Run
from lastiterate.train import noisy_descent

X = np.array([[3.0, 1.0]])  # x = 3 and an intercept: norm √10
BOUND = np.sqrt(10.0)
THETA = np.array([[0.0, 0.0], [1.5, 0.5], [1.98, 0.66]]).T
ETA, L2, CLIP = 0.352941, 0.05, 4.139025
RUN = Training(
    records=1,
    steps=1,
    step_size=ETA,
    noise=0.0,
    gradient_norm=CLIP,
    batches=FullBatch(),
    clipping="gradient",
    adjacency="replace",
)


def step(theta, run=RUN):
    """One noiseless update of the engine."""
    return noisy_descent(Softmax(3), X, run, labels=[0], regularization=L2, start=theta).parameters


def expansion(h, run=RUN):
    """The largest factor by which the update drives nearby parameters apart."""
    jacobian = np.empty((6, 6))
    for j in range(6):
        direction = np.zeros(6)
        direction[j] = h
        moved = direction.reshape(2, 3)
        difference = step(THETA + moved, run) - step(THETA - moved, run)
        jacobian[:, j] = difference.ravel() / (2 * h)
    return np.linalg.norm(jacobian, 2)


def test_the_gradient_is_longer_than_the_clip():
    slope = Softmax(3).slope(X @ THETA, np.array([0]))
    assert np.linalg.norm(slope) * np.linalg.norm(X) == pytest.approx(4.143168, abs=1e-6)
    assert 2 / (L2 + Softmax(3).smoothness(BOUND) + L2) > ETA


def test_the_clipped_step_expands_and_the_accountant_knows():
    measured = max(expansion(h) for h in (1e-3, 1e-4, 1e-5))
    assert measured > 1.03
    assert measured > 1 - ETA * L2  # what the refuted proposition claims
    loss = Softmax(3).regularity(BOUND, L2)
    assert Run(RUN, loss).contraction[0] >= max(measured, 1.03676)


def test_without_clipping_the_step_contracts_as_claimed():
    free = RUN.replace(clipping="none", gradient_norm=Softmax(3).gradient_norm(BOUND))
    measured = expansion(1e-4, free)
    loss = Softmax(3).regularity(BOUND, L2)
    claimed = Run(free, loss).contraction[0]
    assert measured <= claimed + 1e-9  # the error of the differences
    assert claimed < 1


def test_two_runs_a_small_distance_apart_expand_by_the_published_factor():
    """The direction of the largest expansion, walked with a step of 1e-3."""
    h = 1e-3
    best = 0.0
    rng = np.random.default_rng(0)
    jacobian = np.empty((6, 6))
    for j in range(6):
        e = np.eye(6)[j].reshape(2, 3) * 1e-6
        jacobian[:, j] = (step(THETA + e) - step(THETA - e)).ravel() / 2e-6
    top = np.linalg.svd(jacobian)[2][0].reshape(2, 3)
    for direction in (top, -top, rng.standard_normal((2, 3))):
        unit = direction / np.linalg.norm(direction)
        best = max(best, np.linalg.norm(step(THETA + h * unit) - step(THETA)) / h)
    assert best == pytest.approx(1.03676, abs=2e-4)


@pytest.mark.parametrize("steps", [1, 5, 60])
def test_clipped_softmax_never_gets_the_guarantee_of_a_contraction(steps):
    """The charge is at least that of a run that expands by the measured factor every step."""
    run = RUN.replace(records=40, steps=steps, noise=0.5)
    mu = account(run, Softmax(3).regularity(BOUND, L2)).mu
    c, s = 1.03676, float(Run(run, Softmax(3).regularity(BOUND, L2)).step_sensitivities[0])
    powers = c ** np.arange(steps)
    expanding = s * powers.sum() / (0.5 * np.sqrt((powers**2).sum()))  # linear updates x -> c·x
    contracting = (1 - ETA * L2) ** np.arange(steps)
    claimed = s * contracting.sum() / (0.5 * np.sqrt((contracting**2).sum()))
    assert mu >= expanding * (1 - 1e-12)
    if steps > 1:
        assert mu > claimed
