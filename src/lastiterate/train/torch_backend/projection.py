"""The nearest point of a ball, on a device and without waiting for it."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def projected(theta: Tensor, centre: Tensor, radius: float) -> Tensor:
    """The point of the ball around ``centre`` that is nearest to ``theta``."""
    if math.isinf(radius):
        return theta
    offset = theta - centre
    length = torch.linalg.vector_norm(offset)
    return torch.where(length <= radius, theta, centre + offset * (radius / length))
