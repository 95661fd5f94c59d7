"""A curve whose proof has free parameters, chosen anew for every question.

Levels, splits and paths are valid whatever they are; the best ones depend on the delta that is
asked. `Searched` finds them when asked and keeps what it found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial

from lastiterate.curves.base import Curve
from lastiterate.curves.range_of_doubles import within_doubles

_USUAL = 1e-5  # a delta to start from when the question names none
_ROUNDS, _SETTLED = 4, 0.9  # at most so many rounds, until delta falls by less than a tenth


class Searched(Curve):
    """The best curve of a family, for each delta."""

    def __init__(self, at: Callable[[float], Curve]) -> None:
        self.at = lru_cache(maxsize=64)(at)

    def epsilon(self, delta: float) -> float:
        return within_doubles(lambda: self.at(delta).epsilon(delta), math.inf)

    def delta(self, epsilon: float) -> float:
        # The parameters that are good at the resulting delta are found in a few more rounds.
        found = within_doubles(lambda: self.at(_USUAL).delta(epsilon), 1.0)
        for _ in range(_ROUNDS):
            if not 1e-300 < found < 1:
                break
            before, again = found, partial(self.at(found).delta, epsilon)
            found = min(found, within_doubles(again, 1.0))
            if found > _SETTLED * before:
                break
        return found

    def rdp(self, order: float) -> float:
        return within_doubles(lambda: self.at(_USUAL).rdp(order), math.inf)
