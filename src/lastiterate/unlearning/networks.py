"""Networks, and whatever else no theorem follows: forgetting by projection and noise.

It needs nothing of the loss or of how the model was trained, and pays for that with noise in every
parameter. Hence a room of its own, whose plan says first whether starting again is better.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lastiterate.bounds.taut_string import taut_string
from lastiterate.curves import gaussian
from lastiterate.description.validation import number, whole
from lastiterate.errors import DescriptionError, TargetError
from lastiterate.printing import printed, printed_down

_MOST = 2**20  # clean steps that are looked at
_UP = 1 + 1e-9  # far more than the rounding of the closed form


@dataclass(frozen=True)
class NetworkPlan:
    """How to forget whatever the training was; print it. Made by `plan_network`.

    Attributes:
        parameters: d, how many numbers the model has.
        radius: of the ball around the public point that the model is projected on.
        steps: noisy steps on what remains.
        noise: of each of them.
        mu: of the model after them, against the same steps from the public point itself.
        epsilon: of the target.
        delta: of the target.
        spread: how far all noise together moves the model (root mean square, over all parameters).
    """

    parameters: int
    radius: float
    steps: int
    noise: float
    mu: float
    epsilon: float
    delta: float
    spread: float

    @property
    def restart_better(self) -> bool:
        """Whether the public point is no farther from the model than the noise throws it."""
        return self.spread >= self.radius

    @property
    def verdict(self) -> str:
        """Whether to do it at all."""
        moves = f"the noise moves {self.parameters:,} parameters by {self.spread:.4g}"
        ball = f"the public point is within {self.radius:g} of the model"
        if self.restart_better:
            return f"START AGAIN from the public point: {moves}, and {ball}."
        return f"It may pay: {moves}, and {ball}."

    def __str__(self) -> str:
        return "\n".join(
            [
                self.verdict,
                f"Project on the ball of radius {self.radius:g} around the public point, then "
                f"{self.steps:,} steps on what remains, noise {self.noise:.6g}.",
                f"epsilon = {printed(self.epsilon)}, delta = {printed(self.delta)}, against the "
                "same steps from the public point itself; no assumption on the loss.",
                "It does not take back what was released before.",
            ]
        )


def plan_network(
    parameters: int,
    radius: float,
    clip: float,
    step_size: float,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    regularization: float = 0.0,
    steps: int | None = None,
) -> NetworkPlan:
    """Noise that hides any earlier training: a projection on a public ball, then noisy steps.

    *Statement.* x is projected on the ball of radius C_0 around a point p that does not depend on
    the data; K steps x - η(clipped gradient + λ(x - p)) + N(0, ν²I) on what remains follow, each
    gradient of norm at most C_1. Reference: the same steps from p. The string that starts at C_0,
    with c = |1 - ηλ| and impulses 2ηC_1, bounds the distance in both orders.
    *Proof.* Two clipped gradients differ by at most 2C_1, wherever they are taken: the distance
    after a step is at most c z + 2ηC_1, which is all that shifted interpolation asks. ∎ (Comparing
    with another point of the ball starts at 2C_0.) A warning says when starting again is better,
    which it is in many dimensions: the noise has norm about √d C_0/μ.

    Args:
        parameters: d.
        radius: C_0.
        clip: C_1, of the gradient of a whole batch (its L2 term apart).
        step_size: η.
        epsilon, delta: the target.
        regularization: λ, towards p.
        steps: K; the number with the least noise per step if it is left out.

    >>> plan = plan_network(2, radius=1.0, clip=0.01, step_size=0.1, epsilon=20.0, steps=1)
    >>> plan.restart_better, round(plan.noise, 3), round(plan.spread, 3)
    (False, 0.291, 0.411)
    """
    dimensions = whole("parameters", parameters, "noise is added to each of them")
    far = number("radius", radius, "it is the distance that noise has to hide", at_least=0.0)
    longest = number("clip", clip, "it bounds how far a step drives two models", at_least=0.0)
    eta = number("step_size", step_size, "it scales what the clip lets through", at_least=0.0)
    l2 = number("regularization", regularization, "it draws two models together", at_least=0.0)
    if eta * l2 > 2:
        why = "longer steps drive two models apart by themselves"
        raise DescriptionError("regularization", l2, "at most 2/step_size", why)
    allowed = gaussian.mu(
        number("epsilon", epsilon, "it is the target to meet", at_least=0.0),
        number("delta", delta, "it is the target to meet", above=0.0, at_most=0.5),
    )
    if not allowed:
        raise TargetError("No mu is known that meets this epsilon and delta: take a smaller one.")
    exact = abs(1 - Fraction(eta) * Fraction(l2))  # in doubles nothing may be left of it
    c, s = float(exact) * _UP, 2 * eta * longest * _UP
    if steps is None:
        some = np.unique(np.geomspace(1, _MOST, 2000).astype(int)).astype(float)
        count = int(some[np.argmin(_noise(c, s, far, some))])
    else:
        count = whole("steps", steps, "each of them adds noise")
        if count > _MOST:
            raise TargetError(f"At most {_MOST:,} steps are planned; they only drive models apart.")
    noise = float(_noise(c, s, far, np.array([float(count)]))[0]) / allowed * _UP
    every = np.full(count, 1.0)
    found = taut_string(c * every, s * every, noise * every, far).mu if noise else 0.0
    if found > allowed:
        raise TargetError(f"No noise was found that meets mu = {printed_down(allowed)}.")
    spread = noise * math.sqrt(dimensions * float(_squares(c, np.array([float(count)]))[0]))
    plan = NetworkPlan(dimensions, far, count, noise, found, float(epsilon), float(delta), spread)
    if plan.restart_better:
        warnings.warn(plan.verdict, UserWarning, stacklevel=2)
    return plan


def _squares(c: float, steps: np.ndarray) -> np.ndarray:
    """1 + c² + ... + c^(2K - 2)."""
    return steps if c == 1 else np.expm1(2 * steps * math.log(c)) / (c * c - 1) if c else steps**0


def _noise(c: float, s: float, start: float, steps: np.ndarray) -> np.ndarray:
    """ν of mu = 1, one block: (c^K C_0 + s(1 + c + ... + c^(K - 1)))/√(1 + c² + ...)."""
    sums = steps if c == 1 else np.expm1(steps * math.log(c)) / (c - 1) if c else steps**0
    answer: np.ndarray = (c**steps * start + s * sums) / np.sqrt(_squares(c, steps))
    return answer
