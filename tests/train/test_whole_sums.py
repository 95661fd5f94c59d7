"""Sums in whole numbers: exact, however records are divided, and as near as the proof says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lastiterate import FullBatch, Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses import (
    BallSoftmax,
    CappedLogistic,
    CappedSoftmax,
    Huber,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
)
from lastiterate.train import bound_rows
from lastiterate.train.summation import gamma, whole_arithmetic
from lastiterate.train.whole_sums import MOST_ROWS, WholeSums

LOSSES = [
    Logistic(),
    CappedLogistic(0.25),
    SmoothedHinge(0.5),
    Huber(0.5),
    Softmax(3),
    CappedSoftmax(9, 0.5),
    OneVsRest(Logistic(), 4),
    BallSoftmax(12, 0.75),
]


def problem(loss, seed, n=300, d=7, R=1.5):
    rng = np.random.default_rng(seed)
    X = bound_rows(rng.standard_normal((n, d)) * rng.choice([1e-6, 1.0, 50.0], (n, 1)), R)
    C = loss.outputs()
    y = rng.integers(0, C, n) if C > 1 else rng.choice([-1.0, 1.0], n)
    sums = WholeSums(loss, d, R, loss.gradient_norm(R))
    theta = rng.standard_normal(sums.shape) * 10.0 ** rng.integers(-12, 6)
    return sums, theta, sums.features(X), y, X


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_any_division_in_any_order_is_the_same_sum(loss) -> None:
    for seed in range(4):
        sums, theta, X, y, _ = problem(loss, seed)
        rng = np.random.default_rng(seed)
        whole = sums.of(theta, X, y)
        order = rng.permutation(len(y))
        cuts = np.sort(rng.integers(0, len(y) + 1, 9))
        parts = [sums.of(theta, X[part], y[part]) for part in np.split(order, cuts)]
        again = sum(parts[k] for k in rng.permutation(len(parts)))
        assert (sums.value(again) == sums.value(whole)).all()
        single = sum(sums.of(theta, X[k : k + 1], y[k : k + 1]) for k in order)
        assert (sums.value(single) == sums.value(whole)).all()


@pytest.mark.parametrize("loss", LOSSES[:4], ids=repr)
def test_scores_and_sums_are_as_near_as_proved(loss) -> None:
    """Against the sum in rational numbers of the slopes at exact scores."""
    u = Fraction(1, 2**53)
    for seed in range(6):
        sums, theta, X, y, raw = problem(loss, seed, n=40)
        unit = Fraction(sums._feature)
        rows = [[Fraction(float(v)) * unit for v in row] for row in X]
        assert all(
            abs(a) <= abs(Fraction(float(b)))
            for row, old in zip(rows, raw, strict=True)
            for a, b in zip(row, old, strict=True)
        )  # towards zero
        exact = [
            sum(a * Fraction(t) for a, t in zip(row, theta.tolist(), strict=True)) for row in rows
        ]
        scores = np.array([float(s) for s in exact])
        slopes = loss.slope(scores.copy(), y)
        found = sums.value(sums.of(theta, X, y))
        R, K, d = Fraction(sums.feature_bound), Fraction(sums.gradient_norm), X.shape[1]
        length = Fraction(float(np.linalg.norm(theta))) * (1 + 64 * u)
        moved = gamma(d + 8) * R * length * Fraction(loss.smoothness(1.0)) + K / R * 16 * u
        allowed = len(y) * (R * moved + K * (4 * gamma(9) + gamma(32)))
        for j in range(d):
            true = sum(Fraction(float(s)) * row[j] for s, row in zip(slopes, rows, strict=True))
            assert abs(Fraction(float(found[j])) - true) <= allowed


def test_the_largest_block_does_not_round() -> None:
    """All bits of all factors are in use, with one sign: the sum is that of Python's integers."""

    class Steep(Huber):
        def slope(self, scores, y):
            return np.full(len(y), np.nextafter(1.0, 0.0))

    sums = WholeSums(Steep(1.0), 1, 1.0 - 2**-30, 1.0)
    n = 3 * MOST_ROWS + 5
    X = np.full((n, 1), 2.0**23, np.float32)
    limbs = [[int(v) for v in half.ravel()] for half in sums.of(np.ones(1), X, np.zeros(n))]
    high, low = limbs
    total = sum(
        (h * 2**32 + m) << (17 * (2 - k)) for k, (h, m) in enumerate(zip(high, low, strict=True))
    )
    whole = round(Fraction(np.nextafter(1.0, 0.0)) / Fraction(sums._slope))
    assert total == n * 2**23 * whole
    assert np.isfinite(sums.value(sums.of(np.full(1, 1e300), X, np.zeros(n)))).all()


def test_what_has_no_units_is_refused() -> None:
    for columns, bound in ((10**5, 1.0), (3, 1e200), (3, 1e-200)):
        with pytest.raises(UnsupportedError, match="whole numbers"):
            WholeSums(Logistic(), columns, bound, 1.0)


def test_the_error_is_charged_even_for_billions() -> None:
    run = Training(
        records=2**31,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    found = whole_arithmetic(run, Logistic(), 50)
    assert found is not None
    assert 0 < found.error * run.records < 1e-2  # of a record's share
