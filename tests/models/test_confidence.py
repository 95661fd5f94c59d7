"""Calibrated probabilities: within the promise, right on average, the same predictions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from lastiterate.accounting import account
from lastiterate.certificate import verify
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Loss
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.models import PrivateLogisticRegression, PrivateSoftmaxRegression, tune
from lastiterate.models.confidence import SCALES, crossing, planned, sharpened
from lastiterate.models.saved import TableModel, write_files


def _split(name: str) -> Any:
    X, y = (load_breast_cancer if name == "cancer" else load_digits)(return_X_y=True)
    return train_test_split(X / X.max(axis=0).clip(1e-9), y, test_size=0.4, random_state=0)


def _model(name: str, **more: Any) -> Any:
    kind = PrivateLogisticRegression if name == "cancer" else PrivateSoftmaxRegression
    return kind(2.0, 1e-5, classes=range(2 if name == "cancer" else 10), prepare=None, **more)


def _unreliability(probabilities: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error over ten bins of the confidence."""
    sure = probabilities.max(axis=1)
    place = np.minimum((10 * sure).astype(int), 9)
    gaps = [
        abs((right[place == k] - sure[place == k]).sum()) for k in range(10) if (place == k).any()
    ]
    return float(sum(gaps) / len(sure))


@pytest.mark.parametrize("name", ["cancer", "digits"])
def test_calibrated_probabilities_are_more_reliable(name: str) -> None:
    X, X_new, y, y_new = _split(name)
    ratios = []
    for seed in range(3):
        model = _model(name, calibrate=True, random_state=seed).fit(X, y)
        found, plain = model.predict_proba(X_new), model._linked(X_new)
        assert np.array_equal(model.classes_[found.argmax(axis=1)], model.predict(X_new))
        right = model.predict(X_new) == y_new
        better = _unreliability(found, right) / _unreliability(plain, right)
        ratios.append([better, log_loss(y_new, found) / log_loss(y_new, plain)])
        assert found.sum(axis=1) == pytest.approx(1.0)
        assert np.exp(model.predict_log_proba(X_new)) == pytest.approx(found)
    assert (np.mean(ratios, axis=0) < [0.6, 0.95]).all()


@pytest.mark.parametrize("batch_size", [None, 10**9])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_everything_is_within_the_promise(adjacency: str, batch_size: Any, tmp_path: Any) -> None:
    X, _, y, _ = _split("cancer")
    model = _model("cancer", calibrate=True, adjacency=adjacency, batch_size=batch_size).fit(X, y)
    assert 1.9 <= model.certificate_.epsilon <= 2.0
    model.certificate_.save(tmp_path / "certificate.json")
    assert verify(tmp_path / "certificate.json")
    alone = account(model.training_, model.loss_).best_at(1e-5).curve
    mu = planned(len(y), 2.0, 1e-5, adjacency)[1]
    assert alone.compose(Gaussian(mu)).epsilon(1e-5) <= 2.0
    assert mu > 0.01
    assert "calibration" in str(model.choice_)


def test_preparation_model_weights_and_calibration_are_within_one_promise() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = PrivateLogisticRegression(
        2.0, 1e-5, classes=[0, 1], class_weight={0: 2.0}, calibrate=True
    ).fit(X, y)
    assert "preparation" in str(model.choice_)
    assert 1.9 <= model.certificate_.epsilon <= 2.0
    assert len(model.certificate_.content["parts"]) == 4  # ranges, scales, the model, its scale


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_one_record_moves_the_means_by_no_more_than_is_charged(seed: int) -> None:
    """The exact law: two Gaussians, apart by what the record told."""
    rng = np.random.default_rng(seed)
    n, classes = int(rng.integers(2, 9)), int(rng.integers(2, 6))
    p = rng.dirichlet(np.full(classes, 10.0 ** rng.uniform(-3, 2)), n)
    right = rng.integers(0, 2, n)
    each = np.column_stack([right - sharpened(p, a).max(axis=1) for a in SCALES])
    assert (np.diff(each, axis=1) <= 1e-12).all()  # confidence grows with the scale
    run, mu = planned(n, 1.0, 1e-5, "zero-out")
    told = account(run, Loss.unknown(provenance="proved"))
    for row in each:
        moved = Gaussian(float(np.linalg.norm(row)) / n / float(run.noises[0]))
        assert moved.epsilon(1e-5) <= told.epsilon(1e-5)
        assert moved.mu <= mu


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_the_crossing_is_where_confidence_is_right(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(3, 10.0 ** rng.uniform(-1, 1)), 400)
    true = 2.0 ** rng.uniform(-1, 3)
    mean = [sharpened(p, a).max(axis=1).mean() for a in (*SCALES, true)]
    found = crossing(np.array([mean[-1] - each for each in mean[:-1]]))
    reached = sharpened(p, found).max(axis=1).mean()
    assert reached == pytest.approx(mean[-1], abs=0.02)
    assert SCALES[0] <= crossing(rng.normal(size=5) * 10.0 ** rng.uniform(-9, 9)) <= SCALES[-1]


def test_probabilities_of_zero_and_one_stay_probabilities() -> None:
    sharp = sharpened(np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [1e-320, 1.0]]), 8.0)
    assert np.isfinite(sharp).all()
    assert sharp.sum(axis=1) == pytest.approx(1.0)


def test_where_nothing_would_pay_for_it_calibration_is_refused(tmp_path: Any) -> None:
    X, _, y, _ = _split("cancer")
    with pytest.raises(DescriptionError, match="calibrate"):
        _model("cancer", calibrate=True).set_params(epsilon=math.inf).fit(X, y)
    with pytest.raises(UnsupportedError, match="calibrate"):
        _model("cancer", calibrate=True, max_records_per_group=2).fit(
            X, y, groups=np.arange(len(y))
        )
    with pytest.raises(UnsupportedError, match="calibrate"):
        _model("cancer", calibrate=True).fit_stream([(X, y)], batches=1, batch_size=len(y))
    with pytest.raises(UnsupportedError, match="calibrate"):
        _model("cancer", calibrate=True).fit_files(tmp_path, "label")
    for model, grid in ((True, {"cap": [0.5]}), (False, {"calibrate": [True, False]})):
        with pytest.raises(UnsupportedError, match="calibrate"):
            tune(_model("cancer", calibrate=model), grid, X, y)
    fitted = _model("cancer", calibrate=True, batch_size=10**9, final_noise=1.0).fit(X, y)
    with pytest.raises(UnsupportedError, match="calibrate"):
        fitted.unlearn([0], X, y, epsilon=1.0)
    with pytest.raises(UnsupportedError, match="calibrate"):
        write_files(tmp_path, TableModel(None, fitted), "", {}, None)
    fitted.set_params(calibrate=False).fit(X, y)  # nothing of the earlier fit stays
    assert np.array_equal(fitted.predict_proba(X), fitted._linked(X))
