"""A full-batch update recorded once as a CUDA graph and replayed.

A small step is some twenty launches of a few microseconds each, more than its arithmetic takes.
Parameters, schedule and randomness live in buffers that keep their place, so that one launch does
the whole update; the numbers are those of the plain loop.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastiterate.description import FullBatch, Training
from lastiterate.train.result import shares
from lastiterate.train.torch_backend.draws import Draws
from lastiterate.train.torch_backend.gradients import DeviceGradients
from lastiterate.train.torch_backend.projection import projected

WORTH = 50  # updates from which recording pays


@dataclass
class Place:
    """Where a run is: updates done, parameters, sum of the tail; and the ball it stays in."""

    done: int
    theta: Tensor
    tail: Tensor
    centre: Tensor
    ball: float


class InPlace:
    """A full-batch update that changes ``theta`` and ``tail`` where they are."""

    def __init__(
        self, gradients: DeviceGradients, draws: Draws, training: Training, l2: float, place: Place
    ) -> None:
        self._gradients, self._draws, self._training, self._l2 = gradients, draws, training, l2
        self._centre, self._ball = place.centre, place.ball
        schedule = np.stack([training.step_sizes, training.noises, shares(training)[1]])
        self._schedule = torch.from_numpy(schedule).to(place.theta.device)
        self._noisy = bool((training.noises > 0).any())
        self._noise = torch.zeros_like(place.theta)  # filled by the host where no device does it
        self._at = torch.zeros(1, dtype=torch.int64, device=place.theta.device)
        self.theta, self.tail = torch.empty_like(place.theta), torch.empty_like(place.tail)
        self.put(place)

    def put(self, place: Place) -> None:
        """Go on from here."""
        self.theta.copy_(place.theta)
        self.tail.copy_(place.tail)
        self._at.fill_(place.done)

    def draw(self, k: int) -> None:
        """What the host draws for update k."""
        self._draws.rows()
        if self._draws.on_device is None and (noise := self._draws.noise(k)) is not None:
            self._noise.copy_(noise)

    def __call__(self) -> None:
        eta, nu, share = self._schedule.index_select(1, self._at)
        everyone = slice(0, self._training.records)
        divisor = self._training.batches.divisor(self._training.records)
        step = self._gradients.total(self.theta, everyone) / divisor + self._l2 * self.theta
        theta = self.theta - eta * step
        if self._noisy:
            source, noise = self._draws.on_device, self._noise
            theta = theta + nu * (noise if source is None else source.normal(tuple(theta.shape)))
        self.theta.copy_(projected(theta, self._centre, self._ball))
        self.tail.add_(share * self.theta)
        self._at.add_(1)


class Replay:
    """The update in place, by one launch."""

    def __init__(self, update: InPlace, place: Place) -> None:
        self._update, self._graph = update, torch.cuda.CUDAGraph()
        device = place.theta.device
        # Once beside, so that kernels are compiled and workspaces made before they are recorded.
        beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):
            update()
        torch.cuda.current_stream(device).wait_stream(beside)
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            update()
        update.put(place)
        self.theta, self.tail = update.theta, update.tail

    def update(self, k: int) -> None:
        """Update number k; asked for one after another."""
        self._update.draw(k)
        self._graph.replay()


def recorded(
    gradients: object, draws: object, training: Training, l2: float, place: Place
) -> Replay | None:
    """The update as a graph, if it is the same launches every time: full batches on a GPU."""
    if not isinstance(gradients, DeviceGradients) or not isinstance(draws, Draws):
        return None
    full = isinstance(training.batches, FullBatch) and gradients.resident
    if not full or training.momentum or training.steps - place.done < WORTH:
        return None
    try:
        return Replay(InPlace(gradients, draws, training, l2, place), place)
    except RuntimeError as problem:  # of the driver or of memory: the plain loop needs less
        warnings.warn(
            f"The update was not recorded, and runs launch by launch: {problem}", stacklevel=2
        )
        return None
