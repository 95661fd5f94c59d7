"""The capped losses against truth: constants, convexity, gradients, consistency."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from lastiterate.losses import Logistic, Softmax
from lastiterate.losses.capped import CappedLogistic, CappedSoftmax

CAPS = st.sampled_from([0.2, 0.5, 0.7, 0.95, 1.0])


def _loss(classes: int, cap: float) -> CappedSoftmax | CappedLogistic:
    return CappedLogistic(cap) if classes == 1 else CappedSoftmax(classes, cap)


def _labels(rng: np.random.Generator, classes: int, n: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], n) if classes == 1 else rng.integers(classes, size=n)


def _scores(rng: np.random.Generator, classes: int, n: int) -> np.ndarray:
    scores = 4 * rng.standard_normal((n, classes))
    return scores[:, 0] if classes == 1 else scores


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 10]), CAPS)
@settings(max_examples=60, deadline=None)
def test_the_slope_is_the_derivative_of_the_value(seed: int, classes: int, cap: float) -> None:
    rng = np.random.default_rng(seed)
    loss, n, h = _loss(classes, cap), 20, 1e-5
    y, s = _labels(rng, classes, n), _scores(rng, classes, n)
    direction = rng.standard_normal(s.shape)
    slope = loss.slope(s.copy(), y) * direction
    wanted = (loss.value(s + h * direction, y) - loss.value(s - h * direction, y)) / (2 * h)
    assert (slope if classes == 1 else slope.sum(axis=1)) == pytest.approx(wanted, abs=1e-7)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 10]), CAPS)
@settings(max_examples=100, deadline=None)
def test_convex_smooth_and_short(seed: int, classes: int, cap: float) -> None:
    """Cocoercivity, ⟨g − g', s − s'⟩ ≥ |g − g'|²/β, is convexity and smoothness in one."""
    rng = np.random.default_rng(seed)
    loss, n = _loss(classes, cap), 200
    y = _labels(rng, classes, n)
    s = _scores(rng, classes, n)
    other = s + rng.choice([1e-3, 0.1, 3.0]) * rng.standard_normal(s.shape)
    g, h = (loss.slope(x.copy(), y).reshape(n, -1) for x in (s, other))
    gap, apart = g - h, (s - other).reshape(n, -1)
    product, square = (gap * apart).sum(axis=1), (gap**2).sum(axis=1)
    assert (product >= square / loss.smoothness(1.0) - 1e-12).all()
    assert np.linalg.norm(g, axis=1).max() <= loss.gradient_norm(1.0) * (1 + 1e-15)


@pytest.mark.parametrize("cap", [0.3, 0.5, 1.0])
def test_the_bounds_are_attained(cap: float) -> None:
    far = np.array([[0.0, 60.0, -60.0]])
    slope = CappedSoftmax(3, cap).slope(far.copy(), np.array([0]))
    assert np.linalg.norm(slope) == pytest.approx(CappedSoftmax(3, cap).gradient_norm(1.0))
    assert abs(CappedLogistic(cap).slope(np.array([-60.0]), np.array([1.0]))[0]) == cap
    # Just inside the cap the curvature is q(1 − q) at wrong probability q.
    q, h = min(cap, 0.5) - 1e-6, 1e-6
    margin = math.log((1 - q) / q)
    ends = CappedLogistic(cap).slope(np.array([margin, margin + h]), np.ones(2))
    assert (ends[1] - ends[0]) / h == pytest.approx(q * (1 - q), rel=1e-3)


@pytest.mark.parametrize("cap", [1e-3, 0.1, 0.3, 0.45, 0.5, 0.8])
def test_a_small_cap_is_smoother(cap: float) -> None:
    """w(1 - w) just inside the cap is the largest curvature, and nearly all of what is declared."""
    w = min(cap, 0.5)
    margin, h = math.log((1 - w) / w), 1e-5
    slopes = CappedLogistic(cap).slope(np.array([margin, margin + h]), np.ones(2))
    declared = Fraction(CappedLogistic(cap).smoothness(3.0))
    exact = min(Fraction(cap), Fraction(1, 2))
    assert exact * (1 - exact) * 9 <= declared <= exact * (1 - exact) * 9 * (1 + Fraction(1, 2**50))
    assert (slopes[1] - slopes[0]) / h == pytest.approx(float(declared) / 9, rel=1e-3)
    # two classes that matter, pulled apart along (1, -1)/sqrt 2: twice that
    scores = np.array([[margin / 2, -margin / 2, -60.0]])
    step = np.array([[1.0, -1.0, 0.0]]) * h / math.sqrt(2)
    wrong = CappedSoftmax(3, cap)
    moved = wrong.slope(scores + step, np.array([0])) - wrong.slope(scores.copy(), np.array([0]))
    assert np.linalg.norm(moved) / h == pytest.approx(wrong.smoothness(3.0) / 9, rel=1e-3)


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 10]), st.floats(0.01, 0.6))
@settings(max_examples=60, deadline=None)
def test_no_pair_of_scores_bends_more_near_the_cap(seed: int, classes: int, cap: float) -> None:
    rng = np.random.default_rng(seed)
    n, loss = 200, CappedSoftmax(classes, cap)
    y = np.zeros(n, dtype=int)
    s = rng.choice([0.1, 1.0, 30.0]) * rng.standard_normal((n, classes))
    wrong = np.log(np.exp(s[:, 1:]).sum(axis=1))
    edge = cap * rng.uniform(0.9, 1.1, n)  # the wrong classes hold about the cap
    s[:, 0] = wrong + np.log((1 - edge) / edge)
    apart = rng.choice([1e-4, 0.01, 1.0]) * rng.standard_normal(s.shape)
    gap = loss.slope(s + apart, y) - loss.slope(s.copy(), y)
    product, square = (gap * apart).sum(axis=1), (gap**2).sum(axis=1)
    assert (product >= square / loss.smoothness(1.0) - 1e-12).all()


def test_a_cap_of_one_is_the_plain_loss() -> None:
    rng = np.random.default_rng(0)
    s, y = rng.standard_normal((50, 4)), rng.integers(4, size=50)
    assert CappedSoftmax(4, 1.0).value(s, y) == pytest.approx(Softmax(4).value(s, y))
    assert CappedSoftmax(4, 1.0).slope(s.copy(), y) == pytest.approx(Softmax(4).slope(s.copy(), y))
    signs = np.where(y < 2, 1.0, -1.0)
    plain, capped = Logistic(), CappedLogistic(1.0)
    assert capped.value(s[:, 0], signs) == pytest.approx(plain.value(s[:, 0], signs))
    assert capped.probability(s[:, 0]) == pytest.approx(expit(s[:, 0]))


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 6]), st.sampled_from([0.5, 0.6, 0.9]))
@settings(max_examples=25, deadline=None)
def test_probabilities_are_recovered_from_optimal_scores(
    seed: int, classes: int, cap: float
) -> None:
    """Minimise the expected loss under known class probabilities; read them back."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(classes, 2.0)) * 0.9 + 0.1 / classes
    loss, y = CappedSoftmax(classes, cap), np.arange(classes)

    def risk(scores: np.ndarray) -> tuple[float, np.ndarray]:
        each = np.tile(scores, (classes, 1))
        return float(truth @ loss.value(each, y)), truth @ loss.slope(each.copy(), y)

    found = minimize(risk, np.zeros(classes), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    assert loss.probability(found[None])[0] == pytest.approx(truth, abs=1e-5)
    assert found.argmax() == truth.argmax() or np.sort(truth)[-1] - np.sort(truth)[-2] < 1e-4


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.01, 1.0))
@settings(max_examples=300, deadline=None)
def test_the_likeliest_class_has_the_highest_score(one: float, two: float, cap: float) -> None:
    p = np.array([one, two * (1 - one)])  # the probabilities of two of several classes
    strength = p * np.maximum(1, (1 - p) / cap)
    assert (strength[0] - strength[1]) * (p[0] - p[1]) >= -1e-12


def test_clipping_the_gradient_instead_would_expand() -> None:
    """Why the loss is capped: at this point a clipped softmax step drives two runs apart by 3.7 %,
    a capped step of the same bound does not."""
    x = np.array([3.0, 1.0])
    theta = np.array([[0.0, 0.0], [1.5, 0.5], [1.98, 0.66]]).T
    bound, l2, eta = 4.139025, 0.05, 0.352941
    assert eta < 2 / (l2 + 10 / 2 + l2)
    y = np.array([0])

    def clipped(w: np.ndarray) -> np.ndarray:
        g = np.outer(x, Softmax(3).slope((x @ w)[None], y)[0])
        return w - eta * (g * min(1, bound / np.linalg.norm(g)) + l2 * w)

    capped_loss = CappedSoftmax(3, bound / math.sqrt(20))
    assert capped_loss.gradient_norm(math.sqrt(10)) <= bound * (1 + 1e-9)

    def capped(w: np.ndarray) -> np.ndarray:
        return w - eta * (np.outer(x, capped_loss.slope((x @ w)[None], y)[0]) + l2 * w)

    def largest_expansion(step: object) -> float:
        h, columns = 1e-6, []
        for k in range(6):
            move = np.zeros(6)
            move[k] = h
            move = move.reshape(2, 3)
            columns.append((step(theta + move) - step(theta - move)).ravel() / (2 * h))  # type: ignore[operator]
        return float(np.linalg.norm(np.array(columns), 2))

    assert largest_expansion(clipped) > 1.03
    assert largest_expansion(capped) <= 1 - eta * l2 + 1e-6
