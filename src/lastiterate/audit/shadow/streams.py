"""Randomness of many models at once: each model has a stream of its own.

So a model depends on its seed alone, whatever cohort, worker or backend it is trained in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.noise import SeededSource, SideBySide

Array = NDArray[Any]

_BLOCK = 1 << 22  # numbers drawn ahead, for all models together


class Streams:
    """One generator per seed.

    >>> together = Streams([1, 2]).normals(3, (2,), np.float64)
    >>> alone = Streams([2]).normals(3, (2,), np.float64)
    >>> bool((next(together)[1] == next(alone)[0]).all())
    True
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.generators = [np.random.Generator(np.random.SFC64(seed)) for seed in seeds]
        self._seeds = seeds

    @cached_property
    def batches(self) -> SideBySide:
        """A second generator per seed: noise is drawn ahead in blocks, batches are not."""
        own = [np.random.Generator(np.random.SFC64([seed, 1])) for seed in self._seeds]
        return SideBySide([SeededSource(generator) for generator in own])

    def normals(self, steps: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """Yields, for every step, standard normals of shape (models, *shape).

        Drawn step after step in each stream, so the block length does not matter.
        """
        models, each = len(self.generators), int(np.prod(shape))
        ahead = max(1, min(steps, _BLOCK // max(1, models * each)))
        block = np.empty((models, ahead, *shape), dtype)
        for first in range(0, steps, ahead):
            count = min(ahead, steps - first)
            for row, generator in zip(block, self.generators, strict=True):
                generator.standard_normal(out=row[:count], dtype=dtype)
            for k in range(count):
                yield block[:, k]
