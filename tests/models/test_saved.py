"""A filed model is plain data: it comes back as it was, nothing runs, misfits are refused."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
import shutil
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastiterate import LastIterateError, verify
from lastiterate._internal.safe_io import MOST_ARRAY_BYTES, archived, read_arrays, read_json
from lastiterate.cli.main import run
from lastiterate.errors import DescriptionError
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
)
from lastiterate.models.columns import Categorical, Numeric
from lastiterate.models.saved import TableModel, about, report, save
from lastiterate.models.schema import Schema

RNG = np.random.default_rng(0)
COLUMNS = {"age": Numeric(0.0, 100.0), "job": Categorical(("clerk", "nurse", "inf"))}


def filed(folder: Path, model: Any, target: Any) -> TableModel:
    """A model of a small table, in a folder."""
    schema = Schema(COLUMNS, "label", target, dropped=("id",))
    rows = ["id,age,job,label"]
    for k in range(200):
        age, job = RNG.integers(0, 100), RNG.choice(["clerk", "nurse", "inf"])
        names = target.categories if isinstance(target, Categorical) else None
        label = names[int(age) % len(names)] if names else f"{age / 50 - 1}"
        rows.append(f"{k},{age},{job},{label}")
    (folder / "data.csv").write_text("\n".join(rows) + "\n")
    from lastiterate.models.table import read_table

    X, y = schema.encode(read_table(folder / "data.csv"))
    trained = TableModel(schema, model.set_params(delta=1e-4, steps=5).fit(X, y))
    save(folder / "run", trained, report(trained, len(y), []), about(trained, len(y), []))
    return trained


TWO, THREE = Categorical(("no", "yes")), Categorical(("inf", "a", "b"))
MODELS = {
    "two classes": (PrivateLogisticRegression(classes=["no", "yes"]), TWO),
    "classes that occur": (PrivateLinearSVC(width=0.5), TWO),
    "three classes": (PrivateSoftmaxRegression(classes=["inf", "a", "b"], cap=0.7), THREE),
    "without noise": (PrivateLogisticRegression(math.inf, classes=["no", "yes"]), TWO),
    "seeded": (PrivateLogisticRegression(classes=["no", "yes"], random_state=3), TWO),
    "numbers": (PrivateRidge(feature_bound=2.0, fit_intercept=False), Numeric(-1.0, 1.0)),
    "far from zero": (PrivateRidge(target_range=(5.0, 9.0)), Numeric(5, 9)),
    "large residuals": (PrivateHuberRegressor(threshold=0.3, target_bound=2.0), Numeric(-2, 2)),
    "found targets": (PrivateRidge(), Numeric(-8, 8)),
    "declared ranges": (
        PrivateLogisticRegression(0.05, classes=["no", "yes"], feature_range=(0, 1)),
        TWO,
    ),
    "a scaler": (
        PrivateLogisticRegression(
            40.0,
            classes=["no", "yes"],
            prepare=PrivateStandardScaler(3.0, 1e-4, low=[0.0] * 4, high=1.0),
        ),
        TWO,
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::lastiterate.models.PrivacyWarning")
def test_a_filed_model_comes_back(name: str, tmp_path: Path) -> None:
    trained = filed(tmp_path, *MODELS[name])
    again = TableModel.load(tmp_path / "run")
    assert again.schema == trained.schema
    np.testing.assert_array_equal(
        again.predict(tmp_path / "data.csv"), trained.predict(tmp_path / "data.csv")
    )
    first, second = trained.model, again.model
    assert (first.training_, first.loss_) == (second.training_, second.loss_)
    assert (first.delta_, str(first.choice_)) == (second.delta_, str(second.choice_))
    assert repr(first._objective()) == repr(second._objective())
    assert (first.certificate_ is None) == (name in ("without noise", "seeded"))
    if first.certificate_ is not None:
        described = hashlib.sha256((tmp_path / "run" / "run.json").read_bytes()).hexdigest()
        assert first.certificate_.beside(described) == second.certificate_
    if first.certificate_ is not None and not first.certificate_.parts:
        assert verify(tmp_path / "run" / "certificate.json", parameters=second.parameters_)


def test_a_folder_from_before_columns_were_drawn_together_means_what_it_meant(
    tmp_path: Path,
) -> None:
    trained = filed(tmp_path, *MODELS["seeded"])
    assert trained.model.prepare_.together
    described = read_json(tmp_path / "run" / "run.json")
    del described["prepare"]["settings"]["together"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(described))
    again = TableModel.load(tmp_path / "run")
    assert not again.model.prepare_.together  # an audit repeats what was done
    where = tmp_path / "data.csv"
    np.testing.assert_array_equal(again.predict(where), trained.predict(where))


# --- nothing runs ---------------------------------------------------------------------------------


class Bomb:
    """Pickled, it leaves a mark wherever it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    filed(folder, *MODELS["two classes"])
    return folder


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    shutil.copy(honest / "data.csv", tmp_path)
    return Path(shutil.copytree(honest / "run", tmp_path / "run"))


def commands(folder: Path) -> list[list[str]]:
    data, page = str(folder.parent / "data.csv"), str(folder.parent / "page.html")
    return [
        ["audit", str(folder), "--data", data, "--models", "20"],
        ["report", str(folder), "-o", page],
        ["verify", str(folder)],
        ["predict", str(folder), data],
        ["export", str(folder), str(folder.parent / "model.json")],
    ]


def objects(mark: Path) -> bytes:
    """An archive of NumPy whose array is a pickle."""
    file = io.BytesIO()
    np.savez(file, coef_=np.array([Bomb(mark)], dtype=object), intercept_=np.zeros(1))
    return file.getvalue()


@pytest.mark.parametrize("name", ["model.joblib", "parameters.npz", "run.json", "certificate.json"])
@pytest.mark.parametrize("kind", [lambda m: pickle.dumps(Bomb(m)), objects])
def test_a_hostile_folder_runs_nothing(name: str, kind: Any, folder: Path, capsys: Any) -> None:
    """Before: `audit` opened model.joblib, and the command inside ran."""
    mark = folder.parent / "owned"
    (folder / name).write_bytes(kind(mark))
    for command in commands(folder):
        with pytest.raises(SystemExit) as left:
            run(command)
        assert left.value.code in (2, 3), command
        assert "Traceback" not in capsys.readouterr().err
        assert not mark.exists(), command
    with pytest.raises(LastIterateError):
        TableModel.load(folder)
    assert not mark.exists()
    with pytest.raises(ValueError, match=r"Object arrays"):
        np.load(io.BytesIO(objects(mark)), allow_pickle=False)["coef_"]
    pickle.loads(pickle.dumps(Bomb(mark)))  # the bomb is one
    assert mark.exists()


def test_an_older_folder_is_refused_with_the_remedy(folder: Path, capsys: Any) -> None:
    (folder / "model.joblib").write_bytes(b"")
    for command in commands(folder)[:2]:
        with pytest.raises(SystemExit) as left:
            run(command)
        assert left.value.code == 2
        said = capsys.readouterr().err
        assert "model.joblib" in said
        assert "Train again" in said
    with pytest.raises(SystemExit) as left:
        run(["report", str(folder / "certificate.json"), "-o", str(folder.parent / "page.html")])
    assert left.value.code == 0


# --- what does not belong together ----------------------------------------------------------------


def test_another_model_is_refused(folder: Path, capsys: Any) -> None:
    """Before: `report` said VERIFIED beside a model that nobody certified."""
    arrays = read_arrays(folder / "parameters.npz")
    arrays["coef_"][0, 0] = np.nextafter(arrays["coef_"][0, 0], 1.0)
    (folder / "parameters.npz").write_bytes(archived(arrays))
    for command in commands(folder)[:2]:
        with pytest.raises(SystemExit) as left:
            run(command)
        assert left.value.code in (2, 3)
        assert "another" in capsys.readouterr().err
    assert "VERIFIED" not in (folder.parent / "page.html").read_text()


def test_a_model_that_is_not_there_is_not_covered(folder: Path, capsys: Any) -> None:
    (folder / "parameters.npz").unlink()
    with pytest.raises(SystemExit) as left:
        run(commands(folder)[1])
    assert left.value.code == 3
    assert "is not here" in capsys.readouterr().err


def changed(folder: Path, **fields: Any) -> None:
    table = read_json(folder / "run.json")
    (folder / "run.json").write_text(json.dumps(table | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "os.system"},
        {"model": ["PrivateRidge"]},
        {"model": "PrivateSoftmaxRegression"},
        {"version": 1},
        {"version": True},
        {"format": None},
        {"settings": {"epsilon": 1.0, "unknown": 1}},
        {"settings": None},
        {"classes": ["no"]},
        {"classes": ["no", "yes", "perhaps"]},
        {"classes": [["no"], ["yes"]]},
        {"features": 10**400},
        {"features": 5},
        {"features": -1},
        {"schema": {"columns": {"age": {"low": 0, "high": 100}}, "target": {}}},
        {"schema": []},
        {"training": {"records": 10**400}},
        {"training": None},
        {"loss": {"smoothness": "x"}},
        {"delta": "x"},
        {"delta": None},
        {"choice": 3},
        {"choice": [[1, 2, 3]]},
        {"prepare": {"settings": {}, "training": {}}},
        {"prepare": 1},
        {"certified": False},
        {"certified": "yes"},
        {"target": 3},
    ],
    ids=str,
)
def test_a_misfit_is_refused_in_words(fields: dict[str, Any], folder: Path) -> None:
    changed(folder, **fields)
    with pytest.raises(LastIterateError):
        TableModel.load(folder)


def test_another_description_is_refused(folder: Path) -> None:
    training = read_json(folder / "run.json")["training"]
    changed(folder, training=training | {"noise": training["noise"] / 2})
    with pytest.raises(LastIterateError, match="another run"):
        TableModel.load(folder)
    (folder / "certificate.json").unlink()
    with pytest.raises(LastIterateError, match="not there"):
        TableModel.load(folder)


# --- archives and JSON of strangers ---------------------------------------------------------------


def entries(*members: tuple[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def header(shape: str, kind: str = "<f8", body: bytes = b"") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


BAD_ARCHIVES = {
    "a zip bomb": entries(("coef_.npy", bytes(50_000_000)), how=zipfile.ZIP_DEFLATED),
    "10^9 numbers of none": entries(("coef_.npy", header("(1000000000,)"))),
    "more than memory": entries(("coef_.npy", header(f"({10**30},)"))),
    "another kind": entries(("coef_.npy", header("(1,)", "<i8", bytes(8)))),
    "objects": entries(("coef_.npy", header("(1,)", "|O", bytes(8)))),
    "code in the header": entries(("coef_.npy", header("__import__('os').getpid()"))),
    "a long header": entries(("coef_.npy", header("(" + "1," * 20_000 + ")"))),
    "no zip": b"PK" + bytes(100),
    "nothing": b"",
    "half": archived({"coef_": np.zeros(100)})[:400],
    "text": b"hello",
}


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_a_bad_archive_is_refused_before_it_gets_memory(name: str, folder: Path) -> None:
    (folder / "parameters.npz").write_bytes(BAD_ARCHIVES[name])
    with pytest.raises(LastIterateError, match=r"parameters\.npz"):
        read_arrays(folder / "parameters.npz")
    with pytest.raises(LastIterateError):
        TableModel.load(folder)


def test_a_name_twice_or_overlapping_arrays_are_refused(tmp_path: Path) -> None:
    one = header("(1,)", body=bytes(8))
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = entries(("a.npy", one), ("a.npy", one))
    (tmp_path / "a.npz").write_bytes(twice)
    with pytest.raises(LastIterateError, match="twice"):
        read_arrays(tmp_path / "a.npz")
    big = archived({"a": np.zeros(1000)})
    place = big.rindex(b"PK\x01\x02")
    length = len(big) - place - 22
    entry, end = big[place : place + length], bytearray(big[-22:])
    many = b"".join(entry.replace(b"a.npy", b"%c.npy" % (97 + k)) for k in range(20))
    end[8:12] = (20).to_bytes(2, "little") * 2
    end[12:16] = len(many).to_bytes(4, "little")
    (tmp_path / "b.npz").write_bytes(big[:place] + many + bytes(end))
    with pytest.raises(LastIterateError, match="overlap"):
        read_arrays(tmp_path / "b.npz")


def test_a_vast_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        file.truncate(MOST_ARRAY_BYTES + 1)
    with pytest.raises(LastIterateError, match="bytes"):
        read_arrays(tmp_path / "a.npz")
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(LastIterateError, match="bytes"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**6,
        "]" * 10**6,
        '{"a":' * 1000 + "1" + "}" * 1000,
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": Infinity}',
        '{"a": 1, "a": 2}',
        '{"a": ' + "9" * 5000 + "}",
        "\ufeff{}",
        "[]",
        "",
        "\x00",
        "{" + "," * 3_000_000 + "}",
    ],
    ids=lambda text: text[:12],
)
def test_bad_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(LastIterateError, match=r"run\.json"):
        read_json(tmp_path / "run.json")


def test_arrays_of_every_shape_come_back(tmp_path: Path) -> None:
    arrays = {
        "number": np.array(-0.0),
        "none": np.zeros((0, 3)),
        "columns first": np.asfortranarray(RNG.normal(size=(3, 4))),
        "cube": RNG.normal(size=(2, 3, 4))[:, ::-1],
    }
    (tmp_path / "a.npz").write_bytes(archived(arrays))
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].shape == value.shape
    assert math.copysign(1, found["number"]) == -1
    with (tmp_path / "b.npz").open("wb") as file:  # as NumPy itself orders them
        np.savez(file, **arrays)
    np.testing.assert_array_equal(
        read_arrays(tmp_path / "b.npz")["columns first"], arrays["columns first"]
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("read", [read_json, read_arrays])
def test_a_pipe_in_a_folder_keeps_nobody_waiting(read: Any, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b'{"a": 1}')
    gives_up = threading.Timer(10, os.close, (writer,))
    gives_up.start()
    for path in (pipe, link, tmp_path):
        with pytest.raises(DescriptionError, match="no plain file"):
            read(path)
    gives_up.cancel()
    os.close(writer)
