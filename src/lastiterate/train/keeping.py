"""A run and its checkpoint: saved on the way, resumed as if never stopped, cleared at the end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Training
from lastiterate.description.batches import RowStream
from lastiterate.errors import AssumptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import Source, unpredictable
from lastiterate.train.checkpoint import Checkpoint, State, usable
from lastiterate.train.grid import Parameters


class Keeping:
    """What a loop does with the checkpoint it was given, if any.

    ``experiment``: whether any part of the run forbids a certificate (its randomness was seeded, or
    its arithmetic ``coarse``), before the checkpoint or after it. One seeded part is enough:
    whoever knows the seed subtracts its noise and knows its batches.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        run: str,
        batches: RowStream,
        generator: Source,
        coarse: bool = False,
    ) -> None:
        self._store, self.run = usable(checkpoint), run
        self._batches, self._generator = batches, generator
        self.experiment = coarse or not unpredictable(generator)

    def held(self) -> AbstractContextManager[None]:
        """The checkpoint is this run's alone, from before it looks into it until it has ended."""
        return nullcontext() if self._store is None else self._store.held()

    def resume(self) -> State | None:
        """What the checkpoint holds; batches and randomness go on from there."""
        kept = None if self._store is None else self._store.load()
        if kept is None:
            return None
        if kept.run != self.run:
            raise AssumptionError(
                "The checkpoint belongs to another run (another description, loss, regularization, "
                "start, or other records or another order of them): going on from it would be a "
                "run that nobody described. Use the same arguments, or a fresh checkpoint."
            )
        self._batches.step = kept.step
        self._batches.order, self._batches.nonce = kept.order, kept.nonce
        self._batches.kept = kept.kept
        self._generator.restore(kept.source)
        self.experiment = self.experiment or kept.experiment
        return kept

    def due(self, done: int, training: Training) -> bool:
        """Whether the state after ``done`` updates is saved."""
        if self._store is None:
            return False
        return done % self._store.every == 0 and done < training.steps

    def save(
        self,
        done: int,
        parameters: Parameters,
        tail: Parameters,
        velocity: Parameters | None = None,
    ) -> None:
        """Keep the state after ``done`` updates; the arrays are the checkpoint's from now on."""
        assert self._store is not None
        order, nonce, kept = self._batches.order, self._batches.nonce, self._batches.kept
        source, marked = self._generator.state(), self.experiment
        what = (parameters, tail, order, nonce, source, marked, velocity, kept)
        state = State(self.run, done, *what)
        self._store.save(state)

    def end(self) -> None:
        """The run is over, and its secrets with it."""
        if self._store is not None:
            self._store.clear()


def fingerprint(
    objective: LinearLoss | Callable[..., Any],
    training: Training,
    regularization: float,
    radius: float,
    start: Parameters,
    grid: float = 0.0,
    content: Iterable[NDArray[Any]] = (),
) -> str:
    """What must not change between a checkpoint and its resumption.

    ``content``: labels and records in their order. In another order a record comes twice in the
    epoch of the checkpoint, which no description of the run counts. ``grid``: the spacing of the
    parameters; those of another grid, or of none, do not go on on this one.
    """
    kind = repr(objective) if isinstance(objective, LinearLoss) else "a gradient function"
    facts = [training.to_dict(), kind, regularization, repr(radius), list(start.shape), grid]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(start.tobytes())
    for values in content:
        digest.update(np.ascontiguousarray(values, dtype=np.float64).tobytes())
    return digest.hexdigest()
