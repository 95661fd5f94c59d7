"""Lower reference for Poisson batches: what linear updates really suffer.

Never a guarantee. The linear map x -> c x, with the record's impulses all pushing the same way,
ends in a mixture of Gaussians over inclusion patterns; without the record it ends in one Gaussian.
Any threshold event bounds the privacy loss of that pair from below, so nothing here needs more
than masses that are rounded the right way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Array = npt.NDArray[np.float64]
PerStep = float | Sequence[float] | Array

CELLS = 1 << 14  # of the grid that the sum of impulses is rounded down to
THRESHOLDS = 1 << 11
SAFE = 1e-9  # relative error of a tail probability and of the masses it is averaged with


def linear_lower(
    c: PerStep, s: PerStep, nu: PerStep, rate: float, steps: int, delta: float
) -> float:
    """An epsilon that the linear run x -> c x suffers at delta, in the worse order, rounded down.

    ``c`` must be reachable in the declared class: never larger than the run's.

    >>> 0.66 < linear_lower(0.99, 1.0, 1.0, rate=0.01, steps=1000, delta=1e-6) <= 0.6725
    True
    """
    cs, ss, ns = (np.broadcast_to(np.asarray(x, float), (steps,)) for x in (c, s, nu))
    if steps == 0 or delta >= 1.0 or not np.any(ss > 0.0):
        return 0.0
    with np.errstate(divide="ignore"):
        later = np.exp(np.concatenate([np.cumsum(np.log(cs[:0:-1]))[::-1], [0.0]]))
    noise = math.sqrt(float(np.sum((later * ns) ** 2)))
    impulses = later * ss
    if noise == 0.0:
        return math.inf if 1.0 - (1.0 - rate) ** int(np.sum(impulses > 0.0)) > delta else 0.0
    sums, masses = _sum_law(impulses / noise, rate)
    low, high = float(sums[0]) - 9.0, float(sums[masses > 1e-30].max()) + 9.0
    at = np.linspace(low, high, THRESHOLDS)
    above = np.array([np.sum(masses * ndtr(sums - x)) for x in at]) * (1 - SAFE)
    below = np.array([np.sum(masses * ndtr(x - sums)) for x in at]) * (1 + SAFE)
    plain_above, plain_below = ndtr(-at) * (1 + SAFE), ndtr(at) * (1 - SAFE)
    with np.errstate(divide="ignore", invalid="ignore"):
        # P(E) - e^eps Q(E) >= delta for the event E holds up to eps = log((P(E) - delta)/Q(E)).
        forward = np.log((above - delta) / plain_above)
        backward = np.log((plain_below - delta) / below)
    best = np.nanmax(np.where(np.isfinite([forward, backward]), [forward, backward], -np.inf))
    return max(float(best) - 1e-9, 0.0)


def _sum_law(impulses: Array, rate: float) -> tuple[Array, Array]:
    """The law of the sum of independently included impulses, rounded down to a grid.

    Smaller sums push the mixture towards the other Gaussian in both orders, so this is safe. Sums
    beyond the grid are put at its end, and impulses that stay below one cell are dropped.
    """
    mean, variance = rate * float(impulses.sum()), rate * float(np.sum(impulses**2))
    top = min(float(impulses.sum()), mean + 12.0 * math.sqrt(variance) + 12.0 * impulses.max())
    grid = top / CELLS
    shifts = np.floor(impulses / grid * (1 - 1e-12)).astype(int)
    masses = np.zeros(CELLS + 1)
    masses[0] = 1.0
    for shift in shifts[shifts > 0].tolist():
        moved = masses * rate
        masses *= 1.0 - rate
        masses[shift:] += moved[: CELLS + 1 - shift]
        masses[-1] += moved[CELLS + 1 - shift :].sum()
    return np.arange(CELLS + 1) * grid, masses
