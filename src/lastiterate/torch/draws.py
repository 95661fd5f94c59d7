"""What a run draws, drawn ahead: neither batches nor noise depend on the parameters.

While the device works on one update, threads of the host prepare the next ones. Secure Gaussians
cost the host more than a small step costs a GPU, so several threads make them, each from a secure
stream of its own; a seeded stream stays one stream, in the order of the NumPy backend.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import torch
from lastiterate.description import Training
from lastiterate.noise import SecureSource, Source
from lastiterate.train.batches import BatchStream, Rows
from torch import Tensor

_AHEAD = 4  # updates that are prepared at once, per thread


@dataclass(frozen=True)
class Draw:
    """The records of one update and its standard Gaussians (None for an update without noise)."""

    rows: Rows
    noise: Tensor | None


class Draws:
    """The draws of updates first, first + 1, ..., in the order of the NumPy backend."""

    def __init__(
        self,
        training: Training,
        shape: tuple[int, ...],
        source: Source,
        batches: BatchStream,
        device: torch.device,
        first: int = 0,
    ) -> None:
        self._training, self._shape, self._source = training, shape, source
        self._batches, self._device, self._first = batches, device, first

    def __iter__(self) -> Iterator[Draw]:
        if type(self._source) is SecureSource:
            return self._ahead()
        return self._in_order()

    def _in_order(self) -> Iterator[Draw]:
        for nu in self._training.noises[self._first :]:
            rows = next(self._batches)
            noise = self._source.normal(self._shape) if nu > 0 else None
            yield Draw(rows, None if noise is None else self._sent(noise))

    def _ahead(self) -> Iterator[Draw]:
        own = threading.local()

        def gaussians() -> Tensor:
            if not hasattr(own, "source"):
                own.source = SecureSource()
            return self._pinned(own.source.normal(self._shape))

        workers = max(1, min(16, (os.cpu_count() or 1) - 1))
        waiting: deque[tuple[Rows, Future[Tensor] | None]] = deque()
        with ThreadPoolExecutor(workers) as pool:
            try:
                for nu in self._training.noises[self._first :]:
                    future = pool.submit(gaussians) if nu > 0 else None
                    waiting.append((next(self._batches), future))
                    if len(waiting) > _AHEAD * workers:
                        yield self._ready(*waiting.popleft())
                while waiting:
                    yield self._ready(*waiting.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def _ready(self, rows: Rows, noise: Future[Tensor] | None) -> Draw:
        if noise is None:
            return Draw(rows, None)
        return Draw(rows, noise.result().to(self._device, non_blocking=True))

    def _sent(self, noise: NDArray[np.float64]) -> Tensor:
        return self._pinned(noise).to(self._device, non_blocking=True)

    def _pinned(self, noise: NDArray[np.float64]) -> Tensor:
        values = torch.from_numpy(noise)
        return values.pin_memory() if self._device.type == "cuda" else values
