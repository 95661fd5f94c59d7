"""Fitting to records that are not in memory: in files, or on a cluster.

The same choice, the same description and the same certificate as `fit`; what is different is where
gradients are added up, and that classes have to be declared, as no pass is made to look for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone

from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.models.privacy_warning import warn_if_selected
from lastiterate.models.ranges import public_ends
from lastiterate.train import FiledRecords, Records, noisy_descent
from lastiterate.train.arrow_files import ArrowFiles
from lastiterate.train.summation import score_error, whole_arithmetic
from lastiterate.train.whole_sums import WholeSums

if TYPE_CHECKING:
    from lastiterate.models.base import Array, PrivateLinearModel

    _Model = PrivateLinearModel
else:
    _Model = object


class Elsewhere(_Model):
    """Adds `fit_files` to an estimator, and what clusters fit it with."""

    def fit_files(self, files: Any, label: str, *, folder: Any = None) -> Self:
        """Train on tables that do not fit in memory, with the same description as `fit`.

        The records are read once, and copied in a secret uniformly random order, so that every
        pass reads the copy from its first byte to its last. The copy has no name, is readable by
        its owner alone, and is gone with the process.

        Args:
            files: a path, a folder, a pattern such as "data/*.parquet", a list of paths (Parquet,
                Arrow, Feather or CSV), or a dataset of pyarrow. Columns are numbers without gaps.
            label: the name of the label's column; all others are features.
            folder: where the copy lies, 4 bytes a feature and 8 a label; by default the system's
                folder for temporary files.

        Classes are declared (``classes=``); ``prepare``, ``max_records_per_group`` and weights are
        for `fit`.
        """
        self._refuse_elsewhere()
        found = ArrowFiles(files, label)
        reader = self._reader(found.features)

        def blocks() -> Iterator[tuple[Any, Array]]:
            for X, y in found.blocks():
                yield reader.read(X, y)

        with FiledRecords(blocks, found.records, reader.columns, folder) as records:
            return self._fit_elsewhere(records, found.features)

    def _refuse_elsewhere(self) -> None:
        learning = not (self.prepare is None or isinstance(self.prepare, str))
        if self.max_records_per_group is not None or learning:
            raise UnsupportedError(
                "max_records_per_group= and prepare= look at all records before training, which "
                "must be in memory for that: use fit, or prepare the columns with public constants."
            )
        if getattr(self, "class_weight", None) is not None:
            raise UnsupportedError("class_weight= is for fit and fit_stream: leave it out here.")
        if getattr(self, "calibrate", False):
            raise UnsupportedError("calibrate= is for fit: leave it out here.")

    def _prepare_elsewhere(self, features: int) -> tuple[tuple[str, str], ...]:
        """Map the columns by their declared ranges, if there are any; why there is no more."""
        ends = public_ends(self.feature_range, None, features)
        return self._prepare(None, None, ends, "records that are elsewhere are read once")[1]

    def _reader(self, features: list[str]) -> Reader:
        """What makes rows and targets of raw records, here or on a worker."""
        self._forget()
        self._declare(None)
        return Reader(self, len(features))

    def _fit_elsewhere(self, data: Records, features: list[str]) -> Self:
        """Train on records that were read by this model's reader."""
        learning = warn_if_selected()
        self._forget()
        origin, objective = self._declare(None), self._objective()
        origin = (*origin, *self._prepare_elsewhere(len(features)))
        self.delta_ = self._delta(data.records)
        size = data.columns * objective.outputs()
        chosen = self._choose(objective, data.records, dimension=size)
        engine = whole_arithmetic(chosen.training, objective, data.columns)
        per_length = score_error(chosen.training, objective, data.columns, self._rows.norm)
        paid = chosen.because(*origin)
        radius = self._pay(paid, engine, np.zeros(size), self._calibrated, per_length)
        released = noisy_descent(
            objective,
            data,
            self.training_,
            regularization=self.loss_.regularization,
            feature_bound=self._rows.norm,
            radius=radius,
            random_state=self.random_state,
        )
        self.n_features_in_ = len(features)
        self.feature_names_in_ = np.array(features, dtype=object)
        self._finish(released, [])
        self.learnt_before_ = learning
        return self


class Reader:
    """Raw features and labels to the rows and targets of a model; a worker gets a copy."""

    def __init__(self, model: Any, features: int) -> None:
        self._model, self._features = clone(model), features
        self._model._declare(None)
        self._model.n_features_in_ = features
        with warnings.catch_warnings():  # the model says it once
            warnings.simplefilter("ignore")
            self._model._prepare_elsewhere(features)
        self._model.random_state = None  # workers draw nothing

    @property
    def columns(self) -> int:
        """Of a row, the intercept's included."""
        return self._features + bool(self._model.fit_intercept)

    @property
    def sums(self) -> WholeSums:
        """What gradients are added up with."""
        objective, bound = self._model._objective(), self._model._rows.norm
        return WholeSums(objective, self.columns, bound, objective.gradient_norm(bound))

    def read(self, X: Any, y: Any) -> tuple[Any, Array]:
        """Rows no longer than the bound, and targets; raises if one has none."""
        X, y = self._model._validated(X, y, first=False)
        targets = self._model._targets(y)
        if not np.isfinite(targets).all():
            raise AssumptionError("A target is not finite: its gradient has no bound.")
        return self._model._rows.of(self._model._prepared(X)), targets
