"""Batches in chunks of one size, in which every record has one place.

A vectorised gradient is a function of its record only up to rounding: how a product is blocked
depends on the number of rows and on the place of a row, and so on who shares the batch. In chunks
of one size the blocking is always the same, and record i is always row i mod size: what is computed
for it is the same, to the last bit, whoever the companions are. Empty places are filled up with
records whose gradients are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Training

Indices = NDArray[np.int64]


def chunk_size(training: Training, most: int) -> int:
    """Return how many records a chunk holds, at most ``most``.

    Batches in order fill their chunks. Random ones fill them unevenly: smaller chunks leave fewer
    places empty, and more calls are made.

    >>> from lastiterate import Cyclic, Poisson
    >>> run = Training(records=1000, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=Cyclic(100))
    >>> poisson = run.replace(batches=Poisson(0.1), adjacency="zero-out")
    >>> chunk_size(run, 64), chunk_size(run, 1024), chunk_size(poisson, 1024)
    (64, 100, 25)
    """
    expected = math.ceil(training.batches.divisor(training.records))
    wanted = math.ceil(expected / 4) if training.batches.hidden else expected
    return max(1, min(wanted, most, training.records))


def placed(index: Indices, size: int) -> Iterator[tuple[Indices, Indices, Indices]]:
    """Yield (positions in ``index``, places of these records, the records of the whole chunk).

    Every position comes once. A chunk has ``size`` records, number i in place i mod size.

    >>> for at, places, chunk in placed(np.array([1, 5, 6]), 4):
    ...     print(at, places, chunk)
    [0 2] [1 2] [0 1 6 3]
    [1] [1] [0 5 2 3]
    """
    place = index % size
    order = np.argsort(place, kind="stable")
    inside = place[order]
    turn = np.arange(len(index)) - np.searchsorted(inside, inside)
    for k in range(int(turn.max(initial=-1)) + 1):
        at = order[turn == k]
        chunk = np.arange(size)
        chunk[place[at]] = index[at]
        yield at, place[at], chunk
