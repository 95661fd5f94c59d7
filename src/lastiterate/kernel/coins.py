"""Batches drawn anew at every step (Theorem U with coins): Poisson and without replacement.

Any z >= 0 with z = 0 at every release, which begins at 0 or at a distance that the runs may have,
is a proof. With  alpha = (g(z_k) + drift - z_{k+1})_+  where the record is not in the batch (0 from
a common point) and  beta = (g(z_k) + s - z_{k+1})_+  where it is, in units of the noise, a step is
dominated, in both orders, by
  zero-out, k records:  sum over i of Bin(k, q)(i) N(beta + (i-1) s, 1), alpha for i = 0, against
                        N(0, 1);
  replace:              (1-q) N(alpha, 1) + q N(beta, 1) against (1-q) N(0, 1) + q N(-s, 1), with
                        the length of one gradient in s;
  without replacement:  two coins whose sides are alpha and beta apart (`replaced`).
Steps are charged as themselves, or as the first pair of the witness's menu that is no smaller.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate, islice
from typing import Any

from lastiterate.kernel.balls import (
    Ball,
    arb,
    geometric,
    infinity,
    positive_part,
    ratio,
    repeat,
    require,
    upper,
    upper_float,
)
from lastiterate.kernel.document import Table, fields, flag, numbers, well_formed, whole
from lastiterate.kernel.privacy_loss import (
    GaussianPair,
    check_pairs,
    opposed,
    replaced,
    sampled,
)
from lastiterate.kernel.run import MOST_STEPS, Run, Unit

MOST_COINS = 30  # of a unit with several records
FEW = 40  # different steps that need no menu
WALKED = 1_000_000  # equal steps that are walked one by one before a closed bound is used
Row = tuple[float, ...]  # alpha, beta and what else a pair needs, in units of the noise
Charges = list[tuple[Any, int]]  # pairs and how often each counts
Steps = Callable[[int, int], Any]  # something for each of the steps first, ..., last - 1


@dataclass(frozen=True)
class Coins:
    """How a scheme moves two runs apart; functions of (first, last) have an entry per step.

    ``c``: Lipschitz constants, if there are any; ``g``: moduli; ``s``: what the record adds to a
    path; ``extra``: the last entry of a row; ``apart``: what a step adds to the distance of the
    runs, to g and on its own; ``pair``: of a row.
    """

    run: Run
    c: Steps
    g: Steps
    s: Steps
    extra: Steps | None
    apart: Steps
    pair: Callable[..., GaussianPair]

    def rows(self, first: int, z: Sequence[float] | None, last: int) -> Counter[Row]:
        """The rows of the steps from ``first``; z = None: all iterates are public."""
        run, found = self.run, Counter[Row]()
        alike, count = run.alike and z is None, last - first
        require(alike or count <= MOST_STEPS, f"more than {MOST_STEPS:,} steps")
        if count <= 0:
            return found
        found.update(map(self._public if z is None else self._paid, *self._columns(first, z, last)))
        return Counter({row: n * count for row, n in found.items()}) if alike else found

    def _columns(self, first: int, z: Sequence[float] | None, last: int) -> list[Iterable[Any]]:
        """nu, s, extra of each step, and where there is a path g, drift and z before and after."""
        steps = 1 if self.run.alike and z is None else last - first
        lists = [self.run.nu(first, last), self.s(first, last)]
        lists.append([None] if self.extra is None else self.extra(first, last))
        if z is None:
            return [repeat(column, steps) for column in lists]
        lists += [self.g(first, last), self.run.drift(first, last)]
        return [*(repeat(column, steps) for column in lists), z, islice(z, 1, None)]

    def _public(self, nu: Ball, s: Ball, extra: Ball | None) -> Row:
        shift = _shift(s, nu)
        return (0.0, shift) if extra is None else (0.0, shift, _shift(extra, nu))

    def _paid(self, nu: Ball, s: Ball, extra: Any, g: Any, drift: Ball, z: float, to: float) -> Row:
        moved = g(arb(z)) if z > 0 else arb(0)
        low = positive_part(moved + drift - to) if z > 0 else arb(0)
        row = (_shift(low, nu), _shift(positive_part(moved + s - to), nu))
        return row if extra is None else (*row, _shift(extra, nu))

    def distance(self, first: int, last: int) -> Ball:
        """How far apart two runs can be at ``last`` from a common point at ``first``."""
        width, steps = arb(self.run.diameter), last - first
        if steps <= 0:
            return arb(0)
        if self.run.alike and steps > WALKED:
            c, (added, alone) = self.c(first, last), self.apart(first, last)[0]
            settled = infinity() if c is None else added * geometric(upper(c[0]), steps)
            return upper(settled.min(alone * steps).min(width))
        z = arb(0)
        rows = zip(self.g(first, last), self.apart(first, last), strict=True)
        for g, (added, alone) in repeat(list(rows), steps):
            z = upper((g(z) + added).min(z + alone).min(width))
        return z

    def segment(self, first: int, last: int, z: Sequence[float] | None) -> Counter[Row]:
        """The rows of a segment: of its last steps, if the path is shorter."""
        if z is None:
            return self.rows(first, None, last)
        begin = last + 1 - len(z)
        require(first <= begin < last and z[-1] == 0, "a path does not end at 0 in its segment")
        far = z[0] >= self.run.diameter or arb(z[0]) >= self.distance(first, begin)
        require(far, "a path starts below the distance that the runs may have")
        return self.rows(begin, z, last)


def _shift(length: Ball, nu: Ball) -> float:
    shift = upper_float(ratio(length, nu)) if length != 0 else 0.0
    require(shift < math.inf, "a step without noise uses the record")
    return shift


def charged(rows: Counter[Row], menu: Any, pair: Callable[..., GaussianPair]) -> Charges:
    """Each row as itself, or, where many differ, as the first of the menu that is no smaller."""
    well_formed(isinstance(menu, list), "the menu is not a list")
    check_pairs(len(menu))
    every = [tuple(numbers(offer, "menu")) for offer in menu]
    good = all(len(offer) in (2, 3) and offer[0] <= offer[1] for offer in every)
    well_formed(good, "an offer of the menu is no pair")
    rows = Counter({row: n for row, n in rows.items() if any(row)})
    if len(rows) <= FEW:
        return [(pair(*row), n) for row, n in rows.items()]
    width = len(next(iter(rows)))  # the menu of two kinds of pairs has offers of two lengths
    offers = [offer for offer in every if len(offer) == width]
    tops = [list(accumulate(column, max)) for column in zip(*offers, strict=True)]
    require(offers, "the menu has no pair of this kind")
    counts = Counter[Row]()
    for row, n in rows.items():
        begin = max(map(bisect_left, tops, row))  # none of the offers before is large enough
        fits = (o for o in islice(offers, begin, None) if all(map(operator.le, row, o)))
        offer = next(fits, None)
        require(offer is not None, "a step is dearer than every pair of the menu")
        counts[offer] += n  # type: ignore[index]
    return [(pair(*offer), n) for offer, n in counts.items()]


def segments(run: Run, witness: Table, optional: Sequence[str] = ()) -> Iterable[Table]:
    """Segments without gaps that end, among others, at every release.

    They may be finer: whoever sees more iterates can forget some of them.
    """
    rows = witness["segments"]
    well_formed(isinstance(rows, list) and len(rows) <= run.end, "segments of the witness")
    place, known = 0, {last for _, last in run.segments}
    for row in rows:
        fields(row, "segment", ("first", "last"), optional)
        well_formed(whole(row["first"], "first") == place, "a segment does not follow the last one")
        place = whole(row["last"], "last", place + 1, run.end)
        known.discard(place)
        yield row
    require(place == run.end and not known, "the segments do not end at the releases")


def followed(run: Run, witness: Table) -> int:
    """How many steps have batches whose sizes the paths rest on.

    From the diameter those of the path, else those that bound the distance where it starts too.
    """
    total = 0
    for row in segments(run, witness, ("z", "near")):
        if "z" in row:
            z = numbers(row["z"], "z")
            far = len(z) > 0 and z[0] >= run.diameter
            total += len(z) - 1 if far else row["last"] - row["first"]
    return total


def overcrowded(run: Run, share: Ball, cap: int, steps: int) -> Ball:
    """An upper bound on the probability that one of some batches has more than ``cap`` records.

    P(Bin(n, q) > M) is the regularised incomplete beta function I_q(M + 1, n - M).
    """
    if cap >= run.records:
        return arb(0)
    tail = share.beta_lower(arb(cap + 1), arb(run.records - cap), regularized=True)
    return upper(steps * tail).min(arb(1)) if tail.is_finite() else arb(1)


def _charges(
    run: Run, witness: Table, hidden: bool, coins: Coins, close: Coins | None = None
) -> Charges:
    """The pairs of all steps; ``close``: of public steps that the witness calls ``near``."""
    found = {id(each): Counter[Row]() for each in (coins, close)}

    def public(row: Table, first: int, last: int) -> None:
        near = close is not None and flag(row.get("near", False), "near")
        each = close if close is not None and near else coins
        found[id(each)].update(each.rows(first, None, last))

    if hidden:
        for row in segments(run, witness, ("z",) if close is None else ("z", "near")):
            first, last = row["first"], row["last"]
            if "z" in row:
                found[id(coins)].update(coins.segment(first, last, numbers(row["z"], "z")))
            else:
                public(row, first, last)
    public(witness, run.end if hidden else 0, run.steps)
    kinds = [coins] if close is None else [coins, close]
    return [x for each in kinds for x in charged(found[id(each)], witness["menu"], each.pair)]


def check_poisson(run: Run, witness: Table, hidden: bool) -> tuple[Charges, Ball]:
    """Poisson batches, "zero-out" or "replace"; ``hidden``: with paths, else all is public.

    A path needs a modulus of every realised batch: batches of more than ``cap`` records are a
    failure, whose probability is added to delta.
    """
    require(run.scheme == "poisson", f"its batches are {run.scheme}")
    zero_out = run.adjacency == "zero-out"
    needed = ("menu", "cap", "segments") if hidden else ("menu",)
    fields(witness, "witness", needed, () if zero_out else ("near",))
    records, rate = run.unit.records, float(run.rate or 0)
    require(records <= MOST_COINS, f"more than {MOST_COINS} records of a unit have too many coins")
    require(not hidden or run.momentum == 0, "it has momentum")
    cap = min(whole(witness["cap"], "cap"), run.records) if hidden else run.records
    crowding = arb(cap) / run.divisor

    def c(first: int, last: int) -> list[Ball] | None:
        return run.c(first, last, crowding)

    def g(first: int, last: int) -> Any:
        return run.g(first, last, crowding)

    def apart(first: int, last: int) -> Any:
        return [(records * s, infinity()) for s in run.s(first, last)]

    def grouped(low: float, high: float, gap: float) -> GaussianPair:
        return sampled(rate, [low, *(Fraction(high) + i * Fraction(gap) for i in range(records))])

    failure = overcrowded(run, arb(rate), cap, followed(run, witness) if hidden else 0)
    if zero_out:
        coins = Coins(run, c, g, run.s, run.s if records > 1 else None, apart, grouped)
        if records == 1:
            coins = replace(coins, pair=lambda low, high: sampled(rate, [low, high]))
        return _charges(run, witness, hidden, coins), failure
    require(records == 1 and not run.unit.timed, "its unit is not one record of every step")
    require(math.isfinite(run.gradient_norm), "its gradients have no known length")
    if run.idle:
        return [], arb(0)

    def length(first: int, last: int) -> list[Ball]:
        return run.moves(arb(run.gradient_norm) / run.divisor + run.rounding, first, last)

    def longer(first: int, last: int) -> list[Ball]:
        lists = length(first, last), run.s(first, last)
        return [a.max(b) for a, b in zip(*lists, strict=True)]

    # Gradients no longer than h and no farther apart than s: without replacement, max(h, s).
    coins = Coins(run, c, g, length, length, apart, partial(opposed, rate))
    close = replace(coins, s=longer, extra=None, pair=partial(replaced, rate))
    return _charges(run, witness, hidden, coins, close), failure


def check_without_replacement(run: Run, witness: Table, hidden: bool) -> tuple[Charges, Ball]:
    """A fresh subset at every step; ``hidden``: with paths, else all iterates are public.

    A record that is zeroed out still displaces another one: it moves a batch by two gradients.
    """
    require(run.scheme == "without-replacement", f"its batches are {run.scheme}")
    fields(witness, "witness", ("menu", "segments") if hidden else ("menu",))
    require(run.unit == Unit(), "its unit is not one record of every step")
    require(not hidden or run.momentum == 0, "it has momentum")
    times = 0 if run.single_point else 1 if run.adjacency == "replace" else 2
    each = times * arb(run.sensitivity) / run.divisor + run.rounding

    def s(first: int, last: int) -> list[Ball]:
        return run.moves(each, first, last)

    def apart(first: int, last: int) -> Any:
        """2 eta K and rounding: no batch adds more, if the L2 term does not overshoot."""
        l2, steps = (
            arb(run.loss.regularization),
            zip(s(first, last), run.step_sizes(first, last), run.drift(first, last), strict=True),
        )
        return [
            (move, run.apart(eta) + drift if eta * l2 <= 1 else infinity())
            for move, eta, drift in steps
        ]

    share = min(upper_float(arb(run.size) / run.records), 1.0)
    coins = Coins(run, run.c, run.g, s, None, apart, partial(replaced, share))
    return _charges(run, witness, hidden, coins), arb(0)
