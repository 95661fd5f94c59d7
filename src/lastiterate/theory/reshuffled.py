"""A new hidden partition every epoch: the boundary policy.

Levels zeta_0 = 0, zeta_1, ..., zeta_E = 0 are fixed in advance. In epoch e, at the random position
J_e of the record, the string pays X_e(J_e), just enough to go from zeta_e to zeta_{e+1}. The costs
are independent, so the law of their sum is a convolution; given the positions the pair is Gaussian,
and delta(eps) = E delta_{sqrt(sum X)}(eps) by joint convexity.

X(x, y, J) is convex in (x, y) and has a closed form (`EpochCosts`). Every choice of levels is
valid, so their search (`LevelSearch`) only has to be good: the soft cost
sum_e log E exp(kappa X_e)/kappa is convex in the levels and couples neighbours only; Newton's
method finds its minimum in O(E B) per round. Small kappa minimises the mean cost, large kappa the
worst one; the kappa whose curve is best where it matters is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Reshuffled
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.theory.cost_law import CostLaw, Rows, law_of_sum
from lastiterate.theory.ordered_batches import drift_witness, drifted_mu, ordered_limits
from lastiterate.theory.positions import (
    UNIT,
    Floats,
    check_releases,
    checked_steps,
    epoch_rows,
    prefixes,
    suffixes,
)
from lastiterate.theory.registry import LIPSCHITZ, PRESENCE, Proof, Theorem
from lastiterate.theory.run import Run

# Constants of the search and of the grid of costs.
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


_NODES = 96  # positions the search looks at; the law uses all of them


@dataclass(frozen=True)
class Levels:
    """zeta_0..zeta_E, and which epochs pay (those before a restart from the diameter do not)."""

    zeta: Floats
    pays: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def written(self, diameter: float) -> Floats:
        """The distances for a certificate: an epoch that pays nothing ends at the diameter."""
        distances = np.array(self.zeta)
        distances[1:][~self.pays] = diameter
        return distances

    def costs(self, costs: EpochCosts) -> tuple[Floats, Rows]:
        """The distinct rows of costs X_e(.) under these levels, and how often each occurs."""
        epochs = np.flatnonzero(self.pays)
        if len(epochs) == 0:
            return np.zeros((0, costs.batches)), np.zeros(0, dtype=np.intp)
        key = np.column_stack([costs.row[epochs], self.zeta[epochs], self.zeta[epochs + 1]])
        _, first, counts = np.unique(key, axis=0, return_index=True, return_counts=True)
        chosen = epochs[first]
        return costs.values(chosen, self.zeta[chosen], self.zeta[chosen + 1]), counts


class LevelSearch:
    """Levels for a run cut into segments [first, last) of epochs, each from and to a known point.

    With a finite diameter a segment may also start at a later epoch, at level = diameter.
    """

    def __init__(self, costs: EpochCosts, segments: list[tuple[int, int]], diameter: float) -> None:
        nodes, self._weights = _nodes(costs.batches)
        self._costs = costs.at_positions(nodes)
        self._segments, self.diameter = segments, diameter
        self.known = {place for segment in segments for place in segment}
        self._known: dict[tuple[int, int], Floats] = {}

    def __call__(self, kappa: float) -> Levels:
        """The levels of least soft cost at ``kappa``."""
        epochs = len(self._costs.row)
        zeta, pays = np.zeros(epochs + 1), np.ones(epochs, dtype=bool)
        for first, last in self._segments:
            best, value, start = *self._solve(first, last, 0.0, kappa), first
            if math.isfinite(self.diameter):
                for restart in _restarts(first, last):
                    trial, cost = self._solve(restart, last, self.diameter, kappa)
                    if cost < value:
                        best, value, start = trial, cost, restart
            zeta[first + 1 : start] = self.diameter  # the level at a release stays 0
            zeta[start : last + 1] = best
            pays[first:start] = False
        # Nearly equal levels are made equal (never above the diameter): equal epochs are
        # convolved together.
        grid = float(zeta.max()) / 2048
        if grid > 0:
            inner = zeta < self.diameter
            zeta = np.where(inner, np.floor(zeta / grid) * grid, zeta)
        return Levels(zeta, pays)

    def _solve(self, first: int, last: int, start: float, kappa: float) -> tuple[Floats, float]:
        guess = self._known.get((first, last), np.zeros(last - first + 1)).copy()
        guess[0], guess[-1] = start, 0.0
        problem = _Problem(self._costs, self._weights, np.arange(first, last), kappa)
        found = problem.minimise(guess, self.diameter)
        self._known[first, last] = found[0]
        return found


def _restarts(first: int, last: int) -> list[int]:
    """Epochs at which a restart is tried: geometric in the distance to the end."""
    length = last - first
    ahead = {round(1.25**i) for i in range(200) if 1.25**i <= length - 1}
    return [last - epochs for epochs in sorted(ahead)]


def _nodes(batches: int) -> tuple[Rows, Floats]:
    """Positions that stand for an epoch, and their shares: dense at the end, where costs peak."""
    if batches <= _NODES:
        return np.arange(batches), np.full(batches, 1 / batches)
    nodes = batches - np.unique(np.geomspace(1, batches, _NODES).astype(np.intp))[::-1]
    return nodes, np.diff(np.append(nodes, batches)) / batches


@dataclass(frozen=True)
class _Problem:
    costs: EpochCosts
    weights: Floats
    epochs: Rows
    kappa: float

    def value(self, z: Floats) -> float:
        X = self.kappa * self.costs.values(self.epochs, z[:-1], z[1:])
        top = X.max(axis=1)
        soft = top + np.log(np.exp(X - top[:, None]) @ self.weights)
        return float(soft.sum()) / self.kappa

    def minimise(self, z: Floats, ceiling: float) -> tuple[Floats, float]:
        """Damped, projected Newton on 0 <= zeta <= ceiling, end points fixed."""
        value, damping = self.value(z), 1e-6
        for _ in range(100 if len(z) > 2 else 0):
            with np.errstate(all="ignore"):  # a search: `values` prices what it finds
                gradient, diagonal, off = self._slopes(z)
            if not all(np.all(np.isfinite(each)) for each in (gradient, diagonal, off)):
                break
            stuck = ((z[1:-1] <= 0) & (gradient > 0)) | ((z[1:-1] >= ceiling) & (gradient < 0))
            gradient = np.where(stuck, 0.0, gradient)
            off = np.where(stuck[1:] | stuck[:-1], 0.0, off)
            old = value
            for _ in range(20):
                band = np.zeros((2, len(diagonal)))
                band[0, 1:] = off
                band[1] = np.where(stuck, 1.0, diagonal) + damping * (diagonal.max() + 1e-30)
                try:  # (the banded solver does not take a single unknown)
                    one = len(gradient) == 1
                    step = (
                        -gradient / band[1] if one else scipy.linalg.solveh_banded(band, -gradient)
                    )
                except (np.linalg.LinAlgError, ValueError):  # not definite, or beyond all doubles
                    damping *= 10
                    continue
                trial = z.copy()
                trial[1:-1] = np.clip(z[1:-1] + step, 0.0, ceiling)
                new = self.value(trial)
                if new < value:
                    z, value, damping = trial, new, damping / 10
                    break
                damping *= 10
            if old - value <= 1e-8 * abs(old):
                break
        return z, value

    def _slopes(self, z: Floats) -> tuple[Floats, Floats, Floats]:
        """Gradient, and the two diagonals of the Hessian, in the inner levels."""
        X, Xx, Xy, Xxx, Xxy, Xyy = self.costs.derivatives(self.epochs, z[:-1], z[1:])
        share = np.exp(self.kappa * (X - X.max(axis=1, keepdims=True))) * self.weights
        share /= share.sum(axis=1, keepdims=True)
        x, y = (share * Xx).sum(axis=1), (share * Xy).sum(axis=1)
        xx = (share * (Xxx + self.kappa * Xx**2)).sum(axis=1) - self.kappa * x**2
        yy = (share * (Xyy + self.kappa * Xy**2)).sum(axis=1) - self.kappa * y**2
        xy = (share * (Xxy + self.kappa * Xx * Xy)).sum(axis=1) - self.kappa * x * y
        return x[1:] + y[:-1], xx[1:] + yy[:-1], xy[1:-1]


_TINIEST = 1e-150
_COARSE, _FINEST = 1 << 12, 1 << 20
_FEW = 4  # levels that are polished one by one


@dataclass(frozen=True, eq=False)
class Policy:
    """delta(eps) <= sum_i weights[i] delta_{mus[i]}(eps) in both orders; weights sum to >= 1.

    ``levels[e]`` is zeta_e; ``pays[e]`` is False in the epochs before a restart from the diameter;
    ``worst`` is a mu that no sequence of positions exceeds, proved by the levels ``cap``.
    """

    levels: Floats
    pays: np.ndarray[tuple[int], np.dtype[np.bool_]]
    mus: Floats
    weights: Floats
    worst: float
    cap: Levels
    description: str


def reshuffled(
    c: ArrayLike,
    s: ArrayLike,
    nu: ArrayLike,
    batches: int,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    diameter: float = math.inf,
    releases: Sequence[int] = (),
    window: int = 1,
) -> Policy:
    """The law that bounds a run whose partition is drawn afresh, and hidden, in every epoch.

    Statement: J_0, J_1, ... independent and uniform on the B positions; step k of epoch e has the
    impulse s_k 1{k = J_e}. For any levels, given J the pair is Gaussian with mu^2 = sum X_e(J_e)
    (shifted interpolation), hence delta(eps) = E delta_{sqrt(sum X)}(eps). Any bound of the worst
    sequence caps the sum: sum_e max_J X_e under other levels is one. (The worst *cyclic* position
    is not: it fails for a partial last epoch and for varying steps.)
    The levels are chosen for one ``epsilon`` or one ``delta``; the law holds for all.
    ``diameter``: at the start of an epoch the string may start at this level, the past free.
    ``releases``: a checkpoint at the end of an epoch forces the level 0 there. ``window`` = k
    releases the last k iterates: the string ends at T-k+1, later impulses are paid on arrival.

    Reference: this library (docs/theory). Status: sound, rounded up.

    >>> one = np.ones(50)
    >>> policy = reshuffled(one, 0.8 * one, one, batches=10, epsilon=0.5)
    >>> deltas = gaussian.delta(policy.mus, np.full(len(policy.mus), 0.5))
    >>> bool(0.111 < policy.weights @ deltas < 0.1167)
    True
    """
    cs, ss, ns = checked_steps(c, s, nu, batches)
    if (epsilon is None) == (delta is None):
        why = "the levels are chosen to be good at one point of the curve"
        raise DescriptionError("epsilon, delta", (epsilon, delta), "one of them, and not both", why)
    steps = len(ss)
    end, segments = epoch_segments(steps, batches, releases, window)
    if steps == 0 or not np.any(ss > 0):
        return _certain(0.0, -(-steps // batches), "no record is ever used")
    if not np.any(ns > 0):
        return _certain(math.inf, -(-steps // batches), "no noise is ever added")
    costs = epoch_costs(cs, ss, ns, batches, end)
    search = _Objective(costs, LevelSearch(costs, segments, diameter), epsilon, delta)
    kappa, levels = search.best()
    rows, counts = levels.costs(costs)
    law = law_of_sum(rows, counts, search.cap, grid_points(counts))
    mus = np.sqrt(law.costs) * (1 + 2.0**-50)
    mus = np.where(mus > 1e100, math.inf, mus)  # paid where there is no noise
    paying = int(levels.pays.sum())
    description = (
        f"boundary policy over {len(levels.pays)} epochs of {batches} batches, "
        f"{paying} of them paying, largest level {float(levels.zeta.max()):.4g}, "
        f"tilt {kappa:.3g}"
    )
    worst = float(np.sqrt(min(search.cap, float(counts @ rows.max(axis=1, initial=0.0)))))
    return Policy(
        levels.zeta,
        levels.pays,
        mus,
        law.weights,
        worst * (1 + 1e-12),
        levels if search.cheapest is None else search.cheapest,
        description,
    )


def epoch_segments(
    steps: int, batches: int, releases: Sequence[int], window: int
) -> tuple[int, list[tuple[int, int]]]:
    """Where the string ends, and the stretches of epochs between known points."""
    check_releases(steps, releases, window)
    end = steps - window + 1 if steps else 0
    cuts = {0, -(-end // batches), -(-steps // batches)}
    for release in releases:
        if release >= end:
            continue  # released with the window already
        if release % batches:
            near = max(release // batches, 1) * batches
            raise UnsupportedError(
                f"the checkpoint after {release} steps lies inside an epoch of {batches} batches: "
                "the hidden position would be shared by two releases, and no theorem here covers "
                f"that. Release after {near} steps, at the end of an epoch, or use Shuffled batches"
            )
        cuts.add(release // batches)
    ordered = sorted(cuts)
    # Epochs of the released window pay every impulse on arrival: nothing there may be skipped.
    hidden = [first for first in ordered[:-1] if first * batches < end]
    return end, list(zip(hidden, ordered[1:], strict=False))


def _certain(mu: float, epochs: int, description: str) -> Policy:
    """Whatever the positions are: every epoch pays for its own impulse, if there is one."""
    plain = Levels(np.zeros(epochs + 1), np.ones(epochs, dtype=bool))
    return Policy(plain.zeta, plain.pays, np.array([mu]), np.array([1.0]), mu, plain, description)


def grid_points(counts: np.ndarray[tuple[int], np.dtype[np.intp]]) -> int:
    """Points of a grid on which rounding up adds at most about a thousandth, within reason."""
    wanted = max(1 << 14, 512 * int(counts.sum()))
    points = max(min(wanted, _FINEST), 8 * int(counts.sum()))
    return 1 << math.ceil(math.log2(points))


@dataclass
class _Objective:
    """What the search minimises over kappa: delta at epsilon, or epsilon at delta."""

    costs: EpochCosts
    levels: LevelSearch
    epsilon: float | None
    delta: float | None
    cap: float = math.inf
    cheapest: Levels | None = None  # the levels of that worst case

    def best(self) -> tuple[float, Levels]:
        """The best tilt found, its levels; ``cap`` is the least worst case met on the way."""
        epochs = len(self.costs.row)
        plain = Levels(np.zeros(epochs + 1), np.ones(epochs, dtype=bool))
        scale = self._mean(plain)
        if not scale < 1e200:  # an epoch that ends without noise: nothing to search for
            return 0.0, plain
        mean = self._mean(self.levels(0.1 / scale))
        if mean < _TINIEST:  # nothing to gain, and logarithms that doubles cannot hold
            return 0.0, plain
        tried: dict[float, tuple[float, Levels]] = {}
        # The worst case: larger and larger tilts.
        for factor in (10.0, 100.0, 1e3, 1e4):
            self._lower_cap(self.levels(factor / mean))

        def value(log_kappa: float) -> float:
            levels = self.levels(math.exp(log_kappa))
            self._lower_cap(levels)
            tried[math.exp(log_kappa)] = (self._value(levels), levels)
            return tried[math.exp(log_kappa)][0]

        # d log delta/dx = eps^2/(2 x^2) for one Gaussian of mu^2 = x far from its mean.
        target = self.epsilon
        if target is None:
            assert self.delta is not None
            target = gaussian.epsilon(math.sqrt(mean), self.delta)
        guess = math.log(max((target / mean) ** 2 / 2, 0.2 / mean))
        grid = [guess + 1.2 * i for i in range(-3, 4)]
        centre = min(grid, key=value)
        scipy.optimize.minimize_scalar(
            value, bounds=(centre - 1.2, centre + 1.2), method="bounded", options={"maxiter": 8}
        )
        kappa = min(tried, key=lambda k: tried[k][0])
        return kappa, self._polished(tried[kappa][1])

    def _polished(self, levels: Levels) -> Levels:
        """A few levels need not be those of a tilt: the value itself, downhill from the best."""
        inner = np.flatnonzero(levels.pays[:-1] & levels.pays[1:]) + 1
        free = np.array([e for e in inner.tolist() if e not in self.levels.known], dtype=int)
        if not 1 <= len(free) <= _FEW:
            return levels

        def at(values: Floats) -> Levels:
            zeta = levels.zeta.copy()
            zeta[free] = np.clip(values, 0.0, self.levels.diameter)
            return Levels(zeta, levels.pays)

        def value(values: Floats) -> float:
            return self._value(at(values))

        start = levels.zeta[free]
        widest = self.cheapest.zeta.max() if self.cheapest is not None else 0.0
        width = 0.2 * max(float(widest), float(levels.zeta[free].max()))
        if width == 0.0:
            return levels
        simplex = np.vstack([start, start + width * np.eye(len(free))])
        found = scipy.optimize.fmin(
            value,
            start,
            initial_simplex=simplex,
            maxfun=25 * len(free),
            xtol=1e-5 * width,
            disp=False,
        )
        best = at(np.asarray(found))
        self._lower_cap(best)
        return min((levels, best), key=self._value)

    def _mean(self, levels: Levels) -> float:
        rows, counts = levels.costs(self.costs)
        return float(counts @ rows.mean(axis=1)) if len(rows) else 0.0

    def _lower_cap(self, levels: Levels) -> None:
        rows, counts = levels.costs(self.costs)
        worst = float(counts @ rows.max(axis=1, initial=0.0)) * (1 + 1e-12)
        if worst < self.cap:
            self.cap, self.cheapest = worst, levels

    def _value(self, levels: Levels) -> float:
        rows, counts = levels.costs(self.costs)
        points = max(_COARSE, 1 << math.ceil(math.log2(32 * max(int(counts.sum()), 1))))
        law = law_of_sum(rows, counts, self.cap, points)
        if self.epsilon is not None:
            return _log_delta(law, self.epsilon)
        assert self.delta is not None
        goal = math.log(self.delta) if self.delta > 0 else -1e4
        if _log_delta(law, 0.0) <= goal:
            return _log_delta(law, 0.0) - goal
        # The dearest cost alone is not better; the law may hold a hair more than one.
        high = max(gaussian.epsilon(math.sqrt(float(law.costs.max())), self.delta), 1.0)
        while high <= 1e200 and _log_delta(law, high) > goal:
            high *= 2
        if high > 1e200:
            return high
        return float(
            scipy.optimize.brentq(lambda e: _log_delta(law, e) - goal, 0.0, high, rtol=1e-6)
        )


def _log_delta(law: CostLaw, epsilon: float) -> float:
    mus = np.sqrt(law.costs)
    logs = np.log(law.weights) + gaussian.log_delta(mus, np.full(len(mus), epsilon))
    return float(np.logaddexp.reduce(logs))


# --- the theorem -------------------------------------------------------------------------------


def reshuffled_limits(run: Run) -> str | None:
    """What is special about it: checkpoints lie where partitions renew."""
    if not run.releases_end_epochs:
        return "released checkpoints must lie on epoch boundaries, where partitions renew"
    return ordered_limits(run, modulus=False)


def boundary_policy_bound(run: Run) -> Proof:
    """The best levels found for each delta."""
    training, steps = run.training, run.steps
    drift = drifted_mu(run)

    def at(delta: float) -> Proof:
        policy = reshuffled(
            steps.c,
            steps.s,
            steps.nu,
            run.batches,
            delta=delta,
            diameter=training.diameter,
            releases=run.releases[:-1],
            window=run.window,
        )
        cap = policy.cap.written(training.diameter)
        levels = Levels(policy.levels, policy.pays).written(training.diameter)
        witness = {"levels": levels, "cap_levels": cap, **drift_witness(run)}
        mus = (policy.mus + drift) * (1 + 2.0**-50) if drift else policy.mus
        return Proof(Mixture(mus, policy.weights), witness)

    return Proof.searched(at)


BOUNDARY_POLICY = Theorem(
    key="boundary-policy",
    name="Boundary policy",
    reference="this library: independent epoch costs under fixed boundary levels",
    statement=(
        "Fix levels zeta_0 = 0, ..., zeta_E = 0. In epoch e a record at the random position J_e "
        "pays X_e(J_e) to go from zeta_e to zeta_{e+1}. The costs are independent; delta(eps) = "
        "E delta_{sqrt(sum X)}(eps). Any levels are valid; good ones are searched for each delta. "
        "The sum is capped by the worst sequence of positions."
    ),
    schemes=(Reshuffled,),
    bound=boundary_policy_bound,
    limits=reshuffled_limits,
    supports=LIPSCHITZ | PRESENCE | {"releases"},
    assumptions=(
        "a new uniformly random partition every epoch, all of them secret",
        "updates are Lipschitz",
    ),
    dominated_by=("reshuffled-exchange",),
)
