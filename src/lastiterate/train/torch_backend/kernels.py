"""One step of a linear head: the sum of its per-record gradients, nothing materialised per record.

The gradient of a record is x ⊗ slope, so a sum of clipped gradients is Xᵀ(factors·slope): two
products, and one pass over the features when few outputs let a tile stay on the chip between
them (`fused`, where there is Triton).
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
from lastiterate.train.settings import Products
from lastiterate.train.summation import MOST_ROWS
from lastiterate.train.torch_backend import fused
from lastiterate.train.torch_backend.norms import scaled_lengths, shortening

# How much a product rounds each slope, relative to its size: twice the unit roundoff and a little.
ROUNDING = {
    (torch.bfloat16, "fast"): 2.0**-8,
    (torch.bfloat16, "split"): 2.0**-16,
    (torch.float16, "fast"): 2.0**-10,
    (torch.float16, "split"): 2.0**-20,
    (torch.float32, "split"): 2.0**-21,
    (torch.float64, "split"): 0.0,
}
_MIXED = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)
_FUSED_OUTPUTS, _FUSED_COLUMNS = 32, 1024  # what a program of the fused kernel can hold


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
    products: Products = "double",
    chunk: int | None = None,
    placeless: bool = False,
) -> Tensor:
    """Σ of the (clipped) gradients of these records, in double precision.

    Args:
        X: (records, columns); float64, float32, bfloat16 or float16.
        y: (records,) float32 or float64.
        theta: (columns, outputs), float64.
        head: the loss.
        scale: a factor for every row, as if the row had been multiplied by it.
        norms: of the rows after scaling, needed where gradients are clipped.
        products: "double" multiplies and adds in double precision, whatever the features are: the
            only sums with a proved error. Otherwise sums are float32, and 16-bit features meet
            parameters and slopes written as sums of two 16-bit numbers ("split", 16 bits of
            precision or more) or rounded to one ("fast").
        chunk: rows at a time; by default as many as keep temporaries small.
        placeless: in double precision, scores are the same wherever a row stands (`row_scores`).
    """
    kind = torch.float64 if products == "double" else X.dtype
    parts = _parts(theta, kind, products)
    if products != "double" and fusable(X, head):
        return fused.gradient_sum(X, y, parts, head, scale, norms)
    total = torch.zeros(theta.shape, dtype=torch.float64, device=X.device)
    double = kind == torch.float64
    length = chunk or (_double_chunk(X, head) if double else _chunk(X, head, len(parts)))
    for first in range(0, len(X), length):
        rows = slice(first, first + length)
        block, few = X[rows].to(kind), [None if v is None else v[rows] for v in (scale, norms)]
        alone = placeless and double
        scores = row_scores(block, parts[0]) if alone else _scores(block, parts[0])
        for part in parts[1:]:
            scores += _scores(block, part)
        for slope in _slope_parts(scores, y[rows], head, few[0], few[1], kind, products):
            total += _weighted(block, slope)
        del scores, slope  # before the next block's are made: the peak stays at one block
    return total


def _parts(values: Tensor, dtype: torch.dtype, products: Products) -> list[Tensor]:
    """Numbers of the features' type that add up to the values, the largest first."""
    high = values.to(dtype)
    if dtype.itemsize > 2 or products == "fast":
        return [high]
    return [high, (values - high.to(values.dtype)).to(dtype)]


def _slope_parts(
    scores: Tensor,
    y: Tensor,
    head: Head,
    scale: Tensor | None,
    norms: Tensor | None,
    dtype: torch.dtype,
    products: Products,
) -> list[Tensor]:
    if scores.is_cuda and fused.AVAILABLE and dtype.itemsize == 2:
        parts = [
            torch.empty_like(scores, dtype=dtype) for _ in range(2 if products == "split" else 1)
        ]
        fused.slopes(scores, y, head, scale, norms, parts)
        return parts
    if scale is not None:
        scores *= scale[:, None].to(scores.dtype)
    slope = head.limited(head.slope(scores, y), norms)
    if scale is not None:
        slope *= scale[:, None].to(scores.dtype)
    return _parts(slope, dtype, products)


def _scores(rows: Tensor, theta: Tensor) -> Tensor:
    """rows·theta in float32 (float64 for float64)."""
    if rows.is_cuda:
        return _product(rows, theta)
    # A processor multiplies by few columns faster the other way round: (θᵀ·rowsᵀ)ᵀ.
    return _product(theta.T.contiguous(), rows.T).T


def _weighted(rows: Tensor, slope: Tensor) -> Tensor:
    """rowsᵀ·slope, likewise."""
    if rows.is_cuda:
        return _product(rows.T, slope)
    return _product(slope.T, rows).T


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a·b accumulated and returned in float32 (float64 for float64)."""
    if a.dtype.itemsize > 2:
        return a @ b
    if a.is_cuda and _MIXED:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _chunk(X: Tensor, head: Head, parts: int) -> int:
    """Rows at a time: enough to keep the device busy, few enough to keep temporaries small."""
    if X.is_cuda:  # measured on an H200: smaller chunks starve it, larger ones only take memory
        most = max(96 << 20, X.numel() * X.element_size() * 7 // 100)
        return max(1024, most // (head.outputs * (4 + 2 * parts)) // 128 * 128)
    row = X.shape[1] * max(4, X.element_size()) + 8 * head.outputs
    return max(64, (4 << 20) // row)


def _double_chunk(X: Tensor, head: Head) -> int:
    """Rows at a time in double precision: between the bounds that `train.summation` counts on."""
    held = (512 << 20) if X.is_cuda else (4 << 20)  # bytes
    return min(MOST_ROWS, max(64, held // (8 * (X.shape[1] + head.outputs))))


def fusable(X: Tensor, head: Head) -> bool:
    """Whether the kernel that reads the features once can be used."""
    small = head.outputs <= _FUSED_OUTPUTS and X.shape[1] <= _FUSED_COLUMNS
    sixteen = X.dtype in (torch.bfloat16, torch.float16)
    known = head.kind in fused.SLOPES
    return X.is_cuda and fused.AVAILABLE and known and small and sixteen and X.stride(1) == 1
