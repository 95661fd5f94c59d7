"""More data than one machine holds: the same step, data-parallel.

Every rank holds some of the records. In each update the ranks add up the gradients of their part
of the batch, the sums are all-reduced, and one rank draws the batch and the noise for all: the
law is that of the single-process run. Start it with `torchrun`; gloo on CPUs, NCCL on GPUs.
A rank that is lost ends the run on every other rank, and no model is written.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import lastiterate
from lastiterate._internal.atomic_write import write_whole
from lastiterate.description import Training
from lastiterate.description.batches import Rows
from lastiterate.description.fields import number
from lastiterate.errors import (
    AssumptionError,
    DescriptionError,
    LastIterateError,
    UnsupportedError,
)
from lastiterate.losses import LinearLoss
from lastiterate.losses.data import feature_bound_of
from lastiterate.noise import unpredictable
from lastiterate.train.loop import Draws, Run, descend
from lastiterate.train.result import Descent, concluded, continued
from lastiterate.train.settings import Settings
from lastiterate.train.torch_backend.backend import TorchBackend
from lastiterate.train.torch_backend.descent import linear
from lastiterate.train.torch_backend.gradients import DeviceGradients

_LONGEST = 86_400.0 * 365  # seconds; a clock that counts nanoseconds overflows soon after


class LostRankError(LastIterateError, RuntimeError):
    """A rank of a distributed run failed or is gone; nothing was released."""


def distributed_descent(
    objective: LinearLoss,
    data: Any,
    training: Training,
    *,
    save: str | os.PathLike[str] | None = None,
    patience: float = 600.0,
    **settings: Any,
) -> Descent:
    """Run a description on the records of all ranks; every rank returns the same result.

    The process group must exist (`torch.distributed.init_process_group`).

    Args:
        objective: a loss of `lastiterate.losses`.
        data: the features of this rank's records. The records of the run are those of rank 0,
            then those of rank 1, and so on; `training.records` counts all of them.
        training: what to run.
        save: rank 0 writes the released parameters there (.npy), all or nothing, once every rank
            has finished.
        patience: seconds after which a silent rank counts as lost.
        settings: the other arguments of `lastiterate.torch.noisy_descent`, without a checkpoint or
            groups.
            ``labels`` are those of this rank's records; of ``noise`` and ``random_state`` only
            those of rank 0 are used; ``device`` is by default a GPU of this rank (LOCAL_RANK)
            with NCCL, the CPU with gloo.
    """
    _need_group()
    group = dist.new_group(timeout=timedelta(seconds=_seconds(patience)))
    rank = dist.get_rank(group)
    # What a rank refuses it tells the others, so that all of them raise and none waits for it.
    refusal: Exception | None = None
    try:
        number("patience", patience, above=0.0)
        told = _told(settings)
        if training.correlation is not None:
            raise UnsupportedError("Ranks share no correlated noise: leave correlation out.")
        where = _device(told.device)
        gradients = DeviceGradients.told(
            linear(objective), data, training, told, where, everything=False
        )
        run = Run.of(objective, training, told, gradients)
        mine = _facts(run, gradients, objective, told)
    except Exception as error:
        refusal, mine = error, {_REFUSED: f"{type(error).__name__}: {error}"}
    with _lost(rank, "before the first update"):
        everyone: list[dict[str, Any]] = [{}] * dist.get_world_size(group)
        dist.all_gather_object(everyone, mine, group=group)
    if refusal is not None:
        raise refusal
    _agreed(everyone, training)
    first = sum(other[_HELD] for other in everyone[:rank])

    backend = TorchBackend(where, run.source)
    shared = _SharedDraws(Draws(run, backend) if rank == 0 else None, run, where, group)
    reduced = _Reduced(gradients, first, group)
    with _lost(rank, "during the updates"):
        released = descend(run, reduced, shared, backend)
        facts: list[Any] = [not unpredictable(run.source), run.batches.nonce]
        dist.broadcast_object_list(facts, group_src=0, group=group, device=where)
        # Reached by every rank, or by none: only then is there a model.
        dist.all_reduce(torch.zeros(1, device=where), group=group)
        if where.type == "cuda":
            torch.cuda.synchronize(where)
    if save is not None and rank == 0:
        content = io.BytesIO()
        np.save(content, released)
        write_whole(Path(save), content.getvalue(), mode=0o600)
    engine = gradients.among(len(everyone))
    ran = concluded(
        released,
        training,
        gradients.loss,
        facts[1],
        engine,
        run.grid,
        gradients.per_length,
        regularization=run.l2,
        secure=not facts[0],
    )
    return continued(ran, *run.started)


_REFUSED, _HELD = "refused", "records"
_OWN = {_HELD}  # what may differ from rank to rank


def _told(settings: dict[str, Any]) -> Settings:
    if settings.get("checkpoint") is not None:
        why = "ranks would have to keep and lose it together"
        raise DescriptionError("checkpoint", "given", "absent on several ranks", why)
    if settings.get("groups") is not None:
        why = "one rank would have to know the owners of all records"
        raise DescriptionError("groups", "given", "absent on several ranks", why)
    return Settings(**settings)


def _facts(
    run: Run, gradients: DeviceGradients, objective: LinearLoss, told: Settings
) -> dict[str, Any]:
    """Everything that a certificate of the run rests on, as plain values to be compared."""
    loss = gradients.loss
    return {
        _HELD: gradients.records,
        "description": run.training.to_dict(),
        "loss": f"{type(objective).__module__}.{objective!r}",
        "proved constants": (loss.to_dict(), loss.provenance),
        "feature bound": feature_bound_of(objective, run.training, told.feature_bound),
        "radius": run.ball,
        "regularization": run.l2,
        "number of columns": gradients.shape,
        "start": hashlib.sha256((run.centre + 0.0).tobytes()).hexdigest(),  # no -0.0
        "library": lastiterate.__version__,
        "products": told.products,
        "rows": told.rows,
        "entry bound": told.entry_bound,
    }


class _Reduced:
    """The sum of a batch's gradients over all ranks."""

    def __init__(self, gradients: DeviceGradients, first: int, group: Any) -> None:
        self._gradients, self._first, self._group = gradients, first, group

    def total(self, theta: Tensor, rows: Rows) -> Tensor:
        first, last = self._first, self._first + self._gradients.records
        mine: Rows
        if isinstance(rows, slice):
            low = min(max(rows.start, first), last) - first
            mine = slice(low, max(low, min(rows.stop, last) - first))
        else:
            mine = rows[(rows >= first) & (rows < last)] - first
        total = self._gradients.total(theta, mine).contiguous()
        dist.all_reduce(total, group=self._group)
        return total


class _SharedDraws:
    """What rank 0 draws, on every rank."""

    def __init__(self, own: Draws | None, run: Run, device: torch.device, group: Any) -> None:
        self._own, self._noises, self._shape = own, run.training.noises, run.centre.shape
        self._device, self._group = device, group

    def noise(self, update: int) -> Tensor | None:
        """Its noise."""
        if self._noises[update] == 0:
            return None
        noise = None if self._own is None else self._own.noise(update)
        if noise is None:
            noise = torch.empty(self._shape, dtype=torch.float64, device=self._device)
        dist.broadcast(noise, group_src=0, group=self._group)
        return noise

    def rows(self) -> Rows:
        """The next batch: a range as (-1, first, last); indices as their count, then themselves."""
        rows = None if self._own is None else self._own.rows()
        head = torch.zeros(3, dtype=torch.int64, device=self._device)
        if isinstance(rows, slice):
            head = torch.tensor([-1, rows.start, rows.stop], device=self._device)
        elif rows is not None:
            head[0] = len(rows)
        dist.broadcast(head, group_src=0, group=self._group)
        count, first, last = head.tolist()
        if count < 0:
            return slice(first, last)
        index = torch.empty(count, dtype=torch.int64, device=self._device)
        if rows is not None:
            index = torch.as_tensor(np.asarray(rows), device=self._device)
        if count:
            dist.broadcast(index, group_src=0, group=self._group)
        return index.cpu().numpy()


@contextmanager
def _lost(rank: int, when: str) -> Iterator[None]:
    """Turns a failed exchange into an error that says what happened."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, LastIterateError):
            raise
        raise LostRankError(
            f"The run ended on rank {rank} {when}: another rank was lost, or this one failed "
            f"({error}). Nothing is released and no model was written. Start it again with all "
            "ranks."
        ) from error


def _need_group() -> None:
    if not dist.is_initialized():
        raise AssumptionError(
            "There is no process group: call torch.distributed.init_process_group() in a script "
            "started with torchrun, or use noisy_descent on one machine."
        )


def _seconds(patience: Any) -> float:
    """How long to wait for the others; a while, too, to tell them that the value makes no sense."""
    known = isinstance(patience, (int, float)) and 0 < patience < _LONGEST
    return float(patience) if known else _LONGEST if patience == math.inf else 600.0


def _device(device: str | torch.device | None) -> torch.device:
    where = torch.device("cpu" if device is None else device)
    if device is None and "nccl" in dist.get_backend_config() and torch.cuda.is_available():
        where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if where.type == "cuda":
        torch.cuda.set_device(where)  # NCCL sends objects from the current device
    return where


def _agreed(everyone: list[dict[str, Any]], training: Training) -> None:
    """Raise, on every rank alike, unless all of them run the same."""
    ranks = enumerate(everyone)
    refused = [f"rank {rank}: {other[_REFUSED]}" for rank, other in ranks if _REFUSED in other]
    if refused:
        raise LostRankError(f"The run was not started, as a rank refused it. {'; '.join(refused)}")
    names = [name for name in everyone[0] if name not in _OWN]
    differ = [n for n in names if any(other[n] != everyone[0][n] for other in everyone)]
    if differ:
        raise AssumptionError(
            f"The ranks disagree on: {', '.join(differ)}. What is certified must be what every "
            "rank runs; give all of them the same arguments."
        )
    held = [other[_HELD] for other in everyone]
    if sum(held) != training.records:
        raise AssumptionError(
            f"The ranks hold {held} records, {sum(held)} together, but training.records is "
            f"{training.records}: every record must lie on exactly one rank."
        )
