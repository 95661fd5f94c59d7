"""Random batches with a hidden state: stretches finer than the releases.

Whoever sees more iterates can forget some of them, so what is proved with an iterate released
holds without it. A run may therefore be cut anywhere, each stretch forgetting its own beginning
and absorbing what that left by its own end (`absorption`). In a short run all cuts and horizons
are compared: for one order of Renyi moments the best are a shortest path, and the only question
left is the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from lastiterate.bounds.absorption import (
    SHIFTS,
    Absorbed,
    PairOf,
    absorbing,
    best,
    distance,
    log_moment,
    plain,
)
from lastiterate.bounds.steps import Array, Steps
from lastiterate.curves.loss_distribution import LossDistribution, chernoff_epsilon
from lastiterate.curves.pairs import ROUNDING

LONGEST = 128  # longer runs are only cut at their releases
PLACES = 14  # cuts and horizons of a run with more steps lie on so many places
KNOTS = 6  # different impulses whose payments are priced; between them prices are interpolated
TILTS = np.array([0.1, 0.2, 0.35, 0.6, 1.0, 1.5, 2.2, 3.2, 4.5, 7.0, 11.0, 18.0, 30.0])
LIKELY = 3  # orders whose stretches are composed, on a rough grid
_ROUNDS = 44


@dataclass(frozen=True)
class Stretch:
    """Steps between two points that count as known, and what is charged for them."""

    first: int
    last: int
    found: Absorbed


def stretches(
    pair_of: PairOf,
    steps: Steps,
    spans: Sequence[tuple[int, int]],
    delta: float,
    diameter: float = math.inf,
    beside: LossDistribution | None = None,
    published: Callable[[int, int], LossDistribution] | None = None,
) -> list[Stretch]:
    """The spans between releases, or finer stretches if these have a smaller epsilon at delta.

    ``beside``: what else is composed with them. ``published``: another bound for all iterates of a
    stretch, for those that it suits better. Sound at every delta.

    >>> from lastiterate.bounds.without_replacement import pair_of
    >>> run = Steps(0.95, [0.2, 3.0, 0.2, 0.2], [1.0, 1.0, 3.0, 3.0], 4)
    >>> [(part.first, part.last) for part in stretches(pair_of(0.3), run, [(0, 4)], 1e-5)]
    [(0, 1), (1, 4)]
    """
    rest = LossDistribution.nothing() if beside is None else beside

    def composed(parts: list[Stretch]) -> LossDistribution:
        return rest.compose(*(part.found.curve for part in parts))

    def better(part: Stretch) -> Stretch:
        other = None if published is None else published(part.first, part.last)
        if other is None or other.epsilon(delta) > part.found.curve.epsilon(delta):
            return part
        return Stretch(part.first, part.last, Absorbed(other, part.last - part.first, None))

    chosen = [
        better(Stretch(first, last, best(pair_of, steps[first:last], delta, diameter)))
        for first, last in spans
    ]
    search = _Search.over(pair_of, steps, spans, diameter)
    if search is None:
        return chosen
    finer = sorted(
        search.policies(), key=lambda found: chernoff_epsilon(1 + TILTS, found[0], delta)
    )
    rivals = [
        [better(_replayed(pair_of, steps, block, diameter)) for block in policy]
        for _, policy in finer[:LIKELY]
    ]
    for _ in range(2):  # a smaller epsilon can prefer another order
        epsilon = composed(chosen).epsilon(delta)
        rival = min(rivals, key=lambda parts: composed(parts).rough_delta(epsilon))
        if not composed(rival).delta(epsilon) < delta:
            break
        chosen = rival
    return chosen


class _Block(NamedTuple):
    """Steps from ``first`` that are not paid up to ``horizon``, then paid up to ``last``."""

    first: int
    horizon: int
    last: int
    pays: Array | None


@dataclass(frozen=True, eq=False)
class _Search:
    """All stretches of a short run: what they would pay at each order, and what that costs."""

    steps: Steps
    places: list[int]
    known: set[int]  # places that are released
    horizons: list[tuple[int, int, int]]  # (first, horizon, last)
    owed: Array
    weight: Array  # one row for each of them, one column for each step; 0 where it does not pay
    prices: Array  # of the payments SHIFTS: (order, step, payment)

    @classmethod
    def over(
        cls, pair_of: PairOf, steps: Steps, spans: Sequence[tuple[int, int]], diameter: float
    ) -> _Search | None:
        """None where there is nothing to be found, or too much to look at."""
        count = spans[-1][1] if spans else 0
        if not 2 <= count <= LONGEST:
            return None
        kept = steps[:count]
        if np.any(kept.nu <= 0.0) or not np.all(np.isfinite(kept.c)) or not np.any(kept.s > 0.0):
            return None
        even = np.linspace(0, count, min(PLACES, count) + 1).astype(int).tolist()
        places = sorted({*even, *(place for span in spans for place in span)})
        inside = [[p for p in places if first <= p <= last] for first, last in spans]
        horizons = [
            (row[i], row[k], row[j])
            for row in inside
            for j in range(2, len(row))
            for i in range(j - 1)
            for k in range(i + 1, j)
        ]
        left = {(i, k): distance(kept[i:k], diameter) for i, k in {(i, k) for i, k, _ in horizons}}
        horizons = [each for each in horizons if math.isfinite(left[each[:2]])]
        prices = _prices(pair_of, kept.s / kept.nu)
        if not horizons or not np.all(np.isfinite(prices)):
            return None
        later = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(kept.c, 1e-300)))])
        _, begin, end = (np.array(column) for column in zip(*horizons, strict=True))
        with np.errstate(over="ignore"):
            step = np.arange(count)
            weight = np.exp(later[end][:, None] - later[None, 1:]) * kept.nu
            weight *= (begin[:, None] <= step) & (step < end[:, None])
            owed = np.array([left[each[:2]] for each in horizons]) * np.exp(
                later[end] - later[begin]
            )
        scale = np.maximum(weight.max(axis=1), 1e-300)
        known = {last for _, last in spans}
        return cls(kept, places, known, horizons, owed / scale, weight / scale[:, None], prices)

    def policies(self) -> list[tuple[Array, list[_Block]]]:
        """For each order the stretches of least moment, with their moments of all orders."""
        return [self._policy(index) for index in range(len(TILTS))]

    def _policy(self, index: int) -> tuple[Array, list[_Block]]:
        """A shortest path from the first place to the last."""
        shifts = self._shifts(index)
        own = self.prices[index][:, 0]
        rows = np.array(
            [np.interp(s, SHIFTS, p) for s, p in zip(shifts.T, self.prices[index], strict=True)]
        )
        paid = np.where(self.weight.T > 0.0, rows, 0.0).sum(axis=0)
        paid[~np.isfinite(paid) | (shifts.max(axis=1) > SHIFTS[-1])] = math.inf
        edges: dict[int, list[tuple[int, float, int]]] = {place: [] for place in self.places}
        for first, last in zip(self.places[:-1], self.places[1:], strict=True):
            edges[last].append((first, float(own[first:last].sum()), -1))
        for row, (first, _, last) in enumerate(self.horizons):
            edges[last].append((first, float(paid[row]), row))
        value, came = {0: 0.0}, dict[int, tuple[int, int]]()
        for place in self.places[1:]:
            value[place], *how = min((value[i] + cost, i, row) for i, cost, row in edges[place])
            came[place] = (how[0], how[1])
        blocks, place = list[_Block](), self.places[-1]
        charged = np.zeros(self.steps.count)
        free = np.zeros(self.steps.count, dtype=bool)
        while place:
            first, row = came[place]
            if row < 0:
                last = place
                if blocks and blocks[-1].pays is None and place not in self.known:
                    last = blocks.pop().last
                blocks.append(_Block(first, first, last, None))
            else:
                horizon = self.horizons[row][1]
                charged[horizon:place] = shifts[row, horizon:place]
                free[first:horizon] = True
                blocks.append(_Block(first, horizon, place, charged[horizon:place]))
            place = first
        each = np.array(
            [
                [np.interp(charged[k], SHIFTS, table[k]) for k in np.flatnonzero(~free)]
                for table in self.prices
            ]
        )
        return each.sum(axis=1), blocks[::-1]

    def _shifts(self, index: int) -> Array:
        """What each stretch pays, in units of noise, where slopes of the price go with weight."""
        slopes = np.diff(self.prices[index], axis=1) / np.diff(SHIFTS)
        slopes = np.maximum.accumulate(slopes, axis=1)
        middles = np.concatenate([[0.0], (SHIFTS[2:] + SHIFTS[1:-1]) / 2])

        def at(log_price: Array) -> Array:
            asked = np.exp(log_price)[:, None] * self.weight
            columns = zip(asked.T, slopes, strict=True)
            paid = [np.where(a < s[0], 0.0, np.interp(a, s, middles)) for a, s in columns]
            return cast(Array, np.array(paid).T)

        low, high = np.full(len(self.owed), -60.0), np.full(len(self.owed), 90.0)
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            enough = (self.weight * at(middle)).sum(axis=1) >= self.owed
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        found = at(high)
        paid = (self.weight * found).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.where(self.owed > 0.0, self.owed / paid * (1 + 1e-9), 0.0)
            return cast(Array, np.where(self.weight > 0.0, found * exact[:, None], 0.0))


def _replayed(pair_of: PairOf, steps: Steps, block: _Block, diameter: float) -> Stretch:
    """What a stretch is charged for."""
    part = steps[block.first : block.last]
    if block.pays is None:
        return Stretch(block.first, block.last, Absorbed(plain(pair_of, part), part.count, None))
    paying = steps[block.horizon : block.last]
    pays = block.pays * paying.nu * (1 + 64 * ROUNDING) + paying.drift * (1 + 16 * ROUNDING)
    curve = absorbing(pair_of, part, pays, diameter)
    return Stretch(block.first, block.last, Absorbed(curve, len(pays), pays))


def _prices(pair_of: PairOf, ratios: Array) -> Array:
    """Log-moments of every order (its tilt in TILTS), step and payment (in SHIFTS)."""
    kinds = np.unique(ratios)
    if len(kinds) > KNOTS:
        kinds = np.unique(np.quantile(ratios, np.linspace(0, 1, KNOTS)))
    some = np.append(np.arange(1, len(SHIFTS), 2), len(SHIFTS) - 1)
    mix = np.array([np.interp(ratios, kinds, row) for row in np.eye(len(kinds))])
    tables = []
    for tilt in TILTS.tolist():
        rows = []
        for ratio in kinds.tolist():
            own = log_moment(pair_of, 1.0 + tilt, ratio, 0.0)
            rises = [log_moment(pair_of, 1.0 + tilt, ratio, SHIFTS[k]) - own for k in some]
            logs = np.log(np.maximum.accumulate(np.clip(rises, 1e-290, 1e6)))
            between = np.exp(np.interp(np.log(SHIFTS[1:]), np.log(SHIFTS[some]), logs))
            rows.append(own + np.concatenate([[0.0], between]))
        tables.append(mix.T @ np.array(rows))
    return np.array(tables)
