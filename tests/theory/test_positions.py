"""One taut string per position: exact oracles, tables, exact laws of linear runs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from exact_laws import Pair, constant, linear_run, random_schedule, string_cost

from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.errors import DescriptionError
from lastiterate.lower.minibatch import lower_cyclic, lower_shuffled
from lastiterate.theory import taut_string
from lastiterate.theory.positions import (
    constant_position_mus,
    position_mus,
    position_sensitivities,
    released_mus,
    restarted_position_mus,
)


@pytest.mark.parametrize("seed", range(40))
def test_exact_rational_string_never_above_and_close(seed):
    rng = np.random.default_rng(seed)
    batches, steps = int(rng.integers(1, 6)), int(rng.integers(1, 19))
    c, s, nu = random_schedule(rng, steps)
    if seed % 5 == 0:
        c = np.where(rng.uniform(size=steps) < 0.2, 0.0, c)
        s = np.where(rng.uniform(size=steps) < 0.3, 0.0, s)
    mus = position_mus(c, s, nu, batches)
    for j in range(batches):
        exact = string_cost(c, position_sensitivities(s, batches, j), nu)
        assert Fraction(float(mus[j])) ** 2 >= exact  # in exact arithmetic
        assert mus[j] ** 2 <= float(exact) * (1 + 1e-10) + 1e-200


@pytest.mark.parametrize("seed", range(40))
def test_restarts_against_all_restarts(seed):
    rng = np.random.default_rng(seed)
    batches, steps = int(rng.integers(1, 5)), int(rng.integers(2, 17))
    c, s, nu = random_schedule(rng, steps)
    diameter = float(rng.choice([0.3, 1.0, 4.0]))
    mus = position_mus(c, s, nu, batches, diameter)
    for j in range(batches):
        impulses = position_sensitivities(s, batches, j)
        costs = [string_cost(c, impulses, nu)]
        used = np.cumsum(impulses) > 0
        restarts = [t for t in range(1, steps) if used[t - 1]]
        costs += [string_cost(c[t:], impulses[t:], nu[t:], diameter) for t in restarts]
        assert Fraction(float(mus[j])) ** 2 >= min(costs)
        if c.max() <= 1:
            assert mus[j] ** 2 <= float(min(costs)) * (1 + 1e-10) + 1e-200


@pytest.mark.parametrize("c", [0.3, 0.97, 1.0, 1.02])
def test_constant_parameters_agree_with_any_schedule(c):
    steps, batches = 250, 9  # a partial last epoch
    cs, ss, nus = constant(c, 0.7, steps)
    almost = ss.copy()
    almost[0] = np.nextafter(0.7, 1)  # no longer constant: the general path
    for diameter in (math.inf, 2.0):
        closed = position_mus(cs, ss, nus, batches, diameter)
        pooled = position_mus(cs, almost, nus, batches, diameter)
        np.testing.assert_allclose(closed, pooled, rtol=1e-9)


@pytest.mark.parametrize("c", [0.0, 0.6, 1.0, 1.1])
def test_numbers_instead_of_arrays(c):
    for steps, diameter in [(1, math.inf), (23, math.inf), (23, 0.8)]:
        one = np.ones(steps)
        arrays = position_mus(c * one, 0.7 * one, 1.3 * one, 5, diameter)
        numbers = constant_position_mus(c, 0.7, 1.3, steps, 5, diameter)
        # (Rounding up costs the general path about 1e-9 where c = 0.)
        assert np.all(numbers >= arrays * (1 - 1e-8))
        if c <= 1 or math.isinf(diameter):
            np.testing.assert_allclose(numbers, arrays, rtol=1e-8, atol=1e-140)
    huge = constant_position_mus(0.999, 1.0, 1.0, 10**12, 50, diameter=100.0)
    assert np.all(np.isfinite(huge))
    assert np.all(constant_position_mus(1.0, 1.0, 0.0, 3, 5)[:3] == math.inf)
    assert np.all(constant_position_mus(1.0, 0.0, 0.0, 3, 5) == 0)


def test_trap_of_the_naive_quadratic_formula():
    mus = position_mus(*constant(0.9, 1.0, 20), batches=4)
    assert round(mus[3] ** 2, 4) == 1.5868


def test_closed_form_at_c_one():
    mus = position_mus(*constant(1.0, 0.8, 50), batches=10)
    expected = 0.64 * (4 / 10 + 1 / (10 - np.arange(10)))
    np.testing.assert_allclose(mus**2, expected, rtol=1e-12)


TABLE = [
    (1, 10, 5, 0.8, 0.2171, 0.1063),
    (0.99, 10, 10, 0.8, 0.2640, 0.1655),
    (0.95, 10, 10, 0.8, 0.1944, 0.0674),
    (0.98, 20, 20, 0.8, 0.1843, 0.0390),
    (0.9, 5, 20, 0.5, 0.0884, 0.0414),
    (0.995, 20, 40, 0.5, 0.1151, 0.0551),
]


@pytest.mark.parametrize(("c", "batches", "epochs", "s", "worst", "once"), TABLE)
def test_table_of_deltas_at_half(c, batches, epochs, s, worst, once):
    mus = position_mus(*constant(c, s, batches * epochs), batches)
    assert round(gaussian.delta(float(mus.max()), 0.5), 4) == worst
    assert round(Mixture(mus).delta(0.5), 4) == once


@pytest.mark.parametrize(
    ("epochs", "composed", "worst", "hidden"),
    [(50, 30.5, 4.34, 3.48), (100, 49.9, 5.60, 4.79), (200, 83.8, 7.58, 6.88)],
)
def test_cyclic_logistic_regression_on_mnist(epochs, composed, worst, hidden):
    mus = position_mus(*constant(1 - 0.05 * 0.002, 2 / 3, 40 * epochs), batches=40)
    assert round(gaussian.epsilon(2 / 3 * math.sqrt(epochs), 1e-5), 1) == composed
    assert round(gaussian.epsilon(float(mus.max()), 1e-5), 2) == worst
    assert round(Mixture(mus).epsilon(1e-5), 2) == hidden


def test_released_checkpoints_share_the_position():
    rng = np.random.default_rng(3)
    c, s, nu = random_schedule(rng, 23, constant=False)
    together = released_mus(c, s, nu, 5, releases=(7, 15))
    for j in range(5):
        impulses = position_sensitivities(s, 5, j)
        parts = [slice(0, 7), slice(7, 15), slice(15, 23)]
        exact = sum(string_cost(c[p], impulses[p], nu[p]) for p in parts)
        assert Fraction(float(together[j])) ** 2 >= exact
        assert together[j] ** 2 <= float(exact) * (1 + 1e-10) + 1e-200
    assert np.all(together >= position_mus(c, s, nu, 5))


def test_window_pays_the_last_steps_at_once():
    c, s, nu = constant(0.9, 1.0, 60)
    # Full batches: the window bound of the theory, units s^2/nu^2.
    assert round(released_mus(c, s, nu, 1, window=10)[0] ** 2, 2) == 27.82
    assert round(released_mus(c, s, nu, 1, window=60)[0] ** 2, 2) == 60
    mus = released_mus(c, s, nu, 7, window=10)
    for j in range(7):
        impulses = position_sensitivities(s, 7, j)
        exact = string_cost(c[:51], impulses[:51], nu[:51]) + int(impulses[51:].sum())
        assert mus[j] ** 2 == pytest.approx(float(exact), rel=1e-10)
        assert Fraction(float(mus[j])) ** 2 >= exact
    with pytest.raises(DescriptionError):
        released_mus(c, s, nu, 7, window=61)
    with pytest.raises(DescriptionError):
        released_mus(c, s, nu, 7, releases=(61,))


def test_every_segment_phase_of_a_constant_run():
    c, s, nu = constant(0.95, 1.0, 30)
    for cut in range(1, 30):
        mus = released_mus(c, s, nu, 4, releases=(cut,))
        for j in range(4):
            impulses = position_sensitivities(s, 4, j)
            exact = string_cost(c[:cut], impulses[:cut], nu[:cut]) + string_cost(
                c[cut:], impulses[cut:], nu[cut:]
            )
            assert Fraction(float(mus[j])) ** 2 >= exact
            assert mus[j] ** 2 <= float(exact) * (1 + 1e-10)


def test_zero_noise_zero_steps_zero_sensitivity():
    one, zero = np.ones(4), np.zeros(4)
    assert np.all(position_mus(one, one, zero, 2) == math.inf)
    assert np.all(position_mus(one, zero, zero, 2) == 0)
    assert np.all(position_mus([], [], [], 2) == 0)
    last_silent = position_mus(one, one, [1, 1, 1, 0], 2)
    assert last_silent[0] < math.inf == last_silent[1]
    with pytest.raises(DescriptionError):
        position_mus(one, one, one, 0)


@pytest.mark.parametrize("seed", range(10))
def test_witness_proves_the_same(seed):
    rng = np.random.default_rng(seed)
    c, s, nu = random_schedule(rng, 30)
    diameter = float(rng.choice([math.inf, 2.0]))
    mus = position_mus(c, s, nu, 4, diameter)
    for j in range(4):
        impulses = position_sensitivities(s, 4, j)
        witness = taut_string.best(c, impulses, nu, diameter)
        proved = taut_string.replay(c, impulses, nu, witness.shifts, witness.start, witness.restart)
        assert proved == witness.mu
        assert proved <= mus[j] * (1 + 1e-8)


def cyclic_sequences(steps, batches):
    return [np.arange(j, steps, batches) for j in range(batches)]


def test_truth_cyclic_400_linear_runs():
    rng = np.random.default_rng(11)
    attained = 0
    for _ in range(400):
        batches, steps = int(rng.integers(1, 6)), int(rng.integers(1, 16))
        c, s, nu = random_schedule(rng, steps)
        mus = position_mus(c, s, nu, batches)
        j = int(rng.integers(batches))
        pair = linear_run(rng, c, s, nu, cyclic_sequences(steps, batches)[j : j + 1])
        # One Gaussian against another: the distance of the means is everything.
        distance = abs(pair.p[0] - pair.q[0])
        assert distance <= mus[j] * (1 + 1e-14)
        attained += distance > 0 and mus[j] <= distance * (1 + 1e-9)
    assert attained > 5  # the comparison has teeth


def test_truth_shuffled_400_linear_runs():
    rng = np.random.default_rng(12)
    tightest = math.inf
    for _ in range(400):
        batches = int(rng.integers(2, 6))
        steps = int(rng.integers(1, 4 * batches))
        c, s, nu = random_schedule(rng, steps)
        curve = Mixture(position_mus(c, s, nu, batches))
        pair = linear_run(rng, c, s, nu, cyclic_sequences(steps, batches))
        for epsilon in (0.0, float(rng.uniform(0, 5))):
            truth = pair.delta(epsilon)
            assert curve.delta(epsilon) >= truth
            if truth > 1e-6:
                tightest = min(tightest, curve.delta(epsilon) / truth)
        order = float(rng.choice([1.1, 2, 8, 64, rng.uniform(1, 64)]))
        assert curve.rdp(order) >= pair.renyi(order) * (1 - 1e-9) - 1e-12
    assert tightest < 1.1  # the comparison has teeth


def test_hidden_position_is_never_worse_and_hidden_state_never_above_composition():
    rng = np.random.default_rng(5)
    for _ in range(30):
        c, s, nu = random_schedule(rng, 24)
        mus = position_mus(c, s, nu, 5)
        composed = [np.sum((position_sensitivities(s, 5, j) / nu) ** 2) for j in range(5)]
        assert np.all(mus**2 <= np.array(composed) * (1 + 1e-10))
        for epsilon in (0.1, 1.0, 4.0):
            worst = gaussian.delta(float(mus.max()), epsilon)
            assert Mixture(mus).delta(epsilon) <= worst * (1 + 1e-9)
        louder = position_mus(c, s, 1.1 * nu, 5)
        assert np.all(louder <= mus)


@pytest.mark.parametrize("seed", range(12))
def test_lower_references_stay_below_and_meet_the_string_when_all_is_reachable(seed):
    rng = np.random.default_rng(seed)
    c, s, nu = random_schedule(rng, 17)
    mus = position_mus(c, s, nu, 4)
    lower = lower_cyclic(c * rng.choice([0.5, 0.95, 1.0]), c, s, nu, 4)
    assert 0 < lower <= mus.max()
    curve = Mixture(mus)
    for adjacency in ("zero-out", "replace"):
        for delta in (1e-3, 1e-6):
            low = lower_shuffled(0.8 * c, c, s, nu, 4, delta, adjacency)
            assert 0 <= low <= curve.epsilon(delta)


@pytest.mark.parametrize("c", [0.9, 1.0])
def test_lower_cyclic_attains_the_string_for_constant_parameters(c):
    cs, ss, nus = constant(c, 1.0, 20)
    attained = lower_cyclic(0.0, cs, ss, nus, 4)
    assert attained == pytest.approx(position_mus(cs, ss, nus, 4).max(), rel=1e-5)


def test_lower_shuffled_is_suffered_by_a_linear_run():
    # c_low = c leaves one map: the exact mixture, in both adjacencies.
    cs, ss, nus = constant(0.9, 1.0, 12)
    ahead = 0.9 ** np.arange(11, -1, -1.0)
    means = np.array([ahead[j::4].sum() for j in range(4)]) / np.sqrt(np.sum(ahead**2))
    weights = np.full(4, 0.25)
    absent = Pair(means, 0 * means, weights)
    rivals = Pair(2 * means, means, weights)  # all other records push the opposite way
    replace = Pair(means / 2, -means / 2, weights)
    worlds = {"absent": [absent], "zero-out": [absent, rivals], "replace": [replace]}
    for adjacency, pairs in worlds.items():
        epsilon = lower_shuffled(0.9, cs, ss, nus, 4, 1e-4, adjacency)
        assert epsilon > 0.5
        found = max(pair.delta(epsilon, cells=40000) for pair in pairs)
        assert found == pytest.approx(1e-4, rel=1e-3)


def test_restarts_of_expanding_steps_are_those_of_the_whole_pooling():
    """Equal steps, c > 1: the closed form from a common start, and the best restart."""
    rng = np.random.default_rng(77)
    gained = 0
    for _ in range(60):
        c, s, nu = 1 + 10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-2, 0), 10 ** rng.uniform(-1, 1)
        steps, batches = int(rng.integers(1, 60)), int(rng.integers(1, 8))
        diameter = float(s * 10 ** rng.uniform(-1, 2))
        common = constant_position_mus(c, s, nu, steps, batches)
        restarted = restarted_position_mus(c, s, nu, steps, batches, diameter)
        whole = position_mus(*(np.full(steps, v) for v in (c, s, nu)), batches, diameter)
        assert np.minimum(common, restarted) == pytest.approx(whole, rel=1e-9)
        gained += np.any(restarted < common * 0.99)
    assert gained > 10


def test_restarts_of_a_run_without_end():
    """What happened before the steps that are looked at plays no part."""
    near, far = (
        restarted_position_mus(1.01, 0.1, 1.0, steps, 5, diameter=2.0) for steps in (500, 10**12)
    )
    assert far == pytest.approx(near, rel=1e-9)
    assert np.all(far < constant_position_mus(1.01, 0.1, 1.0, 10**12, 5) / 100)
