"""Coupling with payments: never below exact laws, and no worse than coupling with stopping."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate.bounds.coupling import CouplingProblem, stopped_delta
from lastiterate.bounds.coupling_paths import _expected, _masses, _spend, paid_delta
from lastiterate.curves import gaussian


def exact_delta(pair, D, steps, start, epsilon, cells=400):
    """Both orders for maps on [0, D], nu = 1, from the masses of cells."""
    edges = np.linspace(0, D, cells + 1)
    points = np.concatenate([[0.0], (edges[1:] + edges[:-1]) / 2, [D]])
    laws = []
    for step in pair:

        def kernel(x, step=step):
            below = ndtr(edges - step(x)[:, None])
            return np.diff(below, axis=1, prepend=0.0, append=1.0)

        mass, move = kernel(np.array([start]))[0], kernel(points)
        for _ in range(steps - 1):
            mass = mass @ move
        laws.append(mass)
    p, q = laws
    gamma = math.exp(epsilon)
    return max(np.maximum(p - gamma * q, 0).sum(), np.maximum(q - gamma * p, 0).sum())


def maps(kind, c, s, D, wave):
    return {
        "linear": (lambda x: c * x + s, lambda x: c * x),
        "folded": (lambda x: c * abs(x - D / 3) + s, lambda x: c * abs(x - D / 3)),
        "sinusoidal": (lambda x: c * x, lambda x: c * x + s * np.sin(wave * x)),
    }[kind]


@pytest.mark.parametrize("kind", ["linear", "folded", "sinusoidal"])
def test_never_below_the_exact_law(kind):
    rng = np.random.default_rng(len(kind))
    for _ in range(5):
        D, s, steps = rng.uniform(0.5, 1.8), rng.uniform(0.2, 1.0), int(rng.integers(1, 6))
        c, epsilon, wave = rng.choice([1.0, 0.9]), rng.uniform(0, 2), rng.uniform(1, 20)
        pair = maps(kind, c, s, D, wave)
        start = rng.uniform(0, D)
        coarse, fine = (exact_delta(pair, D, steps, start, epsilon, n) for n in (200, 400))
        truth = fine - 2 * abs(fine - coarse)
        assert paid_delta(CouplingProblem.of(c, s, 1.0, D, steps), epsilon) >= truth


def test_one_step_is_the_gaussian():
    for epsilon in (0.0, 0.7, 2.0):
        found = paid_delta(CouplingProblem.of(1.0, 0.8, 1.0, 2.0, 1), epsilon)
        assert found == pytest.approx(gaussian.delta(0.8, epsilon), rel=1e-9)


def test_payments_help_long_runs():
    problem = CouplingProblem.of(1.0, 0.25, 1.0, 1.0, 12)
    stopped = stopped_delta(problem, [2.0])[0]
    assert paid_delta(problem, 2.0) < 0.8 * stopped


def test_the_law_of_a_payment():
    """Masses and likelihood ratios integrate to one: nothing is lost, nothing is invented."""
    nodes = np.linspace(0, 3.0, 61)
    for rho, a in ((1.0, 0.3), (0.5, 0.5), (2.0, 1.0)):
        V = np.ones((len(nodes), 101))
        assert _spend(V, nodes, rho, a, 1.0) == pytest.approx(np.ones(101), abs=1e-9)
        gammas = np.exp(0.05 * np.arange(-300, 301))
        linear = np.tile(gammas / 1e13, (len(nodes), 1))  # E[gamma e^-l] = gamma, chords are exact
        spent = _spend(linear, nodes, rho, a, 1.0)
        assert spent[250:350] == pytest.approx(linear[0, 250:350], rel=1e-4)
    x = np.linspace(-9, 9, 400)
    first, second = _masses(x, 0.4, 1.0), _masses(x, 0.0, 1.0)
    loss = 0.4 * x - 0.08
    grid = 0.05 * np.arange(-200, 201)
    profile = np.where(grid >= 0, gaussian.delta(0.3, np.abs(grid)), 0.0)
    gamma = np.exp(np.minimum(grid, 0))
    profile = np.where(grid < 0, 1 - gamma + gamma * gaussian.delta(0.3, np.abs(grid)), profile)
    rows = np.zeros(len(first), dtype=int)
    both = _expected(profile[None], rows, first, second, loss, 0.0)
    # N(0.3) composed with N(0.4) is N(0.5): the chords may only add.
    exact = gaussian.delta(0.5, grid[205:240])
    assert np.all(both[205:240] >= exact * (1 - 1e-9))
    assert np.all(both[205:240] <= exact * 1.05)
