"""A new hidden partition every epoch, under concave moduli: Hoelder and bounded gradients.

As in the boundary policy (`reshuffled`) levels at the ends of epochs are fixed, the record's
positions are independent, and their costs add. What an epoch costs has no closed form here: for
each position a path of distances leads from one level to the next, and its cost is summed step by
step. Any distances of at least 0 are a proof. They are found by tangents (docs/theory/holder.md),
the levels by a dynamic programme over a grid; in epochs of many batches all positions share one
path, and each pays for its own impulse when it comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lastiterate.curves.mixture import Mixture
from lastiterate.description import Reshuffled
from lastiterate.theory.cost_law import Rows, law_of_sum
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.full_batch import modulus_limits
from lastiterate.theory.modulus import moduli_at, slope_of_modulus
from lastiterate.theory.ordered_batches import MOST_STEPS
from lastiterate.theory.registry import ANY_UPDATE, PRESENCE, Proof, Theorem
from lastiterate.theory.reshuffled import grid_points
from lastiterate.theory.run import Run

Floats = NDArray[np.float64]

MOST_DISTANCES = 200_000  # of a witness: beyond, positions share a path
_LOOKED_AT = 2000  # last steps, in epochs that may pay
_DIFFERENT = 8  # kinds of epochs that are looked at
_GRID, _POSITIONS = 18, 12  # levels and positions of the dynamic programme
_ROUNDS = 3  # of tangents
_BEGINS = 6  # places in an epoch where a path may leave the diameter
_KAPPAS = (0.0, 0.3, 1.0, 3.0)  # times a guess
_FINER = (1.15, 1.04, 1.01)  # factors by which levels are moved
_MOVES = 4  # by each of them
_UP = 1 + 2.0**-40
_FLAT = 1e-4  # of the scale of a path: tangents are not steeper than there


@dataclass(frozen=True, eq=False)
class EpochPaths:
    """The steps of an epoch: moduli, impulses where the record is used, drifts elsewhere, noise."""

    rows: Floats
    s: Floats
    drift: Floats
    nu: Floats

    @classmethod
    def of(cls, steps: Steps) -> EpochPaths:
        """From the steps of the run."""
        return cls(
            steps.rows, np.array(steps.s), np.array(steps.rounding_drift), np.array(steps.nu)
        )

    @cached_property
    def key(self) -> bytes:
        """Equal for equal epochs."""
        return b"".join(x.tobytes() for x in (self.rows, self.s, self.drift, self.nu))

    def arrivals(self, positions: Rows) -> Floats:
        """What is added to the distance at every step, a row for each position of the record."""
        used = np.arange(len(self.s)) == positions[:, None]
        return np.where(used, self.s, self.drift)

    def costs(self, z: Floats, arrivals: Floats) -> Floats:
        """Sum of (a/nu)^2 along paths, a row each, rounded up."""
        reach = (moduli_at(self.rows, z[:, :-1]) + arrivals) * _UP
        pays = np.maximum(reach - z[:, 1:], 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratios = np.where(pays > 0, pays / self.nu, 0.0)
        return np.asarray((ratios**2).sum(axis=1) * _UP + 1e-290)

    def later(self, begin: int) -> EpochPaths:
        """The steps from one on."""
        after = (values[begin:] for values in (self.s, self.drift, self.nu))
        return EpochPaths(self.rows[:, begin:], *after)

    def from_diameter(self, y: Floats, positions: Rows, diameter: float) -> tuple[Floats, Floats]:
        """Paths that stay at the diameter for a while, which is free, and end at levels y."""
        steps = len(self.s)
        best, least = np.zeros((len(y), steps + 1)), np.full(len(y), math.inf)
        for begin in sorted({0, *(steps * np.arange(1, _BEGINS) // _BEGINS).tolist(), steps - 1}):
            later = EpochPaths(
                self.rows[:, begin:], *(v[begin:] for v in (self.s, self.drift, self.nu))
            )
            z, cost = later.paths(np.full(len(y), diameter), y, positions - begin)
            better = cost < least
            least = np.where(better, cost, least)
            best[better] = np.hstack([np.full((len(y), begin), diameter), z])[better]
        return best, least

    def paths(self, x: Floats, y: Floats, positions: Rows) -> tuple[Floats, Floats]:
        """Paths from levels x to y, one for each position, and what they cost."""
        arrivals = self.arrivals(positions)
        batch = np.arange(len(self.s) + 1) / max(len(self.s), 1)
        z = x[:, None] * (1 - batch) + y[:, None] * batch
        best, least = z, self.costs(z, arrivals)
        for _ in range(_ROUNDS):
            for apart in (False, True):
                z = self._tangent(best, arrivals, positions if apart else None)
                cost = self.costs(z, arrivals)
                better = cost < least
                best = np.where(better[:, None], z, best)
                least = np.where(better, cost, least)
        return best, least

    def _tangent(self, z: Floats, arrivals: Floats, cut: Rows | None) -> Floats:
        """The optimum of the tangents at z, as one block, or as two that ``cut`` separates."""
        scale = np.maximum(z.max(axis=1), arrivals.max(axis=1, initial=0.0))[:, None]
        at = np.maximum(z[:, :-1], np.maximum(_FLAT * scale, 1e-300))
        c = slope_of_modulus(self.rows, at)
        t = np.maximum(moduli_at(self.rows, at) - c * at, 0.0) + arrivals
        steps = c.shape[1]
        early = np.zeros_like(c, dtype=bool) if cut is None else np.arange(steps) < cut[:, None]
        with np.errstate(all="ignore"):  # a search: `costs` prices what it finds
            later = np.ones_like(c)
            for k in range(steps - 2, -1, -1):
                ends = early[:, k] & ~early[:, k + 1]
                later[:, k] = np.where(ends, 1.0, later[:, k + 1] * c[:, k + 1])
            share = later * self.nu**2
            pays = np.zeros_like(c)
            for part in (early, ~early):
                first = part & (np.arange(steps) == np.argmax(part, axis=1)[:, None])
                begin = np.where(early | ~early[:, :1], z[:, :1], 0.0)
                owed = (np.where(part, later * t, 0.0)).sum(axis=1)
                owed += np.where(first, later * c * begin, 0.0).sum(axis=1)
                owed -= np.where(part[:, -1], z[:, -1], 0.0)
                spread = np.where(part, later * share, 0.0).sum(axis=1)
                rate = np.where(spread > 0, np.maximum(owed, 0.0) / spread, 0.0)
                pays += np.where(part, rate[:, None] * share, 0.0)
            found = np.empty_like(z)
            found[:, 0] = z[:, 0]
            for k in range(steps):
                found[:, k + 1] = np.maximum(c[:, k] * found[:, k] + t[:, k] - pays[:, k], 0.0)
        found[:, -1] = z[:, -1]
        return np.where(np.isfinite(found), found, z)

    def between(
        self, x: Floats, y: Floats, positions: Rows, diameter: float
    ) -> tuple[Floats, Floats]:
        """`paths`, or those `from_diameter` where they begin there."""
        z, costs = self.paths(x, y, positions)
        far = x >= diameter
        if far.any():
            z[far], costs[far] = self.from_diameter(y[far], positions[far], diameter)
        return z, costs

    def shared(self, x: float, y: float, batches: int, diameter: float) -> tuple[Floats, Floats]:
        """One path for all positions, each of which pays for its impulse when it comes."""
        z, _ = self.between(np.array([x]), np.array([y]), np.array([batches]), diameter)
        begin = int(np.flatnonzero(z[0] >= diameter)[-1]) if x >= diameter else 0
        later = EpochPaths(
            self.rows[:, begin:], *(v[begin:] for v in (self.s, self.drift, self.nu))
        )
        arrivals = later.arrivals(np.arange(batches) - begin)
        return z, later.costs(
            np.broadcast_to(z[:, begin:], (batches, z.shape[1] - begin)), arrivals
        )


@dataclass(frozen=True)
class PricedLevels:
    """Levels of the epochs from ``first`` on, and what these cost at every position."""

    first: int
    levels: list[float]
    paths: list[Floats]
    costs: Floats

    @property
    def witness(self) -> dict[str, object]:
        """What lets somebody else price it."""
        return {"first_epoch": self.first, "paths": [path.ravel() for path in self.paths]}


@dataclass(eq=False)
class LevelGrid:
    """Levels for the last epochs of a run on a bounded domain."""

    steps: Steps
    batches: int
    diameter: float
    _tables: dict[bytes, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = -(-self.steps.count // self.batches)
        first, kinds = total, set[bytes]()
        self.epochs: list[EpochPaths] = []
        while first > 0 and (total - first) * self.batches < max(_LOOKED_AT, self.batches):
            start = (first - 1) * self.batches
            epoch = EpochPaths.of(self.steps[start : min(start + self.batches, self.steps.count)])
            kinds.add(epoch.key)
            if len(kinds) > _DIFFERENT:
                break
            self.epochs.insert(0, epoch)
            first -= 1
        self.first = first
        low = max(1e-3 * self.diameter, 1e-300)
        self.grid = np.append(0.0, np.geomspace(low, self.diameter, _GRID))
        some = np.linspace(0, self.batches - 1, min(self.batches, _POSITIONS)).round()
        self.positions = some.astype(np.intp)

    def _table(self, epoch: EpochPaths) -> Floats:
        """What it costs from every level to every other, at some positions."""
        if epoch.key not in self._tables:
            x, y, j = (
                values.ravel()
                for values in np.meshgrid(self.grid, self.grid, self.positions, indexing="ij")
            )
            _, costs = epoch.between(x, y, j, self.diameter)
            shape = len(self.grid), len(self.grid), len(self.positions)
            self._tables[epoch.key] = costs.reshape(shape)
        return self._tables[epoch.key]

    def levels(self, kappa: float) -> tuple[int, list[float]]:
        """The first paying epoch and the levels of least soft cost: a map, not a bound."""
        value = np.where(self.grid > 0, math.inf, 0.0)
        ahead: list[Rows] = []
        best, begin = math.inf, len(self.epochs)
        for epoch in reversed(self.epochs):
            soft = _soft(self._table(epoch), kappa)
            total = soft + value
            ahead.insert(0, total.argmin(axis=1))
            value = total.min(axis=1)
            at = len(self.epochs) - len(ahead)
            if value[-1] < best and (at > 0 or self.first > 0):
                best, begin = float(value[-1]), at
            if at == 0 and self.first == 0 and value[0] < best:
                return 0, self._traced(ahead, 0)
            if value[0] >= best:
                break
        return self.first + begin, self._traced(ahead[len(ahead) - len(self.epochs) + begin :], -1)

    def _traced(self, ahead: list[Rows], start: int) -> list[float]:
        place = start % len(self.grid)
        places = [place]
        for advice in ahead:
            place = int(advice[place])
            places.append(place)
        return [float(self.grid[place]) for place in places]

    def finer(self, first: int, levels: list[float], kappa: float) -> list[float]:
        """The inner levels moved while that is better: every other one at a time."""
        now = np.array(levels)
        costs, inner = self._softs(first, now, kappa), np.arange(1, len(now) - 1)
        for factor in _FINER * 2:
            for by in (factor, 1 / factor):
                for parity in (0, 1):
                    moved = inner[inner % 2 == parity]
                    for _ in range(_MOVES if len(moved) else 0):
                        trial = now.copy()
                        trial[moved] = np.minimum(now[moved] * by, self.diameter)
                        other = self._softs(first, trial, kappa)
                        gain = (costs - other)[moved - 1] + (costs - other)[moved]
                        moved = moved[gain > 1e-6 * (costs[moved - 1] + costs[moved])]
                        if not len(moved):
                            break
                        now[moved] = trial[moved]
                        costs = self._softs(first, now, kappa)
        return [float(level) for level in now]

    def _softs(self, first: int, levels: Floats, kappa: float) -> Floats:
        """The soft cost of every epoch."""
        kinds: dict[bytes, list[int]] = {}
        epochs, some = self.epochs[first - self.first :], self.positions
        for index, epoch in enumerate(epochs):
            kinds.setdefault(epoch.key, []).append(index)
        found = np.zeros(len(epochs))
        for places in kinds.values():
            at = np.repeat(places, len(some))
            ends, tiled = (levels[at], levels[at + 1]), np.tile(some, len(places))
            _, costs = epochs[places[0]].between(*ends, tiled, self.diameter)
            found[places] = _soft(costs.reshape(len(places), len(some)), kappa)
        return found

    def priced(self, first: int, levels: list[float]) -> PricedLevels:
        """All positions, under these levels."""
        epochs, batches = self.epochs[first - self.first :], self.batches
        each = batches * (batches + 1) * len(epochs) <= MOST_DISTANCES
        paths, costs = [], []
        for epoch, x, y in zip(epochs, levels[:-1], levels[1:], strict=True):
            if each:
                start, end = np.full(batches, x), np.full(batches, y)
                path, cost = epoch.between(start, end, np.arange(batches), self.diameter)
            else:
                path, cost = epoch.shared(x, y, batches, self.diameter)
            paths.append(path)
            costs.append(cost)
        return PricedLevels(first, levels, paths, np.array(costs).reshape(len(epochs), batches))


def _soft(costs: Floats, kappa: float) -> Floats:
    """log E exp(kappa X)/kappa over the last axis; the mean for kappa = 0."""
    if kappa == 0.0:
        return np.asarray(costs.mean(axis=-1))
    top = costs.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):
        soft = top[..., 0] + np.log(np.exp(kappa * (costs - top)).mean(axis=-1)) / kappa
    return np.where(np.isfinite(top[..., 0]), soft, math.inf)


def _curve(priced: PricedLevels) -> Mixture:
    rows = priced.costs
    if not len(rows) or not np.all(np.isfinite(rows)):  # no path, no noise, or beyond doubles
        return Mixture(np.array([math.inf]), np.array([1.0]))
    counts = np.ones(len(rows), dtype=np.intp)
    law = law_of_sum(rows, counts, math.inf, grid_points(counts))
    mus = np.sqrt(law.costs) * (1 + 2.0**-50)
    return Mixture(np.where(mus <= 1e100, mus, math.inf), law.weights)


def concave_policy_bound(run: Run) -> Proof:
    """The best levels found for each delta."""
    steps = run.steps.under(*run.moduli()[:1])
    search = LevelGrid(steps, run.batches, run.training.diameter)

    def at(delta: float) -> Proof:
        first, levels = search.levels(0.0)
        priced = search.priced(first, levels)
        mean = _curve(priced)
        if run.regular and not run.capped and levels[0] == 0.0:
            return Proof(mean, priced.witness)  # from a common start its costs are exact
        epsilon = min(mean.epsilon(delta), 1e6)
        guess = (epsilon / max(float(mean.mus.max()) ** 2, 1e-9)) ** 2 / 2
        found = []
        for kappa in guess * np.array(_KAPPAS):
            first, levels = search.levels(float(kappa))
            priced = search.priced(first, search.finer(first, levels, float(kappa)))
            found.append((_curve(priced), priced))
        curve, priced = min(found, key=lambda pair: pair[0].epsilon(delta))
        return Proof(curve, priced.witness)

    return Proof.searched(at)


def concave_policy_limits(run: Run) -> str | None:
    """What is special about it: a bounded domain, where Lipschitz constants do not say it all."""
    if run.training.steps > MOST_STEPS or run.batches > _LARGEST_EPOCH:
        return f"it looks at epochs of at most {_LARGEST_EPOCH:,} batches"
    if math.isinf(run.training.diameter):
        return "it needs a bounded domain"
    if run.training.diameter == 0.0:
        return "the domain is one point, which shows nothing"
    if not run.last_only:
        return "only the last iterate is accounted here"
    if run.regular and not (run.capped or run.expands):
        return "its updates do not expand: the boundary policy restarts at the ends of epochs"
    return modulus_limits(run)


_LARGEST_EPOCH = 100_000

CONCAVE_POLICY = Theorem(
    key="boundary-policy-concave",
    name="Boundary policy, concave moduli",
    reference="this library, docs/theory/holder.md: the boundary policy with Theorem SI's moduli",
    statement=(
        "Fix levels zeta_e at the ends of epochs, from the diameter (or 0) to 0. For each position "
        "j of an epoch let z be any path between its levels; it costs X_e(j) = sum ((g_k(z_k) + "
        "s_k 1{k = j} - z_{k+1})_+/nu_k)^2. Positions are independent: delta(eps) = E "
        "delta_{sqrt(sum X)}(eps)."
    ),
    schemes=(Reshuffled,),
    bound=concave_policy_bound,
    limits=concave_policy_limits,
    supports=ANY_UPDATE | PRESENCE,
    assumptions=(
        "a new uniformly random partition every epoch, all of them secret",
        "updates have a known modulus of continuity",
    ),
)
