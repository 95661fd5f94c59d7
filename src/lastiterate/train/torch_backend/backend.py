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
from lastiterate.train.grid import Parameters, block, room
from lastiterate.train.loop import Backend, Updates
from lastiterate.train.torch_backend.noise import DeviceSource, available
from lastiterate.train.torch_backend.replay import recorded


class TorchBackend(Backend):
    """Tensors on one device, for one run with this source of randomness."""

    def __init__(self, device: torch.device, source: Source) -> None:
        self._device = device
        self._own = DeviceSource(device) if available(device, source) else None

    def put(self, values: Parameters) -> Tensor:
        return torch.from_numpy(values.copy()).to(self._device)

    def taken(self, values: Tensor) -> Parameters:
        copied: Parameters = values.detach().clone().cpu().numpy()
        return copied

    def normal(self, source: Source, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(source.normal(shape)).to(self._device)

    def rounded_normal(self, source: Source, scale: float, shape: tuple[int, ...]) -> Tensor:
        if self._own is not None:
            drawn: Tensor = self._own.rounded_normal(scale, shape)
            return drawn
        return torch.from_numpy(source.rounded_normal(scale, shape)).to(self._device)

    def rounded(self, values: Tensor, spacing: float) -> Tensor:
        return values.mul_(1 / spacing).round_().mul_(spacing)

    def boxed(self, values: Tensor, bound: float) -> Tensor:
        return values.clamp_(-bound, bound)

    def projected(
        self, theta: Tensor, centre: Tensor, radius: float, spacing: float = 0.0
    ) -> Tensor:
        if math.isinf(radius):
            return theta
        offset = theta - centre
        if spacing:
            n, limit = offset / spacing, radius / spacing
            long = self.length(n)
            inside = (n * (limit / long)).trunc() * spacing
            return torch.where(long <= limit, theta, centre + inside)
        length = torch.linalg.vector_norm(offset)  # without waiting for it
        return torch.where(length <= radius, theta, centre + offset * (radius / length))

    def length(self, values: Tensor) -> Tensor:
        n = values.flatten()
        b = block(n.numel())
        squares = torch.nn.functional.pad(n * n, (0, b**3 - n.numel()))
        long = squares.view(b, b, b).sum(2).sum(1).sum().sqrt()
        return long * (1 + 2 * room(n.numel()))

    @contextmanager
    def running(self) -> Iterator[None]:
        # No TF32: it would round 32-bit gradients of networks beyond the room that is kept for
        # rounding. And kernels and graphs are launched on the current GPU.
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        current = torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()
        try:
            with current:
                yield
        finally:
            torch.set_float32_matmul_precision(before)

    def quicker(self, updates: Updates) -> Callable[[int], None] | None:
        return recorded(updates)
