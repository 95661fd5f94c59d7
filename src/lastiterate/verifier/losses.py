"""Privacy losses as exact integers: the verifier's own loss distributions.

The loss of one step is cut into cells. Its masses are computed in ball arithmetic and rounded up
to whole multiples of 2^-F; from there on everything is multiplication of polynomials with whole
coefficients, which makes no error, and rounding up. What is cut off counts as infinite loss.
Nothing is shared with the Fourier transforms of the fast path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import Ball, above, arb, fmpz_poly, precision, proved, units_up

Floats = NDArray[np.float64]
GRID_SHARE = 1e-4  # how much of the variance of the total loss the narrowest cells may add
_WIDENING = 64  # a cell may be as wide as its distance from the mean loss, divided by this
MOST_CELLS = 1 << 19
MOST_STEPS = 10**7
MOST_PAIRS = 1024  # different ones in one sum: each costs a tenth of a second or more
_NARROWEST = 64  # no cell is narrower than 2^-64: all steps together then lose next to nothing
_FARTHEST = 1e20  # an edge that has to be moved this far is not found
_SHARE_BITS = 1024  # of chances that are computed once for all precisions
_TAIL_SHARE = 2.0**-14  # part of delta that all the cut tails together may take


class Step(Protocol):
    """One dominating pair, cut into cells on demand."""

    @property
    def variance(self) -> float:
        """Roughly the variance of its loss (chooses the grid, proves nothing)."""

    def laws(self, scale: Scale) -> tuple[LossLaw, LossLaw]:
        """Its loss distribution in both orders."""


@dataclass(frozen=True)
class Scale:
    """Cells of width 2^-cell, masses in units of 2^-bits, tails cut at ``reach`` deviations."""

    cell: int
    bits: int
    reach: float

    @property
    def width(self) -> float:
        """The width of a cell: a power of two, so that every edge is exact."""
        return 2.0**-self.cell

    @property
    def precision(self) -> int:
        """Bits that leave a mass exact to a unit after its division by the width of a cell."""
        return self.bits + 64 + max(self.cell, 0)

    def units(self, mass: Ball) -> int:
        """A mass rounded up to whole units."""
        scaled = above(mass * arb(2) ** self.bits).max(arb(0)).ceil()
        return int(above(scaled).ceil().unique_fmpz())


@dataclass(frozen=True)
class LossLaw:
    """masses[i] units at loss (first + i) cells + ``lift``, and ``infinite`` units beyond."""

    first: int
    masses: Any
    infinite: int
    lift: Ball  # exact: how far the points that separate cells may miss the grid

    @cached_property
    def coefficients(self) -> list[Any]:
        """The masses one by one."""
        found: list[Any] = self.masses.coeffs()
        return found

    def total(self) -> int:
        """All units, at least 2^bits."""
        return int(self.masses(1)) + self.infinite

    def times(self, other: LossLaw, bits: int) -> LossLaw:
        """The law of the sum of two independent losses, rounded up."""
        unit = 1 << bits
        masses = units_up(self.masses * other.masses, bits)
        both = self.infinite * other.total() + int(self.masses(1)) * other.infinite
        lift = above(self.lift + other.lift)
        return LossLaw(self.first + other.first, masses, -(-both // unit), lift)

    def trimmed(self, budget: int) -> LossLaw:
        """Without its thin ends: the top becomes infinite, the bottom is raised."""
        masses, low, high = self.masses, 0, len(self.masses)
        left = budget
        while high > 1 and masses[high - 1] <= left:
            high -= 1
            left -= masses[high]
        lost, left = budget - int(left), budget
        while low < high - 1 and masses[low] <= left:
            left -= masses[low]
            low += 1
        kept = masses.truncate(high).right_shift(low) + (budget - left if high else 0)
        return LossLaw(self.first + low, kept, self.infinite + lost, self.lift)


def _sum_of(laws: Sequence[tuple[LossLaw, int]], bits: int, budget: int) -> LossLaw:
    """The law of a sum in which each loss x_i occurs n_i times.

    With n_1 >= n_2 >= ... it is the sum of (n_k - n_(k+1)) (x_1 + ... + x_k): alike counts cost one
    product each. These are added from the highest binary digit of the factors to the lowest, so
    that all of them share the doublings.
    """

    def plus(first: LossLaw | None, second: LossLaw) -> LossLaw:
        return second if first is None else first.times(second, bits).trimmed(budget)

    ordered = sorted(laws, key=lambda pair: -pair[1])
    together: LossLaw | None = None
    blocks: list[tuple[LossLaw, int]] = []
    for (law, count), after in zip(ordered, [*(n for _, n in ordered[1:]), 0], strict=True):
        together = plus(together, law)
        if count > after:
            blocks.append((together, count - after))
    answer: LossLaw | None = None
    for digit in reversed(range(max(factor for _, factor in blocks).bit_length())):
        answer = None if answer is None else plus(answer, answer)
        for block, factor in blocks:
            if factor >> digit & 1:
                answer = plus(answer, block)
    assert answer is not None
    return answer


def _tail(x: Ball) -> Ball:
    """P(N(0, 1) > x)."""
    return (x / arb(2).sqrt()).erfc() / 2


def _mixed(rate: float, loss: Floats) -> Floats:
    """log(1 - rate + rate e^loss) in floats, also where it is far smaller than 1e-16."""
    small = np.log1p(rate * np.expm1(np.clip(loss, -0.5, 0.5)))
    large = np.logaddexp(math.log1p(-rate), math.log(rate) + loss)
    return np.where(np.abs(loss) < 0.5, small, large)


def _spread(
    ends: Sequence[int], scale: Scale, upper: Sequence[Ball], lower: Sequence[Ball]
) -> dict[int, Ball]:
    """Masses at the ends of consecutive cells that keep the masses of both laws in each cell.

    A cell between the losses l and l + w with mass p under the first law and r under the second
    becomes two atoms p1 at l, p2 at l + w with p1 + p2 = p and p1 e^-l + p2 e^-(l+w) = r. Its
    hockey-stick curve is the chord of the cell's convex curve, hence above it.
    """
    width, zero = arb(scale.width), arb(0)
    masses = dict.fromkeys(ends, zero)
    for low, high, p, r in zip(ends, ends[1:], upper, lower, strict=False):
        shrink = 1 - (-(high - low) * width).exp()
        right = ((p - r * (low * width).exp()) / shrink).max(zero).min(p)
        masses[high] += right
        masses[low] += (p - right).max(zero)
    return masses


def _law(masses: dict[int, Ball], infinite: Ball, lift: Ball, scale: Scale) -> LossLaw:
    first = min(masses)
    units = [0] * (max(masses) - first + 1)
    for index, mass in masses.items():
        units[index - first] = scale.units(mass)
    return LossLaw(first, fmpz_poly(units), scale.units(infinite), lift)


@dataclass(frozen=True)
class Shift:
    """(1 - rate) N(low, 1) + rate N(high, 1) against N(0, 1), 0 <= low <= high, exact floats."""

    rate: float
    low: float
    high: float

    @property
    def variance(self) -> float:
        x = np.linspace(-9.0, self.high + 9.0, 2001)
        density = self.rate * np.exp(-((x - self.high) ** 2) / 2)
        density += (1.0 - self.rate) * np.exp(-((x - self.low) ** 2) / 2)
        density /= density.sum()
        loss = self._loss(x)
        return float(density @ (loss - density @ loss) ** 2)

    def _loss(self, x: Floats) -> Floats:
        """The loss in floats, to find edges with; balls then say where they really are."""
        far = self.high * x - self.high**2 / 2
        if self.rate >= 1.0:
            return np.asarray(far)
        near = self.low * x - self.low**2 / 2
        return np.asarray(near + _mixed(self.rate, far - near))

    def _exact_loss(self, x: Ball) -> Ball:
        rate, low, high = arb(self.rate), arb(self.low), arb(self.high)
        far = high * x - high * high / 2
        if self.rate >= 1.0:
            return far
        near = low * x - low * low / 2
        return near + (rate * (far - near).expm1()).log1p()

    def _mean(self, centre: float) -> float:
        """The mean loss under N(centre, 1), roughly."""
        x = np.linspace(-9.0, 9.0, 181)
        weight = np.exp(-x * x / 2)
        return float(weight @ self._loss(x + centre) / weight.sum())

    def _means(self) -> tuple[float, float]:
        """The mean losses under both laws, roughly: cells are narrow there."""
        near, far = self._mean(self.low), self._mean(self.high)
        return (1.0 - self.rate) * near + self.rate * far, self._mean(0.0)

    def _ends(self, scale: Scale, first: int, last: int) -> list[int]:
        """Where cells end: narrow around the mean losses of both laws, wider far away.

        A width proportional to the distance adds the same small share to the variance everywhere.
        """
        means = self._means()
        ends = [first]
        while ends[-1] < last:
            away = min(abs(ends[-1] * scale.width - mean) for mean in means)
            away = min(away, *(abs((ends[-1] + 1) * scale.width - mean) for mean in means))
            ends.append(min(ends[-1] + max(int(away / _WIDENING / scale.width), 1), last))
        return ends

    def edges(self, scale: Scale, start: float) -> tuple[list[int], list[Ball], Ball]:
        """Ends of cells, exact points x with loss(x) just below each of them, slack.

        The slack bounds how much below. (The first point need not be below its end.)
        """
        reached = self._loss(np.array([start, self._rightmost + scale.reach]))
        first = math.floor(reached[0] / scale.width) if start < 0 else 0
        last = max(math.ceil(reached[1] / scale.width), first + 1)
        if last - first > MOST_CELLS:
            raise CertificateError("the privacy loss of one step is too wide for the verifier")
        ends = self._ends(scale, first, last)
        goals = np.array(ends) * scale.width
        points = self._invert(goals, start, self._rightmost + scale.reach)
        exact = [arb(start)]
        slack = (goals[0] - self._exact_loss(exact[0])).max(arb(0))
        for goal, point in zip(goals[1:].tolist(), points[1:].tolist(), strict=True):
            nudge = 1e-13 * (1.0 + abs(point))
            x = arb(point - nudge)
            while not proved(self._exact_loss(x) <= goal):
                nudge *= 10.0
                if nudge > _FARTHEST:
                    raise CertificateError("the privacy loss of one step cannot be cut into cells")
                x = arb(point - nudge)
            if not proved(x > exact[-1]):
                x = exact[-1]  # an empty cell
            exact.append(x)
            slack = slack.max(goal - self._exact_loss(x))
        return ends, exact, above(slack)

    def _invert(self, goals: Floats, start: float, stop: float) -> Floats:
        low, high = np.full(len(goals), start - 1.0), np.full(len(goals), stop + 1.0)
        for _ in range(40):  # losses beyond the ends: open the bracket
            closed = self._loss(low) <= goals
            if closed.all():
                break
            low = np.where(closed, low, 2 * low - stop)
        for _ in range(40):
            closed = self._loss(high) >= goals
            if closed.all():
                break
            high = np.where(closed, high, 2 * high - start)
        for _ in range(100):
            middle = (low + high) / 2
            below = self._loss(middle) <= goals
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return low

    def cells(self, edges: list[Ball]) -> tuple[list[Ball], list[Ball], tuple[Ball, ...]]:
        """Masses of both laws between edges, and of (both below the first, both above the last)."""
        plain = [_tail(x) for x in edges]
        near = plain if self.low == 0 else [_tail(x - self.low) for x in edges]
        far = [_tail(x - self.high) for x in edges]
        rate = arb(self.rate)
        mixed = [(1 - rate) * n + rate * f for n, f in zip(near, far, strict=True)]
        return (
            [a - b for a, b in pairwise(mixed)],
            [a - b for a, b in pairwise(plain)],
            (1 - mixed[0], 1 - plain[0], mixed[-1], plain[-1]),
        )

    @property
    def _leftmost(self) -> float:
        """How far below zero the lowest centre is."""
        return 0.0

    @property
    def _rightmost(self) -> float:
        """The highest centre."""
        return self.high

    @lru_cache(maxsize=64)  # noqa: B019 - frozen values, and the verifier asks for both orders
    def laws(self, scale: Scale) -> tuple[LossLaw, LossLaw]:
        with precision(scale.precision):
            ends, edges, slack = self.edges(scale, -scale.reach - self._leftmost)
            mixed, plain, (mixed_below, plain_below, mixed_above, plain_above) = self.cells(edges)
            # Losses up to the slack below a cell are raised into it: the second mass shrinks.
            lowered = (-slack).exp()
            ahead = _spread(ends, scale, mixed, [r * lowered for r in plain])
            ahead[ends[1]] += mixed_below
            # The other order has losses up to the slack *above* a cell, so all cells are lifted;
            # raising losses to a lifted lower end cancels in the formula of the chord.
            back = _spread([-end for end in reversed(ends)], scale, plain[::-1], mixed[::-1])
            back[-ends[-1]] += plain_above
            return (
                _law(ahead, mixed_above, arb(0), scale),
                _law(back, plain_below, slack, scale),
            )


@dataclass(frozen=True)
class Grouped(Shift):
    """sum over i of Bin(records, rate)(i) N(shift_i, 1) against N(0, 1).

    shift_0 = low, shift_i = high + (i - 1) gap: each of a person's records has a coin of its own.
    """

    records: int
    gap: float

    @cached_property
    def _shares(self) -> list[Ball]:
        """Chances of one record, two, ... in the batch; none: what is left of 1."""
        with precision(_SHARE_BITS):
            q, k = arb(self.rate), self.records
            return [math.comb(k, i) * q**i * (1 - q) ** (k - i) for i in range(1, k + 1)]

    @cached_property
    def _floats(self) -> tuple[Floats, Floats]:
        """Shifts and chances, to find edges with, from none in the batch on."""
        shares = np.array([float(share) for share in self._shares])
        shifts = np.append(self.low, self.high + self.gap * np.arange(self.records))
        return shifts, np.append(max(1.0 - shares.sum(), 0.0), shares)

    @property
    def _exact_shifts(self) -> list[Ball]:
        return [arb(self.high) + i * arb(self.gap) for i in range(self.records)]

    @property
    def _rightmost(self) -> float:
        return float(self._floats[0][-1])

    @property
    def variance(self) -> float:
        x = np.linspace(-9.0, self._rightmost + 9.0, 2001)
        density = sum(w * np.exp(-((x - a) ** 2) / 2) for a, w in zip(*self._floats, strict=True))
        density /= density.sum()
        loss = self._loss(x)
        return float(density @ (loss - density @ loss) ** 2)

    def _loss(self, x: Floats) -> Floats:
        (low, *shifts), (_, *shares) = (values.tolist() for values in self._floats)
        rises = [(a - low) * x - (a * a - low * low) / 2 for a in shifts]
        near = sum(w * np.expm1(np.clip(t, -0.5, 0.5)) for w, t in zip(shares, rises, strict=True))
        with np.errstate(divide="ignore"):
            logs = np.log(self._floats[1])[:, None] + np.array([np.zeros_like(x), *rises])
        close = np.max(np.abs(rises), axis=0) < 0.5
        mixed = np.where(close, np.log1p(near), np.logaddexp.reduce(logs, axis=0))
        return np.asarray(low * x - low * low / 2 + mixed)

    def _exact_loss(self, x: Ball) -> Ball:
        low, total = arb(self.low), arb(0)
        near = low * x - low * low / 2
        for shift, share in zip(self._exact_shifts, self._shares, strict=True):
            total += share * (shift * x - shift * shift / 2 - near).expm1()
        return near + total.log1p()

    def _means(self) -> tuple[float, float]:
        mean = sum(w * self._mean(a) for a, w in zip(*self._floats, strict=True))
        return float(mean), self._mean(0.0)

    def cells(self, edges: list[Ball]) -> tuple[list[Ball], list[Ball], tuple[Ball, ...]]:
        plain = [_tail(x) for x in edges]
        near = plain if self.low == 0 else [_tail(x - self.low) for x in edges]
        none = 1 - sum(self._shares, arb(0))
        mixed = [none * tail for tail in near]
        for shift, share in zip(self._exact_shifts, self._shares, strict=True):
            mixed = [m + share * _tail(x - shift) for m, x in zip(mixed, edges, strict=True)]
        return (
            [a - b for a, b in pairwise(mixed)],
            [a - b for a, b in pairwise(plain)],
            (1 - mixed[0], 1 - plain[0], mixed[-1], plain[-1]),
        )


@dataclass(frozen=True)
class Opposed(Shift):
    """(1 - rate) N(low, 1) + rate N(high, 1) against (1 - rate) N(0, 1) + rate N(-back, 1)."""

    back: float

    @property
    def variance(self) -> float:
        x = np.linspace(-self.back - 9.0, self.high + 9.0, 4001)
        density = self.rate * np.exp(-((x - self.high) ** 2) / 2)
        density += (1.0 - self.rate) * np.exp(-((x - self.low) ** 2) / 2)
        density /= density.sum()
        loss = self._loss(x)
        return float(density @ (loss - density @ loss) ** 2)

    @property
    def _leftmost(self) -> float:
        return self.back

    def _loss(self, x: Floats) -> Floats:
        against = -self.back * x - self.back**2 / 2
        if self.rate < 1.0:
            against = _mixed(self.rate, against)
        return np.asarray(super()._loss(x) - against)

    def _exact_loss(self, x: Ball) -> Ball:
        rate, back = arb(self.rate), arb(self.back)
        against = -back * x - back * back / 2
        if self.rate < 1.0:
            against = (rate * against.expm1()).log1p()
        return super()._exact_loss(x) - against

    def _means(self) -> tuple[float, float]:
        rest = (1.0 - self.rate) * self._mean(0.0) + self.rate * self._mean(-self.back)
        return super()._means()[0], rest

    def cells(self, edges: list[Ball]) -> tuple[list[Ball], list[Ball], tuple[Ball, ...]]:
        mixed, _, (mixed_below, _, mixed_above, _) = super().cells(edges)
        rate, back = arb(self.rate), arb(self.back)
        other = [(1 - rate) * _tail(x) + rate * _tail(x + back) for x in edges]
        return (
            mixed,
            [a - b for a, b in pairwise(other)],
            (mixed_below, 1 - other[0], mixed_above, other[-1]),
        )


@dataclass(frozen=True)
class Labelled:
    """N(mu_j, 1) against N(0, 1) with a label j that is drawn with ``weights`` and revealed.

    Its profile is the average of the Gaussian profiles, which is what a hidden label gives.
    """

    mus: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def variance(self) -> float:
        return sum(w * mu * mu for mu, w in zip(self.mus, self.weights, strict=True))

    @lru_cache(maxsize=16)  # noqa: B019 - frozen values
    def laws(self, scale: Scale) -> tuple[LossLaw, LossLaw]:
        first, total, infinite, lift = 0, fmpz_poly([]), 0, arb(0)
        with precision(scale.precision):
            for mu, weight in zip(self.mus, self.weights, strict=True):
                share = scale.units(arb(weight))
                if mu == 0:
                    law = LossLaw(0, fmpz_poly([1 << scale.bits]), 0, arb(0))
                else:  # a Gaussian pair looks the same in both orders
                    law, _ = Shift(1.0, 0.0, mu).laws(scale)
                offset = min(first, law.first)
                masses = units_up(law.masses * share, scale.bits)
                total = total.left_shift(first - offset) + masses.left_shift(law.first - offset)
                infinite += -(-law.infinite * share // (1 << scale.bits))
                first = offset
                lift = lift.max(law.lift)
        both = LossLaw(first, total, infinite, lift)
        return both, both


@dataclass(frozen=True)
class Replaced:
    """The symmetric pair of a batch without replacement that also absorbs ``low``.

    Its profile at gamma >= 1 is the least over t <= gamma of (1 - rate) delta_low(log t) +
    rate delta_mu(log((gamma - (1 - rate) t)/rate)). Losses above low mu / 2: the pair
    `Shift(rate, low, mu)` on x > (low + mu)/2. Smaller positive ones: N(low) or N(mu) against N(0),
    with a label; for low = 0 the label's mass (1 - rate)(2 Phi(mu/2) - 1) has loss zero. Negative
    losses mirror the positive.
    """

    rate: float
    mu: float
    low: float = 0.0

    @property
    def _half(self) -> Shift:
        return Shift(self.rate, self.low, self.mu)

    @property
    def variance(self) -> float:
        return self._half.variance

    def _apart(self, ends: list[int], edges: list[Ball], shift: float, scale: Scale) -> list[Ball]:
        """Where N(shift, 1) against N(0, 1) has the losses below low mu / 2, then the edges."""
        join = arb(self.low) * arb(self.mu) / 2
        answer = []
        for end, edge in zip(ends, edges, strict=True):
            goal = arb(end) * arb(scale.width)
            apart = proved(goal < join)
            answer.append(goal / arb(shift) + arb(shift) / 2 if apart else edge)
        return answer

    @lru_cache(maxsize=64)  # noqa: B019 - frozen values
    def laws(self, scale: Scale) -> tuple[LossLaw, LossLaw]:
        with precision(scale.precision):
            join = (arb(self.low) + arb(self.mu)) / 2
            # The first edge is at or below the join, and counts as the join.
            ends, edges, slack = self._half.edges(scale, math.nextafter(float(join), 0.0))
            edges = [edge.max(join) for edge in edges]
            near = self._apart(ends, edges, self.low, scale)
            far = self._apart(ends, edges, self.mu, scale)
            upper, lower, beyond, plain_beyond = self._cells(near, far)
            lowered = (-slack).exp()
            masses = _spread(ends, scale, upper, [r * lowered for r in lower])
            mirror = _spread([-end for end in reversed(ends)], scale, lower[::-1], upper[::-1])
            mirror[-ends[-1]] += plain_beyond
            for index, mass in mirror.items():
                masses[index] = masses.get(index, arb(0)) + mass
            if self.low == 0:
                masses[0] += (1 - arb(self.rate)) * (1 - 2 * _tail(join))
            law = _law(masses, beyond, slack, scale)
            return law, law

    def _cells(
        self, near: list[Ball], far: list[Ball]
    ) -> tuple[list[Ball], list[Ball], Ball, Ball]:
        """Masses of both laws between edges, and above the last of them."""
        rate, both = arb(self.rate), list(zip(near, far, strict=True))
        mixed = [(1 - rate) * _tail(a - self.low) + rate * _tail(b - self.mu) for a, b in both]
        plain = [_tail(a) if a is b else (1 - rate) * _tail(a) + rate * _tail(b) for a, b in both]
        upper, lower = ([a - b for a, b in pairwise(tail)] for tail in (mixed, plain))
        return upper, lower, mixed[-1], plain[-1]


def check_pairs(count: int) -> None:
    """Refuse what would keep the verifier busy for hours."""
    if count > MOST_PAIRS:
        raise CertificateError(
            f"its steps are charged as {count:,} different pairs, and the verifier adds the losses "
            f"of at most {MOST_PAIRS:,}; release fewer checkpoints, or let steps and noise take "
            "fewer values"
        )


class Total:
    """The sum of the losses of many steps, in both orders, for questions near one delta."""

    def __init__(self, steps: Sequence[tuple[Step, int]], delta: float) -> None:
        if sum(count for _, count in steps) > MOST_STEPS:
            raise CertificateError(f"more than {MOST_STEPS:,} sampled steps cannot be convolved")
        check_pairs(len({step for step, _ in steps}))
        self._scale = _scale(steps, delta)
        budget = int(delta * _TAIL_SHARE * 2.0**self._scale.bits) // (64 * (len(steps) + 1))
        self._orders = []
        for order in (0, 1):
            laws = [(step.laws(self._scale)[order], count) for step, count in steps]
            self._orders.append(_sum_of(laws, self._scale.bits, budget))
            if all(step.laws(self._scale)[0] is step.laws(self._scale)[1] for step, _ in steps):
                break  # the pair looks the same in both orders

    def delta(self, epsilon: Ball) -> Ball:
        """An upper bound on delta(epsilon), as an exact number."""
        return max((self._one(law, epsilon) for law in self._orders), key=float)

    def _one(self, law: LossLaw, epsilon: Ball) -> Ball:
        """sum of masses (1 - e^(epsilon - loss))+; losses beyond epsilon for certain at once."""
        with precision(self._scale.precision):
            width = arb(self._scale.width)
            reached = epsilon - law.lift
            place = float(reached) / self._scale.width
            error = 1 + math.ceil(abs(place) * 2.0**-50)  # cells that a double may be off
            begin = max(math.floor(place) - error - law.first, 0)
            decay, now = (-width).exp(), (reached - (law.first + begin) * width).exp()
            total, masses = arb(law.infinite), law.coefficients[begin:]
            near = 0
            while near < len(masses) and not proved(now <= 1):
                total += arb(masses[near]) * (1 - now).max(arb(0))
                now *= decay
                near += 1
            beyond = fmpz_poly(masses[near:])
            total += arb(beyond(1)) - now * beyond(decay)
            return above(total / arb(2) ** self._scale.bits).min(arb(1))


def _scale(steps: Sequence[tuple[Step, int]], delta: float) -> Scale:
    count = sum(n for _, n in steps)
    variance = math.fsum(n * step.variance for step, n in steps)
    width = math.sqrt(6.0 * GRID_SHARE * variance / count)
    widest = 2.0 * math.sqrt(variance) * 40 / MOST_CELLS
    wide = max(width, widest, 2.0**-_NARROWEST)
    reach = math.sqrt(2.0 * math.log(count / (delta * _TAIL_SHARE))) + 0.5
    return Scale(
        cell=max(math.floor(-math.log2(wide)), -8),
        # Every product adds at most a unit to each of 2^20 cells: 2^-28 of delta in all of them.
        bits=48 + math.ceil(math.log2(count)) + math.ceil(-math.log2(delta)),
        reach=reach,
    )
