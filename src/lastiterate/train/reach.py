"""How far a run gets from its start: a public ball around it that practically never acts.

What scores round grows with the length of parameters, so a run is projected on a ball where its
description has none. Projections cost nothing; the ball need only be wide enough to be useless.

**Statement.** (1) Gradients of length at most K move a run by at most KΣη without noise, and,
with an L2 term, ηλ ≤ 1, no farther from 0 than K/λ or where it started. (2) Let every record's loss
be convex, β-smooth, not negative, and at most h at 0. Without noise a run that starts at 0 stays
within √(2h·min(Ση, 1/λ)/m), m = min(1, 2 − η(β + 2λ)), whatever its batches are; one that starts at
θ₀ stays within √(‖θ₀‖² + 2h·min(Ση, 1/λ)/m) of 0. (3) Noise moves it by more than (√d + 12)·√Σν²
with a probability below e⁻⁷² in every step: in (1) beside what gradients do, in (2) because updates
bring no two points apart.

*Proof.* (2) f is the loss of a batch, θ a point, G = ∇f(θ), q = 1/(ηβ). As f is β-smooth and not
negative, ‖G‖² ≤ 2βf(θ) and ‖∇f(0)‖² ≤ 2βh; as it is convex too,
⟨G, θ⟩ ≥ f(θ) − f(0) + ‖G − ∇f(0)‖²/(2β). If q ≥ 1, ‖θ − ηG‖² = ‖θ‖² − 2η⟨G, θ⟩ + η²‖G‖² ≤
‖θ‖² + 2ηh − 2η(1 − ηβ)f(θ) ≤ ‖θ‖² + 2ηh. If ½ < q < 1 take a share q of η²‖G‖² as before, and the
rest by ‖G‖² ≤ (1 + a)‖G − ∇f(0)‖² + (1 + 1/a)‖∇f(0)‖², 1 + a = q/(1 − q): what is left over is
‖θ‖² + 2ηh·q/(2q − 1) = ‖θ‖² + 2ηh/(2 − ηβ). With an L2 term, x = ηλ, the update is 1 − x times
one with η/(1 − x), so ‖θ‖² becomes at most (1 − x)²‖θ‖² + (1 − x)·2ηh/m; its fixed point is below
h/(λm). (3) The distance of two runs with the same batches, one of them without noise, is a
√Σν²-Lipschitz function of the standard Gaussians with a mean square of at most d·Σν²: Gaussian
concentration. A penalty's proximal step keeps 0 where it is and brings no two points apart, so it
makes nothing longer; that of a constraint ends in a bounded set, which the ball holds. ∎
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Loss, Training

_DEVIATIONS = 12


def steepest(training: Training, count: int | None = None) -> float:
    """No mean gradient of ``count`` records (None: the largest batch) is longer; rounded up."""
    batches, records = training.batches, training.records
    count = batches.largest(records) if count is None else count
    return training.gradient_norm * count / batches.divisor(records) * (1 + 2**-50)


def own_ball(training: Training, start: NDArray[np.float64], l2: float) -> float:
    """A power of two at least twice as far as gradients drive a run, and farther than its noise."""
    divisor = training.batches.divisor(training.records)
    # A Poisson batch of more records has a probability below e⁻⁷⁰ (Bernstein), and is clipped.
    crowded = math.ceil(divisor + _DEVIATIONS * math.sqrt(divisor)) + 64
    usual = min(training.batches.largest(training.records), crowded)
    pushed = steepest(training, usual)
    furthest = pushed * total if (total := _total(training)) else 0.0
    if l2 > 0 and l2 * float(each(training.step_sizes).max(initial=0.0)) <= 1:
        furthest = min(furthest, pushed / l2)
    away, after = _length(start), training.proximal
    if after is not None and after.constrains:
        return _beyond(2 * (away + math.sqrt(start.size) * after.reach))
    if l2 > 0 or after is not None:  # what pulls towards 0 pulls away from the start
        furthest += 2 * away
    carried = 1 / (1 - training.momentum)  # an update is repeated, shorter every time
    return _beyond(carried * (2 * furthest + _walk(training, start.size)))


def learnt(training: Training, loss: Loss, height: float, away: float = 0.0) -> float:
    """Statement (2): how far a run without noise gets from its start, which is so far from 0.

    No record's loss is larger than ``height`` at 0.

    Infinite where it says nothing: for steps that overshoot, for clipped gradients, which are those
    of no convex loss, for batches that may be larger than they are counted, with momentum, and for
    constraints, which need not hold 0.
    """
    longest_step = float(each(training.step_sizes).max(initial=0.0))
    spare = 2 - longest_step * ((loss.smoothness or math.inf) + 2 * loss.regularization)
    plain = loss.convex and training.clipping != "gradient" and training.batches.fixed_size
    if not plain or not spare > 0 or math.isinf(height) or training.momentum:
        return math.inf
    if training.proximal is not None and training.proximal.constrains:
        return math.inf
    time = min(_total(training), 1 / loss.regularization if loss.regularization else math.inf)
    return away + math.sqrt(away**2 + 2 * height * time / min(1.0, spare))


def learnt_ball(training: Training, loss: Loss, height: float, start: NDArray[np.float64]) -> float:
    """The ball of such a run with its noise; infinite without any, where there is no grid either.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=10**6, steps=10_000, step_size=4.0, noise=1e-4, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> learnt_ball(run, Loss(smoothness=0.25), math.log(2), np.zeros(100))
    512.0
    >>> own_ball(run, np.zeros(100), 0.0)
    131072.0
    """
    if not (walk := _walk(training, start.size)):
        return math.inf
    return _beyond(2 * learnt(training, loss, height, _length(start)) + walk)


def each(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """One of equal numbers: a run of 10⁸ steps has its step size once."""
    return values[:1] if values.strides == (0,) else values


def below(value: float) -> float:
    """The power of two at or below a positive number."""
    return math.ldexp(0.5, math.frexp(value)[1]) if math.isfinite(value) else math.inf


def _beyond(value: float) -> float:
    return 2 * below(value) if value else 0.0


def _length(start: NDArray[np.float64]) -> float:
    first = float(np.abs(start).max(initial=0.0))
    return first * float(np.linalg.norm(start / first)) if first else 0.0


def _total(training: Training) -> float:
    """Ση."""
    sizes = each(training.step_sizes)
    return float(sizes.sum()) * (training.steps / max(sizes.size, 1))


def _walk(training: Training, size: int) -> float:
    """(√d + 12)·√Σν²."""
    noises = each(training.noises)
    loudest = float(noises.max(initial=0.0))
    if not loudest:
        return 0.0
    steps = float(((noises / loudest) ** 2).sum()) * (training.steps / noises.size)
    return (math.sqrt(size) + _DEVIATIONS) * loudest * math.sqrt(steps)
