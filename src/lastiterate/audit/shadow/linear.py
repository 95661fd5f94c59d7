"""Many linear models at once in NumPy: the loop of `noisy_descent` with one axis more.

    Θ ← project(Θ − η_k·(Σ_{i in batch k} g_i(Θ)/divisor + regularization·Θ) + ν_k·N(0, I))

(with momentum the velocity is moved so, and moves Θ). Row m of Θ is model m, with its own noise
and its own hidden batches. Batches that all models share are two matrix products; hidden batches
are gathered per model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.audit.shadow.streams import Streams
from lastiterate.description import TailAverage, Training
from lastiterate.description.batches import weighted
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import BinaryLoss, CappedLogistic, Logistic, MarginLoss
from lastiterate.train.one_thread import one_thread

Array = NDArray[Any]

_CACHE = 150_000  # numbers of one intermediate array that stay in a core's cache
_MOST = 500  # models at once: their noise, drawn ahead, stays near too


class LinearCohort:
    """Trains cohorts of linear models as a `Training` describes; a dataset is (X, y).

    X has a row per record, or one more axis in front: then every model has rows of its own.

    Args:
        loss: a loss of one score: `Logistic`, `Huber`, `SquaredError`, ...
        training: what to run.
        regularization: coefficient of the data-free L2 term.
        feature_bound: R, needed where the margin derivative is clipped.
        start: parameters before the first update; zero unless given.
        dtype: np.float32 (default) is twice as fast as np.float64; parameters then differ from
            those of `noisy_descent` by rounding, about 1e-6 of their size, which no audit sees:
            the noise of any private run is far larger.

    A model is its parameter vector.

    >>> from lastiterate.description import FullBatch
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> train = LinearCohort(Logistic(), run, regularization=0.1)
    >>> train((np.eye(2), [1.0, -1.0]), seed=0).round(3)
    array([ 1.177, -1.177], dtype=float32)
    """

    def __init__(
        self,
        loss: MarginLoss,
        training: Training,
        *,
        regularization: float = 0.0,
        feature_bound: float | None = None,
        start: ArrayLike | None = None,
        dtype: Any = np.float32,
    ) -> None:
        if not isinstance(loss, MarginLoss):
            raise UnsupportedError(
                f"{type(loss).__name__} has several scores per record; such models are "
                "trained one by one with noisy_descent."
            )
        training.needs_gradient_norm("training")
        training.needs_plain_updates("a cohort of shadow models")
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
        own = X.ndim == 3 and len(X) == len(seeds)  # rows of every model
        if not (own or X.ndim == 2) or not X.shape[-2] == len(y) == self.training.records:
            found = f"{np.shape(dataset[0])} features and {len(y)} labels"
            allowed = f"{self.training.records} rows of both, as the description says"
            why = "the run must be the one that is described"
            raise DescriptionError("dataset", found, allowed, why)
        if not len(seeds):
            return np.empty((0, X.shape[-1]), self.dtype)
        if isinstance(self.loss, BinaryLoss):
            # The loss of (x, y) is that of (y·x, +1): no label has to be multiplied any more.
            X, y = X * y[:, None], np.ones((), self.dtype)
        size = min(_MOST, max(1, _CACHE // max(1, self._width(X))))
        parts = [slice(k, k + size) for k in range(0, len(seeds), size)]
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):
            models = np.concatenate(
                [self._run(X[part] if own else X, y, seeds[part]) for part in parts]
            )
        if not np.isfinite(models).all():
            raise AssumptionError(
                "Shadow models diverged: their parameters are not finite. The step size is too "
                "large for this loss and this data."
            )
        return models

    def _width(self, X: Array) -> int:
        """Numbers that one model needs at once in a step."""
        batches = self.training.batches
        gathered = (batches.hidden and batches.fixed_size) or X.ndim == 3
        return batches.largest(self.training.records) * (X.shape[-1] if gathered else 1)

    def _run(self, X: Array, y: Array, seeds: Sequence[int]) -> Array:
        training, d = self.training, X.shape[-1]
        streams = Streams(seeds)
        theta = np.zeros((len(seeds), d), self.dtype)
        if self.start is not None:
            theta += np.asarray(self.start, self.dtype)
        centre = theta[0].copy()
        etas, nus = training.step_sizes, training.noises
        divisor = training.batches.divisor(training.records)
        release = training.release
        weights = release.weights if isinstance(release, TailAverage) else np.ones(1)
        velocity, released = np.zeros_like(theta), np.zeros_like(theta)
        gradients = _Gradients(self.loss, X, y, self._limits(X), len(seeds))
        rows = self._rows(streams)
        normals = streams.normals(training.steps, (d,), self.dtype)
        for k in range(training.steps):
            move = gradients.summed(theta, *next(rows))
            move *= float(etas[k]) / divisor
            if self.regularization:
                move += (float(etas[k]) * self.regularization) * theta
            noise = next(normals)
            if nus[k] > 0:
                noise *= float(nus[k])
                move -= noise
            if training.momentum:
                velocity *= training.momentum
                velocity += move
                move = velocity
            theta -= move
            if training.diameter < np.inf:
                _project(theta, centre, training.diameter / 2)
            if (place := k - training.steps + len(weights)) >= 0:
                released += float(weights[place]) * theta
        return released if training.steps else theta

    def _limits(self, X: Array) -> Array | None:
        """How steep the loss of each record may be: its gradient is slope·x. One number, or all."""
        if self.margin is not None:
            return np.asarray(self.margin, self.dtype)
        if self.training.clipping != "gradient":
            return None
        norms = np.sqrt(np.einsum("...j,...j->...", X, X))
        steepest: Array = np.full_like(norms, np.inf)
        np.divide(self.training.gradient_norm, norms, out=steepest, where=norms > 0)
        return steepest

    def _rows(self, streams: Streams) -> Iterator[tuple[Any, Array | None]]:
        """(rows, weights) of every step: a slice for all models, or an index array per model."""
        n = self.training.records
        for rows in self.training.batches.rows(n, streams.batches):
            yield weighted(rows, n)


class _Gradients:
    """Sums of (clipped) gradients of all models, computed in buffers that are used again.

    The logistic slope −1/(1 + e^m) of a margin m is (tanh(m/2) − 1)/2; with half of X on both
    sides the halves vanish. A cap or a clip on it is a smallest margin.
    """

    def __init__(self, loss: MarginLoss, X: Array, y: Array, limits: Array | None, models: int):
        self.loss, self.y, self.limits, self.models = loss, y, limits, models
        self.logistic = type(loss) in (Logistic, CappedLogistic)
        self.X = X / 2 if self.logistic else X
        self.own = X.ndim == 3
        self.turned: Any = None if self.own else np.ascontiguousarray(self.X.T)
        self.flat = self.X.reshape(-1, X.shape[-1])
        self.pull = np.empty((models, X.shape[-1]), X.dtype)
        self.scores: Array = np.empty(0, X.dtype)
        self.batch: Array = np.empty((0, 0, 0), X.dtype)
        steepest = np.minimum(getattr(loss, "cap", 1.0), np.inf if limits is None else limits)
        self.capped = self.logistic and bool((steepest < 1).any())
        if self.capped:
            with np.errstate(divide="ignore"):
                self.smallest = np.log((1 - steepest) / steepest).astype(X.dtype) / 2

    def summed(self, theta: Array, rows: slice | Array, weight: Array | None) -> Array:
        """Of the same rows for all models (a slice), or of each model's own (models, batch)."""
        if isinstance(rows, slice):
            together = self._apart if self.own else self._shared
            return together(theta, rows, weight)
        if self.batch.shape[:2] != rows.shape:
            self.batch = np.empty((*rows.shape, theta.shape[1]), theta.dtype)
            self.scores = np.empty((*rows.shape, 1), theta.dtype)
        # "clip" skips a check of indices that are known to be in range
        places = rows + len(self.X[0]) * np.arange(self.models)[:, None] if self.own else rows
        np.take(self.flat, places, axis=0, out=self.batch, mode="clip")
        np.matmul(self.batch, theta[:, :, None], out=self.scores)
        slopes = self._slopes(self.scores[:, :, 0], rows)
        np.matmul(slopes[:, None, :], self.batch, out=self.pull[:, None, :])
        return self.pull

    def _apart(self, theta: Array, rows: slice, weight: Array | None) -> Array:
        batch = self.X[:, rows]
        slopes = self._slopes(np.matmul(batch, theta[:, :, None])[:, :, 0], rows)
        if weight is not None:
            slopes *= weight
        return np.asarray(np.matmul(slopes[:, None, :], batch)[:, 0])

    def _shared(self, theta: Array, rows: slice, weight: Array | None) -> Array:
        if self.scores.shape[1:] != (rows.stop - rows.start,):
            self.scores = np.empty((self.models, rows.stop - rows.start), theta.dtype)
        np.matmul(theta, self.turned[:, rows], out=self.scores)
        slopes = self._slopes(self.scores, rows)
        if weight is not None:
            slopes *= weight
        return np.matmul(slopes, self.X[rows], out=self.pull)

    def _slopes(self, scores: Array, rows: slice | Array) -> Array:
        """The loss's derivative in the scores (twice it, for logistic losses); in place."""
        if self.logistic:
            if self.capped:
                # np.maximum with one number is three times slower
                np.clip(scores, _of(self.smallest, rows), np.inf, out=scores)
            np.tanh(scores, out=scores)
            scores -= 1
            return scores
        slopes = self.loss.slope(scores, _of(self.y, rows))
        if self.limits is not None:
            steepest = _of(self.limits, rows)
            np.clip(slopes, -steepest, steepest, out=slopes)
        return slopes


def _of(values: Array, rows: slice | Array) -> Array:
    """The values of these records; one that holds for all stays alone."""
    if values.ndim == 2:  # of every model for itself
        return values[:, rows] if isinstance(rows, slice) else np.take_along_axis(values, rows, 1)
    return values if values.ndim == 0 else values[rows]


def _project(theta: Array, centre: Array, radius: float) -> None:
    """Every model back on the ball, in place."""
    theta -= centre
    length = np.sqrt(np.einsum("ij,ij->i", theta, theta))
    factor = np.ones_like(length)
    np.divide(radius, length, out=factor, where=length > radius)
    theta *= factor[:, None]
    theta += centre
