"""Lower reference for random batches: what linear updates really suffer.

Never a guarantee. The linear map x -> c x, with the record's impulses all pushing the same way,
ends in a mixture of Gaussians over inclusion patterns; without the record it ends in one Gaussian,
and with a record that pushes the opposite way in the mirrored mixture.
Any threshold event bounds the privacy loss of that pair from below, so nothing here needs more
than masses that are rounded the right way.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from lastiterate.bounds.steps import Array, Steps

CELLS = 1 << 16  # of the grid that the sum of impulses is rounded down to
THRESHOLDS = 96
SAFE = 1e-9  # relative error of a tail probability and of the masses it is averaged with


def linear_lower(steps: Steps, rate: float, delta: float, opposite: bool = False) -> float:
    """An epsilon that the linear run x -> c x suffers at delta, in the worse order, rounded down.

    ``c`` must be reachable in the declared class: never larger than the run's. ``opposite``: the
    other run's record pushes as hard the other way (by -s), where it otherwise does not push.

    >>> 0.66 < linear_lower(Steps(0.99, 1.0, 1.0, 1000), rate=0.01, delta=1e-6) <= 0.6725
    True
    """
    if delta >= 1.0 or not np.any(steps.s > 0.0):
        return 0.0
    with np.errstate(divide="ignore"):
        later = np.exp(np.concatenate([np.cumsum(np.log(steps.c[:0:-1]))[::-1], [0.0]]))
    unit = float(steps.nu.max()) or 1.0  # squares of noises stay within the range of doubles
    noise = math.sqrt(float(np.sum((later * (steps.nu / unit)) ** 2)))
    impulses = later * (steps.s / unit)
    if noise == 0.0:
        return math.inf if 1.0 - (1.0 - rate) ** int(np.sum(impulses > 0.0)) > delta else 0.0
    sums, masses = _sum_law(impulses / noise, rate)
    kept = masses > 1e-40
    sums, masses, lost = sums[kept], masses[kept], len(kept) * 1e-40
    low, high = float(sums[0]) - 9.0, float(sums[-1]) + 9.0
    low = low - float(sums[-1]) if opposite else low
    best = 0.0
    for _ in range(3):  # a coarse scan of thresholds, then two finer ones around the best
        at = np.linspace(low, high, THRESHOLDS)
        found = np.array([_suffered(x, sums, masses, lost, delta, opposite) for x in at])
        best = max(best, float(found.max()))
        centre, width = float(at[found.argmax()]), (high - low) / 16
        low, high = centre - width, centre + width
    return max(best - 1e-9, 0.0)


def _suffered(
    x: float, sums: Array, masses: Array, lost: float, delta: float, opposite: bool
) -> float:
    """The larger epsilon that the events above x and below x prove, one for each order.

    P(E) - e^eps Q(E) >= delta for an event E holds up to eps = log((P(E) - delta) / Q(E)).
    """
    above = float(np.sum(masses * ndtr(sums - x))) * (1 - SAFE)
    below = float(np.sum(masses * ndtr(x - sums))) * (1 + SAFE) + lost
    if opposite:  # the mirrored sums, which rounding down also brings nearer
        plain_above = float(np.sum(masses * ndtr(-x - sums))) * (1 + SAFE) + lost
        plain_below = float(np.sum(masses * ndtr(x + sums))) * (1 - SAFE)
    else:
        plain_above, plain_below = float(ndtr(-x)) * (1 + SAFE), float(ndtr(x)) * (1 - SAFE)
    ratios = ((above - delta) / max(plain_above, 1e-300), (plain_below - delta) / below)
    return math.log(max(*ratios, 1.0))


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
    end = 1  # cells in use; the smallest impulses come first, so that it grows late
    for shift in np.sort(shifts[shifts > 0]).tolist():
        moved = masses[:end] * rate
        masses[:end] *= 1.0 - rate
        grown = min(end + shift, CELLS + 1)
        masses[shift:grown] += moved[: grown - shift]
        masses[-1] += moved[max(grown - shift, 0) :].sum()
        end = grown
    return np.arange(CELLS + 1) * grid, masses
