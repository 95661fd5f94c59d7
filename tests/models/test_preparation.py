"""Preparation that is paid for: one promise for ranges, scales and the model together."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer

from lastiterate import account
from lastiterate.certificate import verify
from lastiterate.curves import gaussian
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.models import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateStandardScaler,
    tune,
)
from lastiterate.models.preparation import _one_hot, found_ranges, prepared
from lastiterate.models.saved import _numbers


def raw(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different sizes."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 4))
    y = (z[:, 1] - z[:, 0] > 0).astype(int)
    return z * [1e-3, 1.0, 1e4, 20.0] + [5e-3, 0.0, 1e5, -300.0], y


@given(st.integers(0, 10**6), st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_a_record_is_one_per_column_whatever_its_values(seed: int, columns: int) -> None:
    """So no record moves the mean of n rows by more than the root of the columns over n."""
    rng = np.random.default_rng(seed)
    hostile = [0.0, -0.0, 1e308, -1e308, 5e-324, -5e-324, 1.0, 0.5, 2.0**41, 1e-30, -7.0, 3e5]
    X = rng.choice(hostile, (20, columns)) * rng.choice([1.0, rng.random()], (20, columns))
    rows = _one_hot(X).toarray()
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


def test_constant_and_empty_columns_have_a_range() -> None:
    X = np.tile([0.0, 3.0, -1e300, 1e-300], (500, 1))
    low, high, *_ = found_ranges(X, 1.0, 1e-4, "replace", 0)
    assert (low < high).all()
    assert low[1] <= 3 <= high[1]
    few = found_ranges(X[:3], 0.01, 1e-4, "replace", 0)  # nothing is above the noise
    assert (few[0] == -1).all()
    assert (few[1] == 1).all()


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(
    ("epsilon", "more"), [(0.2, {}), (1.0, {"batch_size": 10**6, "steps": 30}), (5.0, {})]
)
def test_all_three_together_keep_the_promise(
    adjacency: str, epsilon: float, more: dict[str, Any]
) -> None:
    X, y = raw(600)
    model = PrivateLogisticRegression(
        epsilon, 1e-4, prepare="auto", classes=[0, 1], adjacency=adjacency, **more
    ).fit(X, y)
    certificate = model.certificate_
    assert certificate is not None
    assert len(certificate.parts) == 3
    assert certificate.delta == 1e-4
    assert 0.98 * epsilon < certificate.epsilon <= epsilon
    assert verify(certificate).epsilon <= epsilon * (1 + 1e-9)
    assert certificate.epsilon > account(model.training_, model.loss_).epsilon(1e-4)
    assert "preparation" in str(model.choice_)


def test_raw_columns_make_a_model() -> None:
    X, y = load_breast_cancer(return_X_y=True)

    def score(**more: Any) -> float:
        models = (PrivateLogisticRegression(1.0, 1e-5, random_state=k, **more) for k in range(3))
        return float(np.mean([model.fit(X, y).score(X, y) for model in models]))

    assert score(prepare="auto") > 0.88 > 0.8 > score()
    X, y = raw(4000)
    model = PrivateLogisticRegression(1.0, 1e-5, prepare="auto", random_state=0).fit(X, y)
    assert model.score(*raw(1000, seed=1)) > 0.95
    ridge = PrivateRidge(1.0, 1e-5, prepare="auto", random_state=0, target_range=(-4, 4))
    assert ridge.fit(X, X[:, 1]).score(X, X[:, 1]) > 0.8


def test_the_shares_follow_public_numbers_alone() -> None:
    def share(n: int, shift: float = 0.0) -> float:
        X, _ = raw(n)
        return (prepared(X + shift, 1.0, 1e-5, "zero-out", 0).mu / gaussian.mu(1.0, 1e-5)) ** 2

    assert share(300) == pytest.approx(0.25, rel=1e-2)
    assert share(40_000) < 0.05
    assert share(2000) == share(2000, shift=1e6)


def test_the_same_model_after_a_copy() -> None:
    X, y = raw(400)
    model = PrivateLogisticRegression(2.0, 1e-4, prepare="auto", random_state=3, steps=10)
    fitted = clone(model).fit(X, y)
    for other in (pickle.loads(pickle.dumps(fitted)), clone(fitted).fit(X, y)):
        assert (other.predict_proba(X) == fitted.predict_proba(X)).all()
    fitted.set_params(prepare=None).fit(X, y)  # what an older fit spent is not counted again
    assert fitted.training_ == clone(model).set_params(prepare=None).fit(X, y).training_


def test_what_cannot_be_paid_for_is_refused() -> None:
    X, y = raw(100)
    model = PrivateLogisticRegression(1.0, 1e-4, prepare="auto", steps=4)
    with pytest.raises(DescriptionError, match="prepare"):
        clone(model).set_params(epsilon=math.inf).fit(X, y)
    with pytest.raises(UnsupportedError, match="toarray"):
        clone(model).fit(sp.csr_array(X), y)
    with pytest.raises(UnsupportedError, match="smaller delta"):
        clone(model).set_params(epsilon=1e-6, classes=[0, 1]).fit(X, y)
    with pytest.raises(UnsupportedError, match="auto"):
        clone(model).set_params(prepare="best").fit(X, y)
    with pytest.raises(UnsupportedError, match="person"):
        clone(model).set_params(per_person=2).fit(X, y, groups=np.arange(100) // 2)
    with pytest.raises(UnsupportedError, match="stream"):
        model.fit_stream(iter([(X, y)]), batches=1, batch_size=100, classes=[0, 1])
    with pytest.raises(UnsupportedError, match="prepare"):
        tune(model, {"regularization": [0.1]}, X, y)
    with pytest.raises(UnsupportedError, match="folder"):
        _numbers(clone(model).set_params(random_state=0).fit(X, y))


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
