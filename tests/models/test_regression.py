"""Regressions: declared ranges, limits of residuals, learning time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from lastiterate.errors import DescriptionError
from lastiterate.models import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge

KINDS = [PrivateRidge, PrivateHuberRegressor]


def table(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Prices: most of them in the lower part of their public range, 0 to 1000."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, 4))
    y = 150 + 300 * X[:, 0] - 150 * X[:, 1] + 40 * rng.standard_normal(n)
    return X, np.clip(y, 0, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_is_measured_from_its_middle(kind: Any) -> None:
    X, y = table(500)
    settings = {"epsilon": 1.0, "delta": 1e-4, "random_state": 0, "steps": 20}
    far = kind(**settings, target_range=(1000, 2000)).fit(X, y + 1000)
    near = kind(**settings, target_range=(-500, 500)).fit(X, y - 500)
    assert near.coef_ == pytest.approx(far.coef_)
    assert far.predict(X) == pytest.approx(near.predict(X) + 1500)
    same = kind(**settings, target_bound=500.0).fit(X, y - 500)
    assert (same.predict(X) == near.predict(X)).all()
    beyond = np.where(y > 300, 1e300, -1e300)  # clipped to the ends, not lost
    ends = np.where(y > 300, 1000.0, 0.0)
    some = kind(**settings, target_range=(0, 1000))
    assert (clone(some).fit(X, beyond).coef_ == clone(some).fit(X, ends).coef_).all()


@pytest.mark.parametrize(
    "wrong",
    [
        (1, 1),
        (0, 5e-324),
        (2, 1),
        (0,),
        (0, 1, 2),
        7,
        "ab",
        (0, math.inf),
        (math.nan, 1),
        (-1.7e308, 1.7e308),
    ],
)
def test_what_is_no_range_is_refused(wrong: Any) -> None:
    X, y = table(50)
    with pytest.raises(DescriptionError, match="target_range"):
        PrivateRidge(delta=1e-3, target_range=wrong).fit(X, y)
    with pytest.raises(DescriptionError, match="target_bound"):
        PrivateRidge(delta=1e-3, target_bound=5e-324).fit(X, y)  # half of it is 0


def test_numbers_that_are_not_real_are_not_shown() -> None:
    X, y = table(50)
    for data in ((X, y + 1j), (X + 1j, y)):
        with pytest.raises(DescriptionError, match="not numeric") as refused:
            PrivateRidge(delta=1e-3).fit(*data)
        assert "1j" not in str(refused.value)


def test_two_declarations_of_the_range_are_refused() -> None:
    X, y = table(50)
    with pytest.raises(DescriptionError, match="target_bound"):
        PrivateRidge(delta=1e-3, target_range=(0, 1), target_bound=2.0).fit(X, y)


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        (PrivateRidge(), 0.2),
        (PrivateRidge(residual_limit=200.0), 0.4),
        (PrivateHuberRegressor(), 0.2),
        (PrivateHuberRegressor(threshold=200.0), 0.4),
        (PrivateRidge(residual_limit=200.0, epsilon=math.inf), 0.4),
        (PrivateRidge(epsilon=math.inf), 2.0**500),
    ],
)
def test_residuals_pull_no_harder_than_the_limit(model: Any, limit: float) -> None:
    X, y = table(60)
    model.set_params(delta=1e-3, target_range=(0, 1000), steps=3, random_state=0, prepare=None)
    model.fit(X, y)
    assert model.training_.gradient_norm == limit
    assert model.loss_.origin.limit == limit


def test_little_privacy_still_leaves_a_model() -> None:
    """With residuals as long as half the range the noise was five times as large."""
    X, y = table()
    settings = {"epsilon": 0.1, "delta": 1e-5, "target_range": (0, 1000), "feature_bound": 2.0}

    def score(**more: float) -> float:
        models = (PrivateRidge(**settings, random_state=k, **more) for k in range(4))
        return float(np.mean([model.fit(X, y).score(X, y) for model in models]))

    assert score() > 0.2 + max(score(residual_limit=500.0), 0.0)


@pytest.mark.parametrize("given", [{}, {"steps": 40}, {"batch_size": 100}])
def test_the_learning_time_asked_for_is_taken(given: dict[str, int]) -> None:
    X, y = table(400)
    X = X - 0.5
    for time in (5.0, 50.0):
        model = PrivateLogisticRegression(
            epsilon=1.0, delta=1e-4, learning_time=time, random_state=0, **given
        ).fit(X, y > 200)
        run, loss = model.training_, model.loss_
        longest = (
            run.steps * float(np.max(run.step_sizes)) * (loss.smoothness + loss.regularization)
        )
        assert longest == pytest.approx(time)
        assert "as asked for" in str(model.choice_)


def test_a_longer_learning_time_keeps_the_promise() -> None:
    X, y = table(400)
    longer = PrivateLogisticRegression(epsilon=1.0, delta=1e-4, learning_time=500.0, classes=[0, 1])
    certificate = longer.fit(X - 0.5, (y > 200).astype(int)).certificate_
    assert certificate is not None
    assert 0.9 < certificate.epsilon <= 1.0


@pytest.mark.parametrize(
    ("epsilon", "time"), [(1.0, 0.0), (1.0, -1.0), (1.0, math.inf), (1.0, math.nan), (math.inf, 5)]
)
def test_learning_times_that_make_no_sense_are_refused(epsilon: float, time: float) -> None:
    X, y = table(50)
    with pytest.raises(DescriptionError, match="learning_time"):
        PrivateRidge(epsilon=epsilon, delta=1e-3, learning_time=time).fit(X, y)
