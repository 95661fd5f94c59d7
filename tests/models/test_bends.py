"""Answers that bend: waves of released numbers, in rows no longer than before, in every file."""

from __future__ import annotations

import copy
import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from lastiterate._internal.safe_io import archived, read_arrays
from lastiterate.audit.targets import named
from lastiterate.certificate import verify
from lastiterate.cli.main import run as command
from lastiterate.errors import DescriptionError, LastIterateError, UnsupportedError
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
    PrivateTableModel,
    tune,
)
from lastiterate.models.bends import Bends
from lastiterate.models.preparation import Promise, waves
from lastiterate.models.saved import TableModel
from lastiterate.models.whitening import Whitening
from lastiterate.verifier.refusals import TamperedCertificateError

KINDS = [PrivateLogisticRegression, PrivateRidge]


def bumps(n: int, seed: int = 0, columns: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """The label is in how far from its middle a column is: no linear score says it."""
    X = np.random.default_rng(seed).normal(5.0, 2.0, (n, columns))
    return X, (abs(X[:, 0] - 5) > 1.4).astype(int)


def scaled(X: np.ndarray, **how: Any) -> PrivateStandardScaler:
    return PrivateStandardScaler(9.0, 1e-5, low=-4.0, high=14.0, random_state=0, **how).fit(X)


# --- the waves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("white", [False, True])
@pytest.mark.parametrize(("row_norm", "count"), [(None, 1), (2.0, 1), (None, 3), (2.0, 2)])
def test_a_row_is_what_the_page_says(white: bool, row_norm: float | None, count: int) -> None:
    X = bumps(400)[0]
    scaler = scaled(X, power=0.75, row_norm=row_norm)
    inner: Any = Whitening(scaler).learn(X, 9.0, 1e-5, 0) if white else scaler
    (rows,) = Bends(inner, count).transform(X[:1])
    (z,) = inner.transform(X[:1])
    each = [float(d / s) for d, s in zip(scaler.deviation_, scaler.scale_, strict=True)]
    units = [math.sqrt(sum(u * u for u in each) / 3)] * 3 if white else each
    expected = [*z]
    for w in (1.2, 2.4, 3.6)[:count]:
        mean, wide = math.exp(-(w**2) / 2), (1 - math.exp(-(w**2))) / math.sqrt(2)
        both = list(zip(z, units, strict=True))
        expected += [0.5 * u * (math.cos(w * v / u) - mean) / wide for v, u in both]
        wide = math.sqrt((1 - math.exp(-2 * w**2)) / 2)
        expected += [0.5 * u * math.sin(w * v / u) / wide for v, u in both]
    factor = 1.0 if row_norm is None else 1 / math.sqrt(1 + count / 2)
    np.testing.assert_allclose(rows, factor * np.array(expected), rtol=1e-11, atol=1e-13)


def test_waves_of_normal_columns_are_centred_and_half_as_wide() -> None:
    """By quadrature: for x of mean 0 and deviation 1."""
    places, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    scaler = scaled(bumps(400)[0][:, :1])
    X = scaler.mean_ + scaler.deviation_ * places[abs(places) < 2.5, None]
    bent = Bends(scaler, 2)
    parts = []
    for turn, wave in zip((1.2, 2.4), bent.waves, strict=True):
        parts.append(wave["cosine"] * (np.cos(turn * places) - wave["middle"]))
        parts.append(wave["sine"] * np.sin(turn * places))
    rows = np.column_stack(parts)
    np.testing.assert_allclose(bent.transform(X)[:, 1:], rows[abs(places) < 2.5])
    np.testing.assert_allclose(weights @ rows, 0, atol=1e-12)
    np.testing.assert_allclose(np.sqrt(weights @ rows**2), 0.5, rtol=1e-12)


def test_a_row_depends_on_its_record_alone_to_the_last_bit() -> None:
    """Wherever it stands, however many there are, however they lie in memory."""
    X = np.random.default_rng(0).standard_cauchy((1003, 3)) * 3
    bent = Bends(scaled(X), 2)
    whole = bent.transform(X)
    for first, last in [(0, 1), (1, 2), (3, 10), (5, 22), (7, 40), (0, 1002), (990, 1003)]:
        np.testing.assert_array_equal(bent.transform(X[first:last]), whole[first:last])
    np.testing.assert_array_equal(bent.transform(np.asfortranarray(X)), whole)
    np.testing.assert_array_equal(bent.transform(X[::-3]), whole[::-3])
    order = np.random.default_rng(1).permutation(1003)
    np.testing.assert_array_equal(bent.transform(X[order]), whole[order])


@pytest.mark.filterwarnings("ignore:So few records")
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_longer_than_its_noise_is_made_for(kind: Any) -> None:
    rng = np.random.default_rng(0)
    tables = [
        np.full((40, 3), 7.0),
        rng.choice([1e308, -1e308, 5e-324, 0.0], (90, 3)),
        rng.normal(size=(90, 1)).astype(np.float32),
        np.resize([True, False, False], (40, 2)),
        pd.DataFrame({"a": np.arange(60, dtype=np.int8), "b": rng.normal(size=60)}),
        rng.normal(size=(3, 5)),
    ]
    far = rng.choice([1.7e308, -1.7e308, 0.0, 1.0, 2.0**41, 1e-300], (50, 5))
    for X, epsilon in zip(tables, (5.0, 500.0) * 3, strict=True):
        model = kind(epsilon, 1e-4, random_state=0, steps=2, curved=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            model.fit(X, np.arange(len(X)) % 2)
            columns = model.n_features_in_
            rows = model._rows.of(model._prepared(far[:, :columns]))
        wide = model.coef_.shape[-1]
        assert wide == (1 + 2 * model.prepare_.count) * columns > columns
        assert rows.shape == (50, wide + 1)
        assert np.isfinite(rows).all()
        exact = [math.fsum(v * v for v in row) for row in rows.tolist()]
        assert max(exact) <= model._rows.norm**2 * (1 + 1e-15)
        assert np.isfinite(model.predict(X).astype(float)).all()


# --- the rule -------------------------------------------------------------------------------------


@given(
    st.integers(2, 10**6),
    st.integers(1, 400),
    st.floats(0.01, 20),
    st.sampled_from(["zero-out", "replace"]),
)
@settings(max_examples=10, deadline=None)
def test_more_records_never_take_bends_away(
    n: int, columns: int, epsilon: float, adjacency: str
) -> None:
    promise = Promise(epsilon, 1e-7, adjacency, None)
    (count, why), (double, _) = (waves(k, columns, promise) for k in (n, 2 * n))
    assert bool(count) is not why.startswith("off")
    assert double >= count or 2 * n * columns * (1 + 2 * count) > 10**8
    assert n * columns * (1 + 2 * count) <= 10**8 or not count
    assert waves(n, columns, Promise(epsilon, 1e-7, "zero-out", None))[0] >= count
    if columns > 300:
        assert not count
    asked = waves(n, columns, Promise(epsilon, 1e-7, adjacency, None, curved=True))[0]
    assert asked == max(1, count)


def test_what_is_asked_for_is_done_and_the_choice_says_so() -> None:
    X, y = bumps(2000)
    model = PrivateLogisticRegression(1.0, 1e-5, classes=[0, 1], random_state=0, steps=5)
    assert model.get_params()["curved"] == "auto"
    assert "bends: answers may bend along every column" in str(model.fit(X, y).choice_)
    assert model.coef_.shape == (1, 15)
    assert model.fit(X[:400], y[:400]).coef_.shape == (1, 9)
    assert "bends: off: of so few records" in str(model.fit(X[:200], y[:200]).choice_)
    assert model.coef_.shape == (1, 3)
    few = clone(model.set_params(curved=True)).fit(X[:200], y[:200])
    assert "as asked for" in str(few.choice_)
    assert few.coef_.shape == (1, 9)
    never = model.set_params(curved=False).fit(X, y)
    assert "bends: off: curved=False" in str(never.choice_)
    assert isinstance(never.prepare_, PrivateStandardScaler)
    wide = Promise(1.0, 1e-5, "zero-out", None)
    assert "large" in waves(10**9, 3, wide)[1]
    assert "large" in waves(10**6, 301, wide)[1]
    assert [waves(10**7, columns, wide)[0] for columns in (2, 3, 4)] == [2, 1, 0]


@pytest.mark.parametrize("wrong", [None, "yes", 1, 0, math.nan, np.array([1, 2]), ["auto"]])
def test_another_word_is_refused_before_anything_is_paid(wrong: Any) -> None:
    X, y = bumps(60)
    model = PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1], steps=3, curved=wrong)
    with pytest.raises(DescriptionError, match="curved"):
        model.fit(X, y)
    assert not hasattr(model, "prepare_")


@pytest.mark.filterwarnings("ignore::lastiterate.models.PrivacyWarning")
def test_bends_are_refused_where_no_deviation_is_known(tmp_path: Path) -> None:
    X, y = bumps(200)
    model = PrivateLogisticRegression(2.0, 1e-4, classes=[0, 1], steps=3, curved=True)
    scaler = PrivateStandardScaler(1.0, 1e-5, low=0.0, high=9.0)
    ranges = {"feature_range": (0.0, 9.0)}
    for how in (
        {"prepare": None},
        {"prepare": scaler},
        {"feature_bound": 1.0},
        {"epsilon": 0.01, **ranges},  # means would be wider than the ranges
    ):
        with pytest.raises(UnsupportedError, match=r"curved=True.*prepare='auto'"):
            clone(model).set_params(**how).fit(X, y)
    pd.DataFrame({"a": X[:, 0], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    people = clone(model).set_params(max_records_per_group=1)
    for call in (
        lambda: clone(model).fit(sp.csr_array(X), y),
        lambda: clone(people).fit(X, y, groups=np.arange(200)),
        lambda: clone(model).fit_stream([(X, y)], batches=1, batch_size=200),
        lambda: clone(model).fit_files(tmp_path / "t.csv", "y"),
        lambda: tune(clone(model), {"regularization": [0.1, 1.0]}, X, y),
    ):
        with pytest.raises(UnsupportedError, match="curved=True"):
            call()


# --- the model ------------------------------------------------------------------------------------


OTHERS = [PrivateSoftmaxRegression, PrivateLinearSVC, PrivateHuberRegressor]


@pytest.mark.parametrize(
    "kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)]
)
def test_answers_bend(kind: Any) -> None:
    (X, y), (X_new, y_new) = bumps(2000), bumps(1000, seed=1)
    scores = [
        kind(2.0, 1e-5, random_state=0, steps=40, curved=curved).fit(X, y).score(X_new, y_new)
        for curved in (False, "auto")
    ]
    assert scores[1] > scores[0] + 0.15


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_they_cost_nothing_and_the_certificate_holds_what_they_use(adjacency: str) -> None:
    X, y = bumps(3000)
    how = {"classes": [0, 1], "steps": 20, "adjacency": adjacency, "prepare": "whiten"}
    model = PrivateLogisticRegression(1.0, 1e-4, curved=True, **how).fit(X, y)
    flat = PrivateLogisticRegression(1.0, 1e-4, curved=False, **how).fit(X, y)
    assert model._preparation.mu == flat._preparation.mu
    certificate = model.certificate_
    assert len(certificate.parts) == 4
    assert 0.98 < certificate.epsilon <= 1.0
    assert verify(certificate, parameters=model.parameters_).epsilon <= 1.0 + 1e-9
    scaler = model.prepare_.scaler
    used = {name: getattr(scaler, name) for name in ("mean_", "scale_", "deviation_")}
    verify(certificate.parts[1], parameters=used)
    other = {**used, "deviation_": np.nextafter(scaler.deviation_, 9.0)}
    with pytest.raises(TamperedCertificateError):
        verify(certificate.parts[1], parameters=other)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(copy.deepcopy(model).predict(X), model.predict(X))
    with pytest.raises(UnsupportedError, match="learnt from all records"):
        again.unlearn([0], X, y, epsilon=1.0)
    for wrong in (X[:, :2], np.hstack([X, X, X])):
        with pytest.raises(ValueError, match="features"):
            model.predict(wrong)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 3), np.nan))


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, PrivateTableModel]:
    """A table, the folder of a model of it, and the model."""
    folder = tmp_path_factory.mktemp("curved")
    X, y = bumps(400)
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(label=np.array(["no", "yes"])[y])
    table.to_csv(folder / "data.csv", index=False)
    columns = {name: {"low": -4, "high": 14} for name in "abc"}
    schema = {"columns": columns, "target": {"categories": ["no", "yes"]}}
    model = PrivateTableModel(schema, "label", epsilon=20.0, delta=1e-4)
    estimator = PrivateLogisticRegression(steps=20, prepare="whiten")
    model.set_params(estimator=estimator).fit(folder / "data.csv")
    assert isinstance(model.model_.prepare_, Bends)
    model.save(folder / "run")
    return folder / "data.csv", folder / "run", model


def test_a_folder_carries_bends(filed: Any, tmp_path: Path) -> None:
    table, run, model = filed
    again = PrivateTableModel.load(run)
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    assert verify(run / "certificate.json").epsilon <= 20.0
    assert again.estimator.curved == "auto"
    again.save(tmp_path / "copy")
    assert isinstance(PrivateTableModel.load(tmp_path / "copy").model_.prepare_, Bends)
    target = {"name": "a", "low": -4, "high": 14}
    columns = {name: model.schema["columns"][name] for name in "bc"}
    schema = {"columns": columns, "target": target, "drop": ["label"]}
    numbers = PrivateTableModel(schema, epsilon=9.0, delta=1e-4)
    numbers.set_params(estimator=PrivateRidge(curved=True, steps=5)).fit(table)
    numbers.save(tmp_path / "numbers")
    again = PrivateTableModel.load(tmp_path / "numbers")
    np.testing.assert_array_equal(again.predict(table), numbers.predict(table))
    assert again.model_.coef_.shape == (10,)


def test_three_classes_answer_the_same_from_a_folder_to_the_last_bit(tmp_path: Path) -> None:
    """However the coefficients lie in memory."""
    columns = {name: {"low": -4, "high": 14} for name in "abc"}
    schema = {"columns": columns, "target": {"name": "label", "categories": list("xyz")}}
    table = pd.DataFrame(bumps(900)[0], columns=list("abc")).assign(label=[*"xyz"] * 300)
    model = PrivateTableModel(schema, epsilon=9.0, delta=1e-4)
    model.set_params(estimator=PrivateSoftmaxRegression(steps=2, random_state=0)).fit(table)
    model.save(tmp_path / "run")
    again = PrivateTableModel.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))


def written(folder: Path, run: Path, numbers: Any, words: Any, certified: bool = True) -> Path:
    folder.mkdir()
    if certified:
        (folder / "certificate.json").write_bytes((run / "certificate.json").read_bytes())
    (folder / "parameters.npz").write_bytes(archived(numbers))
    (folder / "run.json").write_text(json.dumps({**words, "certified": certified}))
    return folder


OTHER_COUNTS = [0, 1, 3, -1, 2.5, 10**400, True, "2", None, [2]]


def test_other_bends_are_refused(filed: Any, tmp_path: Path) -> None:
    """With its certificate, and as an experiment, where shapes alone can tell."""
    _, run, _ = filed
    arrays = read_arrays(run / "parameters.npz")
    words = json.loads((run / "run.json").read_text())
    before, deviation = words["prepare"], arrays["prepare.deviation_"]
    flat = {k: v for k, v in before.items() if k != "waves"}
    bare = {k: v for k, v in arrays.items() if k != "prepare.deviation_"}
    cases = [
        (bare, words),
        (arrays, {**words, "prepare": flat}),
        (bare, {**words, "prepare": flat}),
        *((arrays, {**words, "prepare": {**before, "waves": wrong}}) for wrong in OTHER_COUNTS),
        ({**arrays, "prepare.deviation_": deviation[:2]}, words),
        ({**arrays, "prepare.deviation_": 0 * deviation}, words),
        ({**arrays, "prepare.deviation_": -deviation}, words),
        ({**arrays, "prepare.deviation_": np.nan * deviation}, words),
        ({**arrays, "prepare.deviation_": deviation + 1e308}, words),
        ({**arrays, "prepare.deviation_": 0 * deviation + 5e-324}, words),
        ({**arrays, "prepare.training_": deviation}, words),
        ({**arrays, "coef_": arrays["coef_"][:, :3]}, words),
        (
            {**arrays, "coef_": arrays["coef_"][:, :3]},
            {**words, "prepare": {**before, "waves": 0}},
        ),
        ({**bare, "coef_": np.hstack([arrays["coef_"]] * 3)}, words),
    ]
    TableModel.load(written(tmp_path / "as it was", run, arrays, words, certified=False))
    for place, (numbers, told) in enumerate(cases):
        for certified in (True, False):
            folder = written(tmp_path / f"{place} {certified}", run, numbers, told, certified)
            with pytest.raises(LastIterateError):
                TableModel.load(folder)
    changed = {**arrays, "prepare.deviation_": np.nextafter(deviation, 9.0)}
    with pytest.raises(TamperedCertificateError):
        TableModel.load(written(tmp_path / "next", run, changed, words))


def test_a_folder_from_before_there_were_bends_opens_as_it_was(filed: Any, tmp_path: Path) -> None:
    table, _, model = filed
    flat = clone(model).set_params(estimator__curved=False).fit(table)
    flat.model_.random_state = 0
    flat.model_.certificate_ = None
    flat.save(tmp_path / "run")
    words = json.loads((tmp_path / "run" / "run.json").read_text())
    del words["settings"]["curved"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(words))
    again = PrivateTableModel.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(table), flat.predict_proba(table))
    assert again.estimator.curved is False  # trained again it is the same


def test_an_audit_bends_anew(filed: Any) -> None:
    table, run, _ = filed
    target = named(str(run), table, 5, "mislabelled")
    first, second = (target.train(world, 0).scaler for world in (target.inside, target.outside))
    assert isinstance(first, Bends)
    assert (first.waves[1]["pitch"] != second.waves[1]["pitch"]).any()
    assert (first.inner.matrix_ != second.inner.matrix_).any()
    assert target.train(target.inside, 2).parameters.shape == (16,)
    assert np.isfinite(target.score(target.train(target.inside, 2)))


def call(*words: Any) -> int:
    with pytest.raises(SystemExit) as left:
        command([str(word) for word in words])
    return int(left.value.code or 0)


def test_the_command_asks_for_them(filed: Any, tmp_path: Path, capsys: Any) -> None:
    table, _, _ = filed
    numeric = [part for name in "abc" for part in ("--numeric", f"{name}=-4:14")]
    given = ["train", table, "--target", "label", "--epsilon", "9", "--delta", "1e-4"]
    given += ["--classes", "no,yes", "--steps", "5", "--seed", "0", *numeric]
    for word, width in (("yes", 15), ("no", 3)):
        assert call(*given, "--curved", word, "--out", tmp_path / word) == 0
        assert TableModel.load(tmp_path / word).model.coef_.shape == (1, width)
        assert "bends: " in (tmp_path / word / "report.md").read_text()
    assert call(*given, "--curved", "perhaps", "--out", tmp_path / "other") == 2
    none = ["--prepare", "none", "--curved", "yes", "--out", tmp_path / "none"]
    assert call(*given, *none) == 2
    assert "curved=True" in capsys.readouterr().err
