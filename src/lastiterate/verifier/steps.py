"""From a description to balls: how far one step can drive two runs apart.

The same table as the accountant's (docs/theory), written a second time in ball arithmetic, so that
a slip in one of the two shows. Descriptions hold doubles; a double is an exact number here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lastiterate.description import Arithmetic, Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.verifier.balls import Ball, arb, proved

_UNSEEN = 2.0**-64  # a pull that doubles round away, and that balls of 1 minus it can hide


@dataclass(frozen=True)
class Case:
    """A described run, seen step by step."""

    training: Training
    loss: Loss
    releases: tuple[int, ...] = ()
    unit: PrivacyUnit = ONE_RECORD  # whom the certificate speaks of

    @property
    def constant(self) -> bool:
        """Whether every step is the same, for the person too whom the run is exposed to."""
        return self.training.constant and not self.unit.timed

    @property
    def window(self) -> int:
        """How many of the last iterates are released."""
        release = self.training.release
        return release.window if isinstance(release, TailAverage) else 1

    @property
    def end(self) -> int:
        """Where the hidden steps end and the released window begins."""
        return max(self.training.steps - self.window + 1, 0)

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Stretches of hidden steps, each between two known points."""
        cuts = sorted({0, self.end, *(t for t in self.releases if 0 < t < self.end)})
        return list(pairwise(cuts))

    @cached_property
    def curving(self) -> Loss:
        """What every update sees of the loss: places of a person who is not there are empty."""
        return self.unit.curving(self.loss, self.training)

    def exposed(self, person: PrivacyUnit) -> Case:
        """The run for somebody else, whose places are as empty as this person's are at times."""
        return dataclasses.replace(self, loss=self.curving, unit=person)

    def etas(self, first: int, last: int) -> Iterator[Ball]:
        """Step sizes as balls, the same object again where they are all alike."""
        sizes = self.training.step_sizes[first:last]
        if self.constant:
            yield from (arb(float(sizes[0])) for _ in range(min(last - first, 1)))
        else:
            yield from map(arb, sizes.tolist())

    @cached_property
    def divisor(self) -> Ball:
        """What the sum of a batch is divided by."""
        rate = getattr(self.training.batches, "rate", None)
        if rate is not None:
            return arb(rate) * self.training.records
        return arb(getattr(self.training.batches, "size", self.training.records))

    @cached_property
    def rounding(self) -> Ball:
        """What computed sums add to the distance of two runs per unit of step size."""
        arithmetic = self.training.arithmetic
        return 2 * arb(arithmetic.error) if isinstance(arithmetic, Arithmetic) else arb(0)

    @cached_property
    def slip(self) -> Ball:
        """What rounding to the grid adds to the distance of two runs at every step: 4 g sqrt(d).

        Half as much again where a proximal step is rounded too.
        """
        arithmetic = self.training.arithmetic
        if not isinstance(arithmetic, Arithmetic) or not arithmetic.grid:
            return arb(0)
        again = self.training.proximal is not None and self.training.proximal.rounds
        return (6 if again else 4) * arb(arithmetic.grid) * arb(arithmetic.coordinates).sqrt()

    @property
    def rounds(self) -> bool:
        """Whether steps that do not use the record may drive two runs apart."""
        return bool(self.rounding != 0 or self.slip != 0)

    @property
    def idle(self) -> bool:
        """Whether nothing ever drives two runs apart."""
        return bool(self.impulse == 0 and self.slip == 0)

    @cached_property
    def impulse(self) -> Ball:
        """What one record adds per unit of step size when its batch is used, rounding included.

        In full batches that is what all records of the person add.
        """
        change = arb(float(self.training.sensitivity))
        if self.unit.gradient_norm is not None:
            ends = 2 if self.training.adjacency == "replace" else 1
            change = change.min(ends * arb(self.unit.gradient_norm))
        if self.training.batches.full:
            change *= self.unit.records
        if self.training.single_point:
            change = arb(0)
        return change / self.divisor + self.rounding

    def pushes(self, each: Ball, first: int, last: int) -> list[Ball]:
        """``each`` per unit of step size, and the grid; one entry if all are alike."""
        return [eta * each + self.slip for eta in self.etas(first, last)]

    def impulses(self, first: int, last: int) -> list[Ball]:
        """s of the steps that use the record; one entry if all are alike.

        Steps before the person joined or after the person left only round.
        """
        there = self.pushes(self.impulse, first, last)
        if not self.unit.timed:
            return there
        absent, joined = self.slips(first, last), self.unit.first_step
        left = self.training.steps if self.unit.last_step is None else self.unit.last_step
        return [
            there[k - first] if joined <= k < left else absent[k - first]
            for k in range(first, last)
        ]

    def slips(self, first: int, last: int) -> list[Ball]:
        """What rounding adds at steps that do not use the record; one entry if all are alike."""
        return self.pushes(self.rounding, first, last)

    def noises(self, first: int, last: int) -> list[Ball]:
        """Standard deviations of the noise; one entry if all are alike."""
        values = self.training.noises[first:last]
        if self.constant:
            return [arb(float(self.training.noises[0]))] if last > first else []
        return list(map(arb, values.tolist()))

    def factors(self, first: int, last: int) -> list[Ball] | None:
        """Lipschitz constants of the updates; one entry if all are alike; None if unknown."""
        return factors(self.etas(first, last), self.curving, self.training.clipping)


def factors(
    etas: Iterator[Ball], loss: Loss, clipping: str, crowding: Ball | None = None
) -> list[Ball] | None:
    """The Lipschitz constant of an update, for each step size.

    ``crowding``: a Poisson batch bends between 0 and this many times the smoothness of a record.
    """
    if loss.kind == "unknown" or (loss.kind == "holder" and loss.exponent != 1):
        return None
    if loss.smoothness is None or loss.smoothness == float("inf"):
        return None
    one, smooth, l2 = arb(1), arb(loss.smoothness), arb(loss.regularization)
    if crowding is not None:
        smooth *= crowding
    if not loss.convex:
        return [abs(one - eta * l2) + eta * smooth for eta in etas]
    if clipping == "gradient":
        return [_clipped(_shrunk(eta * l2), eta * smooth) for eta in etas]
    curved = clipping == "none" and crowding is None
    floor = l2 + loss.strong_convexity if curved else l2
    ceiling = l2 + smooth
    answer = []
    for eta in etas:
        fast = one - eta * ceiling
        slow = _shrunk(eta * floor)
        answer.append(slow if fast >= 0 else abs(slow).max(abs(fast)))
    return answer


def _shrunk(pull: Ball) -> Ball:
    """1 − pull, or 1 where no ball of ours could tell it from that."""
    return arb(1) if pull >= 0 and pull < _UNSEEN else 1 - pull


def _clipped(shrink: Ball, bend: Ball) -> Ball:
    """Convex and clipped: the smaller of the clipping constant and the non-convex one."""
    plain = abs(shrink) + bend
    if not proved(shrink > 0):
        return plain
    inside = 1 - bend / (4 * shrink)
    return plain.min(shrink * inside.rsqrt()) if proved(inside > 0) else plain
