"""The continuous process behind noisy gradient descent, for study.

Chourasia, Ye & Shokri 2021 analyse noisy gradient descent through a diffusion that passes through
its iterates. Here it is, by Euler-Maruyama: plain Langevin diffusion, the tracing diffusion whose
gradient is held fixed during a step, and the coupled tracing diffusions of two neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError
from lastiterate.noise.seeded import generator as seeded_generator

Floats = NDArray[np.float64]
Gradient = Callable[[Floats], Floats]


@dataclass(frozen=True)
class DiffusionPath:
    """Paths of many particles: ``states[i]`` (particles, d) at time ``times[i]``."""

    times: Floats
    states: Floats

    @property
    def last(self) -> Floats:
        """The particles at the final time."""
        return np.asarray(self.states[-1])


def langevin_diffusion(
    gradient: Gradient,
    start: Floats,
    *,
    time: float,
    substeps: int,
    sigma: float = 1.0,
    step_size: float | None = None,
    neighbour: Gradient | None = None,
    random_state: int | np.random.Generator | None = None,
) -> DiffusionPath:
    """Simulate dTheta = -gradient(Theta) dt + sqrt(2) sigma dW, ``substeps`` points in all.

    Without ``step_size``: Euler-Maruyama with time step time/substeps.
    With ``step_size`` eta (Chourasia, Ye & Shokri 2021, section 3.1): the gradient is held at its
    value at the start of each interval of length eta; at multiples of eta the law is exactly that
    of noisy gradient descent theta <- theta - eta gradient(theta) + sqrt(2 eta) sigma N(0, I), at
    any time step. With ``neighbour`` too, half of the coupled pair: every interval begins with the
    jump -eta U1 and drifts by -U2 dt, U1 and U2 the half sum and half difference of the gradients.

    Args:
        gradient: of the potential, for many points at once.
        start: points, one row each.
        time: how long.
        substeps: points in time.
        sigma: scale of the noise.
        step_size: of the noisy gradient descent to pass through.
        neighbour: gradient of the other dataset.
        random_state: seed or generator.

    >>> path = langevin_diffusion(lambda t: t, np.full((2000, 1), 3.0), time=4.0, substeps=400,
    ...                           random_state=0)
    >>> bool(abs(path.last.mean()) < 0.15), bool(abs(path.last.var() - 1) < 0.15)
    (True, True)
    """
    theta = np.array(start, dtype=np.float64, ndmin=2)
    number("time", time, "the diffusion runs so long", above=0)
    number("substeps", substeps, "the diffusion is followed on so many points", at_least=1)
    number("sigma", sigma, "it scales the noise", at_least=0)
    if neighbour is not None and step_size is None:
        raise DescriptionError(
            "step_size", None, "given with neighbour", "coupled diffusions trace a descent"
        )
    generator = seeded_generator(random_state)
    dt = time / substeps
    hold = 1 if step_size is None else round(step_size / dt)
    if step_size is not None and (hold < 1 or abs(hold * dt / step_size - 1) > 1e-9):
        why = "the gradient changes on the grid"
        raise DescriptionError("step_size", step_size, f"a multiple of time/substeps = {dt:g}", why)
    states = np.empty((substeps + 1, *theta.shape))
    states[0] = theta
    for k in range(substeps):
        if k % hold == 0:
            drift = gradient(theta)
            if neighbour is not None:
                other = neighbour(theta)
                theta = theta - hold * dt * (drift + other) / 2
                drift = (drift - other) / 2
        noise = np.sqrt(2 * dt) * sigma * generator.standard_normal(theta.shape)
        theta = theta - dt * drift + noise
        states[k + 1] = theta
    return DiffusionPath(np.linspace(0.0, time, substeps + 1), states)
