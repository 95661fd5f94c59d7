"""A thinned mixture is above the whole one and close to it; the whole decides where it must."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from flint import arb

from lastiterate.verifier.balls import mixture_delta, precision
from lastiterate.verifier.profile import Judge, Profile
from lastiterate.verifier.thinned import FEWEST, Thinned


def mixture(rng, count=FEWEST, centre=None, spread=None):
    """Points on a fine grid and a bell of masses, or whatever else a cost law may be."""
    centre = centre or 10 ** rng.uniform(-3, 1)
    width = centre * (spread or rng.choice([1e-4, 1e-2, 0.5]))
    squares = np.sort(np.maximum(centre + width * np.linspace(-3, 3, count), 0.0))
    if rng.random() < 0.5:
        squares = np.sort(rng.choice(squares, count))  # ties
    masses = rng.exponential(1.0, count) * np.exp(-(np.linspace(-3, 3, count) ** 2) / 2)
    masses[rng.random(count) < 0.1] = 0.0
    return [arb(q) for q in squares], [arb(m) for m in masses / masses.sum() * (1 - 1e-9)]


def test_never_below_the_whole_mixture():
    rng = np.random.default_rng(1)
    gaps = []
    for _ in range(25):
        squares, weights = mixture(rng, FEWEST + int(rng.integers(0, 50)))
        thin = Thinned.of(squares, weights)
        scale = float(squares[len(squares) // 2]) ** 0.5
        for epsilon in (0.0, scale * rng.uniform(0, 8), 1e3):
            point = arb(epsilon)
            with precision():
                whole, few = mixture_delta(squares, weights, point), thin.delta(point)
                assert few * (1 + arb(2) ** -100) >= whole  # both are rounded up
            if 0 < whole < 1e-2:
                gaps.append(float(few / whole - 1))
    assert min(gaps) < 1e-5  # it is worth asking


def test_the_lemma():
    """delta is convex in mu^2 where epsilon^2/q - q/4 >= 1, and not everywhere beyond."""
    rng, concave = np.random.default_rng(2), 0
    mpmath.mp.dps = 60
    for _ in range(150):
        epsilon, q = mpmath.mpf(10 ** rng.uniform(-3, 1.5)), mpmath.mpf(10 ** rng.uniform(-4, 2))

        def delta(square, epsilon=epsilon):
            mu = mpmath.sqrt(square)
            a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
            return mpmath.ncdf(-a) - mpmath.exp(epsilon) * mpmath.ncdf(-b)

        h = q * mpmath.mpf("1e-6")
        bend = delta(q - h) + delta(q + h) - 2 * delta(q)
        if epsilon**2 / (q + h) - (q + h) / 4 >= 1:
            assert bend >= 0
        concave += bend < 0
    assert concave > 20


def test_few_points_and_points_in_disorder_stay_whole():
    squares, weights = mixture(np.random.default_rng(3), spread=0.5)
    assert Thinned.of(squares[:-1], weights[:-1]) is None
    assert Thinned.of(squares[::-1], weights) is None
    assert Thinned.of([*squares[1:], squares[0]], weights) is None
    vague = [arb(q, 1.0) for q in squares]  # balls that overlap are taken at their upper ends
    assert Thinned.of(vague, weights) is not None


@pytest.mark.parametrize("failure", [None, 1e-9])
def test_a_judge_answers_as_from_the_whole_mixture(failure):
    """Whatever is proved from the whole is proved, and nothing that is not."""
    rng = np.random.default_rng(4)
    for _ in range(8):
        squares, weights = mixture(rng, centre=0.01, spread=0.3)
        bad = None if failure is None else arb(failure)
        judge = Judge(Profile(tuple(squares), tuple(weights), failure=bad), 1e-10)
        epsilon = float(rng.uniform(0.2, 0.6))
        with precision():
            exact = mixture_delta(squares, weights, arb(epsilon)) + (failure or 0)
        found = judge.delta(epsilon)
        assert float(found) == pytest.approx(float(exact), rel=1e-12)
        for share in (0.5, 1 - 1e-7, 1 - 1e-12, 1 + 1e-12, 1 + 1e-7, 2.0):
            target = float(exact) * share
            assert judge.holds(epsilon, target) == (share > 1)
