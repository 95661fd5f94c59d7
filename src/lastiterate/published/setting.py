"""The setting that the papers share: the price of one update, and what their theorems need.

``unit`` = s^2/(2 nu^2) is the Renyi coefficient of one published update; in the papers' notation it
is eta S_g^2/(4 sigma^2 n^2).
"""

from __future__ import annotations

from collections.abc import Callable

from lastiterate.theory.dynamics import squared_ratio
from lastiterate.theory.run import Run

UP = 1 + 1e-12  # a few roundings of positive terms
MOST_STEPS = 20_000  # of mini-batch recursions, which are quadratic in places
_SMALLEST_DECAY = 1e-200  # eta lambda: below, quotients leave the range of doubles

Limits = Callable[[Run], str | None]


def unit(run: Run) -> float:
    """s^2/(2 nu^2): the Renyi coefficient of one published update."""
    return float(squared_ratio(run.step_sensitivities[:1], run.training.noises[:1])[0]) / 2


def first_reason(*limits: Limits) -> Limits:
    """The limits of a theorem that has several: the first that a run meets."""

    def reason(run: Run) -> str | None:
        return next((found for each in limits if (found := each(run)) is not None), None)

    return reason


def convex(run: Run) -> str | None:
    """A convex loss, no gradient clipping."""
    if not run.loss.convex or run.training.clipping == "gradient":
        return "it needs a convex loss whose gradients are not clipped"
    return None


def strongly_convex(run: Run) -> str | None:
    """A strongly convex loss and a step that forgets something."""
    if run.curvature <= 0:
        return "it needs strong convexity (strong_convexity or regularization above 0)"
    if run.etas[0] * run.curvature < _SMALLEST_DECAY:
        return "it needs a step size above 0: it divides by what one step forgets"
    return None


def evaluated(run: Run) -> str | None:
    """Noise, and few enough steps."""
    if run.training.steps > MOST_STEPS:
        return f"it is not evaluated beyond {MOST_STEPS:,} steps"
    return "it needs noise" if run.training.noise == 0 else None


def smooth_steps(run: Run) -> str | None:
    """eta < 2/beta."""
    if not run.etas[0] * run.smoothness < 2:
        return "it needs step_size < 2/(smoothness + regularization)"
    return None


def short_steps(run: Run) -> str | None:
    """eta < 2/(lambda + beta)."""
    if run.etas[0] * (run.curvature + run.smoothness) >= 2:
        return "it needs step_size < 2/(strong convexity + smoothness of the step)"
    return None


def whole_epochs(run: Run) -> str | None:
    """A multiple of an epoch."""
    return "it counts whole epochs" if run.training.steps % run.batches else None


def two_batches(run: Run) -> str | None:
    """At least two batches in an epoch."""
    return "it needs at least two batches per epoch" if run.batches < 2 else None


def worst_position(price: Callable[[int], float], batches: int) -> float:
    """The largest coefficient of all positions of the record."""
    return max(price(position) for position in range(batches))
