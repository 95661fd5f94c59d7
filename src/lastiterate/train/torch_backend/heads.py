"""The library's linear losses as the kernels know them."""

from __future__ import annotations

import math

import numpy as np
import torch

from lastiterate.errors import UnsupportedError
from lastiterate.losses import (
    BallSoftmax,
    BinaryLoss,
    Huber,
    LinearLoss,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.train.torch_backend.kernels import Head


def head_of(objective: LinearLoss, *, margin: float = math.inf, longest: float = math.inf) -> Head:
    """The derivative of this loss in its scores, clipped as the run says.

    >>> from lastiterate.losses import Logistic
    >>> head_of(OneVsRest(Logistic(), classes=3)).outputs
    3
    """
    ovr = isinstance(objective, OneVsRest)
    binary = objective.binary if isinstance(objective, OneVsRest) else objective
    kind, width = _kind(binary)
    cap = float(getattr(binary, "cap", 1.0))
    head = Head(kind, objective.outputs(), width, ovr, cap, margin, longest)
    if not _agrees(head, objective):
        raise _unknown(objective)
    return head


def _kind(objective: LinearLoss) -> tuple[str, float]:
    if isinstance(objective, BallSoftmax):
        return "ball", objective.radius
    if isinstance(objective, Softmax):
        return "softmax", 1.0
    if isinstance(objective, Huber):
        return "error", objective.threshold
    if isinstance(objective, SquaredError):
        return "error", objective.clip
    if isinstance(objective, SmoothedHinge):
        return "smoothed hinge", objective.width
    if isinstance(objective, SquaredHinge):
        return "squared hinge", objective.clip
    if isinstance(objective, BinaryLoss):
        return "logistic", 1.0
    raise _unknown(objective)


def _agrees(head: Head, objective: LinearLoss) -> bool:
    """Whether the head computes this very loss: a subclass may have changed its slope."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0.0, 3.0, (64, head.outputs))
    several = isinstance(objective, (Softmax, OneVsRest))
    y = rng.integers(0, head.outputs, 64) if several else rng.choice([-1.0, 1.0], 64)
    told = objective.slope((scores if several else scores[:, 0]).copy(), y)
    ours = head.slope(torch.from_numpy(scores), torch.from_numpy(y).double()).numpy()
    return bool(np.allclose(ours, np.reshape(told, ours.shape), rtol=1e-9, atol=1e-12))


def _unknown(objective: LinearLoss) -> UnsupportedError:
    return UnsupportedError(
        f"The torch backend does not know {type(objective).__name__}: it computes slopes on the "
        "device. Use a loss of lastiterate.losses, or the NumPy backend."
    )
