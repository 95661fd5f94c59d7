"""One pass over a stream: the same run as on a table, and nothing visible before the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from lastiterate import Cyclic, account
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.models import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
)
from lastiterate.train import noisy_descent

BATCHES, SIZE = 50, 20


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((BATCHES * SIZE, 4))
    return X, (X @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int)


def batches(X: Any, y: Any, count: int = BATCHES) -> Iterator[tuple[Any, Any]]:
    for k in range(count):
        yield X[k * SIZE : (k + 1) * SIZE], y[k * SIZE : (k + 1) * SIZE]


def fit(model: Any, X: Any, y: Any, **changes: Any) -> Any:
    settings: dict[str, Any] = {"batches": BATCHES, "batch_size": SIZE, "classes": [0, 1]}
    return model.fit_stream(batches(X, y), **{**settings, **changes})


@pytest.mark.parametrize(
    "kind", [PrivateLogisticRegression, PrivateSoftmaxRegression, PrivateLinearSVC]
)
def test_a_stream_is_the_same_run_as_a_table(kind: Any, data: Any) -> None:
    X, y = data
    model = fit(kind(1.0, 1e-5, feature_bound=2.0, random_state=1), X, y)
    same = noisy_descent(
        model._objective(),
        model._rows.of(X),
        model.training_,
        labels=model._targets(y),
        regularization=model.loss_.regularization,
        feature_bound=model._rows.norm,
        random_state=1,
    )
    fitted = np.hstack([model.coef_, model.intercept_[:, None]])
    table = same.parameters.reshape(5, -1).T
    assert fitted == pytest.approx(table, rel=1e-9, abs=1e-12)


def test_one_pass_is_cheap_and_certified(data: Any) -> None:
    X, y = data
    model = fit(PrivateLogisticRegression(1.0, 1e-5), X, y)
    run = model.training_
    assert (run.batches, run.epochs, run.schedule) == (Cyclic(SIZE), 1.0, "equalised")
    spent = account(run, model.loss_)
    assert spent.epsilon(1e-5) <= 1.0
    # Equalised: every position pays s²/(B ν²), the order known or not.
    assert spent.mu == pytest.approx(
        float(run.step_size) * run.impulse / float(run.noise) / math.sqrt(BATCHES), rel=1e-3
    )
    assert 0.99 <= model.certificate_.epsilon <= 1.01


def test_nothing_is_visible_during_the_pass(data: Any) -> None:
    X, y = data
    model = PrivateLogisticRegression(1.0, 1e-5)

    def watched() -> Iterator[tuple[Any, Any]]:
        for pair in batches(X, y):
            assert not hasattr(model, "coef_")
            yield pair

    model.fit_stream(watched(), batches=BATCHES, batch_size=SIZE, classes=[0, 1])
    assert hasattr(model, "coef_")


@pytest.mark.parametrize("count", [0, 1, BATCHES - 1, BATCHES + 1])
def test_a_wrong_number_of_batches_releases_nothing(count: int, data: Any) -> None:
    X, y = np.vstack([data[0]] * 2), np.hstack([data[1]] * 2)
    model = PrivateLogisticRegression(1.0, 1e-5)
    with pytest.raises(DescriptionError, match="number of batches in the stream"):
        model.fit_stream(batches(X, y, count), batches=BATCHES, batch_size=SIZE, classes=[0, 1])
    assert not hasattr(model, "coef_")


def test_a_failing_stream_releases_nothing_and_forgets_an_older_model(data: Any) -> None:
    X, y = data
    model = fit(PrivateLogisticRegression(1.0, 1e-5), X, y)

    def broken() -> Iterator[tuple[Any, Any]]:
        yield from batches(X, y, 10)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        model.fit_stream(broken(), batches=BATCHES, batch_size=SIZE, classes=[0, 1])
    assert not hasattr(model, "coef_")


def test_refusals(data: Any) -> None:
    X, y = data
    with pytest.raises(DescriptionError, match="batch_size"):
        fit(PrivateLogisticRegression(1.0, 1e-5), X, y, batch_size=SIZE - 1)
    with pytest.raises(DescriptionError, match="declared classes"):
        fit(PrivateLogisticRegression(1.0, 1e-5), X, y, classes=[0, 2])
    with pytest.raises(DescriptionError, match="classes"):
        fit(PrivateLogisticRegression(1.0, 1e-5), X, y, classes=None)
    with pytest.raises(UnsupportedError, match="converge"):
        fit(PrivateLogisticRegression(math.inf), X, y)
    with pytest.raises(UnsupportedError, match="prepare"):
        fit(PrivateLogisticRegression(1.0, 1e-5, prepare=PrivateStandardScaler()), X, y)


def test_short_batches_sparse_batches_and_regression(data: Any) -> None:
    X, _ = data
    target = X @ [0.3, -0.2, 0.1, 0.0]
    stream = ((sparse.csr_matrix(x[:-1]), t[:-1]) for x, t in batches(X, target))
    model = PrivateRidge(5.0, 1e-5, feature_bound=3.0, random_state=0)
    model.fit_stream(stream, batches=BATCHES, batch_size=SIZE)
    assert model.score(X, target) > 0
