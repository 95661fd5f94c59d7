"""Preparation that is paid for: one promise for ranges, scales and the model together."""

from __future__ import annotations

import math
import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

from lastiterate import account
from lastiterate.certificate import verify
from lastiterate.curves import gaussian
from lastiterate.description import Training
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.models import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
    tune,
)
from lastiterate.models.confidence import SCALES, sharpened
from lastiterate.models.preparation import (
    Promise,
    _one_hot,
    found_ranges,
    longest_row,
    prepared,
)
from lastiterate.verifier.refusals import TamperedCertificateError


def raw(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different sizes."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 4))
    y = (z[:, 1] - z[:, 0] > 0).astype(int)
    return z * [1e-3, 1.0, 1e4, 20.0] + [5e-3, 0.0, 1e5, -300.0], y


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_record_is_one_per_column_whatever_its_values(
    seed: int, columns: int, closed: bool
) -> None:
    """So no record moves the mean of n rows by more than the root of the columns over n."""
    rng = np.random.default_rng(seed)
    hostile = [0.0, -0.0, 1e308, -1e308, 5e-324, -5e-324, 1.0, 0.5, 2.0**41, 1e-30, -7.0, 3e5]
    X = rng.choice(hostile, (20, columns)) * rng.choice([1.0, rng.random()], (20, columns))
    rows = _one_hot(X, np.ones(columns), closed).toarray()
    assert set(np.unique(rows)) == {0.0, 1.0}
    assert (rows.reshape(20, columns, -1).sum(axis=2) == 1).all()


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_ranges_hold_the_bulk_and_are_no_wider_than_a_power_of_two(seed: int) -> None:
    rng = np.random.default_rng(seed)
    middle, width = 10.0 ** rng.uniform(-4, 6) * rng.choice([-1, 0, 1]), 10.0 ** rng.uniform(-4, 6)
    X = rng.uniform(middle - width, middle + width, (5000, 2))
    X[0] = 1e300  # nobody's single value widens them
    low, high, run, certificate = found_ranges(X, 1.0, 1e-6, "zero-out", 0)
    assert certificate is None
    assert ((low <= X) & (high >= X)).mean() > 0.93
    reach = 2 * np.abs(X[1:]).max(axis=0)
    assert (low >= -reach).all()
    assert (high <= reach).all()
    assert run.gradient_norm >= math.sqrt(2)


@pytest.mark.parametrize(("closed", "ends"), [(True, [1.0, 16.0]), (False, [2.0, 32.0])])
def test_a_power_of_two_ends_its_bin_or_begins_the_next(closed: bool, ends: list[float]) -> None:
    """Of classes truths are [0, 1] and counts to sixteen [0, 16], of numbers twice that."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 4000), rng.integers(0, 17, 4000)])
    for sign in (1.0, -1.0):
        low, high, *_ = found_ranges(sign * X, 1.0, 1e-5, "zero-out", 0, closed=closed)
        near, far = (low, high) if sign > 0 else (-high, -low)
        assert far.tolist() == ends
        assert (np.abs(near) < 1e-6).all()


def test_constant_and_empty_columns_have_a_range() -> None:
    X = np.tile([0.0, 3.0, -1e300, 1e-300], (500, 1))
    low, high, *_ = found_ranges(X, 1.0, 1e-4, "replace", 0)
    assert (low < high).all()
    assert low[1] <= 3 <= high[1]
    few = found_ranges(X[:3], 0.01, 1e-4, "replace", 0)  # nothing is above the noise
    assert (few[0] < few[1]).all()


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(
    ("epsilon", "more"), [(0.2, {}), (1.0, {"batch_size": 10**6, "steps": 30}), (5.0, {})]
)
def test_all_three_together_keep_the_promise(
    adjacency: str, epsilon: float, more: dict[str, Any]
) -> None:
    X, y = raw(600)
    model = PrivateLogisticRegression(
        epsilon, 1e-4, prepare="scale", classes=[0, 1], adjacency=adjacency, **more
    ).fit(X, y)
    certificate = model.certificate_
    assert certificate is not None
    assert len(certificate.parts) == 3
    assert certificate.delta == 1e-4
    assert 0.98 * epsilon < certificate.epsilon <= epsilon
    assert verify(certificate, parameters=model.parameters_).epsilon <= epsilon * (1 + 1e-9)
    with pytest.raises(TamperedCertificateError):
        verify(certificate, parameters={**model.parameters_, "coef_": model.coef_ + 1e-9})
    assert certificate.epsilon > account(model.training_, model.loss_).epsilon(1e-4)
    assert "preparation" in str(model.choice_)


@pytest.mark.parametrize("epsilon", [1e-3, 2e-5, 3e-7])
def test_a_small_promise_is_kept_too(epsilon: float) -> None:
    """Before: a certificate of 1.02e-5 where 1e-5 was promised."""
    X, y = raw(50)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="So few records")
        model = PrivateRidge(epsilon, 1e-12, target_range=(0, 1), steps=3).fit(X, y)
    assert len(model.certificate_.parts) == 3
    assert 0.9 * epsilon < model.certificate_.epsilon <= epsilon


def test_raw_columns_make_a_model() -> None:
    X, y = load_breast_cancer(return_X_y=True)

    def score(**more: Any) -> float:
        models = (PrivateLogisticRegression(1.0, 1e-5, random_state=k, **more) for k in range(3))
        return float(np.mean([model.fit(X, y).score(X, y) for model in models]))

    assert score() > 0.88 > 0.8 > score(prepare=None)
    X, y = raw(4000)
    model = PrivateLogisticRegression(1.0, 1e-5, random_state=0).fit(X, y)
    assert model.score(*raw(1000, seed=1)) > 0.95
    ridge = PrivateRidge(1.0, 1e-5, random_state=0, target_range=(-4, 4))
    assert ridge.fit(X, X[:, 1]).score(X, X[:, 1]) > 0.8


def test_the_shares_follow_public_numbers_alone() -> None:
    def share(n: int, shift: float = 0.0) -> float:
        X, _ = raw(n)
        promise = Promise(1.0, 1e-5, "zero-out", 0, whiten=False)
        found = prepared(X + shift, np.full(4, -np.inf), np.full(4, np.inf), None, promise)
        return (found.mu / gaussian.mu(1.0, 1e-5)) ** 2

    assert share(100) == pytest.approx(0.2, rel=1e-2)
    assert share(700) == pytest.approx(0.2, rel=1e-2)
    assert share(40_000) < 0.05
    assert share(2000) == share(2000, shift=1e6)


def test_seeded_mechanisms_have_noise_of_their_own() -> None:
    """Before: a seeded scaler and its model drew the same numbers, with a correlation of .9."""
    X, y = np.zeros((100, 2)), np.arange(100) % 2
    told = {"feature_range": (-1.0, 1.0), "fit_intercept": False, "steps": 1, "batch_size": 100}
    told["curved"] = False
    found = []
    for seed in range(15):
        model = PrivateLogisticRegression(4.0, 1e-3, classes=[0, 1], prepare="scale", **told)
        model.set_params(random_state=seed).fit(X, y)
        found.append([*model.prepare_.mean_, *model.coef_[0]])
    assert abs(np.corrcoef(np.transpose(found))[:2, 2:]).max() < 0.8


def test_the_same_model_after_a_copy() -> None:
    X, y = raw(400)
    model = PrivateLogisticRegression(2.0, 1e-4, prepare="auto", random_state=3, steps=10)
    fitted = clone(model).fit(X, y)
    for other in (pickle.loads(pickle.dumps(fitted)), clone(fitted).fit(X, y)):
        assert (other.predict_proba(X) == fitted.predict_proba(X)).all()
    fitted.set_params(prepare=None).fit(X, y)  # what an older fit spent is not counted again
    assert fitted.training_ == clone(model).set_params(prepare=None).fit(X, y).training_


def test_where_nothing_can_be_paid_columns_stay_and_the_choice_says_why() -> None:
    X, y = raw(100)
    model = PrivateLogisticRegression(1.0, 1e-4, steps=4, classes=[0, 1], random_state=0)
    plain = clone(model).set_params(prepare=None)
    ways: dict[str, Any] = {
        "sparse table": lambda each: each.fit(sp.csr_array(X), y),
        "by the person": lambda each: each.set_params(max_records_per_group=2).fit(
            X, y, groups=np.arange(100) // 2
        ),
        "read once": lambda each: each.fit_stream(iter([(X, y)]), batches=1, batch_size=100),
        "feature_bound": lambda each: each.set_params(feature_bound=2.0).fit(X, y),
    }
    for why, fit in ways.items():
        fitted = fit(clone(model))
        assert why in str(fitted.choice_)
        np.testing.assert_array_equal(fitted.coef_, fit(clone(plain)).coef_)
    tuned = tune(model.set_params(random_state=None), {"regularization": [0.1]}, X, y)
    assert "pays for its trials alone" in str(tuned.model.choice_)


def test_declared_ranges_are_free_wherever_nothing_can_be_paid() -> None:
    X, y = raw(100)
    low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
    model = PrivateLogisticRegression(1.0, 1e-4, steps=4, classes=[0, 1], random_state=0)
    mapped = 2 * (X - low) / (high - low) - 1
    declared = clone(model).set_params(feature_range=(low, high))
    told = {"batches": 1, "batch_size": 100}
    for one, other in [
        (
            declared.fit_stream(iter([(X, y)]), **told),
            clone(model).fit_stream(iter([(mapped, y)]), **told),
        ),
    ]:
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)
        np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(mapped), rtol=1e-9)
    some = sp.csr_array(np.where(X.mean(axis=0) < X, X, 0.0))
    scaled = clone(declared).fit(some, y)
    longest = np.maximum(abs(low), abs(high))
    alone = clone(model).fit(sp.csr_array(some.toarray() / longest), y)
    np.testing.assert_allclose(scaled.coef_, alone.coef_, rtol=1e-9)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8, np.uint16, np.int16])
def test_types_are_ranges(kind: Any) -> None:
    """What is public is not paid for: one mechanism less, and none if it would drown."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (3000, 3)).astype(kind)
    y = X[:, 0].astype(int)
    said = None if kind is bool else "dtype"
    model = PrivateLogisticRegression(
        1.0, 1e-4, classes=[0, 1], steps=20, prepare="scale", feature_range=said
    )
    assert len(model.fit(X, y).certificate_.parts) == 2
    assert len(model.fit(pd.DataFrame(X), y).certificate_.parts) == 2
    assert len(model.fit(X.astype(float), y).certificate_.parts) == 3
    assert not model.set_params(epsilon=0.05).fit(X[:100], y[:100]).certificate_.parts
    assert "declared ranges alone" in str(model.choice_)
    mixed = pd.DataFrame({"a": X[:, 0], "b": rng.normal(size=3000)})
    assert len(model.set_params(epsilon=1.0).fit(mixed, y).certificate_.parts) == 3
    low, high = ([0.0, -9.0], [1.0, 9.0]) if said else ([-np.inf, -9.0], [np.inf, 9.0])
    declared = clone(model).set_params(feature_range=(low, high))
    assert len(declared.fit(mixed, y).certificate_.parts) == 2


@pytest.mark.parametrize("frame", [False, True])
def test_a_narrow_type_is_no_range_unless_it_is_said_to_be_public(frame: bool) -> None:
    """One value above 255 kept a column from being downcast, and a part more was paid for."""
    rng = np.random.default_rng(0)
    column = pd.Series(rng.integers(0, 200, 3000))
    other = column.copy()
    other.iloc[-1] = 300
    y = (column > 100).astype(int)
    model = PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1], steps=20, prepare="scale")
    parts, kinds = [], []
    for each in (column, other):
        narrow = pd.to_numeric(each, downcast="unsigned")
        X = narrow.to_frame("a") if frame else narrow.to_numpy()[:, None]
        kinds.append(str(narrow.dtype))
        parts.append(len(model.fit(X, y).certificate_.parts))
    assert kinds == ["uint8", "uint16"]
    assert parts[0] == parts[1] == 3


@pytest.mark.parametrize(
    "told", [(1.0, 0.0), (0.0, math.nan), 3, "type", (0.0, 1.0, 2.0), ([0.0] * 3, 1.0), ("a", "b")]
)
def test_a_range_that_is_none_is_refused(told: Any) -> None:
    X, y = raw(60)
    with pytest.raises(DescriptionError, match=r"low, high|feature_range"):
        PrivateLogisticRegression(1.0, 1e-4, feature_range=told).fit(X, y)


def test_columns_that_public_ranges_show_to_be_lost_are_told() -> None:
    X, y = raw(60)
    wide = {"feature_range": (-1e6, 1e6), "prepare": None}
    uneven = {"feature_range": ([-1.0] * 4, [1.0, 1.0, 1.0, 1e4]), "prepare": None}
    model = PrivateLogisticRegression(1.0, 1e-4, steps=4, classes=[0, 1], random_state=0)
    with pytest.warns(UserWarning, match="shortened"):
        clone(model).set_params(feature_bound=2.0, **wide).fit(X, y)
    with pytest.warns(UserWarning, match="wide"):
        clone(model).set_params(**uneven).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).set_params(**wide).fit(X, y)
        clone(model).set_params(prepare=None).fit(1e9 * X, y)  # nothing is read off the records


def test_the_range_of_targets_is_found_and_paid_for() -> None:
    X, _ = raw(4000)
    X = np.column_stack([X, X[:, 1] > 0])
    y = 1000 + 50 * X[:, 1]
    ridge = PrivateRidge(1.0, 1e-5, prepare="scale").fit(X, y)
    assert ridge.prepare_.scaler.high[-1] == 2.0
    low, high = ridge.target_range_
    assert 512 < low < 900
    assert 1100 < high < 1500
    assert ridge.score(X, y) > 0.8
    assert len(ridge.certificate_.parts) == 3
    assert 0.98 < ridge.certificate_.epsilon <= 1.0
    assert verify(ridge.certificate_).epsilon <= 1.0
    alone = PrivateRidge(1.0, 1e-5, feature_bound=3.0).fit(X / [1.0, 1.0, 1e5, 300.0, 1.0], y)
    assert len(alone.certificate_.parts) == 3
    assert alone.target_range_[0] < 1000 < alone.target_range_[1]
    assert "prepare_" not in vars(alone)
    exact = PrivateRidge(math.inf).fit(X, y)
    assert exact.target_range_ == (y.min(), y.max())
    assert exact.certificate_ is None
    with pytest.warns(UserWarning, match="declare feature_range and target_range"):
        PrivateRidge(0.05, 1e-5, random_state=0).fit(X[:200], y[:200])
    with pytest.warns(UserWarning, match=r"clipped to \[-1, 1\]"):
        PrivateRidge(1.0, 1e-5, prepare=None, random_state=0, steps=2).fit(X, y)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_no_neighbour_moves_the_released_means_further_than_is_paid_for(adjacency: str) -> None:
    """The two mechanisms without their noise, on random records and hostile ones."""
    rng = np.random.default_rng(1)
    hostile = [0.0, 1e308, -1e308, 5e-324, 1.0, -7.0, 3e5, 2.0**40]
    for _ in range(100):
        columns = int(rng.integers(1, 6))
        X = rng.choice(hostile, (5, columns)) * rng.choice([1.0, 0.3], (5, columns))
        weights = rng.uniform(0.5, 3.0, columns)
        scaler = PrivateStandardScaler(low=-rng.random(columns) * 10, high=rng.random(columns) * 10)
        scaler.n_features_in_ = columns
        one_hot = _one_hot(X, weights, closed=True).toarray()
        bins, statistics = np.linalg.norm(weights), math.sqrt(1.25 * columns)
        for rows, longest in ((one_hot, bins), (scaler._contributions(X), statistics)):
            neighbour = rows.copy()
            neighbour[0] = 0.0 if adjacency == "zero-out" else rows[1]
            moved = np.linalg.norm(rows.mean(axis=0) - neighbour.mean(axis=0))
            assert moved <= (1 if adjacency == "zero-out" else 2) * longest / 5 * (1 + 1e-12)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateSoftmaxRegression])
def test_the_exact_law_of_all_five_releases_is_within_the_certificate(
    kind: Any, adjacency: str
) -> None:
    """Ranges, scales, whitening, a model of one step, calibration: each is Gaussian given those
    before it, so that two tables differ by the root of the sum of (distance / noise) squared. Of
    the bends, which are computed of released numbers, nothing is added.
    """
    rng, n, d = np.random.default_rng(0), 4000, 2
    X, y = rng.normal(3.0, 1.0, (n, d)), rng.integers(0, 3, n)
    how = {"steps": 1, "batch_size": n, "calibrate": True, "adjacency": adjacency}
    model = kind(2.0, 1e-4, classes=[0, 1, 2], **how).fit(X, y)
    assert len(model.certificate_.parts) == 5
    bent, step, objective = model.prepare_, model.training_, model._objective()
    white = bent.inner
    far = rng.choice([0.0, 1e308, -1e308, 1e-300, 1.0, 3.0, -7.0, 2.0**41], (60, d))
    far, labels = np.vstack([far, X[:20]]), rng.integers(0, 3, 80)
    bins = _one_hot(far, np.ones(d), closed=True).toarray()
    unit = white._rows(far)
    rows = np.asarray(model._rows.of(bent.transform(far)))
    slopes = objective.slope(np.zeros((80, 3)), model._targets(labels))
    linked = model._linked(far)
    right = model.classes_[linked.argmax(axis=1)] == labels
    told = [right - sharpened(linked, scale).max(axis=1) for scale in SCALES]
    ranges = model.certificate_.parts[0].training
    releases: list[tuple[Any, Training]] = [
        (bins, ranges),
        (white.scaler._contributions(far), white.scaler.training_),
        ((unit[:, :, None] * unit[:, None, :]), white.training_),
        (rows[:, :, None] * slopes[:, None, :] * float(step.step_sizes[0]), step),
        (np.column_stack(told), model._mechanism),
    ]
    total = np.zeros((80, 80))
    for contributions, run in releases:
        flat = contributions.reshape(80, -1)
        others = flat if adjacency == "replace" else np.zeros_like(flat)
        moved = np.linalg.norm(flat[:, None] - others[None], axis=2)
        total += (moved / n / float(run.noises[0])) ** 2
    paid = gaussian.mu(model.certificate_.epsilon, 1e-4)
    assert 0.5 * paid < math.sqrt(total.max()) <= paid


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_the_exact_law_of_a_regression_that_bends_is_within_the_certificate(adjacency: str) -> None:
    """Ranges and scales of columns and targets, and a model of one step of rows that bend."""
    rng, n, d = np.random.default_rng(0), 1000, 3
    X = rng.normal(3.0, 1.0, (n, d))
    how = {"steps": 1, "batch_size": n, "adjacency": adjacency, "curved": True}
    model = PrivateRidge(2.0, 1e-4, **how).fit(X, X[:, 0] ** 2)
    first, second, _ = model.certificate_.parts
    step, found = model.training_, model._preparation.found
    far = rng.choice([0.0, 1e308, -1e308, 1e-300, 1.0, 3.0, -7.0, 2.0**41], (80, d + 1))
    far[:20] = np.column_stack([X, X[:, 0] ** 2])[:20]
    scaler = PrivateStandardScaler(low=found[0], high=found[1])
    scaler.n_features_in_ = d + 1
    rows = np.asarray(model._rows.of(model._prepared(far[:, :d])))
    assert rows.shape == (80, 5 * d + 1)
    slopes = model._objective().slope(np.zeros(80), model._targets(far[:, d]))
    releases = [
        (_one_hot(far, np.array([1.0, 1.0, 1.0, 3.0]), closed=False).toarray(), first.training),
        (scaler._contributions(far), second.training),
        (rows * slopes[:, None] * float(step.step_sizes[0]), step),
    ]
    total = np.zeros((80, 80))
    for each, run in releases:
        others = each if adjacency == "replace" else np.zeros_like(each)
        moved = np.linalg.norm(each[:, None] - others[None], axis=2)
        total += (moved / n / float(run.noises[0])) ** 2
    paid = gaussian.mu(model.certificate_.epsilon, 1e-4)
    assert 0.9 * paid < math.sqrt(total.max()) <= paid


def test_what_may_learn_without_paying_is_refused() -> None:
    X, y = raw(100)
    model = PrivateLogisticRegression(1.0, 1e-4, prepare="auto", steps=4)
    with pytest.raises(UnsupportedError, match="smaller delta"):
        clone(model).set_params(epsilon=1e-6, classes=[0, 1]).fit(X, y)
    with pytest.raises(UnsupportedError, match="auto"):
        clone(model).set_params(prepare="best").fit(X, y)


@pytest.mark.filterwarnings("ignore:So few records")
@pytest.mark.parametrize(
    "X",
    [
        np.full((40, 3), 7.0),
        np.full((40, 2), 1e308),
        np.full((40, 2), 2**60 + 1),
        np.zeros((40, 2), np.float32),
        np.random.default_rng(0).normal(size=(3, 40)),
        np.random.default_rng(0).normal(size=(40, 2)).astype(object),
        np.resize([True, False, False], (40, 2)),
        np.array([[1e308, -1e308], [5e-324, 0.0]] * 20),
    ],
)
def test_any_table_of_numbers_is_taken(X: Any) -> None:
    y = np.arange(len(X)) % 2
    for model in (
        PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1], random_state=0, steps=5),
        PrivateRidge(1.0, 1e-4, random_state=0, steps=5),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert np.isfinite(model.fit(X, y).predict(X).astype(float)).all()


def test_nothing_is_spent_on_labels_that_are_refused() -> None:
    X, y = raw(60)
    model = PrivateLogisticRegression(1.0, 1e-4, prepare="auto", classes=[0, 1], steps=4).fit(X, y)
    for labels in (y + 7, np.where(np.arange(60) == 3, 2, y)):
        with pytest.raises(DescriptionError, match="declared classes"):
            model.fit(X, labels)
        assert not hasattr(model, "prepare_")  # neither a new one nor that of the older fit


def test_a_huge_value_is_clipped_without_a_word() -> None:
    """A warning of overflow would tell that the value is there."""
    X, y = raw(60)
    X[0] = 1.7e308
    narrow = PrivateStandardScaler(0.1, 1e-4, low=-1e-5, high=1e-5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        scaler = narrow.fit(X)
        assert np.isfinite(scaler.transform(X)).all()
        model = PrivateLogisticRegression(1.0, 1e-4, prepare="auto", random_state=0, steps=4)
        assert np.isfinite(model.fit(X, y).coef_).all()


def test_few_records_of_many_declared_columns_are_drawn_together() -> None:
    """What columns have in common is worth paying for, where none of them is known by itself."""
    X = (np.random.default_rng(0).random((400, 200)) < 0.1).astype(bool)
    model = PrivateLogisticRegression(0.5, 1e-4, classes=[0, 1], random_state=0, steps=2)
    scaler = model.fit(X, X[:, 0]).prepare_
    for each in (scaler, scaler.again(X.astype(float), None, 1)):
        assert float(each.training_.noises[0]) / 2 > 0.2  # on each mean
        assert each.mean_ == pytest.approx(0.1, abs=0.08)
    assert "means and deviations" in str(model.choice_)


@pytest.mark.parametrize("n", [200, 5000])
def test_what_an_audit_draws_anew_is_prepared_as_it_was(n: int) -> None:
    X, _ = raw(n)
    model = PrivateRidge(4.0, 1e-5, target_range=(-4, 4), steps=2, random_state=0, curved=False)
    model.fit(X, X[:, 1])
    again = model.prepare_.again(X, None, 1)
    np.testing.assert_allclose(again.scale_, model.prepare_.scale_, rtol=0.4)
    assert again.bound == model.prepare_.bound >= 2.0
    usual = np.sqrt(np.mean((model.prepare_.transform(X) ** 2).sum(axis=1)))
    assert usual == pytest.approx(2.0, rel=0.25)
    assert np.linalg.norm(model._rows.of(model._prepared(X))[:, :-1], axis=1).max() <= again.bound


def test_an_epsilon_beyond_all_numbers_is_refused_in_words() -> None:
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(UnsupportedError, match="epsilon=inf"):
        PrivateLogisticRegression(1e200, 1e-5, classes=[0, 1]).fit(X, y)


def test_a_bound_without_a_length_is_refused() -> None:
    with pytest.raises(DescriptionError, match="longest"):
        PrivateStandardScaler(1.0, 1e-5, longest=2.0).fit(np.zeros((10, 1)))
    with pytest.raises(DescriptionError, match="together"):
        PrivateStandardScaler(1.0, 1e-5, together="no").fit(np.zeros((10, 1)))


@pytest.mark.parametrize("longest", [math.nan, math.inf, 0.0, -1.0, 1e300, "2"])
def test_a_bound_that_bounds_nothing_is_refused_before_anything_is_paid(longest: Any) -> None:
    scaler = PrivateStandardScaler(1.0, 1e-5, row_norm=1.0, longest=longest)
    with pytest.raises(DescriptionError, match="longest"):
        scaler.fit(np.zeros((10, 1)))
    assert not hasattr(scaler, "training_")


# --- without noise --------------------------------------------------------------------------------


def test_without_noise_columns_are_prepared_exactly() -> None:
    """Before: columns as they came, .907 on this table and .526 on columns of 1e-3 to 1e3."""
    X, y = load_breast_cancer(return_X_y=True)
    assert PrivateLogisticRegression(math.inf, steps=4000).fit(X, y).score(X, y) > 0.981
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((500, 7))
    labels = (Z @ rng.standard_normal(7) > 0).astype(int)
    model = PrivateLogisticRegression(math.inf, steps=2000).fit(
        Z * 10.0 ** np.arange(-3, 4), labels
    )
    assert model.score(Z * 10.0 ** np.arange(-3, 4), labels) > 0.97
    assert "exact means and deviations" in str(model.choice_)
    assert model.certificate_ is None
    constant = np.column_stack([Z[:, 0], np.full(500, 3.0)])
    ridge = PrivateRidge(math.inf, curved=False).fit(constant, 100 * Z[:, 0])
    assert ridge.score(constant, 100 * Z[:, 0]) > 0.999


def test_without_noise_a_run_that_stops_early_warns() -> None:
    X, y = raw(300)
    with pytest.warns(ConvergenceWarning, match="steps="):
        PrivateLogisticRegression(math.inf, steps=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        PrivateLogisticRegression(math.inf).fit(X, y)
        PrivateLogisticRegression(5.0, 1e-4, steps=2, classes=[0, 1]).fit(X, y)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateRidge])
def test_without_noise_weights_of_zero_alone_are_refused_as_by_scikit_learn(kind: Any) -> None:
    """With noise they are private, and such a fit must look like any other."""
    X, y = raw(100)
    with pytest.raises(ValueError, match="weight"):
        kind(math.inf).fit(X, y, sample_weight=np.zeros(100))
    told: dict[str, Any] = {"steps": 2, "prepare": None}
    told |= {"target_bound": 1.0} if kind is PrivateRidge else {"classes": [0, 1]}
    kind(1.0, 1e-4, **told).fit(X, y, sample_weight=np.zeros(100))


# --- rows of regressions --------------------------------------------------------------------------


def test_a_regression_of_one_column_does_not_saturate() -> None:
    """Before: rows were shortened to their usual length; all x beyond .75 had one prediction."""
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    how: dict[str, Any] = {"curved": False, "target_range": (-1, 1), "random_state": 0}
    ridge = PrivateRidge(1e4, 1e-5, **how).fit(x, x[:, 0])
    assert ridge.score(x, x[:, 0]) > 0.999
    ends = ridge.predict(np.array([[0.75], [1.0], [-1.0]]))
    assert ends == pytest.approx([0.75, 1.0, -1.0], abs=0.02)
    certified = PrivateRidge(1e4, 1e-5, curved=False, target_range=(-1, 1), steps=10).fit(
        x, x[:, 0]
    )
    assert certified.certificate_.epsilon <= 1e4
    assert certified.training_.gradient_norm > ridge._objective().gradient_norm(math.sqrt(5))


def test_rows_are_as_long_as_usual_where_noise_matters() -> None:
    promise = Promise(0.5, 1e-5, "zero-out", 0, row_norm=2.0)
    assert longest_row(1000, 10, promise) == 2.0
    longer = [longest_row(n, 4, promise) for n in (10**3, 10**4, 10**5, 10**6)]
    assert longer == sorted(longer)
    assert longest_row(10**6, 4, replace(promise, row_norm=None)) is None
