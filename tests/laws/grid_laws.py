"""Exact laws of runs whose parameters live on a grid, with Gaussian noise rounded to it.

X <- F(R(phi(X)) + R(nu Z)) with R rounding to whole multiples of g and F the projection, computed
and rounded again. On a bounded box of grid points the law is a vector, a step is a matrix whose
entries are differences of normal probabilities, and divergences are sums: nothing is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

Map = Callable[[np.ndarray], np.ndarray]


def stick(p, q, epsilon):
    """The hockey-stick divergence of both orders, whichever is larger; sums of differences."""
    p, q = np.ravel(p), np.ravel(q)
    odds = math.exp(min(epsilon, 700.0))
    return max(np.maximum(a - odds * b, 0.0).sum() for a, b in ((p, q), (q, p)))


def cells(means, most, width):
    """P(X = j) for j = -most, ..., most where X is mean + round(Z/width), kept within them.

    One column per mean. Every probability has its own digits: tails are differences of tails.
    """
    far = most + math.ceil(40 / width)
    means = np.clip(np.rint(means), -far, far).astype(int)
    k = np.arange(-most - far, most + far + 1)
    near, beyond = ((np.abs(k) + side) * width for side in (-0.5, 0.5))
    mass = ndtr(-near) - ndtr(-beyond)
    found = mass[np.arange(-most, most + 1)[:, None] - means + most + far]
    found[0] = ndtr((-most + 0.5 - means) * width)
    found[-1] = ndtr((means - most + 0.5) * width)
    return found


@dataclass
class Line:
    """Whole multiples of ``grid`` between -reach and reach, where a projection keeps them."""

    grid: float
    reach: float
    after: Map | None = None  # of a point, at the end of every step

    def __post_init__(self):
        self.most = math.floor(self.reach / self.grid * (1 + 1e-12))  # cut towards zero: inside
        self.x = np.arange(-self.most, self.most + 1) * self.grid
        self.ends = None
        if self.after is not None:
            ends = np.array([self.after(x[None])[0] for x in self.x])
            self.ends = np.rint(ends / self.grid).astype(int) + self.most

    def start(self):
        law = np.zeros(len(self.x))
        law[self.most] = 1.0
        return law

    def step(self, law, phi: Map, noise):
        """The law after x -> projection of R(phi(x)) + R(noise Z), started from ``law``."""
        width = self.grid / noise if noise else math.inf
        moved = cells(phi(self.x) / self.grid, self.most, width) @ law
        return moved if self.ends is None else np.bincount(self.ends, moved, len(moved))


@dataclass
class Plane:
    """The same in two dimensions: a square box of grid points, and a disc to be projected on."""

    grid: float
    most: int
    radius: float = math.inf
    after: Map | None = None

    def __post_init__(self):
        one = np.arange(-self.most, self.most + 1)
        self.cells = np.stack(np.meshgrid(one, one, indexing="ij"), axis=-1).reshape(-1, 2)
        x = self.cells * self.grid
        if self.after is not None:
            x = np.array([self.after(point) for point in x])
        if math.isinf(self.radius):
            self.target = self._index(np.rint(x / self.grid).astype(int))
            return
        lengths = np.maximum(np.hypot(x[:, 0], x[:, 1]), 1e-300)
        inside = x * np.minimum(1.0, self.radius / lengths)[:, None]
        cells = np.trunc(inside / self.grid * (1 - 1e-12)).astype(int)
        cells = np.where((lengths <= self.radius)[:, None], np.rint(x / self.grid), cells)
        self.target = self._index(cells.astype(int))

    def _index(self, cells):
        return (cells[:, 0] + self.most) * (2 * self.most + 1) + cells[:, 1] + self.most

    def start(self):
        law = np.zeros(len(self.cells))
        law[len(law) // 2] = 1.0
        return law

    def step(self, law, phi: Map, noise):
        used = np.flatnonzero(law > 0)
        means = phi(self.cells[used] * self.grid) / self.grid
        sides = [cells(means[:, axis], self.most, self.grid / noise) for axis in (0, 1)]
        moved = ((sides[0] * law[used]) @ sides[1].T).ravel()
        return np.bincount(self.target, moved, minlength=len(moved))


def lipschitz(rng, c, spread) -> Map:
    """A random c-Lipschitz map of the line: linear, folded, clipped or oscillating."""
    a, b = rng.normal(0.0, spread, 2)
    kind = rng.integers(6)
    if kind <= 1:
        return lambda x: c * x + b
    if kind == 2:
        return lambda x: c * np.abs(x - a) + b
    if kind == 3:
        return lambda x: c * np.clip(x, -abs(a), abs(a)) + b
    if kind == 4:
        return lambda x: c * abs(a) * np.abs((x / max(abs(a), 1e-9)) % 2.0 - 1.0) + b
    return lambda x: c * a * np.sin(x / a) + b


def turned(rng, c) -> Map:
    """A random c-Lipschitz map of the plane: turned, mirrored or folded."""
    angle = rng.uniform(0, 2 * math.pi)
    turn = c * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    if rng.uniform() < 0.3:
        return lambda x: np.abs(x) @ turn.T
    return lambda x: x @ turn.T


def bounded(rng, size, spread) -> Map:
    """A random function no larger than ``size``: constant, a jump, or oscillating."""
    kind, a = rng.integers(3), rng.normal(0.0, spread)
    sign = rng.choice([-1.0, 1.0])
    if kind == 0:
        return lambda x: np.full(len(x), sign * size)
    if kind == 1:
        return lambda x: size * np.where(x >= a, 1.0, -1.0)
    return lambda x: sign * size * np.sin(5 * x + a)
