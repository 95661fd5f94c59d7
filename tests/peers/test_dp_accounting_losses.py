"""Privacy losses and round trips that dp-accounting's own tests expect (Google, version 0.6.0).

From pld/privacy_loss_mechanism_test: losses at a point, where a loss is reached, the losses at one
deviation from both means, noise for a guarantee. From gaussian_mechanism_test: epsilon and noise
invert each other, and epsilon is that of the distribution. REM and ADD are the two orders of a
sampled pair, REP is one replaced record; theirs run along -x, and in the units of the noise.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lastiterate import Loss, Poisson, Training, account
from lastiterate.curves import gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import OpposedPair, SampledPair

PLACES = 5e-8  # theirs: seven places


def loss_at(deviation, sensitivity, rate, order, x):
    """Their privacy loss at their x, by our pairs."""
    mu, at = sensitivity / deviation, np.array([x / deviation])
    if order == "ADD":
        return -float(SampledPair(rate, 0.0, mu).loss(at)[0])
    if order == "REM":
        return float(SampledPair(rate, 0.0, mu).loss(-at)[0])
    return float(OpposedPair(rate, 0.0, mu, mu).loss(-at)[0])


def point_of(deviation, sensitivity, rate, order, loss):
    """Where their pair has this privacy loss."""
    mu, at = sensitivity / deviation, np.array([loss])
    if order == "ADD":
        return float(SampledPair(rate, 0.0, mu).inverse(-at)[0]) * deviation
    if order == "REM":
        return -float(SampledPair(rate, 0.0, mu).inverse(at)[0]) * deviation
    return -float(OpposedPair(rate, 0.0, mu, mu).inverse(at)[0]) * deviation


LOSSES = [  # deviation, sensitivity, rate, order, x, loss
    (1.0, 1.0, 1.0, "ADD", 5.0, -4.5),
    (1.0, 1.0, 1.0, "ADD", -3.0, 3.5),
    (1.0, 2.0, 1.0, "ADD", 3.0, -4.0),
    (4.0, 4.0, 1.0, "ADD", 20.0, -4.5),
    (5.0, 5.0, 1.0, "ADD", -15.0, 3.5),
    (7.0, 14.0, 1.0, "ADD", 21.0, -4.0),
    (1.0, 1.0, 0.8, "ADD", 0.5, 0.0),
    (1.0, 1.0, 0.5, "ADD", -4.0, 0.6820994357113515),
    (1.0, 2.0, 0.7, "ADD", 0.0, 0.929541389699331),
    (4.0, 4.0, 0.3, "ADD", -16.0, 0.3519252431310541),
    (5.0, 5.0, 0.45, "ADD", 20.0, -2.737735427805667),
    (7.0, 14.0, 0.9, "ADD", -7.0, 2.150000710600199),
    (1.0, 1.0, 1.0, "REM", 4.0, -4.5),
    (1.0, 1.0, 1.0, "REM", -4.0, 3.5),
    (1.0, 2.0, 1.0, "REM", 1.0, -4.0),
    (4.0, 4.0, 1.0, "REM", 16.0, -4.5),
    (5.0, 5.0, 1.0, "REM", -20.0, 3.5),
    (7.0, 14.0, 1.0, "REM", 7.0, -4.0),
    (1.0, 1.0, 0.8, "REM", -0.5, 0.0),
    (1.0, 1.0, 0.5, "REM", 4.0, -0.6820994357113515),
    (1.0, 2.0, 0.7, "REM", 0.0, -0.929541389699331),
    (4.0, 4.0, 0.3, "REM", 16.0, -0.3519252431310541),
    (5.0, 5.0, 0.45, "REM", -20.0, 2.737735427805667),
    (7.0, 14.0, 0.9, "REM", 7.0, -2.150000710600199),
    (1.0, 1.0, 1.0, "REP", 4.0, -8.0),
    (1.0, 1.0, 1.0, "REP", -4.0, 8.0),
    (1.0, 2.0, 1.0, "REP", 1.0, -4.0),
    (4.0, 4.0, 1.0, "REP", 16.0, -8.0),
    (5.0, 5.0, 1.0, "REP", -20.0, 8.0),
    (7.0, 14.0, 1.0, "REP", 7.0, -4.0),
    (1.0, 1.0, 0.8, "REP", -0.5, 0.7046054708796524),
    (1.0, 1.0, 0.5, "REP", 4.0, -3.5187026734240265),
    (1.0, 2.0, 0.7, "REP", 0.0, 0.0),
    (4.0, 4.0, 0.3, "REP", 16.0, -2.7160414258090357),
    (5.0, 5.0, 0.45, "REP", -20.0, 3.3265243075613813),
    (7.0, 14.0, 0.9, "REP", 7.0, -2.1500007106001986),
]


@pytest.mark.parametrize(("deviation", "sensitivity", "rate", "order", "x", "loss"), LOSSES)
def test_a_loss_and_where_it_is_reached(deviation, sensitivity, rate, order, x, loss):
    """Two facts a row: theirs are tested in both directions."""
    pair = deviation, sensitivity, rate, order
    assert loss_at(*pair, x) == pytest.approx(loss, abs=PLACES)
    assert point_of(*pair, loss) == pytest.approx(x, abs=PLACES * max(1.0, 20 * deviation))


ENDS = [  # deviation, sensitivity, rate, order, highest loss, lowest loss
    (1.0, 1.0, 1.0, "ADD", 1.5, -1.5),
    (3.0, 3.0, 1.0, "ADD", 1.5, -1.5),
    (1.0, 2.0, 1.0, "ADD", 4.0, -4.0),
    (1.0, 1.0, 0.8, "ADD", 0.971528300, -1.331138685),
    (3.0, 3.0, 0.8, "ADD", 0.971528300, -1.331138685),
    (1.0, 2.0, 0.5, "ADD", 0.674997253, -3.325002747),
    (4.0, 8.0, 0.6, "ADD", 0.889187896, -3.501310856),
    (1.0, 1.0, 1.0, "REM", 1.5, -1.5),
    (3.0, 3.0, 1.0, "REM", 1.5, -1.5),
    (1.0, 2.0, 1.0, "REM", 4.0, -4.0),
    (1.0, 1.0, 0.8, "REM", 1.331138685, -0.971528300),
    (3.0, 3.0, 0.8, "REM", 1.331138685, -0.971528300),
    (1.0, 2.0, 0.5, "REM", 3.325002747, -0.674997253),
    (4.0, 8.0, 0.6, "REM", 3.501310856, -0.889187896),
    (1.0, 1.0, 1.0, "REP", 4.0, -2.0),
    (3.0, 3.0, 1.0, "REP", 4.0, -2.0),
    (1.0, 2.0, 1.0, "REP", 12.0, -4.0),
    (4.0, 8.0, 1.0, "REP", 12.0, -4.0),
    (1.0, 1.0, 0.8, "REP", 2.6566465589644865, -1.3895653925023248),
    (3.0, 3.0, 0.8, "REP", 2.6566465589644865, -1.3895653925023248),
    (1.0, 2.0, 0.5, "REP", 4.017814521544914, -0.6749972526421355),
    (4.0, 8.0, 0.6, "REP", 4.41709852073334, -0.8891878961255205),
]


@pytest.mark.parametrize(("deviation", "sensitivity", "rate", "order", "high", "low"), ENDS)
def test_losses_at_one_deviation_from_both_means(deviation, sensitivity, rate, order, high, low):
    """Their truncation at the mass of two tails of one deviation."""
    far, near = -(sensitivity + deviation), deviation
    if order == "ADD":
        far, near = -deviation, sensitivity + deviation
    pair = deviation, sensitivity, rate, order
    assert loss_at(*pair, far) == pytest.approx(high, abs=2e-9)
    assert loss_at(*pair, near) == pytest.approx(low, abs=2e-9)


# sensitivity, rate, order, epsilon, delta -> standard deviation, three places
NOISE = [
    (1.0, 0.1, "REM", 2.0, 2.355e-06, 1.0),
    (5.0, 0.75, "REM", 2.0, 0.00877201, 5.0),
    (1.0, 0.3, "REM", 16.0, 3.294e-05, 0.3),
    (2.0, 0.2, "REM", 16.0, 0.02302382, 0.4),
    (5.0, 0.75, "REP", 2.0, 0.09233932, 5.0),
    (1.0, 0.3, "REP", 16.0, 4.960e-05, 0.3),
    (1.0, 0.1, "REP", 2.0, 3.828e-06, 1.0),
    (2.0, 0.2, "REP", 16.0, 0.02477823, 0.4),
    (1.0, 0.8, "ADD", 1.0, 0.02313621, 1.0),
    (2.0, 0.7, "ADD", 1.0, 0.01080649, 1.5),
]


@pytest.mark.parametrize(("sensitivity", "rate", "order", "epsilon", "delta", "deviation"), NOISE)
def test_noise_of_a_poisson_step(sensitivity, rate, order, epsilon, delta, deviation):
    def spent(noise):
        if order != "REP":
            return LossDistribution.sampled_gaussian(rate, sensitivity / noise).delta(epsilon)
        run = Training(
            records=100,
            steps=1,
            step_size=rate * 100,
            noise=noise,
            gradient_norm=sensitivity,
            batches=Poisson(rate),
            adjacency="replace",
        )
        return account(run, Loss.unknown()).delta(epsilon)

    assert spent(deviation - 1e-3) >= delta  # of ADD, ours is the worse order
    if order != "ADD":
        assert spent(deviation + 1e-3) <= delta


# --- gaussian_mechanism_test --------------------------------------------------------------------

DELTAS = (1e-10, 1e-5, 0.1, 0.5, 0.9)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [*itertools.product((1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5), DELTAS)]
)
def test_noise_and_back(epsilon, delta):
    """Relative 1e-7, as there."""
    back = gaussian.epsilon(gaussian.mu(epsilon, delta), delta)
    assert back == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize(
    ("deviation", "delta"), [*itertools.product((1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5), DELTAS)]
)
def test_epsilon_and_back(deviation, delta):
    epsilon = gaussian.epsilon(1 / deviation, delta)
    back = gaussian.mu(epsilon, delta) if epsilon > 0 else math.inf
    if epsilon == 0:  # (0, delta) already: a smaller noise is enough
        assert gaussian.delta(1 / deviation, 0.0) <= delta
    else:
        assert 1 / back == pytest.approx(deviation, rel=1e-7)


@pytest.mark.parametrize(
    ("deviation", "delta"), [*itertools.product((0.5, 1.0, 3.0), (1e-1, 1e-2, 1e-3))]
)
def test_the_epsilon_of_the_distribution(deviation, delta):
    """Nine of theirs, asked of dp-accounting itself."""
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    theirs = PLDAccountant().compose(dp_accounting.GaussianDpEvent(deviation)).get_epsilon(delta)
    assert gaussian.epsilon(1 / deviation, delta) == pytest.approx(theirs, rel=1e-6)
