"""What a run asks of its source of randomness, and which source it gets."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate.noise.secure import SecureSource
from lastiterate.noise.seeded import Seed, SeededSource
from lastiterate.noise.stream import SecretStream

_CLASSES = SecureSource, SecretStream
_AS_WRITTEN = [dict(vars(each)) for each in _CLASSES]


class Source(Protocol):
    """Gaussian noise and the draws that pick batches, all from one stream."""

    @property
    def secure(self) -> bool:
        """Whether nobody can predict it, by its own word; see `unpredictable`."""

    def normal(self, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Independent standard Gaussians."""

    def rounded_normal(self, scale: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Independent whole numbers with the law of round(scale·Z), Z standard Gaussian."""

    def integers(self, bound: int, size: int) -> NDArray[np.int64]:
        """Independent uniform draws from 0, ..., bound − 1."""

    def permutation(self, length: int) -> NDArray[np.int64]:
        """A uniformly random order of 0, ..., length − 1."""

    def subset(self, length: int, size: int) -> NDArray[np.int64]:
        """A uniformly random set of ``size`` of 0, ..., length − 1, sorted."""

    def bernoulli(self, rate: float, size: int) -> NDArray[np.bool_]:
        """Independent coin flips that come up true with probability ``rate``."""

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps so that draws go on as they would have; None: fresh draws."""

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from a checkpoint."""


def unpredictable(source: Source) -> bool:
    """Whether a run on this source may be certified: only this library's own secure one.

    Anybody can write ``secure = True`` into a class, a subclass may draw from anywhere, and so may
    the secure source itself after somebody replaced one of its methods or its stream.

    >>> unpredictable(SecureSource()), unpredictable(SeededSource(7))
    (True, False)
    """
    if type(source) is not SecureSource:
        return False
    stream = source._stream
    whole = type(stream) is SecretStream and vars(stream).keys() == {"_waiting"}
    return whole and [dict(vars(each)) for each in _CLASSES] == _AS_WRITTEN


def source(random_state: Seed = None) -> Source:
    """The secure source, or a seeded one for experiments that must be reproducible.

    >>> source().secure, source(random_state=7).secure
    (True, False)
    """
    return SecureSource() if random_state is None else SeededSource(random_state)
