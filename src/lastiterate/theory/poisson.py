"""Poisson batches: composition and the hidden state, a record zeroed out or replaced.

The numerics live in `poisson_paths` (zero-out) and `without_replacement` (absorption). The divisor
of a Poisson batch is nominal, so a crowded batch has more curvature than the loss and an empty one
none: only the data-free L2 term contracts. Where a record is replaced by another, it enters a batch
by one coin in both worlds, and a step compares (1-q) N(0) + q N(h) with (1-q) N(0) + q N(h'), two
gradients of bounded length; they are worst when they are opposite, in any dimension
(docs/theory/poisson.md). A pair needs the length of a gradient, not only how far two of them can be
apart: the third law of a step is a batch without the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate.curves.group_pair import GroupPair
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ROUNDING, OpposedPair, Pair, ReplacedPair, SampledPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import Poisson
from lastiterate.errors import DescriptionError
from lastiterate.theory import dynamics, poisson_paths, without_replacement
from lastiterate.theory.dynamics import Array, Steps
from lastiterate.theory.poisson_paths import second_moment
from lastiterate.theory.registry import ANY_UPDATE, PRESENCE, PUBLIC, Proof, Theorem
from lastiterate.theory.run import Run
from lastiterate.theory.without_replacement import (
    SEARCHED,
    Absorbed,
    PairOf,
    best_segments,
    offers,
    path_from,
    plain,
    restarted,
)

MOST_COINS = 30  # of a person with several records
MOST_STEPS = 10**7  # per-step schedules beyond this are not accounted one by one
_FAILURE_SHARE = 1e-3  # of delta, spent on batches larger than any that was allowed for
_STEEPEST = 1e6  # an update that expands more forgets nothing, and its powers leave the doubles


# --- a record zeroed out ------------------------------------------------------------------------


def menu(curve: LossDistribution) -> list[list[float]]:
    """The shifts that steps are charged as, cheapest first: part of a witness.

    Without the record and with it, or with none, with one, and what each further one adds.
    """
    pairs = [pair for pair in curve.counts if isinstance(pair, SampledPair | GroupPair)]
    pairs = [pair for pair in pairs if math.isfinite(pair.high)]  # the others prove nothing
    pairs.sort(key=lambda x: float(second_moment(x.rate, np.array(x.low), np.array(x.high))))
    gaps = [[pair.gap] if isinstance(pair, GroupPair) else [] for pair in pairs]
    return [[pair.low, pair.high, *gap] for pair, gap in zip(pairs, gaps, strict=True)]


def poisson_limits(run: Run) -> str | None:
    """What is special about it: coins and steps are accounted one by one."""
    if run.unit.records > MOST_COINS:
        return f"it follows the coins of at most {MOST_COINS} records of a person"
    if not run.steps.constant and run.steps.count > MOST_STEPS:
        return f"schedules of more than {MOST_STEPS:,} steps are not accounted one by one"
    return None


def poisson_composition_bound(run: Run) -> Proof:
    """The composition of the coins, all iterates public."""
    curve = _published(run.steps, run.rate, run.unit.records)
    return Proof(curve, {"menu": menu(curve)})


def _published(steps: Steps, rate: float, records: int) -> LossDistribution:
    if not steps.count:
        return LossDistribution.nothing()
    return poisson_paths.plain_group_curve(steps, rate, records)


def poisson_deferral_limits(run: Run) -> str | None:
    """What is special about it: something must be forgotten, whatever the batch."""
    return poisson_limits(run) or nothing_forgotten(run)


def poisson_deferral_bound(run: Run) -> Proof:
    """Paths chosen for each delta."""
    return Proof.searched(lambda delta: _paths_at(run, delta))


def _paths_at(run: Run, delta: float) -> Proof:
    proofs = [_restarted_paths(run, delta)] if math.isfinite(run.training.diameter) else []
    if _smooth(run) and not (proofs and _forgets_only_by_restarts(run, delta)):
        proofs.append(_common_paths(run, delta))
    return min(proofs, key=lambda proof: proof.curve.epsilon(delta))


def _forgets_only_by_restarts(run: Run, delta: float) -> bool:
    """Equal steps that do not contract, and are a diameter apart before any of them pays."""
    steps = run.steps
    if not steps.constant or np.any(batch_contraction(run, delta)[0] < 1.0):
        return False
    if run.training.adjacency == "zero-out":
        return True  # nothing is gained by deferring what does not shrink
    shortest = min((last - first for first, last in run.hidden_segments), default=0)
    return float(steps.s[0]) * (shortest - SEARCHED) >= run.training.diameter


def _common_paths(run: Run, delta: float) -> Proof:
    """Linear updates; every step of the run counts as one whose batch may be too large."""
    contraction, cap, failure = batch_contraction(run, delta)
    steps = run.having(c=contraction)
    window = _published(steps[run.hidden_steps :], run.rate, run.unit.records)
    parts = [steps[first:last] for first, last in run.hidden_segments]
    given = run.unit.records, delta, run.training.diameter
    found = poisson_paths.best_segments(parts, run.rate, *given, window)
    segments = list[dict[str, Any]]()
    for (first, last), bound in zip(run.hidden_segments, found, strict=True):
        path = {} if bound.path is None else {"z": bound.path.left}
        segments.append({"first": first, "last": last, **path})
    curve = window.compose(*(bound.curve for bound in found))
    witness = {"cap": cap, "segments": segments, "menu": menu(curve)}
    return Proof(WithFailure(curve, failure) if failure else curve, witness)


def sampled_pair(rate: float, records: int) -> PairOf:
    """The pair of a step that also absorbs a payment, a record of a person zeroed out.

    (1-q) N(a) + q N(s + a) against N(0): Theorem M2 with u_k = a_k >= 0 (docs/theory/poisson.md).
    """

    def pair(step_sensitivity: float, pay: float) -> Pair:
        high = (step_sensitivity + pay) * (1 + (ROUNDING if pay else 0.0))
        if records == 1:
            return SampledPair(rate, pay, high)
        return GroupPair(rate, records, pay, high, step_sensitivity)

    return pair


def _restarted_paths(run: Run, delta: float) -> Proof:
    """Paths from the diameter, under any modulus."""
    rate, records = run.rate, run.unit.records
    window = _published(run.steps[run.hidden_steps :], rate, records)
    found = _restarted(run, run.steps, sampled_pair(rate, records), delta)
    segments = found.witnessed(run)
    curve = window.compose(*(part.curve for part in found.parts))
    witness = {"cap": found.cap, "segments": segments, "menu": menu(curve)}
    return Proof(WithFailure(curve, found.failure) if found.failure else curve, witness)


@dataclass(frozen=True)
class _Restarted:
    """What each segment is charged for, and what batches larger than the cap may cost."""

    parts: list[Absorbed]
    steps: Steps
    cap: int
    failure: float

    @property
    def paying(self) -> int:
        """The most steps of a segment that absorb something."""
        return max((part.tail for part in self.parts if part.pays is not None), default=0)

    def witnessed(self, run: Run) -> list[dict[str, Any]]:
        """The segments of a witness, with their paths from the diameter."""
        rows = list[dict[str, Any]]()
        for (first, last), part in zip(run.hidden_segments, self.parts, strict=True):
            rows.append({"first": first, "last": last})
            if part.pays is not None:
                paying = self.steps[last - part.tail : last]
                rows[-1]["z"] = path_from(paying, run.training.diameter, part.pays)
        return rows

    def epsilon(self, delta: float) -> float:
        """What all segments cost together."""
        if not self.failure < delta:
            return math.inf
        curve = LossDistribution.nothing().compose(*(part.curve for part in self.parts))
        return curve.epsilon(delta - self.failure)


def _restarted(run: Run, steps: Steps, pair_of: PairOf, delta: float) -> _Restarted:
    """Payments from the diameter: only the sizes of batches of paying steps play a part.

    How many steps pay is known after a search; fewer steps have a smaller cap, for another one.
    """
    segments, diameter = run.hidden_segments, run.training.diameter
    nominal = run.training.batches.divisor(run.training.records)

    def looking_back(most: int) -> _Restarted:
        cap, failure = batch_cap(run, delta, most * len(segments))
        moduli = run.moduli(cap / nominal * dynamics.ROUNDING)
        under = steps.under(*moduli)
        parts = [restarted(pair_of, under[a:b], delta, diameter, most) for a, b in segments]
        return _Restarted(parts, under, cap, failure)

    longest = max((last - first for first, last in segments), default=0)
    found = looking_back(min(longest, SEARCHED))
    if 0 < found.paying <= longest // 4:
        found = min(found, looking_back(found.paying), key=lambda each: each.epsilon(delta))
    return found


def batch_cap(run: Run, delta: float, steps: int) -> tuple[int, float]:
    """A size that all batches of some steps stay below except with a small share of delta."""
    records, failure = run.training.records, delta * _FAILURE_SHARE
    rate = run.training.batches.share(records)
    cap = poisson_paths.batch_cap(records, rate, steps, failure)
    return cap, failure if cap < records else 0.0


def nothing_forgotten(run: Run) -> str | None:
    """Why Poisson batches may forget nothing of what earlier steps left over, or None."""
    if math.isfinite(run.training.diameter):
        known = dynamics.modulus(run.etas, run.training, run.curving)
        if known is None and not _smooth(run):
            return dynamics.no_modulus(run.training, run.curving) or dynamics.OUT_OF_RANGE
        return None
    if not _smooth(run):
        return "it needs a smooth loss or a bounded domain"
    if run.loss.regularization:
        return None
    return (
        "without an L2 term (regularization) and without a bounded domain an empty batch "
        "forgets nothing"
    )


def _smooth(run: Run) -> bool:
    """Whether every update has a usable Lipschitz constant, even if a batch holds all records."""
    if run.contraction is None:
        return False
    crowded = (run.loss.smoothness or 0.0) / run.training.batches.divisor(run.training.records)
    with np.errstate(over="ignore"):
        steepest = run.contraction + run.etas * crowded * run.training.records
    return bool(np.all(steepest <= _STEEPEST))


def batch_contraction(run: Run, delta: float) -> tuple[Array, int, float]:
    """c of every step for all batches up to a cap, the cap, and what a larger batch may cost.

    The curvature a step sees lies between 0 and smoothness·cap/(rate·n). The cap is n if that
    costs nothing, else the size that all batches stay below except with a small share of delta.
    """
    training, loss = run.training, run.loss
    nominal = training.batches.divisor(training.records)

    def at(cap: int) -> Array:
        seen = dynamics.crowded(loss, cap / nominal)
        c = dynamics.contraction(run.etas, seen, training.clipping)
        assert c is not None
        return c

    certain = at(training.records)
    if np.all(certain <= np.abs(1 - run.etas * loss.regularization) * dynamics.ROUNDING):
        return certain, training.records, 0.0
    cap, failure = batch_cap(run, delta, training.steps)
    return at(cap), cap, failure


# --- a record replaced by another -----------------------------------------------------------------


def opposed_pair(rate: float) -> PairOf:
    """The pair of a step with gradients of a given length that also absorbs a payment.

    *Statement.* As in `opposed_curve`, f_k and f_k + h_k c_k-Lipschitz for every realised batch (so
    that every batch map under one data set is), |h_k - h'_k| <= gap_k. For any tau, z_tau >=
    min(D_tau, diameter) with D_{t+1} = c D_t + gap, a_t >= 0 with z_{t+1} = c_t z_t - a_t >= 0 and
    z_T = 0: the run is dominated, in both orders, by the composition over t >= tau of
    (1-q) N(a_t) + q N(s_t + a_t) against (1-q) N(0) + q N(-s_t), in units of the noise.

    Proof: docs/theory/poisson.md. Status: sound.

    >>> from lastiterate.theory.without_replacement import best
    >>> run = Steps(0.99, 1.0, 1.0, 1000, gap=2.0)
    >>> best(opposed_pair(0.01), run, delta=1e-6).tail < 1000
    True
    """
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a probability")

    def pair(length: float, pay: float) -> OpposedPair:
        return OpposedPair(rate, pay, (length + pay) * (1 + (ROUNDING if pay else 0.0)), length)

    return pair


def opposed_curve(steps: Steps, rate: float) -> LossDistribution:
    """Plain composition, all iterates published.

    *Statement.* X_{k+1} = f_k(X_k) + xi_k h_k(X_k) + N(0, nu_k^2 I) with xi_k ~ Bernoulli(rate),
    X' the same with h'_k; |h_k|, |h'_k| <= s. The run is dominated, in both orders, by the
    composition of (1-q) N(0) + q N(s/nu) against (1-q) N(0) + q N(-s/nu), on the line.

    *Proof idea.* H_gamma is E((1-q)(1-gamma) + q L_h - gamma q L_h')_+ under N(0, I), with
    lognormal likelihood ratios L whose laws depend on the lengths alone. A convex function of a
    sum is largest when the summands q L_h and -gamma q L_h' are comonotone, which opposite
    gradients make them, and it grows with each length. Status: sound.

    >>> round(opposed_curve(Steps(1.0, 1.0, 1.0, 1000), rate=0.01).epsilon(1e-6), 3)
    3.214
    """
    return plain(opposed_pair(rate), steps)


def lengths(run: Run) -> Array:
    """h: how far the record alone moves a batch that holds it, rounding included, rounded up."""
    return dynamics.step_sensitivities(run.etas, run.training, run.training.gradient_norm)


def closer(run: Run) -> bool:
    """Whether the two gradients are declared to be closer than opposite ones could be."""
    return run.training.sensitivity < 2 * run.training.gradient_norm


def poisson_replace_limits(run: Run) -> str | None:
    """What is special about it: a pair needs the length of a gradient."""
    reason = poisson_limits(run)
    if reason is None and not math.isfinite(run.training.gradient_norm):
        return "it needs a bound on the length of a gradient (gradient_norm)"
    return reason


def published(run: Run, first: int, last: int, delta: float) -> LossDistribution:
    """Every step paid for: opposite gradients or, if these are declared closer, the better one.

    Gradients no longer than h and no farther apart than s also have, by advanced joint convexity,
    the profile of a batch without replacement with shift max(h, s), in both orders.
    """
    if last <= first or not np.any(run.step_sensitivities > 0.0):
        return LossDistribution.nothing()
    rate = run.training.batches.share(run.training.records)
    h = lengths(run)
    opposed = opposed_curve(run.having(s=h)[first:last], rate)
    if not closer(run):
        return opposed
    longer = run.having(s=np.maximum(h, run.step_sensitivities))
    near = without_replacement.plain_curve(longer[first:last], rate)
    return min(opposed, near, key=lambda curve: curve.epsilon(delta))


def _near(curve: LossDistribution) -> bool:
    """Whether steps are charged as gradients close together, not as opposite ones."""
    return any(isinstance(pair, ReplacedPair) for pair in curve.counts)


def poisson_replace_composition_bound(run: Run) -> Proof:
    """The composition of opposite gradients, all iterates public."""

    def at(delta: float) -> Proof:
        curve = published(run, 0, run.training.steps, delta)
        return Proof(curve, {"menu": offers(curve), "near": _near(curve)})

    return Proof.searched(at) if closer(run) else at(1e-5)


def poisson_replace_absorption_limits(run: Run) -> str | None:
    """What is special about it: something must be forgotten, whatever the batch."""
    return poisson_replace_limits(run) or nothing_forgotten(run)


def poisson_replace_absorption_bound(run: Run) -> Proof:
    """Segments, horizons and payments chosen for each delta."""
    return Proof.searched(lambda delta: _absorption_at(run, delta))


def _absorption_at(run: Run, delta: float) -> Proof:
    proofs = [_restarted_absorption(run, delta)] if math.isfinite(run.training.diameter) else []
    if _smooth(run) and not (proofs and _forgets_only_by_restarts(run, delta)):
        proofs.append(_common_absorption(run, delta))
    return min(proofs, key=lambda proof: proof.curve.epsilon(delta))


def _restarted_absorption(run: Run, delta: float) -> Proof:
    """Payments from the diameter, under any modulus."""
    tail = published(run, run.hidden_steps, run.training.steps, delta)
    found = _restarted(run, run.having(s=lengths(run)), opposed_pair(run.rate), delta)
    segments, curves = found.witnessed(run), [tail]
    for row, part in zip(segments, found.parts, strict=True):
        if part.pays is None:
            curves.append(published(run, row["first"], row["last"], delta))
            row["near"] = _near(curves[-1])
        else:
            curves.append(part.curve)
    curve = LossDistribution.nothing().compose(*curves)
    witness = {"cap": found.cap, "segments": segments, "menu": offers(curve), "near": _near(tail)}
    return Proof(WithFailure(curve, found.failure) if found.failure else curve, witness)


def _common_absorption(run: Run, delta: float) -> Proof:
    """Linear updates; every step of the run counts as one whose batch may be too large."""
    training = run.training
    contraction, cap, failure = batch_contraction(run, delta)
    steps = run.having(c=contraction, s=lengths(run), gap=run.step_sensitivities)
    tail = published(run, run.hidden_steps, training.steps, delta)
    near = (lambda first, last: published(run, first, last, delta)) if closer(run) else None
    parts = best_segments(
        opposed_pair(run.rate), steps, run.hidden_segments, delta, training.diameter, tail, near
    )
    segments = [
        {**row, "near": _near(part.found.curve)} if part.found.pays is None else row
        for row, part in zip(
            without_replacement.witnessed(steps, parts, training.diameter), parts, strict=True
        )
    ]
    curve = tail.compose(*(part.found.curve for part in parts))
    witness = {"cap": cap, "segments": segments, "menu": offers(curve), "near": _near(tail)}
    return Proof(WithFailure(curve, failure) if failure else curve, witness)


POISSON_COMPOSITION = Theorem(
    key="poisson-composition",
    name="Poisson composition (Zhu, Dong & Wang 2022)",
    reference="sampled Gaussian mechanism; Zhu, Dong & Wang 2022; privacy-loss distributions",
    statement=(
        "Each update is dominated by (1-q) N(0, 1) + q N(s/nu, 1) against N(0, 1), in both orders; "
        "the run by their composition. k records of a person have a coin each: sum over i of "
        "Bin(k, q)(i) N(i s/nu, 1) against N(0, 1)."
    ),
    schemes=(Poisson,),
    bound=poisson_composition_bound,
    limits=poisson_limits,
    supports=PUBLIC - {"replace"} | PRESENCE | {"records"},
    assumptions=("Poisson batches that stay secret", "zero-out adjacency"),
    hidden_state=False,
)

POISSON_DEFERRAL = Theorem(
    key="poisson-deferral",
    name="Poisson deferral",
    reference="this library, docs/theory/poisson.md",
    statement=(
        "For z_0 = 0 (or z_tau = diameter), z_k >= 0, z_T = 0 and u_k = g_k(z_k) - z_{k+1} >= -s_k "
        "the run is dominated, in both orders, by the composition of (1-q) N(max(u_k, 0), nu_k^2) "
        "+ q N(s_k + u_k, nu_k^2) against N(0, nu_k^2). The modulus g_k must hold for every "
        "realised batch: only the L2 term contracts, and batches larger than a cap are paid for in "
        "delta. k records of a person: sum over i of Bin(k, q)(i) N(max(i s_k + u_k, 0), nu_k^2) "
        "against N(0, nu_k^2)."
    ),
    schemes=(Poisson,),
    bound=poisson_deferral_bound,
    limits=poisson_deferral_limits,
    supports=ANY_UPDATE - {"replace"} | PRESENCE | {"releases", "records"},
    assumptions=(
        "Poisson batches that stay secret",
        "zero-out adjacency",
        "updates have a known modulus of continuity for every realised batch",
    ),
)

POISSON_REPLACE_COMPOSITION = Theorem(
    key="poisson-replace-composition",
    name="Poisson replace composition",
    reference="this library, docs/theory/poisson.md; double mixtures as in dp-accounting",
    statement=(
        "With gradients of length at most K, h = eta K/(rate n), each update is dominated by (1-q) "
        "N(0, 1) + q N(h/nu, 1) against (1-q) N(0, 1) + q N(-h/nu, 1), in any dimension and both "
        "orders; the run by their composition."
    ),
    schemes=(Poisson,),
    bound=poisson_replace_composition_bound,
    limits=poisson_replace_limits,
    supports=PUBLIC - {"zero-out"},
    assumptions=("Poisson batches that stay secret", "replace adjacency"),
    hidden_state=False,
)

POISSON_REPLACE_ABSORPTION = Theorem(
    key="poisson-replace-absorption",
    name="Poisson replace absorption",
    reference="this library, docs/theory/poisson.md",
    statement=(
        "For a horizon tau, z_tau >= min(D_tau, diameter) with D_{t+1} = g_t(D_t) + s, a_t >= 0 "
        "with z_{t+1} = g_t(z_t) - a_t >= 0, z_T = 0: the run is dominated, in both orders, by the "
        "composition over t >= tau of (1-q) N(a_t) + q N(h_t + a_t) against (1-q) N(0) + q "
        "N(-h_t), in units of the noise. The modulus g_t must hold for every realised batch: only "
        "the L2 term contracts, and batches larger than a cap are paid for in delta."
    ),
    schemes=(Poisson,),
    bound=poisson_replace_absorption_bound,
    limits=poisson_replace_absorption_limits,
    supports=ANY_UPDATE - {"zero-out"} | {"releases"},
    assumptions=(
        "Poisson batches that stay secret",
        "replace adjacency",
        "updates have a known modulus of continuity for every realised batch",
    ),
)
