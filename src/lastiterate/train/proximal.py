"""Proximal steps on the grid: `description.proximal` for arrays of either backend.

**Statement.** v holds multiples of g, no larger than 2⁵²g; what is returned does too. `L1` and
`Box` are the proximal step of a penalty or a set that is fixed by public numbers, exactly.
`GroupLasso` and `Simplex` bring two runs farther apart by at most (25/16)·g√d more than that of
one: with the 4g√d of `grid`, less than 6g√d in all.

*Proof.* `L1`: the threshold is rounded to a multiple t of g, and v − clip(v, ±t) has no rounding.
`Box`: its bounds are rounded inwards to multiples of g. `GroupLasso`: in multiples of g the result
is n − rint(n·min(1, t/L)), t = step size·weight/g ≤ 2⁴⁶, L the computed length, which is too long
by at most 4δ, relatively (`grid.length`, δ ≤ 9√d_G·2⁻⁵³: `grid.room`). The vector that is
subtracted is no longer than t, so it is off by at most 4δt ≤ (9/32)·√d_G before it is rounded to
whole numbers, √d_G/2 more; groups add up in squares, and for two runs it is twice that. `Simplex`:
the projection on weights that add up to S is (n − τ)₊ with Σ(n − τ)₊ = S, and no coordinate moves
more than τ does. Here τ is rounded up, so it is between 0 and 1 too large; and a sum of k terms in
doubles is off by k·2⁻⁵³·S ≤ k·2⁻⁷, which moves τ by 2⁻⁷, as the sum falls by k when τ rises by 1.
So two runs differ by 1 + 2⁻⁶ more in a coordinate. S is a little less than the total: what doubles
add up to is never above that, and parameters stay in a set of the described diameter. ∎

Without a grid nothing is claimed, and the same formulas run in plain doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lastiterate.description.proximal import L1, Box, GroupLasso, Proximal, Simplex
from lastiterate.errors import DescriptionError

Array = Any
Length = Callable[[Array], Any]  # of a vector, never short

_ROUGH = 2.0**-46  # of a total: the unit without a grid


def proximal_step(
    step: Proximal, values: Array, step_size: float, spacing: float, length: Length
) -> Array:
    """The parameters after the proximal step, on the grid of this spacing (0: there is none).

    >>> import numpy as np
    >>> v = np.array([0.75, -0.25, 2.0])
    >>> proximal_step(L1(1.0, spared=1), v, 0.5, 0.25, np.linalg.norm).tolist()
    [0.25, 0.0, 2.0]
    >>> proximal_step(Simplex(), v, 0.5, 0.0, np.linalg.norm).round(9).tolist()
    [0.0, 0.0, 1.0]
    """
    if isinstance(step, L1):
        threshold = step_size * step.weight
        if spacing:  # beyond 2⁵³ all is zero
            threshold = round(min(threshold / spacing, 2.0**53)) * spacing
        return _all_but(step.spared, values, values - values.clip(-threshold, threshold))
    if isinstance(step, Box):
        low, high = _inwards(step, spacing)
        return values.clip(low, high)
    if isinstance(step, GroupLasso):
        return _shortened(step, values, step_size * step.weight, spacing, length)
    assert isinstance(step, Simplex)
    return _weighed(step, values, spacing)


def _all_but(spared: int, before: Array, after: Array) -> Array:
    """The last rows are left as they were."""
    if spared:
        after[len(after) - spared :] = before[len(before) - spared :]
    return after


def _inwards(box: Box, spacing: float) -> tuple[float, float]:
    if not spacing:
        return box.low, box.high
    return math.ceil(box.low / spacing) * spacing, math.floor(box.high / spacing) * spacing


def _shortened(
    step: GroupLasso, values: Array, threshold: float, spacing: float, length: Length
) -> Array:
    """Every group is shortened by the threshold, to nothing if it is not longer."""
    unit = spacing or 1.0
    done, first = values * 1.0, 0
    for size in step.sizes or [1] * (len(values) - step.spared):
        group = values[first : first + size] / unit
        long = float(length(group))
        if long <= threshold / unit:
            kept = group - group
        else:
            cut = group * (threshold / unit / long)
            kept = group - (cut.round() if spacing else cut)
        done[first : first + size] = kept * unit
        first += size
    return done


def _weighed(step: Simplex, values: Array, spacing: float) -> Array:
    """(n − τ)₊ for the smallest whole τ at which these add up to no more than the total."""
    unit = spacing or step.total * _ROUGH
    n, total = values / unit, step.total / unit
    if not math.isfinite(float(n.max())):
        return values  # the run diverged, and will say so
    size = math.prod(n.shape)
    total *= 1 - max(2.0**-40, size * 2.0**-52)
    high = math.ceil(float(n.max()))
    low = high - math.ceil(total) - 1  # the largest alone is above the total there
    while high - low > 1:
        middle = (low + high) // 2
        if float((n - middle).clip(0.0, None).sum()) <= total:
            high = middle
        else:
            low = middle
    return (n - high).clip(0.0, None) * unit


def fits(step: Proximal, shape: tuple[int, ...], diameter: float, spacing: float) -> None:
    """Raise unless the proximal step can be taken on such parameters, as described."""
    rows, size = shape[0] if shape else 0, math.prod(shape)
    if isinstance(step, L1 | GroupLasso):
        sizes = step.sizes if isinstance(step, GroupLasso) else None
        left = rows - step.spared
        if left < 0 or not shape or (sizes is not None and sum(sizes) != left):
            why = f"the parameters have {rows} rows, and each is penalised or spared"
            raise DescriptionError("proximal", step, "one for so many rows", why)
    elif not diameter >= step.width(size):
        why = f"it takes the place of the ball of diameter {diameter:g} that was described"
        allowed = f"a set no wider, or a diameter of at least {step.width(size)!r}"
        raise DescriptionError("proximal", step, allowed, why)
    if isinstance(step, Box) and spacing:
        low, high = _inwards(step, spacing)
        if not low <= high:
            why = "parameters live on that grid"
            allowed = f"wide enough to hold a multiple of the grid's spacing, {spacing!r}"
            raise DescriptionError("proximal", step, allowed, why)
