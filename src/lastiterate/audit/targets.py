"""What to audit, named from outside: a trained model's folder, an estimator, a function.

Each becomes a `Target`: how to train, the two worlds, how to score, and the claim to test.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.audit.attacks.canaries import Data, checked, mislabelled, replaced
from lastiterate.audit.attacks.thresholds import LogitScore
from lastiterate.audit.retrained import (
    RecordScore,
    Retrained,
    RetrainedWithScaler,
    ScaledRecordScore,
    Unscaled,
)
from lastiterate.certificate import Certificate
from lastiterate.certificate.filed import ABOUT, refuse_pickles
from lastiterate.description.fields import one_of
from lastiterate.errors import DescriptionError

CANARIES = ("mislabelled", "as-is")


@dataclass(frozen=True)
class Target:
    """Everything `audit` needs, and the claim that it may contradict.

    Attributes:
        widened: the worlds differ in a replaced record while the claim is about zeroed ones.
    """

    train: Callable[[Any, int], Any]
    inside: Any
    outside: Any
    score: Callable[[Any], Any] | None
    claim: Certificate | None = None
    widened: bool = False


def named(name: str, data: Path | None, record: int, canary: str) -> Target:
    """The target of a name: a folder, or "module:attribute" (a class with ``fit``, a function)."""
    one_of("canary", canary, CANARIES)
    if Path(name).is_dir():
        return _folder(Path(name), data, record, canary)
    found = _imported(name)
    if hasattr(found, "fit"):
        return _estimator(found, _arrays(name, data), record, canary)
    if not callable(found):
        why = "models are trained by it"
        raise DescriptionError("target", name, "a function, an estimator or a folder", why)
    if data is None:
        return Target(found, "inside", "outside", None)
    outside = _arrays(name, data)
    return Target(found, _with_canary(outside, record, canary), outside, None)


# --- a folder written by `lastiterate train` ------------------------------------------------------


def _folder(folder: Path, data: Path | None, record: int, canary: str) -> Target:
    """The certificate's own adjacency: a zeroed row gives no gradient, whatever its label."""
    from lastiterate.models.saved import TableModel
    from lastiterate.models.table import read_table

    refuse_pickles(folder)
    if not (folder / ABOUT).is_file():
        why = "the model is trained again as it was"
        raise DescriptionError("target", str(folder), "a folder written by lastiterate train", why)
    if data is None:
        raise DescriptionError(
            "data", None, "the CSV that the model was trained on", "a folder does not hold data"
        )
    saved = TableModel.load(folder)
    model = saved.model
    X, y = saved.schema.encode(read_table(data))
    if len(y) != model.training_.records:
        why = "the audited run must be the one that was certified"
        raise DescriptionError("data", f"{len(y)} records", f"{model.training_.records}", why)
    original = (_dense(X), np.asarray(y))
    other = "as-is" if canary == "mislabelled" else "mislabelled"
    inside, outside = (
        (X, np.asarray(model._targets(labels)))
        for X, labels in (_with_canary(original, record, kind) for kind in (canary, other))
    )
    objective = model._objective()
    retrained = Retrained(objective, model.training_, model.loss_.regularization, model._rows.norm)
    claim = model.certificate_
    removed = model.training_.adjacency == "zero-out"
    if model._learnt_statistics:
        return Target(
            RetrainedWithScaler(model.prepare_, model._rows, retrained),
            Unscaled(*inside),
            Unscaled(*inside, removed=record) if removed else Unscaled(*outside),
            ScaledRecordScore(objective, model._rows, inside[0][record], inside[1][record]),
            claim,
        )
    inside, outside = (
        (np.asarray(_dense(model._rows.of(model._prepared(X))), float), y)
        for X, y in (inside, outside)
    )
    if removed:
        outside = replaced(inside, record, np.zeros(inside[0].shape[1]), inside[1][record])
    score = RecordScore(objective, inside[0][record], inside[1][record])
    return Target(retrained, inside, outside, score, claim)


# --- an estimator ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """Fits a fresh estimator per seed."""

    kind: Any

    def __call__(self, dataset: Data, seed: int) -> Any:
        """One fitted estimator."""
        from sklearn.base import clone

        estimator: Any = self.kind() if inspect.isclass(self.kind) else clone(self.kind)
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=seed % 2**32)
        return estimator.fit(*dataset)


@dataclass(frozen=True)
class EstimatorScore:
    """The logit of the record's label, or minus the squared error of a regressor."""

    x: Any
    label: Any

    def __call__(self, model: Any) -> float:
        """The score of one fitted estimator."""
        if hasattr(model, "predict_proba"):
            return LogitScore(self.x, self.label)(model)
        if hasattr(model, "decision_function"):
            values = np.atleast_1d(np.asarray(model.decision_function(self.x[None])).ravel())
            place = list(model.classes_).index(self.label)
            return float(values[place] if len(values) > 1 else values[0] * (2 * place - 1))
        return -float((np.ravel(model.predict(self.x[None]))[0] - self.label) ** 2)


def _estimator(kind: Any, outside: Data, record: int, canary: str) -> Target:
    inside = _with_canary(outside, record, canary)
    if canary == "as-is":  # somebody else stands in for the record outside
        other = (record + 1) % len(outside[0])
        outside = replaced(outside, record, outside[0][other], outside[1][other])
    score = EstimatorScore(inside[0][record], inside[1][record])
    return Target(Fitted(kind), inside, outside, score, widened=True)


def _dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


# --- names and files ------------------------------------------------------------------------------


def _with_canary(data: Data, record: int, canary: str) -> Data:
    if canary == "as-is":
        return checked(data, record)
    return mislabelled(data, record)


def _imported(name: str) -> Any:
    """The object of "package.module:attribute", "package.module.attribute" or "file.py:name"."""
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    try:
        if module.endswith(".py"):
            spec = importlib.util.spec_from_file_location("_audited", module)
            assert spec is not None
            assert spec.loader is not None
            found: Any = importlib.util.module_from_spec(spec)
            sys.modules["_audited"] = found
            spec.loader.exec_module(found)
        else:
            if os.getcwd() not in sys.path:
                sys.path.insert(0, os.getcwd())
            found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, FileNotFoundError) as error:
        allowed = f"a folder, package.module:name or file.py:name that can be imported ({error})"
        why = "somebody must train the models"
        raise DescriptionError("target", name, allowed, why) from error
    return found


def _arrays(name: str, data: Path | None) -> Data:
    if data is None:
        why = f"{name} is trained on it, with and without one record"
        raise DescriptionError("data", None, "an .npz file with the arrays X and y", why)
    try:
        with np.load(data, allow_pickle=False) as file:
            return file["X"], file["y"]
    except (OSError, KeyError, ValueError) as error:
        why = "the two worlds are made from it"
        raise DescriptionError(
            "data", str(data), f"an .npz file with the arrays X and y ({error})", why
        ) from error
