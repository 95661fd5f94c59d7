"""Whether an optimizer of PyTorch makes the update that theorems speak of."""

from __future__ import annotations

from typing import Any

from torch import optim

from lastiterate.errors import UnsupportedError


def plain_sgd(optimizer: Any) -> None:
    """Raise unless this is gradient descent and nothing else; an L2 term may be in it.

    >>> import torch
    >>> plain_sgd(optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1, weight_decay=0.01))
    """
    if type(optimizer) is not optim.SGD:
        raise UnsupportedError(
            f"{type(optimizer).__name__} is not plain gradient descent, so the loss' regularity "
            "says nothing about how its updates drive two runs apart. Use torch.optim.SGD, or "
            "Loss.unknown()."
        )
    for group in optimizer.param_groups:
        extra = [key for key in ("momentum", "dampening", "nesterov", "maximize") if group.get(key)]
        if extra:
            raise UnsupportedError(
                f"SGD with {', '.join(extra)} is not the described update: the state of the run is "
                "more than its parameters. Set them to 0, or use Loss.unknown()."
            )
