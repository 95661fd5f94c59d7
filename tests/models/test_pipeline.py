"""A certificate of a pipeline covers all that the pipeline learnt, or there is none."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import special
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import PCA
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import (
    PolynomialCountSketch,
    RBFSampler,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from sklearn.utils import all_estimators

from lastiterate.certificate import compose, verify
from lastiterate.errors import CertificateError
from lastiterate.models import (
    PrivacyWarning,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateStandardScaler,
    certificate_of,
)
from lastiterate.models.stateless import ALLOWED, steps_of

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (80, 3))
y = (X[:, 0] > 0.5).astype(int)


def model(**changes: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(
        **{"epsilon": 1.0, "delta": 1e-4, "steps": 4, "classes": [0, 1], **changes}
    )


def scaler(**changes: Any) -> PrivateStandardScaler:
    return PrivateStandardScaler(**{"epsilon": 0.5, "delta": 1e-4, "low": 0.0, **changes})


class Centred(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer of somebody else's."""

    def fit(self, X: Any, y: Any = None) -> Centred:
        self.mean_ = np.mean(X, axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.mean_


class Renamed(Normalizer):  # type: ignore[misc]
    """A subclass of an allowed class may do anything."""

    def fit(self, X: Any, y: Any = None) -> Renamed:
        self.mean_ = np.mean(X, axis=0)
        return self


def quietly(pipeline: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return pipeline.fit(X, y)


def dense(transformers: Any, **changes: Any) -> ColumnTransformer:
    """One whose output has one type; its other settings decide."""
    return ColumnTransformer(transformers, sparse_threshold=0, **changes)


LEARNING = [
    StandardScaler(),
    MinMaxScaler(),
    SimpleImputer(),
    PCA(2),
    SelectKBest(k=1),
    OneHotEncoder(),
    OrdinalEncoder(),
    MissingIndicator(features="all"),
    Centred(),
    Renamed(),
    SimpleImputer(strategy="constant"),
    SimpleImputer(strategy="constant", fill_value=0.0),
    SimpleImputer(
        strategy="constant", fill_value=0.0, keep_empty_features=True, add_indicator=True
    ),
    FunctionTransformer(lambda X: X - X.mean(axis=0)),
    FunctionTransformer(np.frompyfunc(float, 1, 1)),
    FunctionTransformer(np.clip, kw_args={"a_min": 0, "a_max": 1}),
    FunctionTransformer(np.log1p, kw_args={"where": True}),
    FrozenEstimator(StandardScaler().fit(X)),
    Pipeline([("inside", StandardScaler())]),
    SplineTransformer(),
    RBFSampler(gamma="scale"),
    FeatureUnion([("one", Normalizer()), ("two", StandardScaler())]),
    dense([("one", Normalizer(), [0]), ("two", StandardScaler(), [1])]),
    dense([("one", Normalizer(), [0])], remainder=StandardScaler()),
    dense([("one", Normalizer(), lambda X: [int(np.argmax(np.mean(X, axis=0)))])]),
    Pipeline([("u", FeatureUnion([("c", dense([("deep", PCA(1), [0, 1])]))]))]),
]


@pytest.mark.parametrize("step", LEARNING, ids=lambda step: type(step).__name__)
def test_a_step_that_learns_is_refused_and_warned_of(step: Any) -> None:
    pipeline = make_pipeline(clone(step), model())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", PrivacyWarning)
        with pytest.raises(PrivacyWarning, match="not covered by the model's certificate_"):
            pipeline.fit(X, y)
    fitted = quietly(pipeline)
    assert fitted[-1].certificate_ is not None
    with pytest.raises(CertificateError, match="PrivateStandardScaler"):
        certificate_of(fitted)


FREE = [
    Normalizer(),
    Binarizer(threshold=0.3),
    PolynomialFeatures(2),
    RBFSampler(gamma=2.0, n_components=6, random_state=0),
    PolynomialCountSketch(n_components=6, random_state=0),
    SplineTransformer(degree=1, knots=np.array([[0.0] * 3, [0.5] * 3, [1.0] * 3])),
    FunctionTransformer(),
    FunctionTransformer(special.log1p, kw_args={"dtype": np.float64}),
    FunctionTransformer(special.expit, kw_args={"dtype": np.float64}),
    FunctionTransformer(np.fabs),
    GaussianRandomProjection(2, random_state=0),
    SparseRandomProjection(2, random_state=0),
    SimpleImputer(strategy="constant", fill_value=0.5, keep_empty_features=True),
    FeatureUnion([("one", Binarizer()), ("two", "passthrough"), ("no", "drop")]),
    ColumnTransformer([("one", Normalizer(), [0, 1]), ("no", "drop", [2])], sparse_threshold=0),
    ColumnTransformer([("one", Binarizer(), [0])], remainder="passthrough", sparse_threshold=0),
    ColumnTransformer(
        [("one", Binarizer(), slice(0, 2))], remainder=Normalizer(), sparse_threshold=0.0
    ),
    Pipeline(
        [("a", Normalizer()), ("b", "passthrough"), ("c", None), ("d", PolynomialFeatures(2))]
    ),
]


@pytest.mark.parametrize("step", FREE, ids=lambda step: type(step).__name__)
def test_a_step_that_learns_nothing_is_free(step: Any) -> None:
    """It really learns nothing: fitted on any other table of the same shape it does the same."""
    seen = [
        np.asarray(clone(step).fit(table, y).transform(X))
        for table in (X, 100 + 5 * rng.standard_normal(X.shape) ** 2, np.zeros_like(X))
    ]
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        fitted = make_pipeline(clone(step), model()).fit(X, y)
        assert certificate_of(fitted) is fitted[-1].certificate_


def test_text_and_declared_categories() -> None:
    words = [["red"], ["blue"]] * 40
    for encoder in (
        OneHotEncoder(categories=[["blue", "green", "red"]], sparse_output=False),
        OneHotEncoder(categories=[["red"]], handle_unknown="ignore", sparse_output=False),
        OneHotEncoder(categories=[["blue", "red"]], drop="if_binary", sparse_output=False),
        OrdinalEncoder(categories=[["blue", "green", "red"]]),
    ):
        fitted = make_pipeline(encoder, model()).fit(words, y)
        assert certificate_of(fitted).epsilon <= 1.0
        other = clone(encoder).fit([["red"]] * 80)
        np.testing.assert_array_equal(other.transform(words), encoder.transform(words))
    for counting in (
        OneHotEncoder(categories=[["blue", "red"]], min_frequency=2),
        OneHotEncoder(categories=[["blue", "red"]], max_categories=1),
        OneHotEncoder(categories=[["blue", "red"]], handle_unknown="infrequent_if_exist"),
    ):
        with pytest.raises(CertificateError, match="categories"):
            certificate_of(quiet_fit(make_pipeline(counting, model()), words))
    text = ["some words", "others"] * 40
    assert certificate_of(make_pipeline(HashingVectorizer(n_features=8), model()).fit(text, y))
    counted = [{"a": 1}, {"b": 2}] * 40
    assert certificate_of(make_pipeline(FeatureHasher(8), model()).fit(counted, y))
    remembering = HashingVectorizer(n_features=8, tokenizer=str.split, token_pattern=None)
    with pytest.raises(CertificateError, match="may remember"):
        certificate_of(quiet_fit(make_pipeline(remembering, model()), text))


def quiet_fit(pipeline: Any, data: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return pipeline.fit(data, y)


def test_every_other_transformer_of_scikit_learn_is_taken_to_learn() -> None:
    """Whatever scikit-learn adds is refused until somebody has read it."""
    known = {*ALLOWED, Pipeline, FeatureUnion, ColumnTransformer}
    for _, kind in all_estimators(type_filter="transformer"):
        if kind in known:
            continue
        bare = kind.__new__(kind)  # the class decides, before any setting is looked at
        (found,) = steps_of(bare)
        assert found.objection
        assert found.undecided is (kind is FrozenEstimator)


def test_private_steps_are_composed(tmp_path: Any) -> None:
    pipeline = make_pipeline(
        ColumnTransformer(
            [("left", scaler(), [0]), ("right", scaler(), [1, 2])], sparse_threshold=0
        ),
        Normalizer(),
        model(prepare=None),
    ).fit(X, y)
    found = certificate_of(pipeline)
    parts = [step.certificate_ for _, step, _ in pipeline[0].transformers_[:2]]
    assert len(found.parts) == 3
    assert found.epsilon == compose([*parts, pipeline[-1].certificate_]).epsilon
    assert found.epsilon > max(part.epsilon for part in parts)
    found.save(tmp_path / "c.json")
    assert verify(tmp_path / "c.json")


def test_a_seeded_or_missing_certificate_anywhere_is_refused() -> None:
    for pipeline in (
        make_pipeline(scaler(random_state=0), model()),
        make_pipeline(scaler(), model(random_state=0)),
        make_pipeline(scaler(), model(epsilon=math.inf)),
        ColumnTransformer([("a", scaler(random_state=0), [0])], sparse_threshold=0),
    ):
        with pytest.raises(CertificateError, match="random_state"):
            certificate_of(pipeline.fit(X, y))
    for nothing in (
        make_pipeline(scaler(), model()),
        Pipeline([("m", model())]),
        model(),
        make_pipeline(Normalizer()).fit(X),
        Pipeline([("a", "passthrough")]),
        None,
        "passthrough",
        Normalizer(),
        X,
        3,
    ):
        with pytest.raises(CertificateError):
            certificate_of(nothing)


def test_a_word_can_be_given_only_where_nobody_else_can_know() -> None:
    doubled = FunctionTransformer(lambda X: 2 * X)
    nested = ColumnTransformer([("f", doubled, [0])], sparse_threshold=0)
    pipeline = quietly(Pipeline([("twice", doubled), ("columns", nested), ("m", model())]))
    with pytest.raises(CertificateError, match=r'stateless=\["twice"\]'):
        certificate_of(pipeline)
    with pytest.raises(CertificateError, match="columns__f"):
        certificate_of(pipeline, stateless=["twice"])
    with pytest.warns(PrivacyWarning, match="your word"):
        found = certificate_of(pipeline, stateless=["twice", "columns__f"])
    assert found is pipeline[-1].certificate_
    with pytest.raises(CertificateError, match="no such step"):
        certificate_of(pipeline, stateless=["twice", "columns__f", "other"])
    for honest in (FrozenEstimator(StandardScaler().fit(100 * X)), Centred()):
        pipeline = quietly(Pipeline([("s", honest), ("m", model())]))
        with pytest.warns(PrivacyWarning, match="your word"):
            assert certificate_of(pipeline, stateless="s").epsilon <= 1.0
    for certain in (StandardScaler(), OneHotEncoder(), SimpleImputer()):  # these do learn
        pipeline = quietly(Pipeline([("s", certain), ("m", model())]))
        with pytest.raises(CertificateError, match="'s'"):
            certificate_of(pipeline, stateless=["s"])


def test_columns_chosen_by_the_records_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    numbers = make_column_selector(dtype_include=float)
    selected = ColumnTransformer([("n", Normalizer(), numbers)], sparse_threshold=0)
    by_type = make_pipeline(selected, model())
    with pytest.raises(CertificateError, match="list them by name"):
        certificate_of(quiet_fit(by_type, frame))
    by_name = ColumnTransformer([("n", Normalizer(), ["a", "b"])], sparse_threshold=0)
    named = make_pipeline(by_name, model())
    assert certificate_of(named.fit(frame, y)).epsilon <= 1.0


def test_wrappers_have_no_certificate() -> None:
    """A subclass of Pipeline may resample; a wrapper fits what it likes."""

    class Other(Pipeline):  # type: ignore[misc]
        pass

    ridge = PrivateRidge(1.0, 1e-4, feature_bound=1.0, target_bound=1.0, steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        wrappers = (
            Other([("m", model())]).fit(X, y),
            TransformedTargetRegressor(ridge, transformer=StandardScaler()).fit(X, X[:, 0]),
        )
    for wrapper in wrappers:
        with pytest.raises(CertificateError):
            certificate_of(wrapper)

    class Mine(PrivateLogisticRegression):
        """A user's subclass may train as it likes."""

    with pytest.raises(CertificateError):
        certificate_of(Mine(1.0, 1e-4, steps=3).fit(X, y))


def test_settings_changed_after_the_fit_do_not_hide_what_was_learnt() -> None:
    """What the steps were while the model was fitted counts, not what they are called now."""
    imputed = make_pipeline(SimpleImputer(keep_empty_features=True), model())
    encoded = make_pipeline(OrdinalEncoder(), model())
    counted = make_pipeline(OneHotEncoder(categories=[[0, 1]] * 3, min_frequency=2), model())
    chosen = make_pipeline(
        dense([("n", Normalizer(), make_column_selector(dtype_include=float))]), model()
    )
    scaled = make_pipeline(StandardScaler(), model())
    nested = make_pipeline(make_pipeline(StandardScaler(), scaler()), model())
    changes: list[tuple[Any, Any, dict[str, Any]]] = [
        (imputed, X, {"simpleimputer__strategy": "constant", "simpleimputer__fill_value": 0.0}),
        (encoded, (X > 0.5).astype(float), {"ordinalencoder__categories": [[0.0, 1.0]] * 3}),
        (counted, (X > 0.5).astype(int), {"onehotencoder__min_frequency": None}),
        (chosen, X, {"columntransformer__transformers": [("n", Normalizer(), [0, 1, 2])]}),
        (scaled, X, {"standardscaler": Normalizer()}),
        (nested, X, {"pipeline__standardscaler": "passthrough"}),
    ]
    for pipeline, features, change in changes:
        if pipeline is chosen:
            pandas = pytest.importorskip("pandas")
            features = pandas.DataFrame(features)
        with pytest.warns(PrivacyWarning, match="not covered"):
            pipeline.fit(features, y)
        pipeline.set_params(**change)
        with pytest.raises(CertificateError, match="not covered"):
            certificate_of(pipeline)
        with pytest.raises(CertificateError, match="not covered"):
            certificate_of(pipeline[-1])  # alone it is what was trained behind that step
    scaled.set_params(standardscaler=Normalizer()).fit(X, y)
    assert certificate_of(scaled).epsilon <= 1.0


def test_a_word_given_for_a_step_counts_for_the_model_behind_it() -> None:
    pipeline = make_pipeline(FunctionTransformer(lambda X: X / 2), model())
    with pytest.warns(PrivacyWarning, match="not covered"):
        pipeline.fit(X, y)
    with pytest.warns(PrivacyWarning, match="your word"):
        assert certificate_of(pipeline, stateless=["functiontransformer"]).epsilon <= 1.0
