"""Random allocation where a record is replaced by another: both worlds have a label.

Each world is compared with the run without the record (`allocation`): with payments a^w for the
record of one world and the same payments for that of the other, the two runs are dominated by
sum_w p_w N(a^w, I) against sum_w p_w N(-a^w, I) (docs/theory/allocation.md). The impulse is one
record's norm, half of the largest sensitivity: a smaller declared sensitivity is not used. With
labels that pay in groups of disjoint steps,

    H_gamma = E (sum of independent terms labels/B (e^(a g - a^2/2) - gamma e^(-a g - a^2/2)))_+ ,

which increases with every term and is convex in it: masses are moved to both neighbours on a grid,
values below a floor are raised to it, and what is above a top is added. Both orders agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, rfft
from scipy.special import ndtr

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ROUNDING, Atoms, Pair, SampledPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import RandomAllocation
from lastiterate.theory import allocation, poisson
from lastiterate.theory.allocation import Epoch, Lap, PaymentChoice, PaymentPlan
from lastiterate.theory.allocation_law import Group, Part, joined, nodes
from lastiterate.theory.dynamics import Array
from lastiterate.theory.registry import ANY_UPDATE, PUBLIC, Proof, Theorem
from lastiterate.theory.run import Run

MOST = 2.0  # a record's s/nu beyond which labels are not averaged
_POINTS, _ROUGH_POINTS = 1 << 15, 1 << 12  # of the grid of sums
_KNOTS, _ROUGH_KNOTS = 400, 60  # epsilons at which H is evaluated
_BEYOND = 1e-3  # of delta, counted as infinite losses
_TILTS = (3.0, 6.0, 12.0, 25.0, 50.0)  # in units of one over the top


class _Terms(NamedTuple):
    """A term at the edges of cells of g, as plus - gamma minus, and inside of the cells."""

    mass: Array
    plus: Array
    minus: Array
    rise: tuple[Array, Array]  # mean rise inside a cell above its left edge: plus and minus
    reach: tuple[Array, Array]  # rise between the edges of a cell
    below: float  # mass left of the first edge
    lost: float  # mean of what is right of the last edge

    def atoms(self, gamma: float) -> tuple[Array, Array]:
        """Values and masses: every cell at its ends, the mean not lowered."""
        values = self.plus - gamma * self.minus
        share = (self.rise[0] + gamma * self.rise[1]) / (self.reach[0] + gamma * self.reach[1])
        right = np.minimum(share * (1 + 4096 * ROUNDING), self.mass)
        masses = np.append(self.mass - right, 0.0)
        masses[1:] += right
        masses[0] += self.below
        return values + 64 * ROUNDING * (self.plus + gamma * self.minus), masses


@lru_cache(maxsize=256)
def _terms(parts: tuple[Part, ...], batches: int, fineness: float) -> _Terms:
    shifts = [max(a, 1e-9) for _, a in parts]
    edges, width, density, offset = nodes(-8.0, 8.0 + max(shifts), max(shifts), fineness)
    mass = density.sum(1)
    plus, minus = np.zeros(len(edges)), np.zeros(len(edges))
    rises, reaches = np.zeros((2, len(mass))), np.zeros((2, len(mass)))
    for (labels, _), a in zip(parts, shifts, strict=True):
        for side, sign, total in ((0, 1.0, plus), (1, -1.0, minus)):
            heights = labels / batches * np.exp(sign * a * edges - a * a / 2)
            total += heights
            rises[side] += heights[:-1] * (density * (sign * np.expm1(sign * a * offset))).sum(1)
            reaches[side] += heights[:-1] * (sign * math.expm1(sign * a * width))
    lost = sum(labels / batches * float(ndtr(-8.0)) for labels, _ in parts) * 2
    mass = mass * (1 + 1024 * ROUNDING)
    below = 2 * float(ndtr(-8.0))
    rise, reach = (rises[0], rises[1]), (reaches[0], reaches[1])
    return _Terms(mass, plus, minus, rise, reach, below, lost)


@dataclass(frozen=True)
class OpposedAllocationPair:
    """sum_w p_w N(a^w, I) against sum_w p_w N(-a^w, I), labels in groups of disjoint steps.

    Args:
        batches: labels in all.
        groups: the independent terms.
        idle: labels whose batch is not used.
        beyond: mass of losses that may count as infinite.
        rough: whether grids are those of a search.
    """

    batches: int
    groups: tuple[Group, ...]
    idle: int
    beyond: float
    rough: bool

    def delta(self, gamma: float) -> float:
        """H_gamma, rounded up."""
        points = _ROUGH_POINTS if self.rough else _POINTS
        fineness = 0.08 if self.rough else 0.02
        laws = [
            (*_terms(parts, self.batches, fineness).atoms(gamma), n) for parts, n in self.groups
        ]
        lost = sum(n * _terms(p, self.batches, fineness).lost for p, n in self.groups)
        constant = self.idle / self.batches * (1 - gamma)
        budget = self.beyond / 4
        top = 0.02
        while True:  # a top for single terms, and one for their sum
            over = sum(n * float(m @ np.maximum(x - top, 0.0)) for x, m, n in laws)
            if over <= budget or top > 1e6:
                break
            top *= 1.5
        clipped = [(np.clip(x, -8 * top, top), m, n) for x, m, n in laws]
        highest = 2 * top
        while True:
            tail = self._tail(clipped, constant, highest)
            if tail <= budget or highest > 1e7:
                break
            highest *= 1.3
        lowest = (1 - gamma) - 1.5 * (highest + gamma - 1)  # sums farther below come back on top
        step = (highest - lowest) / points
        spectrum = np.ones(points // 2 + 1, dtype=complex)
        spread = relative = 0.0
        for values, masses, copies in clipped:
            place = values / step
            index = np.floor(place)
            share = np.minimum(place - index + 1e-11, 1.0)
            at = index.astype(np.int64)
            law = np.bincount(at % points, masses * (1 - share), points)
            law = law + np.bincount((at + 1) % points, masses * share, points)
            own = rfft(law)
            spectrum *= own**copies
            spread += copies * math.sqrt(float(np.sum(law * law)))
            relative += copies * (len(values) + 8) * ROUNDING
        moved = np.roll(irfft(spectrum, points), round(constant / step))
        slid = abs(constant - round(constant / step) * step)
        count = min(math.floor(highest / step) + 1, points)
        positive = step * np.arange(count)
        logs = math.log2(points)
        norm = math.sqrt(float(np.sum(moved * moved)))
        copies = sum(n for _, n in self.groups)
        noise = 16 * ROUNDING * (logs * (spread + norm) + (800 + 4 * copies) * norm)
        shape = math.sqrt(float(np.sum(positive * positive)))
        value = float(positive @ np.maximum(moved[:count], 0.0)) * (1 + 4 * relative)
        # an idle label moves the sum by a whole number of steps and less than one more
        return min(value + noise * shape + slid + lost + over + tail, 1.0)

    def _tail(
        self, laws: Sequence[tuple[Array, Array, int]], constant: float, highest: float
    ) -> float:
        """E of a sum above a value h: there x <= h e^(t (x - h)) if t h >= 1."""
        found = math.inf
        for tilt in _TILTS:
            t = tilt / highest
            log = t * constant - tilt
            for values, masses, copies in laws:
                top = float(values.max())
                log += copies * (t * top + math.log(float(masses @ np.exp(t * (values - top)))))
            found = min(found, highest * math.exp(min(log, 700.0)) * (1 + 1e-9))
        return found

    @cached_property
    def _knots(self) -> tuple[Array, Array, float]:
        """Losses, their masses in the first law, and the mass of infinite losses.

        H at increasing gamma, with its lower convex hull, is the profile of a discrete pair that
        dominates: H(1/gamma) = 1 - 1/gamma + H(gamma)/gamma, because both orders agree.
        """
        top, count = 0.05, _ROUGH_KNOTS if self.rough else _KNOTS
        while self.delta(math.exp(top)) > self.beyond and top < 60:
            top *= 1.3
        ahead = top * np.linspace(0, 1, count // 2)[1:]
        gammas = np.exp(ahead)
        values = np.array([self.delta(float(gamma)) for gamma in gammas])
        low = 1 - 1 / gammas[::-1] + values[::-1] / gammas[::-1]
        x = np.concatenate([[0.0], 1 / gammas[::-1], [1.0], gammas])
        y = np.concatenate([[1.0], low, [self.delta(1.0)], values])
        y = np.minimum(np.maximum(y * (1 + 1e-14), 1 - x), 1.0)
        inside = _lower_hull(x, y)
        x, y = x[inside], y[inside]
        slopes = np.append(np.diff(y) / np.diff(x), 0.0)
        masses = np.maximum(np.diff(slopes), 0.0) * x[1:]
        excess = max(1.0 - float(masses.sum()) - float(y[-1]), 0.0)
        return np.log(x[1:]), masses * (1 + 64 * ROUNDING), float(y[-1]) + excess + 1e-15

    @property
    def reach(self) -> float:
        """No finite loss lies farther from another."""
        return 2 * float(self._knots[0][-1])

    @cached_property
    def variance(self) -> float:
        """Variance of the finite losses."""
        losses, masses, _ = self._knots
        weights = masses / masses.sum()
        return float(weights @ (losses - weights @ losses) ** 2) + 1e-20

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        """The losses on multiples of ``grid``, rounded up; both orders agree."""
        losses, masses, infinity = self._knots
        found = joined(losses[masses > 0], masses[masses > 0], grid, infinity)
        return found, found

    def log_moments(self, tilt: float) -> tuple[float, float]:
        """Of the finite atoms; infinite losses are counted apart."""
        losses, masses, _ = self._knots
        with np.errstate(divide="ignore"):
            logs = np.log(masses) + tilt * losses
        top = float(logs.max())
        found = top + math.log(float(np.exp(logs - top).sum())) + 1e-9
        return found, found

    def renyi_moments(self, tilt: float) -> tuple[float, float]:
        """Log of E exp(tilt * loss), infinite losses included: jointly convex in both laws."""
        parts = [(labels * n, a) for every, n in self.groups for labels, a in every]
        parts += [(float(self.idle), 0.0)] if self.idle else []
        logs = [math.log(m / self.batches) + 2 * tilt * (tilt + 1) * a * a for m, a in parts]
        top = max(logs)
        found = (top + math.log(sum(math.exp(x - top) for x in logs))) * (1 + 1e-12) + 1e-12
        return found, found


def _lower_hull(x: Array, y: Array) -> list[int]:
    """Places of the lower convex hull of points with increasing x."""
    hull = list[int]()
    for k in range(len(x)):
        while len(hull) > 1:
            i, j = hull[-2:]
            if (y[j] - y[i]) * (x[k] - x[i]) <= (y[k] - y[i]) * (x[j] - x[i]):
                break
            hull.pop()
        hull.append(k)
    return hull


def curve_of(
    epochs: Sequence[Epoch], delta: float, rough: bool, rounding_drift: float = 0.0
) -> LossDistribution:
    """The composition of epochs; a tail of one step is a group whose labels pay there."""
    total = sum(epoch.copies for epoch in epochs)
    counts: dict[Pair, int] = {}
    for epoch in epochs:
        groups = list(epoch.groups)
        for tail in epoch.tails:
            ((labels, private, common),) = tail.rows
            shift = math.sqrt(private + common) * (1 + 4 * ROUNDING)
            groups.append(Group((Part(float(labels), shift),), 1))
        beyond = delta * _BEYOND / total
        pair: Pair = OpposedAllocationPair(epoch.labels, tuple(groups), epoch.idle, beyond, rough)
        if epoch.labels == 1 and len(groups) == 1 and len(groups[0].parts) == 1:
            pair = SampledPair(1.0, 0.0, 2 * groups[0].parts[0].shift * (1 + 4 * ROUNDING))
        counts[pair] = counts.get(pair, 0) + epoch.copies
    if rounding_drift:
        counts[SampledPair(1.0, 0.0, 2 * rounding_drift)] = 1
    return LossDistribution(counts)


# --- the theorems --------------------------------------------------------------------------------


def replace_limits(run: Run) -> str | None:
    """What is special about it: the length of a gradient, and sizes up to which laws are known."""
    reason = allocation.allocation_limits(run)
    if reason is None and not math.isfinite(run.training.gradient_norm):
        return "it needs a bound on the length of a gradient (gradient_norm)"
    return reason


def _unprotected(run: Run) -> Proof | None:
    used = poisson.lengths(run) > 0
    if not run.training.steps or not np.any(used):
        return Proof(LossDistribution({}))
    nu = run.training.noises if len(used) > 1 else run.training.noises[:1]
    return Proof(Gaussian(math.inf)) if np.any(nu[used] <= 0) else None


def _with_gaussian(at: Callable[[float], Proof], ratio: float, epochs: int) -> Proof:
    """The dearest label of both worlds in every epoch, where it is cheaper or all there is."""
    alone = Proof(Gaussian(2 * ratio * math.sqrt(epochs) * (1 + 2**-48)))

    def chosen(delta: float) -> Proof:
        if not allocation.LEAST <= ratio <= MOST:
            return alone
        return min(at(delta), alone, key=lambda proof: proof.curve.epsilon(delta))

    return Proof.searched(chosen)


def _dearest(run: Run) -> float:
    """The largest length of a gradient step, in units of the noise."""
    h = poisson.lengths(run)
    return float(np.max(h / run.training.noises[: len(h)])) * (1 + 2**-48)


def replace_composition_bound(run: Run) -> Proof:
    """All iterates public."""
    known = _unprotected(run)
    if known is not None:
        return known
    ratio = _dearest(run)
    epochs = allocation.public_epochs(run, ratio)
    number = -(-run.training.steps // run.batches)
    return _with_gaussian(lambda delta: Proof(curve_of(epochs, delta, False)), ratio, number)


def replace_paths_limits(run: Run) -> str | None:
    """What is special about it: as for `allocation`, and picks that are made anew."""
    reason = replace_limits(run)
    batches = run.training.batches
    assert isinstance(batches, RandomAllocation)
    if reason is None and batches.same_every_epoch and run.training.steps > run.batches:
        return "of picks that are the same in every epoch it covers one epoch"
    return reason or allocation.lipschitz_limits(run)


def replace_paths_bound(run: Run) -> Proof:
    """Released and last iterates: blocks that shrink towards a release."""
    known = _unprotected(run)
    if known is not None:
        return known
    number = -(-run.training.steps // run.batches)
    return _with_gaussian(lambda delta: _paths_at(run, delta), _dearest(run), number)


@dataclass(eq=False)
class _BlockSearch(allocation.Search):
    """Blocks alone: a tail of one step."""

    def _curve(self, terms: list[Epoch], rough: bool, drift: float = 0.0) -> LossDistribution:
        return curve_of(terms, self.delta, rough, drift)

    def _starts(self) -> Sequence[PaymentChoice]:
        every = [choice._replace(tail=1, kappa=math.inf) for choice in super()._starts()]
        return [
            choice._replace(last=last, growth=growth)
            for choice in dict.fromkeys(every)
            for last, growth in ((1, 1.2), (1, 2.0), (choice.last, choice.growth))
        ]

    def _moved(self, now: PaymentChoice, place: int, factor: float, up: bool) -> PaymentChoice:
        frozen = PaymentChoice._fields[place] in ("tail", "kappa")
        return now if frozen else super()._moved(now, place, factor, up)


def _paths_at(run: Run, delta: float) -> Proof:
    contraction, _, failure = poisson.batch_contraction(run, delta)
    rest, drift = delta - failure, float(np.max(run.rounding_drifts))
    laps = allocation.laps_of(run, contraction, poisson.lengths(run))
    search = _BlockSearch(laps, run.batches, rest, run.training.diameter, drift)

    def rounded(plan: PaymentPlan, own: list[Lap]) -> float:
        return allocation.rounded_shift(own, plan.share, drift)

    found = search.best(rounded)
    curve = found.curve
    return Proof(WithFailure(curve, failure) if failure else curve)


ALLOCATION_REPLACE_COMPOSITION = Theorem(
    key="allocation-replace-composition",
    name="Random allocation, replace",
    reference="this library, docs/theory/allocation.md",
    statement=(
        "With gradients of length at most K and r the largest eta K/(size nu), an epoch is "
        "dominated by (1/B) sum_j N(r e_j, I) against (1/B) sum_j N(-r e_j, I). Epochs in which "
        "records pick anew compose; picks for the whole run have r sqrt(E)."
    ),
    schemes=(RandomAllocation,),
    bound=replace_composition_bound,
    limits=replace_limits,
    supports=PUBLIC - {"zero-out"},
    assumptions=("independent uniform picks that stay secret", "replace adjacency"),
    hidden_state=False,
)

ALLOCATION_REPLACE_PATHS = Theorem(
    key="allocation-replace-paths",
    name="Random allocation, replace, deferred",
    reference="this library, docs/theory/allocation.md",
    statement=(
        "For each label w let z^w be a path as in allocation-deferral, for the impulse eta K/size "
        "of one record. The run is dominated by sum_w p_w N(a^w, I) against sum_w p_w N(-a^w, I). "
        "Labels are deferred in blocks. c_k must hold for every realised batch; batches larger "
        "than a cap are paid for in delta."
    ),
    schemes=(RandomAllocation,),
    bound=replace_paths_bound,
    limits=replace_paths_limits,
    supports=ANY_UPDATE - {"zero-out", "proximal"} | {"releases"},
    assumptions=(
        "independent uniform picks that stay secret",
        "replace adjacency",
        "updates are Lipschitz for every realised batch",
    ),
)
