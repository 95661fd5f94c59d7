"""The taut string against exact laws, exact rational arithmetic and a generic QP solver."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import quadprog
from flint import arb, ctx, fmpq
from scipy.stats import norm

from lastiterate.errors import DescriptionError
from lastiterate.theory.replay import replay
from lastiterate.theory.taut_string import (
    best,
    constant,
    constant_curve,
    constant_restart,
    restarts,
    taut_string,
)


def random_schedule(rng, longest=30):
    T = int(rng.integers(1, longest))
    c = rng.uniform(0.3, 1.7, T)
    s = rng.exponential(1.0, T) * (rng.random(T) < 0.7)
    nu = np.exp(rng.normal(0, 0.7, T))
    start = float(rng.choice([0.0, rng.exponential(3.0)]))
    return c, s, nu, start


def quadratic_programme(c, s, nu, start):
    """min sum (a/nu)^2 over z_1 ... z_{T-1} >= 0, by a dense generic solver."""
    T = len(c)
    M = np.zeros((T, T + 1))
    M[np.arange(T), np.arange(T)] = c
    M[np.arange(T), np.arange(T) + 1] = -1.0
    M, b = M[:, 1:T] / nu[:, None], s / nu
    b[0] += c[0] * start / nu[0]
    if T == 1:
        return b[0] ** 2
    z, *_ = quadprog.solve_qp(M.T @ M, -M.T @ b, np.eye(T - 1), np.zeros(T - 1))
    return float(np.sum((M @ np.maximum(z, 0.0) + b) ** 2))


def pooled_blocks(c, s, nu, start, number=float):
    """Pooling step by step, in whatever arithmetic: lists of [A, V, Gamma, first step]."""
    blocks = []
    for k in range(len(c)):
        ck, A = number(c[k]), number(s[k])
        if k == 0:
            A = A + ck * number(start)
        V, G, first = number(nu[k]) * number(nu[k]), ck, k
        while blocks and blocks[-1][0] * V > G * A * blocks[-1][1]:
            A1, V1, G1, first = blocks.pop()
            A, V, G = G * A1 + A, G * G * V1 + V, G1 * G
        blocks.append([A, V, G, first])
    return blocks


def rational(x):
    return fmpq(*float(x).as_integer_ratio())


def exact_optimum(c, s, nu, start=0.0):
    return sum(A * A / V for A, V, _, _ in pooled_blocks(c, s, nu, start, rational))


def worst_linear_maps(c, s, nu, start):
    """The tightness proof: shrink c at the first step of each block until nothing is lost."""
    c = c.copy()
    total = weight = None
    for A, V, G, first in pooled_blocks(c, s, nu, start):
        if total is not None:
            shrunk = min(G, total / weight * V / A) if A > 0 else 0.0
            c[first] *= shrunk / G
            A, V = shrunk * total + A, shrunk**2 * weight + V
        total, weight = A, V
    return c


def gaussian_distance(c, s, nu, start=0.0):
    """(difference of means)^2 / variance after x -> c x + s + N(0, nu^2), exactly Gaussian."""
    mean, variance = start, 0.0
    for ck, sk, nk in zip(c, s, nu, strict=True):
        mean, variance = ck * mean + sk, ck * ck * variance + nk * nk
    return mean * mean / variance


def test_equals_a_quadratic_programme_and_is_attained_by_linear_maps():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        c, s, nu, start = random_schedule(rng)
        found = taut_string(c, s, nu, start)
        square = found.mu**2
        assert square == pytest.approx(quadratic_programme(c, s, nu, start), rel=1e-9, abs=1e-14)
        shrunk = worst_linear_maps(c, s, nu, start)
        assert np.all((shrunk >= 0) & (shrunk <= c * (1 + 1e-15)))
        attained = gaussian_distance(shrunk, s, nu, start)
        assert square == pytest.approx(attained, rel=1e-9, abs=1e-14)
        assert square >= attained * (1 - 1e-14)


def test_never_below_the_exact_optimum_and_replay_never_below_the_exact_replay():
    rng = np.random.default_rng(2)
    for _ in range(150):
        c, s, nu, start = random_schedule(rng, 14)
        found = taut_string(c, s, nu, start)
        optimum = exact_optimum(c, s, nu, start)
        assert rational(found.mu) ** 2 >= optimum
        assert rational(found.mu) ** 2 <= optimum * rational(1 + 1e-12)
        # The replay of any shifts, good or bad, against exact rational arithmetic.
        shifts = found.shifts * rng.uniform(0.5, 1.2, len(c))
        z = rational(start)
        for k in range(len(c)):
            z = max(fmpq(0), rational(c[k]) * z + rational(s[k]) - rational(shifts[k]))
        paid = [rational(a) for a in shifts]
        paid[-1] += z
        exact = sum((a / rational(n)) ** 2 for a, n in zip(paid, nu, strict=True))
        replayed = rational(replay(c, s, nu, shifts, start)) ** 2
        assert exact <= replayed <= exact * rational(1 + 1e-12)


def test_replay_of_a_long_run_is_above_ball_arithmetic():
    rng = np.random.default_rng(3)
    T = 100_000
    c, s, nu = rng.uniform(0.98, 1.02, T), rng.uniform(0, 1, T), rng.uniform(0.5, 2, T)
    found = taut_string(c, s, nu)
    before, ctx.prec = ctx.prec, 300
    try:
        z, square = arb(0), arb(0)
        for ck, sk, ak, nk in zip(*(v.tolist() for v in (c, s, found.shifts, nu)), strict=True):
            z = arb(ck) * z + arb(sk) - arb(ak)
            if z < 0:
                z = arb(0)
            square += (arb(ak) / arb(nk)) ** 2
        a, n = arb(float(found.shifts[-1])), arb(float(nu[-1]))
        exact = (square - (a / n) ** 2 + ((a + z) / n) ** 2).sqrt()
        assert arb(found.mu) >= exact
        assert arb(found.mu) <= exact * arb(1 + 1e-11)
    finally:
        ctx.prec = before


def test_bound_holds_for_linear_maps_in_one_and_two_dimensions():
    rng = np.random.default_rng(4)
    for _ in range(1200):  # 1-D: any slopes up to c, any signs and sizes up to s
        c, s, nu, _ = random_schedule(rng, 12)
        slopes = c * rng.choice([-1, 1, 1, 1], len(c)) * rng.choice([1, rng.random()], len(c))
        jumps = s * rng.choice([-1, 1, 1, 1], len(c)) * rng.choice([1, rng.random()], len(c))
        assert taut_string(c, s, nu).mu ** 2 >= gaussian_distance(slopes, jumps, nu) * (1 - 1e-13)
    for _ in range(800):  # 2-D: random matrices of norm c, random directions
        c, s, nu, _ = random_schedule(rng, 8)
        mean, covariance = np.zeros(2), np.zeros((2, 2))
        common = rng.random() < 0.5  # half the time all pull one way, which comes close
        for ck, sk, nk in zip(c, s, nu, strict=True):
            left, right = (np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(2))
            M = np.eye(2) * ck if common else ck * left @ np.diag([1, rng.random()]) @ right
            angle = 0.0 if common else rng.uniform(0, 2 * np.pi)
            mean = M @ mean + sk * np.array([np.cos(angle), np.sin(angle)])
            covariance = M @ covariance @ M.T + nk**2 * np.eye(2)
        truth = mean @ np.linalg.solve(covariance, mean)
        assert taut_string(c, s, nu).mu ** 2 >= truth * (1 - 1e-12)


def test_equals_the_truth_of_a_quadratic_loss_with_equal_steps():
    rng = np.random.default_rng(5)
    for _ in range(200):
        T, c = int(rng.integers(1, 60)), float(rng.uniform(0, 1))
        s, nu = float(rng.exponential()), float(rng.exponential())
        truth = gaussian_distance([c] * T, [s] * T, [nu] * T)
        assert constant(c, s, nu, T) ** 2 == pytest.approx(truth, rel=1e-9)
        assert constant(c, s, nu, T) ** 2 >= truth * (1 - 1e-14)
        assert taut_string(np.full(T, c), s, nu).mu ** 2 == pytest.approx(truth, rel=1e-9)


def test_the_trap_of_late_batches():
    """(difference)^2/variance with all multipliers equal to c is no bound when s varies."""
    s = np.array([0.0, 0.0, 0.0, 1.0] * 5)
    naive = gaussian_distance([0.9] * 20, s, [1.0] * 20)
    found = taut_string(0.9, s, 1.0).mu ** 2
    assert naive == pytest.approx(1.2582, abs=5e-5)
    from_first_arrival = gaussian_distance([0.9] * 17, s[3:], [1.0] * 17)
    assert from_first_arrival == pytest.approx(1.2751, abs=5e-5)
    assert found == pytest.approx(1.5868, abs=5e-5)
    attained = gaussian_distance(
        worst_linear_maps(np.full(20, 0.9), s, np.ones(20), 0.0), s, np.ones(20)
    )
    assert attained == pytest.approx(found, rel=1e-12)


def gaussian_profile(mu, epsilon):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def projected_tails(slope, drifts, nu, D, start, thresholds):
    """P(X_T >= t) of X -> clip(slope X + drift + N(0, nu^2), 0, D).

    Gauss-Legendre nodes inside and atoms at both ends; the kernel is analytic, and doubling the
    nodes changes nothing above 1e-13.
    """
    x, w = np.polynomial.legendre.leggauss(64)
    x, w = (x + 1) * D / 2, w * D / 2
    points = np.concatenate([[0.0, D], x])
    mass = None
    for drift in drifts[:-1]:
        at = np.array([start]) if mass is None else points
        old = np.array([1.0]) if mass is None else mass
        centre = slope * at + drift
        inside = (norm.pdf((x[:, None] - centre) / nu) / nu) @ old * w
        mass = np.concatenate(
            [[norm.cdf(-centre / nu) @ old, norm.sf((D - centre) / nu) @ old], inside]
        )
    assert mass is not None
    assert mass.sum() == pytest.approx(1.0, abs=1e-11)
    return norm.sf((thresholds[:, None] - (slope * points + drifts[-1])) / nu) @ mass


def test_restart_bound_holds_for_projected_walks():
    """Linear losses on an interval: the sets {x >= t} give a true lower bound of delta."""
    rng = np.random.default_rng(6)
    restarted, ratios = 0, []
    for _ in range(320):
        T, D = int(rng.integers(2, 30)), float(rng.uniform(0.2, 2.5))
        slope, nu = float(rng.choice([1.0, rng.uniform(0.6, 1)])), float(rng.uniform(0.7, 1.5))
        s = rng.uniform(0, 1) * (np.ones(T) if rng.random() < 0.5 else rng.random(T))
        pull = rng.uniform(-0.5, 0.5)
        found = best(np.full(T, slope), s, nu, D)
        restarted += found.restart > 0
        start = float(rng.uniform(0, D))
        t = np.linspace(1e-9, D, 60)
        P, Q = (projected_tails(slope, pull + sign * s / 2, nu, D, start, t) for sign in (1, -1))
        for epsilon in (0.0, 0.25, 0.5, 1.0, 2.0):
            truth = max(
                float(np.max(P - math.exp(epsilon) * Q)),
                float(np.max((1 - Q) - math.exp(epsilon) * (1 - P))),
            )
            bound = gaussian_profile(found.mu, epsilon)
            assert bound >= truth - 1e-11
            if bound > 1e-9:
                ratios.append(truth / bound)
    assert restarted > 100  # the restart is what is tested
    assert max(ratios) > 0.8  # and the truth comes close enough to notice an error


def test_all_restarts_equal_separate_solutions():
    rng = np.random.default_rng(7)
    for silent in (1.0, 0.6):
        for _ in range(60):
            c, s, nu, _ = random_schedule(rng, 25)
            c = c * (rng.random(len(c)) < silent**0.3)
            nu = nu * (rng.random(len(c)) < silent)
            D = rng.exponential(4.0, len(c)) * (rng.random(len(c)) < 0.9)
            each = [taut_string(c[k:], s[k:], nu[k:], D[k]).mu ** 2 for k in range(len(c))]
            assert restarts(c, s, nu, D) == pytest.approx(each, rel=1e-11, abs=1e-25)
            found = best(c, s, nu, D)
            candidates = [taut_string(c, s, nu).mu, *np.sqrt(each)]
            assert found.mu == pytest.approx(min(candidates), rel=1e-11, abs=1e-14)
            again = replay(c, s, nu, found.shifts, found.start, found.restart)
            assert again == found.mu


def test_infinite_diameter_is_no_restart():
    assert np.all(np.isinf(restarts(1.0, np.ones(5), 1.0, math.inf)))
    assert best(1.0, np.ones(5), 1.0).mu == taut_string(1.0, np.ones(5), 1.0).mu
    assert best([1, 0, 1], np.ones(3), 1.0, math.inf).mu == pytest.approx(math.sqrt(2), rel=1e-12)


def test_without_a_diameter_nobody_looks_for_restarts():
    """They are six times the work of the string. A step with c = 0 forgets without them too."""
    rng = np.random.default_rng(11)
    called = set()
    for trial in range(40):
        c, s, nu, _ = random_schedule(rng, 25)
        c = c * (rng.random(len(c)) < 0.8)
        diameter = math.inf if trial % 2 else np.full(len(c), math.inf)
        sys.setprofile(lambda frame, event, what: called.add(frame.f_code.co_name))
        try:
            found = best(c, s, nu, diameter)
        finally:
            sys.setprofile(None)
        assert "taut_string" in called
        assert "restarts" not in called
        each = restarts(c, s, nu, math.inf).min()
        assert found.mu**2 <= min(each, taut_string(c, s, nu).mu ** 2) * (1 + 1e-11)


@pytest.mark.parametrize("c", [0.0, 0.3, 0.9, 1 - 1e-15, 1.0, 1 + 1e-15, 1.1, 3.0])
def test_closed_forms_equal_the_general_solution(c):
    for T in (1, 2, 7, 60):
        for s in (0.0, 0.5):
            for D in (0.0, 0.1, 1.0, 20.0):
                general = taut_string(np.full(T, c), s, 1.3, D).mu
                assert constant(c, s, 1.3, T, D) == pytest.approx(general, rel=1e-11, abs=1e-40)
                after = restarts(np.full(T, c), s, 1.3, D)[1:].min(initial=math.inf)
                closed = constant_restart(c, s, 1.3, T, D)
                assert closed == pytest.approx(math.sqrt(after), rel=1e-11, abs=1e-40)
                curve = constant_curve(c, s, 1.3, [T], D)[0]
                assert curve == pytest.approx(min(constant(c, s, 1.3, T), closed), rel=1e-12)


def test_closed_forms_are_rounded_up():
    """Against ball arithmetic, up to a million million steps and c within 1e-15 of 1."""
    rng = np.random.default_rng(8)
    before, ctx.prec = ctx.prec, 400
    try:
        for _ in range(300):
            gap = float(10.0 ** rng.uniform(-15.5, -0.1))
            c = 1 - gap if rng.random() < 0.5 else 1 + gap
            T = int(10 ** rng.uniform(0.4, 12))
            s, D = float(rng.exponential()), float(10 ** rng.uniform(-3, 3))
            exact = arb(c)
            q = exact**T if c < 1 else arb(0)
            if c < 1:
                truth = arb(s) * ((1 - q) / (1 + q) * (1 + exact) / (1 - exact)).sqrt()
            else:
                truth = arb(s) * arb(T).sqrt()
            value = arb(constant(c, s, 1.0, T))
            assert truth <= value
            assert value <= truth * arb(1 + 3e-12)

            def left(m, c=exact, s=s, D=D):
                q = c**m
                total = q * arb(D) + arb(s) * (1 - q) / (1 - c)
                return total / ((1 - q * q) / (1 - c * c)).sqrt()

            found = arb(constant_restart(c, s, 1.0, T, D))
            tried = sorted({1, T - 1, *(int(m) for m in 10 ** rng.uniform(0, math.log10(T), 40))})
            values = [left(m) for m in tried if 1 <= m <= T - 1 and m * gap < 1e5]
            assert all(found <= v * arb(1 + 3e-12) for v in values)  # no other m is better
            ideal = math.log1p((c - 1) * D / s) / math.log(c) if (c - 1) * D > -s else math.inf
            near = [min(max(m + i, 1), T - 1) for m in [int(min(ideal, T))] for i in (-1, 0, 1, 2)]
            if near[-1] * gap < 1e5:
                assert any(found >= left(m) for m in near)  # and it is one of them, rounded up
    finally:
        ctx.prec = before


@pytest.mark.parametrize("c", [0.9, 1 - 1e-6, 1.0, 1.1])
def test_a_million_equal_steps(c):
    T = 10**6
    found = taut_string(np.full(T, c), 0.7, 1.3).mu
    assert found == pytest.approx(constant(c, 0.7, 1.3, T), rel=1e-9)
    one_early = np.zeros(T)
    one_early[0] = 1.0
    early = taut_string(np.full(T, c), one_early, 1.3).mu
    carried = constant(c, 0.0, 1.3, T, 1.0 / c)
    assert early == pytest.approx(carried, rel=1e-9, abs=1e-199)


def test_a_million_random_steps_against_logarithmic_pooling():
    """c in [0.8, 1.2]: the products leave the float range many times."""
    rng = np.random.default_rng(9)
    T = 10**6
    c, s, nu = rng.uniform(0.8, 1.25, T), rng.uniform(0, 1, T), rng.uniform(0.5, 2, T)
    found = taut_string(c, s, nu)
    blocks = []  # (log A, log V, log Gamma)
    lc, ls, lv = np.log(c).tolist(), np.log(s).tolist(), (2 * np.log(nu)).tolist()
    for A, V, G in zip(ls, lv, lc, strict=True):
        while blocks and blocks[-1][0] - blocks[-1][1] > G + A - V:
            A1, V1, G1 = blocks.pop()
            A, V, G = np.logaddexp(G + A1, A), np.logaddexp(2 * G + V1, V), G1 + G
            A, V = float(A), float(V)
        blocks.append((A, V, G))
    reference = math.fsum(math.exp(2 * A - V) for A, V, _ in blocks)
    assert found.mu**2 == pytest.approx(reference, rel=1e-8)


def test_noise_ratios_of_a_million_million_and_tiny_or_huge_factors():
    rng = np.random.default_rng(10)
    for _ in range(100):
        T = int(rng.integers(1, 30))
        c = 10.0 ** rng.uniform(-20, 20, T)
        s = 10.0 ** rng.uniform(-6, 6, T) * (rng.random(T) < 0.8)
        nu = 10.0 ** rng.uniform(-6, 6, T)
        optimum = exact_optimum(c, s, nu)
        mu = rational(taut_string(c, s, nu).mu)
        assert optimum <= mu * mu <= optimum * rational(1 + 1e-9)


def test_steps_without_noise():
    assert taut_string(1.0, [1, 0], [0, 1]).mu == pytest.approx(1.0, rel=1e-12)
    assert taut_string(1.0, [0, 0, 1], [0, 0, 1]).mu == pytest.approx(1.0, rel=1e-12)
    assert math.isinf(taut_string(1.0, [0, 1], [1, 0]).mu)
    assert taut_string([1, 0], [1, 0], [1, 0]).mu == 0.0  # the last update forgets everything
    assert taut_string(1.0, [2, 0], [1, 0]).mu == pytest.approx(2.0, rel=1e-12)
    assert taut_string(1.0, [0, 0], 0.0).mu == 0.0
    assert math.isinf(taut_string(1.0, [1, 0], 0.0).mu)
    assert math.isinf(taut_string(1.0, [0, 0], 0.0, start=1.0).mu)
    assert taut_string(np.zeros(0), 0.0, 1.0).mu == 0.0
    rng = np.random.default_rng(11)
    for _ in range(300):  # no noise is the limit of little noise
        c, s, nu, start = random_schedule(rng, 12)
        nu = nu * (rng.random(len(c)) < 0.6)
        nu[-1] = 1.0
        limit = taut_string(c, s, np.where(nu > 0, nu, 1e-12), start).mu
        assert taut_string(c, s, nu, start).mu == pytest.approx(limit, rel=1e-9, abs=1e-14)


def test_replay_refuses_what_it_cannot_pay():
    assert math.isinf(replay(1.0, [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]))
    assert math.isinf(replay(1.0, [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]))
    assert replay(1.0, [1.0, 0.0], 1.0, [0.0, 0.0]) >= 1.0  # left over: paid at the end
    assert replay(1.0, [1.0, 0.0], 1.0, [5.0, 0.0]) >= 5.0  # too much: charged as given
    assert math.isinf(replay(1e200, [1.0] * 4, 1.0, [0.0] * 4))
    with pytest.raises(DescriptionError):
        replay(1.0, [1.0], 1.0, [-1.0])
    for restart in (-1, 4):  # a negative index must not skip the steps before it
        with pytest.raises(DescriptionError):
            replay(1.0, [1.0] * 3, 1.0, [1.0] * 3, restart=restart)
    with pytest.raises(DescriptionError):
        replay(1.0, [1.0] * 3, 1.0, [1.0] * 2)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(DescriptionError):
            taut_string(bad, [1.0], 1.0)
        with pytest.raises(DescriptionError):
            taut_string(1.0, [1.0], 1.0, start=bad)
    with pytest.raises(DescriptionError):
        taut_string([1.0, 1.0], [1.0, 1.0, 1.0], 1.0)


def test_mu_grows_with_factor_and_sensitivity_and_falls_with_noise():
    rng = np.random.default_rng(12)
    for _ in range(200):
        c, s, nu, start = random_schedule(rng, 15)
        base = taut_string(c, s, nu, start).mu
        k = rng.integers(len(c))
        for vector, sign in ((c, 1), (s, 1), (nu, -1)):
            moved = [v.copy() for v in (c, s, nu)]
            which = [v is vector for v in (c, s, nu)].index(True)
            moved[which][k] *= 1 + sign * 0.1
            assert taut_string(*moved, start).mu >= base * (1 - 1e-12)


@pytest.mark.parametrize(
    ("low", "high", "diameter"),
    [(0.2, 1.0, 3.0), (1.0, 1.0, 40.0), (0.999, 1.001, 30.0), (1.0, 1.02, 2.0), (0.9, 1.2, 0.05)],
)
def test_no_restart_of_a_long_run_is_better_than_the_one_found(low, high, diameter):
    """Also where only the last steps are looked at; against the values of all restarts."""
    rng = np.random.default_rng(21)
    for steps in (4_097, 12_000):
        c, s = rng.uniform(low, high, steps), rng.uniform(0, 1, steps)
        nu = rng.uniform(0.2, 2, steps) * (rng.random(steps) < 0.95)
        found = best(c, s, nu, diameter)
        least = min(restarts(c, s, nu, diameter).min(), taut_string(c, s, nu).mu ** 2)
        assert found.mu**2 <= least * (1 + 1e-8)
        assert replay(c, s, nu, found.shifts, found.start, found.restart) == found.mu
