r"""Neighbours that attain the bound: quadratic losses in one dimension.

Record i has the loss (λ/2)θ² + a_i·θ, so an update is the linear map

    θ ← (1 − η(λ + regularization))·θ − η·(Σ_{i in batch} a_i)/divisor + ν·N(0, 1),

and two datasets that differ in one a_i, by the whole sensitivity, have Gaussian last iterates
(mixtures of Gaussians for hidden batches). For full batches and constant parameters their
distance is the certified mu: an audit must meet the upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lastiterate.audit.shadow.streams import Streams
from lastiterate.description import Loss, Training
from lastiterate.description.batches import weighted
from lastiterate.errors import UnsupportedError

Array = NDArray[np.float64]


class QuadraticDescent:
    """Trains cohorts of one-dimensional quadratic models; a dataset is the vector of a_i.

    The model is its last iterate, and its score too: the record pushes it up inside.

    >>> from lastiterate.description import FullBatch
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> train = QuadraticDescent(run, Loss(smoothness=1.0, strong_convexity=1.0))
    >>> inside, outside = train.worlds()
    >>> float(inside[0]), float(outside[0]), train.cohort(inside, [1, 2]).shape
    (-2.0, 2.0, (2,))
    """

    def __init__(self, training: Training, loss: Loss) -> None:
        training.needs_plain_updates("the worst case of linear maps")
        if training.diameter < np.inf or training.release != "last":
            raise UnsupportedError(
                "Worst-case neighbours are built for unbounded runs that release the last iterate."
            )
        if training.adjacency == "zero-out" and loss.strong_convexity:
            raise UnsupportedError(
                "Under zero-out adjacency the record's curvature disappears with it, and the two "
                "updates are no longer the same linear map. Use a loss without strong convexity "
                "(an L2 term is fine), or adjacency='replace'."
            )
        self.training, self.loss = training, loss
        self.curvature = loss.strong_convexity or 0.0

    def worlds(self) -> tuple[Array, Array]:
        """The two datasets: one record pushes with all that the sensitivity allows.

        In batches of a known order it is a record of the last one, where least is forgotten.
        """
        training, batches = self.training, self.training.batches
        record = 0
        if training.steps and not batches.hidden:
            place = (training.steps - 1) % (training.batches_per_epoch or 1)
            record = place * batches.largest(training.records)
        inside, outside = np.zeros((2, training.records))
        if training.adjacency == "replace":
            inside[record] = -training.sensitivity / 2
            outside[record] = training.sensitivity / 2
        else:
            inside[record] = -training.sensitivity
        return inside, outside

    def __call__(self, dataset: Array, seed: int) -> float:
        """One model."""
        return float(self.cohort(dataset, [seed])[0])

    def cohort(self, dataset: Array, seeds: Sequence[int]) -> Array:
        """The last iterates of these seeds."""
        training, streams = self.training, Streams(seeds)
        etas, nus = training.step_sizes, training.noises
        divisor, ridge = training.batches.divisor(training.records), self.loss.regularization
        theta, velocity = np.zeros((2, len(seeds)))
        normals = streams.normals(training.steps, (), np.float64)
        pushes = self._pushes(np.asarray(dataset, float), streams)
        for k in range(training.steps):
            push, share = next(pushes)
            step = etas[k] * ((self.curvature * share + ridge) * theta + push / divisor)
            velocity = training.momentum * velocity + step - nus[k] * next(normals)
            theta = theta - velocity
        return theta

    def _pushes(self, a: Array, streams: Streams) -> Iterator[tuple[Array | float, Array | float]]:
        """Every step: the summed a_i of each model's batch, its realised size over the divisor."""
        batches, n = self.training.batches, self.training.records
        for drawn in batches.rows(n, streams.batches):
            rows, coins = weighted(drawn, n)
            if coins is not None:
                yield coins @ a, coins.sum(axis=1) / batches.divisor(n)
            else:
                yield a[rows].sum(axis=-1), 1.0
