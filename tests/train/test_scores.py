"""How far a computed mean gradient is from the exact one: scores and slopes round as sums do.

Hidden iterates are accounted with the smoothness of the loss, so the computed map has to be near
one that has it. The exact gradients are computed with fifty digits.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from tests.laws.ball_slopes import ball_slope

from lastiterate import FullBatch, Poisson, Training
from lastiterate.losses import (
    BallSoftmax,
    CappedLogistic,
    CappedSoftmax,
    Huber,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.models import PrivateLogisticRegression
from lastiterate.train import noisy_descent
from lastiterate.train.gradients import LinearGradients
from lastiterate.train.summation import linear_arithmetic, score_error

LOSSES = {
    "logistic": Logistic(),
    "capped logistic": CappedLogistic(0.2),
    "softmax": Softmax(3),
    "capped softmax": CappedSoftmax(3, cap=0.3),
    "softmax in a ball": BallSoftmax(3, 0.4),
    "huber": Huber(0.7),
    "squared error": SquaredError(1.3),
    "smoothed hinge": SmoothedHinge(0.25),
    "squared hinge": SquaredHinge(0.8),
    "one against the rest": OneVsRest(Logistic(), 3),
}


def exact_slope(loss, scores, y):
    """The slope of one record, with fifty digits."""
    one = mpmath.mpf(1)
    if isinstance(loss, OneVsRest):
        return [-s / (one + mpmath.exp(t * s)) for t, s in signed(scores, y)]
    if isinstance(loss, BallSoftmax):
        return ball_slope(scores, y, loss.radius)
    if isinstance(loss, Softmax):
        top = max(scores)
        weights = [mpmath.exp(t - top) for t in scores]
        p = [w / mpmath.fsum(weights) for w in weights]
        slope = [q - (j == y) for j, q in enumerate(p)]
        cap = mpmath.mpf(getattr(loss, "cap", 1.0))
        wrong = -slope[y]
        return [s * cap / wrong for s in slope] if wrong > cap else slope
    t = scores[0]
    if isinstance(loss, Logistic):
        return [-y / (one + mpmath.exp(t * y))]
    if isinstance(loss, CappedLogistic):
        return [-y * min(one / (one + mpmath.exp(t * y)), mpmath.mpf(loss.cap))]
    if isinstance(loss, SmoothedHinge):
        return [-y * min(max((1 - t * y) / mpmath.mpf(loss.width), 0), 1)]
    if isinstance(loss, SquaredHinge):
        return [-y * min(max(1 - t * y, 0), mpmath.mpf(loss.clip))]
    limit = mpmath.mpf(loss.threshold if isinstance(loss, Huber) else loss.clip)
    return [min(max(t - y, -limit), limit)]


def signed(scores, y):
    return [(t, 1 if j == y else -1) for j, t in enumerate(scores)]


def exact_mean(loss, X, y, theta):
    """The mean gradient; a record's is x times its slope."""
    columns = theta.reshape(X.shape[1], -1)
    total = [[mpmath.mpf(0)] * columns.shape[1] for _ in range(X.shape[1])]
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        x = [mpmath.mpf(v) for v in row]
        scores = [
            mpmath.fsum(a * mpmath.mpf(b) for a, b in zip(x, column, strict=True))
            for column in columns.T.tolist()
        ]
        slope = exact_slope(loss, scores, label)
        for i, a in enumerate(x):
            for j, s in enumerate(slope):
                total[i][j] += a * s
    return [v / len(y) for line in total for v in line]


def hard(rng, name, loss, columns):
    """Rows of norm at most 1 that cancel against the parameters: scores of size 1 out of 10^k."""
    rows, outputs = int(rng.integers(1, 6)), loss.outputs()
    length = 10.0 ** rng.uniform(0, 8)
    theta = rng.normal(size=(columns, outputs))
    theta *= length / np.linalg.norm(theta)
    X = rng.normal(size=(rows, columns))
    far = np.linalg.qr(theta)[0]
    X -= X @ far @ far.T * (1 - rng.uniform(0, 5) / length)
    X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None] * (1 + 1e-12)
    if outputs > 1:
        labels = rng.integers(0, outputs, rows)
    elif name in ("huber", "squared error"):
        labels = (X @ theta)[:, 0] + rng.normal(size=rows)
    else:
        labels = rng.choice([-1.0, 1.0], rows)
    return X, labels, theta[:, 0] if outputs == 1 else theta


@pytest.mark.parametrize("name", LOSSES)
def test_a_computed_gradient_is_never_farther_off_than_is_charged(name):
    loss, worst = LOSSES[name], 0.0
    for seed in range(20):
        rng = np.random.default_rng([seed, 5])
        columns = int(rng.integers(4, 12))
        X, y, theta = hard(rng, name, loss, columns)
        run = Training(
            records=len(X),
            steps=1,
            step_size=1.0,
            noise=1.0,
            gradient_norm=loss.gradient_norm(1.0),
            batches=FullBatch(),
            clipping=loss.clipping,
            adjacency="replace",
        )
        gradients = LinearGradients(loss, X, y, run, 0.0, 1.0)
        computed = gradients.total(theta, slice(0, len(X))).ravel() / len(X)
        with mpmath.workdps(50):
            exact = exact_mean(loss, X, gradients._y, theta)
            parts = zip(computed.tolist(), exact, strict=True)
            off = float(mpmath.sqrt(mpmath.fsum((mpmath.mpf(a) - b) ** 2 for a, b in parts)))
        sums = linear_arithmetic(run, loss, columns).error
        scores = score_error(run, loss, columns, 1.0) * float(np.linalg.norm(theta)) * (1 + 1e-12)
        assert off <= sums + scores
        worst = max(worst, off / sums)
    assert worst > 1  # what sums and slopes round is not enough: scores must be charged


def test_what_is_trained_says_so():
    """With a ball the error is that of scores of parameters as long as it allows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)) / 4, np.where(rng.uniform(size=50) < 0.5, -1.0, 1.0)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
    for batches in (FullBatch(), Poisson(0.1)):
        run = Training(
            records=50,
            steps=5,
            step_size=0.5,
            noise=0.1,
            gradient_norm=1.0,
            batches=batches,
            adjacency="zero-out",
            diameter=2000.0,
        )
        found = noisy_descent(Logistic(), X, run, labels=y, feature_bound=1.0).training.arithmetic
        sums = linear_arithmetic(run, Logistic(), 4).error
        crowded = 1.0 if batches.fixed_size else 10.0
        scores = 1000 * 0.25 * 4 * 2.0**-53 * crowded
        assert sums + scores <= found.error <= sums + 8 * scores
        free = noisy_descent(Logistic(), X, run.replace(diameter=np.inf), labels=y, feature_bound=1)
        assert free.training.arithmetic.error > sums


def test_an_estimator_pays_for_it_beforehand():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-3, feature_bound=1.0).fit(X, y)
    assert model.certificate_.epsilon <= 1.0
    assert model.certificate_.training.arithmetic == model.training_.arithmetic
    assert (
        model.training_.arithmetic.error > linear_arithmetic(model.training_, Logistic(), 4).error
    )


# --- every engine, its gradients clipped or not ---------------------------------------------------

KINDS = ["dense", "single", "sparse", "fortran", "tensor", "single tensor", "rescaled"]


def engine_of(kind, loss, X, y, run):
    """The gradients of an engine, and the features that it speaks of."""
    if kind in ("single", "single tensor"):
        X = (X * (1 - 1e-6)).astype(np.float32)
    if "tensor" not in kind and kind != "rescaled":
        form = {"sparse": sp.csr_array, "fortran": np.asfortranarray}.get(kind, np.asarray)
        return LinearGradients(loss, form(X), y, run, 0.0, 1.0), X
    torch = pytest.importorskip("torch")
    from lastiterate.train.torch_backend.gradients import DeviceGradients

    rows = "rescale" if kind == "rescaled" else "check"
    given = torch.from_numpy(X * 1e3 if kind == "rescaled" else X)
    made = DeviceGradients(loss, given, y, run, 0.0, 1.0, torch.device("cpu"), rows=rows)
    if kind == "rescaled":
        exact = [
            [mpmath.mpf(float(v)) * mpmath.mpf(float(s)) for v in row]
            for row, s in zip(given, made._scale, strict=True)
        ]
        return made, exact
    return made, X


def at(gradients, theta, records):
    import torch

    where = theta if isinstance(gradients, LinearGradients) else torch.from_numpy(theta)
    return np.asarray(gradients.total(where, slice(0, records))).ravel() / records


def exact_clipped_mean(loss, X, y, theta, longest):
    """The mean gradient, each no longer than ``longest``."""
    columns = theta.reshape(len(theta), -1)
    total = [mpmath.mpf(0)] * columns.size
    for row, label in zip(X, y, strict=True):
        x = [mpmath.mpf(v) if isinstance(v, mpmath.mpf) else mpmath.mpf(float(v)) for v in row]
        scores = [
            mpmath.fsum(a * mpmath.mpf(b) for a, b in zip(x, column, strict=True))
            for column in columns.T.tolist()
        ]
        slope = exact_slope(loss, scores, label)
        gradient = [a * s for a in x for s in slope]
        norm = mpmath.sqrt(mpmath.fsum(g * g for g in gradient))
        factor = longest / norm if norm > longest else 1
        total = [t + g * factor for t, g in zip(total, gradient, strict=True)]
    return [t / len(y) for t in total]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["logistic", "softmax", "capped softmax", "softmax in a ball", "smoothed hinge"]
)
def test_every_engine_is_within_what_it_charges(kind, name):
    """Also where gradients are shortened: a projection, which does not enlarge what is off."""
    loss = LOSSES[name]
    for seed in range(6):
        rng = np.random.default_rng([seed, 11])
        columns = int(rng.integers(4, 9))
        X, y, theta = hard(rng, name, loss, columns)
        for clipping, K in (("none", loss.gradient_norm(1.0)), ("gradient", 10.0**-seed)):
            run = Training(
                records=len(X),
                steps=1,
                step_size=1.0,
                noise=1.0,
                gradient_norm=K,
                batches=FullBatch(),
                clipping=clipping,
                adjacency="replace",
            )
            with mpmath.workdps(50):
                gradients, rows = engine_of(kind, loss, X, y, run)
                computed = at(gradients, theta, len(X))
                labels = np.asarray(y).astype(int).tolist()
                exact = exact_clipped_mean(loss, rows, labels, theta, mpmath.mpf(K))
                parts = zip(computed.tolist(), exact, strict=True)
                off = float(mpmath.sqrt(mpmath.fsum((mpmath.mpf(a) - b) ** 2 for a, b in parts)))
            length = float(np.linalg.norm(theta)) * (1 + 1e-12)
            allowed = gradients.arithmetic(theta.size).error + gradients.per_length * length
            assert off <= allowed, (kind, name, clipping, seed, off / allowed)


SHORT = ["float16", "bfloat16"]


def short_table(rng, torch, dtype, records, columns):
    """Rows of norm below 1 in a short type: edges of binades, subnormals, one size or all sizes.

    Every row is the same numbers twice, so that parameters can cancel in its score exactly.
    """
    tiny = torch.finfo(dtype).smallest_normal
    sizes = [0.0, tiny / 64, tiny, 1.5 * tiny, 2.0**-8, 2.0**-7 * (1 + 2.0**-7), 0.25, 0.5]
    half = rng.choice(sizes, (records, columns)) * rng.choice([-1.0, 1.0], (records, columns))
    plain = rng.random(records) < 0.5
    half[plain] = rng.normal(size=(int(plain.sum()), columns))
    half *= 0.69 / np.maximum(np.linalg.norm(half, axis=1, keepdims=True), 0.69)
    kept = torch.from_numpy(np.concatenate([half, half], axis=1)).to(dtype)
    assert np.linalg.norm(kept.double().numpy(), axis=1).max() < 1
    return kept


@pytest.mark.parametrize("short", SHORT)
@pytest.mark.parametrize("name", ["logistic", "softmax", "smoothed hinge"])
def test_short_tensors_in_double_are_within_what_is_charged(short, name):
    """Tables of 16 bits are taken as they are; parameters in their precision would be far off."""
    torch = pytest.importorskip("torch")
    from lastiterate.train.torch_backend.gradients import DeviceGradients

    loss, dtype, far = LOSSES[name], getattr(torch, short), 0.0
    for seed in range(8):
        rng = np.random.default_rng([seed, 17])
        records, half = int(rng.integers(1, 9)), int(rng.integers(2, 5))
        X = short_table(rng, torch, dtype, records, half)
        rows, shape = X.double().numpy(), (half, loss.outputs())
        large = rng.normal(size=shape) * 10.0 ** (seed - 1)
        theta = np.concatenate([large, rng.normal(size=shape) - large])
        theta = theta[:, 0] if loss.outputs() == 1 else theta
        several = loss.outputs() > 1
        y = rng.integers(0, 3, records) if several else rng.choice([-1.0, 1.0], records)
        for clipping, K in (("none", loss.gradient_norm(1.0)), ("gradient", 0.1)):
            run = Training(
                records=records,
                steps=1,
                step_size=1.0,
                noise=1.0,
                gradient_norm=K,
                batches=FullBatch(),
                clipping=clipping,
                adjacency="replace",
            )
            with mpmath.workdps(50):
                labels = np.asarray(y).astype(int).tolist()
                exact = exact_clipped_mean(loss, rows, labels, theta, mpmath.mpf(K))
                gradients = DeviceGradients(loss, X, y, run, 0.0, 1.0, torch.device("cpu"))

                computed = torch.from_numpy(at(gradients, theta, records))
                length = float(np.linalg.norm(theta)) * (1 + 1e-12)
                allowed = gradients.arithmetic(theta.size).error + gradients.per_length * length
                off = []
                for sums in (computed, computed.to(dtype).double()):
                    parts = zip(sums.tolist(), exact, strict=True)
                    square = mpmath.fsum((mpmath.mpf(a) - b) ** 2 for a, b in parts)
                    off.append(float(mpmath.sqrt(square)))
                assert off[0] <= allowed, (clipping, seed, off[0] / allowed)
                far = max(far, off[1] / allowed)
    assert far > 1000  # the data can tell: what is rounded to short types is not covered


def test_a_loss_without_a_bound_on_its_curvature_is_charged_for_sums_alone():
    """Its theorems count on the length of gradients, and computed ones are as short."""

    class Hinge(SquaredHinge):
        def smoothness(self, feature_bound):
            return float("inf")

    X, y = np.eye(3), np.array([1.0, -1.0, 1.0])
    run = Training(
        records=3,
        steps=2,
        step_size=0.5,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        clipping="margin",
        adjacency="replace",
    )
    found = noisy_descent(Hinge(1.0), X, run, labels=y, feature_bound=1.0)
    assert found.training.arithmetic.error == linear_arithmetic(run, Hinge(1.0), 3).error
    assert found.loss.smoothness == float("inf")


def test_a_short_softmax_gradient_rounds_as_a_long_one_does():
    """p − 1 has the last bits of 1, whatever the gradient is shortened to."""
    loss = Softmax(1000)
    run = Training(
        records=5,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1e-6,
        batches=FullBatch(),
        clipping="gradient",
        adjacency="replace",
    )
    X, y = np.ones((5, 1)), np.arange(5)
    gradients = LinearGradients(loss, X, y, run, 0.0, 1.0)
    charged = gradients.arithmetic(1000).error
    assert charged > (1000 + 2 * np.log(1000) + 20) * 2.0**-53
