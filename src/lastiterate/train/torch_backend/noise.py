# mypy: ignore-errors
"""Secure Gaussians made on the GPU: what the host's secure source does, where they are needed.

A step of many classes needs more Gaussians than a host can make in its time. Here the secret
stream is ChaCha20 under a key from the operating system, and every Gaussian is the scaled sum of
eight Box-Muller samples of different 64-bit uniforms (Holohan and Braghin 2021), as in
`lastiterate.noise`. One kernel does both; the plain version beside it says what it computes.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastiterate.train.torch_backend.fused import AVAILABLE, _jit

if AVAILABLE:
    import triton.language as tl

SAMPLES = 8  # as in lastiterate.noise.secure
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_WORD = 0xFFFFFFFF
_ROUNDS = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)


class DeviceSource:
    """Standard Gaussians on a GPU, from a key that nobody has and a counter that never repeats."""

    def __init__(self, device: torch.device) -> None:
        key = np.frombuffer(os.urandom(32), np.uint32).astype(np.int64)
        self._key = torch.from_numpy(key).to(device)
        # Two blocks make two Gaussians. The counter lives on the device and moves there, so that
        # a recorded launch (a CUDA graph) draws anew every time it is replayed.
        self._next = torch.zeros(1, dtype=torch.int64, device=device)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Independent standard Gaussians, float64."""
        count = math.prod(shape)
        pairs = -(-count // 2)
        out = torch.empty(2 * pairs, dtype=torch.float64, device=self._key.device)
        _gaussian_kernel[(-(-pairs // 128),)](self._key, self._next, out, pairs, BLOCK=128)
        self._next += 2 * pairs
        return out[:count].reshape(shape)


def plain_normal(key: Tensor, first: int, pairs: int) -> Tensor:
    """What the kernel computes, without it: Gaussians 2·pairs, the cosines first."""
    counters = first + torch.arange(2 * pairs, dtype=torch.int64)
    zero = torch.zeros_like(counters)
    last = [counters & _WORD, (counters >> 32) & _WORD, zero, zero]
    words = torch.stack(chacha20(key, last)).reshape(16, pairs, 2)
    words = words.permute(2, 0, 1).reshape(32, pairs)  # the 16 words of either block
    fractions = (words[0::2].double() * 2.0**32 + words[1::2].double() + 0.5) * 2.0**-64
    radius = torch.sqrt(torch.log(fractions[:SAMPLES]) * (-2.0 / SAMPLES))
    angle = fractions[SAMPLES:] * (2 * math.pi)
    cosines = (radius * torch.cos(angle)).sum(0)
    return torch.cat([cosines, (radius * torch.sin(angle)).sum(0)])


def chacha20(key: Tensor, last: list[Tensor]) -> list[Tensor]:
    """The block function of RFC 8439: 16 words of 32 bits, held in int64.

    Args:
        key: eight words.
        last: the last row of the state: counter and nonce, four tensors of equal shape.
    """
    one = torch.ones_like(last[0])
    start = [one * c for c in _CONSTANTS] + [one * int(k) for k in key] + list(last)
    x = list(start)
    for _ in range(10):
        for a, b, c, d in _ROUNDS:
            for turn in (16, 8):
                x[a] = (x[a] + x[b]) & _WORD
                x[d] = _rotated(x[d] ^ x[a], turn)
                x[c] = (x[c] + x[d]) & _WORD
                x[b] = _rotated(x[b] ^ x[c], turn - 4 if turn == 16 else turn - 1)
    return [(word + first) & _WORD for word, first in zip(x, start, strict=True)]


def _rotated(word: Tensor, by: int) -> Tensor:
    return ((word << by) | (word >> (32 - by))) & _WORD


@_jit
def _quarter(a, b, c, d):
    a = a + b
    d = d ^ a
    d = (d << 16) | (d >> 16)
    c = c + d
    b = b ^ c
    b = (b << 12) | (b >> 20)
    a = a + b
    d = d ^ a
    d = (d << 8) | (d >> 24)
    c = c + d
    b = b ^ c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@_jit
def _block(key, low, high):
    """ChaCha20 on many counters: 16 words of 32 bits each."""
    zero = low ^ low
    k0 = zero + tl.load(key).to(tl.uint32)
    k1 = zero + tl.load(key + 1).to(tl.uint32)
    k2 = zero + tl.load(key + 2).to(tl.uint32)
    k3 = zero + tl.load(key + 3).to(tl.uint32)
    k4 = zero + tl.load(key + 4).to(tl.uint32)
    k5 = zero + tl.load(key + 5).to(tl.uint32)
    k6 = zero + tl.load(key + 6).to(tl.uint32)
    k7 = zero + tl.load(key + 7).to(tl.uint32)
    c0 = tl.full(low.shape, 0x61707865, tl.uint32)
    c1 = tl.full(low.shape, 0x3320646E, tl.uint32)
    c2 = tl.full(low.shape, 0x79622D32, tl.uint32)
    c3 = tl.full(low.shape, 0x6B206574, tl.uint32)
    a0, a1, a2, a3 = c0, c1, c2, c3
    b0, b1, b2, b3 = k0, k1, k2, k3
    d0, d1, d2, d3 = k4, k5, k6, k7
    e0, e1, e2, e3 = low, high, zero, zero
    for _ in range(10):
        a0, b0, d0, e0 = _quarter(a0, b0, d0, e0)
        a1, b1, d1, e1 = _quarter(a1, b1, d1, e1)
        a2, b2, d2, e2 = _quarter(a2, b2, d2, e2)
        a3, b3, d3, e3 = _quarter(a3, b3, d3, e3)
        a0, b1, d2, e3 = _quarter(a0, b1, d2, e3)
        a1, b2, d3, e0 = _quarter(a1, b2, d3, e0)
        a2, b3, d0, e1 = _quarter(a2, b3, d0, e1)
        a3, b0, d1, e2 = _quarter(a3, b0, d1, e2)
    return (
        a0 + c0,
        a1 + c1,
        a2 + c2,
        a3 + c3,
        b0 + k0,
        b1 + k1,
        b2 + k2,
        b3 + k3,
        d0 + k4,
        d1 + k5,
        d2 + k6,
        d3 + k7,
        e0 + low,
        e1 + high,
        e2,
        e3,
    )


@_jit
def _fraction(high, low):
    """Two words as a number in (0, 1]."""
    return (high.to(tl.float64) * 4294967296.0 + low.to(tl.float64) + 0.5) * (1.0 / 2.0**64)


@_jit
def _sample(cosines, sines, rh, rl, ah, al):
    """One Box-Muller sample more."""
    radius = tl.sqrt(tl.log(_fraction(rh, rl)) * (-2.0 / 8.0))
    angle = _fraction(ah, al) * 6.283185307179586
    return cosines + radius * tl.cos(angle), sines + radius * tl.sin(angle)


@_jit
def _gaussian_kernel(key, first, out, pairs, BLOCK: tl.constexpr):
    """Pair i from the blocks first + 2i (radii) and first + 2i + 1 (angles); first is a pointer."""
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counter = tl.load(first) + 2 * pair.to(tl.int64)
    r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15 = _block(
        key, (counter & 0xFFFFFFFF).to(tl.uint32), (counter >> 32).to(tl.uint32)
    )
    counter = counter + 1
    a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15 = _block(
        key, (counter & 0xFFFFFFFF).to(tl.uint32), (counter >> 32).to(tl.uint32)
    )
    cosines = tl.zeros((BLOCK,), tl.float64)
    sines = tl.zeros((BLOCK,), tl.float64)
    cosines, sines = _sample(cosines, sines, r0, r1, a0, a1)
    cosines, sines = _sample(cosines, sines, r2, r3, a2, a3)
    cosines, sines = _sample(cosines, sines, r4, r5, a4, a5)
    cosines, sines = _sample(cosines, sines, r6, r7, a6, a7)
    cosines, sines = _sample(cosines, sines, r8, r9, a8, a9)
    cosines, sines = _sample(cosines, sines, r10, r11, a10, a11)
    cosines, sines = _sample(cosines, sines, r12, r13, a12, a13)
    cosines, sines = _sample(cosines, sines, r14, r15, a14, a15)
    tl.store(out + pair, cosines, mask=pair < pairs)
    tl.store(out + pairs + pair, sines, mask=pair < pairs)


def available(device: torch.device, source: Any) -> bool:
    """Whether the GPU makes the noise of a run with this source."""
    from lastiterate.noise import SecureSource

    return AVAILABLE and device.type == "cuda" and type(source) is SecureSource
