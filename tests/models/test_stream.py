"""One pass over a stream: the same run as on a table, and nothing visible before the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from lastiterate import CertificateChain, Cyclic, account
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.models import (
    PrivacyWarning,
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


# --- a model every day ------------------------------------------------------------------------


def one_day(model: Any, data: Any, source: Any = None) -> Any:
    return fit(model, *data, continue_from=source)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (PrivateLogisticRegression, {}),
        (PrivateLogisticRegression, {"fit_intercept": False}),
        (PrivateSoftmaxRegression, {}),
        (PrivateRidge, {"target_bound": 3.0}),
    ],
)
def test_a_day_starts_from_the_released_model(kind: Any, arguments: Any, data: Any) -> None:
    """With hardly any noise and no data to learn from, the model stays where it was."""
    X, y = data
    settings = {} if kind is PrivateRidge else {"classes": [0, 1]}
    first = kind(5.0, 1e-5, feature_bound=2.0, random_state=1, **arguments)
    first.fit_stream(batches(X, y), batches=BATCHES, batch_size=SIZE, **settings)
    start = first._joined(first.parameters_)
    same = kind(5.0, 1e-5, feature_bound=2.0, random_state=1, **arguments)
    with pytest.warns(PrivacyWarning, match="no certificate"):
        same.fit_stream(
            batches(X, y),
            batches=BATCHES,
            batch_size=SIZE,
            continue_from=first,
            **settings,
        )
    again = noisy_descent(
        same._objective(),
        same._rows.of(X),
        same.training_,
        labels=same._targets(y),
        regularization=same.loss_.regularization,
        feature_bound=same._rows.norm,
        random_state=1,
        start=start,
    )
    found = same._joined(same.parameters_)
    assert found == pytest.approx(again.parameters, rel=1e-6, abs=1e-9)
    assert same.certificate_ is None


def test_a_chain_of_days(tmp_path: Any, data: Any) -> None:
    chain = CertificateChain.create(tmp_path / "model", epsilon=3.0, delta=1e-5, days=3)
    model = PrivateLogisticRegression(1.0, 1e-5, feature_bound=2.0)
    for number in range(1, 4):
        one_day(model, data, chain)
        assert model.certificate_.link.former == chain.head.sha256
        chain.add(model.certificate_, model.parameters_)
        assert len(chain) == number
    checked = chain.verify()
    assert all(link.epsilon <= 1.0 for link in checked.links)
    assert chain.epsilon(1e-5) <= 3.0
    before = {name: np.array(value) for name, value in model.parameters_.items()}
    one_day(model, data, model)  # goes on from itself
    link = model.certificate_
    assert link.link.former == checked.links[-1].sha256
    assert not np.array_equal(model.coef_, before["coef_"])
    chain.add(link, model.parameters_)
    with pytest.raises(DescriptionError, match="one array"):
        noisy_descent(model._objective(), data[0], model.training_, continue_from=chain)


def test_what_a_day_does_not_go_on_from(data: Any) -> None:
    model = one_day(PrivateLogisticRegression(1.0, 1e-5), data)
    for source in (np.zeros(5), "model", model.certificate_, object()):
        with pytest.raises(DescriptionError, match="continue_from"):
            one_day(PrivateLogisticRegression(1.0, 1e-5), data, source)
    with pytest.raises(DescriptionError, match="shape"):
        one_day(PrivateLogisticRegression(1.0, 1e-5), (data[0][:, :3], data[1]), model)
    model.coef_ = model.coef_ + 1e-9
    with pytest.raises(AssumptionError, match="not the one that its certificate"):
        one_day(PrivateLogisticRegression(1.0, 1e-5), data, model)
    with pytest.raises(AttributeError):
        one_day(PrivateLogisticRegression(1.0, 1e-5), data, PrivateLogisticRegression())
    prepared = PrivateLogisticRegression(1.0, 1e-5, prepare=PrivateStandardScaler(0.1, 1e-6))
    with pytest.raises(AssumptionError, match="preparation of its own"):
        one_day(PrivateLogisticRegression(1.0, 1e-5), data, prepared.fit(*data))
