"""Runs on PyTorch: features in tensors or shards, kernels, noise made where it is used.

The same descriptions by the same law as with NumPy. Asking whether data is PyTorch's does not
import torch.
"""

from __future__ import annotations

import sys
from typing import Any


def on_device(data: Any) -> bool:
    """Whether these features are PyTorch's to multiply: a tensor or `Shards`.

    >>> on_device([[1.0, 2.0]])
    False
    """
    if "torch" not in sys.modules:  # then nobody can have made a tensor
        return False
    from torch import Tensor

    from lastiterate.train.torch_backend.shards import Shards

    return isinstance(data, (Tensor, Shards))


def as_array(values: Any) -> Any:
    """A tensor as a NumPy array in host memory; anything else unchanged.

    >>> as_array([1, 2])
    [1, 2]
    """
    if "torch" not in sys.modules:
        return values
    import torch

    if not isinstance(values, torch.Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
