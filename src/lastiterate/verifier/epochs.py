"""Batches in epochs, in ball arithmetic: what each position of a record costs.

A record sits in one batch of an epoch. `position_squares` pools the taut string of every position
(cyclic, shuffled once). `epoch_costs` prices the levels that a certificate of reshuffled batches
carries, and `sum_of_costs` convolves them exactly on a grid of whole numbers.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import Ball, above, arb, fmpz_poly, greatest, proved, units_up
from lastiterate.verifier.steps import Case
from lastiterate.verifier.strings import Block, Stack, geometric, infinite, ratio, repeated

_BITS = 160  # masses are whole multiples of 2^-160


class Row(NamedTuple):
    """The steps of one epoch: for each position, what comes after it and what came before it."""

    c: list[Ball]
    s: list[Ball]
    after: list[Ball]  # product of the factors of the later steps
    noise: list[Ball]  # noise from the position on, carried to the end of the epoch
    before: list[Ball]  # product of the factors of the earlier steps; one entry more: of all
    early: list[Ball]  # noise of the earlier steps, carried to just before the position


def _row(case: Case, start: int, first: int, last: int, batches: int) -> Row:
    """Epoch steps start .. start + batches - 1; those outside first .. last do nothing."""
    low, high = max(start, first), min(start + batches, last)
    count = max(high - low, 0)
    one, zero = arb(1), arb(0)
    c, s, nu = [one] * batches, [zero] * batches, [zero] * batches
    if count:
        found = case.factors(low, high)
        assert found is not None
        inside = slice(low - start, high - start)
        c[inside] = repeated(found, count)
        s[inside] = repeated(case.impulses(low, high), count)
        nu[inside] = repeated([x * x for x in case.noises(low, high)], count)
    after, noise = [one] * batches, [zero] * batches
    product, total = one, zero
    for k in range(batches - 1, -1, -1):
        after[k] = product
        total = total + nu[k] * product * product
        noise[k] = total
        product = c[k] * product
    before, early = [one], [zero]
    for k in range(batches):
        before.append(c[k] * before[k])
        early.append(c[k] * c[k] * early[k] + nu[k])
    return Row(c, s, after, noise, before, early)


def position_squares(case: Case) -> list[Ball]:
    """mu_j^2 of a record at each position j, for what the run releases."""
    training = case.training
    batches = training.batches_per_epoch or 1
    totals = [arb(0)] * batches
    for first, last in case.segments:
        found = _segment(case, first, last, batches)
        totals = [a + b for a, b in zip(totals, found, strict=True)]
    return _with_window(case, totals)


def _with_window(case: Case, totals: list[Ball]) -> list[Ball]:
    """Impulses inside the released window are paid on arrival."""
    steps, batches = case.training.steps, len(totals)
    count = steps - case.end
    impulses = repeated(case.impulses(case.end, steps), count) if count > 0 else ()
    noises = repeated(case.noises(case.end, steps), count) if count > 0 else ()
    for k, (s, nu) in enumerate(zip(impulses, noises, strict=True)):
        totals[(case.end + k) % batches] += ratio(s, nu) ** 2
    return totals


def _segment(case: Case, first: int, last: int, batches: int) -> list[Ball]:
    if case.factors(first, min(last, first + 1)) is None:
        return [infinite()] * batches
    if not case.constant:
        return _pooled(case, first, last, batches)
    return _constant(case, first, last, batches)


class _Alike(NamedTuple):
    """Equal steps in epochs of ``batches``, on a domain of diameter ``width`` (perhaps infinite).

    A window is the steps from one use of the record to the step before the next.
    """

    c: Ball
    s: Ball
    variance: Ball
    batches: int
    width: float

    def noise(self, steps: int) -> Ball:
        return self.variance * geometric(self.c * self.c, steps)

    def window(self, steps: int) -> Block:
        """The use of the record and the steps after it."""
        return Block(self.s * self.c ** (steps - 1), self.noise(steps), self.c**steps)

    def windows(self, count: int) -> Block:
        """Full windows, paid off together."""
        one = self.c**self.batches
        arrived = self.s * self.c ** (self.batches - 1) * geometric(one, count)
        return Block(arrived, self.noise(self.batches * count), one**count)

    def begun(self) -> Block:
        """The rest of a window, from the diameter."""
        return self.rest(self.batches)

    def rest(self, steps: int) -> Block:
        carried = self.c ** (steps - 1)
        return Block(carried * arb(self.width), self.noise(steps - 1), carried)

    def common(self, full: int, left: int) -> Ball:
        """From a common start: for c <= 1 all full windows pool into one block, else none do."""
        end = self.window(left)
        if not proved(self.c <= 1):
            return full * self.window(self.batches).cost + end.cost if full else end.cost
        stack = Stack()
        stack.push(end)
        if full:
            stack.push(self.windows(full))
        return stack.cost

    def restarted(self, full: int, left: int) -> Ball:
        """From the diameter after a use of the record: ``full`` windows, and ``left`` steps.

        For c > 1 windows pool only behind a start that is far away: (A, V) absorbs the next one if
        A/V > g a/v. Where it does not, (gA + a)/(g^2 V + v) <= a/v <= g a/v: it absorbs none
        after that either. So if it absorbs the last one, it did all before.
        """
        stack = Stack()
        stack.push(self.window(left))
        if not full:
            stack.restart(self.begun())
        elif proved(self.c <= 1):
            stack.push(self.windows(full))
            stack.restart(self.begun())
        else:
            before = self.begun() if full == 1 else self.begun().then(self.windows(full - 1))
            if not before.violates(self.window(self.batches)):
                return infinite()
            stack.restart(self.begun().then(self.windows(full)))
        return stack.restarted

    def best_restarts(self, most: int, left: int) -> set[int]:
        """How many full windows, below ``most``, to leave after a restart (proves nothing)."""
        tried: dict[int, float] = {}

        def cost(full: int) -> float:
            if full not in tried:
                value = float(above(self.restarted(full, left)))
                tried[full] = math.inf if math.isnan(value) else value
            return tried[full]

        place, best = 1, 0
        while place < most:
            best = min(best, place, key=cost)
            place = max(place + 1, math.ceil(place * 1.1))
        stride = max(best // 8, 1)
        while stride:
            other = min(max(best - stride, 0), min(best + stride, most - 1), key=cost)
            if cost(other) < cost(best):
                best = other
            else:
                stride //= 2
        return {full for full in range(best - 2, best + 3) if 0 <= full < most}


def _constant(case: Case, first: int, last: int, batches: int) -> list[Ball]:
    """Equal steps: closed forms, from a common start and from the diameter."""
    factor, impulse = case.factors(first, first + 1), case.impulses(first, first + 1)
    assert factor is not None
    c, s, nu = factor[0], impulse[0], case.noises(first, first + 1)[0]
    if not proved(c <= 1):
        c = c.max(arb(1))
    alike = _Alike(c, s, nu * nu, batches, case.training.diameter)
    steps = last - first
    whole = max(-(-steps // batches) - 1, 0)  # full windows of the positions that have most
    bounded = math.isfinite(alike.width) and s != 0
    tried: set[int] = set()
    if bounded and whole:
        tried = alike.best_restarts(whole, 1) | alike.best_restarts(whole, batches)
    answer = []
    for j in range(batches):
        start = (j - first) % batches
        full = max(-((start - steps) // batches), 0) - 1
        if full < 0:
            answer.append(arb(0))
            continue
        left = steps - start - full * batches
        cost = alike.common(full, left)
        if bounded:
            cost = cost.min(alike.rest(left).cost)
            for count in sorted(tried):
                if count < full:
                    cost = cost.min(alike.restarted(count, left))
        answer.append(cost)
    return answer


def _pooled(case: Case, first: int, last: int, batches: int) -> list[Ball]:
    """Any schedule: one block from each impulse to the next, pooled from the right."""
    stacks = [Stack() for _ in range(batches)]
    width = case.training.diameter
    bounded = math.isfinite(width)
    later = _row(case, last, first, last, batches)  # outside: does nothing
    for start in range((last - 1) // batches * batches, first - batches, -batches):
        row = _row(case, start, first, last, batches)
        for j, stack in enumerate(stacks):
            lead, noise = later.before[j], later.early[j]
            carried = row.after[j] * lead
            square = lead * lead
            if bounded and row.s[j] != 0:
                rest = row.noise[j + 1] if j + 1 < batches else arb(0)
                stack.restart(Block(width * carried, rest * square + noise, carried))
            stack.push(Block(row.s[j] * carried, row.noise[j] * square + noise, row.c[j] * carried))
        later = row
    return [stack.cost for stack in stacks]


# --- a new hidden partition every epoch ----------------------------------------------------------


class Priced(NamedTuple):
    """The costs of one epoch at each position, and in how many epochs they occur."""

    costs: tuple[Ball, ...]
    epochs: int


def epoch_costs(case: Case, levels: Sequence[float], pays: Sequence[bool]) -> list[Priced]:
    """What each epoch costs at each position under the certificate's levels."""
    return _counted(_each_epoch(case, levels, pays))


def earlier_and_last(
    case: Case, levels: Sequence[float], pays: Sequence[bool]
) -> tuple[list[Priced], tuple[Ball, ...]]:
    """The costs of all epochs but the last, and those of the last one."""
    every = _each_epoch(case, levels, pays)
    if not every:
        raise CertificateError("the run has no epoch")
    return _counted(every[:-1]), every[-1]


def _counted(every: Sequence[tuple[Ball, ...]]) -> list[Priced]:
    """Epochs of the same costs (the same object), counted."""
    counts = Counter(map(id, every))
    return [Priced(costs, counts[id(costs)]) for costs in {id(x): x for x in every}.values()]


def _each_epoch(
    case: Case, levels: Sequence[float], pays: Sequence[bool]
) -> list[tuple[Ball, ...]]:
    """The costs of every epoch, one object for equal epochs.

    Checked here: levels start and end at 0 at every known point; an epoch may be skipped only if
    a later one of the same stretch starts at the diameter.
    """
    training = case.training
    batches = training.batches_per_epoch or 1
    epochs = -(-training.steps // batches)
    if len(levels) != epochs + 1 or len(pays) != epochs:
        raise CertificateError("the witness has levels for another number of epochs")
    if not all(math.isfinite(x) and x >= 0 for x in levels):
        raise CertificateError("a level of the witness is not a distance")
    ends = {-(-last // batches) for _, last in case.segments}
    if any(last % batches for _, last in case.segments[:-1]):
        raise CertificateError("a checkpoint inside an epoch shares its hidden position")
    seen: dict[Any, tuple[Ball, ...]] = {}
    every = []
    known = True  # whether the level at the start of this epoch is proved
    for e in range(epochs):
        known = known or levels[e] >= training.diameter
        if not pays[e]:
            known = False
        elif not known:
            raise CertificateError(f"epoch {e} starts below the distance it may have")
        if e + 1 in ends and (not pays[e] or levels[e + 1] > 0) and e * batches < case.end:
            raise CertificateError(f"something is left over at the release after epoch {e}")
        start = e * batches
        alike = case.constant and start + batches <= case.end
        key = ("alike" if alike else e, levels[e], levels[e + 1], pays[e])
        if key not in seen:
            row = _row(case, start, 0, case.end, batches)
            level = _priced(row, levels[e], levels[e + 1]) if pays[e] else [arb(0)] * batches
            seen[key] = tuple(_extra(case, start, level))
        every.append(seen[key])
        known = known or e + 1 in ends
    return every


def _priced(row: Row, x: float, y: float) -> list[Ball]:
    """From z = x to z <= y when the impulse arrives at position j: two blocks, or one."""
    high, low = arb(x), arb(y)
    answer = []
    for j in range(len(row.c)):
        first = Block(row.before[j] * high, row.early[j], row.before[j])
        second = Block(row.s[j] * row.after[j] - low, row.noise[j], row.c[j] * row.after[j])
        if first.violates(second) or proved(second.A <= 0):
            both = first.then(second)
            answer.append(Block(both.A.max(arb(0)), both.V, both.G).cost)
        else:
            late = Block(second.A.max(arb(0)), second.V, second.G)
            answer.append(first.cost + late.cost)
    return answer


def _extra(case: Case, start: int, costs: list[Ball]) -> list[Ball]:
    """Impulses inside the released window are paid on arrival."""
    batches, steps = len(costs), case.training.steps
    for k in range(max(start, case.end), min(start + batches, steps)):
        s, nu = case.impulses(k, k + 1)[0], case.noises(k, k + 1)[0]
        costs[k - start] += ratio(s, nu) ** 2
    return costs


def worst_sequence(priced: Sequence[Priced]) -> Ball:
    """A sum of costs that no sequence of positions exceeds."""
    return sum((above(greatest(p.costs)) * p.epochs for p in priced), arb(0))


def sum_of_costs(priced: Sequence[Priced], cap: Ball | None = None) -> list[tuple[Ball, Ball]]:
    """The law of the sum over epochs, costs and masses rounded up: pairs (mu^2, mass).

    ``cap``: no sequence costs more, for another reason; given the sequence any bound may be used.
    """
    worst = worst_sequence(priced)
    if cap is None:
        cap = worst
    if not worst.is_finite():
        raise CertificateError("an epoch of the witness has no noise to pay with")
    if worst == 0:
        return [(arb(0), arb(1))]
    worst = above(worst)
    epochs = sum(p.epochs for p in priced)
    grid = worst / (1 << min(max(17, 11 + epochs.bit_length()), 20))
    tie = itertools.count()
    laws: list[tuple[int, int, Any]] = []  # shortest first: a balanced tree of products
    for costs, count in priced:
        one = _histogram(costs, grid)
        while count:
            if count & 1:
                heapq.heappush(laws, (len(one), next(tie), one))
            count >>= 1
            one = _product(one, one) if count else one
    while len(laws) > 1:
        a, b = heapq.heappop(laws), heapq.heappop(laws)
        both = _product(a[2], b[2])
        heapq.heappush(laws, (len(both), next(tie), both))
    unit = arb(2) ** _BITS
    masses = [int(mass) for mass in laws[0][2].coeffs()]
    return [
        (above((grid * index).min(worst).min(cap)), above(arb(mass) / unit))
        for index, mass in _gathered(masses)
    ]


def _histogram(costs: Sequence[Ball], grid: Ball) -> Any:
    share = -(-(1 << _BITS) // len(costs))
    counts: dict[int, int] = {}
    for cost in costs:
        index = int(above(cost / grid).ceil().unique_fmpz())
        counts[index] = counts.get(index, 0) + share
    masses = [0] * (max(counts) + 1)
    for index, mass in counts.items():
        masses[index] = mass
    return fmpz_poly(masses)


def _product(a: Any, b: Any) -> Any:
    return units_up(a * b, _BITS)


def _gathered(masses: list[int]) -> list[tuple[int, int]]:
    """Few points that carry all the mass, each moved up: by at most 1/5000, or while it is tiny."""
    total, answer = sum(masses), []
    negligible, held, last = total >> 60, 0, 0
    for index, mass in enumerate(masses):
        held += mass
        if held > negligible and (index + 1 > 1.0002 * last or index == len(masses) - 1):
            answer.append((index, held))
            held, last = 0, index
    if held:
        answer.append((len(masses) - 1, held))
    return answer
