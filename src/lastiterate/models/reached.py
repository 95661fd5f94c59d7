"""Which bins the values of a column reach, guessed from shares with Gaussian noise on each.

Whatever is computed here is computed from released numbers, and costs nothing. A bin is sure if no
noise among all is likely to be so large. Where sure bins do not hold most of the records, the
likelier of two stories is added: the column is like all columns together, or its records are spread
evenly over a few bins in a row, perhaps with the bin around 0 beside them. Up to a constant the
logarithm of the likelihood of a story, the shares p, is ⟨s, p⟩ − ‖p‖²/2 over the squared noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
RARE = 0.02  # a bin with this share of the records should be seen
MOST_OF_ALL = 0.8  # of the records: then sure bins are all
IN_A_ROW = 6  # bins at most
SURE = 1.0  # deviations above the largest of so many noises
NEIGHBOUR = 2.0  # deviations of the noise, beside a bin that is reached
DOUBTFUL = 4.0  # logarithm of a likelihood, against no records at all, that noise alone can reach


def reached(shares: Array, noise: float) -> Array:
    """Marks the bins (columns, bins) that are reached; none where noise may be all there is.

    >>> shares = np.zeros((1, 9))
    >>> shares[0, 5:8] = 0.2, 0.45, 0.35
    >>> reached(shares, 0.1).astype(int)
    array([[0, 0, 0, 0, 0, 0, 1, 1, 0]])
    >>> reached(shares, 0.01).astype(int)
    array([[0, 0, 0, 0, 0, 1, 1, 1, 0]])
    """
    columns, bins = shares.shape
    largest = noise * (math.sqrt(2 * math.log(columns * bins)) + SURE)
    sure = shares > max(RARE, largest)
    common = shares.mean(axis=0)
    clear = noise / math.sqrt(columns) * (math.sqrt(2 * math.log(bins)) + SURE)
    common = np.where(common > clear, common, 0.0)
    alike = shares @ common - common @ common / 2
    row, own, stories = _in_a_row(shares)
    story = np.where((own - math.log(stories) * noise**2 > alike)[:, None], row, common > 0)
    story &= (common > 0).any() | (own > DOUBTFUL * noise**2)[:, None]
    most = np.where(sure, shares, 0.0).sum(axis=1) > MOST_OF_ALL
    seen = np.where(most[:, None], sure, sure | story)
    return _with_neighbours(seen, shares > max(RARE, NEIGHBOUR * noise))


def _in_a_row(shares: Array) -> tuple[Array, Array, int]:
    """The likeliest bins in a row of each column, with or without that around 0, the middle one.

    Also the logarithm of their likelihood times the squared noise, and how many were compared.
    """
    columns, bins = shares.shape
    zero = bins // 2
    sums = np.hstack([np.zeros((columns, 1)), np.cumsum(shares, axis=1)])
    best, seen = np.full(columns, -np.inf), np.zeros(shares.shape, dtype=bool)
    place = np.arange(bins)
    for length in range(1, IN_A_ROW + 1):
        held = sums[:, length:] - sums[:, :-length]
        first = np.arange(held.shape[1])
        around = (first <= zero) & (zero < first + length)
        for beside in (0, 1):
            score = (held + beside * shares[:, zero, None] - 0.5) / (length + beside)
            if beside:
                score[:, around] = -np.inf
            start = score.argmax(axis=1)[:, None]
            found = np.take_along_axis(score, start, axis=1)[:, 0]
            row = (start <= place) & (place < start + length) | (place == zero) & (beside == 1)
            seen = np.where((found > best)[:, None], row, seen)
            best = np.maximum(found, best)
    return seen, best, 2 * IN_A_ROW * bins


def _with_neighbours(seen: Array, able: Array) -> Array:
    """What is reached, and what is able to be beside it, and beside that."""
    while True:
        beside = np.zeros_like(seen)
        beside[:, 1:] |= seen[:, :-1]
        beside[:, :-1] |= seen[:, 1:]
        more = seen | beside & able
        if (more == seen).all():
            return seen
        seen = more
