"""A seeded source, for experiments.

Whoever knows the seed knows the noise: a run on this source protects nobody, and no certificate
is given for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError
from lastiterate.noise.rounded import checked_scale

Seed = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None


def generator(seed: Seed) -> np.random.Generator:
    """NumPy's generator of this seed; of None one that nobody seeded.

    >>> bool(generator(7).integers(100) == generator(7).integers(100))
    True
    """
    if isinstance(seed, np.random.RandomState):  # scikit-learn's convention
        return np.random.default_rng(seed.randint(0, 2**31, size=4))
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        why = "a run is repeated from a seed that NumPy takes, or has none"
        allowed = "None, a whole number at least 0 or a generator of NumPy"
        raise DescriptionError("random_state", seed, allowed, why) from None


def another(seed: Any, number: int) -> Any:
    """The seed of another mechanism of one experiment, so that their noise is independent.

    A generator goes on drawing, and None has no seed: both stay.

    >>> another(7, 1) != another(7, 2) != 7, another(None, 1) is None
    (True, True)
    """
    if isinstance(seed, int | np.integer) and seed >= 0:
        words = np.random.SeedSequence(int(seed), spawn_key=(number,)).generate_state(1, np.uint64)
        return int(words[0])
    return seed


class SeededSource:
    """NumPy's generator behind the interface of a source.

    >>> SeededSource(1).normal(3).tolist() == SeededSource(1).normal(3).tolist()
    True
    """

    secure = False

    def __init__(self, seed: Seed) -> None:
        self._generator = generator(seed)

    def normal(self, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Independent standard Gaussians."""
        return self._generator.standard_normal(shape)

    def rounded_normal(self, scale: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Independent Gaussians of this standard deviation, rounded to whole numbers."""
        rounded: NDArray[np.float64] = np.rint(checked_scale(scale) * self.normal(shape)) + 0.0
        return rounded

    def integers(self, bound: int, size: int) -> NDArray[np.int64]:
        """Independent uniform draws from 0, ..., bound − 1."""
        return self._generator.integers(0, bound, size)

    def permutation(self, length: int) -> NDArray[np.int64]:
        """A uniformly random order of 0, ..., length − 1."""
        return self._generator.permutation(length)

    def subset(self, length: int, size: int) -> NDArray[np.int64]:
        """A uniformly random set of ``size`` of 0, ..., length − 1, sorted."""
        return np.sort(self._generator.choice(length, size, replace=False, shuffle=False))

    def bernoulli(self, rate: float, size: int) -> NDArray[np.bool_]:
        """Independent coin flips that come up true with probability ``rate``."""
        flips: NDArray[np.bool_] = self._generator.random(size) < rate
        return flips

    def state(self) -> dict[str, Any]:
        """The generator's state: a resumed experiment is the uninterrupted one."""
        return dict(self._generator.bit_generator.state)

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from a checkpoint."""
        if state is not None:
            self._generator.bit_generator.state = state
