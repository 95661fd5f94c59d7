"""Shifts and blocks in ball arithmetic: the sums of squares that a guarantee rests on.

`constant` and `restarted` are the closed forms for equal steps. `Stack` pools adjacent violators
itself: it merges only where the violation is proved, so a doubtful comparison costs tightness,
never soundness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lastiterate.verifier.balls import Ball, above, arb, proved


def infinite() -> Ball:
    """No protection."""
    return arb.pos_inf()


def ratio(top: Ball, bottom: Ball) -> Ball:
    """top / bottom for non-negative numbers, with 0/0 = 0 and x/0 = infinity."""
    if bottom == 0:
        return arb(0) if top == 0 else infinite()
    return top / bottom


def repeated(values: Sequence[Ball], count: int) -> Iterable[Ball]:
    """One value per step, also where one entry stands for all."""
    return values if len(values) == count else (values[0] for _ in range(count))


def geometric(base: Ball, count: int) -> Ball:
    """1 + base + ... + base^(count - 1)."""
    if count <= 0:
        return arb(0)
    if base == 1:
        return arb(count)
    gap = 1 - base
    if not proved(gap > 0) and not proved(gap < 0):
        # Within rounding of 1: increasing in the base, so the upper end bounds it.
        return geometric(above(base), count)
    return (1 - base**count) / gap


def constant(c: Ball, s: Ball, nu: Ball, steps: int) -> Ball:
    """mu^2 of equal steps from a common start: one block if c < 1, composition otherwise."""
    if steps == 0 or s == 0:
        return arb(0)
    unit = ratio(s, nu) ** 2
    plain = unit * steps
    if not proved(c < 1):
        return plain
    return plain.min(unit * geometric(c, steps) ** 2 / geometric(c * c, steps))


def restarted(c: Ball, s: Ball, nu: Ball, steps: int, diameter: float) -> Ball:
    """The least mu^2 of a restart from the diameter with m steps left, over the best few m.

    One block pays (c^m D + s sum c^i)^2 / (nu^2 sum c^(2i)). It is feasible for c <= 1; for c > 1
    if A/V >= c s after m - 1 steps, which then held at every step before.
    """
    if not math.isfinite(diameter) or steps < 2:
        return infinite()
    width, best = arb(diameter), infinite()
    for left in _candidates(float(c), float(s), steps, diameter):
        best = best.min(_one_block(c, s, nu, width, left))
    return best


def _candidates(c: float, s: float, steps: int, diameter: float) -> list[int]:
    """Numbers of steps left near the stationary point of the value (floats: proves nothing)."""
    if s <= 0 or (c - 1) * diameter <= -s:
        ideal = math.inf
    elif abs(c - 1) < 1e-14 or diameter == 0:
        ideal = diameter / s
    else:
        ideal = math.log1p((c - 1) * diameter / s) / math.log(c) if c > 0 else 1.0
    centre = math.floor(min(max(ideal, 1.0), 1e15))
    return sorted({min(max(centre + k, 1), steps - 1) for k in (-2, -1, 0, 1, 2)})


def _one_block(c: Ball, s: Ball, nu: Ball, width: Ball, left: int) -> Ball:
    def carried(steps: int) -> tuple[Ball, Ball]:
        return c**steps * width + s * geometric(c, steps), geometric(c * c, steps)

    if not proved(c <= 1) and left > 1:
        before, weight = carried(left - 1)
        if not proved(before >= c * s * weight):
            return infinite()
    total, weight = carried(left)
    return ratio(total, nu) ** 2 / weight


def pooled(c: Sequence[Ball], s: Sequence[Ball], nu: Sequence[Ball]) -> Ball:
    """mu^2 of any steps from a common start: one block each, pooled from the last one on."""
    stack = Stack()
    for factor, jump, noise in zip(reversed(c), reversed(s), reversed(nu), strict=True):
        stack.push(Block(jump, noise * noise, factor))
    return stack.cost


class Block(NamedTuple):
    """Consecutive steps: what arrives (A), the noise (V), the factor (G), carried to their end."""

    A: Ball
    V: Ball
    G: Ball

    @property
    def cost(self) -> Ball:
        """What it costs to pay everything off within the block."""
        return ratio(self.A * self.A, self.V)

    def then(self, later: Block) -> Block:
        """Both, paid off together."""
        A, V, G = later
        return Block(G * self.A + A, G * G * self.V + V, self.G * G)

    def violates(self, later: Block) -> bool:
        """Whether paying together is feasible for certain: A1/V1 > G2 A2/V2, or no noise here."""
        return bool(self.V == 0 or self.A * later.V > later.G * later.A * self.V)


class Stack:
    """Pools adjacent violators; blocks come from the last to the first, each feasible alone.

    *Why merging is sound.* Where A1/V1 >= G2 A2/V2, paying both blocks off at one rate lowers the
    rate of the first (so its partial payments stay below its arrivals) and raises that of the
    second, which the leftover of the first pays for.
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[Block, Ball]] = []  # with the cost of everything from there on
        self.restarted: Ball = infinite()  # the least cost of a start from the diameter

    def _merged(self, block: Block) -> tuple[Block, int, Ball]:
        depth = len(self._blocks)
        while depth and block.violates(self._blocks[depth - 1][0]):
            depth -= 1
            block = block.then(self._blocks[depth][0])
        after = self._blocks[depth - 1][1] if depth else arb(0)
        return block, depth, after + block.cost

    def push(self, block: Block) -> None:
        """Put a block before all others."""
        block, depth, cost = self._merged(block)
        del self._blocks[depth:]
        self._blocks.append((block, cost))

    def restart(self, block: Block) -> None:
        """Note what it would cost to begin with this block, from the diameter."""
        self.restarted = self.restarted.min(self._merged(block)[2])

    @property
    def common(self) -> Ball:
        """mu^2 of everything pushed, from a common start."""
        return self._blocks[-1][1] if self._blocks else arb(0)

    @property
    def cost(self) -> Ball:
        """mu^2 of everything pushed, or of the best restart."""
        return self.common.min(self.restarted)
