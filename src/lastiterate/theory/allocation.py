"""Random allocation: every record independently picks one of the B batches of an epoch.

The law of the likelihood ratio is in `allocation_law`. This file chooses which steps pay for which
labels, and states the theorems: all iterates public, the last iterate of updates that do not
expand, and any Lipschitz updates between releases. As with Poisson batches the divisor is nominal,
so that a crowded batch has more curvature than the loss and an empty one none: what holds for every
realised batch counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ROUNDING, Pair, SampledPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import RandomAllocation
from lastiterate.theory import dynamics
from lastiterate.theory.allocation_law import POINTS, AllocationPair, Group, Part, Tail
from lastiterate.theory.dynamics import Array
from lastiterate.theory.poisson import batch_contraction
from lastiterate.theory.registry import ANY_UPDATE, PRESENCE, PUBLIC, Proof, Theorem
from lastiterate.theory.run import Run

ROUGH = 1 << 10  # points of the grid while payments are searched
LEAST, MOST = 1e-4, 8.0  # s/nu outside of which labels are not averaged
MOST_BATCHES = 100_000  # in an epoch
MOST_EPOCHS = 10**6
_MOST_SCHEDULED = 10**6  # steps of a run whose steps differ
_MOST_DISTINCT = 24  # epochs that are told apart; more are charged for the dearest of several
_KAPPAS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, math.inf)  # that are searched
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)  # of the noise, for debts of earlier epochs
_GROWTHS = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0)  # of blocks, backwards from a release
_BEYOND = 2e-3  # of delta, counted as infinite losses
_UNUSUAL = 1e-5  # mass of likelihood ratios that the other order does not tell apart
_NOISE = 1e-7  # below which a mass may be what rounding leaves
_LEAST_TOP, _MOST_TOP = 1e-3, 45.0
_EVERY = 2**53  # records that a batch may have: no cap
_SLACK = 1 + 2**-48  # a few rounding errors of a ratio
_ROOM = 1 + 1e-9  # rounding errors of products of a million factors
_USUAL_DELTA = 1e-6  # at which it is decided whether updates can be used at all
_ALIKE = 0.02  # log ratio of shifts that are charged as the larger one
_ATOMS = 24  # of the law of debts of earlier epochs
_NEGLIGIBLE = 1e-4  # of the debts of the last epoch, below which earlier ones are not told apart
_CELLS = 2000  # of the grid of debts of earlier epochs
_STEEPEST = 1e3  # an update that expands more leaves no debt that is worth it
_MOST_EXPANDED = 600.0  # log of what rounding may grow by
LEAST_FACTOR = 1e-6  # a larger contraction factor is sound; squares stay in range


# --- the steps of an epoch -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lap:
    """The steps of one epoch, or of as many equal ones as ``count`` says.

    Args:
        c: Lipschitz constant of each update.
        s: what the record adds at each step if it picked that batch.
        nu: the noise.
        ends: the steps after which an iterate is released, as numbers within the epoch.
        count: how many such epochs follow each other.
    """

    c: Array
    s: Array
    nu: Array
    ends: tuple[int, ...]
    count: int

    def having(self, count: int) -> Lap:
        """The same steps, another number of times."""
        return Lap(self.c, self.s, self.nu, self.ends, count)

    def same(self, other: Lap) -> bool:
        """Whether both have the same steps."""
        names = ("c", "s", "nu")
        equal = (np.array_equal(getattr(self, x), getattr(other, x)) for x in names)
        return self.ends == other.ends and all(equal)

    def dearest(self, other: Lap) -> Lap:
        """Steps that cost no less than either: larger c and s, less noise."""
        c, s = np.maximum(self.c, other.c), np.maximum(self.s, other.s)
        ends = tuple(sorted({*self.ends, *other.ends}))
        return Lap(c, s, np.minimum(self.nu, other.nu), ends, self.count + other.count)

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Hidden steps that follow each other; the last segment may go on in the next epoch."""
        edges = [0, *self.ends, *([] if len(self.c) in self.ends else [len(self.c)])]
        return list(pairwise(edges))

    @property
    def released(self) -> bool:
        """Whether an iterate is released after its last step."""
        return len(self.c) in self.ends

    def debts(self, first: int, last: int) -> Array:
        """What is left at step ``last`` of the record's use at each of the steps before it."""
        later = np.append(np.cumprod(self.c[first + 1 : last][::-1])[::-1], 1.0)
        return np.asarray(self.s[first:last] * later * _ROOM)

    def unit_cost(self, first: int, last: int) -> float:
        """The shift of a debt of 1 at step ``first`` that is paid off at the steps up to ``last``.

        Payments alpha_k with sum alpha_k c_{k+1} ... c_last = c_first ... c_last, proportional to
        nu_k^2 carried to the end: the least of sum (alpha_k/nu_k)^2.
        """
        with np.errstate(over="ignore", divide="ignore"):
            carried = self.nu[first:last] / np.cumprod(self.c[first:last])
            return float(_ROOM / np.sqrt(np.sum(carried * carried)))


def laps_of(run: Run, c: Array, s: Array) -> list[Lap]:
    """The epochs of a run; equal ones that follow each other are one lap."""
    batches, steps = run.batches, run.training.steps
    ends = sorted({*run.releases[:-1], *range(run.hidden_steps, steps + 1)})
    values = [np.maximum(c, LEAST_FACTOR), s, run.training.noises]
    count = -(-steps // batches)
    constant = all(len(x) == 1 or dynamics.alike(x) for x in values)
    if constant:
        marked = {0, count - 1, *((step - 1) // batches for step in ends)}
        marked |= {place + 1 for place in marked if place + 1 < count}
        starts = sorted(marked)
    else:
        starts = list(range(count))
    laps = list[Lap]()
    for place, following in pairwise([*starts, count]):
        first, last = place * batches, min((place + 1) * batches, steps)
        c_, s_, nu_ = (
            np.full(last - first, x[0]) if len(x) == 1 or constant else x[first:last]
            for x in values
        )
        own = tuple(end - first for end in ends if first < end <= last)
        lap = Lap(c_, s_, nu_, own, following - place)
        if laps and laps[-1].same(lap):
            laps[-1] = laps[-1].having(laps[-1].count + lap.count)
        else:
            laps.append(lap)
    return _fewer(laps, batches)


def _fewer(laps: list[Lap], batches: int) -> list[Lap]:
    """At most so many different ones: neighbours are charged for the dearer of both."""
    while len(laps) > _MOST_DISTINCT:
        complete = [k for k in range(len(laps) - 1) if len(laps[k + 1].c) == batches]
        paired = set(complete[::2])
        merged, k = list[Lap](), 0
        while k < len(laps):
            both = k in paired
            merged.append(laps[k].dearest(laps[k + 1]) if both else laps[k])
            k += 2 if both else 1
        if len(merged) == len(laps):
            break
        laps = merged
    return laps


# --- payments ------------------------------------------------------------------------------------


class Epoch(NamedTuple):
    """The terms of an epoch, and how many epochs have the same ones."""

    labels: int
    groups: tuple[Group, ...]
    tails: tuple[Tail, ...]
    idle: int
    copies: int


class SegmentPlan(NamedTuple):
    """Blocks of hidden steps; with a tail of so many steps if a release follows."""

    blocks: tuple[int, ...]
    tail: int


class PaymentPlan(NamedTuple):
    """Which steps pay for which labels.

    Args:
        epochs: (the segments of an epoch, how many such epochs follow each other).
        kappa: of a tail of U steps, the label with u steps left pays in equal parts at
            min(u + kappa, U) steps, as far as these exist, and the rest at its own step.
        share: of the noise variance, for the debts of earlier epochs.

    The labels of a block that is not the first of its segment, all but its first one, pay in the
    next block; the first one pays in its own block. If anything of an epoch is left to the next
    one, all labels of its first block wait for the second. Blocks of one step each and a tail of
    one step: every label pays when it is used, all iterates public.
    """

    epochs: tuple[tuple[tuple[SegmentPlan, ...], int], ...]
    kappa: float
    share: float = 0.0


def _parts(labels: Array) -> tuple[Part, ...]:
    """One part for all labels of similar shifts, with the largest of these."""
    shifts = np.sort(labels)[::-1]
    top = float(shifts[0])
    if top <= 0:
        return (Part(float(len(shifts)), 0.0),)
    with np.errstate(divide="ignore"):
        cells = np.floor(np.log(top / np.maximum(shifts, top * 1e-9)) / _ALIKE)
    cells = np.minimum(np.where(cells < 8, cells, 8 + np.floor((cells - 8) / 6)), 16)
    starts = np.flatnonzero(np.diff(cells, prepend=-1.0))
    counts = np.diff([*starts, len(shifts)])
    return tuple(Part(float(n), float(shifts[k])) for k, n in zip(starts, counts, strict=True))


def tail_rows(lap: Lap, first: int, last: int, kappa: float, waiting: Array) -> Tail:
    """The tail of a segment, and debts at its first step that are paid like its first label.

    Carried to the end, the label of step i adds S_i and the noise is n_i. It pays y_i n_k^2 at
    every later step k and the rest at its own: its inner product with a later label j is y_i S_j.
    With S the largest S_j and y_i S made increasing these products form a tree, whose increments
    are common to all later labels.
    """
    later = np.append(np.cumprod(lap.c[first + 1 : last][::-1])[::-1], 1.0)
    used = lap.s[first:last] * later * _ROOM
    noise = (lap.nu[first:last] * later) ** 2
    debts = waiting * (lap.c[first] * later[0] * _ROOM)
    left = np.cumsum(noise[::-1])[::-1]
    mean = float(left[0]) / len(left)
    extra = kappa * mean if math.isfinite(kappa) else math.inf
    span = np.minimum(left + extra, left[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        pays = np.nan_to_num(used / span, nan=0.0, posinf=math.inf)
        pays[0] = max([float(used[0]), *debts.tolist()]) / left[0]
        owned = np.maximum(used - pays * (left - noise), 0.0)
        if len(debts):
            owned[0] = pays[0] * noise[0]
        square = np.nan_to_num(owned**2 / noise, nan=0.0, posinf=math.inf)
    square = square + pays**2 * (left - noise)
    products = np.maximum.accumulate(pays * float(used.max()))
    up = 1 + 64 * ROUNDING * len(used)
    private = np.maximum(square - products, 0.0)
    private = np.where(private > 0, private + 8 * ROUNDING * square, 0.0) * up
    common = np.diff(products, prepend=0.0)
    common = np.where(common > 0, common + 8 * ROUNDING * products, 0.0) * up
    flat = np.flatnonzero(span >= left[0])  # these labels pay alike: nothing of their own is left
    if len(flat) and np.allclose(used[flat], used[0], rtol=1e-12) and not np.any(common[flat[1:]]):
        private[0] = private[0] if private[0] > 1e-12 * square[0] else 0.0
    rows = zip(private[::-1].tolist(), common[::-1].tolist(), strict=True)
    many = [1] * (len(used) - 1) + [1 + len(debts)]
    return Tail(tuple((n, v, shared) for n, (v, shared) in zip(many, rows, strict=True)))


def epochs_of(laps: Sequence[Lap], plan: PaymentPlan, batches: int) -> list[Epoch]:
    """The terms of every epoch."""
    rows = list[tuple[Lap, tuple[SegmentPlan, ...], int]]()
    for lap, (segments, count) in zip(laps, plan.epochs, strict=True):
        counts = (1, count - 2, 1) if count > 2 else (1,) * count
        rows += [(lap, segments, n) for n in counts]
    scale = 1 / math.sqrt(1 - plan.share) if plan.share else 1.0
    answer = list[Epoch]()
    waits = False  # whether labels of the epoch before pay in the first block
    for place, (lap, segments, count) in enumerate(rows):
        groups, tails = dict[tuple[Part, ...], int](), list[Tail]()

        def pay(lap: Lap, debts: Array, first: int, last: int, groups: Any = groups) -> None:
            parts = _parts(debts * (lap.unit_cost(first, last) * scale))
            groups[parts] = groups.get(parts, 0) + 1

        waiting = np.zeros(0)
        for (begin, end), (blocks, steps) in zip(lap.segments, segments, strict=True):
            step = begin
            for size in blocks:
                last = step + size
                debts = lap.debts(step, last)
                if step == 0 and waits:
                    waiting = debts
                else:
                    own = lap.s[step] / lap.c[step] * _ROOM
                    pay(lap, np.append(waiting, own), step, last)
                    waiting = debts[1:]
                step = last
            if steps == 1 and not len(waiting):
                pay(lap, np.array([lap.s[step] / lap.c[step] * _ROOM]), step, end)
            elif steps:
                tail = tail_rows(lap, step, end, plan.kappa, waiting)
                square = scale * scale * (1 + 8 * ROUNDING)
                rows_ = tuple((n, v * square, shared * square) for n, v, shared in tail.rows)
                tails.append(Tail(rows_))
                waiting = np.zeros(0)
        waits = len(waiting) > 0
        if waits:
            after, following, _ = rows[place] if count > 1 else rows[place + 1]
            pay(after, waiting, 0, following[0].blocks[0])
        every = tuple(Group(parts, n) for parts, n in sorted(groups.items()))
        answer.append(Epoch(batches, every, tuple(tails), batches - len(lap.c), count))
    return answer


def public_epoch(batches: int, ratio: float, count: int, idle: int = 0) -> Epoch:
    """An epoch with all iterates public."""
    part = Part(1.0, ratio * (1 + 8 * ROUNDING))
    return Epoch(batches, (Group((part,), batches - idle),), (), idle, count)


class Debts(NamedTuple):
    """What earlier epochs have left over, by its law: probabilities and distances."""

    masses: Array
    distances: Array

    def epoch(self, cost: float, share: float) -> Epoch:
        """The likelihood ratio of paying them with a share of the noise, at a cost of 1 each."""
        shifts = self.distances * (cost / math.sqrt(share) * _ROOM)
        parts = tuple(Part(float(p), float(a)) for p, a in zip(self.masses, shifts, strict=True))
        return Epoch(1, (Group(parts, 1),), (), 0, 1)


def debts_of(laps: Sequence[Lap], diameter: float, rounding_drift: float) -> Debts:
    """The debts at the end of these epochs, rounded up to a few values; no more than the diameter.

    A record's picks in different epochs are independent, and nothing has been paid.
    """
    carried, dearest, pending = 1.0, 0.0, list[tuple[Array, float]]()
    drift = 0.0
    for lap in reversed(laps):
        own = lap.debts(0, len(lap.c))
        through = float(np.prod(lap.c)) * _ROOM
        slid = rounding_drift * float(np.sum(np.cumprod(np.append(1.0, lap.c[:0:-1])))) * _ROOM
        left = lap.count
        large = _NEGLIGIBLE * float(pending[0][0].max()) if pending else 0.0
        while left and len(pending) < 60 and float(own.max()) * carried >= large:
            pending.append((own, carried))
            drift += slid * carried
            carried *= through
            left -= 1
        if left:  # too many to tell apart: each costs as much as its dearest label
            terms = float(left) if through >= 1 else 0.0
            if through != 1:  # the difference of two numbers near 1
                terms = max(terms, (1 - through**left) / (1 - through) * (1 + 1e-6))
            dearest += (float(own.max()) + slid) * carried * terms * _ROOM
            carried *= through**left
    total = sum(float(own.max()) * factor for own, factor in pending)
    law, cell = np.ones(1), max(total, 1e-300) / _CELLS
    for own, factor in pending:
        cells = np.ceil(own * factor / cell * (1 + 1e-12)).astype(int)
        law = np.convolve(law, np.bincount(cells) / len(cells))
    distances = np.minimum(np.arange(len(law)) * cell + dearest + drift, diameter) * _ROOM
    used = law > 0
    law, distances = law[used], distances[used]
    _, starts = np.unique(np.flatnonzero(used) * _ATOMS // len(used), return_index=True)
    sums = np.add.reduceat(law, starts) * (1 + 1e-9)
    return Debts(sums, np.maximum.reduceat(distances, starts))


class Accountant:
    """Curves of epochs for questions near one delta; what it learns about tops is kept."""

    def __init__(self, delta: float, several: bool) -> None:
        self._delta, self._several = delta, several
        self._tops: dict[Epoch, tuple[float, float]] = {}
        self._guess = 0.1

    def curve(
        self, epochs: Sequence[Epoch], points: int, rounding_drift: float = 0.0
    ) -> LossDistribution:
        """The composition, and of one Gaussian for what rounding adds."""
        total = sum(epoch.copies for epoch in epochs)
        counts: dict[Pair, int] = {}
        for epoch in epochs:
            pair = self._pair(epoch, points, self._delta * _BEYOND / total)
            counts[pair] = counts.get(pair, 0) + epoch.copies
        if rounding_drift:
            counts[SampledPair(1.0, 0.0, rounding_drift)] = 1
        return LossDistribution(counts)

    def tops(self, epoch: Epoch) -> tuple[float, float]:
        """Logs of the largest likelihood ratios of an epoch; 0 where none were needed."""
        return self._tops.get(epoch._replace(copies=1), (0.0, 0.0))

    def _pair(self, epoch: Epoch, points: int, budget: float) -> Pair:
        labels, groups, tails, idle, _ = epoch
        alone = not tails and not idle and len(groups) == 1 and groups[0].copies == 1
        if alone and len(groups[0].parts) == 1:
            return SampledPair(1.0, 0.0, groups[0].parts[0].shift * (1 + 4 * ROUNDING))
        key = epoch._replace(copies=1)
        if points == ROUGH:  # what is cut off is counted, so that searches need no better top
            key = Epoch(labels, (), (), 0, 1 + len(tails))
        if key not in self._tops:
            self._tops[key] = self._found(epoch._replace(copies=1), budget)
        top, usual = self._tops[key]
        return AllocationPair(labels, groups, tails, idle, top, usual, points)

    def _found(self, epoch: Epoch, budget: float) -> tuple[float, float]:
        """Logs of the largest likelihood ratios that are told apart in either order."""

        def at(top: float) -> tuple[float, float]:
            own = epoch.labels, epoch.groups, epoch.tails, epoch.idle
            return AllocationPair(*own, top, top, ROUGH).missing

        top = self._guess
        ahead, usual = at(top)
        while ahead <= budget and top > _LEAST_TOP:
            lower = top / 1.25
            if at(lower)[0] > budget:
                break
            top = lower
        while ahead > budget and top < _MOST_TOP:
            farther, _ = at(1.25 * top)
            if ahead < _NOISE and farther > ahead / 2:
                break  # what is left is rounding
            top, ahead = 1.25 * top, farther
        self._guess = top
        if not self._several:
            return top, 0.0
        usual = top
        while usual > _LEAST_TOP and at(usual / 1.25)[1] <= _UNUSUAL:
            usual /= 1.25
        return top, usual


# --- the search ----------------------------------------------------------------------------------


def _cut(labels: int, size: int, grow: bool) -> tuple[int, ...]:
    """Blocks of at most ``size`` labels; they grow from the start of the run, or are alike."""
    if not grow:
        count = -(-labels // size)
        return tuple((labels + k) // count for k in range(count))
    sizes, rest, now = list[int](), labels, max(1, round(size / 3)) if size > 2 else size
    while rest > 0:
        sizes.append(min(now, size, rest))
        rest -= sizes[-1]
        now = math.ceil(1.7 * min(now, size))
    return tuple(sorted(sizes))


def _shrinking(labels: int, size: int, growth: float) -> tuple[int, ...]:
    """Blocks that shrink towards the end, by this factor, down to ``size`` labels."""
    sizes, rest, now = list[int](), labels, float(size)
    while rest > 0:
        sizes.append(min(round(now), rest))
        rest -= sizes[-1]
        now *= growth
    return tuple(sizes[::-1])


class PaymentChoice(NamedTuple):
    """The parameters that are searched.

    Args:
        tail: steps of the tail before a release.
        kappa: see `PaymentPlan`.
        last: largest block of the last epoch.
        other: largest block of earlier epochs.
        growth: of blocks before a release, backwards from it.
        horizon: epochs at the end that pay for their own labels.
        share: of the noise, for the debts of epochs before these.
    """

    tail: int
    kappa: float
    last: int
    other: int
    growth: float
    horizon: int
    share: float


def plan_of(laps: Sequence[Lap], choice: PaymentChoice) -> PaymentPlan:
    """Blocks of at most ``other`` labels, of ``last`` in the last epoch, and tails."""
    epochs = list[tuple[tuple[SegmentPlan, ...], int]]()
    waits, fresh = False, True
    for place, lap in enumerate(laps):
        final = place == len(laps) - 1
        after = laps[place] if lap.count > 1 or final else laps[place + 1]
        ready = after.segments[0][1] > 1  # whether it may pay for what is left to it
        size, segments = choice.last if final else choice.other, list[SegmentPlan]()
        for begin, end in lap.segments:
            released, rest = end in lap.ends, end - begin
            if released:
                tail = min(choice.tail, rest - waits)
                if choice.growth > 1:
                    blocks = _shrinking(rest - tail, size, choice.growth)
                else:
                    blocks = _cut(rest - tail, size, fresh)
                segments.append(SegmentPlan(blocks, tail))
                waits = False
            else:
                blocks = _cut(rest, size, fresh) if ready else (*_cut(rest - 1, size, fresh), 1)
                segments.append(SegmentPlan(blocks, 0))
                waits = blocks[-1] > 1 or (waits and len(blocks) == 1)
            fresh = released
        epochs.append((tuple(segments), lap.count))
    return PaymentPlan(tuple(epochs), choice.kappa, choice.share)


@dataclass(frozen=True)
class Found:
    """A curve and the payments that prove it; no plan: all iterates are public."""

    curve: LossDistribution
    plan: PaymentPlan | None
    epochs: list[Epoch]
    accountant: Accountant


@dataclass(eq=False)
class Search:
    """Payments for a question at one delta; any payments are a proof.

    Args:
        laps: the epochs.
        batches: labels of an epoch.
        delta: where the curve is to be small.
        diameter: of the domain.
        rounding_drift: what rounding adds at a step, at most.
        forgets: whether epochs before the last ones may leave debts.
    """

    laps: list[Lap]
    batches: int
    delta: float
    diameter: float = math.inf
    rounding_drift: float = 0.0
    forgets: bool = False

    def __post_init__(self) -> None:
        self.epochs = sum(lap.count for lap in self.laps)
        self._accountants: dict[int, Accountant] = {}
        self._debts: dict[int, tuple[list[Lap], Debts | None, float]] = {}
        self._values: dict[PaymentChoice, float] = {}

    def _split(self, horizon: int) -> tuple[list[Lap], Debts | None, float]:
        """The last epochs, the debts before them, and the shift of a debt of 1 they pay off."""
        if horizon not in self._debts:
            own, left = list[Lap](), horizon
            earlier = list(self.laps)
            while left and earlier:
                lap = earlier.pop()
                taken = min(left, lap.count)
                own.insert(0, lap.having(taken))
                left -= taken
                if taken < lap.count:
                    earlier.append(lap.having(lap.count - taken))
            if own[0].count > 1:  # the first of them starts without debts in its blocks
                own[:1] = [own[0].having(1), own[0].having(own[0].count - 1)]
            debts, cost = None, 0.0
            if earlier:
                debts = debts_of(earlier, self.diameter, self.rounding_drift)
                cost = self._cost(own)
            self._debts[horizon] = own, debts, cost
        return self._debts[horizon]

    def _cost(self, laps: list[Lap]) -> float:
        """The shift of a debt of 1 that the hidden steps of these epochs pay off."""
        carried, total = 1.0, 0.0
        for lap in laps:
            end = lap.ends[0] if lap.ends else len(lap.c)
            for _ in range(lap.count):
                with np.errstate(over="ignore"):
                    total += 1 / (carried * lap.unit_cost(0, end) / _ROOM) ** 2
                carried *= float(np.prod(lap.c[:end]))
                if not 1e-100 < carried < 1e100 or lap.ends:
                    return _ROOM**2 / math.sqrt(total)
        return _ROOM**2 / math.sqrt(total)

    def terms(self, choice: PaymentChoice) -> tuple[PaymentPlan, list[Epoch]]:
        """The payments of a choice, and the terms of every epoch."""
        laps, debts, cost = self._split(choice.horizon)
        plan = plan_of(laps, choice if debts is not None else choice._replace(share=0.0))
        terms = epochs_of(laps, plan, self.batches)
        if debts is not None:
            terms.append(debts.epoch(cost, choice.share))
        return plan, terms

    def accountant(self, terms: Sequence[Epoch]) -> Accountant:
        """What it learns about tops is shared by payments of as many epochs."""
        total = sum(epoch.copies for epoch in terms)
        return self._accountants.setdefault(total, Accountant(self.delta, total > 1))

    def _curve(self, terms: list[Epoch], rough: bool, drift: float = 0.0) -> LossDistribution:
        return self.accountant(terms).curve(terms, ROUGH if rough else POINTS, drift)

    def _rough(self, choice: PaymentChoice) -> LossDistribution:
        return self._curve(self.terms(choice)[1], True)

    def _value(self, choice: PaymentChoice, epsilon: float) -> float:
        if choice not in self._values:
            self._values[choice] = self._rough(choice).rough_delta(epsilon)
        return self._values[choice]

    def best(self, rounded: Callable[[PaymentPlan, list[Lap]], float]) -> Found:
        """The best payments found; ``rounded``: what rounding adds to them, as one Gaussian."""
        now, epsilon = None, math.inf
        for choice in self._starts():
            rough = self._rough(choice)
            if now is None or rough.rough_delta(epsilon) < self.delta:
                now, epsilon = choice, rough.epsilon(self.delta)
        assert now is not None
        for factor in (1.6, 1.25, 1.1):
            self._values.clear()
            epsilon = self._rough(now).epsilon(self.delta)
            for place in range(len(PaymentChoice._fields)):
                for up in (True, False):
                    while True:
                        other = self._moved(now, place, factor, up)
                        value = self._value(other, epsilon)
                        if value >= self._value(now, epsilon) * (1 - 1e-3):
                            break
                        now = other
        plan, terms = self.terms(now)
        extra = rounded(plan, self._split(now.horizon)[0])
        return Found(self._curve(terms, False, extra), plan, terms, self.accountant(terms))

    def _starts(self) -> Iterable[PaymentChoice]:
        """Choices to begin with: short and long tails and blocks, one or all epochs that pay."""
        last = self.laps[-1]
        longest = max(end - begin for begin, end in last.segments)
        ratio = float(np.max(last.s / np.maximum(last.nu, 1e-300)))
        size = min(max(0.3 * longest**0.75 * min(ratio, 4.0), 1.0), longest)
        horizons = [self.epochs]
        if self.forgets and self.epochs > 1:
            horizons += [n for n in (1, 2, 4) if n < self.epochs]
        shrinks = bool(np.any(last.c < 1))
        for horizon in horizons:
            for tail, block in ((0.5, 0.5), (1.0, 1.0), (0.25, 1.0)):
                steps, labels = max(round(size * tail), 1), max(round(size * block), 1)
                other = max(labels // 2, 1)
                for kappa in (4.0, math.inf):
                    if shrinks:
                        yield PaymentChoice(
                            steps, kappa, max(other // 2, 1), labels, 1.3, horizon, 0.1
                        )
                    else:
                        yield PaymentChoice(steps, kappa, other, labels, 1.0, horizon, 0.1)

    def _moved(self, now: PaymentChoice, place: int, factor: float, up: bool) -> PaymentChoice:
        """The next value of one parameter."""
        name = PaymentChoice._fields[place]
        values = {"kappa": _KAPPAS, "share": _SHARES, "growth": _GROWTHS}.get(name)
        if values is not None:
            index = values.index(now[place]) + (1 if up else -1)
            near = values[min(max(index, 0), len(values) - 1)]
            return PaymentChoice._make((*now[:place], near, *now[place + 1 :]))
        if name == "horizon" and not self.forgets:
            return now
        value = int(now[place])
        moved = max(round(value * factor), value + 1) if up else int(value / factor)
        most = self.epochs if name == "horizon" else self.batches
        return PaymentChoice._make((*now[:place], min(max(moved, 1), most), *now[place + 1 :]))


def public(delta: float, epochs: list[Epoch]) -> Found:
    """All iterates public."""
    accountant = Accountant(delta, sum(epoch.copies for epoch in epochs) > 1)
    return Found(accountant.curve(epochs, POINTS), None, epochs, accountant)


# --- the theorems ------------------------------------------------------------------------------


def allocation_limits(run: Run) -> str | None:
    """What is special about it: sizes up to which laws are computed."""
    if run.steps.count and not np.all(run.steps.nu[:1] > 0):
        return None
    if (run.batches) > MOST_BATCHES:
        return f"more than {MOST_BATCHES:,} batches in an epoch are not accounted"
    if run.training.epochs > MOST_EPOCHS:
        return f"more than {MOST_EPOCHS:,} epochs are not accounted"
    return None


def _epochs(run: Run) -> tuple[int, int, int]:
    """Batches, epochs (the last may be cut short), and steps of the last one."""
    batches = run.batches
    epochs = -(-run.training.steps // batches)
    return batches, epochs, run.training.steps - batches * (epochs - 1)


def _unprotected(run: Run) -> Curve | None:
    """The curve where nothing is used, or some noise is missing; None in between."""
    used = run.step_sensitivities > 0
    if not run.training.steps or not np.any(used):
        return LossDistribution({})
    nu = run.training.noises if len(run.step_sensitivities) > 1 else run.training.noises[:1]
    return Gaussian(math.inf) if np.any(nu[used] <= 0) else None


def _same(run: Run) -> bool:
    batches = run.training.batches
    assert isinstance(batches, RandomAllocation)
    return batches.same_every_epoch


def public_epochs(run: Run, ratio: float) -> list[Epoch]:
    """The terms of all epochs, all iterates public."""
    batches, epochs, labels = _epochs(run)
    if not _same(run):
        rows = [public_epoch(batches, ratio, epochs - 1)] if epochs > 1 else []
        return [*rows, public_epoch(batches, ratio, 1, batches - labels)]
    terms = [(labels, epochs), (batches - labels, epochs - 1)]
    groups = tuple(
        Group((Part(1.0, ratio * math.sqrt(uses) * (1 + 2**-48)),), count)
        for count, uses in terms
        if count and uses
    )
    idle = batches - labels if epochs == 1 else 0
    return [Epoch(batches, groups, (), idle, 1)]


def _written(accountant: Accountant, epochs: list[Epoch], plan: Any) -> dict[str, Any]:
    """What the check needs: the payments, and how far likelihood ratios are told apart."""
    tops = [accountant.tops(epoch) for epoch in epochs]
    found: dict[str, Any] = {"tops": [list(pair) for pair in tops]}
    if plan is not None:
        segments = [(segments[-1], count) for segments, count in plan.epochs]
        found["blocks"] = [[list(segment.blocks), count] for segment, count in segments]
        found |= {"tail": segments[-1][0].tail, "kappa": plan.kappa}
    return found


def _or_gaussian(
    at: Callable[[float], Proof], ratio: float, epochs: int, charged: float | None = None
) -> Callable[[float], Proof]:
    """The dearest label in every epoch, r sqrt(E)-GDP, where it is cheaper or all there is."""
    charged = ratio if charged is None else charged
    alone = Proof(Gaussian(ratio * math.sqrt(epochs) * _SLACK), {"gaussian": True, "cap": _EVERY})

    def chosen(delta: float) -> Proof:
        if charged > MOST:
            return alone
        return min(at(delta), alone, key=lambda proof: proof.curve.epsilon(delta))

    return chosen


def allocation_composition_bound(run: Run) -> Proof:
    """All iterates public."""
    known = _unprotected(run)
    if known is not None:
        return Proof(known, {"tops": [], "cap": run.training.records})
    ratio = _dearest(run)
    epochs = public_epochs(run, max(ratio, LEAST))

    def at(delta: float) -> Proof:
        found = public(delta, epochs)
        return Proof(found.curve, _written(found.accountant, epochs, None))

    return Proof.searched(_or_gaussian(at, ratio, _epochs(run)[1]))


def _dearest(run: Run) -> float:
    """The largest s/nu of a step."""
    s = run.step_sensitivities
    squares = dynamics.squared_ratio(s, run.training.noises[: len(s)])
    return math.sqrt(float(squares.max())) * _SLACK


def _smooth_limits(run: Run) -> str | None:
    reason = allocation_limits(run)
    if reason is not None:
        return reason
    if run.contraction is None:
        return "it needs a smooth loss"
    return None


def allocation_deferral_limits(run: Run) -> str | None:
    """What is special about it: updates that do not expand, for every realised batch."""
    reason = _smooth_limits(run)
    if reason is not None:
        return reason
    if _same(run) and _epochs(run)[1] > 1:
        return "of picks that are the same in every epoch it covers one epoch"
    if not np.all(batch_contraction(run, _USUAL_DELTA)[0] <= 1.0):
        return (
            "its updates may expand: it needs a convex loss, gradients that are not clipped "
            "one by one, and step_size * smoothness of the largest batch, which is random, "
            "at most 2"
        )
    return None


def equal_laps(batches: int, epochs: int, labels: int, ratio: float) -> list[Lap]:
    """Epochs of equal steps that keep distances, s = ``ratio``; the last has ``labels`` steps."""
    one, own = np.ones(batches), np.ones(labels)
    last = Lap(own, own * ratio, own, (labels,), 1)
    return [*([Lap(one, one * ratio, one, (), epochs - 1)] if epochs > 1 else []), last]


def allocation_deferral_bound(run: Run) -> Proof:
    """The last iterate: the best payments found for each delta."""
    known = _unprotected(run)
    if known is not None:
        return Proof(known, {"tops": [], "cap": run.training.records})
    noise, s = float(np.min(run.training.noises)), run.step_sensitivities
    ratio = float(np.max(s)) / noise * _SLACK
    drift = float(np.max(run.rounding_drifts)) / noise * _SLACK
    batches, epochs, labels = _epochs(run)
    steps = run.training.steps
    # Every label pays the drift at every step, and r in every epoch: <a^v + d, a^w + d>.
    rounded = math.sqrt(drift * (2 * epochs * ratio + steps * drift)) * _SLACK

    def at(delta: float) -> Proof:
        contraction, cap, failure = batch_contraction(run, delta)
        if not np.all(contraction <= 1.0):
            return Proof(Gaussian(math.inf))
        own = max(ratio, LEAST)
        laps, rest = equal_laps(batches, epochs, labels, own), delta - failure
        found = public(rest, public_epochs(run, own))
        if labels > (epochs > 1):
            hidden = Search(laps, batches, rest).best(lambda *_: rounded)
            found = min(hidden, found, key=lambda each: each.curve.epsilon(rest))
        witness = {"cap": cap, **_written(found.accountant, found.epochs, found.plan)}
        curve: Curve = found.curve
        return Proof(WithFailure(curve, failure) if failure else curve, witness)

    return Proof.searched(_or_gaussian(at, _dearest(run), epochs, ratio))


def lipschitz_limits(run: Run) -> str | None:
    """What is special about deferring by any Lipschitz updates: steps that are not too steep."""
    reason = _smooth_limits(run)
    if reason is not None:
        return reason
    if not run.constant and run.training.steps > _MOST_SCHEDULED:
        return f"schedules of more than {_MOST_SCHEDULED:,} steps are not accounted one by one"
    if not np.all(batch_contraction(run, _USUAL_DELTA)[0] < _STEEPEST):
        return "its updates expand too much to leave a debt to later steps"
    return None


def allocation_paths_limits(run: Run) -> str | None:
    """What is special about it: there must be something that the simpler theorem does not use."""
    reason = lipschitz_limits(run)
    if reason is not None:
        return reason
    repeated = _same(run) and _epochs(run)[1] > 1
    plain = run.constant and run.last_only and math.isinf(run.training.diameter) and not repeated
    if plain and run.unit.default and np.all(batch_contraction(run, _USUAL_DELTA)[0] == 1.0):
        return "nothing shrinks, so that its payments are those of Random allocation, deferred"
    return None


def allocation_paths_bound(run: Run) -> Proof:
    """Released and last iterates of any Lipschitz updates: payments chosen for each delta."""
    known = _unprotected(run)
    if known is not None:
        return Proof(known)
    return Proof.searched(_or_gaussian(lambda delta: _paths_at(run, delta), *_dearest_epochs(run)))


def _dearest_epochs(run: Run) -> tuple[float, int]:
    return _dearest(run), _epochs(run)[1]


def _paths_at(run: Run, delta: float) -> Proof:
    contraction, _, failure = batch_contraction(run, delta)
    rest, drift = delta - failure, float(np.max(run.rounding_drifts))
    laps = laps_of(run, contraction, run.step_sensitivities)
    if _same(run) and _epochs(run)[1] > 1:
        found = _repeated_picks(run, contraction, rest)
    else:
        single = run.last_only or run.releases == (run.training.steps,)
        forgets = single and (bool(np.all(contraction < 1)) or math.isfinite(run.training.diameter))
        search = Search(laps, run.batches, rest, run.training.diameter, drift, forgets)
        found = search.best(lambda plan, own: rounded_shift(own, plan.share, drift))
    return Proof(WithFailure(found.curve, failure) if failure else found.curve)


def rounded_shift(laps: Sequence[Lap], share: float, drift: float) -> float:
    """What rounding adds to every inner product of the epochs that pay, as one Gaussian.

    Every label pays the drift d_k at step k: <a^v + d, a^w + d> exceeds <a^v, a^w> by at most
    2 max_k d_k/nu_k max_w sum_k a^w_k + sum_k (d_k/nu_k)^2, and what a label pays over an epoch is
    no more than its sensitivity times what later steps expand.
    """
    if not drift:
        return 0.0
    expanded = sum(lap.count * float(np.sum(np.log(np.maximum(lap.c, 1.0)))) for lap in laps)
    noise = min(float(lap.nu.min()) for lap in laps)
    paid = sum(lap.count * float(lap.s.max()) for lap in laps)
    squares = sum(lap.count * float(np.sum((drift / lap.nu) ** 2)) for lap in laps)
    if not noise or expanded > _MOST_EXPANDED:
        return math.inf
    total = 2 * drift / noise * paid / noise * math.exp(expanded) + squares
    return math.sqrt(total / (1 - share)) * _ROOM


def repeated_picks(
    batches: int, ratio: float, epochs: int, blocks: tuple[int, ...], tail: int, kappa: float
) -> Epoch:
    """The terms of picks that are kept for all epochs, of equal steps that keep distances.

    In every epoch the labels of a block, all but its first one (of the first block all), and the
    first label of the next block pay in the next block. The last steps are a block whose labels
    pay in the first block of the next epoch, and a tail in the last epoch. Inner products of the
    epochs add up.
    """
    lap = Lap(np.ones(batches), np.full(batches, ratio), np.ones(batches), (batches,), 1)
    groups, waiting = dict[tuple[Part, ...], int](), blocks[0]
    for size in blocks[1:]:
        parts = (Part(waiting + 1.0, ratio * math.sqrt(epochs / size) * _ROOM),)
        groups[parts] = groups.get(parts, 0) + 1
        waiting = size - 1
    rows = list(tail_rows(lap, batches - tail, batches, kappa, np.full(waiting, ratio)).rows)
    again = (epochs - 1) * ratio * ratio * _ROOM
    labels, private, common = rows[-1]
    rows[-1] = labels, private + again / tail, common
    if tail > 1:
        labels, private, common = rows[-2]
        rows[-2] = labels, private, common + again / blocks[0]
    every = tuple(Group(parts, n) for parts, n in sorted(groups.items()))
    return Epoch(batches, every, (Tail(tuple(rows)),), 0, 1)


def _repeated_picks(run: Run, contraction: Array, delta: float) -> Found:
    """Picks for the whole run: the last iterate of updates that keep distances, else public."""
    batches, epochs, labels = _epochs(run)
    noise, s = float(np.min(run.training.noises)), run.step_sensitivities
    ratio = max(float(np.max(s)) / noise * _SLACK, LEAST)
    found = public(delta, public_epochs(run, max(_dearest(run), LEAST)))
    if not run.last_only or labels < batches or batches < 2 or np.any(contraction > 1):
        return found
    accountant = Accountant(delta, False)

    def terms(tail: int, kappa: float, size: int) -> list[Epoch]:
        blocks = _cut(batches - tail, size, True)
        return [repeated_picks(batches, ratio, epochs, blocks, tail, kappa)]

    epsilon, best = found.curve.epsilon(delta), None
    for tail in sorted({round(x) for x in np.geomspace(1, batches - 1, 9)}):
        for size in sorted({round(x) for x in np.geomspace(1, batches - tail, 9)}):
            for kappa in (0.0, 4.0, math.inf):
                curve = accountant.curve(terms(tail, kappa, size), ROUGH)
                if curve.rough_delta(epsilon) < delta:
                    epsilon, best = curve.epsilon(delta), (tail, kappa, size)
    if best is None:
        return found
    drift = float(np.max(run.rounding_drifts)) / noise * _SLACK
    rounded = math.sqrt(drift * (2 * epochs * ratio + run.training.steps * drift)) * _SLACK
    hidden = terms(*best)
    curve = accountant.curve(hidden, POINTS, rounded)
    deferred = Found(curve, None, hidden, accountant)
    return min(deferred, found, key=lambda each: each.curve.epsilon(delta))


ALLOCATION_COMPOSITION = Theorem(
    key="allocation-composition",
    name="Random allocation",
    reference="this library, docs/theory/allocation.md; balls in bins: Chua et al. 2024",
    statement=(
        "An epoch is dominated, in both orders, by (1/B) sum_j N(r e_j, I) against N(0, I), r the "
        "largest s/nu: the likelihood ratio is the mean of B independent lognormals. Epochs in "
        "which records pick anew compose; picks for the whole run have r sqrt(E)."
    ),
    schemes=(RandomAllocation,),
    bound=allocation_composition_bound,
    limits=allocation_limits,
    supports=PUBLIC - {"replace"} | {"gradient_norm"},
    assumptions=("independent uniform picks that stay secret", "zero-out adjacency"),
    hidden_state=False,
)

ALLOCATION_DEFERRAL = Theorem(
    key="allocation-deferral",
    name="Random allocation, deferred",
    reference="this library, docs/theory/allocation.md",
    statement=(
        "For each label w let z^w >= 0 be a path that is 0 at the start and the end, and a^w_k = "
        "(c_k z^w_k + s^w_k - z^w_{k+1})_+ / nu_k. The run is dominated, in both orders, by "
        "sum_w p_w N(a^w, I) against N(0, I). Labels are deferred in blocks and in a tail of the "
        "last steps. c_k <= 1 must hold for every realised batch; batches larger than a cap are "
        "paid for in delta."
    ),
    schemes=(RandomAllocation,),
    bound=allocation_deferral_bound,
    limits=allocation_deferral_limits,
    supports=ANY_UPDATE - {"replace", "proximal"} | {"gradient_norm"},
    assumptions=(
        "independent uniform picks that stay secret",
        "zero-out adjacency",
        "updates are not expansive for any realised batch",
    ),
)

ALLOCATION_PATHS = Theorem(
    key="allocation-paths",
    name="Random allocation, deferred by any Lipschitz updates",
    reference="this library, docs/theory/allocation.md",
    statement=(
        "As allocation-deferral, with the c_k, s_k and nu_k of every step: debts shrink by c_k "
        "until they are paid, epochs before the last ones leave theirs, at most the diameter, to a "
        "share of the noise of the last ones, and nothing is left where an iterate is released. "
        "c_k must hold for every realised batch; batches larger than a cap are paid for in delta."
    ),
    schemes=(RandomAllocation,),
    bound=allocation_paths_bound,
    limits=allocation_paths_limits,
    supports=ANY_UPDATE - {"replace", "proximal"} | PRESENCE | {"releases"},
    assumptions=(
        "independent uniform picks that stay secret",
        "zero-out adjacency",
        "updates are Lipschitz for every realised batch",
    ),
)
