"""The setting that the papers share: the price of one update, and what their theorems need.

``unit`` = s^2/(2 nu^2) is the Renyi coefficient of one published update; in the papers' notation it
is eta S_g^2/(4 sigma^2 n^2).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.fields import number
from lastiterate.theory.dynamics import squared_ratio
from lastiterate.theory.registry import Theorem
from lastiterate.theory.run import Run

UP = 1 + 1e-12  # a few roundings of positive terms
MOST_STEPS = 20_000  # of mini-batch recursions, which are quadratic in places
_SMALLEST_DECAY = 1e-200  # eta lambda: below, quotients leave the range of doubles

Limits = Callable[[Run], str | None]
Floats = NDArray[np.float64]
Mixture = Sequence[Sequence[float]]  # of Gaussians on the line: weights, means, deviations


class Moments(NamedTuple):
    """R_alpha of two laws, E_alpha, I_alpha, and the slope dR_alpha/dalpha."""

    divergence: float
    moment: float
    information: float
    slope: float


def renyi_moments(order: float, first: Mixture, second: Mixture) -> Moments:
    """Renyi divergence and Renyi information of two mixtures of Gaussians, by quadrature.

    E = integral of p^a q^(1-a), I = integral of p^a q^(1-a) (log p/q)'^2, R = log E/(a-1): B.1 and
    B.2 of Chourasia, Ye & Shokri 2021, Definition 2.1 of Chien & Li 2025.

    >>> round(renyi_moments(3.0, ([1.0], [0.5], [1.0]), ([1.0], [0.0], [1.0])).divergence, 9)
    0.375
    """
    means, widest = (*first[1], *second[1]), max(*first[2], *second[2])
    room = 12 * widest + order * (max(means) - min(means))
    x = np.linspace(min(means) - room, max(means) + room, 200_001)
    return moments_on_grid(order, x, log_density(x, first), log_density(x, second))


def moments_on_grid(order: float, x: Floats, log_p: Floats, log_q: Floats) -> Moments:
    """`renyi_moments` of two densities, given by their logarithms at equidistant points."""
    number("order", order, "Renyi divergence needs it", above=1)
    loss, cell = log_p - log_q, float(x[1] - x[0])
    exponents = order * loss + log_q
    top = float(exponents.max())
    weight = np.exp(exponents - top)
    total = float(weight.sum())
    divergence = (top + math.log(total * cell)) / (order - 1)
    information = float(weight @ np.gradient(loss, cell) ** 2) / total
    moment = math.exp(min((order - 1) * divergence, 700.0))
    slope = (float(weight @ loss) / total - divergence) / (order - 1)
    return Moments(divergence, moment, information * moment, slope)


def log_density(x: Floats, law: Mixture) -> Floats:
    """The logarithm of the density of a mixture of Gaussians."""
    weight, mean, deviation = (np.array(part)[:, None] for part in law)
    logs = np.log(weight / (deviation * math.sqrt(2 * math.pi))) - ((x - mean) / deviation) ** 2 / 2
    return np.asarray(np.logaddexp.reduce(logs, axis=0))


@cache
def _texts() -> dict[str, dict[str, Any]]:
    text = files("lastiterate.published").joinpath("theorems.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def theorem(key: str, **rule: Any) -> Theorem:
    """A row of the registry: its text from theorems.toml, its rule (bound, schemes, ...) given."""
    text: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in _texts()[key].items()
    }
    return Theorem(key=key, **text, **rule)


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
