"""What a run returns: what it released, and what ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Loss, TailAverage, Training
from lastiterate.errors import AssumptionError

Parameters = NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """What a run released, and what ran.

    Attributes:
        parameters: what the description releases: the last iterate or the tail average; shape
            (features,) or (features, outputs); read-only.
        training: the description that ran.
        loss: what is proved about the loss (None for a gradient function or a network).
        experiment: the randomness of the run or of a part of it was seeded, or the arithmetic too
            coarse for a guarantee: no certificate may be given.
        partition_nonce: names the hidden partition; None where batches have none.
    """

    parameters: Parameters
    training: Training
    loss: Loss | None
    experiment: bool
    partition_nonce: str | None


def shares(training: Training) -> tuple[int, NDArray[np.float64]]:
    """The window, and what each iterate counts for in the sum that is divided by it at the end.

    0 before the window and, for a plain average, 1 inside it.
    """
    counts = np.zeros(training.steps)
    release = training.release
    window = release.window if isinstance(release, TailAverage) else 1
    counts[-window:] = 1.0
    if isinstance(release, TailAverage) and release.decay is not None and training.steps:
        counts[-window:] = release.weights * window
    return window, counts


def released(parameters: Parameters, training: Training) -> Parameters:
    """The parameters, read-only; raises if the run diverged."""
    if not np.isfinite(parameters).all():
        raise AssumptionError(
            "The run diverged: the parameters are not finite, and nothing is released. The step "
            f"size {training.step_size} is too large for this loss, or the data too large."
        )
    parameters.flags.writeable = False
    return parameters
