"""Which records each step of each chain sees.

Turns a batch scheme into the rows of every update. A fixed order is shared by all chains; random
schemes are drawn for each chain, so that chains are independent, unless sharing is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import (
    Batches,
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    WithoutReplacement,
)
from lastiterate.errors import UnsupportedError

Rows = slice | NDArray[np.int64]


class Order(Protocol):
    """What random batches are drawn with: NumPy's generator, or a `SecretOrder`."""

    def permutation(self, x: int, /) -> NDArray[Any]:
        """A uniformly random order of 0, ..., x - 1."""

    def permuted(self, x: NDArray[Any], /, *, axis: int) -> NDArray[Any]:
        """Every row of ``x`` in a random order of its own."""

    def random(self, size: tuple[int, ...], /) -> NDArray[np.float64]:
        """Uniform numbers in [0, 1)."""


class SecretOrder:
    """Batches from the cryptographically secure source: hidden batches must be hidden."""

    def __init__(self) -> None:
        from lastiterate.noise import SecureSource

        self._source = SecureSource()

    def permutation(self, x: int) -> NDArray[Any]:
        return self._source.permutation(x)

    def permuted(self, x: NDArray[Any], *, axis: int) -> NDArray[Any]:
        assert axis == 1
        return np.stack([row[self._source.permutation(len(row))] for row in x])

    def random(self, size: tuple[int, ...]) -> NDArray[np.float64]:
        words = self._source.integers(2**53, int(np.prod(size)))
        return np.asarray(words * 2.0**-53).reshape(size)


def batch_rows(
    batches: Batches, records: int, chains: int | None, generator: Order
) -> Iterator[tuple[Rows, NDArray[np.float64] | None]]:
    """Forever: the rows of the next update, and weights (for Poisson batches) or None.

    ``chains`` None: one order for all chains, rows of shape (batch,). Otherwise (chains, batch).

    >>> steps = batch_rows(Cyclic(2), 4, None, np.random.default_rng(0))
    >>> [next(steps)[0] for _ in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(0, 2, None)]
    """
    everything = slice(0, records)
    if isinstance(batches, FullBatch):
        while True:
            yield everything, None
    elif isinstance(batches, Poisson):
        shape = (records,) if chains is None else (chains, records)
        while True:
            yield everything, (generator.random(shape) < batches.rate).astype(np.float64)
    elif isinstance(batches, WithoutReplacement):
        while True:
            yield _shuffle(records, chains, generator)[..., : batches.size], None
    elif isinstance(batches, Cyclic):
        while True:
            for k in range(batches.per_epoch(records)):
                yield slice(k * batches.size, (k + 1) * batches.size), None
    elif isinstance(batches, Shuffled | Reshuffled):
        order = _shuffle(records, chains, generator)
        while True:
            for k in range(batches.per_epoch(records)):
                yield order[..., k * batches.size : (k + 1) * batches.size], None
            if isinstance(batches, Reshuffled):
                order = _shuffle(records, chains, generator)
    else:
        raise UnsupportedError(
            f"batches is {batches!r}, and no sampler knows this scheme: use FullBatch(), "
            "Cyclic(size), Shuffled(size), Reshuffled(size), WithoutReplacement(size) or "
            "Poisson(rate)."
        )


def _shuffle(records: int, chains: int | None, generator: Order) -> Any:
    if chains is None:
        return generator.permutation(records)
    return generator.permuted(np.tile(np.arange(records), (chains, 1)), axis=1)
