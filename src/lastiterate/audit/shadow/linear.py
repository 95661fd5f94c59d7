"""Many linear models at once in NumPy: the loop of `noisy_descent` with one axis more.

    Θ ← project(Θ − η_k·(Σ_{i in batch k} g_i(Θ)/divisor + regularization·Θ) + ν_k·N(0, I))

Row m of Θ is model m, with its own noise and its own hidden batches. Batches that all models share
are two matrix products; hidden batches are gathered per model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.audit.shadow.streams import Streams
from lastiterate.description import (
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
)
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import BinaryLoss, Logistic, MarginLoss

Array = NDArray[Any]

_CACHE = 400_000  # numbers of one intermediate array that stay in a core's cache


class LinearCohort:
    """Trains cohorts of linear models as a `Training` describes; a dataset is (X, y).

    Args:
        loss: a loss of one score: `Logistic`, `Huber`, `SquaredError`, ...
        training: what to run.
        regularization: coefficient of the data-free L2 term.
        feature_bound: R, needed where the margin derivative is clipped.
        start: parameters before the first update; zero unless given.
        dtype: np.float32 is twice as fast; the models are then those of 32-bit training.

    A model is its parameter vector.

    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> train = LinearCohort(Logistic(), run, regularization=0.1)
    >>> train((np.eye(2), [1.0, -1.0]), seed=0).round(3)
    array([ 1.177, -1.177])
    """

    def __init__(
        self,
        loss: MarginLoss,
        training: Training,
        *,
        regularization: float = 0.0,
        feature_bound: float | None = None,
        start: ArrayLike | None = None,
        dtype: Any = np.float64,
    ) -> None:
        if not isinstance(loss, MarginLoss):
            raise UnsupportedError(
                f"{type(loss).__name__} has several scores per record; cohorts of such models are "
                "trained with StackedCohort, or one by one with noisy_descent."
            )
        self.loss, self.training = loss, training
        self.regularization = regularization
        self.start = start
        self.dtype = np.dtype(dtype)
        self.margin: float | None = None
        if training.clipping == "margin":
            if feature_bound is None:
                why = "the margin derivative is clipped at gradient_norm / feature_bound"
                raise DescriptionError("feature_bound", None, "given with clipping='margin'", why)
            self.margin = loss.margin_limit(training.gradient_norm, feature_bound)

    def __call__(self, dataset: Any, seed: int) -> Array:
        """One model."""
        model: Array = self.cohort(dataset, [seed])[0]
        return model

    def cohort(self, dataset: Any, seeds: Sequence[int]) -> Array:
        """The models of these seeds, one row each."""
        X = np.ascontiguousarray(dataset[0], self.dtype)
        y = self.loss.targets(dataset[1]).astype(self.dtype)
        if X.ndim != 2 or X.shape[0] != self.training.records or len(y) != len(X):
            raise DescriptionError(
                "dataset",
                f"{np.shape(dataset[0])} features and {len(y)} labels",
                f"{self.training.records} rows of both, as the description says",
                "the run must be the one that is described",
            )
        if not len(seeds):
            return np.empty((0, X.shape[1]), self.dtype)
        if isinstance(self.loss, BinaryLoss):
            # The loss of (x, y) is that of (y·x, +1): no label has to be multiplied any more.
            X, y = X * y[:, None], np.ones((), self.dtype)
        size = max(1, _CACHE // max(1, self._width(X)))
        parts = [seeds[k : k + size] for k in range(0, len(seeds), size)]
        with _one_thread(), np.errstate(over="ignore", invalid="ignore"):
            models = np.concatenate([self._run(X, y, part) for part in parts])
        if not np.isfinite(models).all():
            raise AssumptionError(
                "Shadow models diverged: their parameters are not finite. The step size is too "
                "large for this loss and this data."
            )
        return models

    def _width(self, X: Array) -> int:
        """Numbers that one model needs at once in a step."""
        batches = self.training.batches
        if isinstance(batches, (FullBatch, Poisson)):
            return len(X)
        return batches.size * (1 if isinstance(batches, Cyclic) else X.shape[1])

    def _run(self, X: Array, y: Array, seeds: Sequence[int]) -> Array:
        training = self.training
        streams, d = Streams(seeds), X.shape[1]
        clipped = training.clipping == "gradient"
        norms = np.sqrt(np.einsum("ij,ij->i", X, X)) if clipped else None
        theta = np.zeros((len(seeds), d), self.dtype)
        if self.start is not None:
            theta += np.asarray(self.start, self.dtype)
        centre = theta[0].copy()
        etas, nus = training.step_sizes, training.noises
        divisor = training.batches.divisor(training.records)
        window = training.release.window if isinstance(training.release, TailAverage) else 1
        tail = np.zeros_like(theta)
        rows = self._rows(streams)
        gathered: Array | None = None
        normals = streams.normals(training.steps, (d,), self.dtype)
        for k in range(training.steps):
            chosen, weight = next(rows)
            eta = self.dtype.type(etas[k])
            if isinstance(chosen, slice):
                batch = X[chosen]
            else:
                if gathered is None:
                    gathered = np.empty((*chosen.shape, d), self.dtype)
                # "clip" skips a check of indices that are known to be in range
                batch = np.take(X, chosen, axis=0, out=gathered, mode="clip")
            labels = y if y.ndim == 0 else y[chosen]
            lengths = None if norms is None else norms[chosen]
            pull = self._total(theta, batch, labels, lengths, weight)
            pull *= eta / self.dtype.type(divisor)
            theta *= 1 - eta * self.dtype.type(self.regularization)
            theta -= pull
            noise = next(normals)
            if nus[k] > 0:
                noise *= self.dtype.type(nus[k])
                theta += noise
            if training.diameter < np.inf:
                _project(theta, centre, training.diameter / 2)
            if k >= training.steps - window:
                tail += theta
        return tail / window if training.steps else theta

    def _total(
        self, theta: Array, X: Array, y: Array, norms: Array | None, weight: Array | None
    ) -> Array:
        """The summed (clipped) gradients of every model; X is (rows, d) or (models, rows, d)."""
        scores = theta @ X.T if X.ndim == 2 else np.matmul(X, theta[:, :, None])[:, :, 0]
        slope = _logistic_slope(scores) if self._logistic else self.loss.slope(scores, y)
        if self.margin is not None:
            np.clip(slope, -self.margin, self.margin, out=slope)
        elif norms is not None:
            length = np.abs(slope) * norms
            longest = self.dtype.type(self.training.gradient_norm)
            factor = np.ones_like(slope)
            np.divide(longest, length, out=factor, where=length > longest)
            slope *= factor
        if weight is not None:
            slope *= weight
        total: Array
        total = slope @ X if X.ndim == 2 else np.matmul(slope[:, None, :], X)[:, 0]
        return total

    @property
    def _logistic(self) -> bool:
        return type(self.loss) is Logistic

    def _rows(self, streams: Streams) -> Iterator[tuple[Any, Array | None]]:
        """(rows, weights) of every step: a slice for all models, or an index array per model."""
        batches, n = self.training.batches, self.training.records
        if isinstance(batches, FullBatch):
            while True:
                yield slice(0, n), None
        if isinstance(batches, Cyclic):
            while True:
                for k in range(batches.per_epoch(n)):
                    yield slice(k * batches.size, (k + 1) * batches.size), None
        if isinstance(batches, Poisson):
            while True:
                flips = np.stack([g.random(n) < batches.rate for g in streams.batches])
                yield slice(0, n), flips
        if isinstance(batches, WithoutReplacement):
            while True:
                draws = [g.choice(n, batches.size, replace=False) for g in streams.batches]
                yield np.stack(draws), None
        assert isinstance(batches, (Shuffled, Reshuffled))
        orders: Array | None = None
        while True:
            if orders is None or isinstance(batches, Reshuffled):
                orders = np.stack([g.permutation(n) for g in streams.batches])
            for k in range(batches.per_epoch(n)):
                yield orders[:, k * batches.size : (k + 1) * batches.size], None


def _logistic_slope(margins: Array) -> Array:
    """−1/(1 + exp(margin)): `Logistic` for the label +1, by the quicker exponential.

    Where it overflows the slope is 0, as it should be.
    """
    np.exp(margins, out=margins)
    margins += 1
    np.divide(margins.dtype.type(-1), margins, out=margins)
    return margins


def _project(theta: Array, centre: Array, radius: float) -> None:
    """Every model back on the ball, in place."""
    theta -= centre
    length = np.sqrt(np.einsum("ij,ij->i", theta, theta))
    factor = np.ones_like(length)
    np.divide(radius, length, out=factor, where=length > radius)
    theta *= factor[:, None]
    theta += centre


def _one_thread() -> AbstractContextManager[object]:
    """Small products lose by sharing; cores are used by several cohorts instead."""
    if find_spec("threadpoolctl"):
        limits: AbstractContextManager[object] = import_module("threadpoolctl").threadpool_limits(1)
        return limits
    return nullcontext()
