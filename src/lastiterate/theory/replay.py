"""The replay of a shift vector: the one computation a guarantee rests on.

However a vector of shifts was found, its value counts only after this file has walked it through
the recursion z <- c z + s - a with every rounding error pushed upwards. It knows nothing of how
the shifts were optimised, so that a slip there can make a guarantee loose, never wrong.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.errors import DescriptionError

Floats = NDArray[np.float64]

# One step rounds four times (the widened factor, product, sum, difference), each by at most
# 2**-53 of c z + s: 6 * 2**-53 covers them.
_WIDER = 1.0 + 6.0 * 2.0**-53
# Values this small are lifted, so that no product of two of them can underflow to zero.
_SMALLEST_DISTANCE, _SMALLEST_FACTOR = 1e-200, 1e-107
SMALLEST_RATIO = 1e-290  # of a shift to its noise: what would underflow is lifted to this
SLICE = 1 << 16  # steps turned into Python floats at a time: speed without the memory


def schedule(c: ArrayLike, s: ArrayLike, nu: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """The three per-step vectors, broadcast to one length and checked."""
    vectors = []
    for name, value in (("c", c), ("s", s), ("nu", nu)):
        vector = np.asarray(value, dtype=np.float64)
        if vector.ndim > 1 or not np.all(np.isfinite(vector)) or np.any(vector < 0):
            allowed = "a finite number of at least 0, or one per step"
            why = "a privacy bound from anything else would mean nothing"
            raise DescriptionError(name, value, allowed, why)
        vectors.append(np.atleast_1d(vector))
    try:
        wide = np.broadcast_arrays(*vectors)
    except ValueError:
        allowed = "of one common length"
        why = "every step needs its own factor, sensitivity and noise"
        raise DescriptionError("c, s, nu", tuple(len(v) for v in vectors), allowed, why) from None
    return wide[0], wide[1], wide[2]


def check_start(start: float) -> float:
    """A starting distance: a finite number of at least 0."""
    if not (math.isfinite(start) and start >= 0):
        raise DescriptionError(
            "start", start, "a finite number of at least 0", "it bounds a distance between two runs"
        )
    return float(start)


def check_shifts(shifts: ArrayLike, restart: int) -> Floats:
    """A vector of shifts, and a restart inside it."""
    a = np.asarray(shifts, dtype=np.float64)
    if a.ndim != 1 or not np.all(np.isfinite(a)) or np.any(a < 0):
        raise DescriptionError("shifts", shifts, "finite and at least 0", "a shift is a length")
    if not 0 <= restart <= len(a):
        raise DescriptionError("restart", restart, f"from 0 to {len(a)}", "it is a step of the run")
    return a


def _walk(z: float, c: Floats, s: Floats, a: Floats) -> float:
    """An upper bound of the distance after these steps; nan if it left the float range.

    Clamping at 0 is sound: a shift larger than c z + s only means that less was paid.
    """
    for i in range(0, len(c), SLICE):
        j = i + SLICE
        factor = np.where(c[i:j] > 0, np.maximum(c[i:j] * _WIDER, _SMALLEST_FACTOR), 0.0)
        jump = np.where(s[i:j] > 0, np.maximum(s[i:j] * _WIDER, _SMALLEST_DISTANCE), 0.0)
        for ck, sk, ak in zip(factor.tolist(), jump.tolist(), a[i:j].tolist(), strict=True):
            z = ck * z + sk - ak
            if z < _SMALLEST_DISTANCE:
                z = _SMALLEST_DISTANCE if z > 0.0 else 0.0
    return z


def lifted_ratios(shifts: Floats, nu: Floats) -> Floats:
    """a/nu where there is noise; a shift that was paid never counts as nothing."""
    with np.errstate(over="ignore", under="ignore"):
        ratios = np.divide(shifts, nu, out=np.zeros(len(shifts)), where=nu > 0)
    return np.where((shifts > 0) & (nu > 0), np.maximum(ratios, SMALLEST_RATIO), 0.0)


def root_sum_squares_up(ratios: Floats) -> float:
    """sqrt(sum r**2), rounded up, free of underflow and overflow."""
    largest = float(ratios.max(initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    largest = max(largest, 1e-290)
    squares = (ratios / largest) ** 2
    # Sums of at most 1024 positive terms lose at most 1024 units of 2**-53, whatever the order;
    # their own sum is exact. With the ratios, squares and products: 2**-42 covers all of it.
    parts = np.add.reduceat(squares, np.arange(0, len(squares), 1024))
    return largest * math.sqrt(math.fsum(parts.tolist())) * (1.0 + 2.0**-42)


def replay(
    c: ArrayLike,
    s: ArrayLike,
    nu: ArrayLike,
    shifts: ArrayLike,
    start: float = 0.0,
    restart: int = 0,
) -> float:
    """The mu that a vector of shifts proves, rounded up.

    Walks z_restart = start, z_{k+1} = max(0, c_k z_k + s_k - a_{k+1}) with upward rounding. What
    is left at the end is paid at the last step that has noise; if that is impossible the answer
    is infinite. Shifts before ``restart`` are ignored. The inputs are taken as exact numbers. That
    ``start`` is a true bound at step ``restart`` (0 at step 0, else the diameter) is for the
    caller to know.

    Args:
        c: Lipschitz constant of every step, or one for all.
        s: sensitivity of every step, or one for all.
        nu: noise of every step, or one for all.
        shifts: a_1, a_2 and so on, one per step.
        start: how far apart the two runs may be at step ``restart``.
        restart: the step that the walk begins at.

    >>> replay(1.0, 1.0, 1.0, [1.0, 1.0, 1.0, 1.0]) >= 2.0
    True
    >>> replay([0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.0, 0.5]) < 0.5 + 1e-12
    True
    """
    c, s, nu = schedule(c, s, nu)
    a = check_shifts(shifts, restart)
    if len(c) not in (1, len(a)):
        raise DescriptionError("shifts", len(a), f"{len(c)} numbers", "every step is replayed")
    c, s, nu, a = (v[restart:] for v in np.broadcast_arrays(c, s, nu, a))
    start = check_start(start)
    paying = np.flatnonzero(nu)
    if np.any(a[nu == 0] > 0):
        return math.inf
    last = int(paying[-1]) + 1 if len(paying) else 0
    leftover = _walk(start, c[:last], s[:last], a[:last])
    ratios = lifted_ratios(a, nu)
    if _walk(leftover, c[last:], s[last:], a[last:]) != 0.0:
        if last == 0 or _walk(0.0, c[last:], s[last:], a[last:]) != 0.0:
            return math.inf
        with np.errstate(over="ignore", under="ignore"):
            paid = (a[last - 1] + leftover) * _WIDER / nu[last - 1]
        ratios[last - 1] = max(paid, SMALLEST_RATIO)
    mu = root_sum_squares_up(ratios)
    return math.inf if math.isnan(mu) else mu
