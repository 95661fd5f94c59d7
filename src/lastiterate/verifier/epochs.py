"""Batches in epochs, in ball arithmetic: what each position of a record costs.

A record sits in one batch of an epoch. `position_squares` pools the taut string of every position
(cyclic, shuffled once).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lastiterate.verifier.balls import Ball, above, arb, proved
from lastiterate.verifier.steps import Case
from lastiterate.verifier.strings import Block, Stack, geometric, infinite, ratio, repeated


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
