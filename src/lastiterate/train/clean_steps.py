"""A run that goes on from its released last iterate, without some of its records.

The description is the whole run: its steps so far, and the clean ones (`UnlearningPlan.continued`).
Grid, ball and centre stay those of the run, so that both together are what is accounted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lastiterate.description import Arithmetic, FullBatch, Training
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.train.checkpoint import MemoryCheckpoint, State
from lastiterate.train.features import matrix, sparse
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
            "The assignment of records to hidden batches was not stored, and with a new partition "
            "no plan of clean steps holds. Train again on what remains; runs of full batches can "
            "take clean steps."
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


def emptied(data: Any, labels: Any, gone: NDArray[np.int64]) -> tuple[Any, Any]:
    """Copies in which these rows are 0, and so are their gradients, under one label."""
    X = matrix(data)
    if not len(gone) or gone[-1] >= X.shape[0]:  # too few rows are refused elsewhere
        return X, labels
    if labels is not None and len(labels) == X.shape[0]:
        labels = np.array(labels)
        labels[gone] = labels[np.setdiff1d(np.arange(len(labels)), gone)[0]]
    if not sparse(X):
        X = X.copy()
        X[gone] = 0.0
        return X, labels
    kept = np.ones(X.shape[0], X.dtype)
    kept[gone] = 0.0
    X = sp.csr_array(sp.diags_array(kept) @ X)
    X.eliminate_zeros()
    return X, labels


def some_left(asked: NDArray[np.int64], before: NDArray[np.int64], records: int) -> None:
    """Raise unless these are new requests, and somebody stays."""
    again = int(np.isin(asked, before).sum())
    if again:
        allowed = "records that no earlier request deleted"
        why = "they are deleted already: name only the new ones"
        raise DescriptionError("indices", f"{again:,} records of earlier requests", allowed, why)
    if len(before) + len(asked) == records:
        why = "at least one record must remain to train on"
        raise DescriptionError("indices", "all remaining records", "fewer records", why)


def indices_of(deleted: ArrayLike, records: int) -> NDArray[np.int64]:
    """The numbers of some records, sorted; raises unless they are different ones."""
    given = np.asarray(deleted)
    named = set(given.ravel().tolist()) if given.dtype.kind in "iu" else set()
    if given.ndim != 1 or not named or len(named) < len(given) or not named <= set(range(records)):
        allowed = f"different indices from 0 to {records - 1}, at least one"
        why = "a record that is not named is not deleted"
        found = f"of shape {given.shape} and type {given.dtype}"  # not shown: who was deleted
        raise DescriptionError("indices", found, allowed, why)
    return np.sort(given.astype(np.int64))
