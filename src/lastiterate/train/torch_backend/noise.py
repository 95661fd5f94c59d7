# mypy: ignore-errors
"""Secure Gaussians made on the GPU, rounded to whole numbers: exactly the law of round(scale·Z).

A step of many classes needs more Gaussians than a host can make in its time. The secret stream is
ChaCha20 under a key from the operating system. Every pair of Gaussians is the function of uniform
numbers that `lastiterate.noise.decision` states, of 127 and 128 bits, in sums of two doubles: where
those cannot tell which whole number is nearest (about one draw in 2^33), the host takes the same
bits, and more of them if need be, and decides without error. Nothing is drawn anew, and the law is
that of ideal Gaussians: total variation 0.

**What the kernel knows.** Its X and Y are within 2⁻⁷⁷ of the pair that the bits (however they go
on) stand for, where neither u nor 1 − u is below 2⁻³⁰. *Why.* Sums and products of two doubles each
are good to 2⁻¹⁰⁰ relatively (Dekker 1971; no operation may be contracted). ln m = 2·artanh(s) with
|s| < .1716: the series is cut off below 2⁻⁹⁶, and its coefficients from s²⁰ on, below 2⁻⁵⁰ of the
first, may be doubles; sine and cosine likewise, cut off below 2⁻⁹⁷, doubles from below 2⁻⁴⁹. Bits
that are not known move u by 2⁻¹²⁷, the radius by 2⁻¹²⁷/(u·radius) < 2⁻⁹⁶. The sum of all that is
below 2⁻⁹⁰ times the radius, which is below 6.5; where 1 − u is small its doubles are good to 2⁻¹⁰⁴
absolutely, and the radius to 2⁻¹⁰⁴/radius < 2⁻⁸⁹. 2⁻⁷⁷ leaves a factor of some thousands.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastiterate.noise import SecureSource
from lastiterate.noise.decision import decided
from lastiterate.noise.rounded import checked_scale
from lastiterate.train.torch_backend.triton_support import AVAILABLE, jit

if AVAILABLE:
    import triton.language as tl

_OFF = 2.0**-77  # of the scale: where the kernel does not trust itself
_LAST_BITS = 2.0**-50  # of a distance of one half
_MOST = 1 << 22  # Gaussians that are made at once
_LANES = 128
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
    """Rounded Gaussians on a GPU, from a key that nobody has and a counter that never repeats.

    They are made ahead, more and more of them at once, so that the host seldom waits to see
    whether it has to decide some.
    """

    def __init__(self, device: torch.device) -> None:
        key = np.frombuffer(os.urandom(32), np.uint32).astype(np.int64)
        self._key = torch.from_numpy(key).to(device)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)
        self._made = 0  # blocks, as ``_next`` says on the device
        self._scale, self._ahead = math.nan, 0
        self._left = torch.empty(0, dtype=torch.float64, device=device)

    def rounded_normal(self, scale: float, shape: tuple[int, ...]) -> Tensor:
        """Independent whole numbers with exactly the law of round(scale·Z); float64."""
        scale, count = checked_scale(scale), math.prod(shape)
        if scale != self._scale or count > len(self._left):
            again = scale == self._scale
            self._ahead = max(count, min(_MOST, 2 * self._ahead)) if again else count
            self._scale, self._left = scale, self._drawn(scale, self._ahead)
        taken, self._left = self._left[:count], self._left[count:]
        return taken.reshape(shape)

    def _drawn(self, scale: float, count: int, off: float | None = None) -> Tensor:
        """So many fresh ones; ``off``: how much the kernel is not to trust itself."""
        blocks = -(-count // 4)
        device = self._key.device
        out = torch.empty(4 * blocks, dtype=torch.float64, device=device)
        doubts = torch.zeros(2 * blocks, dtype=torch.int8, device=device)
        room = _OFF * scale + _LAST_BITS if off is None else off
        numbers = torch.tensor([scale, 0.5 - room], dtype=torch.float64, device=device)
        _rounded_kernel[(-(-blocks // _LANES),)](
            self._key,
            self._next,
            numbers,
            out,
            doubts,
            blocks,
            BLOCK=_LANES,
            enable_fp_fusion=False,
        )
        first, self._made = self._made, self._made + blocks
        self._next += blocks
        # Waits for the kernel, and is all that the host looks at, but for once in 2^33 draws.
        for pair in torch.nonzero(doubts)[:, 0].tolist():
            words = pair_words(self._key.cpu(), first + pair // 2, pair % 2)
            pair_out = decided(scale, words[0], words[2], _bits(words[1], words[3]))
            out[pair], out[2 * blocks + pair] = (float(whole) for whole in pair_out)
        return out[:count]


def pair_words(key: Tensor, block: int, half: int) -> list[int]:
    """The four 64-bit words of a pair: those of its radius, then those of its angle."""
    last = [torch.tensor([w]) for w in (block & _WORD, block >> 32, 0, 0)]
    words = [int(word) for word in chacha20(key, last)][8 * half : 8 * half + 8]
    return [(high << 32) | low for high, low in zip(words[::2], words[1::2], strict=True)]


def _bits(*known: int) -> Callable[[], int]:
    """More bits of a pair: the known ones first, then fresh ones."""
    left = list(known)

    def more() -> int:
        return left.pop(0) if left else int.from_bytes(os.urandom(8), "little")

    return more


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


@jit
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


@jit
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


@jit
def _two_sum(a, b):
    """a + b as a double and what it rounded off."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@jit
def _quick_sum(a, b):
    """The same where |a| is not below |b|."""
    s = a + b
    return s, b - (s - a)


@jit
def _halves(a):
    t = a * 134217729.0
    high = t - (t - a)
    return high, a - high


@jit
def _two_product(a, b):
    """a·b as a double and what it rounded off."""
    p = a * b
    ah, al = _halves(a)
    bh, bl = _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@jit
def _add(ah, al, bh, bl):
    s, e = _two_sum(ah, bh)
    t, f = _two_sum(al, bl)
    s, e = _quick_sum(s, e + t)
    return _quick_sum(s, e + f)


@jit
def _multiply(ah, al, bh, bl):
    p, e = _two_product(ah, bh)
    return _quick_sum(p, e + (ah * bl + al * bh))


@jit
def _divide(ah, al, bh, bl):
    q = ah / bh
    p, e = _two_product(q, bh)
    rest = ((ah - p) - e) + al - q * bl
    return _quick_sum(q, rest / bh)


@jit
def _root(ah, al):
    r = tl.sqrt(ah)
    p, e = _two_product(r, r)
    rest = ((ah - p) - e) + al
    return _quick_sum(r, rest / (r + r))


@jit
def _step(th, tl_, zh, zl, ch, cl):
    """(t·z) + c."""
    th, tl_ = _multiply(th, tl_, zh, zl)
    return _add(th, tl_, ch, cl)


@jit
def _fixed(w0, w1, w2, w3):
    """w0·2⁻³¹ + w1·2⁻⁶³ + w2·2⁻⁹⁵ + w3·2⁻¹²⁷; w0 is a double."""
    a = w0 * 4.656612873077393e-10
    b = w1.to(tl.float64) * 1.0842021724855044e-19
    c = w2.to(tl.float64) * 2.524354896707238e-29
    d = w3.to(tl.float64) * 5.877471754111438e-39
    h, e = _two_sum(a, b)
    t, f = _two_sum(c, d)
    e, g = _two_sum(e, t)
    h, e = _quick_sum(h, e)
    return _quick_sum(h, e + (f + g))


@jit
def _artanh(sh, sl, zh, zl):
    """2·artanh(s), z = s²."""
    t = zh * 0.05405405405405406 + 0.05714285714285714
    t = t * zh + 0.06060606060606061
    t = t * zh + 0.06451612903225806
    t = t * zh + 0.06896551724137931
    t = t * zh + 0.07407407407407407
    t = t * zh + 0.08
    t = t * zh + 0.08695652173913043
    t = t * zh + 0.09523809523809523
    th, tl_ = t, t * 0.0
    th, tl_ = _step(th, tl_, zh, zl, 0.10526315789473684, 5.843279076974508e-18)
    th, tl_ = _step(th, tl_, zh, zl, 0.11764705882352941, 1.6326809185664067e-18)
    th, tl_ = _step(th, tl_, zh, zl, 0.13333333333333333, 1.8503717077085942e-18)
    th, tl_ = _step(th, tl_, zh, zl, 0.15384615384615385, -8.540177112501205e-18)
    th, tl_ = _step(th, tl_, zh, zl, 0.18181818181818182, -5.046468293750712e-18)
    th, tl_ = _step(th, tl_, zh, zl, 0.2222222222222222, 1.2335811384723961e-17)
    th, tl_ = _step(th, tl_, zh, zl, 0.2857142857142857, 1.586032892321652e-17)
    th, tl_ = _step(th, tl_, zh, zl, 0.4, -2.2204460492503132e-17)
    th, tl_ = _step(th, tl_, zh, zl, 0.6666666666666666, 3.700743415417188e-17)
    th, tl_ = _step(th, tl_, zh, zl, 2.0, 0.0)
    return _multiply(th, tl_, sh, sl)


@jit
def _sine(fh, fl, yh, yl):
    """sin(πf/4), y = f²."""
    t = yh * 1.5367433955014593e-28 + -1.4947647339528295e-25
    t = t * yh + 1.2261499847700472e-22
    t = t * yh + -8.348589834811673e-20
    t = t * yh + 4.628704628834683e-17
    th, tl_ = t, t * 0.0
    th, tl_ = _step(th, tl_, yh, yl, -2.0410263396641442e-14, 1.3642503584442286e-30)
    th, tl_ = _step(th, tl_, yh, yl, 6.948453273886629e-12, 1.595103999031106e-28)
    th, tl_ = _step(th, tl_, yh, yl, -1.757247673443401e-09, -7.935240663536625e-26)
    th, tl_ = _step(th, tl_, yh, yl, 3.1336168903781217e-07, -1.4676257344427704e-23)
    th, tl_ = _step(th, tl_, yh, yl, -3.657620418217725e-05, 1.7364661332386583e-21)
    th, tl_ = _step(th, tl_, yh, yl, 0.0024903945701927202, -7.745123384107965e-20)
    th, tl_ = _step(th, tl_, yh, yl, -0.08074551218828079, 3.541503566529601e-18)
    th, tl_ = _step(th, tl_, yh, yl, 0.7853981633974483, 3.061616997868383e-17)
    return _multiply(th, tl_, fh, fl)


@jit
def _cosine(yh, yl):
    """cos(πf/4), y = f²."""
    t = yh * -4.6421363093846334e-30 + 4.8916061531576154e-27
    t = t * yh + -4.377345209491838e-24
    t = t * yh + 3.2784835616098472e-21
    t = t * yh + -2.019653396886682e-18
    t = t * yh + 1.001886461636272e-15
    th, tl_ = t, t * 0.0
    th, tl_ = _step(th, tl_, yh, yl, -3.8980731712596753e-13, -9.0196959077003e-30)
    th, tl_ = _step(th, tl_, yh, yl, 1.1501159127974052e-10, -5.7634818196218946e-27)
    th, tl_ = _step(th, tl_, yh, yl, -2.4611369504942e-08, 1.115981166781641e-24)
    th, tl_ = _step(th, tl_, yh, yl, 3.59086044859151e-06, -1.9200234339484294e-23)
    th, tl_ = _step(th, tl_, yh, yl, -0.00032599188692739, 7.76739206351315e-22)
    th, tl_ = _step(th, tl_, yh, yl, 0.015854344243815502, -1.0391406571991658e-18)
    th, tl_ = _step(th, tl_, yh, yl, -0.30842513753404244, -1.9579048464811598e-17)
    th, tl_ = _step(th, tl_, yh, yl, 1.0, 0.0)
    return th, tl_


@jit
def _radius(uh, ul):
    """√(−2 ln u): u = m·2^k with √½ ≤ m < √2, ln m = 2·artanh((m − 1)/(m + 1))."""
    k = (uh.to(tl.int64, bitcast=True) - 4604544271217802189) >> 52
    power = ((1023 - k) << 52).to(tl.float64, bitcast=True)
    mh = uh * power
    ml = ul * power
    nh, nl = _two_sum(mh, -1.0)
    nh, nl = _quick_sum(nh, nl + ml)
    dh, dl = _two_sum(mh, 1.0)
    dh, dl = _quick_sum(dh, dl + ml)
    sh, sl = _divide(nh, nl, dh, dl)
    zh, zl = _multiply(sh, sl, sh, sl)
    gh, gl = _artanh(sh, sl, zh, zl)
    k = k.to(tl.float64)
    eh, el = _two_product(k, k * 0.0 + 0.6931471805599453)  # a bare number would be a float32
    eh, el = _quick_sum(eh, el + k * 2.3190468138462996e-17)
    gh, gl = _add(gh, gl, eh, el)
    return _root(gh * -2.0, gl * -2.0)


@jit
def _whole(ah, al, rh, rl, scale):
    """The whole number nearest to scale·a·r, and how far from it that is."""
    h, e = _multiply(ah, al, rh, rl)
    p, f = _two_product(h, scale)
    h, e = _quick_sum(p, f + e * scale)
    near = (h + 6755399441055744.0) - 6755399441055744.0
    away = (h - near) + e
    up = tl.where(away > 0.5, 1.0, tl.where(away < -0.5, -1.0, 0.0))
    return near + up + 0.0, tl.abs(away - up)


@jit
def _pair(w0, w1, w2, w3, w4, w5, w6, w7, numbers):
    """Two rounded Gaussians, and whether a double word can tell them."""
    scale = tl.load(numbers)
    room = tl.load(numbers + 1)
    uh, ul = _fixed((w0 & 0x7FFFFFFF).to(tl.float64), w1, w2, w3)
    doubt = (uh < 9.313225746154785e-10) | (uh > 1.0 - 9.313225746154785e-10)
    uh = tl.where(doubt, 0.5, uh)
    rh, rl = _radius(uh, tl.where(doubt, 0.0, ul))
    left = (w0 >> 31) > 0
    rh = tl.where(left, -rh, rh)
    rl = tl.where(left, -rl, rl)
    fh, fl = _fixed(w4.to(tl.int32).to(tl.float64), w5, w6, w7)
    yh, yl = _multiply(fh, fl, fh, fl)
    sh, sl = _sine(fh, fl, yh, yl)
    ch, cl = _cosine(yh, yl)
    ah, al = _multiply(sh, sl, sh, sl)
    ah, al = _add(ah * -2.0, al * -2.0, 1.0, 0.0)
    x, away = _whole(ah, al, rh, rl, scale)
    doubt = doubt | (away > room)
    ah, al = _multiply(sh, sl, ch, cl)
    y, away = _whole(ah * 2.0, al * 2.0, rh, rl, scale)
    return x, y, doubt | (away > room)


@jit
def _rounded_kernel(key, first, numbers, out, doubts, blocks, BLOCK: tl.constexpr):
    """Pairs 2i and 2i + 1 from block first + i; first is a pointer."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counter = tl.load(first) + lane.to(tl.int64)
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 = _block(
        key, (counter & 0xFFFFFFFF).to(tl.uint32), (counter >> 32).to(tl.uint32)
    )
    here = lane < blocks
    x, y, doubt = _pair(w0, w1, w2, w3, w4, w5, w6, w7, numbers)
    tl.store(out + 2 * lane, x, mask=here)
    tl.store(out + 2 * blocks + 2 * lane, y, mask=here)
    tl.store(doubts + 2 * lane, doubt.to(tl.int8), mask=here)
    x, y, doubt = _pair(w8, w9, w10, w11, w12, w13, w14, w15, numbers)
    tl.store(out + 2 * lane + 1, x, mask=here)
    tl.store(out + 2 * blocks + 2 * lane + 1, y, mask=here)
    tl.store(doubts + 2 * lane + 1, doubt.to(tl.int8), mask=here)


def available(device: torch.device, source: Any) -> bool:
    """Whether the GPU makes the noise of a run with this source."""
    return AVAILABLE and device.type == "cuda" and type(source) is SecureSource
