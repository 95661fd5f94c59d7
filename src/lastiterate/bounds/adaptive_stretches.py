"""Stretches between releases that are chosen on the way (the Gaussian filter).

A stretch starts from what was released and ends in a release. Which records it uses, how long it
is, how it steps and whether there is another one may depend on everything that was released before
it, and on nothing else that the data decide.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from lastiterate.bounds.composition import Composition
from lastiterate.bounds.known_groups import KnownGroups
from lastiterate.bounds.ledger import PRESENCE, Bound, Run, Theorem
from lastiterate.bounds.ordered_batches import BoundaryPolicy, WorstPosition
from lastiterate.bounds.replay import root_sum_squares_up
from lastiterate.bounds.shifted_interpolation import ShiftedInterpolation
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import (
    Cyclic,
    FullBatch,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
)

_UP = 1 + 1e-12
_ANY_DELTA = 1e-5  # the worst sequence of positions is the same for all of them


class AdaptiveStretches(Theorem):
    """Lemma F: rounds that are chosen by what earlier ones released, under a declared bound.

    *Statement.* Round t applies a mechanism, chosen from past outputs, that is mu_t-GDP for the two
    worlds, mu_t a function of past outputs; finitely many rounds; sum mu_t^2 <= mu^2 always. Then
    all outputs together are mu-GDP.

    *Proof.* Add a last Gaussian round so that the sum is mu^2. By Blackwell each round is a
    post-processing of Z_t ~ N(mu_t, 1) against N(0, 1). The log-likelihood ratio of these is
    S - mu^2/2 with S = sum mu_t Z_t. In the second world E exp(i h S + h^2 sum mu_t^2/2) = 1 (one
    round after the other), and the sum is constant, so S ~ N(0, mu^2); in the first one
    S ~ N(mu^2, mu^2). That is the pair of one Gaussian. QED

    A round must be one Gaussian, so a hidden position is charged as the worst one. Nothing that is
    read off at the end replaces the bound: `LifetimeBudget` keeps it by refusing.
    """

    key = "adaptive-stretches"
    name = "Stretches chosen on the way"
    reference = "this library, docs/how-to/every-day.md: the filter of Gaussian privacy"
    statement = (
        "Each stretch between releases is chosen from what was released before it, and is mu_t-GDP "
        "by its own taut string (worst position, worst placement). If sum mu_t^2 <= mu^2 whatever "
        "is released, everything released is mu-GDP together. Fixed stretches: their sum."
    )
    schemes = (FullBatch, Cyclic, Shuffled, Reshuffled)
    assumptions = ("stretches depend on releases, and on no hidden iterate",)
    rounding = True
    momentum = True
    covers = PRESENCE | {"records", "per_batch"}
    dominated_by = (
        "taut-string",
        "worst-position",
        "hidden-position",
        "boundary-policy",
        "known-groups",
        "gaussian-composition",
    )

    def objection(self, run: Run) -> str | None:
        batches = run.training.batches_per_epoch or 1
        renewed = not (run.training.batches.repeated or run.training.batches.full)
        if renewed and any(step % batches for step in run.releases[:-1]):
            return "released checkpoints must lie on epoch boundaries, where partitions renew"
        if len(run.segments) == 1:
            return "nothing but the end is released, so there is nothing to choose on the way"
        return None

    def prove(self, run: Run) -> Bound:
        parts = np.array([_worst_mu(stretch) for stretch in _stretches(run)])
        return Bound(self, Gaussian(root_sum_squares_up(parts) * _UP))


_ROUNDS: tuple[Theorem, ...] = (
    ShiftedInterpolation(),
    WorstPosition(),
    BoundaryPolicy(),
    KnownGroups(),
    Composition(),
)


def _worst_mu(stretch: Run) -> float:
    """One Gaussian for the stretch, whatever is hidden in it."""
    found = [math.inf]
    for theorem in _ROUNDS:
        if theorem.obstacle(stretch) is None:
            curve = theorem.prove(stretch).at(_ANY_DELTA).curve
            worst = float(curve.mus.max()) if isinstance(curve, Mixture) else curve.mu
            found.append(math.inf if worst is None else worst)
    return min(found)


def _stretches(run: Run) -> Iterator[Run]:
    """Each stretch as a run of its own, in a known order: a phase only renames positions."""
    training, unit = run.training, run.unit
    if isinstance(training.batches, Shuffled):
        training = training.replace(batches=Cyclic(training.batches.size))
    segments = run.segments
    for first, last in segments:
        if (first, last) == segments[-1]:
            last = training.steps  # the window of an average belongs to the last stretch
        own: dict[str, Any] = {}
        if not training.constant:
            own = {
                "step_size": training.step_sizes[first:last],
                "noise": training.noises[first:last],
                "schedule": None,
                "final_noise": 1.0,
            }
        part = training.replace(steps=last - first, release="last", **own)
        if last == training.steps:
            part = part.replace(release=training.release)
        yield Run(part, run.loss, (), _during(unit, first, last))


def _during(unit: PrivacyUnit, first: int, last: int) -> PrivacyUnit:
    """The unit to the steps first..last, counted from the first of them."""
    if not unit.timed:
        return unit
    joined = min(max(unit.first_step, first), last) - first
    left = unit.last_step
    left = None if left is None else max(min(max(left, first), last) - first, joined)
    return dataclasses.replace(unit, first_step=joined, last_step=left)
