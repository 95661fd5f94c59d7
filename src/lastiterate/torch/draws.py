"""What the updates of a run draw: their batches and their noise.

With a seeded source, batches and noise are those of the NumPy backend, number by number. Secure
Gaussians cost a host more than a small step costs a GPU, so a GPU makes them itself where it can
(`device_noise`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lastiterate.description import Training
from lastiterate.noise import Source
from lastiterate.torch import device_noise
from lastiterate.train.batches import BatchStream, Rows


@dataclass(frozen=True)
class Draw:
    """The records of one update and its standard Gaussians (None for an update without noise)."""

    rows: Rows
    noise: Tensor | None


class Draws:
    """The draws of all updates, one after another."""

    def __init__(
        self,
        training: Training,
        shape: tuple[int, ...],
        source: Source,
        batches: BatchStream,
        device: torch.device,
    ) -> None:
        self._training, self._shape, self._source = training, shape, source
        self._batches, self._device = batches, device

    def __iter__(self) -> Iterator[Draw]:
        on_device = None
        if device_noise.available(self._device, self._source):
            on_device = device_noise.DeviceSource(self._device)
        for nu in self._training.noises:
            rows, noise = next(self._batches), None
            if nu > 0 and on_device is not None:
                noise = on_device.normal(self._shape)
            elif nu > 0:
                noise = torch.from_numpy(self._source.normal(self._shape)).to(self._device)
            yield Draw(rows, noise)
