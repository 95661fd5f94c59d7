"""Private whitening: what it costs is what its law says, and everything carries the matrix."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from lastiterate import account
from lastiterate._internal.safe_io import archived, read_arrays
from lastiterate.audit.targets import named
from lastiterate.certificate import Certificate, verify
from lastiterate.curves import gaussian
from lastiterate.description import Loss
from lastiterate.errors import LastIterateError, UnsupportedError
from lastiterate.models import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateStandardScaler,
    PrivateTableModel,
)
from lastiterate.models.preparation import Promise, prepared, whitening_share
from lastiterate.models.saved import TableModel
from lastiterate.models.whitening import Whitening, blur, whitening
from lastiterate.verifier.refusals import TamperedCertificateError

UNKNOWN = Loss.unknown(provenance="proved")


def together(n: int, seed: int = 0, columns: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Columns that nearly agree; the label is in how they differ."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, columns))
    X = z[:, :1] + 0.02 * z
    return X, (z[:, 1] - z[:, 2] > 0).astype(int)


def learnt(X: np.ndarray, adjacency: str = "zero-out", epsilon: float = 1.0) -> Whitening:
    scaler = PrivateStandardScaler(
        9.0, 1e-4, low=-4.0, high=4.0, adjacency=adjacency, random_state=0
    )
    return Whitening(scaler.fit(X)).learn(X, epsilon, 1e-4, 0)


# --- the mechanism --------------------------------------------------------------------------------


def adversarial(rng: np.random.Generator, columns: int) -> np.ndarray:
    """Rows whose products are as far apart as they can be, and rows of nothing."""
    x = rng.normal(size=columns)
    axes = np.eye(columns)
    signs = rng.choice([-1.0, 1.0], columns)
    rows = [x, -x, np.zeros(columns), *axes, signs, 1e-300 * x, 1e90 * signs, axes[0] + axes[1]]
    return np.array(rows)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_mu_is_that_of_the_exact_law(adjacency: str) -> None:
    """Released is N(mean of x xᵀ, noise² I): two tables differ by mu = distance / noise."""
    rng = np.random.default_rng(0)
    largest = 0.0
    for columns in (2, 3, 7):
        white = learnt(rng.normal(size=(50, columns)), adjacency)
        paid = account(white.training_, UNKNOWN).mu
        noise = float(white.training_.noises[0])
        white.scaler = copy.copy(white.scaler)
        white.scaler.mean_, white.scaler.scale_ = np.zeros(columns), np.ones(columns)
        white.scaler.low, white.scaler.high = -1e100, 1e100  # rows as they are
        rows = white._rows(np.vstack([adversarial(rng, columns), rng.normal(size=(9, columns))]))
        assert np.linalg.norm(rows, axis=1).max() <= 1
        products = rows[:, :, None] * rows[:, None, :]
        others = products if adjacency == "replace" else np.zeros((1, columns, columns))
        for one, other in itertools.product(products, others):
            mu = float(np.linalg.norm(one - other)) / 50 / noise
            assert mu <= paid
            largest = max(largest, mu / paid)
    assert largest > (0.999 if adjacency == "zero-out" else 0.7)


def test_noise_is_on_every_entry_as_described() -> None:
    """Its mean is the mean of the products, its deviation the noise, also of one record less."""
    X = np.random.default_rng(1).normal(size=(200, 3))
    white = learnt(X)
    rows, noise = white._rows(X), float(white.training_.noises[0])
    rows[7] = 0.0
    found = np.array([copy.copy(white)._release(rows, seed).parameters for seed in range(400)])
    off = found - rows.T @ rows / 200
    assert abs(off.mean(axis=0)).max() < 4.5 * noise / 20
    np.testing.assert_allclose(off.std(axis=0), noise, rtol=0.15)
    assert abs(np.corrcoef(off.reshape(400, 9).T) - np.eye(9)).max() < 0.25  # no entry is a copy


@given(st.integers(0, 10**6), st.integers(2, 30), st.floats(1e-12, 1e3))
@settings(max_examples=20, deadline=None)
def test_any_noisy_matrix_gives_one_that_can_be_used(seed: int, columns: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, columns)) * 10.0 ** rng.uniform(-8, 0, columns)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    moments = rows.T @ rows / 40
    matrix = whitening(moments + noise * rng.normal(size=(columns, columns)), noise)
    assert np.isfinite(matrix).all()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9 * abs(matrix).max())
    values = np.linalg.eigvalsh(matrix)
    assert values.min() > 0
    if noise > 1:  # nothing is known, and nothing is changed
        assert values.max() / values.min() < 3
    if noise < 1e-9 and np.linalg.eigvalsh(moments).min() > 1e-6:
        assert np.linalg.norm(rows @ matrix) == pytest.approx(np.linalg.norm(rows), rel=1e-3)


# --- the rule -------------------------------------------------------------------------------------


def test_the_share_follows_public_numbers_alone() -> None:
    def cost(
        n: int, columns: int = 3, low: float = -np.inf, shift: float = 0.0, **more: Any
    ) -> Any:
        X, _ = together(n, columns=columns)
        ends = np.full(columns, low), np.full(columns, -low)
        promise = Promise(1.0, 1e-5, "zero-out", 0, curved=False, **more)
        return prepared(X + shift, *ends, None, promise)

    assert cost(2000).mu == cost(2000, shift=1e5).mu > cost(2000, whiten=False).mu
    assert cost(2000, low=-9.0).mu < cost(2000).mu  # who knows more pays less
    assert isinstance(cost(2000).columns, Whitening)
    assert isinstance(cost(20).columns, PrivateStandardScaler)


@given(
    st.integers(2, 10**7),
    st.integers(2, 300),
    st.floats(0.01, 20),
    st.floats(-12, -3),
    st.sampled_from(["zero-out", "replace"]),
)
@settings(max_examples=40, deadline=None)
def test_more_records_never_cost_more(
    n: int, columns: int, epsilon: float, power: float, adjacency: str
) -> None:
    promise = Promise(epsilon, 10.0**power, adjacency, None)
    (share, why), (double, _) = (whitening_share(k, columns, promise) for k in (n, 2 * n))
    whole = gaussian.mu(epsilon, promise.delta)
    assert 0 <= share <= 0.4 * epsilon
    assert (share == 0) == why.startswith("off")
    if share:
        assert 0 < double <= share * (1 + 1e-9)
        assert gaussian.mu(share, promise.delta) <= whole * math.sqrt(0.05) * (1 + 1e-6)
        weight = 1 if adjacency == "zero-out" else 2
        noise = weight / n / gaussian.mu(share, promise.delta)
        assert blur(noise, columns) <= 3 / columns * (1 + 1e-6)


def test_the_choice_says_why() -> None:
    X, y = together(1000)
    model = PrivateLogisticRegression(
        1.0, 1e-5, classes=[0, 1], random_state=0, steps=5, curved=False
    )
    assert "whitening: off: it has paid with three classes" in str(model.fit(X, y).choice_)
    assert isinstance(model.prepare_, PrivateStandardScaler)
    three = clone(model).set_params(classes=[0, 1, 2]).fit(X, y)
    assert "how columns go together" in str(three.choice_)
    assert isinstance(three.prepare_, Whitening)
    assert isinstance(three.set_params(prepare="scale").fit(X, y).prepare_, PrivateStandardScaler)
    model.set_params(prepare="whiten")
    assert isinstance(model.fit(X, y).prepare_, Whitening)
    assert "whitening: off: of so few" in str(model.fit(X[:20], y[:20]).choice_)
    assert "whitening: off: it is for 2" in str(model.fit(X[:, :1], y).choice_)
    ridge = PrivateRidge(1.0, 1e-5, random_state=0, steps=5, target_range=(0, 1), curved=False)
    assert isinstance(ridge.fit(X, y).prepare_, PrivateStandardScaler)
    white = clone(ridge).set_params(prepare="whiten").fit(X, y)
    assert isinstance(white.prepare_, Whitening)
    assert white._rows == ridge._rows


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_all_four_together_keep_the_promise(adjacency: str) -> None:
    X, y = together(3000)
    model = PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1], steps=20, adjacency=adjacency)
    certificate = model.set_params(prepare="whiten", curved=False).fit(X, y).certificate_
    assert len(certificate.parts) == 4
    assert 0.98 < certificate.epsilon <= 1.0
    assert verify(certificate, parameters=model.parameters_).epsilon <= 1.0 + 1e-9
    white = certificate.parts[2]
    assert white.training == model.prepare_.training_
    verify(white, parameters=model.prepare_.parameters)
    with pytest.raises(TamperedCertificateError):
        verify(white, parameters={"matrix_": model.prepare_.matrix_ + 1e-9})
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(UnsupportedError, match="learnt from all records"):
        again.unlearn([0], X, y, epsilon=1.0)


def test_columns_that_agree_are_told_apart() -> None:
    (X, y), (X_new, y_new) = together(3000), together(2000, seed=1)
    scores = {}
    for how in ("whiten", "scale"):
        model = PrivateLogisticRegression(0.5, 1e-5, random_state=0, prepare=how)
        scores[how] = model.fit(X, y).score(X_new, y_new)
    assert scores["whiten"] > scores["scale"] + 0.1


@pytest.mark.parametrize("epsilon", [0.5, 500.0])
def test_hostile_tables_have_finite_predictions(epsilon: float) -> None:
    rng = np.random.default_rng(0)
    huge = rng.choice([1e308, -1e308, 5e-324, 0.0], (900, 3))
    for X in (np.full((900, 2), 7.0), huge, rng.normal(size=(3, 2)), np.eye(900)[:, :2]):
        y = np.arange(len(X)) % 2
        for kind in (PrivateLogisticRegression, PrivateRidge):
            model = kind(epsilon, 1e-5, random_state=0, steps=5, prepare="whiten")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                warnings.simplefilter("error", RuntimeWarning)
                assert np.isfinite(model.fit(X, y).predict(X).astype(float)).all()


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, PrivateTableModel]:
    """A table, the folder of a model of it, and the model."""
    folder = tmp_path_factory.mktemp("whitened")
    (X, y), labels = together(400), ("no", "yes")
    lines = [f"{a:.6f},{b:.6f},{c:.6f},{labels[k]}" for (a, b, c), k in zip(X, y, strict=True)]
    (folder / "data.csv").write_text("\n".join(["a,b,c,label", *lines]))
    number = {"low": -4, "high": 4}
    columns = {"a": number, "b": number, "c": number}
    schema = {"columns": columns, "target": {"categories": ["no", "yes"]}}
    model = PrivateTableModel(schema, "label", epsilon=20.0, delta=1e-4)
    estimator = PrivateLogisticRegression(steps=20, prepare="whiten", curved=False)
    model.set_params(estimator=estimator).fit(folder / "data.csv")
    assert isinstance(model.model_.prepare_, Whitening)
    model.save(folder / "run")
    return folder / "data.csv", folder / "run", model


def test_a_folder_and_a_file_of_weights_carry_the_matrix(filed: Any, tmp_path: Path) -> None:
    table, run, model = filed
    again = PrivateTableModel.load(run)
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    assert verify(run / "certificate.json").epsilon <= 20.0
    assert again.estimator.prepare == "whiten"
    again.export(tmp_path / "m.json")
    told = json.loads((tmp_path / "m.json").read_text())
    np.testing.assert_array_equal(told["matrix"], model.model_.prepare_.matrix_)
    model.export(tmp_path / "m.onnx")  # `exported` compares it with the model


def test_scale_is_remembered(filed: Any, tmp_path: Path) -> None:
    table, _, model = filed
    other = PrivateTableModel(model.schema, "label", epsilon=20.0, delta=1e-4)
    other.set_params(estimator=PrivateLogisticRegression(steps=20, prepare="scale")).fit(table)
    other.save(tmp_path / "run")
    assert PrivateTableModel.load(tmp_path / "run").estimator.prepare == "scale"


def test_another_matrix_is_refused(filed: Any, tmp_path: Path) -> None:
    _, run, _ = filed
    arrays, described = (
        read_arrays(run / "parameters.npz"),
        json.loads((run / "run.json").read_text()),
    )
    matrix = arrays["whiten.matrix_"]
    worse = [
        {**arrays, "whiten.matrix_": np.nextafter(matrix, 9.0)},
        {**arrays, "whiten.matrix_": matrix[:2, :2]},
        {**arrays, "whiten.matrix_": np.full((3, 3), np.nan)},
        {**arrays, "whiten.matrix_": matrix.ravel()},
        {**arrays, "whiten.more_": matrix},
        {**arrays, "whiten.matrix_": matrix.astype(np.float32)},
        {k: v for k, v in arrays.items() if k != "whiten.matrix_"},
        {"prepare.matrix_" if k == "whiten.matrix_" else k: v for k, v in arrays.items()},
    ]
    before = described["prepare"]
    told = [
        {**described, "prepare": {k: v for k, v in before.items() if k != "whitening"}},
        {**described, "prepare": {**before, "whitening": {}}},
        {**described, "prepare": {**before, "how": "best"}},
        {**described, "prepare": {**before, "how": ["auto"]}},
    ]
    cases = [(each, described) for each in worse] + [(arrays, each) for each in told]
    for place, (numbers, words) in enumerate(cases):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "certificate.json").write_bytes((run / "certificate.json").read_bytes())
        (folder / "parameters.npz").write_bytes(archived(numbers))
        (folder / "run.json").write_text(json.dumps(words))
        with pytest.raises(LastIterateError):
            TableModel.load(folder)


@pytest.mark.parametrize(
    ("name", "wrong"), [("mean_", np.nan), ("scale_", np.inf), ("scale_", -1.0), ("scale_", 0.0)]
)
def test_numbers_that_scale_nothing_are_refused(
    filed: Any, tmp_path: Path, name: str, wrong: float
) -> None:
    """An experiment's folder has no certificate that would say so."""
    _, run, _ = filed
    arrays = read_arrays(run / "parameters.npz")
    described = {**json.loads((run / "run.json").read_text()), "certified": False}
    (tmp_path / "run.json").write_text(json.dumps(described))
    (tmp_path / "parameters.npz").write_bytes(archived(arrays))
    TableModel.load(tmp_path)
    arrays[f"prepare.{name}"][1] = wrong
    (tmp_path / "parameters.npz").write_bytes(archived(arrays))
    with pytest.raises(LastIterateError, match="scale nothing"):
        TableModel.load(tmp_path)


def test_an_audit_repeats_the_matrix_too(filed: Any) -> None:
    table, run, _ = filed
    target = named(str(run), table, 5, "mislabelled")
    first, second, third = (
        target.train(world, seed).scaler
        for world, seed in ((target.inside, 0), (target.inside, 1), (target.outside, 0))
    )
    assert abs(first.matrix_ - second.matrix_).max() > 1e-4
    assert (first.matrix_ != third.matrix_).any()
    assert np.isfinite(target.score(target.train(target.inside, 2)))
    assert isinstance(target.claim, Certificate)
    assert len(target.claim.parts) == 3
