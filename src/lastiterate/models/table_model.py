"""From a data frame to a certified model: a declared schema, and an estimator behind it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lastiterate._internal.atomic_write import write_whole
from lastiterate.accounting import account
from lastiterate.accounting.guarantee import Guarantee
from lastiterate.certificate import Certificate
from lastiterate.description.fields import one_of
from lastiterate.errors import DescriptionError
from lastiterate.models.cells import Array, Cells, TextCells, spelled
from lastiterate.models.columns import Categorical
from lastiterate.models.exported import exported
from lastiterate.models.saved import KINDS, TableModel, about, report, save
from lastiterate.models.schema import Schema
from lastiterate.models.table import Source, Table, read_table
from lastiterate.verifier.authenticity import Key

SHORT = {
    "logistic": "PrivateLogisticRegression",
    "softmax": "PrivateSoftmaxRegression",
    "svc": "PrivateLinearSVC",
    "ridge": "PrivateRidge",
    "huber": "PrivateHuberRegressor",
}
_CLASSIFIERS = ("logistic", "softmax", "svc")


class PrivateTableModel(BaseEstimator):  # type: ignore[misc]
    """A private model of a table, in the manner of scikit-learn.

    Every feature is made by the declared schema, so nothing is learnt from the records before the
    model itself, and its certificate covers all that is released.

    Args:
        schema: what the columns mean: a TOML file (`lastiterate schema` writes one to fill in) or
            a mapping of the same shape.
        target: the column to predict; missing, the schema names it.
        epsilon, delta: the privacy to spend; missing, the estimator's own.
        estimator: a private estimator of this package, unfitted; missing, one for the declared
            target: logistic, softmax for three classes or more, ridge for numbers.

    Attributes:
        schema_: the schema as it was read.
        model_: the fitted estimator, and ``classes_`` its classes.
        certificate_: the privacy that was spent; None for experiments.
        n_features_in_, feature_names_in_: the columns of a table that are features.
        guarantee_: the same as an object that can be asked at other deltas; only of a model
            before which nothing was paid for (``prepare=None``).

    A table is a path (CSV, packed by gzip or not, Parquet, Arrow, Feather), a data frame of pandas
    or Polars, a relation of DuckDB or a table of Arrow.

    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [20, 60, 30, 70] * 50, "job": ["a", "b", None, "c"] * 50})
    >>> people["income"] = ["low", "high"] * 100
    >>> schema = {
    ...     "columns": {
    ...         "age": {"low": 0, "high": 100},
    ...         "job": {"categories": ["a", "b"], "other": True, "missing": True},
    ...     },
    ...     "target": {"name": "income", "classes": ["low", "high"]},
    ... }
    >>> model = PrivateTableModel(schema, epsilon=2.0, delta=1e-4).fit(people)
    >>> model.certificate_.epsilon <= 2.0, model.predict_proba(people).shape
    (True, (200, 2))
    """

    def __init__(
        self,
        schema: Any,
        target: str | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        estimator: Any = None,
    ) -> None:
        self.schema = schema
        self.target = target
        self.epsilon = epsilon
        self.delta = delta
        self.estimator = estimator

    def fit(self, X: Source, y: Any = None, groups: Any = None) -> Self:
        """Train on a table.

        Args:
            X: the table.
            y: the labels, if they are not a column of it.
            groups: whose record it is, with the estimator's ``max_records_per_group``: the name of
                a column, which is then no feature, or one owner per record.
        """
        for name in ("model_", "schema_", "learnt_before_"):
            self.__dict__.pop(name, None)
        schema, table = self._read_schema(), read_table(X)
        if isinstance(groups, str):
            schema, groups = schema.without_names(groups), table.texts(groups)
        estimator = chosen(schema) if self.estimator is None else _own(self.estimator, schema)
        given = {"epsilon": self.epsilon, "delta": self.delta}
        estimator.set_params(**{name: value for name, value in given.items() if value is not None})
        features, labels = schema.encode(table if y is None else _joined(table, schema, y))
        self.model_ = estimator.fit(features, labels, groups=groups)
        self.schema_, self.learnt_before_ = schema, self.model_.learnt_before_
        return self

    def _read_schema(self) -> Schema:
        if isinstance(self.schema, Schema):
            return self.schema
        if isinstance(self.schema, Mapping):
            return Schema.of_table(self.schema, self.target)
        return Schema.read(Path(self.schema), self.target)

    # --- using --------------------------------------------------------------------------------

    def predict(self, X: Source) -> Array:
        """The predicted class or number of every row; columns that are not declared are ignored."""
        return np.asarray(self._trained.model.predict(self._features(X)))

    @available_if(lambda self: self._has_probabilities())  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Source) -> Array:
        """Probabilities of the classes, in the order of ``classes_``."""
        return np.asarray(self._trained.model.predict_proba(self._features(X)))

    def score(self, X: Source, y: Any = None) -> float:
        """Accuracy, or R squared, on other records; their share of right answers is a release."""
        table = read_table(X)
        schema = self._trained.schema
        table = table if y is None else _joined(table, schema, y)
        truth = schema.labels(table.column(schema.target_name))
        found = self._trained.model.predict(schema.features(table))
        return float((accuracy_score if schema.classifies else r2_score)(truth, found))

    def _features(self, X: Source) -> Array:
        return self._trained.schema.features(read_table(X))

    def _has_probabilities(self) -> bool:
        """Whether the fitted estimator, or the one that `fit` will take, has probabilities."""
        estimator = getattr(self, "model_", self.estimator)
        try:
            estimator = chosen(self._read_schema()) if estimator is None else estimator
        except DescriptionError:  # `fit` says what is wrong with the schema
            return False
        return hasattr(estimator, "predict_proba")

    @property
    def _trained(self) -> TableModel:
        check_is_fitted(self, "model_")
        return TableModel(self.schema_, self.model_)

    @property
    def n_features_in_(self) -> int:
        """The number of columns of a table that are features."""
        return len(self._trained.schema.columns)

    @property
    def feature_names_in_(self) -> Array:
        """The names of these columns."""
        return np.array(list(self._trained.schema.columns), dtype=object)

    @property
    def classes_(self) -> Array:
        """The classes, sorted; their type is that of their declaration."""
        return np.asarray(self._trained.model.classes_)

    @property
    def certificate_(self) -> Certificate | None:
        """The privacy that was spent, checkable by anybody; None for experiments."""
        certificate: Certificate | None = self._trained.model.certificate_
        return certificate

    @property
    def guarantee_(self) -> Guarantee | None:
        """The guarantee at every delta; None for experiments."""
        model = self._trained.model
        if model.certificate_ is None:
            return None
        if model.certificate_.parts or model.certificate_.training != model.training_:
            raise AttributeError(  # as of every attribute that there is not
                "What was released is more than one run (a preparation or a calibration was paid "
                "for), and one guarantee does not speak of all: use "
                "certificate_, whose curve has other deltas; or prepare=None."
            )
        return account(model.training_, model.loss_, unit=model.choice_.unit)

    # --- keeping ------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], *, key: Key | None = None) -> None:
        """Write a new folder as `lastiterate train` does: plain data, in which nothing runs.

        Args:
            folder: a folder that does not exist yet.
            key: signs the certificate.
        """
        trained = self._trained
        records = trained.model.training_.records
        save(Path(folder), trained, report(trained, records, []), about(trained, records, []), key)
        self.model_.certificate_ = TableModel.load(
            folder
        ).model.certificate_  # seals the schema too

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the model for other programs: .onnx, a graph, or .json, plain weights.

        Both carry epsilon, delta and the certificate's digest, which after `save` is that of the
        folder's. An older file is replaced.
        """
        write_whole(Path(path), exported(self._trained, Path(path).suffix[1:].lower()))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a folder of `save` or of `lastiterate train`; another model than the certificate's,
        or another schema, is refused.
        """
        trained = TableModel.load(folder)
        opened = cls(trained.schema, trained.schema.target_name, estimator=clone(trained.model))
        opened.schema_, opened.model_ = trained.schema, trained.model
        return opened

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False  # it may be a column of the table
        try:
            schema = getattr(self, "schema_", None) or self._read_schema()
        except DescriptionError:  # `fit` says what is wrong with it
            return tags
        tags.estimator_type = "classifier" if schema.classifies else "regressor"
        return tags


def chosen(schema: Schema, name: str | None = None) -> Any:
    """The estimator of this short name, or the usual one, for the declared target."""
    several = isinstance(schema.target, Categorical) and len(schema.target.categories) > 2
    if name is None:
        name = ("softmax" if several else "logistic") if schema.classifies else "ridge"
    able = [each for each in SHORT if (each in _CLASSIFIERS) is schema.classifies]
    one_of("model", name, tuple(able))
    return _fitting(KINDS[SHORT[name]](), schema)


def _fitting(estimator: Any, schema: Schema) -> Any:
    """With the classes or the ranges that the schema declares; its features are all in [0, 1]."""
    estimator.set_params(feature_range=(0.0, 1.0))
    if isinstance(schema.target, Categorical):
        return estimator.set_params(classes=list(schema.target.categories))
    return estimator.set_params(target_range=(schema.target.low, schema.target.high))


def _own(estimator: Any, schema: Schema) -> Any:
    """A copy of the user's estimator for this schema."""
    able = [SHORT[each] for each in SHORT if (each in _CLASSIFIERS) is schema.classifies]
    if KINDS.get(type(estimator).__name__) is not type(estimator):  # a subclass may do anything
        why = "another one may learn from the records without paying for it"
        raise DescriptionError("estimator", type(estimator).__name__, f"one of {able}", why)
    one_of("estimator", type(estimator).__name__, tuple(able))
    theirs = estimator.get_params(deep=False)
    ours = _fitting(clone(estimator), schema)
    for name in ("classes", "target_range"):
        if theirs.get(name) is not None and sorted(theirs[name]) != sorted(getattr(ours, name)):
            why = "two declarations could disagree"
            raise DescriptionError(name, theirs[name], "left to the schema", why)
    return ours


def _joined(table: Table, schema: Schema, y: Any) -> Table:
    """The table with its labels as a column."""
    if hasattr(y, "to_frame"):  # a column of pandas or Polars
        labels: Cells = read_table(y.to_frame("y")).columns[0]
    else:
        labels = TextCells([spelled(value) for value in np.ravel(y).tolist()], first=1)
    if len(labels) != len(table):
        why = "every record has one label"
        raise DescriptionError("y", f"{len(labels):,} labels", f"{len(table):,}", why)
    name = schema.target_name
    kept = [place for place, each in enumerate(table.names) if each != name]
    names = [table.names[place] for place in kept]
    return Table((*names, name), [*(table.columns[place] for place in kept), labels])
