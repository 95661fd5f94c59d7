"""Poisson batches, a record zeroed out: coins that pay together in the next block of steps.

*Statement* (docs/theory/allocation.md). The label of the run with the record is the set of steps
that use it, and paths may depend on it. Cut the steps between releases into blocks. The coins of a
block, all but its first one, and the first coin of the next block pay in the next block, along one
direction: i of m coins shift it by at most i a, so that the block is dominated, in both orders, by
sum_i Bin(m, q)(i) N(i a, 1) against N(0, 1). Coins of different blocks are independent and their
payments use disjoint steps: blocks compose.

`poisson-deferral` charges one path to all labels, which needs an L2 term; here nothing has to
shrink.
"""

from __future__ import annotations

import math

import numpy as np

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.group_pair import GroupPair
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ROUNDING, Pair, SampledPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import Poisson
from lastiterate.theory import allocation
from lastiterate.theory.allocation import Lap, PaymentPlan, SegmentPlan
from lastiterate.theory.allocation_law import Part
from lastiterate.theory.dynamics import alike
from lastiterate.theory.poisson import batch_contraction, nothing_forgotten, poisson_limits
from lastiterate.theory.registry import ANY_UPDATE, PRESENCE, Proof, Theorem
from lastiterate.theory.run import Run

MOST_STEPS = 200_000  # whose blocks are listed
# The largest block, and by how much blocks grow backwards from a release: what is tried, in order.
_CHOICES = ((5, 1.6), (3, 1.6), (10, 1.6), (20, 1.3))
_USUAL_DELTA = 1e-6


def lap_of(run: Run, c: np.ndarray) -> Lap:
    """All steps of a run as one lap."""
    steps = run.training.steps
    values = [c, run.step_sensitivities, run.training.noises]
    c, s, nu = (np.full(steps, x[0]) if len(x) == 1 or alike(x) else x for x in values)
    ends = sorted({*run.releases, *range(run.hidden_steps, steps + 1)})
    return Lap(np.maximum(c, allocation.LEAST_FACTOR), s, nu, tuple(ends), 1)


def blocks_of(steps: int, size: int, growth: float) -> tuple[int, ...]:
    """Blocks of a segment that shrink towards its end; the last step is a block of its own."""
    sizes, rest, now = list[int](), steps - 1, 1.0
    while rest > 0:
        sizes.append(min(round(now), size, rest))
        rest -= sizes[-1]
        now = max(now * growth, now + 0.5)
    return tuple(sizes[::-1])


def curve_of(
    lap: Lap, rate: float, size: int, growth: float, rounding_drift: float
) -> LossDistribution:
    """The composition of all blocks; ``rounding_drift``: what rounding adds to every step."""
    segments = tuple(
        SegmentPlan(blocks_of(end - begin, size, growth), 1) for begin, end in lap.segments
    )
    plan = PaymentPlan(((segments, 1),), math.inf)
    (epoch,) = allocation.epochs_of([lap], plan, len(lap.c))
    coins = [(parts, n) for parts, n in epoch.groups]
    for tail in epoch.tails:
        ((labels, private, common),) = tail.rows
        shift = math.sqrt(private + common) * (1 + 4 * ROUNDING)
        coins.append(((Part(float(labels), shift),), 1))
    drift = 0.0
    if rounding_drift:
        drift = rounding_drift / float(lap.nu.min()) * math.sqrt(size) * (1 + 8 * ROUNDING)
    counts: dict[Pair, int] = {}
    for parts, n in coins:
        many = round(sum(labels for labels, _ in parts))
        shift = max(a for _, a in parts)
        pair: Pair = GroupPair(rate, many, drift, drift + shift, shift)
        if many == 1:
            pair = SampledPair(rate, drift, drift + shift)
        counts[pair] = counts.get(pair, 0) + n
    return LossDistribution(counts)


def poisson_blocks_limits(run: Run) -> str | None:
    """What is special about it: steps are accounted one by one, and none may be too steep."""
    reason = poisson_limits(run)
    if reason is not None:
        return reason
    if run.training.steps > MOST_STEPS:
        return f"blocks of more than {MOST_STEPS:,} steps are not listed"
    if run.contraction is None:
        return "it needs a smooth loss"
    if nothing_forgotten(run) is None:
        return "where something shrinks, Poisson deferral is searched instead"
    if not np.all(batch_contraction(run, _USUAL_DELTA)[0] <= 1.0):
        return "its updates may expand, so that debts grow until they are paid"
    return None


def poisson_blocks_bound(run: Run) -> Proof:
    """Blocks chosen for each delta."""
    used = run.step_sensitivities > 0
    if not np.any(used):
        return Proof(LossDistribution({}))
    nu = run.training.noises if len(used) > 1 else run.training.noises[:1]
    if np.any(nu[used] <= 0):
        return Proof(Gaussian(math.inf))
    return Proof.searched(lambda delta: _blocks_at(run, delta))


def _blocks_at(run: Run, delta: float) -> Proof:
    contraction, _, failure = batch_contraction(run, delta)
    lap, rest = lap_of(run, contraction), delta - failure
    drift = float(np.max(run.rounding_drifts))
    best = _CHOICES[0]
    least = curve_of(lap, run.rate, *best, drift).epsilon(rest)
    value = curve_of(lap, run.rate, *best, drift).rough_delta(least)
    for choice in _CHOICES[1:]:
        found = curve_of(lap, run.rate, *choice, drift).rough_delta(least)
        if found < value:
            best, value = choice, found
        elif choice[0] > best[0]:
            break
    curve = curve_of(lap, run.rate, *best, drift)
    return Proof(WithFailure(curve, failure) if failure else curve)


POISSON_BLOCKS = Theorem(
    key="poisson-blocks",
    name="Poisson blocks",
    reference="this library, docs/theory/allocation.md",
    statement=(
        "Paths may depend on the set of steps that use the record. The coins of a block, all but "
        "its first one, and the first coin of the next block pay in the next block: m coins with "
        "shifts of at most a are dominated, in both orders, by sum_i Bin(m, q)(i) N(i a, 1) "
        "against N(0, 1), and blocks compose. c_k must hold for every realised batch; batches "
        "larger than a cap are paid for in delta."
    ),
    schemes=(Poisson,),
    bound=poisson_blocks_bound,
    limits=poisson_blocks_limits,
    supports=ANY_UPDATE - {"replace", "proximal"} | PRESENCE | {"releases"},
    assumptions=(
        "Poisson batches that stay secret",
        "zero-out adjacency",
        "updates are Lipschitz for every realised batch",
    ),
)
