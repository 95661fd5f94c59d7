"""Values that dp-accounting's own tests expect (Google, version 0.6.0), as facts, against ours.

`pld`: privacy_loss_mechanism_test, privacy_loss_distribution_test, pld_privacy_accountant_test;
`rdp`: rdp_privacy_accountant_test; `accountant`: accountant_test. Tolerances are theirs or
tighter. REM and ADD are the two orders of one pair; our curves answer with the worse one.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import Loss, Poisson, Training, account
from lastiterate.composition import optimal
from lastiterate.curves import gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.renyi import Linear, Renyi

DIGITS = 5e-8  # theirs: seven places
GRID = 3e-5  # what the grid of our distributions may add

# --- pld: one Gaussian step: (standard deviation, sensitivity, epsilon, delta) ---

GAUSSIAN = [
    (1.0, 1.0, 1.0, 0.12693674),
    (2.0, 2.0, 1.0, 0.12693674),
    (1.0, 3.0, 1.0, 0.78760074),
    (2.0, 6.0, 1.0, 0.78760074),
    (1.0, 1.0, 2.0, 0.02092364),
    (5.0, 5.0, 2.0, 0.02092364),
    (1.0, 1.0, 0.0, 0.38292492),
    (1.0, 2.0, 0.0, 0.68268949),
    (1.0, 2.0, 1.0, 0.50986166),
    (1.0, 2.0, 2.0, 0.331897999),
]


@pytest.mark.parametrize(("deviation", "sensitivity", "epsilon", "delta"), GAUSSIAN)
def test_gaussian_delta_and_its_inverses(deviation, sensitivity, epsilon, delta):
    mu = sensitivity / deviation
    assert gaussian.delta(mu, epsilon) == pytest.approx(delta, abs=DIGITS)
    assert gaussian.epsilon(mu, delta) == pytest.approx(epsilon, abs=1e-6)
    if epsilon > 0:
        assert gaussian.mu(epsilon, delta) == pytest.approx(mu, abs=1e-6)


# (sensitivity of the pair, epsilon, delta) -> standard deviation, three places
CALIBRATED = [
    (3.0, 1.0, 0.78760074, 1.0),
    (6.0, 1.0, 0.78760074, 2.0),
    (12.0, 1.0, 0.78760074, 4.0),
    (1.0, 2.0, 0.02092364, 1.0),
    (5.0, 2.0, 0.02092364, 5.0),
    (10.0, 2.0, 0.02092364, 10.0),
    (1.0, 16.0, 1.016e-05, 0.344),
    (2.0, 16.0, 1.016e-05, 0.688),
    (4.0, 16.0, 1.016e-05, 1.376),
    # accountant: 25 queries of sensitivity 6
    (30.0, 1.0, 0.78760074, 10.0),
    (1.0, 1.0, 0.78760074, 1 / 3),
]


@pytest.mark.parametrize(("sensitivity", "epsilon", "delta", "deviation"), CALIBRATED)
def test_gaussian_noise_for_a_guarantee(sensitivity, epsilon, delta, deviation):
    assert sensitivity / gaussian.mu(epsilon, delta) == pytest.approx(deviation, abs=5e-4)


# rate, deviation, sensitivity, epsilon, delta ADD, delta REM (None: not stated there)
SAMPLED = [
    (0.8, 1.0, 1.0, 1.0, 0.0231362104090899, 0.0816951786585355),
    (0.8, 2.0, 2.0, 1.0, 0.0231362104090899, 0.0816951786585355),
    (0.7, 1.0, 3.0, 1.0, 0.1195051215523554, 0.5356298793262404),
    (0.4, 2.0, 6.0, 1.0, 0.0, 0.2888308005139968),
    (0.3, 1.0, 1.0, 2.0, 0.0, 0.0003341102928869332),
    (0.2, 1.0, 1.0, 0.0, 0.076584985, 0.076584985),
    (0.2, 1.0, 1.0, 0.1, 0.02337934, 0.051816131),
    (0.2, 1.0, 1.0, 0.2, 0.00020196, 0.035738492),
    (0.2, 1.0, 1.0, 0.5, None, 0.012494629),
    (0.2, 1.0, 1.0, 1.0, None, 0.00229682),
]


@pytest.mark.parametrize(("rate", "deviation", "sensitivity", "epsilon", "add", "remove"), SAMPLED)
def test_a_poisson_step(rate, deviation, sensitivity, epsilon, add, remove):
    curve = LossDistribution.sampled_gaussian(rate, sensitivity / deviation)
    worse = max(add or 0.0, remove)
    assert worse - DIGITS <= curve.delta(epsilon) <= worse * (1 + GRID) + 1e-6


REPLACED = [  # rate, deviation, sensitivity, epsilon, delta
    (0.8, 2.0, 1.0, 1.0, 0.05808665654484252),
    (0.8, 3.0, 2.0, 1.0, 0.13711260900644096),
    (0.7, 2.0, 3.0, 1.0, 0.4013057526509164),
    (0.4, 3.0, 6.0, 1.0, 0.20752885274183325),
    (0.3, 2.0, 1.0, 2.0, 2.4770380148941894e-09),
    (0.2, 1.0, 1.0, 0.0, 0.13653790),
    (0.2, 1.0, 1.0, 0.1, 0.098340892),
    (0.2, 1.0, 1.0, 0.2, 0.069858734),
    (0.2, 1.0, 1.0, 0.5, 0.0250311655),
    (0.2, 1.0, 1.0, 1.0, 0.004734828),
    (0.8, 1.0, 1.0, 3.0, 0.028742519),
    (0.6, 5.0, 5.0, 2.0, 0.031506747),
    (0.4, 1.0, 2.0, 4.0, 0.023931308),
    (0.2, 3.0, 6.0, 3.0, 0.012562334),
]


@pytest.mark.parametrize(("rate", "deviation", "sensitivity", "epsilon", "delta"), REPLACED)
def test_a_poisson_step_with_a_replaced_record(rate, deviation, sensitivity, epsilon, delta):
    run = Training(
        records=100,
        steps=1,
        step_size=rate * 100,
        noise=deviation,
        gradient_norm=sensitivity,
        batches=Poisson(rate),
        adjacency="replace",
    )
    found = account(run, Loss.unknown()).delta(epsilon)
    assert delta * (1 - 1e-6) - DIGITS <= found <= delta * 1.001 + 1e-6


# Masses of privacy-loss distributions that connect the dots: from them delta at every grid point.
# (rate, shift, interval): [(highest loss, masses downwards, mass at infinity) of ADD, of REMOVE]
DOTS = {
    (1.0, 1.0, 1.0): [
        (2, [0.167710257, 0.343270190, 0.319116756, 0.126282046, 0.022697115], 0.020923636)
    ],
    (1.0, 2.0, 1.0): [
        (
            4,
            [
                0.156393834,
                0.176732821,
                0.195352391,
                0.169838899,
                0.116146963,
                0.062480239,
                0.026438071,
                0.008799009,
                0.002864453,
            ],
            0.084953319,
        )
    ],
    (0.8, 1.0, 1.0): [
        (1, [0.448021700, 0.398104072, 0.115544309, 0.015193708], 0.023136210),
        (2, [0.112267164, 0.314081995, 0.398104072, 0.164817973], 0.010728796),
    ],
    (0.6, 1.0, 1.0): [
        (1, [0.363466985, 0.528456643, 0.099555157, 0.008521215], 0.0),
        (2, [0.062963737, 0.270618975, 0.528456643, 0.133712031], 0.004248614),
    ],
    (0.4, 2.0, 1.0): [
        (1, [0.431999550, 0.499732772, 0.052519150, 0.012224135, 0.003524394], 0.0),
        (3, [0.070789342, 0.090324817, 0.142761851, 0.499732772, 0.158923753], 0.037467466),
    ],
    (0.2, 2.0, 1.0): [
        (1, [0.215999775, 0.738200118, 0.038917231, 0.005650510, 0.001232367], 0.0),
        (3, [0.024752755, 0.041751932, 0.105788001, 0.738200118, 0.079461876], 0.010045317),
    ],
    (1.0, 1.0, 0.5): [
        (
            3,
            [
                0.178515818,
                0.175063076,
                0.195400642,
                0.171573378,
                0.118516480,
                0.064402107,
                0.039832263,
            ],
            0.056696236,
        )
    ],
    (1.0, 1.0, 0.3): [
        (
            5,
            [
                0.143933223,
                0.093801719,
                0.110114456,
                0.118295665,
                0.116301523,
                0.104639278,
                0.086158287,
                0.064922037,
                0.044769197,
                0.028252535,
                0.032115843,
            ],
            0.056696236,
        )
    ],
}


def deltas(highest, masses, infinite, interval):
    """Hockey-stick divergences at the grid points from 0 up."""
    losses = interval * (highest - np.arange(len(masses)))
    return [
        infinite
        + sum(
            m * -math.expm1(interval * k - x)
            for m, x in zip(masses, losses, strict=True)
            if x > interval * k
        )
        for k in range(highest + 1)
    ]


@pytest.mark.parametrize("told", DOTS)
def test_connected_dots_lie_on_our_curve(told):
    rate, shift, interval = told
    orders = [deltas(*order, interval) for order in DOTS[told]]
    curve = LossDistribution.sampled_gaussian(rate, shift)
    for k in range(max(map(len, orders))):
        worse = max(order[k] if k < len(order) else 0.0 for order in orders)
        if k < min(map(len, orders)) or len(orders[0]) <= k:
            assert curve.delta(interval * k) == pytest.approx(worse, rel=GRID, abs=2e-6)


# --- pld: compositions ---


def test_three_gaussians_and_three_poisson_steps():
    three = LossDistribution.gaussian(1 / math.sqrt(3)).self_compose(3)
    assert three.delta(1.0) == pytest.approx(0.126936, rel=GRID, abs=1e-6)
    assert three.epsilon(0.126936) == pytest.approx(1.0, abs=1e-4)
    sampled = LossDistribution.sampled_gaussian(0.2, 2.0).self_compose(3)
    assert sampled.delta(1.0) == pytest.approx(0.15594, abs=1e-3)
    assert sampled.epsilon(0.15594) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("rate", "queries", "sensitivity", "deviation"),
    [(0.01, 1, 1.0, 0.67379294682), (0.001, 25, 6.0, 3.20956502598)],
)
def test_noise_for_sampled_queries(rate, queries, sensitivity, deviation):
    """accountant: epsilon 1 at delta 1e-5."""
    steps = LossDistribution.sampled_gaussian(rate, sensitivity / deviation).self_compose(queries)
    assert steps.delta(1.001) <= 1e-5 <= steps.delta(0.999)


# --- accountant: optimal composition ---

COMPOSED = [  # epsilon, delta, queries, total delta, total epsilon
    (1.0, 0.0, 30, 0.0, 30),
    (1.0, 0.001, 30, 0.06, 22),
    (1.0, 0.001, 30, 0.1, 20),
    (0.25, 0.0, 50, 0.01, 5),
]


@pytest.mark.parametrize(("epsilon", "delta", "queries", "total_delta", "total"), COMPOSED)
def test_optimal_composition(epsilon, delta, queries, total_delta, total):
    """The smallest total among the multiples of 2 epsilon below the basic one."""
    assert optimal(epsilon, delta, queries, target=float(total)) <= total_delta + 1e-12
    assert optimal(epsilon, delta, queries, target=total - 2 * epsilon) > total_delta


@pytest.mark.parametrize(("delta", "queries", "total"), [(0.2, 1, 0.1), (0.01, 30, 0.26)])
def test_no_epsilon_is_small_enough(delta, queries, total):
    assert optimal(1.0, delta, queries, target=1e6) > total


# --- rdp ---

RDP = {
    1.5: 6.70579741e-04,
    2.5: 1.08548710e-03,
    5.0: 2.18075656e-03,
    50.0: 2.38460375e-02,
    100.0: 1.67416308e02,
    math.inf: math.inf,
}


@pytest.mark.parametrize(("order", "divergence"), RDP.items())
def test_fifty_poisson_steps(order, divergence):
    steps = LossDistribution.sampled_gaussian(0.01, 1 / 2.5).self_compose(50)
    # Theirs is an upper bound: 3 % above the integral in many digits (below) at order 1.5.
    assert 0.96 * divergence <= steps.rdp(order) <= divergence * (1 + 1e-4)
    if order > 2:
        assert steps.rdp(order) == pytest.approx(divergence, rel=1e-4)


@pytest.mark.parametrize(
    ("rate", "deviation", "order"),
    [
        (0.01, 2.5, 1.5),
        (1e-6, 1.0, 27.0),
        (1e-3, 1.0, 2.0),
        (0.1, 100.0, 20.5),
        (0.999, 100.0, 256.1),
    ],
)
def test_moments_against_many_digits(rate, deviation, order):
    """Their cases, and their integral in many digits: log E (P/Q)^order under Q."""
    mpmath = pytest.importorskip("mpmath")
    mp = mpmath.mp.clone()
    mp.dps = 20

    def ratio(x):
        return (1 - rate) + rate * mp.exp((2 * x - 1) / (2 * deviation**2))

    def weighted(x):
        return mp.npdf(x, 0, deviation) * ratio(x) ** order

    centre = order  # a Poisson step taken order times moves the mass there
    spots = [-40 * deviation, 0, centre / 2, centre, centre + 40 * deviation]
    moment = mp.log(mp.quad(weighted, sorted(spots)))
    found = LossDistribution.sampled_gaussian(rate, 1 / deviation).rdp(order) * (order - 1)
    assert found == pytest.approx(float(moment), rel=1e-4, abs=1e-8)
    assert found >= float(moment) * (1 - 1e-9) - 1e-12


def test_the_gaussian_that_is_one_at_a_millionth():
    """rdp: noise 4.530877117 is (1, 1e-6)-private by Renyi divergences of orders up to 100."""
    by_renyi = Renyi(Linear(0.5 / 4.530877117**2))
    assert by_renyi.epsilon(1e-6) == pytest.approx(1.0, abs=1e-6)
    assert gaussian.epsilon(1 / 4.530877117, 1e-6) < 1.0
