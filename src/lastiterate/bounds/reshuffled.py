"""A new hidden partition every epoch: the boundary policy.

Levels zeta_0 = 0, zeta_1, ..., zeta_E = 0 are fixed in advance. In epoch e, at the random position
J_e of the record, the string pays X_e(J_e), just enough to go from zeta_e to zeta_{e+1}. The costs
are independent, so the law of their sum is a convolution; given the positions the pair is Gaussian,
and delta(eps) = E delta_{sqrt(sum X)}(eps) by joint convexity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, fmin, minimize_scalar

from lastiterate.bounds.boundary_levels import Levels, LevelSearch
from lastiterate.bounds.cost_law import CostLaw, law_of_sum
from lastiterate.bounds.epoch_costs import EpochCosts, epoch_costs
from lastiterate.bounds.positions import Floats, check_releases, checked_steps
from lastiterate.curves import gaussian
from lastiterate.errors import DescriptionError, UnsupportedError

_TINIEST = 1e-150
_COARSE, _FINEST = 1 << 12, 1 << 20
_FEW = 4  # levels that are polished one by one


@dataclass(frozen=True, eq=False)
class BoundaryPolicy:
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
) -> BoundaryPolicy:
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
    law = law_of_sum(rows, counts, search.cap, grid_points(rows, counts))
    mus = np.sqrt(law.costs) * (1 + 2.0**-50)
    mus = np.where(mus > 1e100, math.inf, mus)  # paid where there is no noise
    paying = int(levels.pays.sum())
    description = (
        f"boundary policy over {len(levels.pays)} epochs of {batches} batches, "
        f"{paying} of them paying, largest level {float(levels.zeta.max()):.4g}, "
        f"tilt {kappa:.3g}"
    )
    worst = float(np.sqrt(min(search.cap, float(counts @ rows.max(axis=1, initial=0.0)))))
    return BoundaryPolicy(
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


def _certain(mu: float, epochs: int, description: str) -> BoundaryPolicy:
    """Whatever the positions are: every epoch pays for its own impulse, if there is one."""
    plain = Levels(np.zeros(epochs + 1), np.ones(epochs, dtype=bool))
    return BoundaryPolicy(
        plain.zeta, plain.pays, np.array([mu]), np.array([1.0]), mu, plain, description
    )


def grid_points(rows: Floats, counts: np.ndarray[tuple[int], np.dtype[np.intp]]) -> int:
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
        minimize_scalar(
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
        found = fmin(
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
        return float(brentq(lambda e: _log_delta(law, e) - goal, 0.0, high, rtol=1e-6))


def _log_delta(law: CostLaw, epsilon: float) -> float:
    mus = np.sqrt(law.costs)
    logs = np.log(law.weights) + gaussian.log_delta(mus, np.full(len(mus), epsilon))
    return float(np.logaddexp.reduce(logs))
