"""Exact laws of walks on an interval, from the masses of cells.

x -> clip(phi(x) + N(0, nu^2)) on [0, D] against the same with phi'; phi is c-Lipschitz and the two
maps differ by at most s. Hockey sticks of merged outcomes never exceed the truth.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

KINDS = ["linear", "folded", "clipped", "sinusoidal"]


def maps(rng, kind, c, s, D):
    """phi and phi' on [0, D]: phi is c-Lipschitz, |phi - phi'| <= s."""
    if kind == "linear":
        slope = c * rng.choice([1.0, 1.0, rng.uniform()])
        sign = rng.choice([-1.0, 1.0])
        base = rng.uniform(-0.2, 0.2) * D
        return tuple(lambda x, d=d: slope * x + base + d * sign * s / 2 for d in (1, -1))
    if kind == "folded":
        fold = rng.uniform(0.2, 0.8) * D
        return (lambda x: c * np.abs(x - fold) + s), (lambda x: c * np.abs(x - fold))
    if kind == "clipped":
        low, high = np.sort(rng.uniform(0, D, 2))
        return (lambda x: c * np.clip(x, low, high) + s), (lambda x: c * np.clip(x, low, high))
    wave = rng.uniform(1, 20)  # phi' need not be Lipschitz at all
    return (lambda x: c * x + 0 * x), (lambda x: c * x + s * np.sin(wave * x))


def law(step, D, nus, start, cells):
    """Masses of X_T in the atoms 0 and D and in cells; a cell's mass sits in its midpoint."""
    edges = np.linspace(0, D, cells + 1)
    points = np.concatenate([[0.0], (edges[1:] + edges[:-1]) / 2, [D]])

    def kernel(x, nu):
        below = ndtr((edges - step(x)[:, None]) / nu)
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    kernels = {nu: kernel(points, nu) for nu in set(nus[1:])}
    mass = kernel(np.array([start]), nus[0])[0]
    for nu in nus[1:]:
        mass = mass @ kernels[nu]
    return mass


def exact_delta(pair, D, nus, start, epsilon, cells):
    """Both orders, from the masses of cells: merging outcomes only lowers a hockey stick."""
    p, q = (law(step, D, nus, start, cells) for step in pair)
    gamma = math.exp(epsilon)
    return np.maximum(p - gamma * q, 0).sum(), np.maximum(q - gamma * p, 0).sum()


def truth_from_below(pair, D, nus, start, epsilon):
    """A midpoint rule for the state is off by O(h^2): the difference of two grids, taken off
    twice, is more than that.
    """
    coarse, fine = (np.array(exact_delta(pair, D, nus, start, epsilon, n)) for n in (150, 300))
    return (fine - 2 * np.abs(fine - coarse)).max()


def scheduled_law(steps, D, nus, start, cells):
    """As `law`, each step with a map of its own."""
    edges = np.linspace(0, D, cells + 1)
    points = np.concatenate([[0.0], (edges[1:] + edges[:-1]) / 2, [D]])
    mass, places = np.ones(1), np.array([start])
    for step, nu in zip(steps, nus, strict=True):
        below = ndtr((edges - step(places)[:, None]) / nu)
        mass = mass @ np.diff(below, axis=1, prepend=0.0, append=1.0)
        places = points
    return mass


def scheduled_truth_from_below(pair, D, nus, start, epsilon):
    """As `truth_from_below`, each step with a map of its own."""
    gamma = math.exp(epsilon)

    def both(cells):
        p, q = (scheduled_law(steps, D, nus, start, cells) for steps in pair)
        return np.array([np.maximum(p - gamma * q, 0).sum(), np.maximum(q - gamma * p, 0).sum()])

    coarse, fine = both(100), both(200)
    return (fine - 2 * np.abs(fine - coarse)).max()
