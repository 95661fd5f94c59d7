"""Published mini-batch bounds: the table of the theory, and the taut string below each of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.published import chien_li as shifted
from lastiterate.published import ye_shokri as langevin
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
    run = (1.0, 0.5, 2, 60)
    first = langevin.theorem_3_3(*run) - langevin.one_impulse(1.0, 0.5, 2)
    assert first == pytest.approx(4 / 3, rel=1e-9)
    assert first > 1 / (2 * 0.5)


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
