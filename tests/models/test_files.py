"""Tables in files: the same model as in memory, and whatever is not such a table is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lastiterate import Shuffled, account
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.models import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)

pa = pytest.importorskip("pyarrow")
from pyarrow import csv, dataset, feather, parquet  # noqa: E402

N, NAMES = 1200, ["age", "hours", "visits"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    found = pd.DataFrame(X, columns=NAMES)
    found["visits"] = rng.integers(0, 5, N)
    found["bought"] = np.where(X @ [2.0, -1.0, 0.3] > 0, "yes", "no")
    return found


def table(frame: pd.DataFrame) -> Any:
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.fixture
def folder(frame: pd.DataFrame, tmp_path: Any) -> Any:
    for k, (first, last) in enumerate([(0, 500), (500, 500), (500, 501), (501, N)]):
        parquet.write_table(table(frame[first:last]), tmp_path / f"{k}.parquet", row_group_size=99)
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def model(kind: Any = PrivateLogisticRegression, **changes: Any) -> Any:
    given = {"epsilon": 2.0, "delta": 1e-5, "classes": ["no", "yes"]}
    return kind(**{**given, "steps": 60, "batch_size": 200, **changes})


@pytest.mark.parametrize(
    "kind", [PrivateLogisticRegression, PrivateLinearSVC, PrivateSoftmaxRegression]
)
def test_files_are_the_same_run_as_a_table(kind: Any, frame: Any, folder: Any) -> None:
    """One box of the shuffle draws what a permutation in memory draws: with a seed the same."""
    given = {"feature_bound": 2.0, "random_state": 1}
    found = model(kind, **given).fit_files(folder, "bought")
    same = model(kind, **given).fit(frame[NAMES], frame["bought"])
    assert found.training_.batches == same.training_.batches
    assert isinstance(found.training_.batches, Shuffled)
    assert found.coef_ == pytest.approx(same.coef_, abs=1e-5)
    assert found.intercept_ == pytest.approx(same.intercept_, abs=1e-5)
    assert list(found.feature_names_in_) == NAMES
    assert found.score(frame[NAMES], frame["bought"]) > 0.8


def test_what_is_certified_is_what_ran(folder: Any) -> None:
    found = model().fit_files(f"{folder}/*.parquet", "bought")
    assert found.certificate_.epsilon <= 2.0
    spent = account(found.training_, found.loss_)
    assert spent.epsilon(1e-5) <= 2.0
    assert found.training_.records == N
    again = model().fit_files(folder, "bought")
    assert (again.coef_ != found.coef_).any()


def ridge() -> Any:
    return PrivateRidge(2.0, 1e-5, target_bound=5.0, random_state=0, steps=60, batch_size=200)


def test_a_regression_and_every_kind_of_file(frame: Any, tmp_path: Any) -> None:
    data = table(frame[NAMES])
    parquet.write_table(data, tmp_path / "a.parquet")
    feather.write_feather(data, tmp_path / "b.feather")
    with (
        pa.OSFile(str(tmp_path / "c.arrow"), "wb") as file,
        pa.ipc.new_file(file, data.schema) as out,
    ):
        out.write_table(data)
    csv.write_csv(data, tmp_path / "d.csv")
    given = dataset.dataset(str(tmp_path / "a.parquet"))
    paths = [tmp_path / name for name in ("a.parquet", "b.feather", "c.arrow", "d.csv")]
    found = [ridge().fit_files(files, "visits") for files in [given, *paths]]
    for other in found[1:]:
        assert other.coef_ == pytest.approx(found[0].coef_, abs=1e-12)
        assert other.intercept_ == found[0].intercept_


def refused(
    match: str, files: Any, error: Any = DescriptionError, label: Any = "bought", **how: Any
):
    folder = how.pop("folder", None)
    with pytest.raises(error, match=match) as told:
        model(**how).fit_files(files, label, folder=folder)
    return str(told.value)


def test_files_that_are_no_table_are_refused(frame: Any, folder: Any, tmp_path: Any) -> None:
    refused("no file was found", f"{folder}/*.nothing")
    refused("no file was found", folder / "missing.parquet")
    refused("a path, a folder", 7)
    refused("every file once", [folder / "0.parquet", f"{folder}/*.parquet"])
    refused("one of its columns", folder, label="sold")
    refused("one of its columns", folder, label=None)
    refused("a folder that exists", folder, folder=folder / "missing")
    refused("declared in advance", folder, classes=None)
    refused("in memory", folder, UnsupportedError, max_records_per_group=3)
    refused("leave it out", folder, UnsupportedError, class_weight={"yes": 2.0})
    refused("outside of the declared classes", folder, classes=["no", "perhaps"])
    (folder / "note.txt").write_text("hello")
    refused("of one kind", folder)


def written(frame: Any, path: Any, **columns: Any) -> Any:
    path.mkdir(exist_ok=True)
    parquet.write_table(table(frame.assign(**columns)), path / "0.parquet")
    return path


def test_columns_that_are_no_numbers_are_refused(frame: Any, tmp_path: Any) -> None:
    few = frame[:50]
    for k, values in enumerate(
        (["SECRET"] * 50, pd.date_range("2020", periods=50), [[1.0]] * 50, [b"x"] * 50)
    ):
        said = refused("'age'.*numbers", written(few, tmp_path / str(k), age=values))
        assert "SECRET" not in said
    holes = few["age"].where(few.index != 7)
    nulls = written(few, tmp_path / "holes", age=pd.array(holes, dtype="Float64"))
    assert "7" not in refused("missing values", nulls, AssumptionError)
    refused(
        "missing",
        written(few, tmp_path / "label", bought=[None, *few["bought"][1:]]),
        AssumptionError,
    )
    nan = few["age"].to_numpy(copy=True)
    nan[7] = np.nan
    bad = tmp_path / "nan.parquet"
    parquet.write_table(
        pa.table({"age": pa.array(nan, from_pandas=False), "bought": few["bought"]}), bad
    )
    refused("NaN", bad, ValueError)


def test_files_of_different_schemas_are_refused(frame: Any, tmp_path: Any) -> None:
    few = frame[:50]
    others = [
        few.assign(age=few["age"].astype("float32")),
        few.drop(columns="hours"),
        few.assign(more=1.0),
        few[["hours", "age", "visits", "bought"]],
        few.rename(columns={"age": "Age"}),
    ]
    for k, other in enumerate(others):
        path = written(few, tmp_path / str(k))
        parquet.write_table(table(other), path / "1.parquet")
        refused("of different schemas", path)


def test_folders_whose_names_hold_columns(frame: Any, tmp_path: Any) -> None:
    parquet.write_to_dataset(table(frame), tmp_path / "hive", partition_cols=["visits"])
    refused("partitioning='hive'", tmp_path / "hive")
    given = dataset.dataset(str(tmp_path / "hive"), partitioning="hive")
    found = model().fit_files(given, "bought")
    assert sorted(found.feature_names_in_) == sorted(NAMES)


def test_files_that_change_or_are_damaged_are_refused(frame: Any, tmp_path: Any) -> None:
    path = written(frame, tmp_path / "d") / "0.parquet"
    whole = path.read_bytes()
    hurt = bytearray(whole)
    hurt[len(hurt) // 4 : len(hurt) // 2] = bytes(len(hurt) // 2 - len(hurt) // 4)
    path.write_bytes(hurt)
    refused("damaged", path, AssumptionError)
    path.write_bytes(whole[: len(whole) // 2])
    refused("damaged", path, AssumptionError)
    path.write_bytes(b"no table")
    refused("damaged", path, AssumptionError)


def test_nothing_is_fitted_after_a_refusal(frame: Any, folder: Any, tmp_path: Any) -> None:
    found = model().fit_files(folder, "bought")
    bad = written(frame.assign(bought="other"), tmp_path / "bad")
    with pytest.raises(DescriptionError):
        found.fit_files(bad, "bought")
    assert not hasattr(found, "coef_")
