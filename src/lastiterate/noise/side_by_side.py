"""The batches of several runs drawn at once, each run from a source of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lastiterate.noise.source import Source


class SideBySide:
    """Draws with one row a run; a run draws what it would draw alone.

    >>> from lastiterate.noise import SeededSource
    >>> both = SideBySide([SeededSource(1), SeededSource(2)]).permutation(5)
    >>> both.shape, bool((both[1] == SeededSource(2).permutation(5)).all())
    ((2, 5), True)
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def integers(self, bound: int, size: int) -> NDArray[np.int64]:
        """Independent uniform draws from 0, ..., bound − 1 for every run."""
        return np.stack([source.integers(bound, size) for source in self._sources])

    def permutation(self, length: int) -> NDArray[np.int64]:
        """A uniformly random order of 0, ..., length − 1 for every run."""
        return np.stack([source.permutation(length) for source in self._sources])

    def subset(self, length: int, size: int) -> NDArray[np.int64]:
        """A uniformly random set of ``size`` of 0, ..., length − 1 for every run, sorted."""
        return np.stack([source.subset(length, size) for source in self._sources])

    def bernoulli(self, rate: float, size: int) -> NDArray[np.bool_]:
        """Independent coin flips that come up true with probability ``rate``."""
        return np.stack([source.bernoulli(rate, size) for source in self._sources])
