# mypy: ignore-errors
"""Triton kernels of a linear head: the features are read once.

A program keeps a tile of rows on the chip between the two products. Parameters and slopes are
sums of one or two 16-bit numbers; sums are kept in float32 per program and added in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of PyTorch without a GPU have none: the plain path is used
    triton = None

AVAILABLE: bool = triton is not None

SLOPES = {"softmax": 0, "logistic": 1, "error": 2, "smoothed hinge": 3, "squared hinge": 4}


@dataclass(frozen=True)
class Tuning:
    """How the kernel is cut: rows of a tile, columns of a piece, and how many at once."""

    rows: int = 64
    columns: int = 256
    warps: int = 8
    stages: int = 2
    per_processor: int = 1


def suited(columns: int, device: torch.device) -> Tuning:
    """A tile of which two fit on the chip beside the parameters, as measured on an H200.

    Tiles of 32 rows, two programs per processor, beat every larger tile there: one is multiplied
    while another is loaded.
    """
    chip = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 99328)
    pieces = -(-columns // 256)
    parameters = 2 * pieces * 256 * 16 * 2
    for rows in (32, 16):
        if 2 * rows * pieces * 512 + parameters + 8192 <= chip:
            return Tuning(rows=rows, warps=4, stages=2, per_processor=2)
    return Tuning(rows=16, warps=4, stages=1)


def gradient_sum(
    X: Tensor,
    y: Tensor,
    parts: Sequence[Tensor],
    head: Any,
    scale: Tensor | None,
    norms: Tensor | None,
    tuning: Tuning | None = None,
) -> Tensor:
    """Σ of the gradients; ``parts`` add up to the parameters; see `kernels.gradient_sum`."""
    tuning = tuning or suited(parts[0].shape[0], X.device)
    columns, outputs = parts[0].shape
    width = 16 if outputs <= 16 else 32
    chunks = -(-columns // tuning.columns)
    padded = torch.zeros((2, chunks * tuning.columns, width), dtype=X.dtype, device=X.device)
    for place, part in zip(padded, parts, strict=False):
        place[:columns, :outputs] = part
    programs = _processors(X.device) * tuning.per_processor
    partial = torch.empty((programs, *padded.shape[1:]), dtype=torch.float32, device=X.device)
    _fused_kernel[(programs,)](
        X,
        y,
        X if scale is None else scale,
        X if norms is None else norms,
        padded[0],
        padded[1],
        partial,
        len(X),
        X.stride(0),
        columns,
        outputs,
        head.width,
        head.cap,
        head.margin,
        head.longest,
        KIND=SLOPES[head.kind],
        ONE_VS_REST=head.one_vs_rest,
        SCALED=scale is not None,
        CLIPPED=norms is not None and head.longest < math.inf,
        MARGIN=head.margin < math.inf,
        SPLIT=len(parts) == 2,
        ROWS=tuning.rows,
        COLUMNS=tuning.columns,
        CHUNKS=chunks,
        WIDTH=width,
        RAGGED=columns % tuning.columns != 0,
        STAGES=tuning.stages,
        num_warps=tuning.warps,
    )
    return partial.sum(0, dtype=torch.float64)[:columns, :outputs]


def slopes(
    scores: Tensor,
    y: Tensor,
    head: Any,
    scale: Tensor | None,
    norms: Tensor | None,
    parts: Sequence[Tensor],
) -> None:
    """From scores to (clipped, scaled) slopes, written as one or two numbers each to ``parts``."""
    _slope_kernel[(len(scores),)](
        scores,
        y,
        scores if scale is None else scale,
        scores if norms is None else norms,
        parts[0],
        parts[-1],
        scores.stride(0),
        head.outputs,
        head.width,
        head.cap,
        head.margin,
        head.longest,
        KIND=SLOPES[head.kind],
        ONE_VS_REST=head.one_vs_rest,
        SCALED=scale is not None,
        CLIPPED=norms is not None and head.longest < math.inf,
        MARGIN=head.margin < math.inf,
        SPLIT=len(parts) == 2,
        WIDTH=triton.next_power_of_2(max(head.outputs, 16)),
    )


def _jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@_jit
def _slope_of(
    scores,
    y,
    scale,
    norms,
    column,
    outputs,
    width,
    cap,
    margin,
    longest,
    KIND: tl.constexpr,
    ONE_VS_REST: tl.constexpr,
    SCALED: tl.constexpr,
    CLIPPED: tl.constexpr,
    MARGIN: tl.constexpr,
):
    """What `Head.slope` and `Head.limited` do, on a tile of scores (rows, padded outputs)."""
    if SCALED:
        scores = scores * scale[:, None]
    real = column[None, :] < outputs
    target = y[:, None]
    hit = column[None, :].to(tl.float32) == target
    if KIND == 0:
        scores = tl.where(real, scores, float("-inf"))
        scores = tl.exp(scores - tl.max(scores, axis=1)[:, None])
        slope = scores / tl.sum(scores, axis=1)[:, None] - tl.where(hit, 1.0, 0.0)
        wrong = -tl.sum(tl.where(hit, slope, 0.0), axis=1)
        slope = slope * (cap / tl.maximum(wrong, cap))[:, None]
    else:
        if ONE_VS_REST:
            target = tl.where(hit, 1.0, -1.0)
        if KIND == 1:
            slope = -target * tl.minimum(1.0 / (1.0 + tl.exp(scores * target)), cap)
        elif KIND == 2:
            slope = tl.minimum(tl.maximum(scores - target, -width), width)
        elif KIND == 3:
            slope = -target * tl.minimum(tl.maximum((1.0 - scores * target) / width, 0.0), 1.0)
        else:
            slope = -target * tl.minimum(tl.maximum(1.0 - scores * target, 0.0), width)
        slope = tl.where(real, slope, 0.0)
    if MARGIN:
        slope = tl.minimum(tl.maximum(slope, -margin), margin)
    if CLIPPED:
        sizes = tl.sqrt(tl.sum(slope * slope, axis=1)) * norms
        slope = slope * (longest / tl.maximum(sizes, longest))[:, None]
    if SCALED:
        slope = slope * scale[:, None]
    return slope


@_jit
def _slope_kernel(
    scores,
    y,
    scale,
    norms,
    high,
    low,
    stride,
    outputs,
    width,
    cap,
    margin,
    longest,
    KIND: tl.constexpr,
    ONE_VS_REST: tl.constexpr,
    SCALED: tl.constexpr,
    CLIPPED: tl.constexpr,
    MARGIN: tl.constexpr,
    SPLIT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Scores of one record to its slope: one read, one write."""
    rows = (tl.program_id(0) + tl.arange(0, 1)).to(tl.int64)
    column = tl.arange(0, WIDTH)
    place = rows[:, None] * stride + column[None, :]
    real = (column[None, :] < outputs) & (rows[:, None] >= 0)
    value = tl.load(scores + place, mask=real, other=0.0)
    factor = tl.load(scale + rows) if SCALED else rows
    norm = tl.load(norms + rows) if CLIPPED else rows
    slope = _slope_of(
        value,
        tl.load(y + rows),
        factor,
        norm,
        column,
        outputs,
        width,
        cap,
        margin,
        longest,
        KIND,
        ONE_VS_REST,
        SCALED,
        CLIPPED,
        MARGIN,
    )
    first = slope.to(high.dtype.element_ty)
    tl.store(high + place, first, mask=real)
    if SPLIT:
        rest = (slope - first.to(tl.float32)).to(high.dtype.element_ty)
        tl.store(low + place, rest, mask=real)


@_jit
def _piece(
    X,
    rows,
    stride,
    columns,
    records,
    which: tl.constexpr,
    COLUMNS: tl.constexpr,
    RAGGED: tl.constexpr,
):
    column = which * COLUMNS + tl.arange(0, COLUMNS)
    real = rows[:, None] < records
    if RAGGED:
        real = real & (column[None, :] < columns)
    return tl.load(X + rows[:, None] * stride + column[None, :], mask=real, other=0.0)


@_jit
def _theta(parts, which: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr):
    column = which * COLUMNS + tl.arange(0, COLUMNS)
    return tl.load(parts + column[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :])


@_jit
def _scored(
    scores,
    x,
    high,
    low,
    which: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
):
    scores = tl.dot(x, _theta(high, which, COLUMNS, WIDTH), scores)
    if SPLIT:
        scores = tl.dot(x, _theta(low, which, COLUMNS, WIDTH), scores)
    return scores


@_jit
def _added(total, x, first, rest, SPLIT: tl.constexpr):
    flipped = tl.trans(x)
    total = tl.dot(flipped, first, total)
    if SPLIT:
        total = tl.dot(flipped, rest, total)
    return total


@_jit
def _stored(
    partial,
    total,
    which: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    column = which * COLUMNS + tl.arange(0, COLUMNS)
    mine = partial + tl.program_id(0) * CHUNKS * COLUMNS * WIDTH
    tl.store(mine + column[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], total)


@_jit
def _fused_kernel(
    X,
    y,
    scale,
    norms,
    high,
    low,
    partial,
    records,
    stride,
    columns,
    outputs,
    width,
    cap,
    margin,
    longest,
    KIND: tl.constexpr,
    ONE_VS_REST: tl.constexpr,
    SCALED: tl.constexpr,
    CLIPPED: tl.constexpr,
    MARGIN: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr,
    RAGGED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Every program walks over tiles of rows and keeps its own sum.

    A tile is read once, in up to four pieces of columns that stay on the chip: first they give
    the scores, then, with the slopes, their share of the gradient.
    """
    total0 = tl.zeros((COLUMNS, WIDTH), tl.float32)
    total1 = total0
    total2 = total0
    total3 = total0
    column = tl.arange(0, WIDTH)
    tiles = tl.cdiv(records, ROWS)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        here = rows < records
        x0 = _piece(X, rows, stride, columns, records, 0, COLUMNS, RAGGED)
        if CHUNKS > 1:
            x1 = _piece(X, rows, stride, columns, records, 1, COLUMNS, RAGGED)
        if CHUNKS > 2:
            x2 = _piece(X, rows, stride, columns, records, 2, COLUMNS, RAGGED)
        if CHUNKS > 3:
            x3 = _piece(X, rows, stride, columns, records, 3, COLUMNS, RAGGED)
        label = tl.load(y + rows, mask=here, other=0.0)
        factor = tl.load(scale + rows, mask=here, other=0.0) if SCALED else label
        norm = tl.load(norms + rows, mask=here, other=1.0) if CLIPPED else label
        scores = tl.zeros((ROWS, WIDTH), tl.float32)
        scores = _scored(scores, x0, high, low, 0, COLUMNS, WIDTH, SPLIT)
        if CHUNKS > 1:
            scores = _scored(scores, x1, high, low, 1, COLUMNS, WIDTH, SPLIT)
        if CHUNKS > 2:
            scores = _scored(scores, x2, high, low, 2, COLUMNS, WIDTH, SPLIT)
        if CHUNKS > 3:
            scores = _scored(scores, x3, high, low, 3, COLUMNS, WIDTH, SPLIT)
        slope = _slope_of(
            scores,
            label,
            factor,
            norm,
            column,
            outputs,
            width,
            cap,
            margin,
            longest,
            KIND,
            ONE_VS_REST,
            SCALED,
            CLIPPED,
            MARGIN,
        )
        slope = tl.where(here[:, None], slope, 0.0)
        first = slope.to(x0.dtype)
        rest = (slope - first.to(tl.float32)).to(x0.dtype)
        total0 = _added(total0, x0, first, rest, SPLIT)
        if CHUNKS > 1:
            total1 = _added(total1, x1, first, rest, SPLIT)
        if CHUNKS > 2:
            total2 = _added(total2, x2, first, rest, SPLIT)
        if CHUNKS > 3:
            total3 = _added(total3, x3, first, rest, SPLIT)
    _stored(partial, total0, 0, COLUMNS, CHUNKS, WIDTH)
    if CHUNKS > 1:
        _stored(partial, total1, 1, COLUMNS, CHUNKS, WIDTH)
    if CHUNKS > 2:
        _stored(partial, total2, 2, COLUMNS, CHUNKS, WIDTH)
    if CHUNKS > 3:
        _stored(partial, total3, 3, COLUMNS, CHUNKS, WIDTH)
