"""What the fast path leaves behind for the verifier: one entry per theorem.

A theorem whose bound depends on shifts, levels or paths hands them over as the witness, together
with the curve that belongs to exactly this witness. Theorems without free parameters need none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from lastiterate.bounds import (
    poisson,
    poisson_replace,
    replaced_in_poisson,
    without_replacement,
)
from lastiterate.bounds.boundary_levels import Levels, LevelSearch
from lastiterate.bounds.coupling import Coupling, StoppedCoupling, stopped_delta
from lastiterate.bounds.dynamics import Array
from lastiterate.bounds.epoch_costs import epoch_costs
from lastiterate.bounds.ledger import Bound, Run
from lastiterate.bounds.ordered_batches import paths_pay, position_paths
from lastiterate.bounds.reshuffled import reshuffled
from lastiterate.bounds.sampled_batches import (
    batch_share,
    drifts,
    farthest,
    poisson_contraction,
    pushes,
)
from lastiterate.bounds.shifted_interpolation import ShiftedInterpolation
from lastiterate.curves.base import Curve
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.mixture import Mixture
from lastiterate.curves.pairs import OpposedPair, ReplacedPair, SampledPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import Poisson
from lastiterate.verifier.coupled import MOST_CELLS, WIDEST

Evidence = tuple[dict[str, Any], Curve]
Collector = Callable[[Run, Bound, float], Evidence]

_CELLS_PER_NOISE, _FEWEST_CELLS = 30, 256  # of the grid that a coupling is checked on
_ROOM = 3e-4


def _as_found(run: Run, bound: Bound, delta: float) -> Evidence:
    return dict(bound.witness), bound.curve


def _nothing(run: Run, bound: Bound, delta: float) -> Evidence:
    return {}, bound.curve


class _Coupled(Curve):
    """The coupling curve at one delta, and on a coarse list of epsilons at all others.

    The verifier rounds in its own way: the room for that is left here.
    """

    def __init__(self, curve: Coupling, delta: float) -> None:
        self._curve, self._delta, self._epsilon = curve, delta, curve.epsilon(delta)
        shares = np.concatenate([np.linspace(0.5, 1.0, 8), np.geomspace(1.05, 3.0, 16)])
        self._epsilons = self._epsilon * shares
        bounds = stopped_delta(curve.problem, self._epsilons)
        self._deltas = np.minimum.accumulate(bounds) * (1 + _ROOM)

    def epsilon(self, delta: float) -> float:
        string = self._curve.string.epsilon(delta)
        if delta == self._delta:
            return min(self._epsilon * (1 + _ROOM), string)
        held = self._epsilons[self._deltas <= delta]
        return min(float(held[0]), string) if len(held) else string

    def delta(self, epsilon: float) -> float:
        return self._curve.delta(epsilon)

    def rdp(self, order: float) -> float:
        return self._curve.rdp(order)


def _coupling(run: Run, bound: Bound, delta: float) -> Evidence:
    assert isinstance(bound.curve, Coupling)
    training = run.training
    wanted = _CELLS_PER_NOISE * training.diameter / float(training.noises[0])
    cells = min(max(math.ceil(wanted), _FEWEST_CELLS), MOST_CELLS)
    string = ShiftedInterpolation().prove(run)
    return {**string.witness, "cells": cells}, _Coupled(bound.curve, delta)


def checkable(run: Run, bound: Bound) -> bool:
    """Whether the verifier can follow: the coupling bound only where all steps are alike."""
    if bound.theorem.key != StoppedCoupling.key:
        return bound.theorem.key in EVIDENCE
    assert run.contraction is not None
    noise = float(run.training.noises[0])
    narrow = run.training.diameter + float(run.impulses[0]) < WIDEST * noise / 2
    return run.training.constant and bool(run.contraction[0] <= 1) and narrow


def _positions(run: Run, bound: Bound, delta: float) -> Evidence:
    """The verifier pools positions itself, except where only a search finds good shifts."""
    if not paths_pay(run):
        return {}, bound.curve
    paths = [{"shifts": path.shifts, "restart": path.restart} for path in position_paths(run)]
    return {"paths": paths}, bound.curve


def _levels(run: Run, bound: Bound, delta: float) -> Evidence:
    """The levels of the policy, and others whose worst sequence is cheap: they cap the sum."""
    training = run.training
    assert run.contraction is not None
    c, s, nu = run.over_steps(run.contraction), run.over_steps(run.impulses), training.noises
    batches = training.batches_per_epoch or 1
    policy = reshuffled(
        c,
        s,
        nu,
        batches,
        delta=delta,
        diameter=training.diameter,
        releases=run.releases[:-1],
        window=run.window,
    )
    curve = Mixture(policy.mus, policy.weights)
    cap = _cheapest_worst(run, Levels(policy.levels, policy.pays), c, s, nu)
    witness = {
        "levels": policy.levels,
        "pays": policy.pays.astype(float),
        "cap_levels": cap.zeta,
        "cap_pays": cap.pays.astype(float),
    }
    return witness, curve


def _cheapest_worst(run: Run, found: Levels, c: Array, s: Array, nu: Array) -> Levels:
    batches = run.training.batches_per_epoch or 1
    end = run.training.steps - run.window + 1
    ends = [0, *(step // batches for step in run.releases[:-1] if step < end), -(-end // batches)]
    cuts = sorted({*ends, -(-run.training.steps // batches)})
    if not (len(found.pays) == cuts[-1] and np.any(s > 0) and np.any(nu > 0)):
        return found
    costs = epoch_costs(c, s, nu, batches, end)

    def worst(levels: Levels) -> float:
        rows, counts = levels.costs(costs)
        return float(counts @ rows.max(axis=1, initial=0.0))

    hidden = [(a, b) for a, b in pairwise(cuts) if a * batches < end]
    search = LevelSearch(costs, hidden, run.training.diameter)
    scale = worst(found)
    if not 0 < scale < 1e200:
        return found
    others = [search(10.0**power / scale) for power in (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0)]
    return min([found, *others], key=worst)


def _menu(curve: LossDistribution) -> list[list[float]]:
    pairs = [pair for pair in curve.counts if isinstance(pair, SampledPair)]
    return [[pair.low, pair.high] for pair in pairs]


def _poisson_published(run: Run, bound: Bound, delta: float) -> Evidence:
    assert isinstance(bound.curve, LossDistribution)
    return {"menu": _menu(bound.curve)}, bound.curve


def _part(run: Run, values: Any, first: int, last: int) -> Any:
    """One number for constant runs, else one per step of the stretch."""
    return float(values[0]) if run.training.constant else run.over_steps(values)[first:last]


def _hidden(run: Run) -> list[tuple[int, int]]:
    return [(first, last) for first, last in run.segments if last > first]


def _poisson_path(run: Run, bound: Bound, delta: float) -> Evidence:
    training = run.training
    assert isinstance(training.batches, Poisson)
    rate = training.batches.rate
    contraction, failure = poisson_contraction(run, delta)
    cap = poisson.batch_cap(training.records, rate, training.steps, failure)
    stretches, curve = [], LossDistribution.nothing()
    for first, last in _hidden(run):
        c, s, nu = (
            _part(run, x, first, last) for x in (contraction, run.impulses, training.noises)
        )
        found = poisson.best(c, s, nu, rate, last - first, delta, training.diameter)
        stretch: dict[str, Any] = {"first": first, "last": last}
        if found.path is not None:
            stretch["left"] = found.path.left
        stretches.append(stretch)
        curve = curve.compose(found.curve)
    begin, steps = training.steps - run.window + 1, training.steps
    if begin < steps:
        s, nu = (_part(run, x, begin, steps) for x in (run.impulses, training.noises))
        curve = curve.compose(poisson.plain_curve(s, nu, rate, steps - begin))
    witness = {"cap": cap, "stretches": stretches, "menu": _menu(curve)}
    return witness, WithFailure(curve, failure) if failure else curve


def _offers(*curves: LossDistribution) -> list[list[float]]:
    """(record, payment) of the pairs that steps are charged as."""
    pairs = [pair for curve in curves for pair in curve.counts]
    offers = [[pair.back, pair.low] for pair in pairs if isinstance(pair, OpposedPair)]
    return offers + [
        [pair.mu - pair.low if pair.low else pair.mu, pair.low]
        for pair in pairs
        if isinstance(pair, ReplacedPair)
    ]


def _replaced_published(run: Run, bound: Bound, delta: float) -> Evidence:
    assert isinstance(bound.curve, LossDistribution)
    return {"menu": _offers(bound.curve)}, bound.curve


def _horizon(run: Run, bound: Bound, delta: float) -> Evidence:
    training, rate = run.training, batch_share(run)
    values = (run.contraction, pushes(run), training.noises, farthest(run), drifts(run))
    stretches, curve = [], LossDistribution.nothing()
    for first, last in _hidden(run):
        c, s, nu, reach, drift = (_part(run, x, first, last) for x in values)
        found = without_replacement.best(
            c, s, nu, rate, last - first, delta, reach, training.diameter, drift
        )
        stretches.append({"first": first, "last": last, "pays": found.pays})
        curve = curve.compose(found.curve)
    begin, steps = training.steps - run.window + 1, training.steps
    if begin < steps:
        s, nu = (_part(run, x, begin, steps) for x in (pushes(run), training.noises))
        curve = curve.compose(without_replacement.plain(s, nu, rate, steps - begin))
    return {"menu": _offers(curve), "stretches": stretches}, curve


def _near(curve: LossDistribution) -> bool:
    """Whether steps are charged as gradients close together, not as opposite ones."""
    return any(isinstance(pair, ReplacedPair) for pair in curve.counts)


def _opposed_published(run: Run, bound: Bound, delta: float) -> Evidence:
    curve = replaced_in_poisson.published(run, 0, run.training.steps, delta)
    return {"menu": _offers(curve), "near": _near(curve)}, curve


def _opposed_horizon(run: Run, bound: Bound, delta: float) -> Evidence:
    training = run.training
    assert isinstance(training.batches, Poisson)
    rate = training.batches.rate
    contraction, failure = poisson_contraction(run, delta)
    cap = poisson.batch_cap(training.records, rate, training.steps, failure)
    lengths = replaced_in_poisson.lengths(run)
    values = (contraction, run.impulses, lengths, training.noises, drifts(run))
    stretches, curve = [], LossDistribution.nothing()
    for first, last in _hidden(run):
        c, gap, h, nu, drift = (_part(run, x, first, last) for x in values)
        found = poisson_replace.best(
            c, gap, h, nu, rate, last - first, delta, training.diameter, drift
        )
        pays, chosen = found.pays, found.curve
        if replaced_in_poisson.closer(run):
            plain = replaced_in_poisson.published(run, first, last, delta)
            if plain.epsilon(delta) <= chosen.epsilon(delta):
                pays, chosen = None, plain
        place = {"first": first, "last": last, "pays": pays, "near": _near(chosen)}
        stretches.append(place)
        curve = curve.compose(chosen)
    begin, steps = training.steps - run.window + 1, training.steps
    tail = replaced_in_poisson.published(run, begin, steps, delta)
    curve = curve.compose(tail)
    witness = {"cap": cap, "stretches": stretches, "menu": _offers(curve), "near": _near(tail)}
    return witness, WithFailure(curve, failure) if failure else curve


EVIDENCE: dict[str, Collector] = {
    "taut-string": _as_found,
    "stopped-coupling": _coupling,
    "worst-position": _positions,
    "hidden-position": _positions,
    "boundary-policy": _levels,
    "gaussian-composition": _nothing,
    "output-perturbation": _nothing,
    "poisson-composition": _poisson_published,
    "poisson-deferral": _poisson_path,
    "poisson-replace-composition": _opposed_published,
    "poisson-replace-absorption": _opposed_horizon,
    "chien-li-2025-3.12": _horizon,
    "without-replacement-composition": _replaced_published,
}
