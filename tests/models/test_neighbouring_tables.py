"""What is seen of a fit beside the model is the same on neighbouring tables, or it is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler, PolynomialCountSketch, RBFSampler
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from lastiterate.errors import CertificateError
from lastiterate.models import PrivacyWarning, PrivateLogisticRegression, certificate_of
from lastiterate.models.stateless import ALLOWED, QUIET

N = 30
LABELS = np.arange(N) % 2


def fitted(step: Any, X: Any, **changes: Any) -> tuple[Any, list[str]]:
    """The pipeline, and every warning of its fit."""
    settings = {"epsilon": 1.0, "delta": 1e-4, "steps": 2, "classes": [0, 1], **changes}
    pipeline = make_pipeline(clone(step), PrivateLogisticRegression(**settings))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline.fit(X, LABELS)
    return pipeline, [str(each.message) for each in caught]


def outcome(step: Any, X: Any, **changes: Any) -> tuple[Any, ...]:
    """What somebody sees who knows neither the records nor the numbers of the model."""
    pipeline, said = fitted(step, X, **changes)
    certificate, model = certificate_of(pipeline), pipeline[-1]
    output = pipeline[:-1].transform(X)
    kinds = output.dtypes if hasattr(output, "columns") else [output.dtype]
    dtypes = [str(kind) for kind in kinds]
    return (
        *(type(output), dtypes, output.shape, said, list(getattr(output, "columns", ()))),
        *(len(certificate.parts), certificate.epsilon, certificate.assumptions),
        *(str(model.choice_), model.coef_.shape, model.coef_.dtype, sorted(vars(model))),
    )


def refused(step: Any, X: Any, match: str, **changes: Any) -> None:
    """Refused, by the settings of now and by those that the model was trained behind."""
    pipeline, said = fitted(step, X, **changes)
    assert any("not covered by the model's certificate_" in text for text in said)
    for each in (pipeline, pipeline[-1]):
        with pytest.raises(CertificateError, match=match):
            certificate_of(each)


def texts(last: str) -> Any:
    """One column of texts, one of numbers."""
    words = ["a"] * (N - 1) + [last]
    return np.array([[word, 1.0] for word in words], dtype=object)


def mixed(step: Any, columns: Any = (0,), **settings: Any) -> ColumnTransformer:
    return ColumnTransformer([("c", step, columns)], remainder="passthrough", **settings)


ONE = OneHotEncoder(categories=[["a"]], handle_unknown="ignore")
TWO = OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore")
HASHED = HashingVectorizer(n_features=4, norm=None)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9, 1.0])
def test_density_of_the_table_decides_what_the_certificate_has_and_is_refused(
    threshold: float,
) -> None:
    """One unknown category changed the parts of the certificate, 3 against 0, in every fit."""
    step = mixed(ONE, sparse_threshold=threshold)
    kinds = {sp.issparse(clone(step).fit_transform(texts(last))) for last in ("a", "?")}
    assert kinds == {False, True} or threshold < 0.98
    refused(step, texts("a"), "sparse_threshold=0")
    refused(FeatureUnion([("u", step)]), texts("?"), "sparse_threshold=0")


@pytest.mark.parametrize(
    "step",
    [
        mixed(
            Pipeline([("inner", mixed(ONE)), ("more", "passthrough")]), [0, 1], sparse_threshold=0
        ),
        ColumnTransformer([("n", "drop", [1])], remainder=mixed(ONE), sparse_threshold=0),
        FeatureUnion([("a", mixed(ONE)), ("b", mixed(TWO, sparse_threshold=0))]),
        mixed(ONE, sparse_threshold=np.nextafter(0.0, 1.0)),
        mixed(TWO, sparse_threshold=np.nextafter(1.0, 0.0)),
        mixed(clone(TWO).set_params(sparse_output=False), sparse_threshold=0.3),
    ],
)
def test_a_threshold_anywhere_inside_is_refused(step: Any) -> None:
    refused(step, texts("a"), "sparse_threshold=0")


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_columns_of_several_types_that_pass_through_look_the_same(output: str) -> None:
    """Truths, integers, numbers and objects beside each other, and one fraction among integers."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {
            "word": ["a"] * N,
            "truth": np.arange(N) % 2 == 0,
            "count": np.arange(N) % 7,
            "number": np.linspace(0.0, 1.0, N),
            "object": np.array([0, 1.5, True] * (N // 3), dtype=object),
        }
    )
    other = table.astype({"count": float})
    other.loc[N - 1, ["word", "count"]] = ["?", 2.5]
    step = mixed(clone(TWO).set_params(sparse_output=False), ["word"], sparse_threshold=0)
    nested = ColumnTransformer([("all", step, list(table))], sparse_threshold=0)
    for one in (step, nested):
        one = clone(one).set_output(transform=output)
        assert outcome(one, table)[2:4] == outcome(one, other)[2:4]  # shape and what is said
        assert outcome(one, table)[5:] == outcome(one, other)[5:]  # certificate and model


def test_hashed_texts_beside_a_number_are_refused_unless_dense() -> None:
    """Hashed texts may fill every cell, so that no threshold decides by itself."""
    full, rest = "b c d e f g h i j k l m n", "a a a"
    for threshold in (0.3, 1.0):
        step = mixed(HASHED, 0, sparse_threshold=threshold)
        refused(step, texts(rest), "sparse_threshold=0")
    dense = mixed(HASHED, 0, sparse_threshold=0)
    assert outcome(dense, texts(full)) == outcome(dense, texts(rest))


@pytest.mark.parametrize(
    "step",
    [
        mixed(ONE, sparse_threshold=0),
        mixed(ONE, sparse_threshold=0.0),
        mixed(TWO, sparse_threshold=0),
        mixed(TWO, sparse_threshold=1),
        mixed(TWO, sparse_threshold=1.0),
        mixed(OrdinalEncoder(categories=[["a", "?"]]), sparse_threshold=0),
        Pipeline([("inner", mixed(TWO, sparse_threshold=1)), ("more", Normalizer())]),
    ],
)
def test_a_table_of_one_type_is_accepted(step: Any) -> None:
    assert outcome(step, texts("a")) == outcome(step, texts("?"))


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(categories=[["a"]], handle_unknown="ignore"),
        OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore", sparse_output=False),
        OneHotEncoder(categories=[["a", "b"]], drop="if_binary"),
    ],
)
def test_a_threshold_of_one_needs_cells_that_are_never_stored(encoder: Any) -> None:
    refused(mixed(encoder, sparse_threshold=1), texts("a"), "sparse_threshold=0")


def test_a_threshold_that_is_changed_after_the_fit_hides_nothing() -> None:
    pipeline, _ = fitted(mixed(ONE), texts("a"))
    pipeline.set_params(columntransformer__sparse_threshold=0)
    with pytest.raises(CertificateError, match="sparse_threshold=0"):
        certificate_of(pipeline)


def numbers(last: Any, dtype: Any = np.float64, kind: Callable[..., Any] = np.array) -> Any:
    X = np.linspace(0.1, 0.9, 3 * N).reshape(N, 3)
    X[-1] = last
    return kind(X.astype(dtype))


PAIRS = [(0.0, 0.7), (1.0, 1e6), (0.25, [0.0, 3.0, 1e-9])]
KNOTS = np.linspace(0.0, 1.0, 4)[:, None] * np.ones(3)
DOUBLES = {"dtype": np.float64}
STEPS = [
    Binarizer(threshold=0.5),
    FunctionTransformer(),
    FunctionTransformer(np.arcsinh, inverse_func=np.sinh, check_inverse=False, kw_args=DOUBLES),
    FunctionTransformer(np.floor),
    FunctionTransformer(special.log1p, kw_args=DOUBLES),
    FunctionTransformer(special.expit, kw_args={"dtype": "float64"}),
    GaussianRandomProjection(2, random_state=0),
    Normalizer(),
    Normalizer("max"),
    PolynomialCountSketch(n_components=5, random_state=0),
    PolynomialFeatures(2),
    PolynomialFeatures((2, 4), interaction_only=True),
    RBFSampler(gamma=1.0, n_components=4, random_state=0),
    SimpleImputer(strategy="constant", fill_value=0.5, keep_empty_features=True),
    SparseRandomProjection(2, random_state=0),
    SparseRandomProjection(2, dense_output=True, random_state=0),
    *(
        SplineTransformer(knots=KNOTS, extrapolation=how, sparse_output=sparse)
        for how in ("constant", "linear", "continue", "periodic")
        for sparse in (False, True)
    ),
    FeatureUnion([("a", Normalizer()), ("b", SplineTransformer(knots=KNOTS, sparse_output=True))]),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", [np.array, sp.csr_array, sp.csc_array])
def test_every_allowed_step_looks_the_same_on_neighbours(step: Any, kind: Any) -> None:
    for one, other in PAIRS if kind is np.array else PAIRS[:1]:
        try:
            first = outcome(step, numbers(one, kind=kind))
        except TypeError:  # steps that read no sparse tables
            assert kind is not np.array
            with pytest.raises(TypeError):
                outcome(step, numbers(other, kind=kind))
            continue
        assert first == outcome(step, numbers(other, kind=kind))


def test_every_allowed_class_was_compared() -> None:
    compared = {type(step) for step in STEPS}
    apart = {OneHotEncoder, OrdinalEncoder, HashingVectorizer, FeatureHasher}
    assert compared | apart >= set(ALLOWED)


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_encoders_and_missing_values_look_the_same_on_neighbours(output: str) -> None:
    one, other = np.full((N, 2), "a", dtype=object), np.full((N, 2), "a", dtype=object)
    other[-1] = ["?", "b"]
    known = [["a", "b"]] * 2
    for step in (
        OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False),
        OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False, dtype=bool),
        OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False, dtype="u1"),
        OrdinalEncoder(
            categories=known, handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.int8
        ),
    ):
        step.set_output(transform=output)
        assert outcome(step, one) == outcome(step, other)
    filled = SimpleImputer(strategy="constant", fill_value=0.5, keep_empty_features=True)
    full, empty = numbers(0.5), numbers(0.5)
    full[:-1, 1] = empty[:, 1] = np.nan
    assert outcome(filled.set_output(transform=output), full) == outcome(filled, empty)


def test_hashing_looks_the_same_on_neighbours() -> None:
    for step, one, other in (
        (HASHED, ["a"] * N, ["a"] * (N - 1) + ["b c d e f g h i j k l"]),
        (FeatureHasher(4), [{"a": 1}] * N, [{"a": 1}] * (N - 1) + [{}]),
    ):
        assert outcome(step, one) == outcome(step, other)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (FunctionTransformer(np.log1p), "scipy.special"),
        (FunctionTransformer(np.sqrt), "scipy.special"),
        (FunctionTransformer(np.exp), "scipy.special"),
        (
            FunctionTransformer(np.arcsinh, inverse_func=np.exp, kw_args=DOUBLES),
            "check_inverse=False",
        ),
        (FunctionTransformer(np.modf), "all records"),
    ],
)
def test_a_function_that_warns_of_records_is_refused(step: Any, match: str) -> None:
    """Before an imputer a number outside of the domain left only a warning, which is seen."""
    if step.func is not np.modf:
        refused(step, numbers(0.5), match)
    else:
        with pytest.raises(CertificateError, match=match):
            certificate_of(make_pipeline(step))


def test_sums_of_a_record_that_warn_are_refused() -> None:
    """The sum of [1e308, 1e308, 1e308] overflows with a warning, and the fit went on."""
    refused(Normalizer("l1"), numbers(0.5), "overflows")


FILLED = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)


@pytest.mark.parametrize("second", [FILLED, FunctionTransformer(np.tanh, kw_args=DOUBLES)])
@pytest.mark.parametrize(
    "first",
    [
        RBFSampler(gamma=1.0, n_components=4, random_state=0),
        PolynomialCountSketch(n_components=5, random_state=0),
        PolynomialFeatures(2),
    ],
)
def test_a_step_that_hides_what_overflowed_is_refused(first: Any, second: Any) -> None:
    """Of a record of 1e308 only NumPy's warning was left."""
    for step in (
        make_pipeline(first, second),
        make_pipeline(
            FeatureUnion([("u", first)]), Normalizer(), mixed(second, sparse_threshold=0)
        ),
    ):
        refused(step, numbers(0.5), "put it first")
    before = make_pipeline(second, first)
    with np.errstate(all="ignore"):
        assert outcome(before, numbers(0.5)) == outcome(before, numbers(0.7))


def test_quiet_functions_warn_of_no_number() -> None:
    wide = [np.finfo(np.float64).max, 5e-324, 0.0, 0.5, 1.0, 2.0, 1e3, np.inf, np.nan]
    for kind in (np.float64, np.float32, np.float16, np.int64, np.int8, np.uint8):
        with np.errstate(all="ignore"):
            values = np.array([*wide, *(-value for value in wide)]).astype(kind)
        for function in (*QUIET, special.log1p, special.expm1, special.exp2, special.expit):
            with np.errstate(all="raise", under="ignore"):
                function(values)


def test_an_encoder_that_warns_of_unknown_categories_is_refused() -> None:
    step = OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore", drop="if_binary")
    refused(step, np.full((N, 1), "a", dtype=object), "warns of unknown categories")


def test_a_hashing_that_calls_a_function_is_refused() -> None:
    step = HashingVectorizer(n_features=4, strip_accents=str.lower)
    refused(step, ["a"] * N, "may remember")


def test_types_of_frames_that_their_reader_infers_change_nothing() -> None:
    """Readers downcast a column whose values all fit: one record decides for all of them."""
    pd = pytest.importorskip("pandas")
    step = FunctionTransformer()
    base = pd.DataFrame({"a": np.arange(N) % 7, "b": (np.arange(N) % 2).astype(float)})
    seen = [
        outcome(step, base.astype(kinds))
        for kinds in (
            {"a": "int64"},
            {"a": "uint8"},
            {"a": "int8"},
            {"a": "uint16"},
            {"a": "Int64", "b": "Float64"},
            {"a": "float32", "b": "float32"},
            {"a": "float16", "b": "Int8"},
            {"a": object, "b": object},
            {"a": "category"},
        )
    ]
    plain = [each[5:] for each in seen]  # the certificate and the model
    assert all(each == plain[0] for each in plain[1:])


@pytest.mark.parametrize(
    "step",
    [
        *STEPS,
        OneHotEncoder(
            categories=[[1, 5], [0, 200], [1, 7]], handle_unknown="ignore", sparse_output=False
        ),
        OrdinalEncoder(
            categories=[[1, 5], [0.0, 200.0], [1, 7]],
            handle_unknown="use_encoded_value",
            unknown_value=-1,
        ),
    ],
)
def test_equal_numbers_of_any_integer_type_give_equal_outputs(step: Any) -> None:
    """One fraction makes a column of integers one of doubles, one 300 a longer integer."""
    whole = np.array([[1, 0, 7], [5, 200, 1], [3, 255, 128], [0, 2, 9]])
    if isinstance(step, SimpleImputer):
        step = clone(step).set_params(fill_value=np.uint8(1))
    expected = np.asarray(sp.csr_array(clone(step).fit_transform(whole.astype(float))).todense())
    for kind in ("uint8", "int16", "uint16", "int32", "int64", "uint64"):
        found = clone(step).fit_transform(whole.astype(kind))
        assert np.array_equal(sp.csr_array(found.astype(float)).todense(), expected), kind


@pytest.mark.parametrize(
    ("step", "match"),
    [
        *((FunctionTransformer(name), "float64") for name in (np.tanh, np.negative, np.abs)),
        (FunctionTransformer(special.log1p), "float64"),
        (FunctionTransformer(special.log1p, kw_args={"dtype": np.float32}), "kw_args"),
        (FunctionTransformer(np.tanh, kw_args={**DOUBLES, "where": True}), "kw_args"),
        (OneHotEncoder(categories=[[0.5, 1.5]] * 3, handle_unknown="ignore"), "whole"),
        (
            OrdinalEncoder(
                categories=[[0, 1.5]] * 3, handle_unknown="use_encoded_value", unknown_value=-1
            ),
            "whole",
        ),
        (
            OneHotEncoder(
                categories=[np.array([0, 1.5], dtype=object)] * 3, handle_unknown="ignore"
            ),
            "whole",
        ),
        (OneHotEncoder(categories=[[0, 1, np.nan]] * 3, handle_unknown="ignore"), "whole"),
        (OneHotEncoder(categories=[["1", "2"]] * 3, handle_unknown="ignore"), "numerals"),
        (OneHotEncoder(categories=[[" 7", "1e3"]] * 3, handle_unknown="ignore"), "numerals"),
        (OneHotEncoder(categories=[[1, 2**53 + 1]] * 3, handle_unknown="ignore"), "numerals"),
        (AdditiveChi2Sampler(), "may learn"),
    ],
)
def test_a_step_whose_numbers_depend_on_the_type_of_the_table_is_refused(
    step: Any, match: str
) -> None:
    """np.negative(1) is 255 of 8 bits; 0.5 was cut to 0, which a column of integers holds."""
    refused(step, numbers(0.5), match)


@pytest.mark.parametrize("kind", [OneHotEncoder, OrdinalEncoder])
@pytest.mark.parametrize("categories", [[1, 2], [1.0, 2.0], ["a", "1"], ["a", None], ["x"]])
def test_a_record_changes_the_type_of_its_column_and_no_other_row(
    kind: Any, categories: Any
) -> None:
    """One "?" makes a column of objects, which numerals matched before and did not match then."""
    known = {"handle_unknown": "ignore", "sparse_output": False}
    if kind is OrdinalEncoder:
        known = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    step = kind(categories=[categories], **known)
    whole = np.array([[1], [2], [1], [2]])
    tables = [whole, whole.astype(float), whole.astype("uint8"), whole.astype(object)]
    other = whole.astype(object)
    other[3] = "?"
    found = []
    for table in (*tables, other):
        try:
            found.append(clone(step).fit_transform(table)[:3].tolist())
        except ValueError:  # texts among the categories: a table of numbers is refused
            assert "a" in categories or "x" in categories
    assert all(each == found[0] for each in found[1:])
    assert len(found) == 5 or "a" in categories or "x" in categories
    settled = make_pipeline(step, PrivateLogisticRegression(1.0, 1e-4, steps=2, classes=[0, 1]))
    certificate_of(settled.fit(np.resize(other, (N, 1)), LABELS))


def test_no_warning_of_a_fit_tells_of_huge_values() -> None:
    """Squares of such values overflow, and a warning told it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        for step in (FunctionTransformer(), Normalizer(), Normalizer("max")):
            for huge in (1e300, 1e308, np.finfo(float).max):
                assert outcome(step, numbers(0.5)) == outcome(step, numbers(huge))
