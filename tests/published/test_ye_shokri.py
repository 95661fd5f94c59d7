"""Published mini-batch bounds: the table of the theory, and the taut string below each of them."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.published import chien_li as shifted
from lastiterate.published import ye_shokri as langevin
from lastiterate.published.chourasia_ye_shokri import lemma_2, price, theorem_2
from lastiterate.published.setting import renyi_moments
from lastiterate.theory.positions import position_mus

# eta lambda, B, K: Y 3.3, with its factor, best split, taut string.
# Units: s^2/2nu^2 = 1; position 0.
TABLE = [
    (0.02, 10, 2, 0.2670, 0.2333, 0.1656, 0.16397),
    (0.02, 10, 5, 0.6409, 0.5388, 0.4141, 0.38343),
    (0.02, 10, 12, 0.9805, 0.8163, 0.7948, 0.68882),
    (0.1, 4, 10, 1.4493, 1.0118, 1.0118, 0.82891),
    (0.1, 4, 30, 1.4786, 1.0311, 1.0311, 0.85377),
    (0.3, 2, 30, 2.2896, 1.2896, 1.2896, 0.96078),
    (0.005, 20, 6, 0.4403, 0.4026, 0.2723, 0.26459),
]


def string(c, batches, epochs):
    """kappa of the taut string at every position, in units s^2/2nu^2."""
    steps = batches * epochs
    return position_mus(np.full(steps, c), np.full(steps, 1.0), np.ones(steps), batches) ** 2


@pytest.mark.parametrize("row", TABLE)
def test_table(row):
    rate, batches, epochs, printed, restored, best, exact = row
    run = (1.0, 1 - rate, batches, epochs)
    assert round(langevin.theorem_3_3(*run), 4) == printed
    assert round(langevin.theorem_3_3_restored(*run), 4) == restored
    assert round(langevin.theorem_3_3_best_split(*run), 4) == best
    assert round(string(1 - rate, batches, epochs)[0], 5) == exact


def test_explanation_146_is_false():
    # eta lambda = 1/2, B = 2, many epochs: the first term is 4/3, the explanation says at most 1.
    first = langevin.equation_141(1.0, 0.5, 2, 60)
    assert first == pytest.approx(4 / 3, rel=1e-9)
    assert first > langevin.equation_146(1.0, 0.5, 2) == 1.0


@pytest.mark.parametrize("c", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize(("batches", "epochs"), [(2, 1), (2, 7), (5, 3), (9, 4)])
def test_every_bound_covers_the_attained_string(c, batches, epochs):
    exact = string(c, batches, epochs)
    for j in range(batches):
        run = (1.0, c, batches, epochs, j)
        for bound in (
            langevin.theorem_3_3,
            langevin.theorem_3_3_restored,
            langevin.theorem_3_3_best_split,
        ):
            assert bound(*run) >= exact[j] * (1 - 1e-9), bound.__name__
        assert langevin.theorem_d4(1.0, batches, epochs, j) >= exact[j] * (1 - 1e-9)
        # eta = 2/(beta + lambda): the update contracts by (beta - lambda)/(beta + lambda).
        step = 0.4
        smooth, strong = (1 + c) / step, (1 - c) / step
        if strong > 0:
            assert (
                langevin.theorem_d5(1.0, step, smooth, strong, batches, epochs, j)
                >= exact[j] - 1e-9
            )
        arrivals = list(range(j, batches * epochs, batches))
        paid = shifted.theorem_a1(c, math.sqrt(2), 1.0, batches * epochs, arrivals)
        assert paid >= exact[j] * (1 - 1e-9)
        assert paid <= epochs * (1 + 1e-9)  # composition


def test_convex_theorem_is_the_string_at_c_one():
    exact = string(1.0, 10, 5)
    for j in range(10):
        assert langevin.theorem_d4(1.0, 10, 5, j) == pytest.approx(exact[j], rel=1e-9)


@pytest.mark.parametrize("order", [1.01, 2.0, 16.0, 64.0])
def test_shuffled_once_covers_the_averaged_strings(order):
    for c, batches, epochs in [(0.9, 4, 3), (0.99, 6, 2), (0.5, 2, 5)]:
        exact = (order - 1) * order * string(c, batches, epochs)
        average = (np.logaddexp.reduce(exact) - math.log(batches)) / (order - 1)
        ours = langevin.theorem_4_2(1.0, c, batches, epochs, order)
        assert ours >= average * (1 - 1e-9)
        theirs = shifted.corollary_a3(c, math.sqrt(2), 1.0, batches * epochs, batches, order)
        assert theirs >= average * (1 - 1e-9)


def test_shuffled_once_keeps_tiny_and_huge_exponents():
    tiny = langevin.theorem_4_2(1e-12, 0.9, 4, 3, 2.0)
    small = langevin.theorem_4_2(1e-6, 0.9, 4, 3, 2.0)
    assert tiny == pytest.approx(small * 1e-6, rel=1e-5)
    assert math.isfinite(langevin.theorem_4_2(1e6, 0.9, 4, 3, 64.0))


@pytest.mark.parametrize("order", [1.5, 4.0, 30.0])
def test_sampled_batches_cover_the_enumerated_strings(order):
    # Independent batches: the record is read at each step with probability 1/2.
    steps, rate = 7, 0.5
    for c, unit in [(0.9, 1.0), (0.5, 0.3), (1.0, 0.5)]:
        logs = []
        for pattern in itertools.product([0.0, 1.0], repeat=steps):
            s = np.array(pattern) * math.sqrt(2 * unit)
            kappa = position_mus(np.full(steps, c), s, np.ones(steps), 1)[0] ** 2 / 2
            logs.append((order - 1) * order * kappa)
        exact = (np.logaddexp.reduce(logs) - steps * math.log(2)) / (order - 1)
        bound = langevin.theorem_4_3(unit, c, rate, steps, order)
        assert exact * (1 - 1e-9) <= bound <= order * unit * steps * (1 + 1e-9)
    assert math.isfinite(langevin.theorem_4_3(1.0, 0.98, 0.05, 2000, 60.0))


def test_reshuffled_corollary_enumerates_or_says_that_it_cannot():
    once = shifted.corollary_a3(0.9, 1.0, 1.0, 6, 2, 4.0)
    anew = shifted.corollary_a3(0.9, 1.0, 1.0, 6, 2, 4.0, reshuffled=True)
    assert 0 < anew != once
    with pytest.raises(UnsupportedError, match="boundary policy"):
        shifted.corollary_a3(0.9, 1.0, 1.0, 400, 20, 4.0, reshuffled=True)


def test_diameter_restart_of_the_shifted_divergence():
    arrivals = list(range(0, 400, 4))
    free = shifted.theorem_a1(1.0, 0.5, 1.0, 400, arrivals)
    bounded = shifted.theorem_a1(1.0, 0.5, 1.0, 400, arrivals, diameter=1.0)
    steps = np.ones(400)
    best = position_mus(steps, 0.5 * steps, steps, 4, diameter=1.0)[0] ** 2 / 2
    assert best * (1 - 1e-9) <= bounded < free


def test_bad_input():
    with pytest.raises(DescriptionError):
        langevin.theorem_3_3(1.0, 0.9, 1, 3)
    with pytest.raises(DescriptionError):
        langevin.theorem_d4(1.0, 4, 3, position=4)
    with pytest.raises(DescriptionError):
        langevin.theorem_4_3(1.0, 0.9, 0.0, 3, 2.0)
    with pytest.raises(DescriptionError):
        langevin.theorem_4_2(1.0, 0.9, 4, 3, 1.0)
    with pytest.raises(DescriptionError):
        langevin.theorem_d5(1.0, 3.0, 1.0, 1.0, 4, 3)


@pytest.mark.parametrize(("c", "least"), [(1e-30, 0.0), (5.0, 0.99 * 0.3**2 / 2)])
def test_powers_beyond_doubles(c, least):
    """c^2000 is no double: the bound is still a number, between the last visit's price and all."""
    found = shifted.theorem_a1(c, 0.3, 1.0, 2000, range(0, 2000, 40))
    assert least <= found <= 50 * 0.3**2 / 2 * 1.001


def test_theorem_2_1_is_above_the_string_and_ryffel_below():
    """The baseline charges every step; with n^2 for b^2 it is below a use in the last batch."""
    for rate, batches, epochs in [(0.01, 20, 3), (0.2, 5, 7), (0.5, 2, 2)]:
        exact = string(1 - rate, batches, epochs)
        assert langevin.theorem_2_1(1.0, rate, batches, epochs) >= exact.max()
    claimed = langevin.ryffel_3_3(1.0, 0.01, 20, 1)
    assert claimed < 0.1
    # one quadratic record in the last batch: N(x, 1) against N(x + s, 1), coefficient s^2/2 = 1
    assert string(0.99, 20, 1)[-1] == pytest.approx(1.0)
    # a batch drawn at random instead: one step, mixture against Gaussian, order 32
    order, rate, s = 32.0, 1 / 20, math.sqrt(2.0)
    law = [1 - rate, rate], [0.0, s], [1.0, 1.0]
    drawn = renyi_moments(order, law, ([1.0], [0.0], [1.0])).divergence
    assert drawn > order * langevin.ryffel_3_3(1.0, 0.01, 20, 1 / 20)


@pytest.mark.parametrize("c", [0.5, 0.98, 1.0])
def test_the_recursion_gives_the_closed_forms(c):
    for j in range(1, 9):  # (90), (99)
        found = langevin.lemma_3_2(3.0, 1.0, c, [True] + [False] * (j - 1))
        assert found.divergence == pytest.approx(3 * langevin.one_impulse(1.0, c, j), rel=1e-9)
        assert found.first_order >= 1.0
    rng = np.random.default_rng(5)
    for _ in range(20):  # any pattern: never below the string, which quadratics attain
        read = rng.uniform(size=12) < 0.4
        exact = position_mus(np.full(12, c), read * 1.0, np.ones(12), 1)[0] ** 2
        assert langevin.lemma_3_2(2.0, 1.0, c, list(read)).divergence >= 2 * exact * (1 - 1e-9)


def test_contraction_at_a_fixed_order_is_false():
    """(157), and (60) of Chourasia, Ye & Shokri 2021; with the order moved it holds."""
    assert langevin.contraction_at_fixed_order(100.0, 20.0, 1.0) == pytest.approx(1.83, abs=5e-3)
    mp.mp.dps = 20

    def tilted(x):
        return mp.npdf(x) * (1 + mp.tanh(20 * x) / 2)

    def moment(p, q, order, ends):
        return mp.log(mp.quad(lambda x: (p(x) / q(x)) ** order * q(x), ends)) / (order - 1)

    ends = [-8, -1, -0.2, 0, 0.2, 1, 8]
    before = {a: moment(tilted, mp.npdf, a, ends) for a in (50.5, 100)}
    # tanh(20 x) spread by N(0, 1): nearly sign(x), which gives an error function
    grid = np.linspace(-9, 9, 6001)
    density = np.exp(-(grid**2) / 2) * (1 + np.tanh(20 * grid) / 2)
    after = []
    for y in grid[::20]:
        kernel = np.exp(-((y - grid) ** 2) / 2)
        after.append((kernel @ density, kernel @ np.exp(-(grid**2) / 2)))
    p, q = np.array(after).T * (grid[1] - grid[0]) / (2 * math.pi)
    left = math.log(((p / q) ** 100 * q).sum() * (grid[20] - grid[0])) / 99
    assert left / (before[100] / 2) == pytest.approx(1.83, abs=0.01)
    assert left / 100 <= before[50.5] / 50.5 / 2  # Lemma 3.2, f = 2


def test_lemma_3_1_is_the_exact_rate_of_gaussians():
    """N(d, v + 2t) against N(0, v + 2t): R = a d^2/(2(v + 2t)), its rate -a d^2/(v + 2t)^2."""
    d, v, order = 0.7, 1.3, 3.0
    deviation = math.sqrt(v)
    rate = lemma_2(order, 0.0, 1.0, ([1.0], [d], [deviation]), ([1.0], [0.0], [deviation]), 1e-12)
    assert rate == pytest.approx(-order * d**2 / v**2, rel=1e-6)
    c = 1 / v
    divergence = order * d**2 / (2 * v)
    claimed = -2 * c * (divergence / order + (order - 1) * d**2 / (2 * v))
    assert rate == pytest.approx(claimed, rel=1e-6)


@pytest.mark.parametrize("c", [0.3, 0.98, 1.0])
def test_lsi_sequences_are_one_over_the_variance_of_linear_recursions(c):
    variance = 0.0
    for steps in range(1, 9):
        variance = c**2 * variance + 0.5
        assert langevin.lemma_d3(c, 0.5, steps) == pytest.approx(1 / variance, rel=1e-12)


def test_lemma_4_1_on_random_mixtures():
    rng = np.random.default_rng(6)
    for _ in range(20):
        weights = rng.dirichlet([1.0, 1.0, 1.0])
        first, second = rng.normal(size=(2, 3)) * 0.6
        left, right = langevin.lemma_4_1(rng.uniform(1.1, 6.0), weights, first, second)
        assert left <= right * (1 + 1e-9)


def test_algorithm_2_has_the_noise_of_algorithm_1():
    eta, multiplier, sensitivity, batch = 0.3, 1.7, 2.5, 40
    sigma = langevin.algorithm_2_sigma(eta, multiplier, sensitivity, batch)
    noise = eta / batch * multiplier * sensitivity / 2
    assert math.sqrt(2 * eta) * sigma == pytest.approx(noise, rel=1e-12)
    assert price(sensitivity, sigma, batch, eta) == pytest.approx(2 / multiplier**2, rel=1e-12)


def test_proposition_f1_on_random_softmaxes():
    """Largest singular values of gradients and Hessians at random parameters."""
    rng = np.random.default_rng(7)
    steepest = largest = 0.0
    for _ in range(300):
        classes = int(rng.integers(2, 5))
        x = rng.normal(size=2)
        x = np.append(x / np.linalg.norm(x) * 1.5, 1.0)  # the paper's constant feature
        logits = rng.normal(size=classes) * rng.choice([0.1, 1.0, 20.0])
        p = np.exp(logits - logits.max())
        p /= p.sum()
        residual = p - np.eye(classes)[rng.integers(classes)]
        steepest = max(steepest, np.linalg.norm(np.outer(residual, x)))
        largest = max(largest, np.linalg.norm(np.diag(p) - np.outer(p, p), 2) * x @ x)
    lipschitz, smoothness = langevin.proposition_f1(1.5)
    assert 0.95 * lipschitz < steepest <= lipschitz * (1 + 1e-12)
    assert 0.9 * smoothness < largest <= smoothness * (1 + 1e-12)


def test_theorem_d6_is_below_corollary_1():
    for rate in (0.001, 0.1, 0.9):
        for steps in (1, 7, 500):
            sharper, printed = (langevin.theorem_d6(1.0, rate, steps, x) for x in (124, 125))
            naive = sum(2 * (1 - rate / 2) ** k for k in range(1, steps + 1))
            assert printed == pytest.approx(naive, rel=1e-12)
            exact = position_mus(np.full(steps, 1 - rate), np.ones(steps), np.ones(steps), 1)[0]
            assert exact**2 <= sharper <= printed < theorem_2(1.0, rate, steps)
