"""Paths under a concave modulus against a global dynamic programme and against exact numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, ctx

from lastiterate.errors import DescriptionError
from lastiterate.theory.modulus import Modulus, replay_path, taut_path
from lastiterate.theory.taut_string import best, taut_string


def g(column, z):
    c, h, p, e, cap = column
    return np.where(z > 0, np.minimum(c * z + h * np.power(z, p), e * z + cap), 0.0)


def dynamic_programme(modulus, s, nu, D, points=1300):
    """The cheapest path on a grid, over all paths and all restarts.

    Every path visits grid points only and is exactly feasible, so the value is a valid bound and
    at or above the optimum.
    """
    rows = modulus.rows(len(s))
    grid = np.unique(
        np.concatenate(
            [[0.0], np.geomspace(1e-5 * D, D, points // 3), np.linspace(0, D, points - points // 3)]
        )
    )
    value, restart = np.where(grid > 0, math.inf, 0.0), math.inf
    for k in range(len(s) - 1, -1, -1):
        y = (g(rows[:, k], grid) + s[k])[:, None]
        cost = np.where(grid <= y, ((y - grid) / nu[k]) ** 2 + value, math.inf)
        value = cost.min(axis=1)
        if k > 0:
            restart = min(restart, value[-1])
    return float(min(restart, value[0]))


def random_problem(rng, equal):
    T = int(rng.integers(2, 14))

    def draw(low, high):
        return float(rng.uniform(low, high)) if equal else rng.uniform(low, high, T)

    exponents = [0.0, 0.2, 0.5, 0.8, 1.0]
    clipped = rng.random() < 0.6
    modulus = Modulus(
        c=draw(0.5, 1.2),
        h=draw(0, 0.6),
        p=rng.choice(exponents, None if equal else T),
        e=draw(0.5, 1.1) if clipped else 0.0,
        cap=draw(0.0, 0.5) if clipped else math.inf,
    )
    s = np.broadcast_to(draw(0.02, 0.4), T) * (1.0 if equal else rng.random(T) < 0.7)
    nu = np.broadcast_to(np.exp(draw(-0.5, 0.5)), T)
    return modulus, s, nu, float(rng.uniform(0.3, 3))


@pytest.mark.parametrize("problems", [15, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("equal", [True, False])
def test_equals_the_dynamic_programme(equal, problems):
    rng = np.random.default_rng(21 + equal)
    for _ in range(problems):
        modulus, s, nu, D = random_problem(rng, equal)
        found = taut_path(modulus, s, nu, D)
        reference = dynamic_programme(modulus, s, nu, D)
        assert found.mu**2 <= reference * (1 + 1e-9) + 1e-15
        assert found.mu**2 >= reference * (1 - 5e-4)  # what the grid may lose
        rows, noises = modulus.rows(len(s)), np.broadcast_to(nu, len(s))
        kept = slice(found.restart, None)
        walk = (rows[:, kept], s[kept], noises[kept], found.shifts[kept], found.start)
        assert replay_path(*walk) == found.mu


def test_stationary_wherever_the_distance_is_positive():
    """a_k / nu_k^2 = g'(z_k) a_{k+1} / nu_{k+1}^2."""
    modulus = Modulus(c=1.0, h=0.1, p=0.5, e=1.0, cap=0.4)
    found = taut_path(modulus, np.full(200, 0.08), 1.0, 1.0)
    a, z, checked = found.shifts, found.start, 0
    for k in range(found.restart, 199):
        z = float(modulus(z)) + 0.08 - a[k]
        slope = 1.0 + 0.05 / math.sqrt(z)
        assert 0.1 * math.sqrt(z) < 0.4
        assert a[k] == pytest.approx(slope * a[k + 1], rel=1e-5)
        checked += 1
    assert checked >= 5


def test_linear_moduli_equal_the_taut_string():
    rng = np.random.default_rng(22)
    for _ in range(25):
        T = int(rng.integers(2, 40))
        c, s = rng.uniform(0.7, 1.2, T), rng.exponential(0.3, T) * (rng.random(T) < 0.6)
        nu, D = rng.uniform(0.5, 2, T), float(rng.uniform(0.3, 5))
        for modulus in (
            Modulus(c=c),
            Modulus(c=c / 2, h=c / 2, p=1.0),
            Modulus(c=9.0, h=1.0, p=0.3, e=c, cap=0.0),
        ):
            exact = best(c, s, nu, D).mu
            assert taut_path(modulus, s, nu, D).mu == pytest.approx(exact, rel=1e-9, abs=1e-14)
        assert taut_path(Modulus(c=c), s, nu).mu == pytest.approx(
            taut_string(c, s, nu).mu, rel=1e-9, abs=1e-14
        )


def test_reference_values_of_the_smooth_case():
    """Chien & Li's Figure 1 setting: L = 1, K = 2, D = 1, n = 5, step 0.1, noise 1, 200 steps."""
    for c, coefficient in ((0.9, 0.060800), (1.0, 0.160062), (1.1, 0.273172)):
        found = taut_path(Modulus(c=c), np.full(200, 0.08), 1.0, 1.0)
        assert found.mu**2 / 2 == pytest.approx(coefficient, abs=5e-7)


def test_bounded_gradients_only():
    """p = 0: away from 0 one step adds h whatever the distance; pay D + m (s + h) - h evenly."""
    s, h, D = 0.08, 0.1, 1.0
    found = taut_path(Modulus(c=1.0, h=h, p=0.0), np.full(200, s), 1.0, D)
    even = min((D + m * (s + h)) ** 2 / m for m in range(1, 200))
    assert found.mu**2 == pytest.approx(even, rel=1e-9)
    free = taut_path(Modulus(c=1.0, h=h, p=0.0), np.full(30, s), 1.0)
    assert free.mu**2 == pytest.approx(30 * s * s, rel=1e-9)  # never leave 0: composition


def test_a_smaller_modulus_never_costs_more():
    rng = np.random.default_rng(23)
    for _ in range(20):
        modulus, s, nu, D = random_problem(rng, equal=False)
        larger = Modulus(modulus.c, np.asarray(modulus.h) * 1.3, modulus.p, modulus.e, modulus.cap)
        assert taut_path(modulus, s, nu, D).mu <= taut_path(larger, s, nu, D).mu * (1 + 1e-6)


def test_long_runs_search_only_what_can_win():
    modulus = Modulus(c=1.0, h=0.1, p=0.5)
    short = taut_path(modulus, np.full(200, 0.08), 1.0, 1.0)
    long = taut_path(modulus, np.full(50_000, 0.08), 1.0, 1.0)
    assert long.mu == pytest.approx(short.mu, rel=1e-9)
    assert long.restart == 50_000 - (200 - short.restart)
    shrinking = Modulus(c=0.5, h=0.05, p=0.5)
    plateau = [taut_path(shrinking, np.full(T, 0.05), 1.0).mu for T in (100, 20_000)]
    assert plateau[0] == pytest.approx(plateau[1], rel=1e-6)


def test_replay_is_above_ball_arithmetic():
    rng = np.random.default_rng(24)
    before, ctx.prec = ctx.prec, 200
    try:
        for _ in range(60):
            modulus, s, nu, D = random_problem(rng, equal=False)
            start = float(rng.choice([0.0, D]))
            shifts = rng.exponential(0.4, len(s))
            z, square = arb(start), arb(0)
            for k, (c, h, p, e, cap) in enumerate(modulus.rows(len(s)).T.tolist()):
                if z > 0:
                    inner = arb(c) * z + (arb(h) * z ** arb(p) if p > 0 else arb(h))
                    outer = arb(e) * z + arb(cap) if math.isfinite(cap) else inner
                    reach = inner if inner < outer else outer
                else:
                    reach = arb(0)
                z = reach + arb(float(s[k])) - arb(float(shifts[k]))
                z = z if z > 0 else arb(0)
                paid = arb(float(shifts[k])) + (z if k == len(s) - 1 else arb(0))
                square += (paid / arb(float(nu[k]))) ** 2
            value = arb(replay_path(modulus.rows(len(s)), s, nu, shifts, start))
            assert value >= square.sqrt()
            assert value <= square.sqrt() * arb(1 + 1e-11)
    finally:
        ctx.prec = before


def test_steps_without_noise_and_bad_input():
    modulus = Modulus(c=1.0, h=0.1, p=0.5)
    assert math.isinf(taut_path(modulus, [0.0, 0.1], [1.0, 0.0]).mu)
    assert taut_path(modulus, [0.1, 0.0], [0.0, 1.0]).mu == pytest.approx(
        0.1 + 0.1 * math.sqrt(0.1), rel=1e-9
    )
    assert taut_path(modulus, [0.1, 0.0], [1.0, 0.0]).mu == pytest.approx(0.1, rel=1e-9)
    assert taut_path(modulus, np.zeros(5), 1.0).mu == 0.0
    assert taut_path(modulus, np.zeros(0), 1.0).mu == 0.0
    assert taut_path(modulus, [0.5, 0.5, 0.5], 1.0, diameter=0.0).mu <= 0.5 * (1 + 1e-3)
    for bad in ({"p": 1.5}, {"h": -1.0}, {"c": math.nan}, {"cap": -0.1}):
        with pytest.raises(DescriptionError):
            Modulus(**bad)
    with pytest.raises(DescriptionError):
        taut_path(modulus, [0.1], 1.0, diameter=-1.0)
