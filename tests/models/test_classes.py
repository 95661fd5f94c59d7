"""Declared classes fix the shape of a model, whichever labels occur among the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from lastiterate.cli.main import run
from lastiterate.description.assumptions import NOT_COVERED
from lastiterate.errors import DescriptionError
from lastiterate.models import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    tune,
)
from lastiterate.models.classifier import declared
from lastiterate.models.saved import TableModel

KINDS = (PrivateLogisticRegression, PrivateSoftmaxRegression, PrivateLinearSVC)
RECORDS = 60
rng = np.random.default_rng(3)
X = rng.standard_normal((RECORDS, 2))


def labels(kinds: list[Any]) -> Any:
    return np.array([kinds[k % len(kinds)] for k in range(RECORDS)])


def fitted(kind: Any, y: Any, classes: Any, **given: Any) -> Any:
    return kind(1.0, 1e-4, steps=5, classes=classes, random_state=0, **given).fit(X, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tensors", [False, True])
def test_one_record_cannot_change_the_shape(kind: Any, tensors: bool) -> None:
    """Two neighbouring data sets, one with a class that the other lacks: the same shape and noise.

    Without a declaration the shapes differ, which tells the two apart with certainty.
    """
    given: Any = X
    if tensors:
        given = pytest.importorskip("torch").from_numpy(X)
    common = labels(["a", "b"])
    rare = common.astype("<U4").copy()
    rare[7] = "rare"

    def shape(y: Any, classes: Any) -> Any:
        model = kind(1.0, 1e-4, steps=5, classes=classes, random_state=0).fit(given, y)
        return (
            model.coef_.shape,
            model.intercept_.shape,
            model.classes_.tolist(),
            model.training_,
            str(model.choice_),
            model.loss_,
            model.decision_function(given).shape,
        )

    names = ["rare", "a", "b"]
    assert shape(common, names) == shape(rare, names)
    assert shape(common, names)[2] == sorted(names)
    assert shape(common, None)[0] != shape(rare, None)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_declared_class_that_never_occurs_is_a_class(kind: Any) -> None:
    model = fitted(kind, labels([0, 1]), (2, 0, 1))
    assert model.coef_.shape == (3, 2)
    assert set(model.predict(X)) <= {0, 1, 2}
    again = joblib_round_trip(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    one = fitted(kind, labels([1]), [0, 1])  # even a single class may occur
    assert one.classes_.tolist() == [0, 1]


def joblib_round_trip(model: Any) -> Any:
    import io

    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_a_declaration_does_not_matter(kind: Any) -> None:
    y = labels(["x", "y", "z"])
    first = fitted(kind, y, ["z", "x", "y"])
    for classes in (["x", "y", "z"], np.array(["y", "z", "x"]), {"x", "y", "z"}, None):
        np.testing.assert_array_equal(fitted(kind, y, classes).coef_, first.coef_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["no", "yes", "secret"], ["no", "yes"]),
        ([0, 1, 42], [0, 1]),
        ([-7, 1, 1], [0, 1]),
        ([0, 1, 0], ["0", "1"]),
        (["0", "1", "secret"], [0, 1]),
        ([0, 1, 42], ["no", "yes"]),
    ],
)
def test_another_label_is_refused_and_not_named(kind: Any, y: list[Any], classes: Any) -> None:
    model = kind(1.0, 1e-4, classes=classes, random_state=0)
    with pytest.raises(DescriptionError, match="outside of the declared") as refused:
        model.fit(X, labels(y))
    assert not hasattr(model, "coef_")
    for secret in ("secret", "42", "-7"):
        assert secret not in str(refused.value)


BAD = [
    [],
    ["a"],
    "ab",
    b"ab",
    3,
    [["a"], ["b"]],
    ["a", 1],
    ["a", None],
    [0.0, float("nan")],
    ["a", "b", "a"],
    [None, None],
    np.eye(2),
    object(),
]


@pytest.mark.parametrize("classes", BAD, ids=lambda value: type(value).__name__)
def test_what_is_no_declaration(classes: Any) -> None:
    with pytest.raises(DescriptionError, match="classes"):
        declared(classes)
    model = PrivateLogisticRegression(1.0, 1e-4, classes=classes)  # constructors only store
    assert model.get_params()["classes"] is classes
    with pytest.raises(DescriptionError, match="classes"):
        model.fit(X, labels(["a", "b"]))


def test_labels_of_every_kind() -> None:
    pd = pytest.importorskip("pandas")
    words = ["a", "b"] * (RECORDS // 2)
    for y in (
        words,
        pd.Series(words),
        pd.Series(words, dtype="string"),
        pd.Series(words, dtype="category"),
        np.array(words, dtype=object),
        np.array(words, "<U9"),
    ):
        assert fitted(PrivateLogisticRegression, y, ["c", "a", "b"]).coef_.shape == (3, 2)
    for kind in (bool, np.uint8, np.float32, float, int):
        y = np.array([0, 1] * (RECORDS // 2), dtype=kind)
        assert fitted(PrivateLogisticRegression, y, [0, 1, 2]).coef_.shape == (3, 2)


def test_clone_and_set_params() -> None:
    model = clone(PrivateLogisticRegression(1.0, 1e-4, classes=["a", "b", "c"], random_state=0))
    assert model.fit(X, labels(["a", "b"])).coef_.shape == (3, 2)
    assert model.set_params(classes=None).fit(X, labels(["a", "b"])).coef_.shape == (1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_released_is_said(kind: Any) -> None:
    y = labels(["a", "b"])
    assert "NOT DECLARED" in str(fitted(kind, y, None).choice_)
    assert "NOT DECLARED" not in str(fitted(kind, y, ["a", "b"]).choice_)
    for words in (kind.__doc__, " ".join(NOT_COVERED)):
        assert "classes" in words
        assert "release" in words
    certified = kind(1.0, 1e-4, steps=5).fit(X, y).certificate_
    assert any("classes that occur" in text for text in certified.not_covered)


def test_a_stream_takes_them_from_the_estimator() -> None:
    y = labels(["a", "b"])
    pairs = [(X[k : k + 20], y[k : k + 20]) for k in range(0, RECORDS, 20)]
    given = {"batches": 3, "batch_size": 20}
    model = PrivateLogisticRegression(1.0, 1e-4, classes=["c", "b", "a"], random_state=0)
    model.fit_stream(pairs, **given)
    assert (model.coef_.shape, model.classes_.tolist()) == ((3, 2), ["a", "b", "c"])
    assert "NOT DECLARED" not in str(model.choice_)
    assert model.certificate_ is None  # seeded
    model.fit_stream(pairs, classes=["a", "b", "c"], **given)
    with pytest.raises(DescriptionError, match="agree"):
        model.fit_stream(pairs, classes=["a", "b"], **given)
    with pytest.raises(DescriptionError, match="declared in advance"):
        PrivateLogisticRegression(1.0, 1e-4).fit_stream(pairs, **given)
    narrow = PrivateLogisticRegression(1.0, 1e-4, classes=["b", "c"])
    with pytest.raises(DescriptionError, match="outside of the declared"):
        narrow.fit_stream(pairs, **given)
    assert not hasattr(narrow, "coef_")
    ridge = PrivateRidge(1.0, 1e-4, feature_bound=1.0, target_bound=1.0)
    with pytest.raises(DescriptionError, match="regression"):
        ridge.fit_stream([(X, X[:, 0])], batches=1, batch_size=RECORDS, classes=[0, 1])


def test_tuning_keeps_them() -> None:
    model = PrivateLogisticRegression(10.0, 1e-3, steps=5, classes=[0, 1, 2])
    found = tune(model, {"regularization": [0.01, 0.1]}, X, labels([0, 1]), random_state=0)
    assert found.model.coef_.shape == (3, 2)
    with pytest.raises(DescriptionError, match="classes"):
        tune(model, {"classes": [[0, 1], [0, 1, 2]]}, X, labels([0, 1]))


def test_shards_and_the_probe() -> None:
    torch = pytest.importorskip("torch")
    from lastiterate.torch import PrivateLinearProbe

    y = torch.arange(RECORDS) % 2
    probe = PrivateLinearProbe(1.0, 1e-4, steps=5, classes=[0, 1, 5], random_state=0)
    assert probe.fit(torch.from_numpy(X), y).coef_.shape == (3, 2)
    with pytest.raises(DescriptionError, match="outside of the declared"):
        probe.fit(torch.from_numpy(X), 3 * y)


# --- the command ------------------------------------------------------------------------------


def trained(folder: Path, target: list[str], *flags: str) -> tuple[int, Any]:
    lines = [f"{k % 10},{value}" for k, value in enumerate(target)]
    (folder / "t.csv").write_text("a,label\n" + "\n".join(lines) + "\n")
    with pytest.raises(SystemExit) as left:
        run(
            [
                "train",
                str(folder / "t.csv"),
                "--target",
                "label",
                "--epsilon",
                "2",
                "--delta",
                "1e-4",
                "--numeric",
                "a=0:9",
                "--steps",
                "5",
                "--out",
                str(folder / "run"),
                *flags,
            ]
        )
    code = int(left.value.code or 0)
    return code, TableModel.load(folder / "run").model if code == 0 else None


@pytest.mark.parametrize("model", ["logistic", "softmax", "svc"])
@pytest.mark.parametrize("occurring", [["a", "b"], ["a", "b", "c"], ["b"]])
def test_the_command_fixes_the_shape(tmp_path: Path, model: str, occurring: list[str]) -> None:
    """The reproduction of the defect: --classes a,b,c with c absent gave two rows."""
    code, found = trained(
        tmp_path, list(labels(occurring)), "--classes", "c,a,b", "--model", model, "--seed", "1"
    )
    assert code == 0
    assert (found.coef_.shape, found.classes_.tolist()) == ((3, 3), ["a", "b", "c"])
    public = json.loads((tmp_path / "run" / "run.json").read_text())
    assert any("declared, so that" in why for _, why in public["choice"])
    assert "released" not in str([why for what, why in public["choice"] if what == "classes"])


def test_the_command_refuses_another_label_without_showing_it(tmp_path: Path, capsys: Any) -> None:
    code, _ = trained(tmp_path, ["a", "b", "secret"], "--classes", "a,b")
    said = capsys.readouterr().err
    assert code == 2
    assert "row 4" in said
    assert "secret" not in said
    assert not (tmp_path / "run").exists()
    assert trained(tmp_path, ["a", "a"], "--classes", "a")[0] == 2
