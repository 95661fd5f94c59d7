"""Coupling on a bounded domain with payments on the way: the slower, tighter sibling of `coupling`.

There a run couples for free and then stops for good; here it may pay a little at any step while it
goes on coupling. Far runs then pay less than near ones, which thins the tail of the loss. The state
is the distance and what is left of epsilon. For short runs: a minute for a few dozen steps.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from lastiterate.bounds.coupling import (
    CouplingProblem,
    Floats,
    _expectation,
    _strings,
    _survival,
)
from lastiterate.curves import gaussian
from lastiterate.description.validation import number

_CELLS_PER_NOISE = 16
_RESOLUTION = 0.05  # of the grid in epsilon
_BELOW = 8.0  # the grid reaches down to epsilon = -8, where H is 1 but for e^-8
_PAYMENTS = (0.25, 0.5, 0.75, 1.0)  # shifts that are tried, as parts of the distance
_REACH = 9.0  # standard deviations of the noise that are looked at; the rest counts as lost


def paid_delta(problem: CouplingProblem, epsilon: float) -> float:
    """An upper bound on delta of the last iterate at ``epsilon``, in both orders.

    Theorem (coupling with payments). V_0(r, gamma) = 1 if r > 0, else (1 - gamma)_+. With
    rho = c r + s, Y ~ N(rho, nu^2) and Y' ~ N(a, nu^2) reflected in the middle of their means until
    they meet, and l = (a Y' - a^2/2)/nu^2, V_j(r, gamma) is the least, over 0 <= a <= rho, of
    E V_{j-1}(min(D, |Y - Y'|), gamma e^-l), and of H_gamma of mu(r, j)-GDP, the taut string from r.
    Then H_gamma <= V_T(0, gamma). Proof. Move the second run's next mean by a towards the first:
    the likelihood of that is e^l, so P_j - gamma P'_j is the expectation, under the coupling, of
    P_{j-1}(Y) - gamma e^-l P'_{j-1}(Y'); take positive parts. a = 0 is free.
    Reference: this library, docs/theory/coupling.md. Status: sound.

    Grid. H is convex in gamma, so mass may be spread to grid points on both sides if total and
    mean (the masses under both laws of the second run) are kept. Mass beyond the grid counts as
    H = 1 (small gamma) or stays at the last point (large gamma). Distances round up.

    >>> problem = CouplingProblem.of(1.0, 0.5, 1.0, diameter=2.0, steps=4)
    >>> paid_delta(problem, 3.0) <= gaussian.delta(1.0, 3.0) * (1 + 1e-9)
    True
    """
    target = number("epsilon", epsilon, "it is what delta is asked for", at_least=0)
    if problem.steps == 0:
        return 0.0
    nodes = _nodes(problem)
    below = math.ceil((target + _BELOW) / _RESOLUTION)
    above = math.ceil((target / 2 + 4.0) / _RESOLUTION)
    grid = np.asarray(target + _RESOLUTION * np.arange(-below, above + 1), dtype=np.float64)
    mus = _strings(problem)(problem, nodes)
    V = np.ones((len(nodes), len(grid)))
    V[0] = np.maximum(-np.expm1(grid), 0.0)
    free = np.zeros(V.shape, dtype=bool)
    for left in range(1, problem.steps + 1):
        step = problem.step(left)
        chord = free[:-1] & free[1:]
        reflected = _expectation(_survival(nodes, *step), V, chord, nodes[1], *step)
        best = _paid(V, nodes, *step)
        if (price := mus(left)) is not None:
            best = np.minimum(best, _stopped(price, grid))
        free = reflected < best
        V = np.minimum(reflected, best)
        lowest = np.minimum.accumulate(V[::-1], axis=0)[::-1]  # valid at r, so valid below r
        free &= lowest == V
        V = lowest
    return float(V[0, below])


def _nodes(problem: CouplingProblem) -> Floats:
    cells = max(math.ceil(problem.diameter / float(problem.nu.min()) * _CELLS_PER_NOISE), 32)
    nodes = np.arange(cells + 1) * (problem.diameter / cells) * (1 + 2.0**-50)
    return np.asarray(nodes, dtype=np.float64)


def _stopped(mus: Floats, grid: Floats) -> Floats:
    """H_gamma of mu-GDP; for gamma < 1 it is 1 - gamma + gamma H_{1/gamma} of the other order."""
    profile = gaussian.delta(*np.broadcast_arrays(mus[:, None], np.abs(grid)))
    gammas = np.exp(np.minimum(grid, 0.0))
    return np.where(grid >= 0, profile, 1 - gammas + gammas * profile + 1e-15)


def _paid(V: Floats, nodes: Floats, c: float, s: float, nu: float) -> Floats:
    """The best of a few payments, at every distance."""
    best = np.ones(V.shape)
    for i, r in enumerate(nodes):
        rho = (c * float(r) + s) * (1 + 2.0**-50)
        for share in _PAYMENTS:
            best[i] = np.minimum(best[i], _spend(V, nodes, rho, share * rho, nu))
    return best


def _spend(V: Floats, nodes: Floats, rho: float, a: float, nu: float) -> Floats:
    """E V(|Y - Y'|, gamma e^-l) at every gamma of the grid, for one distance and one payment.

    In terms of x = Y': apart at distance y where x = a - (y - g)/2, g = rho - a, with density
    N_a(x) - N_rho(x) below the middle m = (a + rho)/2 of the means; together (y = 0) with density
    min(N_a, N_rho)(x). Times e^-l: N_a becomes N_0 and N_rho becomes e^(-a g/nu^2) N_g.
    """
    g, middle = rho - a, (a + rho) / 2
    apart = a - (nodes - g) / 2  # x at the nodes, decreasing from the middle
    apart[0] = middle
    apart = np.append(apart, min(a, 0.0) - _REACH * nu - nodes[-1])
    places = np.append(np.arange(1, len(nodes)), len(nodes) - 1)
    met = np.linspace(min(a, 0.0) - _REACH * nu, max(rho, g) + _REACH * nu, 2 * len(nodes))
    met = np.sort(np.append(met, middle))
    x = np.concatenate([apart[::-1], met])
    own, true = (_masses(x, mean, nu) for mean in (a, 0.0))
    other, shifted = (_masses(x, mean, nu) for mean in (rho, g))
    shifted = shifted * math.exp(-a * g / nu**2)
    split = len(apart)
    left = x[:-1] < middle
    first = np.where(left, other, own)
    second = np.where(left, shifted, true)
    first[: split - 1] = (own - other)[: split - 1]
    second[: split - 1] = (true - shifted)[: split - 1]
    rows = np.concatenate([places[::-1], [0], np.zeros(len(met) - 1, dtype=int)])
    first[split - 1] = second[split - 1] = 0.0  # the jump between the two lists
    lost = ndtr((met[0] - rho) / nu) + ndtr(-(met[-1] - a) / nu) + ndtr((x[0] - a) / nu)
    return _expected(V, rows, first, second, (a * x - a * a / 2) / nu**2, float(lost))


def _masses(x: Floats, mean: float, nu: float) -> Floats:
    """Of the cells between the x, from the tail that is small: no cancellation far out."""
    z = (x - mean) / nu
    right = ndtr(-z[:-1]) - ndtr(-z[1:])
    return np.asarray(np.where(z[:-1] > 0, right, ndtr(z[1:]) - ndtr(z[:-1])))


def _expected(
    V: Floats, rows: np.ndarray, first: Floats, second: Floats, loss: Floats, lost: float
) -> Floats:
    """Spread each cell's mass to the grid points around gamma e^-l, keeping total and mean."""
    kept = first > 0
    rows, first, second = rows[kept], first[kept], second[kept]
    ends = -np.stack([loss[:-1][kept], loss[1:][kept]]) / _RESOLUTION
    low, high = np.floor(ends.min(axis=0)), np.ceil(ends.max(axis=0))
    high = np.maximum(high, low + 1)
    bottom, top = np.exp(low * _RESOLUTION), np.exp(high * _RESOLUTION)
    upper = np.clip((second - bottom * first) / (top - bottom), 0.0, first)
    size = V.shape[1]
    point = np.arange(size)
    total = np.full(size, lost * (1 + 1e-12) + 1e-15)
    for shift, weight in ((low, first - upper), (high, upper)):
        place = point[None, :] + shift[:, None].astype(int)
        values = V[rows[:, None], np.clip(place, 0, size - 1)]
        values = np.where(place < 0, 1.0, values)
        total += weight @ values
    return np.asarray(np.minimum(total * (1 + 1e-12), 1.0))
