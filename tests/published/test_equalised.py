"""The equalising last epoch, against the taut string of every position."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from exact_laws import string_cost

from lastiterate.curves import gaussian
from lastiterate.description.schedule import equalising
from lastiterate.errors import DescriptionError
from lastiterate.published.equalised import equalised_mu
from lastiterate.theory.positions import position_mus, position_sensitivities


def equalised_impulses(s, batches, epochs):
    impulses = np.full(batches * epochs, s)
    impulses[-batches:] *= equalising(batches)
    return impulses


@pytest.mark.parametrize(("batches", "epochs"), [(1, 3), (7, 1), (10, 5), (40, 3), (1000, 1)])
def test_every_position_pays_the_same_when_convex(batches, epochs):
    impulses = equalised_impulses(0.7, batches, epochs)
    mus = position_mus(1.0, impulses, 1.3, batches)
    np.testing.assert_allclose(mus, equalised_mu(0.7 / 1.3, batches, epochs), rtol=1e-9)


@pytest.mark.parametrize("c", [0.5, 0.97, 1.0])
def test_theorem_covers_the_exact_string(c):
    batches, epochs = 5, 3
    impulses = equalised_impulses(1.0, batches, epochs)
    steps = batches * epochs
    mu = equalised_mu(1.0, batches, epochs)
    for j in range(batches):
        used = position_sensitivities(impulses, batches, j)
        exact = string_cost(np.full(steps, c), used, np.ones(steps))
        assert Fraction(mu) ** 2 >= exact


def test_one_pass_of_a_thousand_batches():
    # zero-out: s/nu = 1/noise multiplier; the headline is 0.134, and 0.133 is not enough.
    assert gaussian.epsilon(equalised_mu(1 / 0.1345, 1000, 1), 1e-6) <= 1.0
    assert gaussian.epsilon(equalised_mu(1 / 0.1335, 1000, 1), 1e-6) > 1.0
    needed = math.sqrt(1 / 1000) / gaussian.mu(1.0, 1e-6)
    assert round(needed, 3) == 0.134


def test_bad_input():
    with pytest.raises(DescriptionError):
        equalised_mu(1.0, 0, 1)
    with pytest.raises(DescriptionError):
        equalised_mu(1.0, 10, 0)
