"""A full-batch update recorded once as a CUDA graph and replayed.

A small step is some twenty launches of a few microseconds each, more than its arithmetic takes.
Parameters, schedule and noise live in buffers that keep their place, so that one launch does the
whole update of the loop.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from lastiterate.train.loop import Draws, Updates
from lastiterate.train.result import shares
from lastiterate.train.torch_backend.gradients import DeviceGradients

WORTH = 50  # updates from which recording pays


class InPlace:
    """A full-batch update that changes ``theta`` and ``tail`` of a loop where they are."""

    def __init__(self, updates: Updates) -> None:
        self._updates, training = updates, updates.run.training
        schedule = np.stack([training.step_sizes, shares(training)[1]])
        self._schedule = torch.from_numpy(schedule).to(updates.theta.device)
        self._everyone, self._noisy = slice(0, training.records), bool((training.noises > 0).any())
        self._noise = torch.zeros_like(updates.theta)
        self._at = torch.full((1,), updates.done, dtype=torch.int64, device=updates.theta.device)

    def draw(self, k: int) -> None:
        """What is drawn for update k, before it is replayed: the host may have to decide some."""
        draws = self._updates.draws
        draws.rows()
        noise = draws.noise(k)
        self._noise.zero_() if noise is None else self._noise.copy_(noise)

    def __call__(self) -> None:
        updates, noise = self._updates, self._noise if self._noisy else None
        eta, share = self._schedule.index_select(1, self._at)
        moved = updates.moved(self._everyone, eta, noise)
        updates.theta.copy_(updates.projected(moved))
        updates.tail.add_(share * updates.theta)
        self._at.add_(1)

    def put(self, theta: Tensor, tail: Tensor) -> None:
        """Back to where the loop was."""
        self._updates.theta.copy_(theta)
        self._updates.tail.copy_(tail)
        self._at.fill_(self._updates.done)


class Replay:
    """The update in place, by one launch."""

    def __init__(self, update: InPlace, theta: Tensor, tail: Tensor) -> None:
        self._update, self._graph, device = update, torch.cuda.CUDAGraph(), theta.device
        # Once beside, so that kernels are compiled and workspaces made before they are recorded.
        beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):
            update()
        torch.cuda.current_stream(device).wait_stream(beside)
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            update()
        update.put(theta, tail)

    def __call__(self, k: int) -> None:
        """Update number k; asked for one after another."""
        self._update.draw(k)
        self._graph.replay()


def recorded(updates: Updates) -> Replay | None:
    """The update as a graph, if it is the same launches every time: full batches on a GPU.

    A proximal step looks at numbers on the host.
    """
    gradients, training = updates.gradients, updates.run.training
    if not isinstance(gradients, DeviceGradients) or not isinstance(updates.draws, Draws):
        return None
    full = training.batches.full and updates.run.batches.kept is None and gradients.resident
    plain = not training.momentum and training.proximal is None
    if not full or not plain or training.steps - updates.done < WORTH:
        return None
    theta, tail = updates.theta, updates.tail
    try:
        updates.theta, updates.tail = theta.clone(), tail.clone()
        return Replay(InPlace(updates), theta, tail)
    except RuntimeError as problem:  # of the driver or of memory: the plain loop needs less
        updates.theta, updates.tail = theta, tail  # what was tried on copies has not happened
        warnings.warn(
            f"The update was not recorded, and runs launch by launch: {problem}", stacklevel=2
        )
        return None
