"""The library's linear losses as the kernels know them."""

from __future__ import annotations

import math

from lastiterate.errors import UnsupportedError
from lastiterate.losses import (
    Huber,
    LinearLoss,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.torch.kernels import Head


def head_of(objective: LinearLoss, *, margin: float = math.inf, longest: float = math.inf) -> Head:
    """The derivative of this loss in its scores, clipped as the run says.

    >>> head_of(OneVsRest(Logistic(), classes=3)).outputs
    3
    """
    binary = objective.binary if isinstance(objective, OneVsRest) else objective
    kind, width = _kind(binary)
    ovr = isinstance(objective, OneVsRest)
    return Head(kind, objective.outputs(), width, ovr, margin, longest)


def _kind(objective: LinearLoss) -> tuple[str, float]:
    if isinstance(objective, Softmax):
        return "softmax", 1.0
    if isinstance(objective, Logistic):
        return "logistic", 1.0
    if isinstance(objective, Huber):
        return "error", objective.threshold
    if isinstance(objective, SquaredError):
        return "error", objective.clip
    if isinstance(objective, SmoothedHinge):
        return "smoothed hinge", objective.width
    if isinstance(objective, SquaredHinge):
        return "squared hinge", objective.clip
    raise UnsupportedError(
        f"The torch backend does not know {type(objective).__name__}: it computes slopes on the "
        "device. Use a loss of lastiterate.losses, or the NumPy backend."
    )
