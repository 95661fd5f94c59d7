"""Which records each update uses: the index stream of a batch scheme.

Hidden batches must be hidden, so they come from the run's own source. The stream can be kept in a
checkpoint: a resumed run goes on with the partition it had.
"""

from __future__ import annotations

import secrets

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
from lastiterate.noise import Source

Rows = slice | NDArray[np.int64]


class BatchStream:
    """The rows of update 0, 1, 2, ... as the scheme describes them.

    >>> from lastiterate.noise import source
    >>> stream = BatchStream(Cyclic(2), 5, source())
    >>> [next(stream) for _ in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(0, 2, None)]
    """

    def __init__(self, batches: Batches, records: int, source: Source) -> None:
        self._batches = batches
        self._records = records
        self._source = source
        self.step = 0
        self.order: NDArray[np.int64] | None = None
        # Two runs with equal nonces share their partition and must not be composed as independent.
        hidden = isinstance(batches, (Shuffled, Reshuffled))
        self.nonce = secrets.token_hex(16) if hidden else None

    def __next__(self) -> Rows:
        batches, n = self._batches, self._records
        step = self.step
        self.step += 1
        if isinstance(batches, FullBatch):
            return slice(0, n)
        if isinstance(batches, Poisson):
            return np.flatnonzero(self._source.bernoulli(batches.rate, n))
        if isinstance(batches, WithoutReplacement):
            return self._source.subset(n, batches.size)
        k = step % batches.per_epoch(n)
        if isinstance(batches, Cyclic):
            return slice(k * batches.size, (k + 1) * batches.size)
        if self.order is None or (k == 0 and isinstance(batches, Reshuffled)):
            self.order = self._source.permutation(n)
        return self.order[k * batches.size : (k + 1) * batches.size]
