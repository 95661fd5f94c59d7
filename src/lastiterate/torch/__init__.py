"""What meets PyTorch: linear heads on a device, networks, Opacus, data loaders.

Importing this package does not import torch; using one of its names does. Opacus knows the
accountant ``"lastiterate"`` from then on, whichever of the two is imported first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate._internal.lazy import loaded_on_use
from lastiterate.torch.loader import describe_loader
from lastiterate.torch.registration import register_when_loaded

if TYPE_CHECKING:
    from lastiterate.torch.accountant import HiddenStateAccountant
    from lastiterate.torch.bounded_heads import BoundedSoftmax
    from lastiterate.torch.certified_optimizer import CertifiedOptimizer
    from lastiterate.torch.distributed import distributed_descent
    from lastiterate.torch.modules import noisy_module_descent
    from lastiterate.torch.probe import PrivateLinearProbe
    from lastiterate.torch.regularity import estimate_holder
    from lastiterate.train.torch_backend.descent import noisy_descent
    from lastiterate.train.torch_backend.shards import Shards

_HOME = {
    "BoundedSoftmax": "lastiterate.torch.bounded_heads",
    "CertifiedOptimizer": "lastiterate.torch.certified_optimizer",
    "HiddenStateAccountant": "lastiterate.torch.accountant",
    "PrivateLinearProbe": "lastiterate.torch.probe",
    "Shards": "lastiterate.train.torch_backend.shards",
    "distributed_descent": "lastiterate.torch.distributed",
    "estimate_holder": "lastiterate.torch.regularity",
    "noisy_descent": "lastiterate.train.torch_backend.descent",
    "noisy_module_descent": "lastiterate.torch.modules",
}

__all__ = [
    "BoundedSoftmax",
    "CertifiedOptimizer",
    "HiddenStateAccountant",
    "PrivateLinearProbe",
    "Shards",
    "describe_loader",
    "distributed_descent",
    "estimate_holder",
    "noisy_descent",
    "noisy_module_descent",
]

__getattr__ = loaded_on_use(__name__, _HOME, {"torch": "torch", "opacus": "torch"})

register_when_loaded()
