"""Estimators on tensors: the same model as on arrays, by the torch backend."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import account
from lastiterate.errors import DescriptionError, UnsupportedError

torch = pytest.importorskip("torch")
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

from lastiterate.models import (  # noqa: E402
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
    tune,
)
from lastiterate.torch import PrivateLinearProbe, Shards  # noqa: E402

torch.set_num_threads(1)


def digits(classes=10):
    X, y = load_digits(return_X_y=True)
    few = y < classes
    return X[few][:600] / 16.0, y[few][:600]


ESTIMATORS = [
    (PrivateSoftmaxRegression, 10),
    (PrivateSoftmaxRegression, 2),
    (PrivateLogisticRegression, 10),
    (PrivateLogisticRegression, 2),
    (PrivateLinearSVC, 4),
]


@pytest.mark.parametrize(("kind", "classes"), ESTIMATORS)
@pytest.mark.parametrize("bound", [None, 2.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_a_tensor_gives_the_model_of_an_array(kind, classes, bound, intercept, epsilon):
    X, y = digits(classes)
    settings = {
        "epsilon": epsilon,
        "delta": 1e-4,
        "feature_bound": bound,
        "random_state": 2,
        "fit_intercept": intercept,
        "steps": 40,
    }
    expected = kind(**settings, prepare=None).fit(X, y)
    model = kind(**settings).fit(torch.from_numpy(X), torch.from_numpy(y))
    assert model.training_ == expected.training_
    assert model.loss_ == expected.loss_
    assert model.n_features_in_ == expected.n_features_in_
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, rtol=1e-9, atol=1e-11)
    for data in (X, torch.from_numpy(X)):
        scores = model.decision_function(data)
        np.testing.assert_allclose(scores, expected.decision_function(X), rtol=1e-8, atol=1e-9)
        np.testing.assert_array_equal(model.predict(data), expected.predict(X))
    assert model.score(torch.from_numpy(X), torch.from_numpy(y)) == expected.score(X, y)
    short = clone(expected).fit(torch.from_numpy(X).float(), y)
    np.testing.assert_allclose(short.coef_, expected.coef_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor])
def test_regressions(kind):
    X, y = digits()
    model = kind(epsilon=2.0, delta=1e-4, target_bound=9.0, random_state=1, steps=30)
    expected = clone(model).set_params(prepare=None).fit(X, y.astype(float))
    got = clone(model).fit(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(got.predict(torch.from_numpy(X)), expected.predict(X), rtol=1e-8)


def test_a_certificate_for_a_tensor():
    pytest.importorskip("flint")
    X, y = digits()
    data = torch.from_numpy(X).to(torch.bfloat16)
    for model in (
        PrivateSoftmaxRegression(epsilon=1.0, delta=1e-4, steps=20, batch_size=len(X)),
        PrivateLogisticRegression(epsilon=1.0, delta=1e-4, feature_bound=4.0, steps=20),
    ):
        model.fit(data, torch.from_numpy(y))
        assert 0.99 < model.certificate_.epsilon <= 1.0
        assert account(model.training_, model.loss_).epsilon(1e-4) <= 1.0
        assert model.predict(data).shape == (len(X),)
        again = clone(model).fit(data, y)
        assert not np.array_equal(model.coef_, again.coef_)  # fresh noise


def test_whole_numbers_and_gradients_are_no_obstacle():
    X, y = digits()
    pixels = torch.from_numpy((16 * X).astype(np.uint8))
    settings = {"epsilon": 2.0, "delta": 1e-4, "steps": 20, "random_state": 0}
    expected = PrivateSoftmaxRegression(**settings, prepare=None).fit(16 * X, y)
    got = PrivateSoftmaxRegression(**settings).fit(pixels, y)
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
    followed = torch.from_numpy(16 * X).requires_grad_()
    got = PrivateSoftmaxRegression(**settings).fit(followed, y)
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
    assert followed.grad is None


def test_shards_and_the_probe():
    X, y = digits()
    settings = {"epsilon": 2.0, "delta": 1e-4, "steps": 20, "random_state": 0}
    plain = PrivateSoftmaxRegression(**settings, fit_intercept=False)
    expected = clone(plain).set_params(prepare=None).fit(X, y)
    shards = Shards([X[:100], X[100:]])
    got = clone(plain).fit(shards, y)
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(got.predict(shards), expected.predict(X))
    probe = PrivateLinearProbe(**settings, ball=0.75, device="cpu").fit(X, y)
    np.testing.assert_allclose(probe.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
    with pytest.raises(UnsupportedError, match="fit_intercept"):
        PrivateSoftmaxRegression(**settings).fit(shards, y)


def test_tuning_and_streams_take_tensors():
    X, y = digits()
    data, labels = torch.from_numpy(X), torch.from_numpy(y)
    model = PrivateSoftmaxRegression(epsilon=4.0, delta=1e-4, steps=10)
    grid = {"regularization": [1e-3, 1e-1]}
    kept = [tune(model, grid, *pair, trials=2, random_state=3) for pair in ((X, y), (data, labels))]
    assert kept[0].parameters == kept[1].parameters
    np.testing.assert_allclose(kept[0].model.coef_, kept[1].model.coef_, rtol=1e-9, atol=1e-11)

    def stream(some, classes):
        return ((some[k : k + 100], classes[k : k + 100]) for k in range(0, 600, 100))

    fixed = PrivateSoftmaxRegression(epsilon=4.0, delta=1e-4, random_state=0)
    settings = {"batches": 6, "batch_size": 100, "classes": range(10)}
    expected = clone(fixed).fit_stream(stream(X, y), **settings)
    got = clone(fixed).fit_stream(stream(data, labels), **settings)
    np.testing.assert_array_equal(got.coef_, expected.coef_)


def test_refusals():
    X, y = digits()
    data = torch.from_numpy(X)
    model = PrivateSoftmaxRegression(epsilon=2.0, delta=1e-4, steps=5, random_state=0)
    with pytest.raises(DescriptionError, match=r"^y must"):
        model.fit(data, y[1:])
    with pytest.raises(DescriptionError, match="one row per record"):
        model.fit(data[0], y)
    broken = data.clone()
    broken[3, 3] = math.nan
    with pytest.raises(ValueError, match="rows that hold NaN"):
        model.fit(broken, y)
    assert not hasattr(model, "coef_")
    model.fit(data, y)
    with pytest.raises(DescriptionError, match=r"^X must"):
        model.predict(data[:, :5])
    scaled = clone(model).set_params(
        prepare=PrivateStandardScaler(epsilon=1.0, delta=1e-5, low=0.0, high=1.0)
    )
    with pytest.raises(UnsupportedError, match="prepare="):
        scaled.fit(data, y)
