"""Fitted models against truth: scikit-learn's solutions, promised privacy, exact noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from lastiterate import account
from lastiterate.certificate import verify
from lastiterate.losses import Huber, SmoothedHinge
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)

L2 = 0.01


@pytest.fixture(scope="module")
def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    X = X / np.abs(X).max(axis=0)
    return X, y


def _unit_rows(X: np.ndarray) -> np.ndarray:
    """Rows as the estimators make them without a bound: intercept inside, norm 1."""
    X = np.hstack([X, np.ones((len(X), 1))])
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def _parameters(model: Any) -> np.ndarray:
    return np.hstack([np.atleast_2d(model.coef_), np.reshape(model.intercept_, (-1, 1))])


def test_logistic_regression_without_noise_is_scikit_learns(cancer: Any) -> None:
    X, y = cancer
    model = PrivateLogisticRegression(epsilon=math.inf, regularization=L2, prepare=None).fit(X, y)
    theirs = LogisticRegression(C=1 / (len(y) * L2), fit_intercept=False, tol=1e-10, max_iter=10**4)
    theirs.fit(_unit_rows(X), y)
    assert _parameters(model) == pytest.approx(theirs.coef_, abs=1e-3)
    assert model.predict_proba(X) == pytest.approx(theirs.predict_proba(_unit_rows(X)), abs=1e-3)
    assert model.certificate_ is None


def test_a_declared_bound_that_no_row_reaches_changes_nothing(cancer: Any) -> None:
    X, y = cancer
    longest = float(np.linalg.norm(X, axis=1).max())
    model = PrivateLogisticRegression(
        epsilon=math.inf, regularization=L2, feature_bound=longest + 1, fit_intercept=False
    ).fit(X, y)
    theirs = LogisticRegression(C=1 / (len(y) * L2), fit_intercept=False, tol=1e-10, max_iter=10**4)
    assert model.coef_ == pytest.approx(theirs.fit(X, y).coef_, abs=1e-3)


def test_softmax_regression_without_noise_is_scikit_learns() -> None:
    X, y = load_iris(return_X_y=True)
    model = PrivateSoftmaxRegression(epsilon=math.inf, regularization=L2, prepare=None).fit(X, y)
    theirs = LogisticRegression(C=1 / (len(y) * L2), fit_intercept=False, tol=1e-10, max_iter=10**4)
    theirs.fit(_unit_rows(X), y)
    assert _parameters(model) == pytest.approx(theirs.coef_, abs=1e-3)


def test_ridge_without_noise_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    y = X @ [3.0, -1.0, 0.0, 2.0] + rng.standard_normal(200)
    model = PrivateRidge(
        epsilon=math.inf, regularization=0.1, feature_bound=6.0, target_bound=50.0
    ).fit(X, y)
    theirs = Ridge(alpha=200 * 0.1, fit_intercept=False).fit(np.hstack([X, np.ones((200, 1))]), y)
    assert _parameters(model)[0] == pytest.approx(theirs.coef_, abs=1e-3)


def test_huber_without_noise_minimises_its_objective() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.standard_t(2, 100)
    model = PrivateHuberRegressor(
        epsilon=math.inf, regularization=0.1, feature_bound=6.0, target_bound=100.0, threshold=1.5
    ).fit(X, y)
    rows, loss = np.hstack([X, np.ones((100, 1))]), Huber(1.5)

    def objective(w: np.ndarray) -> float:
        return float(loss.value(rows @ w, y).mean() + 0.05 * w @ w)

    best = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    assert _parameters(model)[0] == pytest.approx(best, abs=1e-3)


def test_svc_without_noise_minimises_its_objective_and_nears_the_hinge(cancer: Any) -> None:
    X, y = cancer
    model = PrivateLinearSVC(epsilon=math.inf, regularization=L2, width=0.5, prepare=None).fit(X, y)
    rows, loss, signs = _unit_rows(X), SmoothedHinge(0.5), np.where(y == 1, 1.0, -1.0)

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        value = loss.value(rows @ w, signs).mean() + L2 / 2 * w @ w
        return float(value), rows.T @ loss.slope(rows @ w, signs) / len(y) + L2 * w

    best = minimize(objective, np.zeros(rows.shape[1]), jac=True, method="BFGS").x
    assert _parameters(model)[0] == pytest.approx(best, abs=1e-3)
    sharp = PrivateLinearSVC(
        epsilon=math.inf, regularization=L2, width=0.05, steps=10_000, prepare=None
    )
    theirs = LinearSVC(C=1 / (len(y) * L2), loss="hinge", fit_intercept=False, max_iter=10**6)
    theirs.fit(rows, y)
    agree = sharp.fit(X, y).predict(X) == theirs.predict(rows)
    assert agree.mean() > 0.99


@pytest.mark.parametrize("batch_size", [None, 40, 10**9])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_the_promise_is_kept_and_certified(batch_size: Any, adjacency: str, cancer: Any) -> None:
    X, y = cancer
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-4, batch_size=batch_size, adjacency=adjacency, prepare=None
    ).fit(X, y)
    spent = account(model.training_, model.loss_).epsilon(1e-4)
    assert 0.99 <= spent <= 1.0
    assert model.training_.adjacency == adjacency
    assert model.certificate_.epsilon >= spent * (1 - 1e-12)
    assert model.certificate_.epsilon <= 1.01
    assert model.certificate_.training == model.training_


def test_a_saved_certificate_verifies(cancer: Any, tmp_path: Any) -> None:
    X, y = cancer
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-4).fit(X, y)
    path = tmp_path / "certificate.json"
    model.certificate_.save(path)
    assert verify(path)


def test_a_seed_is_an_experiment(cancer: Any) -> None:
    X, y = cancer
    one, two = (
        PrivateLogisticRegression(epsilon=1.0, delta=1e-4, random_state=3).fit(X, y)
        for _ in range(2)
    )
    assert np.array_equal(one.coef_, two.coef_)
    assert one.certificate_ is None


def test_unseeded_fits_differ_even_under_a_global_seed(cancer: Any) -> None:
    X, y = cancer
    fits = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - what a careless user does
        fits.append(PrivateLogisticRegression(epsilon=1.0, delta=1e-4).fit(X, y).coef_)
    assert not np.array_equal(*fits)


def test_the_noise_of_a_model_is_the_noise_of_its_description() -> None:
    """With all features zero but the intercept's sign balanced, one full step is noise alone."""
    X, y = np.zeros((100, 400)), np.arange(100) % 2
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-3, steps=1, batch_size=100, feature_bound=1.0, fit_intercept=False
    ).fit(X, y)
    nu = float(model.training_.noises[0])
    # The sum of 400 squares has relative deviation √(2/400); five of them leave 2e-6 to chance.
    assert np.mean(model.coef_**2) / nu**2 == pytest.approx(1.0, abs=5 * math.sqrt(2 / 400))


def test_one_vs_rest_pays_for_all_classes_at_once() -> None:
    X, y = load_iris(return_X_y=True)
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-3, random_state=0).fit(X, y)
    assert model.training_.gradient_norm == pytest.approx(0.5 * math.sqrt(3))
    both = PrivateLogisticRegression(epsilon=1.0, delta=1e-3, random_state=0).fit(X, y > 0)
    assert both.training_.gradient_norm == pytest.approx(0.5)


def test_gradients_are_never_clipped() -> None:
    X, y = load_iris(return_X_y=True)
    for kind in (PrivateLogisticRegression, PrivateSoftmaxRegression, PrivateLinearSVC):
        model = kind(epsilon=1.0, delta=1e-3, random_state=0).fit(X, y)
        assert model.training_.clipping == "none"
        assert model.loss_.provenance == "proved"
