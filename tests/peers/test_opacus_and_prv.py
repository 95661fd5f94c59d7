"""Values that the tests of Opacus and prv_accountant expect, as facts, against ours.

Poisson batches, zero-out: epsilon at delta 1e-6 from opacus/tests/prv_accountant.py (computed there
with Microsoft's prv_accountant, five places), others from opacus/tests/accountants_test.py and
prv_accountant's tests/test_accountant.py.
"""

from __future__ import annotations

import math

import pytest

from lastiterate import Loss, Poisson, Training, account
from lastiterate.curves import gaussian
from lastiterate.curves.loss_distribution import LossDistribution

PRV = """
    0.8 0.001 100 0.270403364058; 1.5 0.001 100 0.0393694193095; 2.0 0.001 100 0.0291045369484
    3.0 0.001 100 0.0215200934391; 0.8 0.05 100 6.74105193941; 1.5 0.05 100 1.95385313568
    2.0 0.05 100 1.28363737962; 3.0 0.05 100 0.767933789667; 0.8 0.2 100 24.3336641779
    1.5 0.2 100 8.49897785912; 2.0 0.2 100 5.67205560882; 3.0 0.2 100 3.38122051022
    0.8 0.001 1000 0.477771266185; 1.5 0.001 1000 0.0998206602308; 2.0 0.001 1000 0.0712187825381
    3.0 0.001 1000 0.0476159308714; 0.8 0.05 1000 19.5258428054; 1.5 0.05 1000 6.20996924658
    2.0 0.05 1000 4.17279986669; 3.0 0.05 1000 2.52757432606; 0.8 0.001 20000 1.29600925757
    1.5 0.001 20000 0.437005108655; 2.0 0.001 20000 0.305837939762; 3.0 0.001 20000 0.194031030686
    0.8 0.05 20000 140.65520976; 1.5 0.05 20000 38.3066179141; 2.0 0.05 20000 24.4217185703
    3.0 0.05 20000 13.9611146992; 0.8 0.001 50000 2.03451480772; 1.5 0.001 50000 0.704218384556
    2.0 0.001 50000 0.491354910211; 3.0 0.001 50000 0.309694161157; 0.8 0.05 50000 291.384325452
    1.5 0.05 50000 73.1901767238; 2.0 0.05 50000 45.2369958613; 3.0 0.05 50000 24.9420056431
    0.8 0.001 100000 2.92462211935; 1.5 0.001 100000 1.01528807503; 2.0 0.001 100000 0.706719901082
    3.0 0.001 100000 0.443671720881
"""
ROWS = [tuple(map(float, row.split())) for row in PRV.replace("\n", ";").split(";") if row.strip()]


def long(row):
    """Rare batches and many steps take long transforms."""
    return pytest.param(*row, marks=[pytest.mark.slow] if row[1] < 0.01 and row[2] > 100 else [])


@pytest.mark.parametrize(("noise", "rate", "steps", "epsilon"), [*map(long, ROWS)])
def test_poisson_composition(noise, rate, steps, epsilon):
    """Their estimate is uncertain by 0.01; ours is an upper bound, so never far below it."""
    curve = LossDistribution.sampled_gaussian(rate, 1 / noise).self_compose(int(steps))
    assert curve.delta(epsilon * (1 + 1e-3) + 2e-3) <= 1e-6
    assert curve.delta(max(epsilon * (1 - 1e-4) - 0.011, 0.0)) >= 1e-6


def run(noise, rate, steps):
    return Training.dp_sgd(
        records=10_000,
        steps=steps,
        step_size=0.1,
        noise_multiplier=noise,
        clip=1.0,
        batches=Poisson(rate),
    )


def test_opacus_by_renyi_divergences_and_by_the_central_limit():
    """90 epochs at rate 0.04, noise 1.5, delta 1e-5: 7.32911 by Renyi, 6.59 to 6.60 by the limit.

    The truth lies between: the first is an upper bound, the second may be below.
    """
    epsilon = account(run(1.5, 0.04, 2250), Loss.unknown()).epsilon(1e-5)
    assert 6.59 < epsilon < 7.32911117143
    limit = 0.04 * math.sqrt(2249) * math.sqrt(math.expm1(1 / 1.5**2))
    assert 6.59 < gaussian.epsilon(limit, 1e-5) < 6.6


@pytest.mark.parametrize(("noise", "steps"), [(1.416, 2250), (1.3562, 2000)])
def test_opacus_noise_for_epsilon_eight_is_enough(noise, steps):
    assert 7.0 < account(run(noise, 0.04, steps), Loss.unknown()).epsilon(1e-5) < 8.0


@pytest.mark.parametrize("compositions", [10_000, 10_001, 10_002])
def test_prv_gaussians_of_one_kind(compositions):
    mu = math.sqrt(compositions) / 100.0
    curve = LossDistribution.sampled_gaussian(1.0, 0.01).self_compose(compositions)
    assert gaussian.delta(mu, 4.0) <= curve.delta(4.0) <= gaussian.delta(mu, 4.0) * 1.001


def test_prv_gaussians_of_two_kinds():
    both = LossDistribution.gaussian(0.1).self_compose(50)
    both = both.compose(LossDistribution.gaussian(0.2).self_compose(50))
    mu = math.sqrt(50 * 0.1**2 + 50 * 0.2**2)
    assert gaussian.delta(mu, 4.0) <= both.delta(4.0) <= gaussian.delta(mu, 4.0) * 1.001


def test_prv_noise_for_epsilon_four():
    """rate 2e-3, 10,000 steps, epsilon 4 at 1e-7: the noise is below 2."""
    steps = LossDistribution.sampled_gaussian(2e-3, 1 / 2).self_compose(10_000)
    assert steps.delta(4.0) < 1e-7


def test_prv_a_delta_that_they_refuse():
    """rate 0.00038, noise 4, 1000 steps at delta 1.13e-18 raises there; here it is a number."""
    steps = LossDistribution.sampled_gaussian(0.00038, 1 / 4).self_compose(1000)
    assert 0.0 < steps.delta(0.5) < 1.13e-18 < steps.delta(0.01)
