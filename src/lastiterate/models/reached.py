"""Which bins the values of a column reach, guessed from shares with Gaussian noise on each.

Whatever is computed here is computed from released numbers, and costs nothing. A bin is sure if
noise alone exceeds its share with probability `FALSE_ALARM` at most, over all bins and columns.
Where sure bins do not hold most of the records, the likelier of two stories is added: the column is
like all columns together, or its records are spread evenly over a few bins in a row, perhaps with
the bin around 0 beside them. Up to a constant the logarithm of the likelihood of a story, the
shares p, is ⟨s, p⟩ − ‖p‖²/2 over the squared noise.

A story alone proves nothing: where columns differ by more than noise, a column does not have the
bins of all columns that its own shares contradict; and beside sure bins, the bins of a story are
added only if noise alone explains neither their sum nor any of them. Otherwise a column of 0 and 1
gets the range of the numbers beside it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[Any]
RARE = 0.02  # a bin with this share of the records should be seen
MOST_OF_ALL = 0.8  # of the records: then sure bins are all
IN_A_ROW = 6  # bins at most
SURE = 1.0  # deviations above the largest of so many noises, for which budgets are planned
FALSE_ALARM = 1e-4  # probability that noise alone adds a bin to any range
_NO_NUMBER = 1e-300  # a squared noise may be below all numbers
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
    sure = shares > max(RARE, noise * _limit(columns * bins))
    sure[:, bins // 2] |= shares[:, bins // 2] > max(RARE, noise * _limit(columns))
    common = shares.mean(axis=0)
    less = noise / math.sqrt(columns)
    clear = _with_neighbours((common > less * _limit(bins))[None], common[None], less)[0]
    common = np.where(clear, common, 0.0)
    alike = shares @ common - common @ common / 2
    row, own, stories = _in_a_row(shares)
    some = np.asarray(sure.any(axis=1))
    unlike = own - math.log(stories) * noise**2 > alike
    story = np.where(unlike[:, None], row, _not_contradicted(shares, common, noise))
    story &= (common > 0).any() | (own > DOUBTFUL * noise**2)[:, None]
    proved = _above_noise(shares, story & ~sure, noise, columns * stories)
    story &= ~some[:, None] | proved[:, None] & (shares > noise * _limit(1))
    most = np.where(sure, shares, 0.0).sum(axis=1) > MOST_OF_ALL
    seen = np.where(most[:, None], sure, sure | story)
    return _with_neighbours(seen, shares, noise)


def _limit(count: int) -> float:
    """Deviations that the largest of so many noises exceeds with probability `FALSE_ALARM`."""
    return float(norm.isf(FALSE_ALARM / count))


def _above_noise(shares: Array, block: Array, noise: float, count: int) -> Array:
    """Columns whose shares in a block add up to more than noise in one of ``count`` blocks does."""
    sums = np.where(block, shares, 0.0).sum(axis=1)
    return np.asarray(sums > noise * np.sqrt(block.sum(axis=1)) * _limit(count))


def _not_contradicted(shares: Array, common: Array, noise: float) -> Array:
    """Bins of all columns together, without those of which a column has clearly less.

    Each share is drawn to the mean over columns, as far as noise makes columns differ (empirical
    Bayes), and compared with half of that mean.
    """
    variance = np.maximum(shares.var(axis=0), max(noise**2, _NO_NUMBER))
    own = 1 - noise**2 / variance
    return np.asarray((common > 0) & (common + own * (shares - common) > common / 2))


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


def _with_neighbours(seen: Array, shares: Array, noise: float) -> Array:
    """What is reached, and bins beside it that noise and the records of other bins do not explain.

    Shares add up to 1. What the seen bins and that around 0 lack is evidence for a neighbour, by
    its mean over them: it has the variance of one noise over their number.
    """
    columns, bins = shares.shape
    limit = noise * _limit(2 * columns)
    while True:
        held = seen.copy()
        held[:, bins // 2] = True
        count = held.sum(axis=1)
        lacking = np.maximum(1 - np.where(held, shares, 0.0).sum(axis=1), 0.0) / count
        evidence = (shares + lacking[:, None]) / np.sqrt(1 + 1 / count)[:, None]
        able = (shares > RARE) & (evidence > limit)
        beside = np.zeros_like(seen)
        beside[:, 1:] |= seen[:, :-1]
        beside[:, :-1] |= seen[:, 1:]
        more = seen | beside & able
        if (more == seen).all():
            return seen
        seen = more
