"""Which test to evaluate: a threshold and a direction, chosen on models set aside for it.

Whatever is chosen here costs no confidence, because the errors are counted on other models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate.audit.methods import clopper_pearson, gdp

Array = NDArray[np.float64]

_MOST_CANDIDATES = 100
_DOUBT = {"mu": 0.05, "epsilon": 0.3}


@dataclass(frozen=True)
class ThresholdTest:
    """Says "inside" when direction * score >= threshold."""

    threshold: float
    direction: int

    def says_inside(self, scores: Array) -> NDArray[np.bool_]:
        """The verdict on every model."""
        verdict: NDArray[np.bool_] = self.direction * scores >= self.threshold
        return verdict


def best_threshold(
    inside: Array, outside: Array, evaluated: tuple[int, int], delta: float, level: float, goal: str
) -> ThresholdTest:
    """The test whose predicted bound on ``evaluated`` = (inside, outside) models is largest.

    Rates are estimated from above, so that a threshold that looks good by luck, in the tails where
    errors are few, is not preferred; how far above was found by simulating Gaussian scores.
    """
    doubt = _DOUBT[goal]
    best, chosen = -np.inf, ThresholdTest(float(np.median(inside)), 1)
    for direction in (1, -1):
        i, o = np.sort(direction * inside), np.sort(direction * outside)
        thresholds = _candidates(np.concatenate([i, o]))
        misses, alarms = np.searchsorted(i, thresholds), len(o) - np.searchsorted(o, thresholds)
        fnr = clopper_pearson.rate_above(misses, len(i), doubt)
        fpr = clopper_pearson.rate_above(alarms, len(o), doubt)
        q = clopper_pearson.rate_above(fnr * evaluated[0], evaluated[0], level)
        p = clopper_pearson.rate_above(fpr * evaluated[1], evaluated[1], level)
        value = gdp.separation(p, q) if goal == "mu" else clopper_pearson.log_ratio(p, q, delta)
        k = int(np.argmax(value))
        if value[k] > best:
            best, chosen = float(value[k]), ThresholdTest(float(thresholds[k]), direction)
    return chosen


def _candidates(scores: Array) -> Array:
    """Distinct scores; of very many, a choice that is finer towards both ends."""
    distinct = np.unique(scores)
    if len(distinct) <= _MOST_CANDIDATES:
        return distinct
    ends = 1 / (1 + np.exp(-np.linspace(-1, 1, _MOST_CANDIDATES) * np.log(len(distinct))))
    chosen: Array = distinct[np.unique(np.round(ends * (len(distinct) - 1)).astype(np.int64))]
    return chosen
