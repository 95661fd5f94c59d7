"""Shifted interpolation when an update is not Lipschitz: Hoelder gradients, bounded gradients.

Theorem SI holds with c z replaced by any nondecreasing g with |f(x) - f(y)| <= g(|x - y|):
z_{k+1} = g_k(z_k) + s_k - a_{k+1}. Here g is concave, so the cheapest path is a non-convex
problem. Any feasible path is a valid bound; ``replay_path`` certifies the one that was found.

How it is found. A dynamic programme on a grid looks at all paths and all restarts at once; it
only points. Then *tangents*: a concave g lies below its tangent at the present path, so the taut
string of the tangents' (c, s) is feasible for g and costs no more than the path. Repeating that
falls to a path with a_k/nu_k^2 = g'(z_k) a_{k+1}/nu_{k+1}^2 wherever z_k > 0, the condition of
optimality. Details: docs/theory/shifted-interpolation.md, section 6.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from lastiterate.errors import DescriptionError
from lastiterate.theory.replay import (
    SMALLEST_RATIO,
    Floats,
    lifted_ratios,
    root_sum_squares_up,
    schedule,
)
from lastiterate.theory.taut_string import TautString, taut_string

_UNIT = 2.0**-53
_POINTS = 240  # of the grid; it only has to find the right valley
_ROUNDS = 300  # of tangents
_VALLEYS = 6  # that are looked at closely
_BLURRED = 1.05  # a map is never so far from the value of the best path
_SMALLEST = 1e-280
_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Modulus:
    """g(z) = min(c z + h z^p, e z + cap) for z > 0, g(0) = 0; numbers, or one per step.

    A Hoelder gradient (L, p) with per-record norm at most K: ``Modulus(c=1, h=eta*L, p=p, e=1,
    cap=2*eta*K)``. Only bounded gradients: ``Modulus(c=1, h=2*eta*K, p=0)``.

    >>> Modulus(c=1.0, h=0.5, p=0.5, e=1.0, cap=0.7)(np.array([0.0, 1.0, 4.0]))
    array([0. , 1.5, 4.7])
    """

    c: Floats
    h: Floats
    p: Floats
    e: Floats
    cap: Floats

    def __init__(
        self,
        c: ArrayLike = 1.0,
        h: ArrayLike = 0.0,
        p: ArrayLike = 1.0,
        e: ArrayLike = 0.0,
        cap: ArrayLike = math.inf,
    ) -> None:
        for name, given in zip(("c", "h", "p", "e", "cap"), (c, h, p, e, cap), strict=True):
            value = np.asarray(given, dtype=np.float64)
            top = {"p": 1.0, "cap": math.inf}.get(name, 1e300)
            if value.ndim > 1 or not np.all((value >= 0) & (value <= top)):
                allowed = "in [0, 1]" if name == "p" else "at least 0"
                why = "the modulus must be concave and never decrease for the bound to hold"
                raise DescriptionError(name, given, allowed, why)
            object.__setattr__(self, name, value)

    def rows(self, steps: int) -> Floats:
        """One column (c, h, p, e, cap) per step."""
        return np.stack([np.broadcast_to(getattr(self, f.name), steps) for f in fields(self)])

    def part(self, segment: slice) -> Modulus:
        """The modulus of some of the steps."""
        values = (getattr(self, f.name) for f in fields(self))
        return Modulus(*(value if value.ndim == 0 else value[segment] for value in values))

    def linear_up_to(self, distance: float) -> bool:
        """Whether g(z) = c z up to some distance, at every step."""
        with np.errstate(over="ignore"):
            capped = self.e * distance + self.cap < self.c * distance
        return not (np.any(self.h > 0) or np.any(capped))

    def once(self) -> Modulus:
        """The same number for all steps, given as a list of one."""
        return Modulus(*(np.reshape(getattr(self, f.name), ()) for f in fields(self)))

    def __call__(self, z: ArrayLike) -> Floats:
        """g(z), elementwise."""
        rows = np.stack(np.broadcast_arrays(*(getattr(self, f.name) for f in fields(self))))
        return moduli_at(rows, np.asarray(z, dtype=np.float64))


def modulus_at(row: Sequence[float], z: float) -> float:
    """g(z) of one step, given as (c, h, p, e, cap)."""
    c, h, p, e, cap = row
    return min(c * z + h * z**p, e * z + cap) if z > 0 else 0.0


def inverse_modulus(rows: Floats, y: Floats) -> Floats:
    """The largest z with g(z) <= y, up to the precision of a search; 0 where g jumps over y.

    Newton's method from the left, which a concave g never overtakes.

    >>> rows = Modulus(c=1.0, h=0.5, p=0.5, e=1.0, cap=0.7).rows(1)
    >>> inverse_modulus(rows, np.array([0.0, 1.5, 4.7])).round(6)
    array([0., 1., 4.])
    """
    c, h, p, e, cap = rows
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        capped = np.where(e > 0, np.maximum(y - cap, 0.0) / e, np.where(y >= cap, np.inf, 0.0))
        linear = np.where(c > 0, np.maximum(y - np.where(p == 0, h, 0.0), 0.0) / c, np.inf)
        bent = (h > 0) & (p > 0)
        z = np.minimum(linear / 2, np.where(bent, (y / (2 * h)) ** (1 / p), np.inf))
        for _ in range(12):
            power = h * z**p
            z = np.where(z > 0, z + (y - c * z - power) / (c + p * power / z), 0.0)
        return np.asarray(np.maximum(np.where(bent, z, linear), capped))


def moduli_at(rows: Floats, z: Floats) -> Floats:
    """g(z)."""
    c, h, p, e, cap = rows
    with np.errstate(over="ignore"):
        return np.where(z > 0, np.minimum(c * z + h * z**p, e * z + cap), 0.0)


def slope_of_modulus(rows: Floats, z: Floats) -> Floats:
    """The right derivative of g; infinite at 0 where g is not Lipschitz there."""
    c, h, p, e, cap = rows
    with np.errstate(over="ignore"):
        inner = c + h * p * np.where(z > 0, z, 1.0) ** (p - 1.0)
    vertical = (z <= 0) & (h > 0) & (p < 1)
    inner = np.where(vertical, math.inf, inner)
    beyond = np.where(z > 0, e * z + cap < c * z + h * z**p, (cap == 0) & (e < inner))
    return np.where(beyond, e, inner)


def _per_step(modulus: Modulus, s: ArrayLike, nu: ArrayLike) -> tuple[Floats, Floats, Floats]:
    sizes = [np.size(v) for v in (s, nu, *(getattr(modulus, f.name) for f in fields(modulus)))]
    _, s, nu = schedule(np.zeros(max(sizes)), s, nu)
    return modulus.rows(len(s)), s, nu


def replay_path(rows: Floats, s: Floats, nu: Floats, a: Floats, z: float) -> float:
    """The mu that shifts ``a`` prove from distance ``z`` under the moduli ``rows``, rounded up.

    As ``replay``: every step upwards, what is left is paid at the last step that has noise.
    ``pow`` of the C library is trusted to 4 units in the last place.

    >>> one = np.ones(4)
    >>> replay_path(Modulus(c=1.0).rows(4), one, one, one, 0.0) >= 2.0
    True
    """
    if np.any(a[nu == 0] > 0):
        return math.inf
    wider = 1.0 + 16.0 * _UNIT
    last, left = -1, 0.0  # the last step with noise and what was left after it
    steps = zip(*rows.tolist(), s.tolist(), a.tolist(), nu.tolist(), strict=True)
    for k, (*row, jump, shift, noise) in enumerate(steps):
        z = (modulus_at(row, z) + jump) * wider - shift
        if z < _SMALLEST:
            z = _SMALLEST if z > 0.0 else 0.0
        if noise > 0:
            last, left = k, z
    with np.errstate(over="ignore", under="ignore"):
        ratios = lifted_ratios(a, nu)
        if z != 0:
            if last < 0 or np.any(s[last + 1 :] > 0):
                return math.inf
            ratios[last] = max((a[last] + left) * wider / nu[last], SMALLEST_RATIO)
    mu = root_sum_squares_up(ratios)
    return math.inf if math.isnan(mu) else mu


def taut_path(
    modulus: Modulus,
    s: ArrayLike,
    nu: ArrayLike,
    diameter: float = math.inf,
    *,
    common_start: bool = True,
) -> TautString:
    """The best path found under a modulus, from a common start or from the diameter, replayed.

    Without a common start the two runs may be anywhere on the domain before the first step, as
    they are where only the last steps of a run are looked at: every path starts from the diameter.

    Statement: Theorem SI with g. Assumptions: |f_k(x) - f_k(y)| <= g_k(|x - y|) on the domain.
    Status: sound whatever path is found (corrects nothing; Chien & Li 2025, Thm 3.7 is this
    programme with the extra demand a >= s, so it is never smaller).

    >>> path = taut_path(Modulus(c=1.0), [0.08] * 200, 1.0, diameter=1.0)
    >>> round(path.mu ** 2 / 2, 6)
    0.160062
    """
    return best_path([modulus], s, nu, diameter, common_start=common_start)


def best_path(
    moduli: Iterable[Modulus],
    s: ArrayLike,
    nu: ArrayLike,
    diameter: float = math.inf,
    *,
    common_start: bool = True,
) -> TautString:
    """`taut_path` under the best of several moduli that all hold, the smallest of them first.

    A search is not exact, so a larger modulus may find the better path. Where the map of a later
    one shows that it does not, nothing is polished.

    >>> path = best_path([Modulus(c=1.5), Modulus(h=0.1, p=0.0)], [0.08] * 200, 1.0, diameter=1.0)
    >>> path.mu < taut_path(Modulus(c=1.5), [0.08] * 200, 1.0, diameter=1.0).mu
    True
    """
    if math.isnan(diameter) or diameter < 0:
        raise DescriptionError("diameter", diameter, "at least 0", "it is a distance")
    if not common_start and math.isinf(diameter):
        raise DescriptionError("diameter", diameter, "finite", "the runs start anywhere on it")
    problems = tuple(_Problem(*_per_step(modulus, s, nu)) for modulus in moduli)
    return _best(problems, diameter, common_start)


class _Problem:
    """The numbers of a search; equal numbers are the same search."""

    def __init__(self, rows: Floats, s: Floats, nu: Floats) -> None:
        self.numbers = rows, s, nu
        self._key = tuple(values.tobytes() for values in self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Problem) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=16)  # long runs that differ in their length alone end in the same steps
def _best(problems: tuple[_Problem, ...], diameter: float, common_start: bool) -> TautString:
    best: TautString | None = None
    for problem in problems:
        path = _path(*problem.numbers, diameter, common_start, best)
        best = path if best is None or path.mu < best.mu else best
    assert best is not None
    best.shifts.flags.writeable = False  # shared from now on
    return best


def _path(
    rows: Floats,
    s: Floats,
    nu: Floats,
    diameter: float,
    common_start: bool,
    rival: TautString | None,
) -> TautString:
    """The best path found under one modulus, or the rival where the map says that it is better."""
    if len(s) == 0:
        apart = 0.0 if common_start else diameter
        return TautString(np.zeros(0), apart, math.inf if apart > 0 else 0.0)
    diameter = max(diameter, 1e-9 * float(s.max()))  # a larger domain contains the smaller
    search = _Search.over(rows, s, nu, diameter, common_start)
    if rival is not None and search.lowest > _BLURRED * rival.mu * rival.mu:
        return rival
    found = [search.polish(0, 0.0)] if search.common_start_may_win else []
    bottoms = [search.polish(k, diameter) for k in search.valleys()]
    if bottoms:
        found.append(search.descend(min(bottoms, key=lambda path: path.mu)))
    first = 0.0 if common_start else diameter
    path = min(found or [search.polish(0, first)], key=lambda path: path.mu)
    before = np.zeros(len(s) - len(path.shifts))
    return TautString(np.append(before, path.shifts), path.start, path.mu, path.restart)


def _grid(s: Floats, top: float) -> Floats:
    """0, then half the points geometric from far below any s, half quadratic up to ``top``."""
    positive = s[s > 0]
    low = max(min(float(positive.min(initial=top)), top) * 1e-3, min(top, sys.float_info.min))
    half = _POINTS // 2
    return np.unique(
        np.concatenate(
            [[0.0], np.geomspace(low, top, half), top * (np.arange(1, half + 1) / half) ** 2]
        )
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """The value of every (step, distance) on a grid: a map of the valleys, not a bound."""

    rows: Floats
    s: Floats
    nu: Floats
    diameter: float
    grid: Floats
    ahead: list[_Ahead]  # ahead[i]: what follows step T - 1 - i
    restarts: list[float]  # restarts[i]: the value of step T - 1 - i from the diameter
    earliest: int  # the first step that a path may start at from the diameter
    common: float  # the value from a common start, infinite where that cannot win

    @property
    def common_start_may_win(self) -> bool:
        return math.isfinite(self.common)

    @classmethod
    def over(
        cls, rows: Floats, s: Floats, nu: Floats, diameter: float, common_start: bool
    ) -> _Search:
        """Backwards from the end, only as far as a restart can still win.

        The value J_k(0) never falls as k goes back (one more step can only cost more), and a
        path that restarts before step k passes step k at some z >= 0. So once J_k(0) is above
        the best restart so far, nothing earlier can win, the common start included. With equal
        steps it is also enough to stop when J no longer changes.
        """
        top = diameter if math.isfinite(diameter) else _free_run(rows, s, len(s))
        grid = _grid(s, top if top > 0 else 1.0)
        now = np.where(grid > 0, math.inf, 0.0)
        ahead, restarts, best = list[_Ahead](), list[float](), math.inf
        equal = all(np.all(v == v[:1]) for v in (s, nu, *rows))
        earliest = 1 if common_start else 0
        for k in range(len(s) - 1, -1, -1):
            noise = float(nu[k])
            ahead.append(_Ahead.of(grid, now, noise))
            reach = moduli_at(rows[:, k], grid) + s[k]
            before, now = now, _cheapest(grid, ahead[-1], reach, noise)
            restarts.append(float(now[-1]))
            if k >= earliest and math.isfinite(diameter):
                best = min(best, restarts[-1])
            if math.isfinite(best) and now[0] >= best:
                return cls(rows, s, nu, diameter, grid, ahead, restarts, earliest, math.inf)
            if equal and np.all(np.isfinite(before)) and np.allclose(now, before, 1e-13, 0.0):
                break
        common = float(now[0]) if common_start else math.inf
        return cls(rows, s, nu, diameter, grid, ahead, restarts, earliest, common)

    @property
    def lowest(self) -> float:
        """The value of the best path on the map."""
        steps = len(self.s) - max(self.window, self.earliest)
        return min([self.common, *self.restarts[:steps]])

    @property
    def window(self) -> int:
        """The earliest step that was searched."""
        return len(self.s) - len(self.ahead)

    def valleys(self) -> list[int]:
        """Restarts that are a local minimum on the map, within a tenth of the best of all."""
        if not math.isfinite(self.diameter):
            return []
        steps = np.arange(max(self.window, self.earliest), len(self.s))
        cost = np.array([self.restarts[len(self.s) - 1 - k] for k in steps])
        good = cost <= 1.1 * min(cost.min(initial=math.inf), self.common)
        after, before = np.append(cost[1:], math.inf), np.append(math.inf, cost[:-1])
        bottom = np.flatnonzero((cost <= after) & (cost <= before) & good & np.isfinite(cost))
        lowest = bottom[np.argsort(cost[bottom], kind="stable")[:_VALLEYS]]
        return [int(k) for k in steps[lowest]]

    def descend(self, bottom: TautString) -> TautString:
        """Walk from a polished restart to its neighbours while they are better."""
        best, tried = bottom, {bottom.restart}
        stride = max((len(self.s) - bottom.restart) // 16, 1)
        while stride:
            moved = False
            for k in (best.restart - stride, best.restart + stride):
                if not self.earliest <= k < len(self.s) or k in tried:
                    continue
                tried.add(k)
                other = self.polish(k, self.diameter)
                if other.mu < best.mu:
                    best, moved = other, True
                    break
            if not moved:
                stride //= 2
        return best

    def polish(self, tau: int, start: float) -> TautString:
        """From the path on the map to the bottom of its valley, then the replay."""
        begin = max(tau, self.window)
        first = start
        if begin > tau:  # nothing is paid before the steps that were searched
            rows, s = self.rows[:, tau:begin], self.s[tau:begin]
            first = min(_free_run(rows, s, len(s), start), self.diameter)
        rows, s, nu = self.rows[:, begin:], self.s[begin:], self.nu[begin:]
        shifts = _tangents(rows, s, nu, self.trace(begin, first))
        if begin > tau:
            shifts = np.append(np.zeros(begin - tau), shifts)
        mu = replay_path(self.rows[:, tau:], self.s[tau:], self.nu[tau:], shifts, start)
        return TautString(shifts, start, mu, tau)

    def trace(self, k: int, z: float) -> Floats:
        """The path z_k, ..., z_T that the map advises."""
        path = [z]
        for step in range(k, len(self.s)):
            reach = modulus_at(self.rows[:, step].tolist(), z) + float(self.s[step])
            ahead = self.ahead[len(self.s) - 1 - step]
            z = _advice(self.grid, ahead, reach, float(self.nu[step]))
            path.append(z)
        path[-1] = 0.0
        return np.array(path)


def _free_run(rows: Floats, s: Floats, steps: int, start: float = 0.0) -> float:
    """The distance after so many steps that pay nothing (kept finite)."""
    z = start
    columns = zip(*rows[:, :steps].tolist(), s[:steps].tolist(), strict=True)
    for *row, jump in columns:
        z = min(modulus_at(row, z) + jump, 1e100)
    return z


class _Ahead(NamedTuple):
    """The value after a step on the grid, ready for the question what that step should pay.

    min over nodes z of (y - z)^2 + v J(z), v = noise^2, is a conjugate: the node is where the
    slopes of the greatest convex minorant of v J(z) + z^2 pass 2 y. SciPy pools them in O(n).
    """

    value: Floats  # finite up to some node, never beyond
    tilts: Floats  # of the chords between nodes; the one from 0 is no chord, g may jump there
    slopes: Floats  # of the minorant

    @classmethod
    def of(cls, grid: Floats, value: Floats, noise: float) -> _Ahead:
        variance = min(noise * noise, _LARGEST)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(value * variance + grid * grid)
        known = len(grid) if finite.all() else int(np.argmin(finite))
        width = np.diff(grid[:known])
        rises = np.diff(value[:known] * variance + grid[:known] ** 2) / width
        slopes = scipy.optimize.isotonic_regression(rises, weights=width).x if known > 1 else rises
        return cls(value, np.diff(value[:known]) / width, slopes)


def _cheapest(grid: Floats, ahead: _Ahead, reach: Floats, noise: float) -> Floats:
    """min over z <= reach of (reach - z)^2/noise^2 + value(z), for every reach.

    ``value`` is linear between grid points, except that 0 stands alone: g may jump there. Looked
    at: 0, and the two chords at the best node.
    """
    value, tilts = ahead.value, ahead.tilts
    if noise == 0:
        known = np.all(np.isfinite(value))
        cost = np.interp(reach, grid, value) if known else np.full(reach.shape, math.inf)
        return np.asarray(np.where(reach == 0, value[0], cost))
    slack = min(noise * noise / 2, _LARGEST)
    with np.errstate(over="ignore"):
        best = np.asarray((reach / noise) ** 2 + value[0])
        if len(tilts) < 2:
            return best
        node = np.searchsorted(ahead.slopes, 2 * reach)
        node = np.minimum(node, np.searchsorted(grid, reach, side="right") - 1)
        for place in (node - 1, node):
            chord = np.minimum(np.maximum(place, 1), len(tilts) - 1)
            left, tilt = grid[chord], tilts[chord]
            z = np.minimum(np.minimum(reach - tilt * slack, grid[chord + 1]), reach)
            z = np.maximum(z, left)
            cost = ((reach - z) / noise) ** 2 + value[chord] + tilt * (z - left)
            best = np.where((cost < best) & (left <= reach), cost, best)
    return best


def _advice(grid: Floats, ahead: _Ahead, reach: float, noise: float) -> float:
    """The z that attains `_cheapest`, for one reach."""
    value, tilts = ahead.value, ahead.tilts
    if noise == 0:
        return reach
    slack = min(noise * noise / 2, _LARGEST)
    ratio = reach / noise
    best, advice = ratio * ratio + float(value[0]), 0.0
    if len(tilts) < 2:
        return advice
    node = int(np.searchsorted(ahead.slopes, 2 * reach))
    node = min(node, int(np.searchsorted(grid, reach, side="right")) - 1)
    for place in (node - 1, node):
        chord = min(max(place, 1), len(tilts) - 1)
        left, tilt = float(grid[chord]), float(tilts[chord])
        z = max(min(reach - tilt * slack, float(grid[chord + 1]), reach), left)
        ratio = (reach - z) / noise
        cost = ratio * ratio + float(value[chord]) + tilt * (z - left)
        if cost < best and left <= reach:
            best, advice = cost, z
    return advice


def _tangents(rows: Floats, s: Floats, nu: Floats, z: Floats) -> Floats:
    """Shifts at the bottom of the valley of the path z_0, ..., z_n = 0."""
    z, shifts, cost = _pay(rows, s, nu, z)
    for _ in range(_ROUNDS):
        old = cost
        trial, trial_shifts, trial_cost = _pay(rows, s, nu, _one_round(rows, s, nu, z))
        if not trial_cost < cost:
            break
        z, shifts, cost = trial, trial_shifts, trial_cost
        if old - cost <= 1e-14 * cost:
            break
    # A hair more than needed, so that the replay, which rounds up, still ends at 0.
    return shifts * (1.0 + _UNIT * (40.0 * len(s) + 64.0))


def _pay(rows: Floats, s: Floats, nu: Floats, z: Floats) -> tuple[Floats, Floats, float]:
    """The path z, lowered where g does not even reach it; its shifts; its cost."""
    z = z.copy()
    reach = moduli_at(rows, z[:-1]) + s
    if np.any(reach < z[1:]):
        columns = zip(*rows.tolist(), s.tolist(), strict=True)
        for k, (*row, jump) in enumerate(columns):
            z[k + 1] = min(z[k + 1], modulus_at(row, float(z[k])) + jump)
        reach = moduli_at(rows, z[:-1]) + s
    shifts = np.maximum(reach - z[1:], 0.0)
    shifts[(nu == 0)] = 0.0
    with np.errstate(over="ignore"):
        ratios = np.divide(shifts, nu, out=np.zeros(len(s)), where=nu > 0)
        return z, shifts, float(ratios @ ratios)


def _one_round(rows: Floats, s: Floats, nu: Floats, z: Floats) -> Floats:
    """The taut string of the tangents at z, cut where z = 0 and the tangent is vertical."""
    slope = slope_of_modulus(rows, z[:-1])
    slope[0] = math.inf  # the first distance is given
    wall = ~np.isfinite(slope)
    slope[wall] = 0.0
    jump = np.maximum(moduli_at(rows, z[:-1]) - slope * z[:-1], 0.0) + s
    new = np.zeros_like(z)
    new[0] = z[0]
    cuts = np.append(np.flatnonzero(wall), len(s))
    for i, j in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        if j - i > 1:
            part = slice(i, j)
            shifts = taut_string(slope[part], jump[part], nu[part]).shifts
            new[i + 1 : j] = _distances(slope[part], jump[part], shifts)
    return new


def _distances(c: Floats, s: Floats, a: Floats) -> Floats:
    """z between two zeros, from the side on which rounding errors shrink."""
    n = len(c)
    z = np.zeros(n + 1)
    with np.errstate(divide="ignore"):
        backwards = np.log(c[1:]).sum() > 0
    if backwards:
        for k in range(n - 1, 0, -1):
            z[k] = max((z[k + 1] + a[k] - s[k]) / c[k], 0.0)
    else:
        for k in range(n - 1):
            z[k + 1] = max(c[k] * z[k] + s[k] - a[k], 0.0)
    return z[1:-1]
