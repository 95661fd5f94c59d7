"""Triton kernels of many LeNet-5 networks: convolutions without their patches, noise in one pass.

A program convolves one image with one network. Windows are gathered where they are needed, so the
25-fold copy of the images that a product would read is never written; activations are computed
again on the way back. Gradients of the convolutions come out per record, ready to be clipped.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of PyTorch without a GPU have none: plain products are used
    triton = None

AVAILABLE: bool = triton is not None
Tensor = Any


def convolved(p: dict[str, Tensor], images: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Both convolutions with tanh and average pooling.

    ``rows`` (models, batch) are indices into ``images`` (n, 28, 28). Returns the first pooled
    layer (models, batch, 6, 196) and the second (models, batch, 400).
    """
    M, B = rows.shape
    first = torch.empty((M, B, 6, 196), dtype=torch.float32, device=images.device)
    second = torch.empty((M, B, 400), dtype=torch.float32, device=images.device)
    stride = p["w1"].stride(0)
    _first_kernel[(M * B,)](images, rows, p["w1"], p["b1"], first, stride, B, num_warps=4)
    _second_kernel[(M * B,)](first, p["w2"], p["b2"], second, stride, B, num_warps=4)
    return first, second


def convolution_gradients(
    p: dict[str, Tensor], images: Tensor, rows: Tensor, first: Tensor, d2: Tensor
) -> tuple[Tensor, Tensor]:
    """Per record, the gradients of the two convolutions: (models, batch, 6·25 + 6) and
    (models, batch, 16·150 + 16), weights before biases; ``d2`` is the slope of the second pooled
    layer.
    """
    M, B = rows.shape
    g1 = torch.empty((M, B, 156), dtype=torch.float32, device=images.device)
    g2 = torch.empty((M, B, 2416), dtype=torch.float32, device=images.device)
    fine = torch.empty((M, B, 100, 16), dtype=torch.float32, device=images.device)
    stride = p["w1"].stride(0)
    grid = (M * B,)
    _second_back_kernel[grid](first, p["w2"], p["b2"], d2, g2, fine, stride, B, num_warps=4)
    _first_back_kernel[grid](
        images, rows, p["w1"], p["b1"], p["w2"], fine, g1, stride, B, num_warps=4
    )
    return g1, g2


def shrink_and_shake(flat: Tensor, shrink: float, noise: float, seed: Tensor) -> None:
    """flat ← shrink·flat + noise·N(0, I) in place, and the next seed; ``seed`` is one int64.

    Philox numbers, one counter for every four entries.
    """
    size = flat.numel()
    assert flat.is_contiguous()
    assert size % 4 == 0
    assert size < 2**33
    block = 1024
    _shake_kernel[(triton.cdiv(size // 4, block),)](
        flat, size, shrink, noise, seed, BLOCK=block, num_warps=4
    )
    seed.add_(1)


def _jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


@_jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@_jit
def _first_windows(images, row, q, sub):
    """Windows (len(q), 32) of the first convolution at sub-position ``sub`` of pooled cells q."""
    k = tl.arange(0, 32)
    y = (2 * (q // 14) + sub // 2)[:, None] + (k // 5)[None, :] - 2
    x = (2 * (q % 14) + sub % 2)[:, None] + (k % 5)[None, :] - 2
    inside = (y >= 0) & (y < 28) & (x >= 0) & (x < 28) & (q < 196)[:, None] & (k < 25)[None, :]
    return tl.load(images + row * 784 + y * 28 + x, mask=inside, other=0.0)


@_jit
def _first_weights(w, b, base):
    """Weights (32 taps, 16 channels; 25 x 6 of them not zero) and biases."""
    k = tl.arange(0, 32)
    c = tl.arange(0, 16)
    real = (k < 25)[:, None] & (c < 6)[None, :]
    weights = tl.load(w + base + c[None, :] * 25 + k[:, None], mask=real, other=0.0)
    return weights, tl.load(b + base + c, mask=c < 6, other=0.0)


@_jit
def _first_kernel(images, rows, w, b, first, stride, B):
    record = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + record)
    weights, bias = _first_weights(w, b, (record // B) * stride)
    c = tl.arange(0, 16)
    for start in range(0, 196, 64):
        q = start + tl.arange(0, 64)
        pooled = tl.zeros((64, 16), dtype=tl.float32)
        for sub in tl.static_range(4):
            pooled += _tanh(tl.dot(_first_windows(images, row, q, sub), weights) + bias[None, :])
        place = first + record * 1176 + c[None, :] * 196 + q[:, None]
        tl.store(place, pooled / 4, mask=(q < 196)[:, None] & (c < 6)[None, :])


@_jit
def _second_windows(first, record, channel):
    """Windows (128, 32) of the second convolution: 4 sub-positions of 25 (32) pooled cells."""
    k = tl.arange(0, 32)
    r = tl.arange(0, 128)
    sub = r // 32
    q = r % 32
    y = (2 * (q // 5) + sub // 2)[:, None] + (k // 5)[None, :]
    x = (2 * (q % 5) + sub % 2)[:, None] + (k % 5)[None, :]
    real = (q < 25)[:, None] & (k < 25)[None, :]
    return tl.load(first + record * 1176 + channel * 196 + y * 14 + x, mask=real, other=0.0)


@_jit
def _second_activations(first, w, b, record, base):
    """tanh of the second convolution, (128, 16)."""
    k = tl.arange(0, 32)
    c = tl.arange(0, 16)
    total = tl.zeros((128, 16), dtype=tl.float32) + tl.load(b + base + c)[None, :]
    for channel in tl.static_range(6):
        place = w + base + c[None, :] * 150 + channel * 25 + k[:, None]
        weights = tl.load(place, mask=(k < 25)[:, None], other=0.0)
        total += tl.dot(_second_windows(first, record, channel), weights)
    return _tanh(total)


@_jit
def _second_kernel(first, w, b, second, stride, B):
    record = tl.program_id(0).to(tl.int64)
    h = _second_activations(first, w, b, record, (record // B) * stride)
    pooled = tl.sum(tl.reshape(h, (4, 32, 16)), axis=0) / 4
    c = tl.arange(0, 16)
    q = tl.arange(0, 32)
    place = second + record * 400 + c[None, :] * 25 + q[:, None]
    tl.store(place, pooled, mask=(q < 25)[:, None])


@_jit
def _second_back_kernel(first, w, b, d2, g2, fine, stride, B):
    record = tl.program_id(0).to(tl.int64)
    h = _second_activations(first, w, b, record, (record // B) * stride)
    c = tl.arange(0, 16)
    k = tl.arange(0, 32)
    r = tl.arange(0, 128)
    sub = r // 32
    q = r % 32
    real = (q < 25)[:, None]
    slope = tl.load(d2 + record * 400 + c[None, :] * 25 + q[:, None], mask=real, other=0.0)
    d = (1 - h * h) * slope / 4
    y = 2 * (q // 5) + sub // 2
    x = 2 * (q % 5) + sub % 2
    tl.store(fine + record * 1600 + (y * 10 + x)[:, None] * 16 + c[None, :], d, mask=real)
    tl.store(g2 + record * 2416 + 2400 + c, tl.sum(d, axis=0))
    turned = tl.trans(d)
    for channel in tl.static_range(6):
        g = tl.dot(turned, _second_windows(first, record, channel))
        place = g2 + record * 2416 + c[:, None] * 150 + channel * 25 + k[None, :]
        tl.store(place, g, mask=(k < 25)[None, :])


@_jit
def _first_back_kernel(images, rows, w1, b1, w2, fine, g1, stride, B):
    record = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + record)
    base = (record // B) * stride
    weights, bias = _first_weights(w1, b1, base)
    c = tl.arange(0, 16)
    k = tl.arange(0, 32)
    g = tl.zeros((16, 32), dtype=tl.float32)
    gb = tl.zeros((16,), dtype=tl.float32)
    for start in range(0, 196, 64):
        q = start + tl.arange(0, 64)
        slope = tl.zeros((64, 16), dtype=tl.float32)
        for tap in range(25):  # back through the second convolution
            y = q // 14 - tap // 5
            x = q % 14 - tap % 5
            inside = (y >= 0) & (y < 10) & (x >= 0) & (x < 10) & (q < 196)
            place = fine + record * 1600 + (y * 10 + x)[:, None] * 16 + c[None, :]
            d = tl.load(place, mask=inside[:, None], other=0.0)
            place = w2 + base + c[:, None] * 150 + c[None, :] * 25 + tap
            slope += tl.dot(d, tl.load(place, mask=(c < 6)[None, :], other=0.0))
        for sub in tl.static_range(4):
            windows = _first_windows(images, row, q, sub)
            h = _tanh(tl.dot(windows, weights) + bias[None, :])
            d = (1 - h * h) * slope / 4
            g += tl.dot(tl.trans(d), windows)
            gb += tl.sum(d, axis=0)
    place = g1 + record * 156 + c[:, None] * 25 + k[None, :]
    tl.store(place, g, mask=(c < 6)[:, None] & (k < 25)[None, :])
    tl.store(g1 + record * 156 + 150 + c, gb, mask=c < 6)


@_jit
def _shake_kernel(flat, size, shrink, noise, seed, BLOCK: tl.constexpr):
    counter = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    quarter = size // 4
    n0, n1, n2, n3 = tl.randn4x(tl.load(seed), counter)
    real = counter < quarter
    for part in tl.static_range(4):
        place = flat + part * quarter + counter
        draw = n0 if part == 0 else (n1 if part == 1 else (n2 if part == 2 else n3))
        tl.store(place, shrink * tl.load(place, mask=real) + noise * draw, mask=real)
