"""The optimal full-batch schedule, and an uncomfortable truth about it.

For given step sizes the best noises have a closed form, and at them the hidden state is worthless:
the taut string costs exactly what publishing every iterate costs. Hidden states pay for constrained
schedules: constant noise, mini-batches. Proof: docs/theory/schedules.md.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

from lastiterate._internal.formatting import printed
from lastiterate.accounting.accountant import account
from lastiterate.accounting.risk import Floats, assumed, responses
from lastiterate.curves import gaussian
from lastiterate.description import Loss, Schedule, Training
from lastiterate.description.fields import checked_delta, number
from lastiterate.errors import AssumptionError, DescriptionError, TargetError

_MOST_TUNED = 256  # step sizes beyond this many are not tuned one by one


def optimal_noises(
    step_sizes: ArrayLike,
    impulse: float,
    mu: float,
    spectrum: ArrayLike,
    *,
    window: int = 1,
    counts: ArrayLike = 1.0,
) -> Floats:
    """nu_k² = (S²/mu²) η_k (Σ_j η_j √w_j)/√w_k: the least noise risk that is mu-GDP.

    Statement (hidden state is worthless at the optimal noise): for fixed step sizes the minimum of
    ½ Σ w_k nu_k² under the taut string's constraint equals the minimum under composition,
    Σ (η_k S/nu_k)² <= mu², attained here, with the value (S²/2mu²)(Σ η_k √w_k)².
    Assumptions for the risk: quadratic model; for the privacy: none beyond bounded gradients.
    Reference: this library, docs/theory/schedules.md. Status: sound (tested to 1e-9).

    ``window`` > 1: the noises that are best for a tail average, accounted by composition.

    Args:
        step_sizes: one per step.
        impulse: S: how much one record changes the mean gradient.
        mu: the privacy that the run shall have.
        spectrum: eigenvalues of the Hessian, public.
        window: length of the tail average that is released; 1 for the last iterate.
        counts: how often each eigenvalue occurs.

    >>> nu = optimal_noises([0.5, 0.5], impulse=1.0, mu=1.0, spectrum=[1.0])
    >>> round(float(np.sum((0.5 / nu) ** 2)), 12)
    1.0
    """
    etas = np.asarray(step_sizes, dtype=np.float64)
    values = np.atleast_1d(np.asarray(spectrum, dtype=np.float64))
    weights = responses(etas, values, np.full(window, 1.0 / window), counts)[1]
    roots = np.sqrt(weights)
    if np.any((roots == 0) & (etas > 0)):
        why = "a step whose noise is forgotten at once may have as much of it as one likes"
        raise DescriptionError("step_sizes", etas, "steps whose noise reaches the end", why)
    total = float(etas @ roots)
    squares = np.divide(etas * total, roots, out=np.zeros(len(etas)), where=roots > 0)
    return np.asarray(np.sqrt(squares) * impulse / mu, dtype=np.float64)


def optimal_schedule(
    training: Training,
    loss: Loss,
    epsilon: float,
    delta: float,
    *,
    spectrum: ArrayLike | None = None,
    start: ArrayLike = 1.0,
    counts: ArrayLike = 1.0,
) -> Training:
    """The full-batch run with the least predicted risk at (epsilon, delta): step sizes and noises.

    Minimises ½ Σ λ_i start_i² p_i² + (S²/2mu²)(Σ η_k √w_k)² over the step sizes (L-BFGS), then
    takes `optimal_noises`. ``spectrum`` (default `log_uniform`) and ``start``, a scale of the
    distance to the minimum, must be public: privacy does not depend on them, but choosing them from
    the data would cost some. The run's own step_size and noise are ignored. Accounted like any
    other run: by the better of composition and taut string, which are equal here.

    Args:
        training: the run; its step size and noise are ignored.
        loss: what is known about the loss.
        epsilon, delta: the privacy that the run shall have.
        spectrum: eigenvalues of the Hessian.
        start: distance to the minimum in each direction, or a scale of it.
        counts: how often each eigenvalue occurs.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=1000, steps=16, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> loss = Loss(smoothness=1.0, strong_convexity=0.1)
    >>> best = optimal_schedule(run, loss, epsilon=1.0, delta=1e-6)
    >>> account(best, loss).epsilon(1e-6) <= 1.0
    True
    """
    number("epsilon", epsilon, above=0.0)
    if not training.batches.full:
        raise AssumptionError(
            "The optimal schedule is stated for full batches, but the batches are "
            f"{training.batches.name}. Use final_noise or schedule='equalised' there."
        )
    if training.momentum:
        why = "the step sizes are tuned for plain descent, which the closed form describes"
        raise DescriptionError("momentum", training.momentum, "0", why)
    if not 1 <= training.steps <= _MOST_TUNED:
        why = "each step size is tuned; more steps than that gain nothing"
        raise DescriptionError("steps", training.steps, f"1 to {_MOST_TUNED}", why)
    values = assumed(loss, spectrum)
    distances = np.broadcast_to(np.asarray(start, dtype=np.float64), values.shape)
    mu = gaussian.mu(epsilon, checked_delta(delta, training.records))
    # Beyond this the update may expand, whatever the spectrum that is assumed.
    cap = 2.0 / (loss.strong_convexity + (loss.smoothness or 0.0) + 2 * loss.regularization)
    size = (training.impulse / mu) ** 2
    etas = optimal_steps(training.steps, values, distances, size, cap, counts)
    noises = optimal_noises(etas, training.impulse, mu, values, counts=counts)
    for nudge in (1e-12, 1e-10, 1e-8, 1e-6):  # rounding of the accountant is upwards
        found = training.replace(
            step_size=Schedule("step_size", etas),
            noise=Schedule("noise", noises * (1 + nudge)),
            schedule=None,
            final_noise=1.0,
        )
        if account(found, loss).epsilon(delta) <= epsilon:
            return found
    raise TargetError(f"No noise meets epsilon = {printed(epsilon)} at delta = {printed(delta)}.")


def optimal_steps(
    steps: int,
    spectrum: Floats,
    start: Floats,
    noise: float,
    cap: float,
    counts: ArrayLike = 1.0,
) -> Floats:
    """Step sizes in (0, cap] that minimise the risk at optimal noises; noise = (S/mu)²."""
    curved = spectrum * np.asarray(counts, dtype=np.float64)
    k = np.arange(steps, dtype=np.float64)
    best_value, best = math.inf, np.full(steps, cap)
    # At the cap, then about 1/k; how soon it decays depends on the noise: a few starts.
    for share in (0.1, 0.3, 0.6, 1.0):
        decay = 1.0 / (1.0 + np.maximum(k - share * steps, 0.0) * float(spectrum.min()) * cap)
        for scale in (0.5, 0.95):
            found = scipy.optimize.minimize(
                _risk,
                np.full(steps, scale) * decay,
                args=(spectrum, curved, start, noise, cap),
                jac=True,
                method="L-BFGS-B",
                bounds=[(1e-6, 1.0)] * steps,
                options={"maxiter": 300, "maxcor": 20},
            )
            if found.fun < best_value:
                best_value, best = float(found.fun), found.x * cap
    return np.asarray(best, dtype=np.float64)


def _risk(
    shares: Floats, spectrum: Floats, curved: Floats, start: Floats, noise: float, cap: float
) -> tuple[float, Floats]:
    """Bias + noise of step sizes cap·shares, and the gradient by the chain rule, backwards."""
    etas = shares * cap
    factors = 1.0 - np.outer(etas, spectrum)
    steps = len(etas)
    after = np.ones((steps, len(spectrum)))  # R_k = Π_{l>k} (1 − η_l λ)
    np.cumprod(factors[:0:-1], axis=0, out=after[:-1][::-1])
    left = factors[0] * after[0]
    roots = np.sqrt((after * after) @ curved)
    total = float(etas @ roots)
    value = float(curved @ (start * left) ** 2) / 2 + noise / 2 * total * total
    direct = noise * total * etas[:, None] * curved * after / np.maximum(roots, 1e-300)[:, None]
    slope = np.empty(steps)
    flow = curved * start * start * left  # dF/dR_{k−1}
    for k in range(steps):
        slope[k] = noise * total * roots[k] - float(np.sum(flow * spectrum * after[k]))
        flow = direct[k] + flow * factors[k]
    return value, slope * cap
