"""What the updates of a run on a device draw: their batches and their noise.

With a seeded source, batches and noise are those of the NumPy backend, number by number. Secure
Gaussians cost a host more than a small step costs a GPU, so a GPU makes them itself where it can
(`lastiterate.train.torch_backend.noise`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lastiterate.description import Training
from lastiterate.description.rows import Rows, RowStream
from lastiterate.noise import Source
from lastiterate.train.torch_backend import noise as device_noise


@dataclass(frozen=True)
class Draw:
    """The records of one update and its standard Gaussians (None for an update without noise)."""

    rows: Rows
    noise: Tensor | None


class Draws:
    """The draws of all updates, asked for one after another."""

    def __init__(
        self,
        training: Training,
        shape: tuple[int, ...],
        source: Source,
        batches: RowStream,
        device: torch.device,
    ) -> None:
        self._noises, self._shape, self._source = training.noises, shape, source
        self._batches, self._device = batches, device
        self.on_device = None
        if device_noise.available(device, source):
            self.on_device = device_noise.DeviceSource(device)

    def of(self, update: int) -> Draw:
        """The batch and the noise of an update."""
        return Draw(self.rows(), self.noise(update))

    def rows(self) -> Rows:
        """The next batch; drawn before the noise of its update."""
        return next(self._batches)

    def noise(self, update: int) -> Tensor | None:
        """The noise of an update, None if it has none."""
        if self._noises[update] == 0:
            return None
        if self.on_device is not None:
            return self.on_device.normal(self._shape)
        return torch.from_numpy(self._source.normal(self._shape)).to(self._device)
