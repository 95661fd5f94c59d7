"""Gradients of a log-likelihood for many chains at once.

A likelihood sums the (clipped, weighted) gradients of a batch of records. Rows are shared by all
chains, shape (batch, p), or their own for each chain, shape (chains, batch, p). Everything is
written in operations that NumPy arrays and torch tensors have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lastiterate.errors import DescriptionError
from lastiterate.train.row_scores import added

Array = Any
"""A NumPy array or a torch tensor."""

SMALLEST = 2.0**-1000
"""Factors and clips below would lose their last bits where numbers end."""


class Likelihood(Protocol):
    """What a sampler needs to know about the data model."""

    def gradient(
        self, theta: Array, X: Array, y: Array, weight: Array | None, clip: float | None
    ) -> Array:
        """The sum over the batch of the gradients of ln p(y | x, theta), shape (chains, d).

        With ``clip`` every record's gradient is first divided by max(1, norm / clip); with
        ``weight`` it is multiplied by its record's weight. The answer is a fresh array.
        """


def lengths(rows: Array) -> Array:
    """Euclidean norms over the last axis, also where squares would vanish or overflow.

    A row of 1e-162 whose length comes out as 0 would never be clipped, whatever its slope. Lengths
    among the last numbers above 0, which are few, are raised to the next one.

    >>> lengths(np.array([[3e-170, 4e-170], [0.0, 0.0]]))
    array([5.e-170, 0.e+000])
    """
    with np.errstate(over="ignore", under="ignore"):
        plain = (rows * rows).sum(-1) ** 0.5
    if bool(((plain > 1e-140) & (plain < 1e140)).all()):
        return plain
    largest = abs(rows).max(-1) if isinstance(rows, np.ndarray) else abs(rows).amax(-1)
    unit = largest + (largest == 0)  # rows of zeros stay zeros
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scaled = ((rows / unit[..., None]) ** 2).sum(-1) ** 0.5
        return scaled * largest + largest.clip(max=5e-324)


def shortening(norms: Array, clip: float) -> Array:
    """min(1, clip/norm); 0 where the quotient has no bits to spare, as it could round up."""
    factors = clip / norms.clip(min=clip)
    return factors * (factors >= SMALLEST)


def rounding_of_sums(records: int, features: int, clip: float) -> float:
    """How far the computed sum of ``records`` clipped gradients is from an exact one, at most.

    Adding m doubles in any order is off by at most m·u·(1 + ...) times the sum of their sizes, u =
    2^-53, coordinate by coordinate, hence in norm by m·u·Σ|g_i| <= m·u·m·clip. Each gradient may
    itself be longer than ``clip`` by some roundings of its length, which is a sum of ``features``
    squares. Twice that is claimed.
    """
    return records * clip * (records + features + 32) * 2.0**-52


@dataclass(frozen=True)
class GeneralizedLinear:
    """p(y | x, theta) depends on theta.x only: a record's gradient is ``slope(theta.x, y) * x``.

    Its norm is |slope| |x|, so clipping never needs the gradients of single records. ``slope`` may
    write its answer over the margins it is given. ``placeless``: a margin is the same wherever its
    row stands in the batch (`train.row_scores` says why: nothing bounds the rows).
    """

    slope: Callable[[Array, Array], Array]
    placeless: bool = False

    def gradient(
        self, theta: Array, X: Array, y: Array, weight: Array | None, clip: float | None
    ) -> Array:
        shared = X.ndim == 2
        if self.placeless:
            terms = X * theta[:, None, :]
            margin = added(terms.reshape(-1, terms.shape[2])).reshape(terms.shape[:2])
        else:
            margin = theta @ X.T if shared else (X @ theta[..., None])[..., 0]
        # A column of labels would be broadcast: every record's slope would hold another's label.
        if tuple(y.shape) != tuple(margin.shape[1:] if shared else margin.shape):
            why = "one record's label must not reach the gradient of another"
            raise DescriptionError("y", f"of shape (records, {y.shape[-1]})", "(records,)", why)
        slope = self.slope(margin, y)
        _one_per_record(slope, tuple(margin.shape))
        if clip is not None:
            rows = lengths(X)
            with np.errstate(over="ignore"):  # an infinite length clips to zero
                slope = slope * shortening(abs(slope) * rows, clip)
            slope = slope * (rows * SMALLEST <= clip)  # else clip/length has no bits to spare
        if weight is not None:
            slope = slope * weight
        return slope @ X if shared else (slope[:, None, :] @ X)[:, 0, :]


@dataclass(frozen=True)
class RecordGradients:
    """Any model, by its per-record gradients: ``gradients(theta, X, y)`` is (chains, batch, d)."""

    gradients: Callable[[Array, Array, Array], Array]

    def gradient(
        self, theta: Array, X: Array, y: Array, weight: Array | None, clip: float | None
    ) -> Array:
        each = self.gradients(theta, X, y)
        _one_per_record(each, (theta.shape[0], X.shape[-2], theta.shape[1]))
        if clip is not None:
            with np.errstate(over="ignore"):
                each = each * shortening(lengths(each), clip)[..., None]
        if weight is not None:
            each = each * weight[..., None]
        return each.sum(1)


def _one_per_record(found: Array, shape: tuple[int, ...]) -> None:
    """Raise unless a function of the user gave one gradient (or slope) per chain and record."""
    if tuple(found.shape) != shape:
        raise DescriptionError(
            "likelihood",
            f"a function that returned shape {tuple(found.shape)}",
            f"one gradient per record and chain, shape {shape}",
            "only what belongs to one record can be clipped for it",
        )


def gaussian_likelihood(precision: float = 1.0) -> GeneralizedLinear:
    """y ~ N(theta.x, 1/precision).

    >>> model = gaussian_likelihood(2.0)
    >>> model.gradient(np.zeros((1, 1)), np.ones((1, 1)), np.array([3.0]), None, None)
    array([[6.]])
    """
    return GeneralizedLinear(lambda margin, y: precision * (y - margin))


def logistic_likelihood() -> GeneralizedLinear:
    """P(y = 1 | x, theta) = sigmoid(theta.x), labels 0 and 1."""
    return GeneralizedLinear(_logistic_slope)


def _logistic_slope(margin: Array, y: Array) -> Array:
    """y - sigmoid(margin) = (y - 1/2) - tanh(margin/2)/2, in place: this is the hot loop."""
    if not isinstance(margin, np.ndarray):
        return y - margin.sigmoid()
    margin *= 0.5
    np.tanh(margin, out=margin)
    margin *= -0.5
    margin += y - 0.5
    return margin
