"""What meets PyTorch: linear heads on a device, networks, Opacus, data loaders.

Importing this room does not import torch; using one of its names does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lastiterate.torch.loader import describe_loader

if TYPE_CHECKING:
    from lastiterate.torch.accountant import HiddenStateAccountant
    from lastiterate.torch.bounded_heads import BoundedSoftmax, BoundedTwoLayer
    from lastiterate.torch.descent import noisy_descent
    from lastiterate.torch.distributed import distributed_descent
    from lastiterate.torch.modules import noisy_module_descent
    from lastiterate.torch.probe import PrivateLinearProbe
    from lastiterate.torch.regularity import estimate_holder
    from lastiterate.torch.shards import Shards

_HOME = {
    "BoundedSoftmax": "bounded_heads",
    "BoundedTwoLayer": "bounded_heads",
    "HiddenStateAccountant": "accountant",
    "PrivateLinearProbe": "probe",
    "Shards": "shards",
    "distributed_descent": "distributed",
    "estimate_holder": "regularity",
    "noisy_descent": "descent",
    "noisy_module_descent": "modules",
}

__all__ = [
    "BoundedSoftmax",
    "BoundedTwoLayer",
    "HiddenStateAccountant",
    "PrivateLinearProbe",
    "Shards",
    "describe_loader",
    "distributed_descent",
    "estimate_holder",
    "noisy_descent",
    "noisy_module_descent",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
