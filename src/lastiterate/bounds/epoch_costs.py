"""What one epoch costs when the record sits at a random position in it.

X(x, y, J) is the least sum of a^2/nu^2 that takes the string from z = x at the start of an epoch
to z <= y at its end, when the record's impulse arrives at step J. It is convex in (x, y), has a
closed form, and is all that the boundary policy of reshuffled batches needs to know of a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lastiterate.bounds.positions import UNIT, Floats, epoch_rows, prefixes, suffixes

Rows = NDArray[np.intp]

# Log of a noise, relative to the largest, that stands for none: paying 1 there costs exp(600).
NO_NOISE = -300.0


@dataclass(frozen=True)
class EpochCosts:
    """Tables of X, one row per distinct epoch (``row[e]`` names it), one column per position.

    Before J the string may pay p1 <= G1 x, from J on p2, with G2 (G1 x - p1) + A - p2 <= y.
    In units of noise: if one block is feasible, r^2 with r = (g x + a - h y)_+; it is infeasible
    when its share t r of the first part exceeds g1 x, and then X = (g1 x)^2 + (a2 - h2 y)^2.
    ``extra`` is paid besides, whatever the levels. ``off`` bounds the relative error of a table.
    """

    g: Floats
    a: Floats
    h: Floats
    t: Floats
    g1: Floats
    a2: Floats
    h2: Floats
    extra: Floats
    row: Rows
    off: float

    @property
    def batches(self) -> int:
        """Positions per epoch."""
        return int(self.g.shape[1])

    def at_positions(self, nodes: Rows) -> EpochCosts:
        """The same costs, at some positions alone."""
        names = ("g", "a", "h", "t", "g1", "a2", "h2", "extra")
        return replace(self, **{name: getattr(self, name)[:, nodes] for name in names})

    def values(self, epochs: Rows, x: Floats, y: Floats) -> Floats:
        """X for these epochs and levels at every position, rounded up."""
        k, x, y = self.row[epochs], x[:, None], y[:, None]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            gx, a, hy = self.g[k] * x, self.a[k], self.h[k] * y
            r = np.maximum(gx + a - hy + self.off * (gx + a + hy), 0)
            first = self.g1[k] * x
            a2, hy2 = self.a2[k], self.h2[k] * y
            second = np.maximum(a2 - hy2 + self.off * (a2 + hy2), 0)
            one_block = r * self.t[k] <= first
            cost = np.where(one_block, r**2, first**2 + second**2) + self.extra[k]
            cost = cost * (1 + 4 * self.off) + 1e-290
        return np.where(np.isnan(cost), math.inf, cost)  # infinities that cannot be compared

    def derivatives(self, epochs: Rows, x: Floats, y: Floats) -> tuple[Floats, ...]:
        """X and its derivatives (X, X_x, X_y, X_xx, X_xy, X_yy), for the search of levels."""
        k, x, y = self.row[epochs], x[:, None], y[:, None]
        g, h, g1, h2 = self.g[k], self.h[k], self.g1[k], self.h2[k]
        r = np.maximum(g * x + self.a[k] - h * y, 0)
        second = np.maximum(self.a2[k] - h2 * y, 0)
        one_block = r * self.t[k] <= g1 * x
        paying = one_block & (r > 0)
        return (
            np.where(one_block, r**2, (g1 * x) ** 2 + second**2) + self.extra[k],
            np.where(one_block, 2 * r * g, 2 * g1**2 * x),
            np.where(one_block, -2 * r * h, -2 * second * h2),
            np.where(one_block, 2 * g**2 * paying, 2 * g1**2),
            -2 * g * h * paying,
            np.where(one_block, 2 * h**2 * paying, 2 * h2**2 * (second > 0)),
        )


def epoch_costs(c: Floats, s: Floats, nu: Floats, batches: int, end: int) -> EpochCosts:
    """Tables for a run whose string ends after ``end`` steps; later impulses are paid on arrival.

    A partial epoch is padded with steps that do nothing, so a record behind its end is not used.
    Rounding, as in `positions`: a logarithm is the result of at most 2B sums of positive terms,
    each off by 4 UNIT (1 + M); a table is the exponential of at most three of them.
    """
    log_c, log_s, log_v = epoch_rows(c, s, nu, batches)
    floor = 2 * (NO_NOISE + math.log(float(nu.max())))
    step = np.arange(log_c.size).reshape(log_c.shape)
    log_v = np.where(step < len(s), np.maximum(log_v, floor), -math.inf)
    late = (step >= end) & (log_s > -math.inf)
    with np.errstate(invalid="ignore"):
        paid = np.where(late, np.exp(np.where(late, 2 * log_s - log_v, 0.0)), 0.0)
    inside = step < end
    log_c = np.where(inside, log_c, 0.0)
    log_s = np.where(inside, log_s, -math.inf)
    log_v = np.where(inside, log_v, -math.inf)
    distinct, row = np.unique(np.hstack([log_c, log_s, log_v, paid]), axis=0, return_inverse=True)
    log_c, log_s, log_v, paid = np.hsplit(distinct, 4)
    after = suffixes(log_c, log_s, log_v)
    V1, G1 = prefixes(log_c, log_v)
    total = np.logaddexp(V1 + 2 * after.G, after.V)
    hit, before, noisy = np.isfinite(log_s), np.isfinite(V1), np.isfinite(total)
    scale = -np.where(noisy, total, 0.0) / 2
    scale2 = -np.where(hit, after.V, 0.0) / 2
    scale1 = -np.where(before, V1, 0.0) / 2

    def table(where: NDArray[np.bool_], logarithm: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(np.where(where, logarithm, -math.inf))

    biggest = sum(float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in (log_s, log_v))
    M = float(np.abs(log_c).sum(axis=1).max()) + biggest + math.log(batches) + 1
    return EpochCosts(
        g=table(noisy, G1 + after.G + scale),
        a=table(noisy & hit, after.A + scale),
        h=table(noisy, scale),
        t=table(hit & before, after.G - scale1 + scale),
        g1=table(before, G1 + scale1),
        a2=table(hit, after.A + scale2),
        h2=table(hit, scale2),
        extra=paid,
        row=row.ravel(),
        off=math.expm1(3 * 2 * batches * 4 * UNIT * (1 + M)),
    )
