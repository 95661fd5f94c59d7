"""Lower references: what some loss of the declared class really suffers.

Never guarantees; they show how much of a bound is needed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from lastiterate.description import RandomAllocation
from lastiterate.lower.full_batch import (
    gaussian_epsilon_down,
    linear_map_mu,
    projected_walk,
    unknown,
)
from lastiterate.lower.minibatch import (
    MOST_STEPS,
    ordered_batches,
    poisson,
    random_allocation,
    without_replacement,
)
from lastiterate.theory.run import Run


def lower_reference(run: Run) -> Callable[[float], float]:
    """delta -> an epsilon that the declared class cannot go below (0 if nothing is known)."""
    training = run.training
    plain = training.proximal is None and training.correlation is None
    uncovered = training.momentum or not plain or not run.unit.default
    if training.steps == 0 or uncovered or not run.last_only:
        return unknown
    # What rounding might add is charged to a guarantee, but nobody has seen a run suffer it.
    training = training.replace(arithmetic="exact")
    run = dataclasses.replace(run, training=training)
    if training.adjacency == "zero-out" and run.loss.strong_convexity:
        # Without its gradient the record's curvature is gone too: the two updates are no longer
        # the same linear map, and no exact law is at hand.
        return unknown
    if training.batches.full:
        if math.isfinite(training.diameter):
            return projected_walk(run)
        return lambda delta: gaussian_epsilon_down(linear_map_mu(run), delta)
    if math.isfinite(training.diameter) or training.steps > MOST_STEPS:
        return unknown
    if isinstance(training.batches, RandomAllocation):
        return random_allocation(run)
    if training.batches.ordered:
        return ordered_batches(run)
    return without_replacement(run) if training.batches.fixed_size else poisson(run)
