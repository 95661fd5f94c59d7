"""Heads that are Lipschitz by construction, with proved constants.

Features are rescaled to norm at most R and parameters are projected on a ball, so that bounds on
the gradient and on its change hold for every record and every iterate. The descent projects
around its start, so all parameters of a run have norm at most B = ‖start‖ + radius.

Write z for the scores and ℓ for the cross-entropy: ‖∇ℓ‖ ≤ √2 and ‖∇²ℓ‖ ≤ 1/2 in the scores.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor, nn

from lastiterate.description import Loss, Origin
from lastiterate.description.fields import integer, number
from lastiterate.losses.rounding import root_up, up

_UP = 1 + 1e-12  # above what a few dozen roundings of double arithmetic can change
_HALF_UP = 1 + 5e-13
_ROOM = 1 + 2.0**-16  # above what a gradient computed in float32 can be longer than the real one


class BoundedHead(nn.Module):
    """What bounded heads share: rows of bounded norm, parameters in a ball.

    Constants are for parameters in float32 or better. Train with
    ``training.gradient_norm = head.gradient_norm``, ``clipping="none"`` and
    ``training.diameter = 2 * head.radius``.
    """

    def __init__(self, radius: float, feature_bound: float) -> None:
        super().__init__()
        self.radius = number("radius", radius, above=0.0)
        self.feature_bound = number("feature_bound", feature_bound, above=0.0)
        self._started = 0.0  # the largest norm that a run started from

    @property
    def start(self) -> float:
        """No run of this head starts from longer parameters than these, rounded up.

        The present ones are where the next run starts; those of a run that ended are kept
        (`started`), as its constants may be asked for afterwards.
        """
        with torch.no_grad():
            squares = sum(float((p.double() ** 2).sum()) for p in self.parameters())
        return max(math.sqrt(squares) * _HALF_UP, self._started)

    def started(self) -> None:
        """A run starts from the present parameters."""
        self._started = self.start

    @property
    def reach(self) -> float:
        """B: no parameters of a run are longer."""
        return (self.start + self.radius) * _UP

    def bounded(self, x: Tensor) -> Tensor:
        """Rows of norm at most the feature bound; each depends on its own record alone."""
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        most = self.feature_bound * (1 - 4 * torch.finfo(x.dtype).eps)
        short: Tensor = x * (most / norms.clamp(min=most))
        return short

    @property
    def gradient_norm(self) -> float:
        """No record's gradient is longer anywhere in the ball."""
        raise NotImplementedError

    def regularity(self, regularization: float = 0.0) -> Loss:
        """What the accountant needs to know, vouched for by this library."""
        raise NotImplementedError


class BoundedSoftmax(BoundedHead):
    """Softmax regression that starts at 0, parameters in the ball of radius B: convex.

    Scores z = Wx with ‖W‖ ≤ B, ‖x‖ ≤ R. The smoothness is R²/2, as without the ball. The gradient
    is shorter than √2·R because no score can be far above that of the true class:

    ‖∇‖ = ‖p − e_y‖·‖x‖ and ‖p − e_y‖² = (1 − p_y)² + Σ_{j≠y} p_j² ≤ 2(1 − p_y)². With
    t_j = z_j − z_y = (w_j − w_y)·x ≤ ‖w_j − w_y‖·R ≤ √2·BR for every j ≠ y,
    (1 − p_y)/p_y = Σ_{j≠y} exp(t_j) ≤ (C − 1)·exp(√2·BR) =: S, hence ‖∇‖ ≤ √2·R·S/(1 + S).
    For two classes this is attained: W = B/√2·(e_2 − e_1) ⊗ x/R, y = 1.

    >>> head = BoundedSoftmax(features=5, classes=2, radius=1.0)
    >>> round(head.gradient_norm, 4), print(head.regularity())
    convex, 0.5-smooth (proved)
    (1.1377, None)
    """

    def __init__(
        self, features: int, classes: int, radius: float, feature_bound: float = 1.0
    ) -> None:
        super().__init__(radius, feature_bound)
        self.classes = integer("classes", classes, at_least=2)
        self.weight = nn.Parameter(torch.zeros(self.classes, features))

    def forward(self, x: Tensor) -> Tensor:
        return self.bounded(x) @ self.weight.T

    @property
    def gradient_norm(self) -> float:
        R, B = self.feature_bound, self.reach
        # S/(1 + S) = 1/(1 + 1/S), which cannot overflow.
        share = 1 / (1 + math.exp(-math.sqrt(2) * B * R) / (self.classes - 1))
        return min(math.sqrt(2) * R * share * _UP, root_up(2 * Fraction(R) ** 2)) * _ROOM

    def regularity(self, regularization: float = 0.0) -> Loss:
        smoothness = up(Fraction(self.feature_bound) ** 2 / 2)
        origin = None
        if type(self) is BoundedSoftmax:
            R, B = self.feature_bound, self.reach
            origin = Origin("bounded-softmax", R, B, self.classes, start=self.start)
        return Loss(smoothness, regularization=regularization, provenance="proved", origin=origin)
