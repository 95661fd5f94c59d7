"""The exchange bound in ball arithmetic: margins of the masses, and the strings of two positions.

A certificate lists pairs of positions (i, j) with masses p and q, for each order of the two runs.
The masses prove

    delta(epsilon) <= sum p delta_{mu_ij}(epsilon + log(q/p))

if the p of every row sum to at least 1/B and the q of every column to at most 1/B.  mu_ij is pooled
here, with both sensitivities at every epoch.

Where every epoch has a new partition, positions are exchanged in the last epoch alone. Masses
belong to values of the cost of all earlier epochs, whose law is moved up to these values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import Ball, above, arb, gaussian_delta, precision, proved
from lastiterate.verifier.steps import Case
from lastiterate.verifier.strings import Block, Stack, geometric, infinite, ratio, repeated

EXACT_EPOCHS = 128  # at the end of runs of equal steps, where restarts are looked for
MOST_STEPS = 100_000  # of schedules, whose windows are tabulated
MOST_PAIRS = 1_000_000  # rows times events


@dataclass(frozen=True)
class Term:
    """p delta_mu(epsilon + shift), shift = log(q/p)."""

    square: Ball
    p: Ball
    q: Ball

    def delta(self, epsilon: Ball) -> Ball:
        """An upper bound at this epsilon of the sum."""
        if not proved(self.q > 0) or not self.square.is_finite():
            return self.p
        shifted = epsilon + (self.q / self.p).log()
        size = shifted.lower() if proved(shifted >= 0) else (-shifted).upper()
        value = gaussian_delta(self.square, arb(size))
        if proved(shifted >= 0):
            return self.p * value
        # delta(-x) = 1 - e^(-x) + e^(-x) delta(x), and it grows with x.
        shrink = (-arb(size).max(arb(0))).exp()
        return self.p * (1 - shrink + shrink * value).min(arb(1))


@dataclass(frozen=True, eq=False)
class Exchanged:
    """The terms of every order; the worst order counts."""

    orders: Sequence[Sequence[Term]]

    def delta(self, epsilon: float, sufficient: float = 0.0) -> Ball:
        """An upper bound on delta(epsilon), as an exact number."""
        point = arb(epsilon)
        with precision():
            totals = [sum((term.delta(point) for term in order), arb(0)) for order in self.orders]
            worst = above(totals[0])
            for total in totals[1:]:
                worst = worst.max(above(total))
            return worst.min(arb(1)) if worst.is_finite() else arb(1)


def exchanged(
    case: Case, squares: Sequence[Ball], drift: Ball, witness: Sequence[Mapping[str, Any]]
) -> Exchanged:
    """The bound of the masses of a witness.

    Args:
        case: the run.
        squares: mu_jj^2 of every position.
        drift: what rounding adds to every mu.
        witness: rows, columns and masses, for each order.
    """
    sizes = _sizes(case)
    if len(witness) != len(sizes):
        raise CertificateError("the witness has masses for another number of orders")
    strings = _PairStrings(case.exposed(ONE_RECORD))
    orders = []
    for order, size in zip(witness, sizes, strict=True):
        masses = _read(order, len(squares), strings.events)
        own = zip(squares, masses.own_p, masses.own_q, strict=True)
        terms = [Term(*values) for values in own]
        for i, j, p, q in masses.pairs:
            terms.append(Term(_drifted(strings.square(i, j, size), drift), p, q))
        orders.append(terms)
    return Exchanged(orders)


class _Masses(NamedTuple):
    """Masses of one order: what stays at each position, and (i, j, p, q) for pairs."""

    own_p: list[Ball]
    own_q: list[Ball]
    pairs: list[tuple[int, int, Ball, Ball]]


def _read(order: Mapping[str, Any], batches: int, events: int) -> _Masses:
    """The masses of a witness, once their margins are checked."""
    row, column = (_places(order[name], batches) for name in ("row", "column"))
    p, q = (_masses(order[name]) for name in ("p", "q"))
    own_p, own_q = (_masses(order[name]) for name in ("own_p", "own_q"))
    if len(own_p) != batches or len(own_q) != batches:
        raise CertificateError("the witness has masses for another number of positions")
    if not len(row) == len(column) == len(p) == len(q):
        raise CertificateError("the witness has masses for another number of pairs")
    if len(row) * events > MOST_PAIRS:
        raise CertificateError(f"more than {MOST_PAIRS:,} events cannot be pooled")
    _check_margins(own_p, row, p, lowest=True)
    _check_margins(own_q, column, q, lowest=False)
    return _Masses(own_p, own_q, list(zip(row, column, p, q, strict=True)))


def _sizes(case: Case) -> tuple[tuple[Ball, Ball], ...]:
    """Sensitivities at both positions in units of the training's, for each order of the runs.

    The record against another one, and the other one against the replacement or nothing.
    """
    one, norm = arb(1), case.unit.gradient_norm
    declared = arb(float(case.training.sensitivity))
    known = norm is not None and declared != 0
    if case.training.adjacency == "zero-out":
        own = (arb(norm) / declared).min(one) if known else one
        return (1 + own, one), (one, 1 + own)
    other = arb(case.training.gradient_norm)
    size = ((arb(norm) + other) / declared).min(one) if known else one
    return ((size, size),)


def _drifted(square: Ball, drift: Ball) -> Ball:
    if drift == 0 or not square.is_finite():
        return square
    return (above(square).max(arb(0)).sqrt() + drift) ** 2 if drift.is_finite() else infinite()


def _places(values: Any, batches: int) -> list[int]:
    found = [int(value) for value in values]
    if any(place != value for place, value in zip(found, values, strict=True)):
        raise CertificateError("a position of the witness is not a whole number")
    if not all(0 <= place < batches for place in found):
        raise CertificateError("a position of the witness is not in the epoch")
    return found


def _masses(values: Any) -> list[Ball]:
    found = [float(value) for value in values]
    if not all(math.isfinite(value) and value >= 0 for value in found):
        raise CertificateError("a mass of the witness is not a number of at least 0")
    return [arb(value) for value in found]


def _check_margins(
    own: Sequence[Ball], place: Sequence[int], mass: Sequence[Ball], *, lowest: bool
) -> None:
    """Rows of p sum to at least 1/B, columns of q to at most 1/B."""
    totals, share = list(own), arb(1) / len(own)
    for index, value in zip(place, mass, strict=True):
        totals[index] += value
    if not all(proved(t >= share if lowest else t <= share) for t in totals):
        side = "rows sum to less" if lowest else "columns sum to more"
        raise CertificateError(f"the masses of the witness: {side} than 1/B")


class _Windows:
    """Windows of consecutive steps from a step on: what two uses of a record have between them."""

    def __init__(self, case: Case, first: int = 0) -> None:
        if case.factors(0, 1) is None:
            raise CertificateError("the updates have no known Lipschitz constant")
        self._case, self._first = case, first
        self._batches = case.training.batches_per_epoch or 1
        self._known: dict[int, tuple[Ball, Ball]] = {}
        if not case.constant:
            if case.training.steps - first > MOST_STEPS:
                raise CertificateError(f"more than {MOST_STEPS:,} steps cannot be pooled")
            self._tabulate()

    @property
    def _one(self) -> tuple[Ball, Ball, Ball]:
        factors = self._case.factors(0, 1)
        assert factors is not None
        return factors[0], self._case.impulses(0, 1)[0], self._case.noises(0, 1)[0]

    def _tabulate(self) -> None:
        """Factors and carried variances of windows of 1, 2, 4, ... steps."""
        case, first, last = self._case, self._first, self._case.training.steps
        factors = case.factors(first, last)
        assert factors is not None
        self._c = factors
        self._s, self._nu = case.impulses(first, last), case.noises(first, last)
        level = [(c, nu * nu) for c, nu in zip(factors, self._nu, strict=True)]
        self._table = [level]
        width = 1
        while 2 * width <= min(self._batches, last - first):
            level = [
                (c * level[k + width][0], v * level[k + width][0] ** 2 + level[k + width][1])
                for k, (c, v) in enumerate(level[:-width])
            ]
            self._table.append(level)
            width *= 2

    def _window(self, start: int, length: int) -> tuple[Ball, Ball]:
        """Product of the factors of steps, and their noise variance carried to their end."""
        if self._case.constant:
            if length not in self._known:
                c, _, nu = self._one
                self._known[length] = c**length, nu * nu * geometric(c * c, length)
            return self._known[length]
        factor, variance, place = arb(1), arb(0), start - self._first
        for bit, level in enumerate(self._table):
            if length >> bit & 1:
                c, v = level[place]
                factor, variance = factor * c, variance * c * c + v
                place += 1 << bit
        return factor, variance

    def _at(self, step: int) -> tuple[Ball, Ball, Ball]:
        if self._case.constant:
            return self._one
        place = step - self._first
        return self._c[place], self._s[place], self._nu[place]

    def _used(self, step: int, size: Ball, following: int) -> Block:
        """A use of a record of ``size``, and the steps after it up to the following use."""
        carried, noise = self._window(step + 1, following - step - 1)
        c, s, nu = self._at(step)
        return Block(size * s * carried, nu * nu * carried * carried + noise, c * carried)

    def _paid(self, first: int, uses: Sequence[tuple[int, Ball]]) -> Ball:
        """What uses inside a released window cost, from a step on: they are paid on arrival."""
        total, last = arb(0), self._case.training.steps
        count = max(last - first, 0)
        if count:
            impulses = repeated(self._case.impulses(first, last), count)
            noises = repeated(self._case.noises(first, last), count)
            for k, (s, nu) in enumerate(zip(impulses, noises, strict=True), first):
                for place, size in uses:
                    if k % self._batches == place:
                        total += ratio(size * s, nu) ** 2
        return total


class _PairStrings(_Windows):
    """mu_ij^2 of two positions that are used in every epoch."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._repeats = False  # whether all steps are equal and not expansive
        if case.constant:
            self._repeats = bool(proved(self._one[0] <= 1))
            long = case.training.steps > EXACT_EPOCHS * self._batches
            if long and (len(case.segments) > 1 or not self._repeats):
                raise CertificateError("its strings of two positions are too long to be pooled")

    @property
    def events(self) -> int:
        """At most how many uses enter a string."""
        return 2 * min(self._case.training.steps // self._batches + 2, EXACT_EPOCHS + 1)

    def square(self, i: int, j: int, sizes: tuple[Ball, Ball]) -> Ball:
        """mu_ij^2, with ``sizes`` times the sensitivity of one record at i and at j."""
        uses = _ordered(i, j, sizes)
        total = sum((self._string(*segment, uses) for segment in self._case.segments), arb(0))
        return total + self._paid(self._case.end, uses)

    def _string(self, begin: int, end: int, uses: Sequence[tuple[int, Ball]]) -> Ball:
        """mu^2 of a segment, pooled from the right, from a common start or from the diameter."""
        batches, width = self._batches, self._case.training.diameter
        repeats = self._repeats and begin == 0 and end >= 3 * batches
        common = self._periodic(end, uses) if repeats else None
        if common is not None and math.isinf(width):
            return common
        closing = -(-end // batches)
        opening = max(begin // batches, closing - EXACT_EPOCHS) if repeats else begin // batches
        stack, following = Stack(), end
        for epoch in range(closing - 1, opening - 1, -1):
            for place, size in reversed(uses):
                step = epoch * batches + place
                if not begin <= step < end:
                    continue
                if math.isfinite(width):
                    carried, noise = self._window(step + 1, following - step - 1)
                    stack.restart(Block(arb(width) * carried, noise, carried))
                stack.push(self._used(step, size, following))
                following = step
        return (stack.common if common is None else common).min(stack.restarted)

    def _periodic(self, end: int, uses: Sequence[tuple[int, Ball]]) -> Ball:
        """mu^2 of three or more epochs of equal, non-expansive steps: two windows that repeat.

        n equal blocks (A, V, G) with G <= 1 are feasible as one, A (1 + G + ... ) and
        V (1 + G^2 + ... ): the sums of A fall from block to block no faster than those of V.
        """
        (first, early), (last, late) = uses
        c, s, nu = self._one
        near, far = last - first, self._batches - last + first
        count = (end - 1 - first) // self._batches  # complete periods, at least two

        def window(size: Ball, length: int) -> Block:
            carried, noise = self._window(0, length - 1)
            return Block(size * s * carried, nu * nu * carried * carried + noise, c * carried)

        one, two = window(early, near), window(late, far)
        ahead = first + count * self._batches
        after = ahead + near
        tail = [window(early, min(after, end) - ahead)]
        if after < end:
            tail.append(window(late, end - after))
        if one.violates(two) or (c == 1 and proved(early * far >= late * near)):
            blocks = [_power(one.then(two), count), *tail]
        elif two.violates(one) or (c == 1 and proved(early * far <= late * near)):
            blocks = [one, _power(two.then(one), count - 1), two, *tail]
        else:  # doubtful: every window is paid off by itself
            paid = count * (one.cost + two.cost)
            return sum((block.cost for block in tail), paid)
        stack = Stack()
        for block in reversed(blocks):
            stack.push(block)
        return stack.common


def _ordered(i: int, j: int, sizes: tuple[Ball, Ball]) -> list[tuple[int, Ball]]:
    """Two positions with their sizes, the earlier one first."""
    if i == j:
        raise CertificateError("a pair of the witness exchanges a position with itself")
    uses = [(i, sizes[0]), (j, sizes[1])]
    return uses if i < j else uses[::-1]


class _LastEpoch(_Windows):
    """mu_ij^2 of two positions of the last epoch, from a distance at its start."""

    def __init__(self, case: Case, level: Ball) -> None:
        batches = case.training.batches_per_epoch or 1
        self._start = (case.training.steps - 1) // batches * batches
        super().__init__(case, self._start)
        self._level = level
        self._squares: dict[tuple[int, int, int], Ball] = {}

    def square(self, i: int, j: int, order: int, sizes: tuple[Ball, Ball]) -> Ball:
        """mu_ij^2, with ``sizes`` (those of ``order``) times one record's sensitivity."""
        if (i, j, order) not in self._squares:
            self._squares[i, j, order] = self._pooled(_ordered(i, j, sizes))
        return self._squares[i, j, order]

    def _pooled(self, uses: Sequence[tuple[int, Ball]]) -> Ball:
        start, stack = self._start, Stack()
        end = following = max(self._case.end, start)
        for place, size in reversed(uses):
            step = start + place
            if step < end:
                stack.push(self._used(step, size, following))
                following = step
        carried, noise = self._window(start, following - start)
        stack.push(Block(self._level * carried, noise, carried))
        return stack.common + self._paid(end, uses)


def exchanged_last(
    case: Case,
    law: Sequence[tuple[Ball, Ball]],
    own: Sequence[Ball],
    level: float,
    drift: Ball,
    witness: Mapping[str, Any],
) -> Exchanged:
    """The bound of the masses of a witness for a last epoch of reshuffled batches.

    Args:
        case: the run.
        law: costs of all earlier epochs, in rising order, and their masses.
        own: what the last epoch costs at each position, from ``level`` to 0.
        level: the distance at the start of the last epoch.
        drift: what rounding adds to every mu.
        witness: values of the cost of earlier epochs; for each order, masses for each of them.
    """
    sizes = _sizes(case)
    costs, weights = _gathered(law, list(witness["costs"]))
    if len(witness["orders"]) != len(sizes):
        raise CertificateError("the witness has masses for another number of orders")
    strings = _LastEpoch(case.exposed(ONE_RECORD), arb(level))
    orders = []
    for index, size in enumerate(sizes):
        chosen = witness["orders"][index]
        if len(chosen) != len(costs):
            raise CertificateError("the witness has masses for another number of costs")
        terms: list[Term] = []
        for cost, weight, order in zip(costs, weights, chosen, strict=True):
            masses = _read(order, len(own), 2 * len(costs))
            each = list(zip(own, masses.own_p, masses.own_q, strict=True))
            for i, j, p, q in masses.pairs:
                each.append((strings.square(i, j, index, size), p, q))
            found = [
                Term(_drifted(cost + square, drift), weight * p, weight * q)
                for square, p, q in each
            ]
            terms.extend(_merged(found))
        orders.append(terms)
    return Exchanged(orders)


def _gathered(
    law: Sequence[tuple[Ball, Ball]], values: Sequence[float]
) -> tuple[list[Ball], list[Ball]]:
    """Every cost of a law moved up to a value of the witness, and what each value carries.

    The last value grows to the largest cost.
    """
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        raise CertificateError("a cost of the witness is not a number of at least 0")
    costs = list(map(arb, values))
    weights, place = [arb(0)] * len(costs), 0
    for cost, mass in law:
        while place + 1 < len(costs) and not proved(cost <= costs[place]):
            place += 1
        if not proved(cost <= costs[place]):
            costs[place] = costs[place].max(above(cost))
        weights[place] += mass
    return costs, weights


def _merged(terms: Sequence[Term]) -> list[Term]:
    """Fewer terms of no smaller sum.

    Terms of similar mu and q/p become one, with the largest mu and the smallest q/p: delta_mu
    grows with mu and falls with epsilon.  Which are similar is decided in floats: proves nothing.
    """
    alone: list[Term] = []
    similar: dict[tuple[int, int], list[Term]] = {}
    for term in terms:
        square, p, q = (float(above(value)) for value in (term.square, term.p, term.q))
        if not (0 < square < math.inf and p > 0 and q > 0):
            alone.append(term)
            continue
        key = math.floor(250 * math.log(square)), math.floor(200 * math.log(q / p))
        similar.setdefault(key, []).append(term)
    for group in similar.values():
        p = sum((term.p for term in group), arb(0))
        shares = [term.q / term.p for term in group]
        square, share = above(group[0].square), shares[0]
        for term, other in zip(group, shares, strict=True):
            square, share = square.max(above(term.square)), share.min(other)
        alone.append(Term(square, p, p * share))
    return alone


def _power(block: Block, count: int) -> Block:
    """``count`` equal blocks as one."""
    A, V, G = block
    return Block(A * geometric(G, count), V * geometric(G * G, count), G**count)
