"""Forgetting by projection and noise: exact laws of jumping steps, and the verdict."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.laws.grid_laws import bounded, stick
from tests.unlearning.test_plans import Cells

from lastiterate import DescriptionError, TargetError
from lastiterate.curves import gaussian
from lastiterate.unlearning import plan_network

pytestmark = pytest.mark.filterwarnings("ignore:START AGAIN")


def check(seed):
    """Two starts of the ball, gradients that jump; the cells' width stands in for half the clip."""
    rng = np.random.default_rng(seed)
    eta, l2, clip = 0.5, float(rng.choice([0.0, rng.uniform(0, 1)])), float(rng.uniform(0.1, 1.0))
    radius, delta = float(rng.uniform(0.1, 2.0)), float(10 ** rng.uniform(-4, -1))
    epsilon = float(rng.uniform(0.5, 4.0))
    steps = int(rng.integers(1, 12))
    plan = plan_network(1, radius, clip, eta, epsilon, delta, regularization=l2, steps=steps)
    cells, nu = Cells(), plan.noise
    if cells.width * nu > eta * clip or radius / nu > 5:
        return False
    pull = bounded(rng, clip / 2, 1.0)
    step = cells.step(lambda x: (1 - eta * l2) * x - eta * pull(nu * x) / nu)
    place = int(radius / nu / cells.width)
    laws = [cells.law([step] * steps, sign * place) for sign in (0, 1, -1)]
    for other in laws[1:]:
        assert stick(other, laws[0], epsilon) <= delta
    return True


def test_jumping_gradients():
    assert sum(check(seed) for seed in range(40)) > 20


def test_the_closed_form_without_l2_and_its_best_number_of_steps():
    """mu² = (C_0 + 2 eta C_1 K)²/(K nu²), least at K = C_0/(2 eta C_1)."""
    plan = plan_network(10, radius=0.4, clip=1.0, step_size=0.01, epsilon=1.0, delta=1e-5)
    assert plan.steps == 20
    assert plan.mu * plan.noise == pytest.approx(math.sqrt(8 * 0.01 * 1.0 * 0.4), rel=1e-6)
    assert gaussian.delta(plan.mu, 1.0) <= 1e-5 * (1 + 1e-9)
    other = plan_network(10, radius=0.4, clip=1.0, step_size=0.01, steps=5)
    assert other.mu * other.noise == pytest.approx(0.5 / math.sqrt(5), rel=1e-6)
    assert other.noise > plan.noise


def test_the_published_conversion_is_refuted():
    """A Renyi bound linear in its order, converted as if it were constant: 1.004 at delta = 1e-5.

    Two starts of the ball and a constant loss, in the setting C_0 = .01, C_1 = 1, eta = .001,
    L2 .5, 10 steps, noise that gives R_alpha = alpha: the published code logs epsilon = 1.004.
    """
    logged, c, start, s, steps = 1.004, 1 - 0.001 * 0.5, 2 * 0.01, 2 * 0.001, 10
    assert gaussian.epsilon(math.sqrt(2), 1e-5) == pytest.approx(6.573, abs=5e-4)
    driven = s * (1 - c**steps) / (1 - c)
    truth = math.sqrt(2) * c**steps * start / (c**steps * start + driven)
    assert gaussian.epsilon(truth, 1e-5) == pytest.approx(2.939, abs=5e-4)
    assert gaussian.delta(truth, logged) > 100 * 1e-5


@pytest.mark.parametrize("parameters", [1000, 10**8])
def test_the_verdict_is_said_aloud(parameters):
    with pytest.warns(UserWarning, match="START AGAIN"):
        plan = plan_network(parameters, radius=1.0, clip=1.0, step_size=0.01)
    assert str(plan).startswith("START AGAIN from the public point")
    assert plan.spread > plan.radius * math.sqrt(parameters)


@pytest.mark.filterwarnings("error")
def test_few_parameters_may_pay():
    plan = plan_network(2, radius=1.0, clip=0.01, step_size=0.01, epsilon=20.0, steps=1)
    assert not plan.restart_better
    assert "It may pay" in str(plan)


def test_refusals():
    good = {"parameters": 5, "radius": 1.0, "clip": 1.0, "step_size": 0.1}
    for field, value in (
        ("parameters", 0),
        ("radius", -1.0),
        ("radius", math.inf),
        ("clip", math.nan),
        ("step_size", -0.1),
        ("regularization", -1.0),
        ("regularization", 20.1),
        ("steps", 0),
        ("steps", 2.5),
        ("epsilon", -1.0),
        ("delta", 0.0),
        ("delta", 1.0),
    ):
        with pytest.raises(DescriptionError):
            plan_network(**{**good, field: value})
    with pytest.raises(TargetError, match="At most"):
        plan_network(**good, steps=2**21)
    assert plan_network(5, 0.0, 0.0, 0.1).noise == 0.0
    assert plan_network(5, 1.0, 0.0, 0.5, regularization=2.0).noise == 0.0  # all go to the point
    with pytest.raises(TargetError, match="smaller"):
        plan_network(**good, epsilon=1e300)


def test_a_contraction_that_nothing_is_left_of_in_doubles():
    """0.1 is a little more than a tenth: 1 - 0.1*10 is 0 in doubles, and is not 0."""
    for l2 in (10.0, 10.000000001, 9.999999):
        plan = plan_network(5, 1.0, 0.0, 0.1, regularization=l2, steps=1)
        left = abs(1 - Fraction(0.1) * Fraction(l2))
        assert plan.noise > 0
        assert Fraction(plan.mu) * Fraction(plan.noise) >= left
