"""A new hidden partition every epoch: the exchange bound in the last one (docs/theory/exchange.md).

Levels zeta_e at the ends of epochs are fixed in advance, as in the boundary policy (`reshuffled`).
The record's positions in all epochs but the last are revealed; they cost x together.  In the last
epoch the record may have changed places with another one: its partition is uniform and independent
of the others.  With mu_ij^2 the cost of both positions from zeta_{E-1} to 0,

    delta(epsilon) <= E_x sum_ij p_ij(x) delta_{sqrt(x + mu_ij^2)}(epsilon + log(q_ij(x)/p_ij(x)))

for masses whose rows p sum to at least 1/B and whose columns q sum to at most 1/B.  The law of x is
rounded up to a few values.  Nothing in the search has to be exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from lastiterate.curves import gaussian
from lastiterate.curves.coupled_labels import CoupledLabels, LabelCoupling
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Reshuffled
from lastiterate.theory import dynamics
from lastiterate.theory.cost_law import CostLaw, law_of_sum
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.exchange import (
    Floats,
    Masses,
    Segments,
    Sizes,
    diagonal,
    exchanged_sizes,
    masses,
    pair_table,
    spread,
    upward,
)
from lastiterate.theory.ordered_batches import drifted_mu
from lastiterate.theory.path_witness import LazyWitness
from lastiterate.theory.positions import UNIT
from lastiterate.theory.registry import LIPSCHITZ, PRESENCE, Proof, Theorem
from lastiterate.theory.reshuffled import (
    EpochCosts,
    Levels,
    LevelSearch,
    boundary_policy_bound,
    epoch_costs,
    epoch_segments,
    grid_points,
    reshuffled_limits,
)
from lastiterate.theory.run import Run

_VALUES = 32  # of the cost of earlier epochs that have masses of their own
_GROUPS = 64  # of neighbouring positions, while levels and masses are searched
_SEARCHED = 24  # groups, values and levels X while levels zeta are searched
_POINTS = 1 << 13  # of the grid of costs, meanwhile
_TILTS = 1.2 * np.arange(-3, 5)  # logarithms, around a guess
_NEAR = 1.003  # an epsilon this much above what was promised is good enough
_LARGEST = 300.0  # epsilon beyond which nothing is searched for
_CLAIMED = 4e-6  # of delta: a check on another machine asks for a little less
_ROUNDING = 2.0**-12  # room for the coarser grid of an independent check


@dataclass(frozen=True, eq=False)
class LastEpochBound:
    """The curve, and what lets somebody else check it."""

    curve: CoupledLabels
    witness: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class LastEpoch:
    """A run of reshuffled batches, as its last epoch sees it.

    Args:
        steps: every step, for the record that differs.
        others: every step, for any other record.
        batches: positions of an epoch.
        releases: steps after which an iterate is released, but for the last one.
        window: how many of the last iterates are released.
        diameter: of the domain.
        orders: sensitivities at both positions, for each order of the two runs.
        drift: what rounding adds to every mu.
    """

    steps: Steps
    others: Steps
    batches: int
    releases: tuple[int, ...]
    window: int
    diameter: float
    orders: tuple[Sizes, ...]
    rounding_drift: float

    def bound(self, average: Mixture, delta: float) -> LastEpochBound | None:
        """The bound whose parameters are chosen for ``delta``; None where none is found.

        Args:
            average: a bound that this one is never larger than.
            delta: where the bound is to be small.
        """
        highest = average.epsilon(delta)
        if not 0 < highest < _LARGEST or not 1e-200 < delta < 1:
            return None
        steps = self.steps
        end, segments = epoch_segments(steps.count, self.batches, self.releases, self.window)
        c, s, nu = np.array(steps.c), np.array(steps.s), np.array(steps.nu)
        costs = epoch_costs(c, s, nu, self.batches, end)
        search = _LevelSearch(self, costs, segments, end, highest, delta)
        found = search.best()
        if found is None:
            return None
        levels, promised = found
        best = search.coupled(levels, promised, average)
        epsilon = best.curve.epsilon(delta)
        if epsilon <= _NEAR * promised:
            return best
        # Masses are good where they were chosen: choose them once more.
        again = search.coupled(levels, epsilon, average)
        return again if again.curve.epsilon(delta) < epsilon else best


@dataclass(frozen=True, eq=False)
class _GroupPrices:
    """The cost of earlier epochs, and what pairs of groups of positions cost in the last one."""

    law: CostLaw
    own: Floats  # mu_jj^2 of every position
    group: Any
    weight: Floats
    d: Floats  # mu_jj^2 of every group
    tables: list[Floats]  # mu_ij of groups, one for each order
    strings: Segments


@dataclass(eq=False)
class _LevelSearch:
    run: LastEpoch
    costs: EpochCosts
    segments: list[tuple[int, int]]
    end: int
    highest: float
    delta: float

    def best(self) -> tuple[Levels, float] | None:
        """Levels, and the epsilon that they promise."""
        find = LevelSearch(self.costs, self.segments, self.run.diameter)
        tried: list[tuple[float, Levels]] = []
        epochs = len(self.costs.row)
        plain = Levels(np.zeros(epochs + 1), np.ones(epochs, dtype=bool))
        rows, counts = plain.costs(self.costs)
        mean = float(counts @ rows.mean(axis=1))
        if not 1e-150 < mean < 1e200:
            return None

        def promise(log_kappa: float) -> None:
            levels = find(math.exp(log_kappa))
            tried.append((self._promised(levels), levels))

        if epochs > 1:
            guess = math.log(max((self.highest / mean) ** 2 / 2, 0.2 / mean))
            for log_kappa in guess + _TILTS:
                promise(log_kappa)
        else:
            promise(0.0)
        least = min(epsilon for epsilon, _ in tried)
        if not math.isfinite(least):
            return None
        near = [levels for epsilon, levels in tried if epsilon <= 1.05 * least]
        best = min(near, key=lambda levels: self._realised(levels, 1.005 * least))
        return best, least

    def _prices(self, levels: Levels, groups: int, points: int) -> _GroupPrices | None:
        run, last = self.run, len(self.costs.row) - 1
        rows, counts = Levels(levels.zeta[:-1], levels.pays[:-1]).costs(self.costs)
        level = float(levels.zeta[-2])
        own = self.costs.values(np.array([last]), np.array([level]), np.array([0.0]))[0]
        if not (np.all(np.isfinite(rows)) and np.all(np.isfinite(own))):
            return None
        law = law_of_sum(rows, counts, math.inf, points or grid_points(counts))
        first = last * run.batches
        hidden = max(self.end - first, 0)
        cuts = ((0, hidden),) if hidden else ()
        strings = Segments(run.others[first:], run.batches, cuts, math.inf, level)
        distance = (strings.steps.count - 1 - np.arange(run.batches)) % run.batches
        edges = spread(run.batches, groups)
        group = np.searchsorted(edges, distance, side="right") - 1
        count = np.bincount(group, minlength=len(edges))
        d = np.bincount(group, weights=own, minlength=len(edges)) / count
        tables = [pair_table(strings, sizes, edges) for sizes in run.orders]
        if not all(np.all(np.isfinite(table)) for table in tables):
            return None
        return _GroupPrices(law, own, group, count / run.batches, d, tables, strings)

    def _promised(self, levels: Levels) -> float:
        """Nearly the epsilon of good masses, by duality; see `_dual`."""
        prices = self._prices(levels, _SEARCHED, _POINTS)
        if prices is None:
            return math.inf
        x, w = _values(prices, self.highest / 2, _SEARCHED)
        goal = math.log(self.delta)

        def excess(epsilon: float) -> float:
            deltas = [self._dual(prices, table, x, epsilon)[0] @ w for table in prices.tables]
            return math.log(max(1e-300, *map(float, deltas))) - goal

        if excess(0.0) <= 0:
            return 0.0
        if excess(self.highest) >= 0:
            return math.inf
        return float(
            scipy.optimize.brentq(excess, 0.0, self.highest, xtol=1e-4 * self.highest, rtol=1e-4)
        )

    def _realised(self, levels: Levels, epsilon: float) -> float:
        """Nearly the delta of the masses of groups, by the level family."""
        prices = self._prices(levels, _SEARCHED, _POINTS)
        assert prices is not None
        x, w = _values(prices, epsilon, _SEARCHED // 2)
        deltas = []
        for table in prices.tables:
            _, X = self._dual(prices, table, x, epsilon)
            delta = 0.0
            for at, weight, start in zip(x, w, X, strict=True):
                d, between = self._mus(prices, table, float(at))
                _, found = _lowest(d, prices.weight, between, epsilon, float(start))
                if found is None:
                    return math.inf
                pairs = [between[i][j] for i, j in zip(found.row, found.column, strict=True)]
                p, q = np.append(found.own_p, found.p), np.append(found.own_q, found.q)
                delta += weight * LabelCoupling(np.append(d, pairs), p, q).delta(epsilon)
            deltas.append(delta)
        return max(deltas)

    def _mus(
        self, prices: _GroupPrices, table: Floats, x: float
    ) -> tuple[Floats, list[list[float]]]:
        """mu of groups, alone and in pairs, after a cost x of earlier epochs."""
        d = np.sqrt(x + prices.d) + self.run.rounding_drift
        return d, (np.sqrt(x + table**2) + self.run.rounding_drift).tolist()

    def _dual(
        self, prices: _GroupPrices, table: Floats, x: Floats, epsilon: float
    ) -> tuple[Floats, Floats]:
        """For each cost x of earlier epochs: what no masses go below, and the best level X.

        delta = max sum_i w_i (Phi(a_i) - e^epsilon Phi(x_i)) over a_i - x_j <= mu_ij. With
        x_j >= X, a_i = x_i + d_i <= X + min_j mu_ij is feasible.
        """
        d = np.sqrt(x[:, None] + prices.d) + self.run.rounding_drift
        m = np.sqrt(x[:, None] + table.min(axis=1) ** 2) + self.run.rounding_drift
        m = np.maximum(m, d)
        lowest = min(float(ndtri(self.delta)) - float(m.max()) - 1, -1.0)
        X = np.linspace(lowest, 0.0, 2 * _SEARCHED)[None, None, :]
        d, m = d[:, :, None], m[:, :, None]
        with np.errstate(divide="ignore"):
            at = np.clip(-epsilon / d - d / 2, X, X + m - d)
        terms = ndtr(at + d) - math.exp(epsilon) * ndtr(at)
        values = np.einsum("agx,g->ax", terms, prices.weight)
        best = values.argmax(axis=1)
        return np.maximum(values.max(axis=1), 0.0), X[0, 0, best]

    def coupled(self, levels: Levels, epsilon: float, average: Mixture) -> LastEpochBound:
        """The masses of these levels, chosen for this epsilon."""
        prices = self._prices(levels, _GROUPS, 0)
        assert prices is not None
        x, w = _values(prices, epsilon, _VALUES)
        x = x * (1 + _ROUNDING) + _ROUNDING / 16 * x[-1]
        w = w * (1 + _CLAIMED)
        mus = _up(np.sqrt(x[:, None] + prices.own), self.run.rounding_drift)
        couplings, orders = [], []
        for table, sizes in zip(prices.tables, self.run.orders, strict=True):
            _, X = self._dual(prices, table, x, epsilon)
            order = [
                self._masses(prices, table, float(at), mu, float(start), epsilon)
                for at, mu, start in zip(x, mus, X, strict=True)
            ]
            orders.append(order)
            couplings.append(self._coupling(prices.strings, sizes, order, x, w, mus))
        first = (len(self.costs.row) - 1) * self.run.batches

        def written() -> dict[str, Any]:
            pairs = zip(orders, self.run.orders, strict=True)
            return {
                "levels": levels.written(self.run.diameter),
                "costs": x,
                "orders": [_written(prices.strings, *pair, first) for pair in pairs],
            }

        return LastEpochBound(CoupledLabels(average, couplings), LazyWitness(written))

    def _masses(
        self,
        prices: _GroupPrices,
        table: Floats,
        x: float,
        mus: Floats,
        start: float,
        epsilon: float,
    ) -> dict[str, Any]:
        """Masses of the level family for one cost of earlier epochs, near a level X."""
        d, between = self._mus(prices, table, x)
        high, _ = _lowest(d, prices.weight, between, epsilon, start)
        group, batches = prices.group.tolist(), self.run.batches
        weight = np.full(batches, 1 / batches)

        def pair(i: int, j: int) -> float:
            return float(between[group[i]][group[j]])

        # Levels of groups are nearly those of positions: the smallest one above that works.
        low, step, best = high * (1 + 2e-3), 5e-4, None
        while best is None and step < 0.2:
            best = masses(mus, weight, pair, epsilon, high)
            if best is None:
                low, high, step = high, high * (1 - step), 2 * step
        if best is None:
            return diagonal(batches)
        for _ in range(3):
            middle = (low + high) / 2
            found = masses(mus, weight, pair, epsilon, middle)
            low, high = (low, middle) if found is not None else (middle, high)
            best = best if found is None else found
        return upward(best)

    def _coupling(
        self,
        strings: Segments,
        sizes: Sizes,
        order: Sequence[dict[str, Any]],
        x: Floats,
        w: Floats,
        mus: Floats,
    ) -> LabelCoupling:
        """The masses of every cost x, times the mass of x."""
        batches = self.run.batches
        rows = np.concatenate([each["row"] for each in order])
        columns = np.concatenate([each["column"] for each in order])
        which, place = np.unique(rows * batches + columns, return_inverse=True)
        squares = strings.pair_squares(which // batches, which % batches, sizes)[place]
        every, offset = [], 0
        for each, at, weight, own in zip(order, x, w, mus, strict=True):
            count = len(each["row"])
            pairs = _up(np.sqrt(at + squares[offset : offset + count]), self.run.rounding_drift)
            offset += count
            p, q = (np.concatenate([each[f"own_{name}"], each[name]]) for name in "pq")
            every.append(_merged(np.concatenate([own, pairs]), weight * p, weight * q))
        return LabelCoupling(*(np.concatenate(parts) for parts in zip(*every, strict=True)))


def _lowest(
    d: Floats, weight: Floats, between: list[list[float]], epsilon: float, start: float
) -> tuple[float, Masses | None]:
    """The smallest level X near ``start`` that places everything, and its masses."""
    low, high, best = 1.25 * start - 0.2, min(0.75 * start + 0.2, -1e-6), None
    for _ in range(10):
        middle = (low + high) / 2
        found = masses(d, weight, lambda i, j: between[i][j], epsilon, middle)
        low, high = (low, middle) if found is not None else (middle, high)
        best = best if found is None else found
    return high, best


def _up(mus: Floats, rounding_drift: float) -> Floats:
    return np.asarray((mus * (1 + 8 * UNIT) + rounding_drift) * (1 + 8 * UNIT))


def _values(prices: _GroupPrices, epsilon: float, most: int) -> tuple[Floats, Floats]:
    """At most ``most`` values of the cost of earlier epochs, each the largest of its cell.

    A cell of width h and mass w costs about w h delta'(x): cuts are dense where its root is large.
    """
    x, w = prices.law.costs, prices.law.weights
    if len(x) <= most:
        return x, w
    median = math.sqrt(float(np.median(prices.d)))
    with np.errstate(divide="ignore"):
        logs = gaussian.log_delta(np.sqrt(x + median**2), np.full(len(x), epsilon))
    steps = np.diff(np.exp(logs), prepend=0.0)
    density = np.cumsum(np.sqrt(np.maximum(w * steps, 0.0)))
    shares = np.linspace(0, density[-1], most + 1)[1:] * (1 - 1e-12)
    ends = np.unique(np.minimum(np.searchsorted(density, shares), len(x) - 1))
    ends = np.unique(np.append(ends, len(x) - 1))
    starts = np.append(0, ends[:-1] + 1)
    return x[ends], np.add.reduceat(w, starts) * (1 + 4 * len(x) * UNIT)


def _merged(mus: Floats, p: Floats, q: Floats) -> tuple[Floats, Floats, Floats]:
    """Fewer terms p delta_mu(epsilon + log(q/p)) of no smaller sum.

    Terms of similar mu and q/p become one, with the largest mu and the smallest q/p: delta_mu
    grows with mu and falls with epsilon.
    """
    used = p > 0
    mus, p, q = mus[used], p[used], q[used]
    ratio = q / p
    with np.errstate(divide="ignore"):
        keys = np.array(
            [
                np.floor(np.log(np.maximum(mus, 1e-300)) * 500),
                np.floor(np.maximum(np.log(ratio), -1e6) * 200),
            ]
        )
    order = np.lexsort(keys)
    keys = keys[:, order]
    changes = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
    starts = np.append(0, np.flatnonzero(changes) + 1)
    sums = np.add.reduceat(p[order], starts) * (1 + 4 * len(p) * UNIT)
    least = np.minimum.reduceat(ratio[order], starts)
    return np.maximum.reduceat(mus[order], starts), sums, sums * least * (1 - 8 * UNIT)


def _written(
    strings: Segments, order: Sequence[dict[str, Any]], sizes: tuple[float, float], first: int
) -> dict[str, Any]:
    """The pairs of an order with a path for each, and the masses after each cost."""
    codes = [each["row"] * strings.batches + each["column"] for each in order]
    which, place = np.unique(np.concatenate(codes), return_inverse=True)
    places = np.split(place, np.cumsum([len(code) for code in codes])[:-1])
    masses = [{**each, "pair": at} for each, at in zip(order, places, strict=True)]
    return strings.written(*np.divmod(which, strings.batches), sizes, masses, first)


# --- the theorem -------------------------------------------------------------------------------


def reshuffled_exchange_bound(run: Run) -> Proof:
    """The boundary policy, and the exchange bound in its last epoch where that is smaller."""
    policy = boundary_policy_bound(run)
    if run.batches == 1:
        return policy
    last = LastEpoch(
        run.steps,
        run.having(s=dynamics.step_sensitivities(run.etas, run.training)),
        run.batches,
        run.releases[:-1],
        run.window,
        run.training.diameter,
        exchanged_sizes(run.training, run.unit),
        drifted_mu(run),
    )
    average = policy.search
    assert average is not None

    def at(delta: float) -> Proof:
        proof = average(delta)
        assert isinstance(proof.curve, Mixture)
        found = last.bound(proof.curve, delta)
        if found is None:
            return proof
        return Proof(found.curve, LazyWitness(lambda: {**proof.witness, "exchange": found.witness}))

    return Proof.searched(at)


RESHUFFLED_EXCHANGE = Theorem(
    key="reshuffled-exchange",
    name="Exchange in the last epoch",
    reference="this library, docs/theory/exchange.md; levels and level family of masses",
    statement=(
        "Fix levels at the ends of epochs, and reveal the positions of all epochs but the last, "
        "which cost x. With mu_ij the string of two positions of the last epoch from its level, "
        "delta(eps) <= E_x sum_ij p_ij delta_{sqrt(x + mu_ij^2)}(eps + log(q_ij/p_ij)) for any "
        "masses whose rows p sum to 1/B and whose columns q sum to at most 1/B; never more than "
        "the boundary policy."
    ),
    schemes=(Reshuffled,),
    bound=reshuffled_exchange_bound,
    limits=reshuffled_limits,
    supports=LIPSCHITZ | PRESENCE | {"releases"},
    assumptions=(
        "a new uniformly random partition every epoch, all of them secret and independent",
        "updates are Lipschitz",
        "the sensitivity bounds any two records (replace) or every record (zero-out)",
    ),
)
