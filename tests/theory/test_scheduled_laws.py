"""Runs with a burst, an average or a schedule, as described, against their exact laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from exact_laws import Pair

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    account,
)


def linear_pair(run, loss, release):
    """Every record's loss has the declared curvature; one record's slope differs.

    ``release``: weights of the last iterates. What is released is Gaussian given the positions.
    """
    batches = run.batches_per_epoch
    factor = 1 - run.step_sizes * (loss.strong_convexity + loss.regularization)
    response, ahead = 0.0, np.empty(run.steps)
    for k in range(run.steps - 1, -1, -1):
        if k >= run.steps - len(release):
            response += release[k - run.steps + len(release)]
        ahead[k] = response
        response *= factor[k]
    impulse = run.step_sizes * run.impulse * ahead
    deviation = math.sqrt(np.sum((run.noises * ahead) ** 2))
    epochs = run.steps // batches
    hidden = [(j,) * epochs for j in range(batches)]
    if isinstance(run.batches, Reshuffled):
        hidden = list(itertools.product(range(batches), repeat=epochs))
    means = np.array(
        [sum(impulse[e * batches + j] for e, j in enumerate(places)) for places in hidden]
    )
    if isinstance(run.batches, Cyclic):
        means = means[np.argmax(np.abs(means))][None]
    means = means / deviation
    return Pair(means, np.zeros(len(means)), np.full(len(means), 1 / len(means)))


def averages(rng, window):
    """Uniform, exponential and arbitrary (even negative) weights within the window."""
    return [
        np.full(window, 1 / window),
        0.7 ** np.arange(window - 1, -1, -1.0),
        rng.normal(size=window),
    ]


SCHEMES = [FullBatch, Cyclic, Shuffled, Reshuffled]
SCHEDULES = [None, "equalised", "listed"]


def check_linear_run(rng, scheme, schedule, rho):
    """A random run and every kind of average of its window: never below the exact law."""
    size, epochs = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    batches = FullBatch() if scheme is FullBatch else scheme(1)
    steps = epochs if scheme is FullBatch else size * epochs
    step = rng.uniform(0.05, 1.0)
    sizes, noises = step, step
    if schedule == "listed":
        sizes, noises = step * rng.uniform(0.1, 1, steps), step * rng.uniform(0.5, 2, steps)
    window = int(rng.integers(1, steps + 1))
    loss = Loss(smoothness=1.0, strong_convexity=rng.choice([0.0, 0.3]))
    run = Training(
        records=size,
        steps=steps,
        step_size=sizes,
        noise=noises,
        final_noise=rho,
        schedule=schedule if schedule == "equalised" else None,
        gradient_norm=rng.uniform(0.2, 0.8),
        batches=batches,
        release=TailAverage(window),
        adjacency="replace",
    )
    guarantee = account(run, loss)
    bounds = {epsilon: guarantee.delta(epsilon) for epsilon in (0.2, 1.0, 2.5)}
    for weights in averages(rng, window):
        pair = linear_pair(run, loss, weights)
        for epsilon, bound in bounds.items():
            assert bound >= pair.delta(epsilon) * (1 - 1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_burst_and_window_cover_linear_runs(scheme, schedule):
    rng = np.random.default_rng(5)
    repeats = 1 if scheme is Reshuffled else 6  # levels are searched anew for every question
    for rho, _ in itertools.product((0.3, 1.0, 6.0), range(repeats)):
        check_linear_run(rng, scheme, schedule, rho)


@pytest.mark.fuzz
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_burst_and_window_cover_many_linear_runs(scheme, schedule):
    rng = np.random.default_rng(500)
    for _ in range(15 if scheme is Reshuffled else 150):
        check_linear_run(rng, scheme, schedule, float(np.exp(rng.uniform(-2, 4))))


# c, T, k: the average of a linear run, the window bound, in units of s^2/nu^2
WINDOWS = [
    (0.9, 60, 10, 25.96, 27.82),
    (0.9, 60, 30, 41.98, 46.60),
    (0.97, 120, 60, 96.24, 106.95),
    (0.99, 200, 100, 173.13, 192.14),
    (0.97, 120, 1, 62.36, 62.36),
    (0.97, 120, 120, 107.42, 120.0),
]


@pytest.mark.parametrize(("c", "steps", "window", "linear", "bound"), WINDOWS)
def test_window_table(c, steps, window, linear, bound):
    run = Training(
        records=1,
        steps=steps,
        step_size=1 - c,
        noise=1 - c,
        gradient_norm=0.5,
        batches=FullBatch(),
        release=TailAverage(window),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    mu = account(run, loss).mu
    assert round(mu**2, 2) == bound
    averaged = float(linear_pair(run, loss, np.full(window, 1 / window)).p[0])
    assert round(averaged**2, 2) == linear
    # All iterates of the window, released jointly by a linear run, attain the bound.
    gap = (1 - c ** (steps - window + 1)) / (1 - c)
    variance = (1 - c ** (2 * (steps - window + 1))) / (1 - c**2)
    assert mu**2 == pytest.approx(gap**2 / variance + window - 1, rel=1e-9)
