"""The proved constants of every loss: attained near their maximum, never exceeded."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.losses import (
    Huber,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)

LOSSES = [
    Logistic(),
    Huber(0.7),
    SquaredError(1.3),
    SmoothedHinge(0.4),
    SquaredHinge(0.9),
    Softmax(2),
    Softmax(3),
    Softmax(7),
    OneVsRest(Logistic(), 5),
    OneVsRest(SmoothedHinge(0.5), 3),
    OneVsRest(SquaredHinge(0.6), 4),
]


def draw(rng, loss, count, dimension, R):
    """Rows of norm R or a little less, parameters and labels at scales where slopes vary."""
    X = rng.standard_normal((count, dimension))
    X *= R * rng.choice([1.0, rng.random()], (count, 1)) / np.linalg.norm(X, axis=1)[:, None]
    outputs = loss.outputs()
    shape = (dimension,) if outputs == 1 else (dimension, outputs)
    theta = rng.standard_normal(shape) * 10 ** rng.uniform(-1, 2) / R
    y = rng.integers(0, outputs, count) if outputs > 1 else rng.choice([-1.0, 1.0], count)
    return X, theta, loss.targets(y)


def gradients(loss, X, theta, y):
    """One gradient per record, flattened: x outer slope."""
    slope = loss.slope(X @ theta, y).reshape(len(X), -1)
    return np.einsum("ni,nj->nij", X, slope).reshape(len(X), -1)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slope_is_the_derivative_of_value(loss):
    rng = np.random.default_rng(1)
    h = 1e-6
    for _ in range(20):
        X, theta, y = draw(rng, loss, 40, 3, 1.0)
        scores = np.clip(X @ theta, -30, 30)
        slope = loss.slope(scores, y).reshape(len(X), -1)
        for j in range(slope.shape[1]):
            step = np.zeros_like(scores)
            step[(slice(None), j) if scores.ndim == 2 else slice(None)] = h
            numeric = (loss.value(scores + step, y) - loss.value(scores - step, y)) / (2 * h)
            # at a corner of a piecewise slope the two-sided difference is off by O(h)
            assert np.abs(numeric - slope[:, j]).max() < 5e-6


@pytest.mark.parametrize("R", [0.3, 1.0, 4.7])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradients_are_never_longer_than_proved(loss, R):
    rng = np.random.default_rng(2)
    longest = 0.0
    for _ in range(120):
        X, theta, y = draw(rng, loss, 50, 4, R)
        longest = max(longest, np.linalg.norm(gradients(loss, X, theta, y), axis=1).max())
    assert longest <= loss.gradient_norm(R) * (1 + 1e-14)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_gradient_bound_is_attained(loss):
    """Push a record of norm R to the wrong side, as far as it takes."""
    R, outputs = 2.0, loss.outputs()
    x = np.array([[R, 0.0]])
    if outputs == 1:
        scores, y = np.array([-50.0]), loss.targets([1.0])
    elif isinstance(loss, Softmax):
        scores, y = np.zeros((1, outputs)), loss.targets([0])
        scores[0, 1] = 60.0
    else:  # every binary problem wrong at once
        scores, y = np.full((1, outputs), 50.0), loss.targets([0])
        scores[0, 0] = -50.0
    length = np.linalg.norm(loss.slope(scores, y)) * np.linalg.norm(x)
    assert length == pytest.approx(loss.gradient_norm(R), rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_smoothness_is_never_exceeded_and_nearly_attained(loss):
    rng = np.random.default_rng(3)
    R = 1.7
    steepest = 0.0
    for k in range(700):
        X, theta, y = draw(rng, loss, 20, 2, R)
        X *= R / np.linalg.norm(X, axis=1)[:, None]
        spread = 10 ** rng.uniform(-3, 0.5)
        theta = theta * 10 ** rng.uniform(-2, 0)
        direction = rng.standard_normal(theta.shape)
        if isinstance(loss, Softmax) and k % 2:  # two leading classes, moved against each other
            theta[:] = 0.0
            direction[:] = 0.0
            direction[:, 0] = X[0]
            direction[:, 1] = -X[0]
            theta[:, 2:] = -40 * X[0][:, None]
        other = theta + spread * direction / np.linalg.norm(direction)
        moved = gradients(loss, X, other, y) - gradients(loss, X, theta, y)
        ratio = np.linalg.norm(moved, axis=1).max() / spread
        steepest = max(steepest, ratio)
    assert steepest <= loss.smoothness(R) * (1 + 1e-9)
    assert steepest >= 0.9 * loss.smoothness(R)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_is_convex(loss):
    """Gradients are monotone along every segment."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        X, theta, y = draw(rng, loss, 30, 3, 1.0)
        other = theta + rng.standard_normal(theta.shape)
        moved = gradients(loss, X, other, y) - gradients(loss, X, theta, y)
        assert (moved @ (other - theta).ravel()).min() >= -1e-12


def test_constants_are_the_published_ones_and_round_up():
    R = 0.1
    exact = Fraction(R)
    assert Logistic().gradient_norm(R) == R
    assert 0 <= Fraction(Logistic().smoothness(R)) - exact**2 / 4 < Fraction(1, 10**17)
    assert Softmax(3).gradient_norm(1.0) ** 2 == pytest.approx(2.0, rel=1e-15)
    assert Fraction(Softmax(3).gradient_norm(R)) ** 2 >= 2 * exact**2
    assert Fraction(SmoothedHinge(0.3).smoothness(R)) >= exact**2 / Fraction(0.3)
    stacked = OneVsRest(SquaredHinge(0.7), 3).gradient_norm(R)
    assert Fraction(stacked) ** 2 >= 3 * (exact * Fraction(0.7)) ** 2
    assert OneVsRest(Logistic(), 9).gradient_norm(2.0) == 6.0
    assert OneVsRest(Logistic(), 9).smoothness(2.0) == 1.0


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_regularity_is_proved_convex_and_without_the_l2_term(loss):
    known = loss.regularity(1.5, regularization=0.02)
    assert known.provenance == "proved"
    assert known.convex
    assert known.smoothness == loss.smoothness(1.5)
    assert known.regularization == 0.02
    assert known.strong_convexity == 0.0


@pytest.mark.parametrize("loss", [x for x in LOSSES if not isinstance(x, Softmax)], ids=str)
def test_a_clipped_margin_keeps_gradients_short(loss):
    rng = np.random.default_rng(5)
    R, K = 1.2, 0.4
    limit = loss.margin_limit(K, R)
    for _ in range(100):
        X, theta, y = draw(rng, loss, 30, 3, R)
        slope = np.clip(loss.slope(X @ theta, y), -limit, limit).reshape(len(X), -1)
        lengths = np.linalg.norm(slope, axis=1) * np.linalg.norm(X, axis=1)
        assert lengths.max() <= K * (1 + 1e-14)


def test_softmax_has_no_margin():
    with pytest.raises(UnsupportedError, match="OneVsRest"):
        Softmax(3).margin_limit(1.0, 1.0)


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (Logistic(), [0, 1]),
        (Logistic(), [1.0, math.nan]),
        (Huber(1.0), [1.0, math.inf]),
        (Huber(1.0), ["a", "b"]),
        (Huber(1.0), [[1.0], [2.0]]),
        (Softmax(3), [0, 3]),
        (Softmax(3), [0, -1]),
        (OneVsRest(Logistic(), 3), [0.5, 1]),
    ],
)
def test_labels_that_a_loss_does_not_know_are_refused(loss, labels):
    with pytest.raises(DescriptionError, match="labels"):
        loss.targets(labels)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Huber(0.0),
        lambda: SquaredError(-1.0),
        lambda: SmoothedHinge(math.nan),
        lambda: SquaredHinge(math.inf),
        lambda: Softmax(1),
        lambda: OneVsRest(Huber(1.0), 3),
        lambda: Logistic().gradient_norm(-1.0),
        lambda: Logistic().smoothness(math.inf),
        lambda: Logistic().outputs(3),
        lambda: Softmax(3).outputs(4),
    ],
)
def test_bad_descriptions_are_refused(make):
    with pytest.raises(DescriptionError):
        make()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_extreme_scores_do_not_overflow_and_single_precision_is_kept(loss):
    outputs = loss.outputs()
    for dtype in (np.float64, np.float32):
        base = np.array([-1e4, 0.0, 1e4], dtype=dtype)
        scores = base if outputs == 1 else np.stack([base * (j - 1) for j in range(outputs)], 1)
        y = loss.targets([1, 1, 1])
        y = y.astype(dtype) if y.dtype.kind == "f" else y
        slope = loss.slope(scores, y)
        assert slope.dtype == dtype
        assert np.isfinite(slope).all()
        assert np.isfinite(loss.value(scores, y)).all()
