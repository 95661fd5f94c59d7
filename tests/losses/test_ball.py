"""The softmax in a ball against truth: maximisers with fifty digits, constants, consistency."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests.laws.ball_slopes import ball_slope

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.losses import BallSoftmax, CappedSoftmax, Softmax

RADII = st.sampled_from([0.05, 0.3, 0.5, math.sqrt(0.5), 0.9, 1.0])
CLASSES = st.sampled_from([2, 3, 10, 40])
SEEDS = st.integers(0, 10**6)


def near_the_edge(rng: np.random.Generator, n: int, C: int, c: float) -> np.ndarray:
    """Scores with label 0 for which the plain softmax has a slope about as long as the radius."""
    s = rng.choice([0.1, 1.0, 20.0]) * rng.standard_normal((n, C))
    r = np.exp(s[:, 1:] - s[:, 1:].max(axis=1, keepdims=True))
    share = np.minimum(c * r.sum(1) / np.sqrt((r**2).sum(1) + r.sum(1) ** 2), 0.999)
    share = np.minimum(share * rng.uniform(0.98, 1.02, n), 0.9999)
    s[:, 0] = np.log(np.exp(s[:, 1:]).sum(axis=1)) + np.log((1 - share) / share)
    return s


def scores_of_all_kinds(rng: np.random.Generator, n: int, C: int, c: float) -> np.ndarray:
    kind = rng.integers(4)
    if kind == 0:
        return near_the_edge(rng, n, C, c)
    if kind == 1:  # ties, and classes that hardly matter
        return rng.choice([0.0, 0.0, 1.0, -40.0, 5.0], (n, C))
    return 10.0 ** rng.uniform(-6, 3) * rng.standard_normal((n, C))


@given(SEEDS, st.sampled_from([2, 3, 5]), st.sampled_from([1e-3, 0.2, 0.5, 0.75, 1.0]))
@settings(max_examples=40, deadline=None)
def test_computed_slopes_are_as_near_to_exact_ones_as_is_charged(
    seed: int, classes: int, radius: float
) -> None:
    rng = np.random.default_rng(seed)
    loss = BallSoftmax(classes, radius)
    scores = scores_of_all_kinds(rng, 1, classes, radius)
    scores *= rng.choice([1.0, 1.0, 1e5, 1e9])
    computed = loss.slope(scores.copy(), np.array([0]))[0]
    with mpmath.workdps(60):
        exact = ball_slope(scores[0].tolist(), 0, radius)
        parts = [(mpmath.mpf(a) - b) ** 2 for a, b in zip(computed.tolist(), exact, strict=True)]
        off = float(mpmath.sqrt(mpmath.fsum(parts)))
    assert off <= float(loss.slope_roundings()) * 2.0**-53 * radius


@pytest.mark.parametrize("classes", [3, 12, 40])
def test_what_is_computed_of_a_record_depends_on_no_other(classes: int) -> None:
    """To the last bit: a sensitivity counts on it where terms of records are added up."""
    rng, loss = np.random.default_rng(classes), BallSoftmax(classes)
    scores = rng.choice([0.1, 1.0, 5.0, 30.0], (400, 1)) * rng.standard_normal((400, classes))
    scores[::9, 1] = scores[::9, 0]
    y = rng.integers(0, classes, len(scores))
    slopes, chances = loss.slope(scores.copy(), y), loss.probability(scores)
    for some in (rng.permutation(400), np.arange(0, 400, 2), *np.arange(60).reshape(-1, 3)):
        assert (loss.slope(scores[some], y[some]) == slopes[some]).all()
        assert (loss.probability(scores[some]) == chances[some]).all()
    alone = [loss.slope(scores[k : k + 1].copy(), y[k : k + 1])[0] for k in range(60)]
    assert (np.array(alone) == slopes[:60]).all()


@given(SEEDS, CLASSES, RADII)
@settings(max_examples=40, deadline=None)
def test_the_slope_is_the_derivative_of_the_value(seed: int, classes: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    loss, n, h = BallSoftmax(classes, radius), 20, 1e-5
    y, s = rng.integers(classes, size=n), 4 * rng.standard_normal((n, classes))
    direction = rng.standard_normal(s.shape)
    slope = (loss.slope(s.copy(), y) * direction).sum(axis=1)
    wanted = (loss.value(s + h * direction, y) - loss.value(s - h * direction, y)) / (2 * h)
    assert slope == pytest.approx(wanted, abs=1e-7)


@given(SEEDS, CLASSES, st.one_of(RADII, st.floats(0.01, 1.0)))
@settings(max_examples=80, deadline=None)
def test_convex_smooth_and_short(seed: int, classes: int, radius: float) -> None:
    """Cocoercivity, ⟨g − g', s − s'⟩ ≥ |g − g'|²/β, is convexity and smoothness in one."""
    rng = np.random.default_rng(seed)
    loss, n = BallSoftmax(classes, radius), 200
    y, s = np.zeros(n, dtype=int), scores_of_all_kinds(rng, n, classes, radius)
    apart = rng.choice([1e-4, 0.01, 1.0, 30.0]) * rng.standard_normal(s.shape)
    g, h = loss.slope(s.copy(), y), loss.slope(s + apart, y)
    product, square = ((h - g) * apart).sum(axis=1), ((h - g) ** 2).sum(axis=1)
    size = np.abs(apart).max()
    assert (product >= square / loss.smoothness(1.0) - 1e-11 * (size + size**2)).all()
    assert np.linalg.norm(g, axis=1).max() <= loss.gradient_norm(1.0) * (1 + 1e-13)
    assert np.abs(g.sum(axis=1)).max() < 1e-12


@pytest.mark.parametrize("radius", [0.1, 0.3, 0.5, 0.9])
def test_the_constants_are_attained_or_nearly(radius: float) -> None:
    loss = BallSoftmax(5, radius)
    far = np.array([[0.0, 60.0, 60.0, 60.0, 60.0]])
    assert np.linalg.norm(loss.slope(far, np.array([0]))) == pytest.approx(loss.gradient_norm(1.0))
    # Two classes that matter, just inside: 2w(1 − w) with w = radius/√2, which is at most 1/2.
    w = min(radius / math.sqrt(2), 0.5) * (1 - 1e-6)
    s = np.array([[math.log((1 - w) / w), 0.0, -60.0, -60.0, -60.0]])
    step = 1e-5 * np.array([[1.0, -1.0, 0.0, 0.0, 0.0]]) / math.sqrt(2)
    moved = loss.slope(s + step, np.array([0])) - loss.slope(s.copy(), np.array([0]))
    bend = np.linalg.norm(moved) / 1e-5
    assert 0.55 * loss.smoothness(1.0) < bend <= loss.smoothness(1.0)
    assert Fraction(loss.gradient_norm(3.0)) >= 3 * Fraction(radius)


def test_two_classes_are_the_capped_loss_and_more_pull_harder() -> None:
    rng = np.random.default_rng(0)
    s, y = 3 * rng.standard_normal((50, 2)), rng.integers(2, size=50)
    ball, cap = BallSoftmax(2, 0.6), CappedSoftmax(2, 0.6 / math.sqrt(2))
    assert ball.slope(s.copy(), y) == pytest.approx(cap.slope(s.copy(), y), abs=1e-15)
    assert ball.value(s, y) == pytest.approx(cap.value(s, y), abs=1e-13)
    nothing, one = np.zeros((1, 26)), np.array([0])
    pull = BallSoftmax(26, math.sqrt(0.5)).slope(nothing.copy(), one)[0, 0]
    assert pull / CappedSoftmax(26, 0.5).slope(nothing, one)[0, 0] == pytest.approx(
        math.sqrt(2 * 25 / 26)
    )


def test_inside_of_the_ball_it_is_the_plain_softmax() -> None:
    s, y = np.array([[3.0, 0.0, -1.0]]), np.array([0])
    assert (BallSoftmax(3, 0.5).slope(s.copy(), y) == Softmax(3).slope(s.copy(), y)).all()


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e6, 1e12, 1e100, 1e300, 1.7e308])
def test_extreme_scores_have_short_slopes_in_time(size: float) -> None:
    rng = np.random.default_rng(1)
    s = size * rng.choice([-1.0, 0.0, 1.0, 0.3], (60, 7))
    over = "raise" if size < 1e307 else "ignore"  # differences of the largest numbers are none
    with np.errstate(over=over, invalid="raise", divide="raise"):
        slope = BallSoftmax(7, 0.7).slope(s, rng.integers(7, size=60))
    assert np.linalg.norm(slope, axis=1).max() <= 0.7 * (1 + 1e-13)
    assert np.abs(slope.sum(axis=1)).max() < 1e-12


@given(SEEDS, st.sampled_from([2, 3, 6]), st.sampled_from([0.3, 0.7, 1.0]))
@settings(max_examples=20, deadline=None)
def test_probabilities_and_their_order_are_read_off_optimal_scores(
    seed: int, classes: int, radius: float
) -> None:
    """Minimise the expected loss under known class probabilities; read them back."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(classes, 2.0)) * 0.9 + 0.1 / classes
    loss, y = BallSoftmax(classes, radius), np.arange(classes)

    def risk(scores: np.ndarray) -> tuple[float, np.ndarray]:
        each = np.tile(scores, (classes, 1))
        return float(truth @ loss.value(each, y)), truth @ loss.slope(each.copy(), y)

    found = minimize(risk, np.zeros(classes), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    assert loss.probability(found[None])[0] == pytest.approx(truth, abs=1e-5)
    order = np.argsort(truth)
    clear = np.diff(truth[order]) > 1e-4
    assert (np.diff(found[order])[clear] > 0).all()


def test_probabilities_of_many_rows_and_of_extreme_ones() -> None:
    rng = np.random.default_rng(3)
    s = np.vstack([rng.standard_normal((300, 9)), 1e4 * rng.standard_normal((30, 9))])
    p = BallSoftmax(9, 0.7).probability(s)
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert (p.argmax(axis=1) == s.argmax(axis=1)).all()
    assert (BallSoftmax(9, 0.7).probability(s[4:5]) == p[4]).all()


def test_many_classes_have_probabilities_in_time() -> None:
    """Nearly those that all of them together have: the rest have little where somebody leads."""
    rng = np.random.default_rng(0)
    s = rng.standard_normal((40, 60)) * 3
    s[:, 7] += 6
    loss = BallSoftmax(60, 0.7)
    p = loss.probability(s)
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert (np.argsort(p, axis=1) == np.argsort(s, axis=1)).all()
    pulls = np.stack([loss.slope(s.copy(), np.full(40, y)) for y in range(60)], axis=1)
    moved = np.einsum("ny,nyj->nj", p, pulls)  # the expected gradient
    assert np.abs(moved).sum(axis=1).max() < 0.02
    assert loss.probability(rng.standard_normal((500, 60))).shape == (500, 60)


@pytest.mark.parametrize("radius", [0.0, -1.0, 1.0 + 1e-12, math.inf, math.nan])
def test_what_is_no_radius_is_refused(radius: float) -> None:
    with pytest.raises(DescriptionError, match="radius"):
        BallSoftmax(3, radius)


def test_whole_numbers_refuse_it() -> None:
    torch = pytest.importorskip("torch")
    from lastiterate import FullBatch, Training
    from lastiterate.train import noisy_descent

    run = Training(
        records=4,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=0.7,
        batches=FullBatch(),
        adjacency="replace",
    )
    X = torch.eye(4, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="CappedSoftmax"):
        noisy_descent(
            BallSoftmax(3, 0.7),
            X,
            run,
            labels=[0, 1, 2, 0],
            feature_bound=1.0,
            products="exact",
            radius=10.0,
        )
