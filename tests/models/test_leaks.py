"""Records that leak by another way: no message shows a cell, and read-off classes are warned of."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastiterate.cli.main import run
from lastiterate.models import (
    PrivacyWarning,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)

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
