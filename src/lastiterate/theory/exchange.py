"""One hidden partition: the exchange bound (docs/theory/exchange.md).

Let the record be in batch i, and let it change places with a record of batch j.  Exchanging is a
bijection of arrangements, so the result is uniform too, and the two runs differ in two batches:

- "replace": by one record's sensitivity s in each of them;
- "zero-out": by 2 s in batch i and s in batch j, or s in i and 2 s in j in the other order.

mu_ij is the taut string with both, at every epoch; mu_jj the string of position j alone.  With
masses p_ij (rows sum to 1/B) and q_ij (columns sum to at most 1/B),

    delta(epsilon) <= sum_ij p_ij delta_{mu_ij}(epsilon + log(q_ij / p_ij)).

Any masses are a proof, so their search may be approximate.  It uses the level family: for a level
X < 0, rows whose own string costs too much at X hand mass to columns that cost little.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.curves.bracket import halved
from lastiterate.curves.coupled_labels import CoupledLabels, LabelCoupling
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import PrivacyUnit, Shuffled, Training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.ordered_batches import drifted_mu, ordered_limits, positions_of
from lastiterate.theory.path_witness import (
    DistancePath,
    LazyWitness,
    PathBlock,
    opened,
    paths_table,
    pooled,
    string_of_uses,
)
from lastiterate.theory.positions import UNIT
from lastiterate.theory.registry import LIPSCHITZ, PRESENCE, Proof, Theorem
from lastiterate.theory.run import Run

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Sizes = tuple[float, float]


EXACT_EPOCHS = 128  # at the end of runs of equal steps, where restarts are looked for
MOST_STEPS = 100_000  # of schedules, whose windows are tabulated
_GROUPS = 96  # of neighbouring positions, while masses are searched
_KNOTS = 40  # positions whose pairs are evaluated before the search
_CELLS = 4_000_000  # events times pairs evaluated at a time
_ROUNDS = 30  # of bisections
_LOWEST_LEVEL = -40.0
_LEAST_FACTOR = 1e-150  # a larger contraction factor is sound; squares stay in range


def exchanged_sizes(training: Training, unit: PrivacyUnit) -> tuple[Sizes, ...]:
    """Sensitivities at both positions in units of the training's, for each order of the two runs.

    Of a unit whose gradients have a bound of their own the other record has none but the run's.
    """
    if training.adjacency == "zero-out":
        own = unit.sensitivity(training) / training.sensitivity if training.sensitivity else 1.0
        return (1.0 + own, 1.0), (1.0, 1.0 + own)
    if unit.gradient_norm is None or not training.sensitivity:
        return ((1.0, 1.0),)
    apart = (unit.gradient_norm + training.gradient_norm) / training.sensitivity
    size = min(1.0, apart * (1 + 4 * UNIT))
    return ((size, size),)


@dataclass(frozen=True, eq=False)
class Segments:
    """Steps between releases, and how often a batch comes: what the strings of pairs need."""

    steps: Steps
    batches: int
    cuts: tuple[tuple[int, int], ...]  # segments of hidden steps
    diameter: float
    level: float = 0.0  # the distance at the first step

    @property
    def supported(self) -> bool:
        """Whether the strings of pairs are evaluated here."""
        steps = self.steps
        if not steps.constant:
            return steps.count <= MOST_STEPS
        long = steps.count > EXACT_EPOCHS * self.batches
        return not long or (len(self.cuts) == 1 and float(steps.c[0]) <= 1)

    def pair_squares(self, i: Integers, j: Integers, sizes: Sizes) -> Floats:
        """mu_ij^2 of pairs of different positions, rounded up; infinite where doubles overflow.

        ``sizes``: sensitivities at i and j in units of one record's.
        """
        epochs = min(-(-self.steps.count // self.batches) + 1, EXACT_EPOCHS + 1)
        chunk = max(_CELLS // (2 * epochs), 1)
        parts = [
            self._squares(i[k : k + chunk], j[k : k + chunk], sizes)
            for k in range(0, len(i), chunk)
        ]
        return np.asarray(np.concatenate(parts)) if parts else np.zeros(0)

    def _squares(self, i: Integers, j: Integers, sizes: Sizes) -> Floats:
        first, last = np.minimum(i, j), np.maximum(i, j)
        swapped = i > j
        early = np.where(swapped, sizes[1], sizes[0])
        late = np.where(swapped, sizes[0], sizes[1])
        hidden = bool(self.cuts) and self.cuts[0][1] > 0
        total = np.full(len(i), math.inf if self.level and not hidden else 0.0)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for begin, end in self.cuts:
                total = total + self._string(first, last, early, late, begin, end)
            for k in range(self.cuts[-1][1] if self.cuts else 0, self.steps.count):
                paid = (float(self.steps.s[k]) / float(self.steps.nu[k])) ** 2
                place = k % self.batches
                total += paid * (early**2 * (first == place) + late**2 * (last == place))
        # Every factor, sum and quotient rounds by at most UNIT; a window has at most `batches`
        # steps, and no more than `count` steps, counted four times, enter a string.  Nothing
        # cancels: all terms are non-negative.
        rounded = 1 + 16 * UNIT * (4.0 * min(self.steps.count, 1 << 40) + 256)
        if self.steps.constant:  # powers: n log c is off by 2 n |log c| UNIT, and 0 beyond 745
            rounded = 1 + 16 * UNIT * (2 * EXACT_EPOCHS + 1) * (256 + 4 * 745.0)
        return np.asarray(np.where(np.isnan(total), math.inf, total * rounded + 1e-290))

    def _string(
        self, first: Integers, last: Integers, early: Floats, late: Floats, begin: int, end: int
    ) -> Floats:
        """mu^2 of the taut string through the uses at two positions, from 0 or the diameter.

        Pools adjacent violators from the right, for all pairs at once: see `positions._general`.
        """
        batches = self.batches
        repeats = self._repeats and begin == 0 and end >= 3 * batches and not self.level
        common = self._periodic(first, last, early, late, end) if repeats else None
        if common is not None and math.isinf(self.diameter):
            return common
        closing = -(-end // batches)
        opening = max(begin // batches, closing - EXACT_EPOCHS) if repeats else begin // batches
        pool = _Pool(len(first), 2 * (closing - opening) + 1)
        following = np.full(len(first), end)
        for epoch in range(closing - 1, opening - 1, -1):
            for place, size in ((last, late), (first, early)):
                step = epoch * batches + place
                used = (step >= begin) & (step < end)
                at = np.where(used, step, 0)
                carried, noise = self.window(at + 1, np.where(used, following - step - 1, 0))
                c, s, nu = self._at(at)
                if math.isfinite(self.diameter):
                    pool.restart(self.diameter * carried, noise, used)
                pool.push(size * s * carried, (nu * carried) ** 2 + noise, c * carried, used)
                following = np.where(used, step, following)
        if self.level and begin == 0:
            carried, noise = self.window(np.zeros(len(first), dtype=np.int64), following)
            pool.push(self.level * carried, noise, carried, np.full(len(first), True))
        return np.asarray(np.minimum(pool.cost if common is None else common, pool.restarted))

    def written(
        self, row: Integers, column: Integers, sizes: Sizes, masses: list[dict[str, Any]], at: int
    ) -> dict[str, Any]:
        """Pairs of an order with a path for each in each segment, and masses of them.

        Args:
            row: i of every pair.
            column: j of every pair.
            sizes: sensitivities at i and j in units of one record's.
            masses: which pairs, and their masses, as `upward` returns them.
            at: the step of the run that is the first one here.
        """
        pairs = list(zip(row.tolist(), column.tolist(), strict=True))
        found = (self.path(i, j, sizes, *cut) for cut in self.cuts for i, j in pairs)
        paths = [DistancePath([step + at for step in path.steps], path.z) for path in found]
        names = {"pair": "pair", "own_p": "own_pi", "own_q": "own_rho", "p": "pi", "q": "rho"}
        named = [{new: each[old] for old, new in names.items()} for each in masses]
        return {"row": row, "column": column, "paths": paths_table(paths), "masses": named}

    def path(self, i: int, j: int, sizes: Sizes, begin: int, end: int) -> DistancePath:
        """The path of a pair in a segment: the taut string that `pair_squares` evaluates."""
        (first, early), (last, late) = sorted([(i, sizes[0]), (j, sizes[1])])
        batches = self.batches
        repeats = self._repeats and begin == 0 and end >= 3 * batches and not self.level
        opening = begin // batches
        common = None
        if repeats:
            common = self._periodic_path(first, last, early, late, end)
            if math.isinf(self.diameter):
                return common[1]
            opening = max(opening, -(-end // batches) - EXACT_EPOCHS)
        epochs = np.arange(opening, -(-end // batches)) * batches
        uses = np.stack([epochs + first, epochs + last], axis=1).ravel()
        size = np.tile([early, late], len(epochs))[(begin <= uses) & (uses < end)]
        uses = uses[(begin <= uses) & (uses < end)]
        if not len(uses) and not self.level:
            return DistancePath([], [])
        with np.errstate(over="ignore", under="ignore"):
            lead, noise = self.window(uses + 1, np.diff(uses, append=end) - 1)
            c, s, nu = self._at(uses)
            values = c * lead, size * s * lead, (nu * lead) ** 2 + noise
        blocks = list(map(PathBlock, *(value.tolist() for value in values)))
        rests = list(map(PathBlock, lead.tolist(), lead.tolist(), noise.tolist()))
        steps = uses.tolist()
        if self.level and begin == 0:
            carried = self.window(np.zeros(1, dtype=np.int64), np.array([*steps, end])[:1])
            before = PathBlock(float(carried[0][0]), 0.0, float(carried[1][0]))
            return opened(0, self.level, before, steps, blocks, end)[1]
        return string_of_uses(steps, blocks, rests, end, self.diameter, common)

    def _periodic_path(
        self, first: int, last: int, early: float, late: float, end: int
    ) -> tuple[float, DistancePath]:
        """mu^2 and the path of `_periodic`: whole periods between two steps of the path."""
        batches = self.batches
        (c, s, nu), near = self.steps.one, last - first

        def window(size: float, length: int) -> PathBlock:
            carried = self.window(np.zeros(1, dtype=np.int64), np.array([length - 1]))
            factor, variance = (float(x[0]) for x in carried)
            return PathBlock(c * factor, size * s * factor, nu * factor * nu * factor + variance)

        count = (end - 1 - first) // batches
        one, two = window(early, near), window(late, batches - near)
        ahead = first + count * batches
        after = ahead + near
        log_g = batches * math.log(max(c, 1e-300))

        def period(leading: PathBlock, trailing: PathBlock, number: int) -> PathBlock:
            times = np.array([number])
            arrived = trailing.c * leading.s + trailing.s
            noise = trailing.c * trailing.c * leading.v + trailing.v
            grown = (float(_geometric(g, times)[0]) for g in (log_g, 2 * log_g))
            return PathBlock(math.exp(number * log_g), arrived * next(grown), noise * next(grown))

        tail = [(ahead, window(early, min(after, end) - ahead))]
        if after < end:
            tail.append((after, window(late, end - after)))
        if one.s * two.v > two.c * two.s * one.v:
            nodes = [(first, period(one, two, count)), *tail]
        else:
            middle = period(two, one, count - 1)
            nodes = [(first, one), (last, middle), (ahead - batches + near, two), *tail]
        distances, cost = pooled([block for _, block in nodes])
        return cost, DistancePath([*(step for step, _ in nodes), end], [*distances, 0.0])

    @property
    def _repeats(self) -> bool:
        """Whether all steps are equal and not expansive."""
        return self.steps.constant and float(self.steps.c[0]) <= 1

    def _periodic(
        self, first: Integers, last: Integers, early: Floats, late: Floats, end: int
    ) -> Floats:
        """mu^2 of three or more epochs of equal, non-expansive steps: two windows that repeat.

        n equal blocks (A, V, G) with G <= 1 are feasible as one, A (1 + G + ... ) and
        V (1 + G^2 + ... ): the sums of A fall from block to block no faster than those of V.
        """
        batches = self.batches
        c, s, nu = self.steps.one

        def window(size: Floats, length: Integers) -> tuple[Floats, Floats, Floats]:
            carried, noise = self.window(length, length - 1)
            return size * s * carried, (nu * carried) ** 2 + noise, c * carried

        count = (end - 1 - first) // batches  # complete periods, at least two
        near = last - first
        one, two = window(early, near), window(late, batches - near)
        together = one[0] * two[1] > two[2] * two[0] * one[1]
        leading = [np.where(together, x, y) for x, y in zip(one, two, strict=True)]
        trailing = [np.where(together, y, x) for x, y in zip(one, two, strict=True)]
        period = (
            trailing[2] * leading[0] + trailing[0],
            trailing[2] ** 2 * leading[1] + trailing[1],
            leading[2] * trailing[2],
        )
        number = np.where(together, count, count - 1)
        log_g = batches * math.log(max(c, 1e-300))
        power = (
            period[0] * _geometric(log_g, number),
            period[1] * _geometric(2 * log_g, number),
            np.maximum(np.exp(number * log_g), _LEAST_FACTOR),
        )
        after = first + count * batches + near
        inside, every = after < end, np.full(len(first), True)
        pool = _Pool(len(first), 5)
        pool.push(*window(late, np.where(inside, end - after, 1)), inside)
        pool.push(*window(early, np.minimum(after, end) - after + near), every)
        pool.push(*two, ~together)
        pool.push(*power, every)
        pool.push(*one, ~together)
        return pool.cost

    def _at(self, step: Integers) -> tuple[Floats, Floats, Floats]:
        """c, s and nu of steps."""
        steps = self.steps
        if steps.constant:
            c, s, nu = steps.one
            return np.full(len(step), c), np.full(len(step), s), np.full(len(step), nu)
        return steps.c[step], steps.s[step], steps.nu[step]

    def window(self, start: Integers, length: Integers) -> tuple[Floats, Floats]:
        """Product of the factors of steps, and their noise variance carried to their end."""
        steps = self.steps
        if steps.constant:
            c, _, nu = steps.one
            log_c = math.log(max(c, 1e-300))
            factor = np.maximum(np.exp(length * log_c), _LEAST_FACTOR)
            return factor, nu * nu * _geometric(2 * log_c, length)
        factor, variance, place = np.ones(len(start)), np.zeros(len(start)), start.copy()
        for bit, (factors, variances) in enumerate(self._table):
            taken = (length >> bit) & 1 == 1
            at = np.where(taken, place, 0)
            variance = np.where(taken, variance * factors[at] ** 2 + variances[at], variance)
            factor = np.where(taken, factor * factors[at], factor)
            place = np.where(taken, place + (1 << bit), place)
        return factor, variance

    @property
    def _table(self) -> list[tuple[Floats, Floats]]:
        """Factors and variances of windows of 1, 2, 4, ... steps from every step."""
        found: list[tuple[Floats, Floats]] | None = self.__dict__.get("_windows")
        if found is None:
            factor = np.maximum(np.array(self.steps.c), _LEAST_FACTOR)
            variance = np.array(self.steps.nu) ** 2
            found = [(factor, variance)]
            for bit in range(max(int(self.batches).bit_length(), 1)):
                width = 1 << bit
                later = np.minimum(np.arange(len(factor)) + width, len(factor) - 1)
                variance = variance * factor[later] ** 2 + variance[later]
                factor = np.maximum(factor * factor[later], _LEAST_FACTOR)
                found.append((factor, variance))
            object.__setattr__(self, "_windows", found)
        return found


def _geometric(log_ratio: float, count: Integers) -> Floats:
    """1 + r + ... + r^(count-1)."""
    if log_ratio == 0:
        return count.astype(np.float64)
    return np.asarray(np.expm1(count * log_ratio) / math.expm1(log_ratio), dtype=np.float64)


def _cost(A: Floats, V: Floats) -> Floats:
    """A^2/V; 0/0 is 0."""
    return np.divide(A * A, V, out=np.where(A > 0, math.inf, 0.0), where=V > 0)


class _Pool:
    """Blocks (A, V, G) of many strings at once, pooled from the right where they violate."""

    def __init__(self, strings: int, blocks: int) -> None:
        self._blocks = np.zeros((3, blocks, strings))
        self._below = np.zeros((blocks + 1, strings))  # cost of the blocks under the top
        self._depth = np.zeros(strings, dtype=np.int64)
        self._column = np.arange(strings)
        self.restarted = np.full(strings, math.inf)

    @property
    def cost(self) -> Floats:
        """mu^2 of everything pushed, from a common start."""
        return np.asarray(self._below[self._depth, self._column])

    def push(self, a: Floats, v: Floats, g: Floats, used: NDArray[np.bool_]) -> None:
        """Put a block before all others of the strings that use it."""
        a, v, g, depth = self._merged(a, v, g, used)
        paid = self._below[depth, self._column] + _cost(a, v)
        depth, column = depth[used], self._column[used]
        self._blocks[:, depth, column] = a[used], v[used], g[used]
        self._below[depth + 1, column] = paid[used]
        self._depth[used] = depth + 1

    def restart(self, a: Floats, v: Floats, used: NDArray[np.bool_]) -> None:
        """Note what it costs to begin with this block, from the diameter."""
        a, v, _, depth = self._merged(a, v, np.ones(len(a)), used)
        paid = self._below[depth, self._column] + _cost(a, v)
        self.restarted = np.where(used, np.minimum(self.restarted, paid), self.restarted)

    def _merged(
        self, a: Floats, v: Floats, g: Floats, used: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats, Integers]:
        """Merge a block into the blocks right of it while A1/V1 > G2 A2/V2."""
        a, v, g, depth = a.copy(), v.copy(), g.copy(), self._depth.copy()
        active = np.flatnonzero(used & (depth > 0))
        while len(active):
            A2, V2, G2 = self._blocks[:, depth[active] - 1, active]
            merge = a[active] * V2 > G2 * A2 * v[active]
            active, A2, V2, G2 = active[merge], A2[merge], V2[merge], G2[merge]
            a[active] = G2 * a[active] + A2
            v[active] = G2 * G2 * v[active] + V2
            g[active] = g[active] * G2
            depth[active] -= 1
            active = active[depth[active] > 0]
        return a, v, g, depth


# --- the level family ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Masses:
    """Mass that leaves the diagonal: from rows to columns, and what stays."""

    row: list[int]
    column: list[int]
    p: list[float]
    q: list[float]
    own_p: Floats
    own_q: Floats


def masses(
    d: Floats, weight: Floats, pair: Callable[[int, int], float], epsilon: float, level: float
) -> Masses | None:
    """Masses of the level family at a level X < 0; None if not everything can be placed.

    Args:
        d: mu_jj of every label.
        weight: probability of every label.
        pair: an approximation of mu_ij for different labels.
        epsilon: where the bound is to be small.
        level: X.
    """
    tau = -d * (level + d / 2)
    own_q = weight * np.exp(np.minimum(tau - epsilon, 0.0))
    own_p = weight.copy()
    left = weight - own_q
    order = np.argsort(d, kind="stable")
    early = order[left[order] > 0].tolist()
    if not early:
        return None
    found = Masses([], [], [], [], own_p, own_q)
    place, rest_of, share_of = 0, left.tolist(), weight.tolist()
    late = order[tau[order] > epsilon].tolist()
    own_q[late] = weight[late]
    for i in late:
        own, share = float(d[i]), float(weight[i])
        nearest = max(pair(i, early[min(place, len(early) - 1)]), own)
        shifted = -own * (level + nearest - own / 2)
        if shifted <= epsilon:
            continue
        kept = share * math.exp(epsilon - shifted)
        own_p[i] = kept
        rest = share - kept
        while rest > 1e-13 * share:
            if place == len(early):
                return None
            j = early[place]
            mu = pair(i, j)
            ratio = math.exp(min(epsilon + mu * (level + mu / 2), 50.0))  # p per unit of q
            take = min(rest, rest_of[j] * ratio)
            if take > 0:
                found.row.append(i)
                found.column.append(j)
                found.p.append(take)
                found.q.append(take / ratio)
            rest -= take
            rest_of[j] -= take / ratio
            if rest_of[j] <= 1e-12 * share_of[j]:
                place += 1
    return found


@dataclass(frozen=True, eq=False)
class ExchangeBound:
    """The curve of an exchange bound, and what lets somebody else check it."""

    curve: CoupledLabels
    witness: list[dict[str, NDArray[Any]]]


def coupled_labels(
    strings: Segments, mus: Floats, orders: tuple[Sizes, ...], delta: float, drift: float = 0.0
) -> ExchangeBound:
    """The exchange bound whose masses are chosen for ``delta``.

    Args:
        strings: the strings of pairs of positions.
        mus: mu_jj of every position.
        orders: sensitivities at both positions, for each order of the two runs.
        delta: where the bound is to be small.
        drift: what rounding adds to every mu (see `ordered_batches.drifted_mu`).
    """
    average = Mixture(mus)
    found = [_masses(strings, mus, sizes, delta, average, drift) for sizes in orders]
    couplings = []
    for each, sizes in zip(found, orders, strict=True):
        squares = strings.pair_squares(each["row"], each["column"], sizes)
        pairs = np.sqrt(squares) * (1 + 4 * UNIT) + drift
        p, q = (np.concatenate([each[f"own_{x}"], each[x]]) for x in "pq")
        couplings.append(LabelCoupling(np.concatenate([mus, pairs * (1 + 4 * UNIT)]), p, q))
    return ExchangeBound(CoupledLabels(average, couplings), found)


def _masses(
    strings: Segments,
    mus: Floats,
    sizes: Sizes,
    delta: float,
    average: Mixture,
    drift: float,
) -> dict[str, NDArray[Any]]:
    """Masses for one order, by the level family: searched among groups of positions."""
    batches = len(mus)
    distance = (strings.steps.count - 1 - np.arange(batches)) % batches  # to the last step
    edges = spread(batches, _GROUPS)
    group = np.searchsorted(edges, distance, side="right") - 1
    table = pair_table(strings, sizes, edges) + drift
    count = np.bincount(group, minlength=len(edges))
    d = np.bincount(group, weights=mus, minlength=len(edges)) / count
    between = table.tolist()

    def grouped(i: int, j: int) -> float:
        return float(between[i][j])

    def delta_at(epsilon: float) -> float:
        best = _best_level(d, count / batches, grouped, epsilon)
        return 1.0 if best is None else best[1]

    high = average.epsilon(delta)
    if high == 0 or math.isinf(high):
        return diagonal(batches)
    if delta_at(high) <= delta:
        high = halved(lambda x: delta_at(x) <= delta, high, 0.0, _ROUNDS, 1e-4)
    best = _best_level(d, count / batches, grouped, high)
    level = 0.0 if best is None else best[0]
    groups, weight = group.tolist(), np.full(batches, 1 / batches)
    for _ in range(40 if level < 0 else 0):
        found = masses(mus, weight, lambda i, j: between[groups[i]][groups[j]], high, level)
        if found is not None:
            return upward(found)
        level *= 1 - 1e-3
    return diagonal(batches)


def upward(found: Masses) -> dict[str, NDArray[Any]]:
    """Masses with room for what doubles round: rows of p and columns of q keep their bounds."""
    return {
        "row": np.array(found.row, dtype=np.int64),
        "column": np.array(found.column, dtype=np.int64),
        "p": np.array(found.p) * (1 + 1e-12),
        "q": np.array(found.q) * (1 - 1e-12),
        "own_p": found.own_p * (1 + 1e-12),
        "own_q": found.own_q * (1 - 1e-12),
    }


def diagonal(batches: int) -> dict[str, NDArray[Any]]:
    """No exchange: the average over positions."""
    none, own = np.zeros(0), np.full(batches, 1 / batches)
    place = np.zeros(0, dtype=np.int64)
    return {
        "row": place,
        "column": place,
        "p": none,
        "q": none,
        "own_p": own * (1 + 1e-12),
        "own_q": own * (1 - 1e-12),
    }


def _best_level(
    d: Floats, weight: Floats, pair: Callable[[int, int], float], epsilon: float
) -> tuple[float, float] | None:
    """The smallest level that places everything, and the delta it gives."""
    low, high = _LOWEST_LEVEL, 0.0
    best = None
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        found = masses(d, weight, pair, epsilon, middle)
        low, high = (low, middle) if found is not None else (middle, high)
        best = (middle, found) if found is not None else best
    if best is None:
        return None
    level, found = best
    pairs = [pair(i, j) for i, j in zip(found.row, found.column, strict=True)]
    mus = np.concatenate([d, pairs])
    p, q = np.concatenate([found.own_p, found.p]), np.concatenate([found.own_q, found.q])
    return level, LabelCoupling(mus, p, q).delta(epsilon)


def spread(batches: int, most: int) -> Integers:
    """At most ``most`` distances from 0 to B - 1, dense near 0."""
    if batches <= most:
        return np.arange(batches)
    return np.unique(np.geomspace(1, batches, most).round().astype(np.int64) - 1)


def pair_table(strings: Segments, sizes: Sizes, edges: Integers) -> Floats:
    """mu_ij of groups of positions: evaluated at a few distances, interpolated between them."""
    batches, last = strings.batches, strings.steps.count - 1
    knots = spread(batches, _KNOTS)
    i, j = (grid.ravel() for grid in np.meshgrid(knots, knots, indexing="ij"))
    j = np.where(i == j, np.where(i + 1 < batches, i + 1, i - 1), j)
    squares = strings.pair_squares((last - i) % batches, (last - j) % batches, sizes)
    values = np.sqrt(squares).reshape(len(knots), len(knots))
    following = np.append(edges[1:], batches)
    middle = np.log1p((edges + following - 1) / 2)
    at = np.log1p(knots)
    rows = np.array([np.interp(middle, at, row) for row in values])
    return np.array([np.interp(middle, at, column) for column in rows.T]).T


# --- the theorem -------------------------------------------------------------------------------


def _strings(run: Run) -> Segments:
    """What the strings of two positions need.

    Any record may be the other one, and a unit that is absent at times has gradients 0 there.
    """
    steps = run.exposed(ONE_RECORD).steps
    batches = run.batches
    return Segments(steps, batches, tuple(run.hidden_segments), run.training.diameter)


def exchange_limits(run: Run) -> str | None:
    """What is special about it: strings of pairs are not evaluated for every schedule."""
    reason = ordered_limits(run, modulus=False)
    if reason is None and not _strings(run).supported:
        return "the strings of two positions are not evaluated for a schedule as long as this"
    return reason


def exchange_bound(run: Run) -> Proof:
    """The level family of masses, chosen for each delta."""
    mus, witness = positions_of(run)
    if mus.max() <= mus.min() * (1 + 1e-9):
        return Proof(Gaussian(float(mus.max())), witness)
    strings, drift = _strings(run), drifted_mu(run)
    orders = exchanged_sizes(run.training, run.unit)

    def at(delta: float) -> Proof:
        found = coupled_labels(strings, mus, orders, delta, drift)

        def together() -> dict[str, Any]:
            written = []
            for each, sizes in zip(found.witness, orders, strict=True):
                masses = [{**each, "pair": np.arange(len(each["row"]))}]
                written.append(strings.written(each["row"], each["column"], sizes, masses, 0))
            return {**witness, "exchange": written}

        return Proof(found.curve, LazyWitness(together))

    return Proof.searched(at)


EXCHANGE = Theorem(
    key="exchange",
    name="Exchange of positions",
    reference="this library, docs/theory/exchange.md; level family of masses",
    statement=(
        "Exchanging the record of batch i with a record of batch j keeps a hidden partition "
        "uniform. With mu_ij the taut string of both batches' sensitivities, delta(eps) <= "
        "sum_ij p_ij delta_{mu_ij}(eps + log(q_ij/p_ij)) for any masses whose rows p sum to 1/B "
        "and whose columns q sum to at most 1/B; never more than the average over positions."
    ),
    schemes=(Shuffled,),
    bound=exchange_bound,
    limits=exchange_limits,
    supports=LIPSCHITZ | PRESENCE | {"releases"},
    assumptions=(
        "one uniformly random partition that stays secret",
        "updates are Lipschitz",
        "the sensitivity bounds any two records (replace) or every record (zero-out)",
    ),
)
