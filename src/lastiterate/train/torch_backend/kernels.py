"""One step of a linear head: the sum of its per-record gradients, nothing materialised per record.

The gradient of a record is x ⊗ slope, so a sum of clipped gradients is Xᵀ(factors·slope): two
products. They multiply and add in double precision, whatever type the features have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from lastiterate.losses.ball import NEAR_BY, in_ball
from lastiterate.train.norms import SMALLEST, UNIT
from lastiterate.train.row_scores import row_scores
from lastiterate.train.summation import MOST_ROWS
from lastiterate.train.torch_backend.norms import scaled_lengths, shortening

DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})  # of features
# Losses whose slopes are the same launches for all numbers: a softmax in a ball is iterated until
# the host sees that it has converged.
SAME_LAUNCHES = frozenset({"softmax", "logistic", "error", "smoothed hinge", "squared hinge"})


@dataclass(frozen=True)
class Head:
    """The derivative of a loss in its scores.

    Args:
        kind: "softmax", "ball" (a softmax in the ball of radius ``width``), "logistic", "error"
            (clipped at ``width``), "smoothed hinge" of ``width``, or "squared hinge" (clipped at
            ``width``).
        outputs: scores per record.
        width: see kind.
        one_vs_rest: one binary loss per output; labels are classes.
        cap: of "softmax" and "logistic": what wrong classes pull with, at most.
        margin: every derivative is clipped here.
        longest: every record's gradient is shortened to this norm (needs the norms of the rows).
    """

    kind: str
    outputs: int
    width: float = 1.0
    one_vs_rest: bool = False
    cap: float = 1.0
    margin: float = math.inf
    longest: float = math.inf

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """The derivative of every record's loss in its scores, before any clipping; in place.

        ``scores`` has shape (records, outputs), ``y`` is one float per record.
        """
        if self.kind in ("softmax", "ball"):
            given = scores.clone() if self.kind == "ball" else scores
            scores -= scores.amax(1, keepdim=True)
            scores.exp_()
            scores /= scores.sum(1, keepdim=True)
            minus = torch.full((len(y), 1), -1.0, dtype=scores.dtype, device=scores.device)
            true = y.long()[:, None]
            slope = scores.scatter_add_(1, true, minus)
            if self.kind == "ball":
                hit = true == torch.arange(self.outputs, device=y.device)
                at_once = scores.numel() if scores.is_cuda else NEAR_BY
                return cast(Tensor, in_ball(torch, slope, given, hit, self.width, at_once))
            if self.cap < 1:
                slope *= self.cap / slope.gather(1, true).neg_().clamp_(min=self.cap)
            return slope
        target = y[:, None].to(scores.dtype)
        if self.one_vs_rest:
            classes = torch.arange(self.outputs, device=y.device, dtype=scores.dtype)
            target = torch.where(target == classes, 1.0, -1.0).to(scores.dtype)
        if self.kind == "error":
            return scores.sub_(target).clamp_(-self.width, self.width)
        scores *= target
        if self.kind == "logistic":
            return scores.neg_().sigmoid_().clamp_(max=self.cap).mul_(target).neg_()
        short = scores.neg_().add_(1)
        if self.kind == "smoothed hinge":
            short = short.div_(self.width).clamp_(0, 1)
        else:
            short = short.clamp_(0, self.width)
        return short.mul_(target).neg_()

    def limited(self, slope: Tensor, norms: Tensor | None) -> Tensor:
        """Clipped as the run says; ``norms`` are those of the rows; in place."""
        if self.margin < math.inf:
            slope.clamp_(-self.margin, self.margin)
        if norms is not None and self.longest < math.inf:
            sizes = scaled_lengths(slope) * norms * (1 + 4 * UNIT)
            factors = shortening(sizes, self.longest)
            # The quotient of the bound and a huge row would have no bits to spare.
            factors = torch.where(norms * SMALLEST > self.longest, 0.0, factors)
            slope *= factors.to(slope.dtype)[:, None]
        return slope


def gradient_sum(
    X: Tensor,
    y: Tensor,
    theta: Tensor,
    head: Head,
    *,
    scale: Tensor | None = None,
    norms: Tensor | None = None,
    placeless: bool = False,
) -> Tensor:
    """Σ of the (clipped) gradients of these records, in double precision.

    Args:
        X: (records, columns), of any of `DTYPES`.
        y: (records,) float64.
        theta: (columns, outputs), float64.
        head: the loss.
        scale: a factor for every row, as if the row had been multiplied by it.
        norms: of the rows after scaling, needed where gradients are clipped.
        placeless: scores are the same wherever a row stands (`row_scores`).
    """
    total = torch.zeros(theta.shape, dtype=torch.float64, device=X.device)
    length = _rows_at_once(X, head)
    for first in range(0, len(X), length):
        rows = slice(first, first + length)
        block, few = X[rows].double(), [None if v is None else v[rows] for v in (scale, norms)]
        scores = row_scores(block, theta) if placeless else _scores(block, theta)
        if few[0] is not None:
            scores *= few[0][:, None]
        slope = head.limited(head.slope(scores, y[rows]), few[1])
        if few[0] is not None:
            slope *= few[0][:, None]
        total += _weighted(block, slope)
        del scores, slope  # before the next block's are made: the peak stays at one block
    return total


def _scores(rows: Tensor, theta: Tensor) -> Tensor:
    if rows.is_cuda:
        return rows @ theta
    # A processor multiplies by few columns faster the other way round: (θᵀ·rowsᵀ)ᵀ.
    return (theta.T.contiguous() @ rows.T).T


def _weighted(rows: Tensor, slope: Tensor) -> Tensor:
    if rows.is_cuda:
        return rows.T @ slope
    return (slope.T @ rows).T


def _rows_at_once(X: Tensor, head: Head) -> int:
    """Between the bounds that `train.summation` counts on."""
    held = (512 << 20) if X.is_cuda else (4 << 20)  # bytes
    return min(MOST_ROWS, max(64, held // (8 * (X.shape[1] + head.outputs))))
