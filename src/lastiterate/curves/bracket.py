"""One-sided root finding: the last point that is still safe.

Every inverse of a privacy curve (epsilon from delta, mu from a target) ends here: the answer is
always a point where the condition was evaluated and found to hold, never an estimate of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable


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
