"""Which steps of a scikit-learn pipeline learn nothing from the records.

A certificate speaks about what was trained; a scaler, imputer or encoder in front of it that was
fitted on the same records releases their statistics, and nothing counts that. So steps are allowed
by name: classes whose ``fit`` looks at nothing but the shape of the table, by exact class (a
subclass may do anything) and only with settings that keep it so. All others are taken to learn.

An allowed step also has an output whose type, shape and columns do not depend on the records, and
emits no warning because of them: an estimator prepares dense tables and not sparse ones, so the
parts of its certificate would show which one it was. And equal numbers give equal outputs whether
the table is of integers or of doubles: readers choose the type of a column by all its records, so
one record could move the outputs of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler
from sklearn.pipeline import FeatureUnion, Pipeline
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

from lastiterate.models.scattering import ScatteringFeatures

CONTAINERS = (Pipeline, FeatureUnion, ColumnTransformer)
QUIET = (
    *(np.absolute, np.arcsinh, np.arctan, np.cbrt, np.ceil, np.deg2rad, np.fabs, np.floor),
    *(np.isfinite, np.isinf, np.isnan, np.logical_not, np.negative, np.positive, np.radians),
    *(np.rint, np.sign, np.signbit, np.tanh, np.trunc),
)
"""Functions of NumPy that warn of no number, infinite ones and nan included."""

EXACT = (
    *(np.ceil, np.fabs, np.floor, np.isfinite, np.isinf, np.isnan, np.logical_not, np.positive),
    *(np.rint, np.sign, np.signbit, np.trunc),
)
"""Functions that neither round nor overflow, whatever type holds the number."""

OVERFLOWING = (
    *(GaussianRandomProjection, PolynomialCountSketch, PolynomialFeatures),
    *(RBFSampler, SparseRandomProjection, SplineTransformer),
)
"""Steps that make infinity or nan of finite numbers, with a warning."""
HIDING = (FunctionTransformer, SimpleImputer, SplineTransformer)
"""Steps that make finite numbers of infinity or nan."""


class Step(NamedTuple):
    """A step that contains no other, where it stands (names joined by "__"), and what it learns.

    ``objection`` is empty for steps that learn nothing and for this package's own, which say
    themselves what they cost. ``undecided``: only its author can know whether it learns.
    """

    path: str
    step: Any
    objection: str = ""
    undecided: bool = False


def steps_of(model: Any, path: str = "") -> Iterator[Step]:
    """Every step of a pipeline, a union or a column transformer, however deep; or the model."""
    if model is None or (isinstance(model, str) and model in ("passthrough", "drop")):
        return
    if type(model) is Pipeline:
        yield from _in_order(model, path)
        return
    if type(model) is FeatureUnion:
        parts = list(model.transformer_list)
    elif type(model) is ColumnTransformer:
        if not _same_output_type(model):
            why = (
                "its output is sparse or dense by how many zeros the records have: set "
                "sparse_threshold=0"
            )
            yield Step(path, model, why)
        # What was fitted, where something was; a remainder of no columns was not.
        parts = []
        for name, step, columns in _columns(model):
            if callable(columns):
                why = "its columns are chosen by a function of the records: list them by name"
                yield Step(_joined(path, name), step, why)
            else:
                parts.append((name, step))
    else:
        yield _judged(model, path)
        return
    for name, step in parts:
        yield from steps_of(step, _joined(path, name))


def own(step: Any) -> bool:
    """Whether the step is this package's, whose ``certificate_`` says what it cost."""
    return type(step).__module__.split(".")[0] == "lastiterate"


def costs(step: Any) -> bool:
    """Whether the step is this package's and learns."""
    return own(step) and type(step) is not ScatteringFeatures


def _columns(model: Any) -> list[tuple[str, Any, Any]]:
    declared = [*model.transformers, ("remainder", model.remainder, [])]
    chosen = {name: columns for name, _, columns in declared}  # as declared, not as resolved
    fitted = getattr(model, "transformers_", declared)
    return [(name, step, chosen.get(name, columns)) for name, step, columns in fitted]


def _in_order(pipeline: Any, path: str) -> Iterator[Step]:
    """The steps of a `Pipeline`; what hides numbers that overflowed before is refused.

    NumPy warns where one overflows, and the estimator then refuses the table, unless a step in
    between makes a number of it: then the warning alone would tell of the record.
    """
    overflows = False
    for name, part in pipeline.steps:
        steps = list(steps_of(part, _joined(path, name)))
        for each in steps:
            hides = type(each.step) in HIDING and getattr(each.step, "func", "") is not None
            if overflows and hides and not each.objection:
                why = "it hides numbers that overflow in a step before it: put it first"
                each = each._replace(objection=why)
            yield each
        overflows = overflows or any(type(each.step) in OVERFLOWING for each in steps)


def _same_output_type(model: Any) -> bool:
    """Whether a `ColumnTransformer` makes dense or sparse tables whatever the records are.

    scikit-learn makes a sparse table if any part is sparse and the share of stored cells is below
    the threshold: never below 0. It is below 1 where some cell of every row is not stored, as of a
    sparse `OneHotEncoder` with two categories for a column; hashed texts may fill every cell.
    """
    if model.sparse_threshold == 0:
        return True
    encoders = [step for _, step, _ in _columns(model) if type(step) is OneHotEncoder]
    leave_cells = (
        each.sparse_output
        and each.drop is None
        and any(len(categories) > 1 for categories in getattr(each, "categories_", ()))
        for each in encoders
    )
    return bool(model.sparse_threshold == 1) and any(leave_cells)


def _joined(path: str, name: str) -> str:
    return f"{path}__{name}" if path else name


def _judged(step: Any, path: str) -> Step:
    if own(step):
        return Step(path, step)
    learns = ALLOWED.get(type(step))
    if learns is None:
        from_scikit_learn = type(step).__module__.split(".")[0] == "sklearn"
        frozen = type(step).__name__ == "FrozenEstimator" and from_scikit_learn
        what = "it was fitted somewhere before, on records that nobody named" if frozen else ""
        what = what or "it may learn from the records, and nothing counts what that costs"
        return Step(path, step, what, undecided=frozen or not from_scikit_learn)
    objection = learns(step)
    undecided = type(step) in (FunctionTransformer, HashingVectorizer)
    return Step(path, step, objection, undecided and bool(objection))


def _nothing(step: Any) -> str:
    return ""


def _function(step: Any) -> str:
    """A ufunc of NumPy or SciPy maps every number by itself; other functions may do anything."""
    if step.func is None:
        return ""
    name = getattr(step.func, "__name__", "")
    known = isinstance(step.func, np.ufunc) and step.func.nin == step.func.nout == 1
    if not known or step.func not in (getattr(np, name, None), getattr(special, name, None)):
        return "its function may look at all records at once"
    if step.func not in (*QUIET, getattr(special, name, None)):
        return (
            "NumPy warns where a record is outside of the domain of its function: use a function "
            "of scipy.special (log1p, expm1, exp2), np.arcsinh or np.cbrt"
        )
    settings = dict(step.kw_args or {})
    in_doubles = settings.pop("dtype", None) in (np.float64, float, "float64")
    if settings or (step.kw_args and not in_doubles):
        return "its kw_args change what the function does"
    if step.func not in EXACT and not in_doubles:
        return (
            "its numbers depend on the integer type of the table, which readers choose by the "
            'records (np.tanh of 8 bits has 11): set kw_args={"dtype": np.float64}'
        )
    if step.inverse_func is not None and step.check_inverse:
        return "it tries the inverse on the records and warns: set check_inverse=False"
    return ""


def _hashing(step: Any) -> str:
    given = (step.preprocessor, step.tokenizer, step.analyzer, step.strip_accents)
    return "a function of its own may remember" if any(callable(each) for each in given) else ""


def _encoder(step: Any) -> str:
    if isinstance(step.categories, str):
        return "it learns the categories: declare all of them, categories=[[...], ...]"
    if any(map(_read_as_others, step.categories)):
        return (
            "a table of numbers reads its categories as other values (fractions are cut, numerals "
            "are numbers), one of objects does not, and readers choose by the records: declare "
            "whole numbers, or texts that are no numerals"
        )
    if step.min_frequency is not None or step.max_categories is not None:
        return "it counts how often categories occur (min_frequency, max_categories)"
    if step.handle_unknown not in ("error", "ignore", "use_encoded_value"):
        return "it treats rare categories apart (handle_unknown)"
    if step.handle_unknown == "ignore" and getattr(step, "drop", None) is not None:
        return "it warns of unknown categories: leave drop= out"
    return ""


def _read_as_others(categories: Any) -> bool:
    """Whether a table of integers or doubles would read other categories than the declared."""
    values = np.asarray(categories, dtype=object).ravel()
    try:
        doubles = values.astype(np.float64)
    except (TypeError, ValueError):  # texts among them: a table of numbers refuses them
        return False
    try:
        integers = values.astype(np.int64)
    except (TypeError, ValueError, OverflowError):  # nan, infinity
        return True
    return bool(np.any(values != doubles) or np.any(values != integers))


def _imputer(step: Any) -> str:
    constant = step.strategy == "constant" and step.fill_value is not None
    if constant and step.keep_empty_features and not step.add_indicator:
        return ""
    return (
        'it learns from the records: fill by strategy="constant" with a public fill_value, '
        "keep_empty_features=True and no indicator"
    )


def _normalizer(step: Any) -> str:
    if step.norm == "l1":  # the others overflow without a word, and the row becomes 0
        return 'NumPy warns where the sum of a record overflows: use norm="l2" or "max"'
    return ""


def _fourier(step: Any) -> str:
    if isinstance(step.gamma, str):
        return "it measures how far values are spread: give gamma as a number"
    return ""


def _splines(step: Any) -> str:
    if isinstance(step.knots, str):
        return "it learns where values lie: give knots as numbers"
    return ""


ALLOWED: dict[type, Callable[[Any], str]] = {
    Binarizer: _nothing,
    FeatureHasher: _nothing,
    FunctionTransformer: _function,
    GaussianRandomProjection: _nothing,  # drawn for the number of columns, and of records at most
    HashingVectorizer: _hashing,
    Normalizer: _normalizer,
    OneHotEncoder: _encoder,
    OrdinalEncoder: _encoder,
    PolynomialCountSketch: _nothing,
    PolynomialFeatures: _nothing,
    RBFSampler: _fourier,
    SimpleImputer: _imputer,
    SparseRandomProjection: _nothing,
    SplineTransformer: _splines,
}
"""Exact classes, and what a step of that class learns by its settings ("" for nothing)."""
