"""PyTorch's arrays for the loop: parameters in double precision on a device.

With a seeded source batches and noise are those of the NumPy backend, number by number. Secure
Gaussians cost a host more than a small step costs a GPU, so a GPU makes them itself where it can
(`noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from lastiterate.noise import Source
from lastiterate.train.loop import Backend, Updates
from lastiterate.train.result import Parameters
from lastiterate.train.torch_backend import noise as device_noise
from lastiterate.train.torch_backend.replay import recorded


class TorchBackend(Backend):
    """Tensors on one device, for one run with this source of randomness."""

    def __init__(self, device: torch.device, source: Source) -> None:
        self._device = device
        own = device_noise.available(device, source)
        self.on_device = device_noise.DeviceSource(device) if own else None

    def put(self, values: Parameters) -> Tensor:
        return torch.from_numpy(values.copy()).to(self._device)

    def taken(self, values: Tensor) -> Parameters:
        copied: Parameters = values.detach().clone().cpu().numpy()
        return copied

    def normal(self, source: Source, shape: tuple[int, ...]) -> Tensor:
        if self.on_device is not None:
            drawn: Tensor = self.on_device.normal(shape)
            return drawn
        return torch.from_numpy(source.normal(shape)).to(self._device)

    def projected(self, theta: Tensor, centre: Tensor, radius: float) -> Tensor:
        if math.isinf(radius):
            return theta
        offset = theta - centre
        length = torch.linalg.vector_norm(offset)  # without waiting for it
        return torch.where(length <= radius, theta, centre + offset * (radius / length))

    @contextmanager
    def running(self) -> Iterator[None]:
        # No TF32: it would round 32-bit slopes beyond the room that is kept for rounding. And
        # kernels and graphs are launched on the current GPU.
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        current = torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()
        try:
            with current:
                yield
        finally:
            torch.set_float32_matmul_precision(before)

    def quicker(self, updates: Updates) -> Callable[[int], None] | None:
        return recorded(updates, self.on_device)
