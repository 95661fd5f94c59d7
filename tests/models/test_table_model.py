"""`PrivateTableModel`, and the commands `schema`, `predict` and `export`."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lastiterate import verify
from lastiterate.certificate import Certificate, make_key
from lastiterate.cli.main import run as command
from lastiterate.errors import (
    CertificateError,
    DescriptionError,
    LastIterateError,
    UnsupportedError,
)
from lastiterate.models import (
    PrivacyWarning,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
    PrivateTableModel,
    certificate_of,
)
from lastiterate.verifier.refusals import TamperedCertificateError

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

RNG = np.random.default_rng(0)
N = 300
AGE = RNG.integers(18, 90, N)
PEOPLE = pd.DataFrame(
    {
        "id": np.arange(N),
        "age": np.where(RNG.random(N) < 0.1, np.nan, AGE),
        "job": RNG.choice(["clerk", "nurse", "pilot", None], N),
        "born": pd.to_datetime("2025-01-01") - pd.to_timedelta(AGE * 365, unit="D"),
        "member": RNG.random(N) < 0.5,
        "income": np.where(AGE > 50, "high", "low"),
        "hours": AGE / 2.0,
        "level": np.array(["a", "b", "c"])[AGE % 3],
    }
)
COLUMNS = {
    "id": "drop",
    "age": {"low": 18, "high": 90, "missing": True},
    "job": {"categories": ["clerk", "nurse"], "other": True, "missing": True},
    "born": {"low": "1930-01-01", "high": "2010-01-01"},
    "member": {"boolean": True},
}
TARGETS = {
    "income": {"name": "income", "classes": ["low", "high"]},
    "hours": {"name": "hours", "low": 0, "high": 50},
    "level": {"name": "level", "classes": ["a", "b", "c"]},
}


def schema(target: str = "income") -> dict[str, Any]:
    others = {name: "drop" for name in TARGETS if name != target}
    return {"columns": COLUMNS | others, "target": TARGETS[target]}


def model(target: str = "income", estimator: Any = None, **more: Any) -> PrivateTableModel:
    told = {"epsilon": 4.0, "delta": 1e-4, **more}
    return PrivateTableModel(schema(target), estimator=estimator, **told).fit(PEOPLE)


@pytest.fixture(scope="module")
def fitted() -> PrivateTableModel:
    return model()


@pytest.fixture(scope="module")
def filed(fitted: PrivateTableModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filed") / "run"
    fitted.save(folder)
    return folder


def call(*words: Any) -> int:
    with pytest.raises(SystemExit) as left:
        command([str(word) for word in words])
    return int(left.value.code or 0)


# --- in the manner of scikit-learn ----------------------------------------------------------------


def test_a_frame_becomes_a_certified_model(fitted: PrivateTableModel) -> None:
    assert fitted.certificate_ is not None
    assert fitted.certificate_.epsilon <= 4.0
    assert verify(fitted.certificate_, parameters=fitted.model_.parameters_)
    with pytest.raises(AttributeError, match="more than one run"):
        fitted.guarantee_  # noqa: B018
    alone = model(estimator=PrivateLogisticRegression(prepare=None))
    assert alone.guarantee_ is not None
    assert alone.guarantee_.epsilon(1e-4) <= alone.certificate_.epsilon * (1 + 1e-9)
    assert fitted.score(PEOPLE) > 0.8
    assert fitted.score(PEOPLE.drop(columns="income"), PEOPLE["income"]) == fitted.score(PEOPLE)
    assert fitted.score(PEOPLE, pl.Series(PEOPLE["income"].tolist())) == fitted.score(PEOPLE)
    assert is_classifier(fitted)
    assert not is_classifier(PrivateTableModel(schema("hours")))
    assert fitted.classes_.tolist() == ["high", "low"]
    chances = fitted.predict_proba(PEOPLE)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (fitted.classes_[chances.argmax(axis=1)] == fitted.predict(PEOPLE)).all()


def test_the_same_table_from_elsewhere(fitted: PrivateTableModel, tmp_path: Path) -> None:
    """Other types, other order, columns more: the same predictions."""
    expected = fitted.predict_proba(PEOPLE)
    PEOPLE.to_parquet(tmp_path / "t.parquet")
    PEOPLE.to_csv(tmp_path / "t.csv", index=False)
    PEOPLE.to_csv(tmp_path / "t.csv.gz", index=False)
    shuffled = PEOPLE[[*PEOPLE.columns[::-1]]].assign(more=1)
    sources = [
        *(tmp_path / name for name in ("t.parquet", "t.csv", "t.csv.gz")),
        str(tmp_path / "t.csv"),
        shuffled,
        pl.from_pandas(PEOPLE),
        pl.from_pandas(PEOPLE).lazy(),
        duckdb.connect().from_arrow(pa.Table.from_pandas(PEOPLE)),
        PEOPLE.astype({"member": int, "born": str}),
    ]
    for source in sources:
        np.testing.assert_array_equal(fitted.predict_proba(source), expected)


def test_what_is_fitted_is_the_estimator_on_the_encoded_table() -> None:
    seeded = model(estimator=PrivateLogisticRegression(random_state=3))
    assert (seeded.certificate_, seeded.guarantee_) == (None, None)
    from lastiterate.models.table import read_table

    X, y = seeded.schema_.encode(read_table(PEOPLE))
    by_hand = PrivateLogisticRegression(4.0, 1e-4, classes=["low", "high"], random_state=3)
    by_hand.set_params(feature_range=(0.0, 1.0))
    assert (by_hand.fit(X, y).coef_ == seeded.model_.coef_).all()
    again = clone(seeded).fit(PEOPLE.drop(columns="income"), PEOPLE["income"])
    assert (again.model_.coef_ == seeded.model_.coef_).all()
    labels = model(estimator=PrivateLogisticRegression(random_state=3)).fit(
        PEOPLE, PEOPLE["income"].tolist()
    )
    assert (labels.model_.coef_ == seeded.model_.coef_).all()


def test_people_with_several_records() -> None:
    owners = PEOPLE.assign(id=np.arange(N) // 3)
    told = schema() | {"columns": {k: v for k, v in schema()["columns"].items() if k != "id"}}
    estimator = PrivateLogisticRegression(max_records_per_group=3)
    trained = PrivateTableModel(told, epsilon=4.0, delta=1e-4, estimator=estimator)
    certificate = trained.fit(owners, groups="id").certificate_
    assert certificate is not None
    assert "up to 3 records" in str(certificate.unit)
    with pytest.raises(DescriptionError, match="neither a feature nor the target"):
        trained.fit(owners, groups="age")


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (LogisticRegression(), "LogisticRegression"),
        (PrivateRidge(), "estimator"),
        (PrivateLogisticRegression(classes=["low", "higher"]), "left to the schema"),
        (type("PrivateLogisticRegression", (PrivateLogisticRegression,), {})(), "estimator"),
    ],
)
def test_estimators_that_do_not_fit(estimator: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        model(estimator=estimator)


def test_what_is_not_fitted_says_so() -> None:
    empty = PrivateTableModel(schema())
    for ask in (empty.predict, empty.score, lambda _: empty.certificate_):
        with pytest.raises(NotFittedError):
            ask(PEOPLE)
    assert not hasattr(model(estimator=PrivateLinearSVC(steps=5)), "predict_proba")
    failing = model(estimator=PrivateLogisticRegression(steps=5))
    with pytest.raises(DescriptionError, match="column"):
        failing.fit(PEOPLE.drop(columns="age"))
    with pytest.raises(NotFittedError):  # the older model does not stand beside a failed fit
        failing.predict(PEOPLE)


def test_what_stood_before_it_in_a_pipeline_is_remembered() -> None:
    """The steps may be changed after the fit; what they learnt then is not covered."""
    told = {"columns": {"hours": {"low": -3, "high": 3}}, "target": TARGETS["income"]}
    scaler = StandardScaler().set_output(transform="pandas")
    table = PrivateTableModel(told, epsilon=4.0, delta=1e-4)
    pipeline = make_pipeline(scaler, table)
    with pytest.warns(PrivacyWarning, match="StandardScaler"):
        pipeline.fit(PEOPLE[["hours"]], PEOPLE["income"])
    pipeline.set_params(standardscaler="passthrough")
    for asked in (pipeline, pipeline[-1]):
        with pytest.raises(CertificateError, match="StandardScaler"):
            certificate_of(asked)
    assert certificate_of(model()).epsilon <= 4.0


@pytest.mark.parametrize("y", [PEOPLE["income"][:-1], ["low"] * (N - 1) + ["s3cret"]])
def test_labels_that_do_not_fit(y: Any) -> None:
    with pytest.raises(DescriptionError) as refused:
        PrivateTableModel(schema(), epsilon=1.0, delta=1e-4).fit(PEOPLE, y)
    assert "s3cret" not in str(refused.value)


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_comes_back(fitted: PrivateTableModel, filed: Path, tmp_path: Path) -> None:
    again = PrivateTableModel.load(filed)
    np.testing.assert_array_equal(again.predict_proba(PEOPLE), fitted.predict_proba(PEOPLE))
    assert again.certificate_ == fitted.certificate_ == Certificate.load(filed / "certificate.json")
    assert verify(filed / "certificate.json")
    assert clone(again).schema == again.schema_
    make_key(tmp_path / "k.pem", tmp_path / "k.pub")
    again.save(tmp_path / "signed", key=tmp_path / "k.pem")
    assert verify(tmp_path / "signed" / "certificate.json", trusted_keys=[tmp_path / "k.pub"])
    with pytest.raises(DescriptionError, match="does not exist yet"):
        again.save(tmp_path / "signed")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"low": 18.0', '"low": 17.0'),
        ('"clerk",\n          "nurse"', '"nurse",\n          "clerk"'),
        ('"other": true,', ""),
        ("1930-01-01", "1931-01-01"),
        ('"boolean": true', '"low": 0, "high": 2'),
    ],
)
def test_a_swapped_schema_is_refused(
    old: str, new: str, filed: Path, tmp_path: Path, capsys: Any
) -> None:
    folder = Path(shutil.copytree(filed, tmp_path / "run"))
    text = (folder / "run.json").read_text()
    assert old in text
    (folder / "run.json").write_text(text.replace(old, new))
    with pytest.raises((TamperedCertificateError, DescriptionError)):
        PrivateTableModel.load(folder)
    PEOPLE.to_csv(tmp_path / "t.csv", index=False)
    assert call("predict", folder, tmp_path / "t.csv", "-o", tmp_path / "p.csv") == 2
    assert call("export", folder, tmp_path / "m.json") == 2
    assert "Traceback" not in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "t.csv"]


# --- the command line -----------------------------------------------------------------------------


def test_from_a_file_to_predictions(tmp_path: Path, capsys: Any) -> None:
    table, told = tmp_path / "people.parquet", tmp_path / "schema.toml"
    PEOPLE.to_parquet(table)
    assert call("schema", table, "--target", "income", "-o", told) == 0
    ask = ["train", table, "--target", "income", "--epsilon", "4", "--delta", "1e-4"]
    ask += ["--schema", told, "--out", tmp_path / "run"]
    assert call(*ask) == 2
    assert "left as '?'" in capsys.readouterr().err
    text = told.read_text()
    assert '"low"' not in text.split("[columns]")[1]
    filled = {
        'age = { low = "?", high = "?" }': "age = { low = 18, high = 90, missing = true }",
        'job = { categories = ["?"], other = true }': (
            'job = { categories = ["clerk", "nurse"], other = true, missing = true }'
        ),
        'born = { low = "?", high = "?" }': "born = { low = 1930-01-01, high = 2010-01-01 }",
        'id = { low = "?", high = "?" }': 'id = "drop"',
        'hours = { low = "?", high = "?" }': 'hours = "drop"',
        'level = { categories = ["?"], other = true }': 'level = "drop"',
        'classes = ["?"]': 'classes = ["low", "high"]',
    }
    for blank, entry in filled.items():
        assert blank in text, text
        text = text.replace(blank, entry)
    told.write_text(text)
    assert call(*ask) == 0
    trained = PrivateTableModel.load(tmp_path / "run")
    assert trained.score(PEOPLE) > 0.8
    capsys.readouterr()
    assert call("predict", tmp_path / "run", table, "-o", tmp_path / "p.parquet") == 0
    found = pd.read_parquet(tmp_path / "p.parquet")
    assert list(found) == ["prediction", "probability of high", "probability of low"]
    np.testing.assert_array_equal(found.iloc[:, 1:], trained.predict_proba(PEOPLE))
    assert found["prediction"].tolist() == trained.predict(PEOPLE).tolist()
    capsys.readouterr()
    assert call("predict", tmp_path / "run", table) == 0
    printed = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["prediction"] for row in printed] == found["prediction"].tolist()
    assert [float(row["probability of low"]) for row in printed] == (
        found["probability of low"].tolist()
    )
    assert call("predict", tmp_path / "run", table, "-o", tmp_path / "p.parquet") == 2
    assert "exists already" in capsys.readouterr().err
    assert call("predict", tmp_path / "run", table, "-o", tmp_path / "p.xlsx", "--json") == 2
    assert call("predict", tmp_path / "run", tmp_path / "none.csv", "-o", tmp_path / "q.csv") == 2
    assert not (tmp_path / "q.csv").exists()


def test_a_class_that_spreadsheets_would_run(tmp_path: Path, capsys: Any) -> None:
    table = pd.DataFrame({"x": [0.0, 1.0] * 20, "y": ["-1", '=cmd|"/c calc"!A1'] * 20})
    told = {"columns": {"x": {"low": 0, "high": 1}}, "target": {"name": "y"}}
    told["target"]["classes"] = sorted(set(table["y"]))  # type: ignore[assignment]
    estimator = PrivateLogisticRegression(steps=3)
    PrivateTableModel(told, epsilon=1.0, delta=1e-3, estimator=estimator).fit(table).save(
        tmp_path / "run"
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    assert call("predict", tmp_path / "run", tmp_path / "t.csv", "-o", tmp_path / "p.csv") == 2
    assert "formula" in capsys.readouterr().err
    assert call("predict", tmp_path / "run", tmp_path / "t.csv", "-o", tmp_path / "p.parquet") == 0


def labelled(folder: Path, *classes: str) -> tuple[Path, Path]:
    """A run whose classes are these, and a table for it."""
    table = pd.DataFrame({"x": [0.0, 1.0] * 20, "y": [*classes] * 20})
    told = {"columns": {"x": {"low": 0, "high": 1}}, "target": {"name": "y"}}
    told["target"]["classes"] = sorted(classes)  # type: ignore[assignment]
    estimator = PrivateLogisticRegression(steps=3)
    model = PrivateTableModel(told, epsilon=1.0, delta=1e-3, estimator=estimator).fit(table)
    model.save(folder / "run")
    table.to_csv(folder / "t.csv", index=False)
    return folder / "run", folder / "t.csv"


@pytest.mark.parametrize("label", ["a\r=1+1", "\t=1+1", "a\nb", "\x00", "a\x1b[2J", "\u2028=1"])
def test_a_class_with_a_control_character_is_refused(label: str, tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="control characters"):
        labelled(tmp_path, "low", label)


def test_a_class_with_a_control_character_in_a_folder_is_refused(tmp_path: Path) -> None:
    run, table = labelled(tmp_path, "high", "low")
    path = run / "run.json"
    path.write_text(path.read_text().replace('"low"', r'"low\r=1+1"'))
    (run / "certificate.json").unlink()
    path.write_text(path.read_text().replace('"certified": true', '"certified": false'))
    for name in ("p.csv", "p.parquet"):
        assert call("predict", run, table, "-o", tmp_path / name) == 2
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("label", ["\uff1d1+1", "a;=1+1", 'a",=1', "a|@SUM(1)", "-1+2"])
def test_a_class_that_is_a_formula_for_some_spreadsheets(label: str, tmp_path: Path) -> None:
    run, table = labelled(tmp_path, "low", label)
    assert call("predict", run, table, "-o", tmp_path / "p.csv") == 2
    assert call("predict", run, table, "-o", tmp_path / "p.parquet") == 0


def test_every_text_of_a_csv_is_quoted(tmp_path: Path) -> None:
    run, table = labelled(tmp_path, "-1", "age 30-40; x")
    assert call("predict", run, table, "-o", tmp_path / "p.csv") == 0
    header, *rows = (tmp_path / "p.csv").read_text().splitlines()
    assert header == '"prediction","probability of -1","probability of age 30-40; x"'
    for row in rows:
        assert re.fullmatch(r'"(-1|age 30-40; x)",[0-9.e-]+,[0-9.e-]+', row), row


def test_json_of_the_commands(filed: Path, tmp_path: Path, capsys: Any) -> None:
    PEOPLE.to_csv(tmp_path / "t.csv", index=False)
    assert call("schema", tmp_path / "t.csv", "--json") == 0
    assert "age = " in json.loads(capsys.readouterr().out)["schema"]
    assert call("predict", filed, tmp_path / "t.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == N
    assert call("export", filed, tmp_path / "m.json", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    certificate = json.loads((filed / "certificate.json").read_text())
    assert answer["certificate"] == certificate["sha256"]
    assert answer["epsilon"] == certificate["epsilon"]
    assert call("export", filed, tmp_path / "M.JSON") == 0
    assert call("export", filed, tmp_path / "m.pkl") == 2
    assert call("export", filed, tmp_path / "m.json") == 2


# --- export ---------------------------------------------------------------------------------------

MODELS: dict[str, tuple[str, Any]] = {
    "logistic": ("income", None),
    "bounded": ("income", PrivateLogisticRegression(feature_bound=1.5, cap=0.3)),
    "no intercept": ("income", PrivateLogisticRegression(fit_intercept=False)),
    "prepared": (
        "income",
        PrivateLogisticRegression(prepare=PrivateStandardScaler(1.0, 1e-5, low=0.0, high=1.0)),
    ),
    "whitened": ("income", PrivateLogisticRegression(prepare="whiten", curved=False)),
    "whitened, curved": ("level", PrivateSoftmaxRegression(prepare="whiten", curved=True)),
    "straight": ("income", PrivateLogisticRegression(curved=False)),
    "several": ("level", PrivateLogisticRegression()),
    "calibrated": ("level", PrivateLogisticRegression(calibrate=True)),
    "calibrated, two": ("income", PrivateSoftmaxRegression(calibrate=True, prepare=None)),
    "softmax": ("level", PrivateSoftmaxRegression(cap=0.5)),
    "ball": ("level", PrivateSoftmaxRegression(calibrate=True)),
    "two scores": ("income", PrivateSoftmaxRegression()),
    "svc": ("level", PrivateLinearSVC()),
    "ridge": ("hours", None),
    "huber": ("hours", PrivateHuberRegressor(feature_bound=1.0)),
}


def documented_reader() -> dict[str, Any]:
    """What the page says a reader of the JSON does, without this library."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "tables.md"
    (block,) = (part for part in page.read_text().split("```python\n") if "def maximiser" in part)
    names: dict[str, Any] = {}
    exec(block.split("from lastiterate")[0], names)
    return names


def by_hand(told: dict[str, Any], table: Any) -> dict[str, Any]:
    """The weights' own words, followed with NumPy alone."""
    features: list[Any] = []
    for column in told["columns"]:
        cells = table[column["name"]]
        holes = cells.isna().to_numpy()
        if column["kind"] == "text":
            known = column["categories"]
            features += [(cells == category).to_numpy() for category in known]
            if column["other"]:
                features.append(~holes & ~cells.isin(known).to_numpy())
        else:
            if column["kind"] == "date":
                cells = (cells - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
            clipped = np.clip(cells.to_numpy(float), column["low"], column["high"])
            scaled = (clipped - column["low"]) / (column["high"] - column["low"])
            features.append(np.where(holes, 0.0, scaled))
        if column["missing"]:
            features.append(holes)
    X = np.column_stack(features).astype(float)
    if told["prepare"] is not None:
        low, high, mean, scale = (np.array(told["prepare"][k]) for k in told["prepare"])
        X = (np.clip(X, low, high) - mean) / scale
    if told["matrix"] is not None:
        X = X @ np.array(told["matrix"])
    if told["bends"] is not None:
        parts = [X]
        for wave in told["bends"]["waves"]:
            phase = np.array(wave["pitch"]) * X
            parts.append(np.array(wave["cosine"]) * (np.cos(phase) - wave["middle"]))
            parts.append(np.array(wave["sine"]) * np.sin(phase))
        X = np.hstack(parts) * told["bends"]["factor"]
    ones = np.ones((len(X), 1))
    weights = np.array(told["coef"])
    if told["fit_intercept"]:
        weights = np.column_stack([weights, told["intercept"]])
    if told["longest"] is not None:
        X = X * np.minimum(1.0, told["longest"] / np.linalg.norm(X, axis=1, keepdims=True))
    X = np.hstack([X, ones]) if told["fit_intercept"] else X
    if told["longest"] is None:
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    scores = X @ weights.T
    if told["classes"] is None:
        return {"prediction": scores[:, 0] + told["offset"]}
    place = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    found = {"prediction": np.array(told["classes"])[place]}
    if told["probabilities"] is not None:
        cap = told["probabilities"].get("cap")
        if told["probabilities"]["link"] == "ball-softmax":
            radius, reader = told["probabilities"]["radius"], documented_reader()
            chance = np.array([reader["probabilities"](row, radius) for row in scores[:5]])
        elif told["probabilities"]["link"] == "capped-logistic":
            up, down = (np.minimum(1 / (1 + np.exp(-s * scores)), cap) for s in (1, -1))
            chance = up / (up + down)
            chance = np.hstack([1 - chance, chance]) if scores.shape[1] == 1 else chance
        else:
            p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            chance = p * np.maximum(1, (1 - p) / cap)
        chance = (chance / chance.sum(axis=1, keepdims=True)) ** told["probabilities"]["sharpness"]
        found["probabilities"] = chance / chance.sum(axis=1, keepdims=True)
    return found


def cells_for_onnx(told: dict[str, Any], table: Any) -> dict[str, Any]:
    feed = {}
    for column in told["columns"]:
        cells = table[column["name"]]
        if column["kind"] == "text":
            feed[column["name"]] = cells.fillna("").to_numpy(object)[:, None]
        elif column["kind"] == "date":
            seconds = (cells - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
            feed[column["name"]] = seconds.to_numpy(float)[:, None]
        else:
            feed[column["name"]] = cells.to_numpy(float)[:, None]
    return feed


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::lastiterate.models.PrivacyWarning")
def test_exports_predict_the_same(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    target, estimator = MODELS[name]
    if estimator is not None:
        estimator = clone(estimator).set_params(steps=20)
    trained = model(target, estimator, epsilon=200.0 if "whitened" in name else 4.0)
    trained.export(tmp_path / "m.json")
    trained.export(tmp_path / "m.onnx")
    told = json.loads((tmp_path / "m.json").read_text())
    assert told["matrix"] is not None or "whitened" not in name
    bent = name in ("logistic", "no intercept", "several", "whitened, curved", "svc", "ridge")
    assert told["bends"] is not None or not bent
    assert told["bends"] is None or name not in ("whitened", "straight")
    session = onnxruntime.InferenceSession(
        (tmp_path / "m.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_outputs()]
    graph = dict(zip(names, session.run(None, cells_for_onnx(told, PEOPLE)), strict=True))
    plain = by_hand(told, PEOPLE)
    predicted = trained.predict(PEOPLE)
    if target == "hours":
        np.testing.assert_allclose(plain["prediction"], predicted, rtol=1e-12)
        np.testing.assert_allclose(graph["prediction"][:, 0], predicted, rtol=1e-12)
    else:
        assert plain["prediction"].tolist() == predicted.tolist()
        assert graph["label"][:, 0].tolist() == predicted.tolist()
        linked = name != "svc"
        assert ("probabilities" in graph) is ("probabilities" in plain) is linked
        if linked:
            chances = trained.predict_proba(PEOPLE)
            few = len(plain["probabilities"])
            np.testing.assert_allclose(plain["probabilities"], chances[:few], rtol=1e-9)
            np.testing.assert_allclose(graph["probabilities"], chances, rtol=1e-11)
    certificate = trained.certificate_
    assert certificate is not None
    assert told["privacy"]["epsilon"] == certificate.epsilon
    assert told["privacy"]["delta"] == certificate.delta
    assert told["privacy"]["certificate_sha256"] == certificate.sha256
    written = session.get_modelmeta().custom_metadata_map
    assert float(written["privacy.epsilon"]) == certificate.epsilon
    assert float(written["privacy.delta"]) == certificate.delta
    assert written["privacy.certificate_sha256"] == certificate.sha256


def test_a_graph_answers_nan_where_the_library_refuses(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    table = pd.DataFrame({"label": [0.0, 1.0] * 20, "c": ["a", "b"] * 20, "y": ["n", "p"] * 20})
    told = {
        "columns": {"label": {"low": 0, "high": 1}, "c": {"categories": ["a", "b"]}},
        "target": {"name": "y", "classes": ["n", "p"]},
    }
    estimator = PrivateLogisticRegression(steps=3)
    trained = PrivateTableModel(told, epsilon=1.0, delta=1e-3, estimator=estimator).fit(table)
    trained.export(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(
        (tmp_path / "m.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_outputs()]
    assert names[0] == "label_"  # a column has the other name
    feed = {
        "label": np.array([[0.5], [np.nan], [0.5], [0.5]]),
        "c": np.array([["a"], ["a"], ["x"], [""]], object),
    }
    scores = session.run(["scores"], feed)[0]
    assert np.isnan(scores[:, 0]).tolist() == [False, True, True, True]


def test_an_export_that_would_predict_something_else_is_refused(tmp_path: Path) -> None:
    """A later release, or a subclass, may do more with rows than the words of an export say."""

    class Doubled(PrivateLogisticRegression):
        def _scores(self, X: Any) -> Any:
            return 2 * super()._scores(X)

    trained = model(estimator=PrivateLogisticRegression(random_state=0, steps=20))
    trained.export(tmp_path / "m.json")
    trained.model_.__class__ = Doubled
    for kind in ("json", "onnx"):
        with pytest.raises(UnsupportedError, match="more than an export can say"):
            trained.export(tmp_path / f"other.{kind}")
    assert [path.name for path in tmp_path.iterdir()] == ["m.json"]


def test_experiments_say_so_when_exported(tmp_path: Path) -> None:
    trained = model(estimator=PrivateLogisticRegression(random_state=0, steps=3))
    trained.export(tmp_path / "m.json")
    privacy = json.loads((tmp_path / "m.json").read_text())["privacy"]
    assert privacy == {"certified": False, "epsilon": None, "delta": None}
    with pytest.raises(LastIterateError, match=r"\.json"):
        trained.export(tmp_path / "m.joblib")
    composed = model(estimator=clone(MODELS["prepared"][1]).set_params(steps=5))
    with pytest.raises(AttributeError, match="certificate_"):
        _ = composed.guarantee_
