"""A saved model, trained again as it was: what `lastiterate audit` does to a folder.

The run is repeated by its own description. A private scaler is part of it: its statistics are
released too and the certificate pays for them, so they are drawn again for every model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.audit.attacks.canaries import Data
from lastiterate.audit.shadow.linear import LinearCohort
from lastiterate.losses import LinearLoss, MarginLoss
from lastiterate.train import noisy_descent

Array = NDArray[Any]


class Retrained:
    """Repeats the run of a model: its description, its loss, its regularization.

    A dataset is (rows, labels), encoded.
    """

    def __init__(self, objective: LinearLoss, training: Any, regularization: float, bound: float):
        self.objective, self.training = objective, training
        self.regularization, self.bound = regularization, bound

    def __call__(self, dataset: Data, seed: int) -> Array:
        """The parameters of one model."""
        return noisy_descent(
            self.objective,
            dataset[0],
            self.training,
            labels=dataset[1],
            regularization=self.regularization,
            feature_bound=self.bound,
            random_state=seed,
            progress=False,
        ).parameters

    @property
    def cohort(self) -> Callable[[Data, Sequence[int]], Any]:
        """Many at once, where the loss has one score."""
        if not isinstance(self.objective, MarginLoss):
            return lambda dataset, seeds: [self(dataset, seed) for seed in seeds]
        return LinearCohort(
            self.objective,
            self.training,
            regularization=self.regularization,
            feature_bound=self.bound,
        ).cohort


@dataclass(frozen=True)
class RecordScore:
    """How well parameters fit one encoded record: minus its loss."""

    objective: LinearLoss
    x: Array
    y: Array

    def __call__(self, parameters: Any) -> float:
        """The score of one model."""
        return -float(self.objective.value(self.x[None] @ parameters, self.y[None])[0])


@dataclass(frozen=True)
class Unscaled:
    """Records before the scaler; ``removed`` contributes nothing, neither to it nor to the model.

    (No row of features has that effect: a row of middle values still lowers the variances.)
    """

    X: Array
    y: Array
    removed: int | None = None


@dataclass(frozen=True)
class Released:
    """What one repetition publishes: the scaler with its statistics, and the parameters."""

    scaler: Any
    parameters: Array


class RetrainedWithScaler:
    """Repeats scaler and model, one after the other: every model has its own statistics.

    Args:
        scaler: fitted; its description is repeated.
        rows: how scaled features become rows of bounded norm.
        model: repeats the run on such rows.
    """

    def __init__(self, scaler: Any, rows: Any, model: Retrained) -> None:
        self.scaler, self.rows, self.model = scaler, rows, model

    def __call__(self, world: Unscaled, seed: int) -> Released:
        """One repetition, with two independent streams of noise."""
        first, second = (int(s) for s in np.random.SeedSequence(seed).generate_state(2, np.uint64))
        scaler = copy.copy(self.scaler)
        contributions = scaler._contributions(world.X)
        if world.removed is not None:
            contributions[world.removed] = 0.0
        scaler._release(contributions, first)
        rows = np.array(self.rows.of(scaler.transform(world.X)))
        if world.removed is not None:
            rows[world.removed] = 0.0
        return Released(scaler, self.model((rows, world.y), second))


@dataclass(frozen=True)
class ScaledRecordScore:
    """How well a repetition fits one record, seen through its own scaler: minus the loss."""

    objective: LinearLoss
    rows: Any
    x: Array
    y: Array

    def __call__(self, released: Released) -> float:
        """The score of one repetition."""
        row = np.asarray(self.rows.of(released.scaler.transform(self.x[None])))
        return -float(self.objective.value(row @ released.parameters, self.y[None])[0])
