"""Chourasia, Ye & Shokri 2021, statement by statement, against exact laws and high precision."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from lastiterate import Loss, Training, account
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.published import chourasia_ye_shokri as paper
from lastiterate.published.setting import Mixture, renyi_moments

FIGURE_2 = (4.0, 0.02, 5000, 0.02)  # S_g, sigma, n, step size


def random_mixture(rng: np.random.Generator) -> Mixture:
    """Gaussians narrower than the standard normal, so that every Renyi divergence is finite."""
    return list(rng.dirichlet([1.0, 1.0])), list(rng.normal(size=2)), list(rng.uniform(0.4, 0.9, 2))


STANDARD: Mixture = ([1.0], [0.0], [1.0])


@pytest.mark.parametrize("order", [1.3, 2.0, 7.5])
def test_renyi_moments_against_high_precision(order):
    mp.mp.dps = 25
    law = [0.3, 0.7], [-1.0, 0.6], [0.5, 0.8]
    parts = list(zip(*law, strict=True))

    def p(x):
        return sum(w * mp.npdf(x, m, s) for w, m, s in parts)

    def slope(x):
        return sum(-w * mp.npdf(x, m, s) * (x - m) / s**2 for w, m, s in parts) / p(x) + x

    ends = [-12, -2, 0, 2, 12]

    def moment(a):
        return mp.quad(lambda x: p(x) ** a * mp.npdf(x) ** (1 - a), ends)

    def divergence(a):
        return mp.log(moment(a)) / (a - 1)

    found = renyi_moments(order, law, STANDARD)
    information = mp.quad(lambda x: p(x) ** order * mp.npdf(x) ** (1 - order) * slope(x) ** 2, ends)
    assert found.divergence == pytest.approx(float(divergence(order)), rel=1e-9)
    assert found.moment == pytest.approx(float(moment(order)), rel=1e-9)
    assert found.information == pytest.approx(float(information), rel=1e-6)
    assert found.slope == pytest.approx(float(mp.diff(divergence, order)), rel=1e-6)


def test_lemma_2_bounds_the_rate_of_an_exact_pair():
    """Drifts +-S_v/2 from one Gaussian: R = a (S_v t)^2 / (2 (v + 2 sigma^2 t)), exactly."""
    v, sigma, gap, order = 0.5, 0.7, 0.9, 3.0
    for t in (0.2, 1.0, 4.0):
        spread = v + 2 * sigma**2 * t
        rate = order * gap**2 * (t / spread - sigma**2 * t**2 / spread**2)
        deviation = math.sqrt(spread)
        pair = ([1.0], [gap * t], [deviation]), ([1.0], [0.0], [deviation])
        for gamma in (0.1, 0.5, 1.0, 2.0):
            assert rate <= paper.lemma_2(order, gap, sigma, *pair, gamma) * (1 + 1e-6)


def test_lemma_3_on_random_mixtures():
    rng = np.random.default_rng(1)
    for _ in range(25):
        left, right = paper.lemma_3(rng.uniform(1.1, 8.0), 1.0, random_mixture(rng), STANDARD)
        assert left <= right * (1 + 1e-6)
    # a law of two peaks is not 1-LSI, and the inequality fails for it
    peaks = [-4.0, 4.0], [1.0, 1.0]
    left, right = paper.lemma_3(2.0, 1.0, ([0.9, 0.1], *peaks), ([0.5, 0.5], *peaks))
    assert left > right


def test_lsi_constants_of_a_noisy_linear_recursion():
    """Gaussians are LSI with one over their variance: the calculus gives exactly that."""
    step, lam, sigma = 0.3, 0.8, 0.6
    constant, variance = math.inf, 0.0
    for _ in range(200):
        constant = paper.lemma_9(paper.lemma_8(constant, 1 - step * lam), step * sigma**2)
        variance = (1 - step * lam) ** 2 * variance + 2 * step * sigma**2
        assert constant == pytest.approx(1 / variance, rel=1e-12)
    stationary = paper.lemma_5(lam, sigma)  # of the diffusion; the recursion's is (2 - h)/2 of it
    assert constant == pytest.approx(stationary * (2 - step * lam), rel=1e-9)


def exact_coefficient(step, steps):
    """s^2/2nu^2 units: mean and variance of the recursion x <- (1 - step) x + s + N(0, nu^2)."""
    mean = variance = 0.0
    for _ in range(steps):
        mean, variance = (1 - step) * mean + 1.0, (1 - step) ** 2 * variance + 1.0
    return mean**2 / variance


@pytest.mark.parametrize("step", [0.001, 0.02, 0.3, 0.9])
@pytest.mark.parametrize("steps", [1, 3, 81, 1000])
def test_every_bound_is_above_the_exact_divergence_of_quadratics(step, steps):
    exact = exact_coefficient(step, steps)
    assert paper.theorem_1(1.0, steps) >= exact * (1 - 1e-12)
    for gamma in (0.05, 0.5, 0.95):
        rate = step * (2 - step)  # Corollary 2
        assert paper.theorem_2(1.0, rate, steps, gamma) >= exact * (1 - 1e-12)
        assert paper.theorem_2(1.0, step, steps, gamma) >= exact * (1 - 1e-12)  # Corollary 1


@pytest.mark.parametrize("step", [0.001, 0.02, 0.3, 0.9])
@pytest.mark.parametrize("steps", [1, 3, 81, 1000])
def test_theorem_3_is_below_and_its_proof_attained(step, steps):
    exact = exact_coefficient(step, steps)
    assert paper.theorem_3_exact(1.0, step, steps) == pytest.approx(exact, rel=1e-9)
    assert paper.theorem_3(1.0, step, steps) <= exact


def test_theorem_2_is_the_printed_formula():
    """(56), (68), (70) and the proof's divergence, letter by letter, with Figure 2's numbers."""
    mp.mp.dps = 30
    gradient, sigma, n, eta = (mp.mpf(x) for x in FIGURE_2)
    unit = paper.price(*FIGURE_2)
    for steps in (1, 10, 1000):
        c = mp.mpf("0.7") / (2 * sigma**2)
        printed = (
            gradient**2 / (2 * c * sigma**4 * n**2) * (1 - mp.exp(-(sigma**2) * c * eta * steps))
        )
        rate = float(2 * sigma**2 * c * eta)
        assert paper.theorem_2(unit, rate, steps) == pytest.approx(float(printed), rel=1e-12)
        corollary = gradient**2 / ((2 - eta) * sigma**2 * n**2)
        corollary *= 1 - mp.exp(-(2 - eta) / 2 * eta * steps)
        rate = FIGURE_2[3] * (2 - FIGURE_2[3])
        assert paper.theorem_2(unit, rate, steps) == pytest.approx(float(corollary), rel=1e-12)
        scale = gradient**2 / (4 * sigma**2 * n**2)
        lower = scale * (1 - mp.exp(-eta * steps))
        assert paper.theorem_3(unit, 0.02, steps) == pytest.approx(float(lower), rel=1e-12)


def test_the_first_better_step_does_not_depend_on_the_order():
    assert {paper.first_better_steps(order, 0.02) for order in (1.5, 10.0, 30.0, 200.0)} == {81}
    assert paper.theorem_2(1.0, 0.02 * 1.98, 80) >= 80.0 > 79.9
    assert paper.theorem_2(1.0, 0.02 * 1.98, 81) < 81.0


def test_theorem_4_meets_its_target_and_its_risk():
    problem = lipschitz, lam, beta, n, dimension = 1.0, 0.1, 1.0, 10_000, 10
    order, epsilon = 8.0, 0.5
    found = paper.theorem_4(problem, order, epsilon)
    run = Training.langevin(
        records=n,
        steps=found.steps,
        step_size=found.step_size,
        sigma=math.sqrt(found.variance),
        gradient_sensitivity=2 * lipschitz,
        gradient_norm=lipschitz,
        adjacency="replace",
    )
    guarantee = account(run, Loss(smoothness=beta, strong_convexity=lam))
    assert guarantee.rdp(order) <= epsilon
    assert guarantee.rdp(order) <= 0.51 * epsilon  # half the variance is enough
    bound = 10 * order * beta * dimension * lipschitz**2 / (lam**2 * epsilon * n**2)
    assert found.risk <= bound
    fewer = paper.lemma_6(problem, found.variance, found.step_size, found.steps - 20)
    assert fewer > bound  # K* is not much more than it needs to be

    delta, target = 1e-5, 1.0
    approximate = paper.theorem_4_dp(problem, target, delta)
    printed = 8 * lipschitz**2 * (target + 2 * math.log(1 / delta)) / (lam * target**2 * n**2)
    assert approximate.variance == pytest.approx(printed, rel=1e-12)
    most = (
        2 * beta**2 / lam**2 * math.log((n * target) ** 2 / (4 * math.log(1 / delta) * dimension))
    )
    assert approximate.steps <= math.ceil(most)
    with pytest.raises(AssumptionError, match="epsilon"):
        paper.theorem_4_dp(problem, 30.0, 1e-5)


def test_lemma_6_against_the_exact_risk_of_a_quadratic():
    """|theta|^2 lambda/2 in one dimension: the exact risk of the recursion is below the bound."""
    lam, eta, variance, radius = 0.5, 0.25, 0.01, 2.0
    for steps in (1, 10, 200):
        mean, second = radius * (1 - eta * lam) ** steps, 0.0
        for _ in range(steps):
            second = (1 - eta * lam) ** 2 * second + 2 * eta * variance
        problem = lam * radius, lam, lam, 1, 1
        exact = lam / 2 * (mean**2 + second)
        assert exact <= paper.lemma_6(problem, variance, eta, steps)


def test_algorithm_1_stays_in_a_ball_that_does_not_move():
    centre, radius = np.array([5.0, 0.0]), 0.5  # the Gaussian start is far outside
    path = paper.algorithm_1([[9.0, 9.0]], (list(centre), radius), 0.2, 0.3, 50, seed=3)
    away = np.linalg.norm(path - centre, axis=1)
    assert np.all(away <= radius * (1 + 1e-12))
    assert away[0] == pytest.approx(radius)  # projected, and not the centre of the ball
    assert np.linalg.norm(path[0]) < 5.0


def test_tracing_diffusion_ends_at_the_step_of_algorithm_1():
    rng = np.random.default_rng(2)
    ball = [0.0, 0.0], 0.4
    ours, theirs = rng.normal(size=(2, 5, 2))
    theta, z, eta, sigma = rng.normal(size=2), rng.normal(size=2), 0.2, 0.3
    ended = paper.tracing_diffusion(theta, (ours, theirs), ball, eta, sigma, eta, z)
    moved = theta - eta * (theta - ours.mean(axis=0)) + math.sqrt(2 * eta) * sigma * z
    length = np.linalg.norm(moved)
    assert ended == pytest.approx(moved * min(1.0, 0.4 / length), rel=1e-12)
    # at a time s both runs share the average drift and differ by s times half the difference
    s = 0.07
    pair = [
        paper.tracing_diffusion(theta, (a, b), ball, eta, sigma, s)
        for a, b in ((ours, theirs), (theirs, ours))
    ]
    gap = np.linalg.norm(pair[0] - pair[1])
    sensitivity = np.linalg.norm(ours.mean(axis=0) - theirs.mean(axis=0))  # S_g/n
    assert gap == pytest.approx(s * sensitivity, rel=1e-12)  # Lemma 4


def test_bad_input():
    with pytest.raises(DescriptionError):
        paper.theorem_3(1.0, 1.0, 5)
    with pytest.raises(DescriptionError):
        paper.theorem_4((1.0, 0.1, 1.0, 100, 1), order=1.0, epsilon=0.5)
    with pytest.raises(DescriptionError):
        renyi_moments(1.0, STANDARD, STANDARD)
