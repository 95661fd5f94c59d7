# mypy: ignore-errors
"""Triton kernels for `fixed_point`: the same whole numbers by 8-bit tensor cores.

Features, parameters and slopes are sums of signed bytes; a product of bytes is added in int32,
which is exact for as many rows as a program takes, and bytes are put together in int64. The units
multiply only along what lies next to each other in memory, so that the features are kept twice: by
rows for the scores, by columns for the sums. Every kernel returns the bits of `fixed_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lastiterate.train.torch_backend.fixed_point import (
    GROUP,
    LOG2_E,
    MOST_ROWS,
    Units,
    farthest_below,
    in_doubles,
    weight_bits,
)
from lastiterate.train.torch_backend.kernels import Head
from lastiterate.train.torch_backend.triton_support import AVAILABLE, jit

if AVAILABLE:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

SLOPES = {"softmax": 0, "logistic": 1, "error": 2, "smoothed hinge": 3, "squared hinge": 4}
FEW = GROUP  # outputs whose scores a program keeps to itself
MOST_OUTPUTS = 1 << 14  # whose groups a program can hold
_ALIGNED = 128  # columns are padded to multiples of it
BLOCK = 256  # rows that lie together, feature by feature and slope by slope
_AT_ONCE = 1 << 28  # scores in memory at once, where outputs are many


@dataclass(frozen=True)
class Tuning:
    """How the kernels are cut: (rows or columns, outputs, depth) of a tile, warps, stages.

    As measured on an H200. Depths of sums divide `BLOCK`.
    """

    scores: tuple[int, int, int, int] = (128, 64, 4, 3)  # rows, depth, warps, stages
    few: tuple[int, int, int, int] = (128, 128, 8, 4)  # rows, depth, warps, stages
    slopes: tuple[int, int] = (32, 4)  # outputs, warps
    sums: tuple[int, int, int, int, int] = (128, 256, 128, 8, 4)
    few_sums: tuple[int, int, int, int, int] = (64, 64, 256, 4, 4)


class Packed:
    """Features as signed bytes, by rows, and by columns in blocks of rows."""

    def __init__(self, rows: Tensor, pieces: int, columns: int) -> None:
        self.rows, self.pieces, self.columns = rows, pieces, columns
        blocks, height = _blocks(len(rows)), rows.shape[1]
        self.across = torch.zeros((blocks, height, BLOCK), dtype=torch.int8, device=rows.device)
        full = len(rows) // BLOCK
        for first in range(0, full, 1 << 10):
            some = slice(first, min(first + (1 << 10), full))
            lines = rows[some.start * BLOCK : some.stop * BLOCK]
            self.across[some] = lines.view(-1, BLOCK, height).transpose(1, 2)
        if full < blocks:
            rest = rows[full * BLOCK :]
            self.across[full, :, : len(rest)] = rest.T


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def packed_rows(whole: Tensor) -> Tensor:
    """Whole numbers (records, columns) as bytes: the upper ones of a row, then the lower ones."""
    columns = whole.shape[1]
    depth = -(-columns // _ALIGNED) * _ALIGNED
    pieces = 1 if whole.dtype == torch.int8 else 2
    rows = torch.zeros((len(whole), pieces * depth), dtype=torch.int8, device=whole.device)
    if pieces == 1:
        rows[:, :columns] = whole
        return rows
    high = (whole.int() + 128) >> 8
    rows[:, :columns] = high
    rows[:, depth : depth + columns] = whole - (high << 8)
    return rows


def gradient_sum(
    X: Packed,
    y: Tensor,
    theta: Tensor,
    head: Head,
    units: Units,
    tuning: Tuning | None = None,
) -> Tensor:
    """Σ of the gradients of these records; see `fixed_point.gradient_sum`."""
    tuning = tuning or Tuning()
    few = head.outputs <= FEW
    constants = _on(_numbers(head, units), X.rows.device)
    weights = _weights(X, theta, head, units, constants)
    total = torch.zeros((2, *theta.shape), dtype=torch.int64, device=theta.device)
    length = max(1, len(X.rows))
    if not few:
        length = max(1, _AT_ONCE // (len(weights) * GROUP * BLOCK)) * BLOCK
    for first in range(0, len(X.rows), length):
        last = min(first + length, len(X.rows))
        shape = (_blocks(last - first), 4 * head.outputs, BLOCK)
        slopes = torch.empty(shape, dtype=torch.int8, device=theta.device)
        args = (
            X.rows[first:last],
            y[first:last],
            weights,
            constants,
            slopes,
            head,
            units,
            tuning,
        )
        (_few_slopes if few else _many_slopes)(*args)
        _add(X, first, slopes, total, head, tuning)
    return in_doubles(total, units)


def _numbers(head: Head, units: Units) -> tuple[float, ...]:
    """The doubles that kernels read."""
    slopes = (units.score, head.width, head.cap, units.limit, units.slope)
    return (
        *slopes,
        1 / units.parameter,
        units.largest,
        1 / head.width,
        head.cap * units.slope,
        units.score * LOG2_E,
    )


_CONSTANTS: dict[Any, Tensor] = {}


def _on(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """A kernel's doubles (an argument would be rounded to float32), sent to a device once."""
    key = (numbers, device)
    if key not in _CONSTANTS:
        if len(_CONSTANTS) > 64:
            _CONSTANTS.clear()
        _CONSTANTS[key] = torch.tensor(numbers, dtype=torch.float64, device=device)
    return _CONSTANTS[key]


def _weights(X, theta, head, units, constants) -> Tensor:
    """The bytes of the parameters: for every tile of outputs, tables for the powers of 256."""
    depth = X.rows.shape[1]
    groups = units.pieces + X.pieces - 1
    width = 16 if head.outputs <= 16 else GROUP
    tiles = -(-head.outputs // width)
    wide = tiles * width
    weights = torch.empty((tiles, groups, width, depth), dtype=torch.int8, device=theta.device)
    _weights_kernel[(depth // 128, wide // 16)](
        theta,
        constants,
        weights,
        theta.stride(0),
        theta.stride(1),
        X.columns,
        head.outputs,
        depth,
        depth // X.pieces,
        WIDTH=width,
        PIECES=units.pieces,
        GROUPS=groups,
        TWO=X.pieces == 2,
        num_warps=4,
        enable_fp_fusion=False,
    )
    return weights


def _few_slopes(rows, y, weights, constants, slopes, head, units, tuning) -> None:
    tile, depth, warps, stages = tuning.few
    padded = len(slopes) * BLOCK
    _few_kernel[(triton.cdiv(padded, tile),)](
        rows,
        weights,
        y,
        constants,
        slopes,
        len(rows),
        padded,
        head.outputs,
        farthest_below(units),
        DEPTH=rows.shape[1],
        GROUPS=weights.shape[1],
        SHIFT=units.shift,
        KIND=SLOPES[head.kind],
        ONE_VS_REST=head.one_vs_rest,
        BITS=weight_bits(head.outputs),
        ROWS=tile,
        STEP=depth,
        WIDTH=weights.shape[2],
        BLOCK=BLOCK,
        STAGES=stages,
        num_warps=warps,
        enable_fp_fusion=False,
    )


def _many_slopes(rows, y, weights, constants, slopes, head, units, tuning) -> None:
    tile, depth, warps, stages = tuning.scores
    outputs, threads = tuning.slopes
    tiles, padded, device = weights.shape[0], len(slopes) * BLOCK, rows.device
    scores = torch.empty((padded, tiles * GROUP), dtype=torch.int32, device=device)
    tops = torch.empty((tiles + 2, padded), dtype=torch.int32, device=device)
    totals = torch.empty((tiles + 1, padded), dtype=torch.float64, device=device)
    softmax = {"farthest": farthest_below(units), "BITS": weight_bits(head.outputs)}
    kind = SLOPES[head.kind]
    _scores_kernel[(triton.cdiv(len(rows), tile) * tiles,)](
        rows,
        weights,
        constants,
        scores,
        tops,
        totals,
        len(rows),
        padded,
        head.outputs,
        tiles,
        DEPTH=rows.shape[1],
        GROUPS=weights.shape[1],
        SHIFT=units.shift,
        KIND=kind,
        ROWS=tile,
        STEP=depth,
        WIDTH=GROUP,
        STAGES=stages,
        num_warps=warps,
        enable_fp_fusion=False,
        **softmax,
    )
    if kind == 0:
        _rows_kernel[(triton.cdiv(padded, 32),)](
            scores,
            y,
            constants,
            tops,
            totals,
            len(rows),
            padded,
            tiles,
            ROWS=32,
            TILES=triton.next_power_of_2(tiles),
            WIDTH=GROUP,
            TOGETHER=tile,
            enable_fp_fusion=False,
            **softmax,
        )
    _slopes_kernel[(padded // tile, triton.cdiv(head.outputs, outputs))](
        scores,
        y,
        constants,
        tops,
        totals,
        slopes,
        len(rows),
        padded,
        head.outputs,
        tiles,
        KIND=kind,
        ONE_VS_REST=head.one_vs_rest,
        ROWS=tile,
        WIDTH=outputs,
        GROUP=GROUP,
        BLOCK=BLOCK,
        num_warps=threads,
        enable_fp_fusion=False,
        **softmax,
    )


def _add(X, first, slopes, total, head, tuning) -> None:
    """Features times the bytes of slopes, added to ``total``."""
    tile, outputs, depth, warps, stages = tuning.few_sums if head.outputs <= FEW else tuning.sums
    count, width, height = len(slopes) * BLOCK, slopes.shape[1], X.across.shape[1]
    tiles = triton.cdiv(height, tile) * triton.cdiv(width, outputs)
    span = max(BLOCK, _span(count, tiles, X.rows.device))
    parts = triton.cdiv(count, span)
    partial = torch.empty((parts, height, width), dtype=torch.int32, device=total.device)
    _sums_kernel[(tiles, parts)](
        TensorDescriptor.from_tensor(X.across.view(-1, BLOCK), [tile, depth]),
        TensorDescriptor.from_tensor(slopes.view(-1, BLOCK), [outputs, depth]),
        partial,
        first // BLOCK,
        height,
        width,
        SPAN=span,
        TILE=tile,
        STEP=depth,
        WIDTH=outputs,
        BLOCK=BLOCK,
        STAGES=stages,
        num_warps=warps,
    )
    block = 16 if head.outputs <= 16 else 64
    _collect_kernel[(triton.cdiv(X.columns, 16), triton.cdiv(head.outputs, block))](
        partial,
        total,
        X.columns,
        head.outputs,
        height // X.pieces,
        height,
        parts,
        TWO=X.pieces == 2,
        WIDTH=block,
        num_warps=4,
    )


def _span(count: int, tiles: int, device: torch.device) -> int:
    """Rows per program: a power of two, so that every processor has a few programs."""
    processors = 1
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    programs = max(1, 4 * processors // tiles)
    return min(MOST_ROWS, triton.next_power_of_2(-(-count // programs)))


@jit
def _weights_kernel(
    theta,
    constants,
    weights,
    stride,
    step,
    columns,
    outputs,
    depth,
    half,
    WIDTH: tl.constexpr,
    PIECES: tl.constexpr,
    GROUPS: tl.constexpr,
    TWO: tl.constexpr,
):
    """`parameters_in_units`, cut into signed bytes."""
    place = tl.program_id(0) * 128 + tl.arange(0, 128)
    output = tl.program_id(1) * 16 + tl.arange(0, 16)
    column = place % half
    real = (column[None, :] < columns) & (output[:, None] < outputs)
    value = tl.load(theta + column[None, :] * stride + output[:, None] * step, mask=real, other=0.0)
    inverse = tl.load(constants + 5)
    largest = tl.load(constants + 6)
    value = tl.minimum(tl.maximum(value, -largest), largest) * inverse
    whole = (value + 6755399441055744.0).to(tl.int64, bitcast=True) - 0x4338000000000000
    bias = 0x80808080
    if PIECES == 5:
        bias = 0x8080808080
    whole = whole + bias
    upper = (place < half) & TWO
    for group in tl.static_range(GROUPS):
        piece = group - upper.to(tl.int32)
        known = (piece >= 0) & (piece < PIECES)
        shift = tl.where(known, piece * 8, 0)
        byte = ((whole >> shift[None, :].to(tl.int64)) & 255) - 128
        byte = tl.where(known[None, :] & real, byte, 0)
        row = ((output // WIDTH) * GROUPS + group) * WIDTH + output % WIDTH
        out = weights + row[:, None] * depth + place[None, :]
        tl.store(out, byte.to(tl.int8))


@jit
def _two_minus(z, BITS):
    """`fixed_point.two_minus`, operation by operation, times 2^BITS."""
    raised = z + 6755399441055744.0
    f = (raised - 6755399441055744.0) - z
    power = f * 1.334418095993795e-06 + 1.531420903803661e-05
    power = power * f + 0.000154030982978597
    power = power * f + 0.0013333434158352689
    power = power * f + 0.009618129558824302
    power = power * f + 0.05550410959227876
    power = power * f + 0.24022650694742637
    power = power * f + 0.6931471805412329
    power = power * f + 1.0
    # The low bits of ``raised`` are those of k; adding to an exponent multiplies exactly.
    exponent = (BITS - raised.to(tl.int64, bitcast=True).to(tl.int32)).to(tl.int64) << 52
    return (power.to(tl.int64, bitcast=True) + exponent).to(tl.float64, bitcast=True)


@jit
def _falls(top, scores, farthest, constants, BITS):
    """`fixed_point._falls` of what scores are below the largest, times 2^BITS."""
    below = tl.minimum((top - scores).to(tl.uint32), farthest.to(tl.uint32))
    # An integer in the low half of a double near 2^52.
    wide = (below.to(tl.uint64) | 0x4330000000000000).to(tl.float64, bitcast=True)
    return _two_minus((wide - 4503599627370496.0) * tl.load(constants + 9), BITS)


@jit
def _rounded(values):
    return (values + 6755399441055744.0) - 6755399441055744.0


@jit
def _in_bits(values):
    """The nearest whole numbers, of values below 2^51, in the last 32 bits."""
    raised = values + 6755399441055744.0
    return raised.to(tl.int64, bitcast=True).to(tl.uint32)  # 1.5·2^52 has none of these bits


@jit
def _shares(total, own, constants):
    """a, and a·T in bits, of `fixed_point._softmax_slopes`."""
    cap = tl.load(constants + 2)
    each = (1.0 / tl.maximum(total - own, total * cap)) * tl.load(constants + 8)
    return each, _in_bits(each * total)


@jit
def _slopes_of(scores, y, output, constants, KIND: tl.constexpr, ONE_VS_REST: tl.constexpr):
    """`fixed_point.slopes` of losses of one score, or of one for every output."""
    width = tl.load(constants + 1)
    limit = tl.load(constants + 3)
    value = scores.to(tl.float64) * tl.load(constants)
    target = y
    if ONE_VS_REST:
        target = tl.where(output == y.to(tl.int32), 1.0, -1.0).to(tl.float64)
    if KIND == 2:
        slope = tl.minimum(tl.maximum(value - target, -width), width)
    else:
        margin = value * target
        if KIND == 1:
            small = _two_minus(tl.minimum(tl.abs(margin), 64.0) * 1.4426950408889634, 0)
            pull = tl.where(margin >= 0, small, 1.0) / (small + 1.0)
            slope = -target * tl.minimum(pull, tl.load(constants + 2))
        elif KIND == 3:
            short = (1.0 - margin) * tl.load(constants + 7)
            slope = -target * tl.minimum(tl.maximum(short, 0.0), 1.0)
        else:
            slope = -target * tl.minimum(tl.maximum(1.0 - margin, 0.0), width)
    return _in_bits(tl.minimum(tl.maximum(slope, -limit), limit) * tl.load(constants + 4))


@jit
def _group(scores, real, farthest, constants, BITS: tl.constexpr):
    """The largest score of a tile of rows and the weights relative to it."""
    top = tl.max(tl.where(real, scores, -2147483647), axis=1)
    bits = tl.where(real, BITS, -800)  # outputs that are none weigh nothing
    return top, _rounded(_falls(top[:, None], scores, farthest, constants, bits))


@jit
def _store_bytes(
    slopes,
    whole,
    first,
    row,
    output,
    padded,
    outputs,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slopes of rows first, first + 1, ... as four signed bytes; a block's rows lie together.

    Rows that are no records have any: the features there are 0.
    """
    whole = (whole + 0x80808080) ^ 0x80808080
    real = (output < outputs) & (first + row < padded)
    # ROWS divides BLOCK, so that the rows of a tile are in one block.
    place = (first // BLOCK).to(tl.int64) * (4 * outputs * BLOCK) + first % BLOCK
    place = tl.multiple_of(place, ROWS)
    for byte in tl.static_range(4):
        out = slopes + place + ((output + byte * outputs) * BLOCK + row)
        tl.store(out, (whole >> (8 * byte)).to(tl.int8), mask=real)


@jit
def _scored(
    X,
    weights,
    rows,
    here,
    DEPTH: tl.constexpr,
    GROUPS: tl.constexpr,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The scores of a tile of rows for a tile of outputs, int32.

    Four powers of 256 side by side in one product, as the units are quicker the wider it is; the
    others, if there are any, by themselves.
    """
    first = tl.zeros((ROWS, 4 * WIDTH), tl.int32)
    a4 = tl.zeros((ROWS, WIDTH), tl.int32)
    a5 = tl.zeros((ROWS, WIDTH), tl.int32)
    at = X + rows[:, None] * DEPTH + tl.arange(0, STEP)[None, :]
    by = weights + tl.arange(0, 4 * WIDTH)[None, :] * DEPTH + tl.arange(0, STEP)[:, None]
    rest = weights + (4 * WIDTH + tl.arange(0, WIDTH)[None, :]) * DEPTH
    rest = rest + tl.arange(0, STEP)[:, None]
    for k in tl.range(0, DEPTH, STEP, num_stages=STAGES):
        x = tl.load(at + k, mask=here[:, None], other=0)
        first = tl.dot(x, tl.load(by + k), first, out_dtype=tl.int32)
        if GROUPS > 4:
            a4 = tl.dot(x, tl.load(rest + k), a4, out_dtype=tl.int32)
        if GROUPS > 5:
            a5 = tl.dot(x, tl.load(rest + (k + WIDTH * DEPTH)), a5, out_dtype=tl.int32)
    return _together(first, a4, a5, GROUPS, SHIFT, ROWS, WIDTH)


@jit
def _together(
    first,
    a4,
    a5,
    GROUPS: tl.constexpr,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sums of bytes put together, and rounded to 32 bits."""
    parts = tl.permute(tl.reshape(first, (ROWS, 2, 2, WIDTH)), (0, 3, 1, 2))
    even, odd = tl.split(parts)
    a0, a2 = tl.split(even)
    a1, a3 = tl.split(odd)
    scores = a0.to(tl.int64) + a1.to(tl.int64) * 256
    scores += a2.to(tl.int64) * 65536 + a3.to(tl.int64) * 16777216
    if GROUPS > 4:
        scores += a4.to(tl.int64) << 32
    if GROUPS > 5:
        scores += a5.to(tl.int64) << 40
    if SHIFT > 0:
        scores = (scores + (1 << (SHIFT - 1))) >> SHIFT
    scores = tl.where(scores > 2147483647, 2147483647, scores)
    scores = tl.where(scores < -2147483647, -2147483647, scores)
    return scores.to(tl.int32)


@jit
def _few_kernel(
    X,
    weights,
    y,
    constants,
    slopes,
    records,
    padded,
    outputs,
    farthest,
    DEPTH: tl.constexpr,
    GROUPS: tl.constexpr,
    SHIFT: tl.constexpr,
    KIND: tl.constexpr,
    ONE_VS_REST: tl.constexpr,
    BITS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """From features to slopes, where outputs are few."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    here = rows < records
    scores = _scored(X, weights, rows, here, DEPTH, GROUPS, SHIFT, ROWS, STEP, WIDTH, STAGES)
    label = tl.load(y + rows, mask=here, other=0.0)[:, None]
    output = tl.arange(0, WIDTH)[None, :]
    if KIND == 0:
        weights = _group(scores, output < outputs, farthest, constants, BITS)[1]
        hit = output == label.to(tl.int32)
        own = tl.sum(tl.where(hit, weights, 0.0), axis=1)
        each, all = _shares(tl.sum(weights, axis=1), own, constants)
        whole = _in_bits(weights * each[:, None]) - tl.where(hit, all[:, None], 0)
    else:
        whole = _slopes_of(scores, label, output, constants, KIND, ONE_VS_REST)
    row = tl.arange(0, ROWS)[:, None]
    first = tl.program_id(0) * ROWS
    _store_bytes(slopes, whole, first, row, output, padded, outputs, ROWS, BLOCK)


@jit
def _scores_kernel(
    X,
    weights,
    constants,
    scores,
    tops,
    totals,
    records,
    padded,
    outputs,
    tiles,
    farthest,
    DEPTH: tl.constexpr,
    GROUPS: tl.constexpr,
    SHIFT: tl.constexpr,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Scores, ROWS rows lying together, and of softmax every group's largest and sum of weights.

    Neighbouring programs share their rows of features.
    """
    first = (tl.program_id(0) // tiles) * ROWS
    tile = tl.program_id(0) % tiles
    row = tl.arange(0, ROWS)
    here = first + row < records
    weights = weights + tile * GROUPS * WIDTH * DEPTH
    rows = (first + row).to(tl.int64)
    value = _scored(X, weights, rows, here, DEPTH, GROUPS, SHIFT, ROWS, STEP, WIDTH, STAGES)
    at = scores + first.to(tl.int64) * (tiles * WIDTH) + tile * (WIDTH * ROWS)
    output = tl.arange(0, WIDTH)[None, :]
    tl.store(at + (output * ROWS + row[:, None]), value)
    if KIND == 0:
        real = tile * WIDTH + output < outputs
        top, inside = _group(value, real, farthest, constants, BITS)
        out = tile * padded + first + row
        tl.store(tops + out, top)
        tl.store(totals + out, tl.sum(inside, axis=1))


@jit
def _rows_kernel(
    scores,
    y,
    constants,
    tops,
    totals,
    records,
    padded,
    tiles,
    farthest,
    BITS: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    WIDTH: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Of softmax: a row's largest score, a and a·T, written behind those of the groups."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tile = tl.arange(0, TILES)[:, None]
    real = tile < tiles
    at = tile * padded + row[None, :]
    group = tl.load(tops + at, mask=real, other=-2147483647)
    inside = tl.load(totals + at, mask=real, other=0.0)
    top = tl.max(group, axis=0)
    total = tl.sum(_rounded(inside * _falls(top[None, :], group, farthest, constants, 0)), axis=0)
    label = tl.load(y + row, mask=row < records, other=0.0).to(tl.int64)
    block = (row // TOGETHER).to(tl.int64) * (TOGETHER * tiles * WIDTH)
    its = tl.load(scores + block + label * TOGETHER + row % TOGETHER)
    own = _rounded(_falls(top, its, farthest, constants, BITS))
    each, all = _shares(total, own, constants)
    tl.store(tops + tiles * padded + row, top)
    tl.store(tops + (tiles + 1) * padded + row, all.to(tl.int32, bitcast=True))
    tl.store(totals + tiles * padded + row, each)


@jit
def _slopes_kernel(
    scores,
    y,
    constants,
    tops,
    totals,
    slopes,
    records,
    padded,
    outputs,
    tiles,
    farthest,
    KIND: tl.constexpr,
    ONE_VS_REST: tl.constexpr,
    BITS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """From scores in memory to slopes, number by number."""
    first = tl.program_id(0) * ROWS
    row = tl.arange(0, ROWS)
    output = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[:, None]
    at = scores + first.to(tl.int64) * (tiles * GROUP)
    value = tl.load(at + (output * ROWS + row[None, :]), mask=output < outputs, other=0)
    label = tl.load(y + first + row, mask=first + row < records, other=0.0)[None, :]
    if KIND == 0:
        known = tops + tiles * padded + first + row
        top = tl.load(known)[None, :]
        all = tl.load(known + padded).to(tl.uint32, bitcast=True)[None, :]
        each = tl.load(totals + tiles * padded + first + row)[None, :]
        weights = _rounded(_falls(top, value, farthest, constants, BITS))
        whole = _in_bits(weights * each) - tl.where(output == label.to(tl.int32), all, 0)
    else:
        whole = _slopes_of(value, label, output, constants, KIND, ONE_VS_REST)
    _store_bytes(slopes, whole, first, row[None, :], output, padded, outputs, ROWS, BLOCK)


@jit
def _sums_kernel(
    across,
    slopes,
    partial,
    first,
    height,
    width,
    SPAN: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Bytes of features times bytes of slopes, summed over SPAN rows, no more than 65,536.

    ``across`` and ``slopes`` are described as tables of BLOCK columns, of which whole tiles are
    read: beyond its columns a tile has those of the next block, which nobody stores, and beyond
    the last block slopes are 0.
    """
    tiles = tl.cdiv(width, WIDTH)
    place = (tl.program_id(0) // tiles) * TILE
    column = (tl.program_id(0) % tiles) * WIDTH
    total = tl.zeros((TILE, WIDTH), tl.int32)
    for k in tl.range(0, SPAN, STEP, num_stages=STAGES):
        row = tl.program_id(1) * SPAN + k
        block = row // BLOCK
        x = across.load([(first + block) * height + place, row % BLOCK])
        s = slopes.load([block * width + column, row % BLOCK])
        total = tl.dot(x, s.T, total, out_dtype=tl.int32)
    places = place + tl.arange(0, TILE)[:, None]
    columns = column + tl.arange(0, WIDTH)[None, :]
    out = partial + (tl.program_id(1) * height + places).to(tl.int64) * width
    tl.store(out + columns, total, mask=(places < height) & (columns < width))


@jit
def _collect_kernel(
    partial,
    total,
    columns,
    outputs,
    half,
    height,
    parts,
    TWO: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sums of bytes over all programs, put together to the two halves of `fixed_point.weighted`."""
    column = tl.program_id(0) * 16 + tl.arange(0, 16)
    output = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    real = (column[:, None] < columns) & (output[None, :] < outputs)
    width = 4 * outputs
    high = tl.zeros((16, WIDTH), tl.int64)
    low = tl.zeros((16, WIDTH), tl.int64)
    part = 0
    while part < parts:
        at = partial + (part * height + column[:, None]).to(tl.int64) * width + output[None, :]
        b0 = tl.load(at, mask=real, other=0).to(tl.int64)
        b1 = tl.load(at + outputs, mask=real, other=0).to(tl.int64)
        b2 = tl.load(at + 2 * outputs, mask=real, other=0).to(tl.int64)
        b3 = tl.load(at + 3 * outputs, mask=real, other=0).to(tl.int64)
        if TWO:
            at = at + half * width
            b0 = (b0 << 8) + tl.load(at, mask=real, other=0).to(tl.int64)
            b1 = (b1 << 8) + tl.load(at + outputs, mask=real, other=0).to(tl.int64)
            b2 = (b2 << 8) + tl.load(at + 2 * outputs, mask=real, other=0).to(tl.int64)
            b3 = (b3 << 8) + tl.load(at + 3 * outputs, mask=real, other=0).to(tl.int64)
        low += b0 + (b1 << 8)
        high += b2 + (b3 << 8)
        part += 1
    out = total + column[:, None] * outputs + output[None, :]
    tl.store(out, tl.load(out, mask=real, other=0) + high, mask=real)
    out = out + columns * outputs
    tl.store(out, tl.load(out, mask=real, other=0) + low, mask=real)
