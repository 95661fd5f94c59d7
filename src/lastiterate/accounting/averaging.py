"""When the average of the last iterates is better than the last one.

A window of k released iterates costs the taut string of the first T−k+1 steps plus the updates
inside the window, each in full: mu² = string + Σ (s/nu)². Any function of the window is covered,
so any average is, uniform or exponential, that starts inside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.accounting.risk import checked_spectrum
from lastiterate.curves import gaussian
from lastiterate.description import Loss, Training

HELPS_BELOW = 0.2


def averaging_helps(
    training: Training,
    loss: Loss,
    epsilon: float,
    delta: float,
    spectrum: ArrayLike,
    start: ArrayLike = 1.0,
) -> bool:
    """Whether a tail average (the last three quarters, step size tuned) is worth it.

    Rule: yes if (S/mu)² Σ 1/λ_i <= 0.2 Σ λ_i start_i²: the noise that no method can avoid is far
    below the initial gap, so the run is near convergence, where averaging evens out the directions
    (variance ~ 1/λ² instead of 1/λ). Where noise dominates, it only adds old iterates.
    Full batches; a rule of thumb tested against tuned runs, not a theorem.

    Args:
        training: the run; its step size and noise are tuned for each way.
        loss: what is known about the loss.
        epsilon, delta: the privacy that both shall have.
        spectrum: eigenvalues of the Hessian, public.
        start: distance to the minimum in each direction, or a scale of it, public.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=1000, steps=100, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> loss = Loss(smoothness=1.0, strong_convexity=0.1)
    >>> [averaging_helps(run, loss, e, 1e-6, spectrum=[0.1, 0.3, 1.0]) for e in (0.01, 1.0)]
    [False, True]
    """
    values = checked_spectrum(spectrum, loss)
    distances = np.broadcast_to(np.asarray(start, dtype=np.float64), values.shape)
    floor = (training.impulse / gaussian.mu(epsilon, delta)) ** 2 * float(np.sum(1 / values))
    return floor <= HELPS_BELOW * float(values @ distances**2)
