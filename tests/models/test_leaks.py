"""Records that leak by another way: no message shows a cell, and read-off classes are warned of."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from lastiterate.cli.main import run
from lastiterate.errors import LastIterateError
from lastiterate.models import (
    PrivacyWarning,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
    PrivateTableModel,
)
from lastiterate.models.table import read_table

SECRET = "Jane-HIV"
HEADER = "age,job,income\n"
GOOD = "30,clerk,low\n40,nurse,high\n"
TABLES = {
    "a number": HEADER + f"{SECRET},clerk,low\n" + GOOD,
    "a category": HEADER + f"30,{SECRET},low\n" + GOOD,
    "a class": HEADER + f"30,clerk,{SECRET}\n" + GOOD,
    "a hole beside it": HEADER + f",{SECRET},low\n" + GOOD,
    "a ragged row": HEADER + f"30,clerk,low,{SECRET}\n" + GOOD,
    "no header": f"30,{SECRET},low\n" + GOOD,
    "no header, repeated": f"{SECRET},{SECRET},low\n" + GOOD,
    "no header, the target there": f"{SECRET},job,income\n" + GOOD,
    "an open quote": HEADER + f'30,"{SECRET},low\n' + GOOD,
    "not UTF-8": HEADER + f"30,clerk,{SECRET}\udcff\n",
    "a zero byte": HEADER + f"30,clerk,{SECRET}\0\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_no_message_of_train_shows_a_cell(name: str, tmp_path: Path, capsys: Any) -> None:
    """Before: "row 2, column 'age' is 'Jane-HIV', but must be a finite number"."""
    (tmp_path / "t.csv").write_bytes(TABLES[name].encode("utf-8", "surrogateescape"))
    declared = ["--numeric", "age=0:100", "--category", "job=clerk,nurse", "--classes", "low,high"]
    data = ["train", str(tmp_path / "t.csv"), "--target", "income", *declared]
    with pytest.raises(SystemExit) as left:
        run([*data, "--epsilon", "1", "--delta", "1e-3", "--out", str(tmp_path / "run")])
    said = capsys.readouterr()
    assert left.value.code == 2
    assert SECRET not in said.out + said.err
    assert "Jane" not in said.out + said.err
    assert "Traceback" not in said.err


X = np.tile([[0.1, 0.2], [0.3, -0.4]], (20, 1))
KINDS = [PrivateLogisticRegression, PrivateSoftmaxRegression, PrivateLinearSVC]


@pytest.mark.parametrize("kind", [*KINDS, PrivateRidge])
def test_no_message_of_fit_shows_a_cell(kind: Any) -> None:
    """Before: scikit-learn's "could not convert string to float: 'Jane-HIV'"."""
    features = X.astype(object)
    features[3, 1] = SECRET
    labels = np.full(len(X), SECRET)
    wrong: list[tuple[Any, Any]] = [(features, np.arange(len(X)) % 2), (X, labels)]
    for given in wrong:
        with pytest.raises(ValueError, match=r"not numeric|of one class") as caught:
            kind(delta=1e-4, steps=5).fit(*given)
        shown = "".join(traceback.format_exception(caught.value))
        assert SECRET not in shown


def told(call: Callable[[], Any]) -> str:
    """All that an error and those behind it say, and all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises((ValueError, TypeError, LastIterateError)) as raised:
            call()
    said, error = [str(each.message) for each in caught], raised.value
    while error is not None:
        said.append(f"{error} {vars(error)} {getattr(error, 'object', '')!r}")
        error = error.__cause__ or error.__context__
    return "\n".join(said)


TEXTS = np.array([[SECRET, "1"]], dtype=object)
FITTED: list[tuple[Any, str]] = [
    (PrivateLogisticRegression(delta=1e-4, steps=2, classes=[0, 1]), "predict"),
    (PrivateLogisticRegression(delta=1e-4, steps=2, classes=[0, 1]), "predict_proba"),
    (PrivateLinearSVC(delta=1e-4, steps=2, classes=[0, 1]), "decision_function"),
    (PrivateRidge(delta=1e-4, steps=2, target_range=(0, 1)), "predict"),
    (PrivateStandardScaler(delta=1e-4), "transform"),
    (PrivateStandardScaler(delta=1e-4), "fit"),
]


@pytest.mark.parametrize(("model", "method"), FITTED)
def test_no_message_of_predict_or_transform_shows_a_cell(model: Any, method: str) -> None:
    """Before: scikit-learn's words for texts, and all rows of a complex table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        fitted = clone(model).fit(X, np.arange(len(X)) % 2)
    for rows in (TEXTS, np.array([[77123j, 1.0]])):
        said = told(lambda rows=rows: getattr(fitted, method)(rows))
        assert "not numeric" in said
        assert SECRET not in said
        assert "77123" not in said


@pytest.mark.parametrize(
    "model",
    [
        PrivateLogisticRegression(delta=1e-4, steps=2, classes=[0, 1]),
        PrivateRidge(delta=1e-4, steps=2, target_range=(0, 1)),
    ],
    ids=["classes", "numbers"],
)
def test_scores_show_neither_labels_nor_weights(model: Any) -> None:
    labels, texts = np.arange(len(X)) % 2, np.array([SECRET] * len(X))
    fitted = clone(model).fit(X, labels)
    assert fitted.score(X, labels, np.ones(len(X))) <= 1
    said = told(lambda: fitted.score(X, texts))
    assert "of another kind" in said
    assert SECRET not in said + told(lambda: fitted.score(X, labels, texts))
    assert "X or y" in told(lambda: fitted.score(np.repeat(TEXTS, len(X), axis=0), labels))


def test_how_many_labels_differ_is_not_told_where_classes_are_declared() -> None:
    """Before: scikit-learn warned where more than half of the labels were different ones."""
    labels = np.arange(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PrivateLogisticRegression(delta=1e-4, steps=2, classes=labels)
        model.set_params(feature_range=(-9.0, 9.0)).fit(X, labels)


def test_no_message_of_files_shows_a_cell(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    model = PrivateLogisticRegression(delta=1e-4, steps=2, classes=["n", "p"])
    tables = {
        "no header": f"{SECRET},1,n\n" * 3,
        "a late text": "a,b,y\n" + "1,2,n\n" * 200_000 + f"{SECRET},2,n\n",
        "an open quote": f'a,b,y\n"{SECRET},2,n\n',
        "a class": f"a,b,y\n1,2,{SECRET}\n",
    }
    for name, text in tables.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        assert SECRET not in told(lambda path=path: model.fit_files(path, "y")), name


def test_not_even_behind_an_error_is_a_part_of_the_table(tmp_path: Path) -> None:
    """Before: the error of the decoder, with the bytes that it read, hung behind ours."""
    path = tmp_path / "t.csv"
    path.write_bytes(f"a,y\n{SECRET}\xff,n\n".encode("latin-1"))
    assert SECRET not in told(lambda: read_table(path))


def test_keys_of_nested_cells_are_not_types() -> None:
    """Before: "column 'a' is stored as struct<Jane-HIV: int64>"."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [{SECRET: 1}], "y": ["n"]})
    target = {"name": "y", "classes": ["n", "p"]}
    meaning = {"columns": {"a": {"low": 0, "high": 1}}, "target": target}
    said = told(lambda: PrivateTableModel(meaning, delta=1e-4).fit(frame))
    assert "stored as struct" in said
    assert SECRET not in said


@pytest.mark.parametrize("kind", KINDS)
def test_classes_read_off_labels_are_warned_of(kind: Any) -> None:
    """Before: `classes_` released that somebody is "Jane-HIV", and only choice_ said so."""
    y = np.where(np.arange(len(X)) % 2, "no", "yes").astype("U20")
    y[7] = SECRET
    settings = {"delta": 1e-4, "steps": 5}
    with pytest.warns(PrivacyWarning, match="Declare classes=") as caught:
        model = kind(**settings).fit(X, y)
    assert SECRET in model.classes_
    assert not any(SECRET in str(each.message) for each in caught)
    y[7] = "yes"
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        declared = kind(**settings, classes=["no", "yes", "rare"]).fit(X, y)
        kind(**settings, random_state=0).fit(X, y)  # an experiment promises nothing
    assert declared.classes_.tolist() == ["no", "rare", "yes"]
