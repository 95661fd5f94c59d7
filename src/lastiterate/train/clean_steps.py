"""A run that goes on from its released last iterate, without some of its records.

The description is the whole run: its steps so far, and the clean ones (`UnlearningPlan.continued`).
Grid, ball and centre stay those of the run, so that both together are what is accounted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.description import Arithmetic, FullBatch, Training
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.train.checkpoint import MemoryCheckpoint, State
from lastiterate.train.gradients import LinearGradients
from lastiterate.train.grid import Parameters
from lastiterate.train.loop import Backend, Run
from lastiterate.train.result import Descent
from lastiterate.train.settings import Settings


def gone_on(
    objective: LinearLoss,
    data: Any,
    continued: Training,
    done: int,
    parameters: ArrayLike,
    *,
    labels: ArrayLike,
    regularization: float,
    feature_bound: float,
    radius: float,
    experiment: bool,
) -> Descent:
    """The steps after the first ``done``, from these parameters, with fresh noise.

    Args:
        objective, labels, regularization, feature_bound, radius: as the run had them.
        data: what remains; rows of the deleted are 0.
        continued: the whole run, with the arithmetic of its first steps.
        done: how many of its steps are done.
        parameters: what those released, up to the last bits.
        experiment: whether they forbid a certificate.
    """
    if not isinstance(continued.batches, FullBatch):
        raise UnsupportedError(
            "Nobody kept how the records were dealt out to hidden batches, and with a new "
            "partition no plan of clean steps holds: train with full batches, or with a ledger."
        )
    store = MemoryCheckpoint(every=continued.steps + 1)
    told = Settings(
        labels=labels,
        regularization=regularization,
        feature_bound=feature_bound,
        radius=radius,
        checkpoint=store,
    )
    gradients = LinearGradients(objective, data, labels, continued, regularization, feature_bound)
    run, own = Run.of(objective, continued, told, gradients), continued.arithmetic
    if run.grid is None or not isinstance(own, Arithmetic) or run.grid.spacing != own.grid:
        raise AssumptionError(
            "The run and its clean steps have no common grid: with so much more noise or so many "
            "more steps doubles would not add exactly. Start again on what remains."
        )
    theta: Parameters = run.grid.on(np.asarray(parameters, dtype=np.float64))
    nowhere = np.zeros_like(theta)
    store.save(State(run.keeping.run, done, theta, nowhere, None, None, None, experiment))
    return run.descended(gradients, Backend())
