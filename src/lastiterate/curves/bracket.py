"""One-sided search: the last point that is still safe.

Every inverse of a privacy curve (epsilon from delta, mu from a target) and every search for the
last step, record or canary ends here: the answer is always a point where the condition was found
to hold, never an estimate of it. `safe_end` follows a smooth excess; `last_good` and `halved` ask
yes or no, of whole numbers and of real ones. `crossing` only points, for searches over what is
sound at any value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy


def safe_end(
    excess: Callable[[float], float], safe: float, unsafe: float, tolerance: float = 1e-13
) -> float:
    """A point with ``excess <= 0``, as near the change of sign as ``tolerance`` (relative) allows.

    ``excess(safe) <= 0 < excess(unsafe)`` must hold on entry; the safe end may be on either side.
    The ITP method (Oliveira, Takahashi 2020): as fast as the secant method where the function is
    smooth, and never more than one evaluation slower than bisection where it is flat.

    >>> root = safe_end(lambda x: x * x - 2, safe=1.0, unsafe=2.0)
    >>> root**2 <= 2 <= (root + 1e-12) ** 2
    True
    """
    below, above = excess(safe), excess(unsafe)
    if not below <= 0 < above:
        raise ValueError("the bracket does not hold: excess(safe) <= 0 < excess(unsafe) is needed")
    start = abs(unsafe - safe)
    resolution = tolerance * max(abs(safe), abs(unsafe)) / 2
    budget = max(math.ceil(math.log2(start / (2 * resolution))), 0) + 1
    for step in range(budget + 1):
        width = abs(unsafe - safe)
        if width <= 2 * resolution:
            break
        # All distances are measured from the safe end.
        half, secant = width / 2, width * below / (below - above)
        truncation = 0.2 / start * width * width
        towards = math.copysign(1.0, half - secant)
        distance = secant + towards * truncation if truncation <= abs(half - secant) else half
        allowed = resolution * 2.0 ** (budget - step) - half
        if not abs(distance - half) <= allowed:
            distance = half - towards * allowed
        # Not nearer to an end than what counts as equal: so both ends close in on the root.
        distance = min(max(distance, resolution), width - resolution)
        middle = safe + math.copysign(distance, unsafe - safe)
        value = excess(middle)
        if value <= 0:
            safe, below = middle, value
        else:
            unsafe, above = middle, value
    return safe


def last_good(holds: Callable[[int], bool], good: int, bad: int) -> int:
    """A whole number that holds while its neighbour towards ``bad`` does not.

    ``good`` holds and ``bad`` does not, or is no number of the question; neither is asked. The
    answer was asked and held, or is ``good``. What is nearly monotone is answered near the change.

    >>> last_good(lambda n: n * n <= 50, good=0, bad=100), last_good(lambda n: n > 2.5, 9, 0)
    (7, 3)
    """
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def halved(
    holds: Callable[[float], bool],
    good: float,
    bad: float,
    rounds: int = 2000,
    tolerance: float = 0.0,
) -> float:
    """The good end of a bracket that is halved ``rounds`` times, or to a relative ``tolerance``.

    As in `last_good`, only points between the ends are asked, and the answer is a good one.

    >>> root = halved(lambda x: x * x <= 2, good=1.0, bad=2.0, tolerance=1e-12)
    >>> root**2 <= 2 <= (root + 1e-11) ** 2
    True
    """
    for _ in range(rounds):
        middle = (good + bad) / 2
        if middle in (good, bad) or abs(bad - good) <= tolerance * max(abs(good), abs(bad)):
            break
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def crossing(rising: Callable[[float], float], low: float, high: float) -> float:
    """About where a rising function is 0 (to 1e-13), or the end that is nearest to it.

    What is no number counts as below 0.

    >>> crossing(lambda x: math.expm1(x) - 1, -80.0, 80.0) - math.log(2) < 1e-9
    True
    """

    def finite(x: float) -> float:
        value = rising(x)
        return -1e300 if math.isnan(value) else min(max(value, -1e300), 1e300)

    if finite(high) <= 0.0:
        return high
    if finite(low) >= 0.0:
        return low
    found = scipy.optimize.brentq(finite, low, high, xtol=1e-13, maxiter=300, disp=False)
    return float(found)
