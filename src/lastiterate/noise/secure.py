"""The secure source: noise that nobody can predict, subtract or recognise.

Two attacks are known. Whoever guesses the generator subtracts the noise: the stream of `stream`
is keyed by the operating system. And floating-point Gaussians have gaps and favourites that tell
which value was masked (Mironov 2012; Jin et al. 2022): here every Gaussian is the scaled sum of
2n = 8 Box-Muller samples of different uniform pairs, so that recognising an output means
searching through all combinations of the samples (Holohan and Braghin 2021).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.noise.rounded import checked_scale, rounded_pairs
from lastiterate.noise.stream import SecretStream

SAMPLES = 8  # 2n of Holohan and Braghin with n = 4
_AT_ONCE = 2048  # Gaussians made at once, so that the work stays in cache
_PAIRS = 4096  # rounded Gaussians made at once, by twos
_TWO_64 = 1 << 64


class SecureSource:
    """Cryptographically secure Gaussians and batches.

    >>> noise = SecureSource()
    >>> noise.normal((2, 3)).shape, sorted(noise.permutation(4).tolist())
    ((2, 3), [0, 1, 2, 3])
    """

    __slots__ = ("_stream",)  # an instance whose methods were replaced would still look like one
    secure = True

    def __init__(self) -> None:
        self._stream = SecretStream()

    def __reduce__(self) -> tuple[Any, ...]:
        return SecureSource, ()  # a copy has a life of its own

    def normal(self, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Independent standard Gaussians."""
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        out = np.empty(count)
        for first in range(0, count, _AT_ONCE):
            part = out[first : first + _AT_ONCE]
            part[:] = self._sums((len(part) + 1) // 2).ravel()[: len(part)]
        return out.reshape(shape)

    def rounded_normal(self, scale: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Independent whole numbers with exactly the law of round(scale·Z), Z standard Gaussian.

        Nothing is approximated (`rounded`): the law is that of ideal Gaussians, rounded.

        Args:
            scale: from 0 to 2^42: the standard deviation of the noise in units of its grid.
            shape: of the array.

        >>> SecureSource().rounded_normal(0.01, 3).tolist()
        [0.0, 0.0, 0.0]
        """
        scale = checked_scale(scale)
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        out = np.empty(count)
        for first in range(0, count, 2 * _PAIRS):
            part = out[first : first + 2 * _PAIRS]
            pairs = (len(part) + 1) // 2
            radius, angle = self._words(2 * pairs).reshape(2, pairs)
            part[:] = rounded_pairs(scale, radius, angle, self._word).ravel()[: len(part)]
        return out.reshape(shape)

    def _word(self) -> int:
        return int(self._words(1)[0])

    def _sums(self, pairs: int) -> NDArray[np.float64]:
        """Two rows of Gaussians: sums of the cosines and of the sines of the same samples.

        Box-Muller: r = √(−2 log u), and r·cos φ, r·sin φ are independent for a uniform angle φ.
        With t = tan(φ/2), cos φ = 2/(1 + t²) − 1 and sin φ = 2t/(1 + t²): one tangent for both.
        """
        words = self._words(2 * SAMPLES * pairs).reshape(2, SAMPLES, pairs)
        radius, tangent = (words + 0.5) * 2.0**-64  # in (0, 1], fine-grained near 0: the tails
        np.log(radius, out=radius)
        radius *= -2.0 / SAMPLES
        np.sqrt(radius, out=radius)
        tangent -= 0.5
        tangent *= math.pi
        np.tan(tangent, out=tangent)
        shrunk = tangent * tangent
        shrunk += 1
        np.divide(radius, shrunk, out=shrunk)
        tangent *= shrunk
        cosines = 2 * shrunk.sum(axis=0) - radius.sum(axis=0)
        return np.stack((cosines, 2 * tangent.sum(axis=0)))

    def _words(self, count: int) -> NDArray[np.uint64]:
        return self._stream.take(8 * count).view(np.uint64)

    def integers(self, bound: int, size: int) -> NDArray[np.int64]:
        """Independent uniform draws from 0, ..., bound − 1, exactly uniform by rejection."""
        last = np.uint64(_TWO_64 // bound * bound - 1)
        words = self._words(size)
        while (late := np.flatnonzero(words > last)).size:
            words[late] = self._words(late.size)
        return (words % np.uint64(bound)).astype(np.int64)

    def permutation(self, length: int) -> NDArray[np.int64]:
        """A uniformly random order: the order of distinct random keys."""
        while True:
            keys = self._words(length)
            order = np.argsort(keys)
            ranked = keys[order]
            if not (ranked[1:] == ranked[:-1]).any():
                return order

    def subset(self, length: int, size: int) -> NDArray[np.int64]:
        """A uniformly random set of ``size`` of 0, ..., length − 1, sorted."""
        if 2 * size > length:
            kept = np.ones(length, dtype=bool)
            kept[self.subset(length, length - size)] = False
            return np.flatnonzero(kept)
        drawn = np.empty(0, np.int64)
        while len(drawn) < size:  # the first `size` distinct values of a uniform sequence
            more = np.concatenate([drawn, self.integers(length, size + 8)])
            drawn = more[np.sort(np.unique(more, return_index=True)[1])]
        return np.sort(drawn[:size])

    def bernoulli(self, rate: float, size: int) -> NDArray[np.bool_]:
        """Independent coin flips: a 64-bit word below rate·2^64, read 16 bits first."""
        cut, rest = divmod(math.floor(rate * 2.0**64), 1 << 48)
        high = self._stream.take(2 * size).view(np.uint16)
        hits: NDArray[np.bool_] = high < cut
        ties = np.flatnonzero(high == cut)
        hits[ties] = (self._words(ties.size) >> np.uint64(16)) < rest
        return hits

    def state(self) -> None:
        """Nothing is kept: noise after a checkpoint is fresh."""
        return None

    def restore(self, state: dict[str, Any] | None) -> None:
        """Nothing to restore."""
