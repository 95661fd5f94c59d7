"""`noisy_descent` with PyTorch: the same description, the same loop, the same law as with NumPy.

What sums round is charged (`summation`, `fixed_point`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lastiterate import train
from lastiterate.description import Training
from lastiterate.errors import DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.train.loop import Run
from lastiterate.train.result import Descent
from lastiterate.train.settings import Settings, taking
from lastiterate.train.torch_backend.backend import TorchBackend
from lastiterate.train.torch_backend.gradients import DeviceGradients


@taking(train.noisy_descent)
def noisy_descent(objective: LinearLoss, data: Any, training: Training, **settings: Any) -> Descent:
    """Run a description for a linear head with PyTorch, also where the data is an array.

    Arguments are those of `lastiterate.train.noisy_descent`, and:

    Args:
        objective: a loss of `lastiterate.losses`.
        data: features, one row per record: a tensor, an array, `Shards`, or paths of shards. What
            does not fit on the device stays on the host and is streamed in every update.
        training: what to run.
        device: by default where the data is, else a GPU if there is one.
        products: "double" multiplies and adds in double precision whatever the features are.
            "exact" rounds features once, towards zero, to 16 bits and computes in whole numbers,
            which a GPU does many times faster; "exact8" rounds them to 8 bits, twice as fast
            again. All three have a proved error and can be certified; the last two need a radius
            (or a diameter).
        rows: what happens to rows longer than the bound: "check" refuses them, "shorten" shortens
            them, "rescale" gives every row the norm of the bound; all without copying the data.
        entry_bound: with "exact" and "exact8": single features are cut off here, and the bits are
            spent on what is below; by default the bound of the rows. It must not depend on the
            data: a few times feature_bound/√columns suits features of many directions.

    >>> from lastiterate import FullBatch
    >>> from lastiterate.losses import Logistic
    >>> X, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0])
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> noisy_descent(Logistic(), X, run, labels=y, regularization=0.1).parameters.round(3)
    array([ 1.177, -1.177])
    """
    return descent(objective, data, training, Settings(**settings))


def descent(objective: LinearLoss, data: Any, training: Training, told: Settings) -> Descent:
    """The run on a device, as told."""
    where = device_of(data, told.device)
    gradients = DeviceGradients.told(linear(objective), data, training, told, where)
    run = Run.of(objective, training, told, gradients)
    return run.descended(gradients, TorchBackend(where, run.source))


def linear(objective: Any) -> LinearLoss:
    """The objective, if it is one the device can run."""
    if not isinstance(objective, LinearLoss):
        why = "other models run with lastiterate.torch.noisy_module_descent"
        raise DescriptionError("objective", objective, "a loss of lastiterate.losses", why)
    return objective


def device_of(data: Any, device: str | torch.device | None) -> torch.device:
    """Where to run: as asked, else where the data is, else on a GPU if there is one."""
    if device is not None:
        try:
            return torch.device(device)
        except (RuntimeError, TypeError):
            why = "the run computes there"
            raise DescriptionError("device", device, "a device of PyTorch", why) from None
    if isinstance(data, Tensor) and data.device.type != "cpu":
        return data.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
