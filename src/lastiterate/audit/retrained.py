"""A saved model, trained again as it was: what `lastiterate audit` does to a folder.

The run is repeated by its own description. A private scaler is part of it: its statistics are
released too and the certificate pays for them, so they are drawn again for every model.
"""

from __future__ import annotations

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
_ROOM = 1 << 25  # numbers of prepared records that exist at the same time


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
        """Many at once, where the loss has one score and nothing follows the updates."""
        if not isinstance(self.objective, MarginLoss) or self.training.proximal is not None:
            return self._one_by_one
        return LinearCohort(
            self.objective,
            self.training,
            regularization=self.regularization,
            feature_bound=self.bound,
        ).cohort

    def _one_by_one(self, dataset: Data, seeds: Sequence[int]) -> list[Array]:
        X, y = dataset
        tables = X if np.ndim(X) == 3 else [X] * len(seeds)
        return [self((rows, y), seed) for rows, seed in zip(tables, seeds, strict=True)]


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
        """One repetition."""
        return self.cohort(world, [seed])[0]

    def cohort(self, world: Unscaled, seeds: Sequence[int]) -> list[Released]:
        """Repetitions, each with two independent streams of noise; models are trained together."""
        together = max(1, _ROOM // (len(world.X) * self.scaler.transform(world.X[:1]).size))
        found = []
        for first in range(0, len(seeds), together):
            some = [np.random.SeedSequence(seed) for seed in seeds[first : first + together]]
            streams = [[int(s) for s in each.generate_state(2, np.uint64)] for each in some]
            scalers = [self.scaler.again(world.X, world.removed, seed) for seed, _ in streams]
            rows = np.array([self.rows.of(scaler.transform(world.X)) for scaler in scalers])
            if world.removed is not None:
                rows[:, world.removed] = 0.0
            models = self.model.cohort((rows, world.y), [seed for _, seed in streams])
            found += [Released(*each) for each in zip(scalers, models, strict=True)]
        return found


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
