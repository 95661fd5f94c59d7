"""The estimators keep scikit-learn's promises: its own checks, pipelines, searches, input kinds."""

from __future__ import annotations

import inspect
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from lastiterate.errors import DescriptionError
from lastiterate.models import (
    PrivacyWarning,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
)

CLASSIFIERS = (PrivateLogisticRegression, PrivateSoftmaxRegression, PrivateLinearSVC)
REGRESSORS = (PrivateRidge, PrivateHuberRegressor)
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4, "random_state": 0}


@pytest.fixture(autouse=True)
def _delta_is_left_open() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "delta was not given", PrivacyWarning)
        yield


_NOISE = "noise is drawn anew, and a record that is there twice is two records with one budget each"
_ONLY_ZEROS = "an error that tells that all weights are 0 would tell of the records"


def _fails(estimator: Any) -> dict[str, str]:
    of = "check_sample_weight_equivalence_on_"
    return {
        f"{of}dense_data": _NOISE,
        f"{of}sparse_data": _NOISE,
        "check_all_zero_sample_weights_error": _ONLY_ZEROS,
    }


HEAVY = [kind(max_sample_weight=10.0) for kind in (*CLASSIFIERS, *REGRESSORS)]  # as checks weigh


@parametrize_with_checks([*HEAVY, PrivateStandardScaler()], expected_failed_checks=_fails)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS, PrivateStandardScaler])
def test_constructors_name_every_argument_and_only_store_it(kind: Any) -> None:
    parameters = inspect.signature(kind).parameters
    kinds = {each.kind for each in parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    given = {name: [name] for name in parameters}  # no two alike, and none of the right type
    model = kind(**given)
    assert vars(model) == given
    assert all(model.get_params(deep=False)[name] is value for name, value in given.items())
    assert vars(clone(kind())) == {name: each.default for name, each in parameters.items()}


@pytest.fixture(scope="module")
def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return X / np.abs(X).max(axis=0), y


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifiers_learn(kind: Any, cancer: Any) -> None:
    X, y = cancer
    model = kind(epsilon=8.0, delta=1e-4, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85
    assert set(model.predict(X)) <= set(y)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_regressors_learn(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3
    model = kind(epsilon=8.0, delta=1e-5, feature_bound=2.0, target_bound=4.0, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.8
    assert model.coef_ == pytest.approx([1.0, -2.0, 0.5], abs=0.4)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_three_classes(kind: Any) -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = kind(epsilon=math.inf, regularization=1e-3, curved=False).fit(X, names)
    assert model.score(X, names) > 0.8
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)


def test_frames_sparse_matrices_and_arrays_give_the_same_model(cancer: Any) -> None:
    X, y = cancer
    models = [
        PrivateLogisticRegression(**SETTINGS, prepare=None).fit(data, y)
        for data in (X, pd.DataFrame(X), sparse.csr_matrix(X), sparse.csc_array(X))
    ]
    for other in models[1:]:
        assert other.coef_ == pytest.approx(models[0].coef_, rel=1e-9, abs=1e-9)


def test_names_of_columns_are_kept_and_checked(cancer: Any) -> None:
    X, y = cancer
    frame = pd.DataFrame(X, columns=[f"c{k}" for k in range(X.shape[1])])
    model = PrivateLogisticRegression(**SETTINGS).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"c0": "other"}))


def test_unknown_arguments_of_fit_are_refused(cancer: Any) -> None:
    X, y = cancer
    with pytest.raises(TypeError, match="coef_init"):
        PrivateLogisticRegression(**SETTINGS).fit(X, y, coef_init=0)


def test_searching_on_private_data_warns(cancer: Any) -> None:
    X, y = cancer
    model = PrivateLogisticRegression(**SETTINGS)
    with pytest.warns(PrivacyWarning, match="one of several"):
        scores = cross_val_score(model, X, y, cv=2)
    assert np.isfinite(scores).all()
    with pytest.warns(PrivacyWarning, match="one of several"):
        search = GridSearchCV(model, {"regularization": [1e-3, 1e-1]}, cv=2).fit(X, y)
    assert search.best_params_["regularization"] in (1e-3, 1e-1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        model.fit(X, y)


def test_pipeline(cancer: Any) -> None:
    X, y = cancer
    scaler = PrivateStandardScaler(epsilon=1.0, delta=1e-4, low=0.0, high=1.0, random_state=0)
    model = make_pipeline(scaler, PrivateLogisticRegression(**SETTINGS))
    assert model.fit(X, y).predict(X).shape == y.shape


def test_delta_left_open_is_named(cancer: Any) -> None:
    X, y = cancer
    with pytest.warns(PrivacyWarning, match="delta was not given"):
        model = PrivateLogisticRegression(random_state=0).fit(X, y)
    assert model.delta_ == pytest.approx(1 / (10 * len(y)))


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", -1),
        ("epsilon", "much"),
        ("delta", 0.0),
        ("delta", 2.0),
        ("feature_bound", 0.0),
        ("feature_bound", float("nan")),
        ("feature_bound", 1e200),
        ("steps", 0),
        ("steps", 1.5),
        ("batch_size", 0),
        ("adjacency", "add"),
        ("cap", 0.0),
        ("cap", 1.5),
        ("regularization", -1.0),
    ],
)
def test_wrong_parameters_are_named(parameter: str, value: Any, cancer: Any) -> None:
    X, y = cancer
    with pytest.raises(DescriptionError, match=parameter):
        PrivateLogisticRegression(**{**SETTINGS, parameter: value}).fit(X, y)


def test_one_class_is_refused(cancer: Any) -> None:
    X, y = cancer
    with pytest.raises(ValueError, match="class"):
        PrivateLogisticRegression(**SETTINGS).fit(X, np.zeros(len(y)))


def test_a_fitted_model_survives_a_pickle(cancer: Any) -> None:
    X, y = cancer
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-4).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.certificate_.epsilon == model.certificate_.epsilon


def test_probabilities(cancer: Any) -> None:
    X, y = cancer
    for kind in (PrivateLogisticRegression, PrivateSoftmaxRegression):
        model = kind(**SETTINGS).fit(X, y)
        p = model.predict_proba(X)
        assert p.sum(axis=1) == pytest.approx(1.0)
        assert np.array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
        assert np.exp(model.predict_log_proba(X)) == pytest.approx(p)


def test_diabetes_runs_with_declared_bounds() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = PrivateRidge(epsilon=2.0, delta=1e-4, feature_bound=0.5, target_bound=400.0)
    assert np.isfinite(model.fit(X, y).predict(X)).all()
