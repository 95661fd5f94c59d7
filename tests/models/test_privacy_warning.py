"""Whoever fits a model several times, or chooses by what it sees, is warned; one fit is not."""

from __future__ import annotations

import warnings
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn import model_selection as selection
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SequentialFeatureSelector
from sklearn.impute import IterativeImputer
from sklearn.linear_model import RANSACRegressor
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.semi_supervised import SelfTrainingClassifier

from lastiterate.models import (
    PrivacyWarning,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateStandardScaler,
)

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (60, 3))
y = np.arange(60) % 3
two = (X[:, 0] > 0).astype(int)
both = np.column_stack([two, two])
value = X @ [1.0, 0.5, 0.0]

one = PrivateLogisticRegression(np.inf, 1e-4, steps=2)
ridge = PrivateRidge(np.inf, 1e-4, feature_bound=2.0, target_bound=2.0, steps=2)
grid = {"regularization": [0.1, 1.0]}
half = np.where(np.arange(60) % 2, two, -1)

META: dict[str, Any] = {
    "calibration": lambda: CalibratedClassifierCV(one, cv=2).fit(X, two),
    "one calibration": lambda: CalibratedClassifierCV(one, cv=2, ensemble=False).fit(X, two),
    "one against the rest": lambda: OneVsRestClassifier(one).fit(X, y),
    "one against one": lambda: OneVsOneClassifier(one).fit(X, y),
    "output codes": lambda: OutputCodeClassifier(one).fit(X, y),
    "voting": lambda: VotingClassifier([("a", one), ("b", one)]).fit(X, two),
    "voting regressors": lambda: VotingRegressor([("a", ridge)]).fit(X, value),
    "bagging": lambda: BaggingClassifier(
        clone(one).set_params(max_sample_weight=20.0), n_estimators=2
    ).fit(X, two),
    "bagging regressors": lambda: BaggingRegressor(
        clone(ridge).set_params(max_sample_weight=20.0), n_estimators=2
    ).fit(X, value),
    "boosting": lambda: AdaBoostRegressor(ridge, n_estimators=2).fit(X, value),
    "stacking": lambda: StackingClassifier([("a", one)], cv=2).fit(X, two),
    "stacked on": lambda: StackingClassifier([("a", clone(one).fit(X, two))], one, cv="prefit").fit(
        X, two
    ),
    "elimination": lambda: RFE(one, n_features_to_select=1).fit(X, two),
    "elimination with validation": lambda: RFECV(one, cv=2).fit(X, two),
    "selection from a model": lambda: SelectFromModel(one).fit(X, two),
    "sequential": lambda: SequentialFeatureSelector(one, n_features_to_select=1, cv=2).fit(X, two),
    "several outputs": lambda: MultiOutputClassifier(one).fit(X, both),
    "several numbers": lambda: MultiOutputRegressor(ridge).fit(X, np.column_stack([value, value])),
    "a chain": lambda: ClassifierChain(one).fit(X, both),
    "a chain of numbers": lambda: RegressorChain(ridge).fit(X, np.column_stack([value, value])),
    "self-training": lambda: SelfTrainingClassifier(one).fit(X, half),
    "consensus": lambda: RANSACRegressor(ridge, min_samples=20, max_trials=2).fit(X, value),
    "a transformed target": lambda: TransformedTargetRegressor(ridge).fit(X, value),
    "imputation": lambda: IterativeImputer(ridge, max_iter=1).fit(np.where(X > 0.9, np.nan, X)),
    "cross_val_score": lambda: selection.cross_val_score(one, X, two, cv=2),
    "cross_validate": lambda: selection.cross_validate(one, X, two, cv=2),
    "cross_val_predict": lambda: selection.cross_val_predict(one, X, two, cv=2),
    "learning_curve": lambda: selection.learning_curve(one, X, two, cv=2, train_sizes=[0.9]),
    "validation_curve": lambda: selection.validation_curve(
        one, X, two, param_name="regularization", param_range=[0.1], cv=2
    ),
    "permutations": lambda: selection.permutation_test_score(one, X, two, cv=2, n_permutations=1),
    "a grid": lambda: selection.GridSearchCV(one, grid, cv=2).fit(X, two),
    "a random search": lambda: selection.RandomizedSearchCV(one, grid, n_iter=1, cv=2).fit(X, two),
    "a threshold": lambda: selection.TunedThresholdClassifierCV(one, cv=2).fit(X, two),
    "inside a pipeline": lambda: make_pipeline(Normalizer(), OneVsRestClassifier(one)).fit(X, y),
    "around a pipeline": lambda: OneVsRestClassifier(make_pipeline(Normalizer(), one)).fit(X, y),
    "threads": lambda: in_threads(),
}


def in_threads() -> None:
    with joblib.parallel_config(backend="threading", n_jobs=2):
        OneVsRestClassifier(one).fit(X, y)


@pytest.mark.parametrize("name", META)
def test_every_meta_estimator_is_warned_of(name: str) -> None:
    with pytest.warns(PrivacyWarning, match="one of several on the same records"):
        META[name]()


def test_the_scaler_warns_too() -> None:
    scaler = PrivateStandardScaler(1.0, 1e-4, random_state=0)
    folds = selection.GridSearchCV(make_pipeline(scaler, one), {}, cv=2)
    with pytest.warns(PrivacyWarning, match="one of several") as caught:
        folds.fit(X, two)
    files = {warning.filename for warning in caught}
    assert any(file.endswith("pipeline.py") for file in files)
    with pytest.warns(PrivacyWarning, match="one of several"):
        selection.cross_val_score(RidgeOf(scaler), X, value, cv=2)


class RidgeOf(BaseEstimator):  # type: ignore[misc]
    """Another package's wrapper: an estimator that is not scikit-learn's."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fit(self, X: Any, y: Any) -> RidgeOf:
        clone(self.inner).fit(X, y)
        return self

    def score(self, X: Any, y: Any) -> float:
        return 0.0


@pytest.mark.parametrize("inner", [one, ridge, PrivateStandardScaler(1.0, 1e-4, random_state=0)])
def test_wrappers_of_others_are_warned_of(inner: Any) -> None:
    with pytest.warns(PrivacyWarning, match="RidgeOf"):
        RidgeOf(inner).fit(X, two)


def test_one_fit_is_not_warned_of() -> None:
    class Mine(PrivateLogisticRegression):
        """A subclass is not a wrapper."""

        def fit(self, X: Any, y: Any, **given: Any) -> Any:
            return super().fit(X, y, **given)

    scaler = PrivateStandardScaler(1.0, 1e-4, random_state=0)
    union = FeatureUnion([("a", scaler), ("b", Normalizer())])
    columns = ColumnTransformer(
        [("a", scaler, [0]), ("b", Normalizer(), [1, 2])], sparse_threshold=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        one.fit(X, two)
        Mine(np.inf, 1e-4, steps=2).fit(X, two)
        Mine(1.0, 1e-4, steps=2, prepare=scaler, random_state=0).fit(X, two)
        scaler.fit_transform(X)
        for first in (scaler, union, columns, Normalizer(), "passthrough"):
            make_pipeline(first, make_pipeline(Normalizer(), one)).fit(X, two)
        selection.train_test_split(X, two)
