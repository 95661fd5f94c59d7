"""Who is in each batch: what is accounted is what is drawn.

A scheme (`batches`) says both what an accountant may assume about its batches and how they are
drawn. Trainers, samplers and audits have no other way to a batch than its `rows`.
"""

from __future__ import annotations

import secrets
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = slice | NDArray[Any]
"""One batch: a slice, or indices. Of several runs at once: a slice that they share, indices with
one row a run, or (from coins) a row of True and False for each run."""


class Draws(Protocol):
    """What batches are drawn with: a source of one run, or of several runs side by side.

    Those of several runs return one row a run. Hidden batches must be hidden: where a guarantee
    is to hold, nobody can predict the source.
    """

    def integers(self, bound: int, size: int, /) -> NDArray[np.int64]:
        """Independent uniform draws from 0, ..., bound − 1."""

    def permutation(self, length: int, /) -> NDArray[np.int64]:
        """A uniformly random order of 0, ..., length − 1."""

    def subset(self, length: int, size: int, /) -> NDArray[np.int64]:
        """A uniformly random set of ``size`` of 0, ..., length − 1."""

    def bernoulli(self, rate: float, size: int, /) -> NDArray[np.bool_]:
        """Independent coin flips that come up true with probability ``rate``."""


class Drawing(Protocol):
    """A scheme, as far as its stream knows it."""

    hidden: ClassVar[bool]
    ordered: ClassVar[bool]

    def batch(self, stream: RowStream, /) -> Rows:
        """The rows of update number ``stream.step``."""


class RowStream:
    """The rows of update 0, 1, 2, ...; a checkpoint keeps all attributes but the source.

    Attributes:
        step: the number of the next update.
        order: the secret partition or the secret picks in use, if there are any.
        nonce: its name. Two runs with equal nonces share their partition, and must not be
            composed as independent.
        kept: the records that count; the slots of others are empty. None: all of them.
    """

    def __init__(self, scheme: Drawing, records: int, source: Draws) -> None:
        self._scheme = scheme
        self.records, self.source = records, source
        self.step = 0
        self.order: NDArray[np.int64] | None = None
        self.kept: NDArray[np.bool_] | None = None
        self.nonce = secrets.token_hex(16) if scheme.hidden and scheme.ordered else None

    def __iter__(self) -> RowStream:
        return self

    def __next__(self) -> Rows:
        rows = self._scheme.batch(self)
        self.step += 1
        if self.kept is None:
            return rows
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        return rows[self.kept[rows]]

    def shuffled(self) -> NDArray[np.int64]:
        """The next secret partition: an order of all records, cut into batches."""
        return self.source.permutation(self.records)


def weighted(rows: Rows, records: int) -> tuple[Rows, NDArray[np.bool_] | None]:
    """Rows of several runs as rows of one shape, and weights (from coins) or None.

    >>> weighted(np.array([[True, False], [True, True]]), 2)[0]
    slice(0, 2, None)
    """
    if isinstance(rows, slice) or rows.dtype != bool:
        return rows, None
    return slice(0, records), rows
