"""Epochs in ball arithmetic against brute force, and two slips that random descriptions found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from described_runs import RIDGE, SIZES, run

from lastiterate import (
    Cyclic,
    Loss,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    account,
    certify,
    verify,
)
from lastiterate.curves import gaussian
from lastiterate.theory.run import Run
from lastiterate.theory.taut_string import best
from lastiterate.verifier import epochs
from lastiterate.verifier.balls import precision
from lastiterate.verifier.steps import Case


def steps_of(training, loss):
    steps = Run(training, loss).steps
    return steps.c, steps.s, steps.nu


@pytest.mark.parametrize("steps", [60, 57])
@pytest.mark.parametrize("diameter", [math.inf, 0.02])
@pytest.mark.parametrize("loss", [RIDGE, Loss.nonconvex(smoothness=1.0)])
@pytest.mark.parametrize("sizes", [0.1, SIZES])
def test_positions_against_separate_strings(steps, diameter, loss, sizes):
    step_size = sizes if isinstance(sizes, float) else sizes[:steps]
    training = run(Cyclic(20), steps=steps, diameter=diameter, step_size=step_size)
    c, s, nu = steps_of(training, loss)
    with precision():
        squares = epochs.position_squares(Case(training, loss))
    for j, square in enumerate(squares):
        impulses = np.where(np.arange(steps) % 5 == j, s, 0.0)
        found, mu = float(square.sqrt()), best(c, impulses, nu, diameter).mu
        assert found >= mu * (1 - 1e-8)
        if c.max() <= 1 or math.isinf(diameter):  # else other restarts than after an impulse help
            assert found <= mu * (1 + 1e-8)


def test_a_released_window_pays_for_all_of_its_epochs():
    # All iterates are released, so a bounded domain forgets nothing: once, a restart from the
    # diameter inside the window was charged for the last epoch alone.
    training = run(Reshuffled(25), steps=12, noise=0.002, diameter=0.01, release=TailAverage(12))
    _, s, nu = steps_of(training, RIDGE)
    guarantee = account(training, RIDGE)
    for epsilon in (0.5, 2.0, 5.0):
        exact = gaussian.delta(math.sqrt(3) * float(s[0] / nu[0]) * (1 - 1e-9), epsilon)
        assert guarantee.delta(epsilon) >= exact


def test_restarts_of_equal_steps_against_pooling_them_all():
    """Closed forms for one number of windows after a restart, against every restart."""
    random = np.random.default_rng(9)
    gained = 0
    for _ in range(60):
        smooth, l2 = 10 ** random.uniform(-2, 0), random.choice([0.0, 0.1, 1.0])
        loss = [Loss(smooth, regularization=l2), Loss.nonconvex(smoothness=smooth)][
            random.integers(2)
        ]
        training = run(
            Cyclic(int(random.choice([10, 20, 50, 100]))),
            steps=int(random.integers(1, 120)),
            step_size=0.1,
            diameter=float(10 ** random.uniform(-4, 0)),
        )
        batches, steps = training.batches_per_epoch, training.steps
        with precision():
            case = Case(training, loss)
            closed = [float(x) for x in epochs._constant(case, 0, steps, batches)]
            pooled = [float(x) for x in epochs._pooled(case, 0, steps, batches)]
            free = [
                float(x)
                for x in epochs._constant(
                    Case(training.replace(diameter=math.inf), loss), 0, steps, batches
                )
            ]
        assert closed == pytest.approx(pooled, rel=1e-9)
        gained += any(a < b * 0.99 for a, b in zip(closed, free, strict=True))
    assert gained > 10


@pytest.mark.parametrize("scheme", [Cyclic, Shuffled])
def test_a_restart_half_a_million_steps_before_the_end_is_certified(scheme):
    """Restarts were looked for in the last 200,000 steps, one by one, for hours."""
    training = Training(
        records=2,
        steps=2 * 10**6,
        step_size=1e-3,
        noise=0.1,
        gradient_norm=1.0,
        diameter=400.0,
        batches=scheme(1),
        adjacency="replace",
    )
    certificate = certify(training, Loss(smoothness=1.0), delta=1e-5)
    free = account(training.replace(diameter=math.inf), Loss(smoothness=1.0)).epsilon(1e-5)
    assert certificate.epsilon < 0.95 * free
    assert verify(certificate).epsilon == certificate.epsilon
