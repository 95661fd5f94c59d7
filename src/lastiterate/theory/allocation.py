"""Random allocation: every record independently picks one of the B batches of an epoch.

The law of the likelihood ratio is in `allocation_law`. This file chooses which steps pay for which
labels, and states the two theorems: all iterates public, and the last iterate alone. As with
Poisson batches the divisor is nominal, so that a crowded batch has more curvature than the loss and
an empty one none: what holds for every realised batch counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ROUNDING, Pair, SampledPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import RandomAllocation
from lastiterate.theory import dynamics
from lastiterate.theory.allocation_law import POINTS, AllocationPair, Group, Tail
from lastiterate.theory.poisson import batch_contraction
from lastiterate.theory.registry import ANY_UPDATE, PUBLIC, Proof, Theorem
from lastiterate.theory.run import Run

ROUGH = 1 << 10  # points of the grid while payments are searched
LEAST, MOST = 1e-4, 8.0  # s/nu outside of which labels are not averaged
MOST_BATCHES = 100_000  # in an epoch
MOST_EPOCHS = 10**6
_KAPPAS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, math.inf)  # that are searched
_BEYOND = 2e-3  # of delta, counted as infinite losses
_UNUSUAL = 1e-5  # mass of likelihood ratios that the other order does not tell apart
_NOISE = 1e-7  # below which a mass may be what rounding leaves
_LEAST_TOP, _MOST_TOP = 1e-3, 45.0
_EVERY = 2**53  # records that a batch may have: no cap
_SLACK = 1 + 2**-48  # a few rounding errors of a ratio
_USUAL_DELTA = 1e-6  # at which it is decided whether updates can be used at all


class PaymentPlan(NamedTuple):
    """Which steps pay for which labels.

    Args:
        blocks: (sizes of the blocks of an epoch, how many such epochs follow each other).
        steps: of the tail in the last epoch.
        kappa: the label with u steps left pays 1/min(u + kappa, steps) of r at each later step.

    The labels of a block that is not the first of their epoch, all but its first one, pay in the
    next block, r/m at each of its m steps; the first one pays in its own block. If anything of an
    epoch is left to the next one, all labels of its first block wait for the second. Blocks of one
    step each and a tail of one step: every label pays when it is used, all iterates public.
    """

    blocks: tuple[tuple[tuple[int, ...], int], ...]
    steps: int
    kappa: float


def tail_rows(ratio: float, steps: int, kappa: float, waiting: int) -> Tail:
    """The tail, with so many labels beside the own one that pay like its first one.

    The label with u steps left pays r_u at each later step and r - (u - 1) r_u at its own; it has
    inner product r_i r with every later one, so that the tree has increments (r_i - r_(i+1)) r.
    """
    spans = [min(u + kappa, float(steps)) for u in range(1, steps + 1)]
    square, up = ratio * ratio, 1 + 64 * ROUNDING
    rows = []
    for u, span in enumerate(spans, 1):
        apart = span - u  # r_u = r/span, and |a_u|^2 - r_u r = r^2 apart (apart + 1)/span^2
        private = square * apart * (apart + 1) / (span * span)
        common = square * (1 / span if u == steps else 1 / span - 1 / spans[u])
        private += 8 * ROUNDING * square if private > 0 else 0.0
        common += 8 * ROUNDING * square if common > 0 else 0.0
        rows.append((1 + (waiting if u == steps else 0), private * up, common * up))
    return Tail(tuple(rows))


class Epoch(NamedTuple):
    """The terms of an epoch, and how many epochs have the same ones."""

    groups: tuple[Group, ...]
    tail: Tail | None
    idle: int
    copies: int


def epochs_of(ratio: float, plan: PaymentPlan, idle: int = 0) -> list[Epoch]:
    """The terms of every epoch; ``idle`` labels of the last one are not used."""
    square = ratio * ratio * (1 + 8 * ROUNDING)
    rows = list[tuple[tuple[int, ...], int]]()  # the first and last of equal epochs by themselves
    for sizes, count in plan.blocks:
        rows += [(sizes, n) for n in (1, count - 2, 1)[: min(count, 3)] if n] if count > 2 else []
        rows += [(sizes, 1)] * count if count <= 2 else []
    answer = list[Epoch]()
    waits = False  # whether labels of the epoch before pay in the first block
    for index, (sizes, count) in enumerate(rows):
        terms = list[tuple[int, int]]()
        waiting = 0
        for place, size in enumerate(sizes):
            if place or not waits:  # those of the block before, and the first one
                terms.append((waiting + 1, size))
                waiting = size - 1
            else:
                waiting = size
        tail = None
        if index == len(rows) - 1:
            tail = tail_rows(ratio, plan.steps, plan.kappa, waiting)
        else:
            waits = waiting > 0
            if waits:
                terms.append((waiting, (sizes if count > 1 else rows[index + 1][0])[0]))
        counts = Counter(terms)
        groups = tuple(
            Group(labels, square / steps * (1 + 8 * ROUNDING), number)
            for (labels, steps), number in sorted(counts.items())
        )
        answer.append(Epoch(groups, tail, 0 if tail is None else idle, count))
    return answer


def public_epoch(batches: int, ratio: float, count: int, idle: int = 0) -> Epoch:
    """An epoch with all iterates public."""
    square = ratio * ratio * (1 + 8 * ROUNDING)
    return Epoch((Group(1, square, batches - idle),), None, idle, count)


class Accountant:
    """Curves of epochs for questions near one delta; what it learns about tops is kept."""

    def __init__(self, batches: int, delta: float, several: bool) -> None:
        self._batches, self._delta, self._several = batches, delta, several
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
        groups, tail, idle, _ = epoch
        if len(groups) == 1 and groups[0].copies == 1 and tail is None and not idle:
            return SampledPair(1.0, 0.0, math.sqrt(groups[0].square) * (1 + 4 * ROUNDING))
        key = epoch._replace(copies=1)
        if points == ROUGH:  # what is cut off is counted, so that searches need no better top
            key = Epoch((), None, 0, 1 if tail is None else 2)
        if key not in self._tops:
            self._tops[key] = self._found(epoch._replace(copies=1), budget)
        top, usual = self._tops[key]
        return AllocationPair(self._batches, groups, tail, idle, top, usual, points)

    def _found(self, epoch: Epoch, budget: float) -> tuple[float, float]:
        """Logs of the largest likelihood ratios that are told apart in either order."""

        def at(top: float) -> tuple[float, float]:
            own = self._batches, epoch.groups, epoch.tail, epoch.idle
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


def _cut(labels: int, size: int, grow: bool) -> tuple[int, ...]:
    """Blocks of at most ``size`` labels; they grow from the start of the run, or end short."""
    sizes, rest, now = list[int](), labels, size
    if grow and size > 2:
        now = max(1, round(size / 3))
    while rest > 0:
        sizes.append(min(now, size, rest))
        rest -= sizes[-1]
        now = math.ceil(1.7 * min(now, size))
    return tuple(sorted(sizes)) if grow else tuple(sizes)


def plan_of(
    batches: int, labels: int, epochs: int, steps: int, kappa: float, last: int, other: int
) -> PaymentPlan:
    """Blocks of ``other`` labels, of ``last`` in the last epoch, which has so many labels."""
    if epochs == 1:
        return PaymentPlan(((_cut(labels - steps, last, True), 1),), steps, kappa)
    rows = [(_cut(batches, other, True), 1), (_cut(batches, other, False), epochs - 2)]
    rows.append((_cut(labels - steps, last, False), 1))
    return PaymentPlan(tuple(row for row in rows if row[1]), steps, kappa)


@dataclass(frozen=True)
class Found:
    """A curve and the payments that prove it; no plan: all iterates are public."""

    curve: LossDistribution
    plan: PaymentPlan | None
    epochs: list[Epoch]
    accountant: Accountant


def best(
    batches: int, ratio: float, epochs: int, delta: float, labels: int, rounding_drift: float = 0.0
) -> Found:
    """The best payments found, for whole epochs and a last one of ``labels`` steps.

    Any payments are a proof, so that the search may be approximate.
    """
    accountant = Accountant(batches, delta, epochs > 1)
    idle = batches - labels

    def rough(plan: tuple[int, float, int, int]) -> LossDistribution:
        terms = epochs_of(ratio, plan_of(batches, labels, epochs, *plan), idle)
        return accountant.curve(terms, ROUGH)

    few = epochs > 1
    if labels < 1 + few:
        return _public(accountant, batches, ratio, epochs, labels)
    most = labels - few
    start = max(min(round(0.3 * labels**0.75 * ratio), most), 1)
    starts = [
        (start, math.inf, max(size // 2, 1), min(size, batches))
        for size in (max(start // 2, 1), start, 2 * start, 4 * start)
    ]
    now = starts[1]
    epsilon = rough(now).epsilon(delta)
    now = min(starts, key=lambda plan: rough(plan).rough_delta(epsilon))
    for factor in (1.6, 1.2):
        curve = rough(now)
        epsilon = curve.epsilon(delta)
        values = {now: curve.rough_delta(epsilon)}
        for place in range(4 if few else 3):
            for up in (True, False):
                while True:
                    other = _moved(now, place, factor, up, most, batches)
                    if other not in values:
                        values[other] = rough(other).rough_delta(epsilon)
                    if values[other] >= values[now] * (1 - 1e-3):
                        break
                    now = other
    plan = plan_of(batches, labels, epochs, *now)
    terms = epochs_of(ratio, plan, idle)
    curve = accountant.curve(terms, POINTS, rounding_drift)
    public = _public(accountant, batches, ratio, epochs, labels)
    if public.curve.epsilon(delta) <= curve.epsilon(delta):
        return public
    return Found(curve, plan, terms, accountant)


def _public(accountant: Accountant, batches: int, ratio: float, epochs: int, labels: int) -> Found:
    rows = [public_epoch(batches, ratio, epochs - 1)] if epochs > 1 else []
    rows.append(public_epoch(batches, ratio, 1, batches - labels))
    return Found(accountant.curve(rows, POINTS), None, rows, accountant)


def _moved(
    now: tuple[int, float, int, int], place: int, factor: float, up: bool, most: int, batches: int
) -> tuple[int, float, int, int]:
    """The next value of one parameter."""
    values = list(now)
    value = values[place]
    if place == 1:
        index = _KAPPAS.index(value) + (1 if up else -1)
        values[1] = _KAPPAS[min(max(index, 0), len(_KAPPAS) - 1)]
    else:
        moved = max(round(value * factor), int(value) + 1) if up else int(value / factor)
        values[place] = min(max(moved, 1), most if place == 0 else batches)
    return int(values[0]), values[1], int(values[2]), int(values[3])


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
    square = ratio * ratio * (1 + 2**-48)
    terms = [(labels, epochs), (batches - labels, epochs - 1)]
    groups = tuple(
        Group(1, square * uses * (1 + 2**-50), count) for count, uses in terms if count and uses
    )
    idle = batches - labels if epochs == 1 else 0
    return [Epoch(groups, None, idle, 1)]


def _written(accountant: Accountant, epochs: list[Epoch], plan: Any) -> dict[str, Any]:
    """What the check needs: the payments, and how far likelihood ratios are told apart."""
    tops = [accountant.tops(epoch) for epoch in epochs]
    found: dict[str, Any] = {"tops": [list(pair) for pair in tops]}
    if plan is not None:
        found["blocks"] = [[list(sizes), count] for sizes, count in plan.blocks]
        found |= {"tail": plan.steps, "kappa": plan.kappa}
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
    s = run.step_sensitivities
    squares = dynamics.squared_ratio(s, run.training.noises[: len(s)])
    ratio = math.sqrt(float(squares.max())) * _SLACK
    epochs = public_epochs(run, max(ratio, LEAST))

    def at(delta: float) -> Proof:
        accountant = Accountant(_epochs(run)[0], delta, sum(e.copies for e in epochs) > 1)
        curve = accountant.curve(epochs, POINTS)
        return Proof(curve, _written(accountant, epochs, None))

    return Proof.searched(_or_gaussian(at, ratio, _epochs(run)[1]))


def allocation_deferral_limits(run: Run) -> str | None:
    """What is special about it: updates that do not expand, for every realised batch."""
    reason = allocation_limits(run)
    if reason is not None:
        return reason
    if _same(run) and _epochs(run)[1] > 1:
        return "of picks that are the same in every epoch it covers one epoch"
    if run.contraction is None:
        return "it needs a smooth loss"
    if not np.all(batch_contraction(run, _USUAL_DELTA)[0] <= 1.0):
        return (
            "its updates may expand: it needs a convex loss, gradients that are not clipped "
            "one by one, and step_size * smoothness of the largest batch, which is random, "
            "at most 2"
        )
    return None


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
        found = best(batches, own, epochs, delta - failure, labels, rounded)
        witness = {"cap": cap, **_written(found.accountant, found.epochs, found.plan)}
        curve: Curve = found.curve
        return Proof(WithFailure(curve, failure) if failure else curve, witness)

    squares = dynamics.squared_ratio(s, run.training.noises[: len(s)])
    public = math.sqrt(float(squares.max())) * _SLACK
    return Proof.searched(_or_gaussian(at, public, epochs, ratio))


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
