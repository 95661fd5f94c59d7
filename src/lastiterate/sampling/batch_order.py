"""Which records each step of each chain sees.

The scheme draws them. A fixed order is shared by all chains; random batches are drawn for each
chain, so that chains are independent.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Batches
from lastiterate.description.batches import Draws, Rows, weighted
from lastiterate.noise import SecureSource, SideBySide


def secret_draws(chains: int) -> Draws:
    """From the cryptographically secure source: hidden batches must be hidden."""
    return SideBySide([SecureSource()] * chains)


class SeededDraws:
    """From NumPy's generator, all chains in one call: experiments have many short chains."""

    def __init__(self, generator: np.random.Generator, chains: int) -> None:
        self._generator, self._chains = generator, chains

    def integers(self, bound: int, size: int) -> NDArray[np.int64]:
        return self._generator.integers(bound, size=(self._chains, size))

    def permutation(self, length: int) -> NDArray[np.int64]:
        everyone = np.tile(np.arange(length), (self._chains, 1))
        return self._generator.permuted(everyone, axis=1)

    def subset(self, length: int, size: int) -> NDArray[np.int64]:
        return self.permutation(length)[:, :size]

    def bernoulli(self, rate: float, size: int) -> NDArray[np.bool_]:
        flips: NDArray[np.bool_] = self._generator.random((self._chains, size)) < rate
        return flips


def batch_rows(
    batches: Batches, records: int, draws: Draws
) -> Iterator[tuple[Rows, NDArray[np.float64] | None]]:
    """Forever: the rows of the next update, and weights (for Poisson batches) or None.

    A slice, or (chains, batch).

    >>> from lastiterate.description import Cyclic
    >>> steps = batch_rows(Cyclic(2), 4, secret_draws(3))
    >>> [next(steps)[0] for _ in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(0, 2, None)]
    """
    for drawn in batches.rows(records, draws):
        rows, coins = weighted(drawn, records)
        yield rows, None if coins is None else coins.astype(np.float64)
