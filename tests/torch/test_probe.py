"""The probe is the softmax estimator with another backend."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import FullBatch, UnsupportedError, account
from lastiterate.errors import DescriptionError

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

from lastiterate.models import PrivateSoftmaxRegression  # noqa: E402
from lastiterate.torch import PrivateLinearProbe, Shards  # noqa: E402


def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


def test_the_estimator_with_the_same_seed():
    X, y = digits()
    for bound, loss in ((None, {"cap": 0.5}), (2.5, {"ball": 0.7})):
        settings = {"epsilon": 3.0, "delta": 1e-4, "random_state": 2, "steps": 60, **loss}
        own = {"feature_bound": bound, "fit_intercept": False, "prepare": None}
        other = PrivateSoftmaxRegression(**settings, **own)
        other.fit(X, y)
        probe = PrivateLinearProbe(**settings, feature_bound=bound, device="cpu")
        probe.fit(torch.from_numpy(X), torch.from_numpy(y))
        assert probe.training_ == other.training_
        assert probe.loss_ == other.loss_
        np.testing.assert_allclose(probe.coef_, other.coef_, rtol=1e-5, atol=1e-6)
        assert np.mean(probe.predict(X) == other.predict(X)) > 0.999
        np.testing.assert_allclose(probe.predict_proba(X), other.predict_proba(X), atol=1e-5)
        assert probe.certificate_ is None
        assert clone(probe).get_params() == probe.get_params()


def test_the_kernels_loss_unless_asked_otherwise():
    X, y = digits()
    settings = {"epsilon": 3.0, "delta": 1e-4, "random_state": 2, "steps": 5, "device": "cpu"}
    assert PrivateLinearProbe(**settings).fit(X, y).loss_.origin.name == "capped-softmax"
    assert PrivateLinearProbe(**settings, ball=0.5).fit(X, y).loss_.origin.name == "ball-softmax"


def test_short_numbers_and_shards_learn_as_much(tmp_path):
    X, y = digits()
    settings = {"epsilon": 4.0, "delta": 1e-4, "random_state": 2, "device": "cpu"}
    expected = PrivateLinearProbe(**settings).fit(X, y).score(X, y)
    assert expected > 0.85
    short = torch.from_numpy(X).to(torch.bfloat16)
    assert abs(PrivateLinearProbe(**settings).fit(short, y).score(short, y) - expected) < 0.02
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path, part in zip(paths, np.array_split(X.astype(np.float32), 2), strict=True):
        np.save(path, part)
    sharded = PrivateLinearProbe(**settings).fit(paths, y)
    assert abs(sharded.score(Shards(paths), y) - expected) < 0.02


def test_a_certificate_by_default():
    pytest.importorskip("flint")
    X, y = digits()
    probe = PrivateLinearProbe(epsilon=1.0, delta=1e-4, batch_size=len(X), steps=20)
    probe.fit(torch.from_numpy(X).float(), y)
    assert probe.training_.batches == FullBatch()
    assert 0.99 < probe.certificate_.epsilon <= 1.0
    assert account(probe.training_, probe.loss_).epsilon(1e-4) <= 1.0
    assert probe.coef_.shape == (10, 64)


def test_refusals():
    X, y = digits()
    probe = PrivateLinearProbe(epsilon=1.0, delta=1e-4)
    with pytest.raises(NotFittedError):
        probe.predict(X)
    with pytest.raises(DescriptionError, match=r"^y must"):
        probe.fit(X, y[1:])
    with pytest.raises(UnsupportedError, match="sample_weight"):
        probe.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(UnsupportedError, match="fit_stream"):
        probe.fit_stream([], batches=1, batch_size=1)
    probe.set_params(steps=2, batch_size=len(X)).fit(X, y)
    with pytest.raises(DescriptionError, match=r"^X must"):
        probe.predict(X[:, :5])


def test_a_layer_with_the_same_outputs():
    X, y = digits()
    rows = torch.from_numpy(X)
    for bound in (100.0, 1.5, None):
        probe = PrivateLinearProbe(
            epsilon=3.0, delta=1e-4, feature_bound=bound, random_state=0, device="cpu", steps=20
        )
        layer = probe.fit(rows, y).to_linear(torch.float64)
        assert isinstance(layer, torch.nn.Linear)
        assert layer.bias is None
        scores = layer(rows).detach().numpy()
        assert np.array_equal(probe.classes_[scores.argmax(1)], probe.predict(X))
        if bound == 100.0:  # no row is shortened
            np.testing.assert_allclose(scores, probe.decision_function(X), rtol=1e-12, atol=1e-12)
        assert probe.to_linear()(rows.float()).dtype == torch.float32
        layer.weight.data.zero_()
        assert np.abs(probe.coef_).max() > 0  # a copy


@pytest.mark.parametrize("products", ["exact", "exact8"])
@pytest.mark.parametrize("batches", [1, 20, 300])
def test_whole_numbers_are_certified_at_the_epsilon_that_was_asked_for(products, batches):
    """Noise is calibrated for what the engine that runs rounds: 2.0 was 2.0055 to 2.245."""
    pytest.importorskip("flint")
    rng = np.random.default_rng(0)
    X, y = torch.from_numpy(rng.standard_normal((3000, 40))).float(), np.arange(3000) % 10
    for settings in ({}, {"feature_bound": 2.0}):
        probe = PrivateLinearProbe(
            epsilon=2.0,
            delta=1e-5,
            classes=range(10),
            steps=2 * batches if batches > 1 else 30,
            batch_size=len(X) // batches,
            products=products,
            **settings,
            device="cpu",
        ).fit(X, y)
        assert 1.98 < probe.certificate_.epsilon <= 2.0
        assert probe.training_.arithmetic == probe.choice_.training.arithmetic
        assert account(probe.training_, probe.loss_).epsilon(1e-5) <= 2.0
