"""The final noise burst: more noise at the last step alone, less everywhere else.

A record that is read last has no noisy step behind it. Raising the variance of the last step's
noise by a factor rho (`Training.final_noise`) hides it, and lets all other noises shrink. Every rho
is sound, because the taut string takes any noises; a good one is chosen here.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

from lastiterate.accounting.risk import Floats, assumed, responses
from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import (
    Loss,
    Reshuffled,
    Schedule,
    Shuffled,
    TailAverage,
    Training,
)
from lastiterate.description.fields import checked_delta, number
from lastiterate.errors import UnsupportedError
from lastiterate.theory import Run
from lastiterate.theory.ordered_batches import position_mus

_MOST_SEARCHED = 200_000  # steps up to which the search is worth its time; beyond: the rule
_LARGEST = 1e6


def burst_rule(training: Training, loss: Loss, spectrum: ArrayLike | None = None) -> float:
    """rho = sqrt(B (N − 1)/(E − 1)), N = Σ w_k / w_{T−1}, for two or more epochs; at least 1.

    It minimises ((E−1)/B + 1/rho)(N − 1 + rho): the worst position's cost at c = 1 times the noise
    part of the risk. N counts the steps whose noise survives to the end. One epoch has no such
    minimum (use schedule="equalised"); then the answer is 1.

    >>> run = Training(records=400, steps=200, step_size=0.05, noise=1.0, gradient_norm=1.0,
    ...                batches=Shuffled(10))
    >>> loss = Loss(smoothness=1.0, strong_convexity=0.1)
    >>> round(burst_rule(run, loss), 1)
    15.4
    """
    batches = _batches(training)
    epochs = training.steps / batches
    if epochs < 2:
        return 1.0
    weights = _weights(training, assumed(loss, spectrum))
    surviving = float(weights.sum() / weights[-1])
    return max(1.0, math.sqrt(batches * max(surviving - 1, 0.0) / (epochs - 1)))


def best_burst(
    training: Training,
    loss: Loss,
    epsilon: float,
    delta: float,
    spectrum: ArrayLike | None = None,
) -> float:
    """The factor ``final_noise`` with the least noise risk at (epsilon, delta): a search over rho.

    For each rho the noise is scaled to meet the target (on an unbounded domain mu scales with it)
    and the noise part of the predicted risk compared. Batches that are reshuffled are judged as if
    they were shuffled once; very long runs take `burst_rule`. Without a spectrum `log_uniform` is
    assumed. 1 means: no burst. Use ``training.replace(final_noise=best_burst(...))`` and calibrate.

    >>> run = Training(records=400, steps=200, step_size=0.05, noise=1.0, gradient_norm=1.0,
    ...                batches=Shuffled(10))
    >>> loss = Loss(smoothness=1.0, strong_convexity=0.1)
    >>> round(best_burst(run, loss, epsilon=2.0, delta=1e-5), 1)
    12.5
    """
    number("epsilon", epsilon, above=0.0)
    delta = checked_delta(delta, training.records)
    batches = _batches(training)
    if batches < 2 or training.steps < batches:
        return 1.0
    if training.steps > _MOST_SEARCHED:
        return burst_rule(training, loss, spectrum)
    weights = _weights(training, assumed(loss, spectrum))
    judged = training.replace(
        noise=training.noise if isinstance(training.noise, Schedule) else 1.0, diameter=math.inf
    )
    if isinstance(training.batches, Reshuffled):
        judged = judged.replace(batches=Shuffled(training.batches.size))

    def price(log_rho: float) -> float:
        run = judged.replace(final_noise=math.exp(log_rho))
        needed = noise_factor(run, loss, epsilon, delta)
        return math.log(needed**2 * float(weights @ run.noises**2))

    surviving = float(weights.sum() / weights[-1])
    top = math.log(min(max(10.0, 4 * batches * surviving), _LARGEST))
    grid = np.linspace(0.0, top, 9)
    prices = [price(float(x)) for x in grid]
    centre = int(np.argmin(prices))
    low, high = grid[max(centre - 1, 0)], grid[min(centre + 1, len(grid) - 1)]
    found = scipy.optimize.minimize_scalar(
        price, bounds=(low, high), method="bounded", options={"maxiter": 12, "xatol": 0.01}
    )
    if min(found.fun, prices[centre]) >= prices[0] - 1e-6:
        return 1.0
    return math.exp(float(found.x) if found.fun <= prices[centre] else float(grid[centre]))


def noise_factor(training: Training, loss: Loss, epsilon: float, delta: float) -> float:
    """What the noises must be multiplied by to meet (epsilon, delta); unbounded domain.

    An estimate for choosing: what is chosen is calibrated and accounted afterwards.
    """
    mus = position_mus(Run(training, loss))
    if not training.batches.hidden or np.ptp(mus) <= 1e-9 * mus.max():
        return float(mus.max()) / gaussian.mu(epsilon, delta)
    target = math.log(delta)

    def excess(log_factor: float) -> float:
        return Mixture(mus / math.exp(log_factor)).log_delta(epsilon) - target

    allowed = gaussian.mu(epsilon, delta)
    low, high = math.log(mus.min() / allowed) - 1e-9, math.log(mus.max() / allowed) + 1e-9
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-7)))


def _batches(training: Training) -> int:
    if training.momentum:
        raise UnsupportedError(
            "A burst of noise at the end helps a record that hides behind later steps; with "
            f"momentum = {training.momentum:g} nothing hides it (composition only). Leave "
            "final_noise at 1, or set momentum to 0."
        )
    batches = training.batches.per_epoch(training.records)
    if batches is None or training.batches.full:
        raise UnsupportedError(
            f"A burst of noise at the end helps batches that pass over the data in order; these "
            f"are {training.batches.name}. Leave final_noise at 1."
        )
    return batches


def _weights(training: Training, spectrum: Floats) -> Floats:
    """w_k of the run's release: how much the noise of step k adds to the risk."""
    release = training.release
    average = release.weights if isinstance(release, TailAverage) else np.ones(1)
    return responses(training.step_sizes, spectrum, average)[1]
