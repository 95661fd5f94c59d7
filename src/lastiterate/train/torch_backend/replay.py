"""A full-batch update recorded once as a CUDA graph and replayed.

A small step is some twenty launches of a few microseconds each, more than its arithmetic takes.
Parameters, schedule and noise live in buffers that keep their place, so that one launch does the
whole update of the loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

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
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # Once before, so that kernels are compiled and workspaces made before they are recorded.
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            update()
        torch.cuda.current_stream(device).wait_stream(stream)
        with (
            process_state_restored(device) as pool,
            torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"),
        ):
            update()
        update.put(theta, tail)

    def __call__(self, k: int) -> None:
        """Update number k; asked for one after another."""
        self._update.draw(k)
        self._graph.replay()


@contextmanager
def process_state_restored(device: torch.device) -> Iterator[Any]:
    """Yields a memory pool for a capture, which changes nothing else of the process if it fails.

    Every graph registers the state of the device's default generator, and a capture that fails
    leaves that state unusable ("Offset increment outside graph capture"). The captured state is a
    copy; the generator gets its own state back. A failed capture also leaves its stream as the
    current one, and, before PyTorch 2.12, its pool as the one that the allocator serves.
    """
    generator = torch.cuda.default_generators[device.index]
    own, pool = generator.graphsafe_get_state(), torch.cuda.graph_pool_handle()
    generator.graphsafe_set_state(generator.clone_state())
    try:
        with torch.cuda.stream(torch.cuda.current_stream(device)):
            yield pool
    except BaseException:
        _end_allocation(device, pool)
        raise
    finally:
        generator.graphsafe_set_state(own)


def _end_allocation(device: torch.device, pool: Any) -> None:
    """Allocate outside of this pool again; nothing happens where PyTorch has done that."""
    for name in ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"):
        if hasattr(torch._C, name):
            with suppress(RuntimeError):  # it is not allocated from
                getattr(torch._C, name)(device.index, pool)
            return


def recordable(updates: Updates) -> bool:
    """Whether every update is the same launches, and none of its numbers is read by the host.

    Decided before anything is captured. Full batches on a GPU, all of them; no momentum, which
    keeps its velocity elsewhere, no proximal step and no loss that looks whether it has converged.
    """
    gradients, training = updates.gradients, updates.run.training
    if not isinstance(gradients, DeviceGradients) or not isinstance(updates.draws, Draws):
        return False
    full = training.batches.full and updates.run.batches.kept is None
    plain = not training.momentum and training.proximal is None
    return full and plain and gradients.resident and gradients.same_launches


def recorded(updates: Updates) -> Replay | None:
    """The update as a graph; None where it cannot be recorded, or is not worth it."""
    if updates.run.training.steps - updates.done < WORTH or not recordable(updates):
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
