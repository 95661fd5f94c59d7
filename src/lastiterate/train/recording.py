"""A run that writes into its `Ledger` how long every gradient was, and its last iterates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lastiterate.bounds import dynamics
from lastiterate.description import Arithmetic, Loss, Training
from lastiterate.description.rows import Rows
from lastiterate.errors import UnsupportedError
from lastiterate.train.grid import Parameters
from lastiterate.unlearning.distances import Distances

Floats = NDArray[np.float64]


def distances(training: Training, loss: Loss | None, norms: Floats) -> Distances:
    """What a ledger writes for this run, or why it cannot.

    The computed mean gradients of two runs are each off by the error, and so may be those of the
    deleted alone: 3 errors an update, charged as 4, and the slip of the grid.
    """
    objection = _objection(training)
    empty = None if loss is None else dataclasses.replace(loss, strong_convexity=0.0)
    c = None
    if empty is not None:  # empty slots curve nothing
        c = dynamics.contraction(training.step_sizes, empty, training.clipping)
    if objection is None and (c is None or not np.isfinite(c).all()):
        objection = "nothing bounds how far an update drives two points apart: use a smooth loss"
    if objection is not None:
        raise UnsupportedError(f"A ledger cannot be kept here: {objection}.")
    assert c is not None
    assert isinstance(training.arithmetic, Arithmetic)
    etas = training.step_sizes
    shares = np.nextafter(etas / training.batches.divisor(training.records), np.inf)
    lost = dynamics.pushes(etas, 2 * training.arithmetic.charge, training)
    return Distances(c, shares, lost, norms)


def _objection(training: Training) -> str | None:
    if not isinstance(training.arithmetic, Arithmetic) or not training.arithmetic.grid:
        return "a run without noise has no grid; a little noise in every step is enough"
    if training.release != "last":
        return "an average holds earlier iterates; release the last one"
    if training.momentum or training.correlation is not None:
        return "it follows one point, not a velocity or noise that is taken back"
    if not training.batches.fixed_size:
        return "batches of random size may curve more than the loss; use another scheme"
    return None


@runtime_checkable
class Recordable(Protocol):
    """Sums of gradients that tell how long every one was."""

    def recorded(self, noted: Callable[[Rows, Floats], None]) -> Floats:
        """From now on they tell ``noted``; returns what one unit of every record is worth."""

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of the gradients in ``rows``."""


class Recorded:
    """The sums of a run's gradients; norms are written down, and so many bytes of iterates.

    Of the last updates, as many as the bytes hold, the iterates are kept instead of the norms.
    """

    def __init__(
        self,
        gradients: Recordable,
        training: Training,
        loss: Loss | None,
        shape: tuple[int, ...],
        held: int,
    ) -> None:
        self._gradients = gradients
        self.kept = distances(training, loss, gradients.recorded(self._noted))
        last = min(training.steps, held // (8 * max(1, math.prod(shape))))
        self.path = np.zeros((last, *shape))
        self._norms_left = training.steps - last

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of an update; asked for once in each."""
        self._norms_left -= 1
        if self._norms_left < 0:
            self.path[-self._norms_left - 1] = parameters
        else:
            self.kept.begin()
        return self._gradients.total(parameters, rows)

    def _noted(self, rows: Rows, sizes: Floats) -> None:
        if self._norms_left >= 0:
            self.kept.note(rows, sizes)
