"""The torch backend runs the same description with the same law as the NumPy backend."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lastiterate import (
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
)
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import (
    BallSoftmax,
    CappedLogistic,
    CappedSoftmax,
    Huber,
    LinearLoss,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.train import bound_rows
from lastiterate.train import noisy_descent as numpy_descent

torch = pytest.importorskip("torch")
from lastiterate.torch import Shards, noisy_descent  # noqa: E402
from lastiterate.train.torch_backend.kernels import Head, gradient_sum  # noqa: E402

LOSSES = [
    Logistic(),
    Huber(0.3),
    SquaredError(0.4),
    SmoothedHinge(0.5),
    SquaredHinge(0.6),
    Softmax(3),
    OneVsRest(Logistic(), 3),
    OneVsRest(SquaredHinge(0.5), 4),
    CappedSoftmax(4, 0.5),
    BallSoftmax(4, 0.6),
    OneVsRest(CappedLogistic(0.4), 3),
]
SCHEMES = [FullBatch(), Cyclic(6), Shuffled(6), Reshuffled(7), Poisson(0.3), WithoutReplacement(8)]
N, D = 23, 5


def problem(loss, n=N, d=D, seed=0, bound=1.0):
    rng = np.random.default_rng(seed)
    X = bound_rows(2 * rng.standard_normal((n, d)), bound)
    outputs = loss.outputs()
    y = rng.integers(0, outputs, n) if outputs > 1 else rng.choice([-1.0, 1.0], n)
    return X, y


def describe(loss, batches, **changes):
    K = loss.gradient_norm(1.0)
    settings = {"records": N, "steps": 11, "step_size": 0.4, "noise": 0.05, "gradient_norm": K}
    return Training(**{"adjacency": "replace", **settings, "batches": batches, **changes})


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("batches", SCHEMES, ids=repr)
def test_the_numpy_backend_step_by_step(loss, batches):
    """Same batches, same noise: every iterate agrees, not only the last."""
    X, y = problem(loss)
    for steps in (1, 2, 3, 11):
        run = describe(loss, batches, steps=steps)
        same = {"labels": y, "regularization": 0.1, "random_state": 5}
        expected = numpy_descent(loss, X, run, **same)
        got = noisy_descent(loss, torch.from_numpy(X), run, **same, device="cpu")
        np.testing.assert_allclose(got.parameters, expected.parameters, rtol=1e-12, atol=1e-13)
        assert got.loss == expected.loss
        assert got.experiment
        assert (got.partition_nonce is None) == (expected.partition_nonce is None)


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), OneVsRest(Logistic(), 3)], ids=repr)
@pytest.mark.parametrize("batches", [FullBatch(), Shuffled(6)], ids=repr)
def test_clipping_projection_and_tail_averages(loss, batches):
    X, y = problem(loss)
    extra = {"clipping": "gradient", "gradient_norm": 0.3, "diameter": 0.8}
    run = describe(loss, batches, release=TailAverage(3), **extra)
    same = {"labels": y, "random_state": 5}
    expected = numpy_descent(loss, X, run, **same)
    got = noisy_descent(loss, X, run, **same)
    np.testing.assert_allclose(got.parameters, expected.parameters, rtol=1e-12, atol=1e-13)
    free = numpy_descent(loss, X, run.replace(gradient_norm=9.0, diameter=math.inf), **same)
    assert not np.allclose(free.parameters, expected.parameters, rtol=1e-3)


def test_margins_are_clipped():
    loss = OneVsRest(Logistic(), 3)
    X, y = problem(loss)
    run = describe(loss, FullBatch(), clipping="margin", gradient_norm=0.4)
    same = {"labels": y, "random_state": 5, "feature_bound": 1.0}
    expected = numpy_descent(loss, X, run, **same)
    got = noisy_descent(loss, X, run, **same)
    np.testing.assert_allclose(got.parameters, expected.parameters, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_short_features_are_multiplied_in_double_precision(dtype):
    loss = Softmax(4)
    X, y = problem(loss, n=200, d=40, bound=0.99)
    data = torch.from_numpy(X).to(dtype)
    run = describe(loss, Cyclic(50), records=200, steps=12)
    same = {"labels": y, "random_state": 5, "feature_bound": 1.0}
    expected = numpy_descent(loss, data.double().numpy(), run, **same).parameters
    got = noisy_descent(loss, data, run, **same, device="cpu").parameters
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


def test_gradients_are_clipped_within_the_bound():
    head = Head("softmax", 3, longest=0.25)
    rng = torch.Generator().manual_seed(0)
    for _ in range(100):
        x = torch.randn((1, 40), generator=rng).to(torch.bfloat16)
        norms = torch.linalg.vector_norm(x.double(), dim=1) * (1 + 2.0**-45)
        theta = 0.05 * torch.randn((40, 3), generator=rng, dtype=torch.float64)
        got = gradient_sum(x, torch.zeros(1, dtype=torch.float64), theta, head, norms=norms)
        assert 0.2 < float(got.norm()) <= 0.25


def test_long_rows_are_refused_or_shortened_on_the_fly():
    loss = Softmax(3)
    X, y = problem(loss)
    long = 3 * X
    run = describe(loss, FullBatch())
    with pytest.raises(AssumptionError, match="rows='shorten'"):
        noisy_descent(loss, long, run, labels=y)
    kept = long.copy()
    got = noisy_descent(loss, long, run, labels=y, random_state=1, rows="shorten")
    expected = numpy_descent(loss, bound_rows(long, 1.0), run, labels=y, random_state=1)
    np.testing.assert_allclose(got.parameters, expected.parameters, rtol=1e-6)
    assert np.array_equal(kept, long)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    got = noisy_descent(loss, 0.1 * X, run, labels=y, random_state=1, rows="rescale")
    expected = numpy_descent(loss, bound_rows(unit, 1.0), run, labels=y, random_state=1)
    np.testing.assert_allclose(got.parameters, expected.parameters, rtol=1e-6)


def test_the_law_of_the_noise():
    """Zero features: the last iterate is a sum of shrunk Gaussians, with a known variance."""
    run = Training(
        records=4,
        steps=6,
        step_size=0.5,
        noise=0.3,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    X, y = np.zeros((4, 4000)), np.array([1.0, -1.0, 1.0, -1.0])
    got = noisy_descent(Logistic(), X, run, labels=y, regularization=0.4)
    assert not got.experiment
    deviation = 0.3 * math.sqrt(sum(0.8 ** (2 * k) for k in range(6)))
    assert stats.kstest(got.parameters / deviation, "norm").pvalue > 1e-4
    again = noisy_descent(Logistic(), X, run, labels=y, regularization=0.4)
    assert not np.array_equal(got.parameters, again.parameters)


def test_the_law_on_data_is_that_of_the_numpy_backend():
    """Secure noise, random batches: two samples of one coordinate come from one law."""
    loss = Logistic()
    X, y = problem(loss, n=8, d=2)
    run = Training(
        records=8,
        steps=5,
        step_size=1.0,
        noise=0.2,
        gradient_norm=1.0,
        batches=Shuffled(2),
        adjacency="replace",
    )
    same = {"labels": y, "progress": False}
    a = [noisy_descent(loss, X, run, **same, device="cpu").parameters[0] for _ in range(400)]
    b = [numpy_descent(loss, X, run, **same).parameters[0] for _ in range(400)]
    assert stats.ks_2samp(a, b).pvalue > 1e-4


def test_shards_give_the_same_run(tmp_path):
    loss = Softmax(3)
    X, y = problem(loss, n=200, d=7, bound=0.999)
    data = X.astype(np.float32)
    paths = []
    for k, part in enumerate(np.split(data, [30, 31, 150])):
        paths.append(tmp_path / f"{k}.npy")
        np.save(paths[-1], part)
    for batches in (FullBatch(), Cyclic(60), Reshuffled(33), Poisson(0.2)):
        run = describe(loss, batches, records=200, steps=7)
        same = {"labels": y, "random_state": 3, "device": "cpu"}
        resident = noisy_descent(loss, torch.from_numpy(data), run, **same)
        streamed = noisy_descent(loss, Shards(paths), run, **same)
        np.testing.assert_allclose(streamed.parameters, resident.parameters, rtol=2e-6, atol=1e-7)


def test_refusals():
    X, y = problem(Logistic())
    run = describe(Logistic(), FullBatch())
    with pytest.raises(DescriptionError, match="rows"):
        noisy_descent(Logistic(), X[:-1], run, labels=y[:-1])
    with pytest.raises(DescriptionError, match="noisy_module_descent"):
        noisy_descent(lambda theta, rows: theta, X, run)
    with pytest.raises(DescriptionError, match="one row per record"):
        noisy_descent(Logistic(), torch.ones(3), run, labels=y)
    broken = torch.from_numpy(X.copy())
    broken[2, 1] = math.nan
    with pytest.raises(AssumptionError, match="rows"):
        noisy_descent(Logistic(), broken, run, labels=y)
    with pytest.raises(AssumptionError, match="diverged"):
        noisy_descent(
            Logistic(), X, run.replace(step_size=1e3, steps=40), labels=y, regularization=1.0
        )


class Odd(LinearLoss):
    clipping = "none"
    gradient_norm = smoothness = staticmethod(lambda bound: bound)
    outputs = staticmethod(lambda classes=None: 1)
    targets = staticmethod(np.asarray)
    value = slope = margin_limit = None


class Steeper(Softmax):
    """A subclass that changes the slope: running the plain one would be another loss."""

    def slope(self, scores, y):
        return 0.9 * super().slope(scores, y)


def test_losses_that_the_kernels_do_not_compute_are_refused():
    X, y = problem(Softmax(3))
    run = describe(Softmax(3), FullBatch())
    for loss in (Odd(), Steeper(3)):
        with pytest.raises(UnsupportedError, match=type(loss).__name__):
            noisy_descent(loss, X, run, labels=y)
