"""The mean of vectors of bounded length, with Gaussian noise: what is learnt beside a model.

It is one full-batch step of size 1 from 0, whose gradients are minus these vectors; so it is
accounted, runs on a grid and is certified like any other run. Ranges, scales, second moments and
the calibration of probabilities are such means.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lastiterate.accounting import account
from lastiterate.accounting.calibration import calibrate
from lastiterate.description import Arithmetic, FullBatch, Loss, Training
from lastiterate.train.grid import on_its_grid

ANY_LOSS = Loss.unknown(provenance="proved")
RANGES, SCALES, MOMENTS, CALIBRATION = range(1, 5)  # seeded, none has the noise of another


def noisy_mean(
    records: int,
    length: float,
    adjacency: str,
    epsilon: float,
    delta: float,
    shape: int | tuple[int, ...],
    engine: Callable[[Training], Arithmetic | None],
    clipping: str = "gradient",
) -> Training:
    """The step with the noise that costs (epsilon, delta) by itself.

    Args:
        records, length, shape: how many vectors there are, how long, and of what shape.
        adjacency, epsilon, delta: of the promise; an infinite epsilon asks for no noise.
        engine: how far the sums of a run can be off.
        clipping: what keeps vectors so short: "gradient", or "margin" where they are rows.
    """
    run = Training(
        records=records,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=length,
        batches=FullBatch(),
        adjacency=adjacency,
        clipping=clipping,
    )

    def paid(told: Training) -> Training:
        if math.isinf(epsilon):
            return told.replace(noise=0.0)
        return calibrate(told, ANY_LOSS, epsilon, delta)

    return on_its_grid(run, engine(run), np.zeros(shape), ANY_LOSS, paid)[0]


def mu_of(*runs: Training) -> float:
    """What such steps cost together, in mu, rounded up."""
    each = [account(run, ANY_LOSS).mu for run in runs]
    return math.hypot(*(math.inf if mu is None else mu for mu in each)) * (1 + 1e-12)
