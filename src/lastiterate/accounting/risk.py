"""The excess risk a run is expected to end with, on a quadratic model of its loss.

Near its minimum a smooth loss is a quadratic with some spectrum. There the last iterate, and every
average of iterates, is linear in the start and in the noises, so the expected risk is exact: a bias
part (what is left of the start) and a noise part. It guides choices; no guarantee rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.description import Loss, TailAverage, Training
from lastiterate.description.fields import integer
from lastiterate.errors import AssumptionError, DescriptionError

Floats = NDArray[np.float64]

_DIRECTIONS = 30  # eigenvalues that stand for all of them
_CONDITION = 100.0  # smoothness over curvature where the loss declares no curvature


@dataclass(frozen=True)
class Risk:
    """Expected excess risk: what the run has not yet forgotten of its start, and its noise."""

    bias: float
    noise: float

    @property
    def total(self) -> float:
        """Both parts together."""
        return self.bias + self.noise

    def __str__(self) -> str:
        return f"{self.total:.4g} ({self.bias:.3g} bias + {self.noise:.3g} noise)"


def predicted_risk(
    training: Training,
    loss: Loss,
    spectrum: ArrayLike,
    start: ArrayLike = 1.0,
    *,
    average: ArrayLike | None = None,
    counts: ArrayLike = 1.0,
) -> Risk:
    """E[f(released) − min f] for f(x) = ½ Σ λ_i x_i², started at ``start``.

    With a_t the weight of iterate t in what is released and R_k(λ) = Σ_{t>k} a_t Π_{k<l<t}(1−η_l λ)
    the response to the noise of step k (with momentum: of the velocity that carries it on):
        bias = ½ Σ_i λ_i start_i² p_i²,   noise = ½ Σ_k ν_k² Σ_i λ_i R_k(λ_i)².
    Assumptions: every batch sees the same quadratic (its own sampling error is not counted), no
    clip and no projection is at work.

    Args:
        training: the run; its release says whether a tail average is taken.
        loss: its constants must allow the spectrum.
        spectrum: the eigenvalues λ_i of the whole objective, the L2 term included.
        start: the distance from the minimum at the start, along each direction.
        average: weights of the last iterates, the last one at the end, instead of those of
            ``training.release`` (an exponential average, say); they are scaled to sum to 1.
        counts: how many directions share each eigenvalue.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=100, steps=20, step_size=0.5, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> print(predicted_risk(run, Loss(smoothness=1.0), spectrum=[0.2, 1.0]))
    0.01333 (0.00148 bias + 0.0119 noise)
    """
    training.needs_plain_updates("predicted_risk")
    values = checked_spectrum(spectrum, loss)
    distances = np.broadcast_to(np.asarray(start, dtype=np.float64), values.shape)
    curved = values * np.asarray(counts, dtype=np.float64)
    weights = _average(training, average)
    if training.steps == 0:
        return Risk(float(curved @ distances**2) / 2, 0.0)
    if training.constant and not training.momentum and len(weights) == 1:
        return _constant(training, values, curved, distances)
    sizes, momentum = training.step_sizes, training.momentum
    left, per_step = responses(sizes, values, weights, counts, momentum)
    noise = float(per_step @ training.noises**2) / 2
    return Risk(float(curved @ (distances * left) ** 2) / 2, noise)


def responses(
    etas: Floats,
    spectrum: Floats,
    average: Floats,
    counts: ArrayLike = 1.0,
    momentum: float = 0.0,
) -> tuple[Floats, Floats]:
    """p_i, the factor left of the start in each direction, and w_k = Σ_i count_i λ_i R_k(λ_i)².

    ``average`` weighs the last iterates. Backwards, P the response to the parameters after step k
    and R to its noise (what the velocity adds later included): R_k = P_k + m R_{k+1} and
    P_{k-1} = a_k + P_k − η_k λ R_k. Without momentum R = P.

    >>> left, weights = responses(np.array([0.5, 0.5]), np.array([1.0]), np.array([1.0]))
    >>> left, weights
    (array([0.25]), array([0.25, 1.  ]))
    """
    steps, window = len(etas), len(average)
    curved = spectrum * np.asarray(counts, dtype=np.float64)
    position, response = np.zeros((2, len(spectrum)))
    weights = np.empty(steps)
    for k in range(steps - 1, -1, -1):
        if k >= steps - window:
            position = position + average[k - steps + window]
        response = position + momentum * response
        weights[k] = curved @ (response * response)
        position = position - etas[k] * spectrum * response
    return position, weights


def checked_spectrum(spectrum: ArrayLike, loss: Loss) -> Floats:
    """Eigenvalues that the constants of the loss allow."""
    values = np.atleast_1d(np.asarray(spectrum, dtype=np.float64))
    if not loss.convex:
        raise AssumptionError(
            f"A quadratic model with a spectrum needs a convex loss, but the loss is {loss}."
        )
    low = loss.strong_convexity + loss.regularization
    high = (loss.smoothness or 0.0) + loss.regularization
    slack = 1e-9 * max(high, 1e-300)
    inside = (values >= low - slack) & (values <= high + slack)
    if values.ndim != 1 or not len(values) or not np.all(inside):
        bad = values[~inside] if values.ndim == 1 and len(values) else values
        found = float(np.ravel(bad)[0]) if bad.size else "empty"
        allowed = f"eigenvalues between {low:g} and {high:g}, as the loss says"
        why = "a risk predicted for another loss chooses the wrong schedule"
        raise DescriptionError("spectrum", found, allowed, why)
    return values


def log_uniform(loss: Loss, dimension: int = 20) -> Floats:
    """Eigenvalues spread evenly, on a logarithmic scale, over what the loss allows.

    From the declared curvature (a hundredth of the smoothness if none is declared) to the
    smoothness, the L2 term included in both.

    >>> log_uniform(Loss(smoothness=1.0, strong_convexity=0.01), dimension=3).round(6)
    array([0.01, 0.1 , 1.  ])
    """
    integer("dimension", dimension)
    if not loss.convex or not loss.smoothness or not np.isfinite(loss.smoothness):
        raise AssumptionError(
            f"No spectrum can be assumed for a loss that is {loss}: it needs a finite smoothness "
            "and convexity. Give a spectrum, or choose the schedule by other means."
        )
    high = loss.smoothness + loss.regularization
    low = loss.strong_convexity + loss.regularization or high / _CONDITION
    return np.asarray(np.geomspace(low, high, dimension).clip(low, high), dtype=np.float64)


def assumed(loss: Loss, spectrum: ArrayLike | None) -> Floats:
    """The spectrum that was given, checked; without one `log_uniform`."""
    return log_uniform(loss) if spectrum is None else checked_spectrum(spectrum, loss)


def _average(training: Training, average: ArrayLike | None) -> Floats:
    release = training.release
    window = release.window if isinstance(release, TailAverage) else 1
    if average is None:
        return release.weights if isinstance(release, TailAverage) else np.ones(1)
    weights = np.atleast_1d(np.asarray(average, dtype=np.float64))
    if weights.ndim != 1 or not 1 <= len(weights) <= window or not np.sum(weights) > 0:
        raise DescriptionError(
            "average",
            f"{weights.size} weights",
            f"1 to {window} weights, as many as training.release covers, with a positive sum",
            "an average that reaches farther back than the window releases more than was accounted",
        )
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _constant(training: Training, values: Floats, curved: Floats, distances: Floats) -> Risk:
    """Equal steps, last iterate: geometric sums, whatever the number of steps."""
    steps, eta, nu = training.steps, float(training.step_sizes[0]), float(training.noises[0])
    factor = 1.0 - eta * values
    square = factor * factor
    with np.errstate(under="ignore", over="ignore"):
        left = np.abs(factor) ** steps
        below = np.where(square != 1, square, 0.0)
        series = np.where(square == 1, float(steps), (1 - left * left) / (1 - below))
    if not np.all(np.isfinite(left)):
        return Risk(math.inf, math.inf)
    noise = float(curved @ series) * nu * nu / 2
    return Risk(float(curved @ (distances * left) ** 2) / 2, noise)


@dataclass(frozen=True)
class QuadraticModel:
    """The public quadratic on which alternatives are compared, and the target they must meet."""

    loss: Loss
    dimension: int
    distance: float
    epsilon: float
    delta: float

    @cached_property
    def directions(self) -> tuple[Floats, Floats]:
        """Eigenvalues ~ 1/i with a sum of the smoothness, as bounded rows have; and their counts.

        Beyond the first few, neighbours on a logarithmic scale share one value. The L2 term comes
        on top, and no direction bends less than the loss says.
        """
        edges = np.unique(np.geomspace(1, self.dimension + 1, _DIRECTIONS + 1).round())
        counts = np.diff(edges)
        values = 1 / np.sqrt(edges[:-1] * (edges[1:] - 1))
        assert self.loss.smoothness is not None
        values = values * (self.loss.smoothness / float(counts @ values))
        return np.maximum(values, self.loss.strong_convexity) + self.loss.regularization, counts

    @property
    def start(self) -> Floats:
        """More of the way lies along the directions that the data spreads in."""
        values, counts = self.directions
        return np.asarray(self.distance * np.sqrt(values / float(counts @ values)))

    def risk(self, training: Training) -> Risk:
        """Predicted on the model."""
        values, counts = self.directions
        return predicted_risk(training, self.loss, values, self.start, counts=counts)
