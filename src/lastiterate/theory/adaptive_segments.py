"""Segments between releases that are chosen on the way (the Gaussian filter).

A segment starts from what was released and ends in a release. Which records it uses, how long it
is, how it steps and whether there is another one may depend on everything that was released before
it, and on nothing else that the data decide.

**Lemma F.** Round t applies a mechanism, chosen from past outputs, that is mu_t-GDP for the two
worlds, mu_t a function of past outputs; finitely many rounds; sum mu_t^2 <= mu^2 always. Then all
outputs together are mu-GDP.

*Proof.* Add a last Gaussian round so that the sum is mu^2. By Blackwell each round is a
post-processing of Z_t ~ N(mu_t, 1) against N(0, 1). The log-likelihood ratio of these is
S - mu^2/2 with S = sum mu_t Z_t. In the second world E exp(i h S + h^2 sum mu_t^2/2) = 1 (one
round after the other), and the sum is constant, so S ~ N(0, mu^2); in the first one
S ~ N(mu^2, mu^2). That is the pair of one Gaussian. QED

A round must be one Gaussian, so a hidden position is charged as the worst one. Nothing that is
read off at the end replaces the bound: `LifetimeBudget` keeps it by raising.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Cyclic, FullBatch, PrivacyUnit, Reshuffled, Shuffled
from lastiterate.theory.composition import COMPOSITION
from lastiterate.theory.full_batch import FULL_BATCH
from lastiterate.theory.groups import KNOWN_GROUPS
from lastiterate.theory.ordered_batches import WORST_POSITION
from lastiterate.theory.registry import (
    ANY_UPDATE,
    UNIT_FIELDS,
    Proof,
    Theorem,
    inapplicable_reason,
)
from lastiterate.theory.replay import root_sum_squares_up
from lastiterate.theory.reshuffled import BOUNDARY_POLICY
from lastiterate.theory.run import Run

_UP = 1 + 1e-12
_ANY_DELTA = 1e-5  # the worst sequence of positions is the same for all of them
_ROUNDS = (FULL_BATCH, WORST_POSITION, BOUNDARY_POLICY, KNOWN_GROUPS, COMPOSITION)


def adaptive_limits(run: Run) -> str | None:
    """What is special about it: it is about several releases."""
    batches = run.training.batches
    if not (batches.repeated or batches.full or run.releases_end_epochs):
        return "released checkpoints must lie on epoch boundaries, where partitions renew"
    if len(run.segments) == 1:
        return "nothing but the end is released, so there is nothing to choose on the way"
    return None


def adaptive_bound(run: Run) -> Proof:
    """The root of the sum of the squares of every segment's worst mu."""
    parts = np.array([_worst_mu(segment) for segment in _segments(run)])
    return Proof(Gaussian(root_sum_squares_up(parts) * _UP))


def _worst_mu(segment: Run) -> float:
    """One Gaussian for the segment, whatever is hidden in it."""
    found = [math.inf]
    for theorem in _ROUNDS:
        if inapplicable_reason(theorem, segment) is None:
            curve = theorem.prove(segment).at(_ANY_DELTA).curve
            worst = float(curve.mus.max()) if isinstance(curve, Mixture) else curve.mu
            found.append(math.inf if worst is None else worst)
    return min(found)


def _segments(run: Run) -> Iterator[Run]:
    """Each segment as a run of its own, in a known order: a phase only renames positions."""
    training, unit = run.training, run.unit
    if isinstance(training.batches, Shuffled):
        training = training.replace(batches=Cyclic(training.batches.size))
    segments = run.segments
    for first, last in segments:
        if (first, last) == segments[-1]:
            last = training.steps  # the window of an average belongs to the last segment
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


ADAPTIVE_SEGMENTS = Theorem(
    key="adaptive-segments",
    name="Segments chosen on the way",
    reference="this library, docs/how-to/every-day.md: the filter of Gaussian privacy",
    statement=(
        "Each segment between releases is chosen from what was released before it, and is mu_t-GDP "
        "by its own taut string (worst position, worst placement). If sum mu_t^2 <= mu^2 whatever "
        "is released, everything released is mu-GDP together. Fixed segments: their sum."
    ),
    schemes=(FullBatch, Cyclic, Shuffled, Reshuffled),
    bound=adaptive_bound,
    limits=adaptive_limits,
    supports=ANY_UPDATE | UNIT_FIELDS | {"momentum", "releases"},
    assumptions=("segments depend on releases, and on no hidden iterate",),
    dominated_by=(
        "taut-string",
        "worst-position",
        "hidden-position",
        "boundary-policy",
        "known-groups",
        "gaussian-composition",
    ),
)
