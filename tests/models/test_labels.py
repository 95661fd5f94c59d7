"""Labels keep their type, and a table model is one of scikit-learn's classifiers."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier
from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay, accuracy_score
from sklearn.model_selection import cross_val_predict, cross_val_score

from lastiterate.cli.main import run as command
from lastiterate.errors import DescriptionError
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
    PrivateTableModel,
)
from lastiterate.models.schema import Schema

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

RNG = np.random.default_rng(0)
N = 400
FRAME = pd.DataFrame(RNG.uniform(0, 1, (N, 2)), columns=["a", "b"])
COLUMNS = {"a": {"low": 0, "high": 1}, "b": {"low": 0, "high": 1}}
ABOVE = (FRAME["a"] > 0.5).to_numpy()
CLASSES: dict[str, tuple[list[Any], Any]] = {
    "whole numbers": ([0, 1], np.int64),
    "negative ones": ([-1, 1], np.int64),
    "of NumPy": ([np.int64(3), np.int64(20)], np.int64),
    "doubles": ([0.0, 2], np.float64),
    "truths": ([True, False], np.bool_),
    "texts": (["1", "no"], np.str_),
}
FITTED = pytest.mark.filterwarnings("ignore::lastiterate.models.PrivacyWarning")


def labels(name: str) -> Any:
    low, high = sorted(CLASSES[name][0])
    return np.where(ABOVE, high, low)


def model(classes: Any, estimator: Any = None, **more: Any) -> PrivateTableModel:
    about = {"name": "y", "classes": classes}
    given = {"epsilon": 20.0, "delta": 1e-3, "estimator": estimator, **more}
    return PrivateTableModel({"columns": COLUMNS, "target": about}, **given)


@pytest.mark.parametrize("name", CLASSES)
def test_labels_keep_their_type_everywhere(name: str, tmp_path: Path) -> None:
    """Whole numbers became texts: the share of right answers was 0 or nan."""
    classes, kind = CLASSES[name]
    y = labels(name)
    trained = model(classes).fit(FRAME, y)
    trained.save(tmp_path / "run")
    again = PrivateTableModel.load(tmp_path / "run")
    for each in (trained, again, model(classes).fit(FRAME.assign(y=y))):
        assert each.classes_.dtype.type is kind
        assert each.classes_.tolist() == sorted(classes)
        assert each.predict(FRAME).dtype.type is kind
        assert accuracy_score(y, each.predict(FRAME)) > 0.8
        assert accuracy_score(y, each.predict(FRAME)) == each.score(FRAME, y)
        assert each.score(FRAME.assign(y=y)) == each.score(FRAME, y)
    np.testing.assert_array_equal(again.predict_proba(FRAME), trained.predict_proba(FRAME))
    trained.export(tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["classes"] == sorted(classes)


@pytest.mark.parametrize("name", CLASSES)
def test_files_of_labels_are_trained_on_and_predicted(name: str, tmp_path: Path) -> None:
    classes, _ = CLASSES[name]
    y = labels(name)
    model(classes).fit(FRAME, y).save(tmp_path / "run")
    FRAME.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    FRAME.assign(y=y).to_parquet(tmp_path / "t.parquet")
    expected = PrivateTableModel.load(tmp_path / "run").predict(FRAME)
    for kind, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        trained = model(classes).fit(tmp_path / f"t.{kind}")
        assert trained.score(tmp_path / f"t.{kind}") > 0.8
        table, out = (str(tmp_path / f"{each}.{kind}") for each in "tp")
        with pytest.raises(SystemExit) as left:
            command(["predict", str(tmp_path / "run"), table, "-o", out])
        assert not left.value.code
        found = read(tmp_path / f"p.{kind}")["prediction"]
        if kind == "parquet" or name != "texts":
            assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("name", CLASSES)
def test_a_graph_has_labels_of_their_type(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    classes, _ = CLASSES[name]
    three = [*classes, {"truths": 0}.get(name, type(classes[1])("7"))]
    for names in (classes, three)[: 1 if name == "truths" else 2]:
        trained = model(names, PrivateLogisticRegression(steps=5)).fit(FRAME, labels(name))
        trained.export(tmp_path / "m.onnx")
        session = runtime.InferenceSession(tmp_path / "m.onnx")
        cells = {key: FRAME[[key]].to_numpy() for key in COLUMNS}
        (found,) = session.run(["label"], cells)
        expected = trained.predict(FRAME)
        assert found[:, 0].tolist() == expected.tolist()
        assert found.dtype.kind == {"U": "O"}.get(expected.dtype.kind, expected.dtype.kind)


@pytest.mark.parametrize(
    "classes",
    [[0, "1"], [True, 2], [1, 1.0], [0, float("inf")], [0, float("nan")], [0, 2**60], [0.5, 1]],
)
def test_classes_of_several_types_are_refused(classes: Any) -> None:
    with pytest.raises(DescriptionError):
        model(classes).fit(FRAME, labels("whole numbers"))


def test_the_type_is_that_of_the_declaration() -> None:
    """What the labels are stored as is private data, so it changes nothing."""
    for y in (ABOVE.astype(int), ABOVE.astype(float), ABOVE.astype(int).astype(str)):
        assert model([0, 1]).fit(FRAME, y).predict(FRAME).dtype == np.int64
        assert model(["0", "1"]).fit(FRAME, y).predict(FRAME).dtype.kind == "U"


def test_a_boolean_target_is_true_or_false() -> None:
    table = {"columns": COLUMNS, "target": {"name": "y", "boolean": True}}
    schema = Schema.of_table(table)
    assert Schema.of_table(schema.to_table()) == schema
    trained = PrivateTableModel(table, epsilon=20.0, delta=1e-3).fit(FRAME, ABOVE)
    assert trained.predict(FRAME).dtype == bool
    assert accuracy_score(ABOVE, trained.predict(FRAME)) > 0.8


# --- in the manner of scikit-learn ----------------------------------------------------------------


@FITTED
@pytest.mark.parametrize("name", CLASSES)
def test_scores_of_scikit_learn(name: str) -> None:
    y = labels(name)
    scores = cross_val_score(model(CLASSES[name][0]), FRAME, y, scoring="accuracy", cv=2)
    assert (scores > 0.8).all()
    if name == "whole numbers":  # of other classes scikit-learn hands on numbers from 0
        found = cross_val_predict(model([0, 1]), FRAME, y, cv=2, method="predict_proba")
        assert found.shape == (N, 2)


@FITTED
@pytest.mark.parametrize("voting", ["hard", "soft"])
def test_a_vote_of_table_models(voting: str) -> None:
    y = labels("whole numbers")
    voters = [("one", model([0, 1])), ("two", model([0, 1], PrivateSoftmaxRegression()))]
    vote = VotingClassifier(voters, voting=voting).fit(FRAME, y)
    assert accuracy_score(y, vote.predict(FRAME)) > 0.8
    assert vote.n_features_in_ == 2


@FITTED
def test_displays_and_calibration() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    y = labels("whole numbers")
    trained = model([0, 1]).fit(FRAME, y)
    shown = ConfusionMatrixDisplay.from_estimator(trained, FRAME, y)
    assert shown.confusion_matrix.sum() == N
    assert RocCurveDisplay.from_estimator(trained, FRAME, y).roc_auc > 0.8
    pyplot.close("all")
    calibrated = CalibratedClassifierCV(model([0, 1]), cv=2).fit(FRAME, y)
    assert accuracy_score(y, calibrated.predict(FRAME)) > 0.8


def test_a_table_model_says_what_it_has() -> None:
    unfitted = model([0, 1])
    assert hasattr(unfitted, "predict_proba")
    assert hasattr(model([0, 1, 2], PrivateSoftmaxRegression()), "predict_proba")
    assert not hasattr(model([0, 1], PrivateLinearSVC()), "predict_proba")
    numbers = {"columns": COLUMNS, "target": {"name": "y", "low": 0, "high": 1}}
    for without in (PrivateTableModel(numbers), PrivateTableModel({}), PrivateTableModel("none")):
        assert not hasattr(without, "predict_proba")
        assert not hasattr(without, "n_features_in_")
    assert not hasattr(unfitted, "n_features_in_")
    trained = clone(unfitted).fit(
        FRAME.assign(more=1)[["b", "more", "a"]].drop(columns="more"), ABOVE * 1
    )
    assert trained.n_features_in_ == 2
    assert trained.feature_names_in_.tolist() == ["a", "b"]


ESTIMATORS = [
    PrivateLogisticRegression,
    PrivateSoftmaxRegression,
    PrivateLinearSVC,
    PrivateRidge,
    PrivateHuberRegressor,
    PrivateStandardScaler,
]


def looked_at(estimator: Any) -> None:
    """All that notebooks, debuggers and scikit-learn ask an object for."""
    assert "fit" in dir(estimator)
    assert inspect.getmembers(estimator)
    assert repr(estimator)
    assert estimator._repr_html_()
    for kind in type(estimator).__mro__:
        for name in vars(kind):
            hasattr(estimator, name)


@FITTED
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_any_estimator_can_be_looked_at(kind: Any) -> None:
    """With scikit-learn 1.9 `dir` of an unfitted one raised KeyError 'certificate_'."""
    looked_at(kind(delta=1e-3))
    y = ABOVE.astype(int)
    looked_at(kind(delta=1e-3).fit(FRAME, y))
    looked_at(kind(delta=1e-3, random_state=0).fit(FRAME, y))
    if kind is not PrivateStandardScaler:
        looked_at(CalibratedClassifierCV(kind(delta=1e-3)))
        looked_at(VotingClassifier([("one", kind(delta=1e-3))]))


@FITTED
def test_any_table_model_can_be_looked_at() -> None:
    """A model before which something was paid for raised UnsupportedError from `dir`."""
    for each in (model([0, 1]), PrivateTableModel({}), PrivateTableModel("none")):
        looked_at(each)
    y = ABOVE.astype(int)
    prepared = model([0, 1]).fit(FRAME, y)
    looked_at(prepared)
    assert not hasattr(prepared, "guarantee_")
    with pytest.raises(AttributeError, match="use certificate_"):
        _ = prepared.guarantee_
    alone = model([0, 1], PrivateLogisticRegression(prepare=None)).fit(FRAME, y)
    looked_at(alone)
    assert alone.guarantee_.epsilon(1e-3) <= 20.0
    looked_at(model([0, 1], PrivateLogisticRegression(random_state=0)).fit(FRAME, y))
