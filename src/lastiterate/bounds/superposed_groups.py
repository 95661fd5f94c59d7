"""Superposition: several records of one person, secretly placed, under any schedule.

The shifts that pay for each record alone, added up, pay for all of them: mu of a sum of impulses is
at most the sum of the mus (Minkowski). So given where the records are, M = sum of m_t mu_t, mu_t
the string of one record in batch t. Hidden placement: the profiles of M are averaged.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from lastiterate.bounds.cost_law import CostLaw
from lastiterate.bounds.positions import UNIT, Floats

_COARSE, _FINE = 400, 12_000  # cells of a first look, and of the answer
_UNRESOLVED = 1e-3  # of delta: so much mass may go to the worst case


def superposed_law(mus: Floats, size: int, records: int, delta: float, *, spread: bool) -> CostLaw:
    """The law of M = sum of m_t mu_t, rounded up: ``costs`` are values of M.

    *Statement.* k records fall into batches t = 1, ..., B of ``size`` slots each, every choice of
    slots equally likely, or, ``spread``, every choice of k different batches. M is at most
    ``costs[i]`` on an event of mass at most ``weights[i]``.

    *Computed as.* mu_t is rounded up to cells; batches with equal cells are one. Batches are added
    one by one, C(slots, m) ways for m records. Nothing is negative, so sums are right to within a
    few roundings. What passes the last cell goes to the worst case.

    >>> law = superposed_law(np.array([1.0, 2.0]), size=1, records=1, delta=1e-5, spread=True)
    >>> bool(1.5 <= law.costs @ law.weights < 1.501)
    True
    """
    largest, each = float(mus.max()), 1 if spread else size
    if largest == 0.0 or not math.isfinite(largest):
        return CostLaw(np.array([largest]), np.array([1.0]))
    worst = worst_sum(mus, each, records)
    key = tuple(mus.tolist()), each, records, worst
    look = _law(*key, worst, _COARSE)
    behind = np.cumsum(look.weights[::-1])[::-1]
    far = np.flatnonzero(behind > delta * _UNRESOLVED)
    reach = float(look.costs[min(far[-1] + 1, len(look.costs) - 1)]) if len(far) else worst
    return _law(*key, min(reach, worst), _FINE)


def worst_sum(mus: Floats, each: int, records: int) -> float:
    """The largest M of all: the largest mus first, ``each`` times, rounded up."""
    most = np.repeat(np.sort(mus)[::-1][: -(-records // each)], min(each, records))
    return math.fsum(most[:records]) * (1 + 4 * UNIT)


@lru_cache(maxsize=16)
def _law(
    mus: tuple[float, ...], each: int, records: int, worst: float, reach: float, cells: int
) -> CostLaw:
    width = reach / cells
    index = np.ceil(np.array(mus) / width * (1 + 4 * UNIT)).astype(np.int64)
    kinds, counts = np.unique(index, return_counts=True)
    slots = len(mus) * each
    damping = records / slots  # keeps the numbers of ways near one
    rows = np.zeros((records + 1, cells + 2))  # the last column: beyond the last cell
    rows[0, 0] = 1.0
    for cell, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        _add(rows, cell, count * each, damping)
    ways = math.prod((slots - i) * damping / (i + 1) for i in range(records))
    # A mass is a sum of products: k ways and their rounding, one addition per kind and m.
    off = (8 * records + (len(kinds) + 8) * (records + 2) + cells) * UNIT
    weights = rows[-1] / ways * (1 + 2 * off)
    costs = np.minimum(np.append(np.arange(cells + 1) * width, worst) * (1 + 4 * UNIT), worst)
    kept = weights > 0
    return CostLaw(costs[kept], weights[kept])


def _add(rows: Floats, cell: int, slots: int, damping: float) -> None:
    """One more kind of batches, all at the same cell; most records first, so nothing counts twice.

    A sum of positive terms along the cells is pairwise: within `cells` roundings at the most.
    """
    records, last = len(rows) - 1, rows.shape[1] - 2
    ways, found = [1.0], 1.0
    for m in range(min(records, slots)):
        found *= (slots - m) * damping / (m + 1)
        ways.append(found)
    for total in range(records, 0, -1):
        for m in range(1, min(total, len(ways) - 1) + 1):
            before, shift = rows[total - m], m * cell
            if shift <= last:
                rows[total, shift : last + 1] += ways[m] * before[: last + 1 - shift]
                rows[total, -1] += ways[m] * (before[last + 1 - shift : -1].sum() + before[-1])
            else:
                rows[total, -1] += ways[m] * before.sum()
