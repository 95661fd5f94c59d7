"""Exact laws of linear runs under random allocation: all picks of the record are enumerated.

The update is x -> M_k x + m_k 1[record in the batch] + N(0, I): M_k is a multiplier in [0, 1] times
a rotation, |m_k| = s. Without the record the last iterate is Gaussian around 0.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from exact_laws import Pair


@dataclass(frozen=True)
class Instance:
    """Means of the last iterate in units of its deviation, one for each pick of the record."""

    means: np.ndarray
    batches: int
    steps: int
    ratio: float
    rivals: np.ndarray | None = None  # means of the world with another record

    def deltas(self, epsilon: float) -> tuple[float, float]:
        """delta in both orders: on the line from below, on the plane by a fine grid."""
        gamma = np.exp(epsilon)
        if self.rivals is not None:
            return self._between(gamma)
        if not self.means[:, 1].any():
            weights = np.full(len(self.means), 1 / len(self.means))
            ahead = Pair(self.means[:, 0], np.zeros(len(self.means)), weights).delta(epsilon)
            return ahead, ahead
        ends = np.minimum(self.means.min(0), 0) - 7, np.maximum(self.means.max(0), 0) + 7
        side = [np.linspace(*pair, 401) for pair in zip(*ends, strict=True)]
        x, y = np.meshgrid(*side, indexing="ij")
        ratio = np.zeros_like(x)
        for one, two in self.means:
            ratio += np.exp(one * x + two * y - (one * one + two * two) / 2)
        ratio /= len(self.means)
        cell = (side[0][1] - side[0][0]) * (side[1][1] - side[1][0])
        weight = np.exp(-(x * x + y * y) / 2) * cell / (2 * np.pi)
        ahead = float((weight * np.maximum(ratio - gamma, 0)).sum())
        return ahead, float((weight * np.maximum(1 - gamma * ratio, 0)).sum())

    def _between(self, gamma: float) -> tuple[float, float]:
        """The same where both worlds have a record."""
        assert self.rivals is not None
        every = np.concatenate([self.means, self.rivals])
        flat = not every[:, 1].any()
        side = [
            np.linspace(*ends, 6001 if flat else 401)
            for ends in zip(every.min(0) - 7, every.max(0) + 7, strict=True)
        ]
        if flat:
            side[1] = np.zeros(1)
        x, y = np.meshgrid(*side, indexing="ij")
        cell = (side[0][1] - side[0][0]) * (1.0 if flat else side[1][1] - side[1][0])
        scale = cell / (np.sqrt(2 * np.pi) if flat else 2 * np.pi)
        laws = []
        for means in (self.means, self.rivals):
            density = sum(np.exp(-((x - a) ** 2 + (y - b) ** 2) / 2) for a, b in means)
            laws.append(density * scale / len(means))
        p, q = laws
        ahead = float(np.maximum(p - gamma * q, 0).sum())
        return ahead, float(np.maximum(q - gamma * p, 0).sum())


def instance(rng: np.random.Generator, plane: bool) -> Instance:
    """A random run whose record pushes in one direction, or in one that turns."""
    batches, epochs = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    if batches > 3:
        epochs = min(epochs, 2)
    steps = batches * epochs
    multiplier = rng.choice([1.0, 1.0, 1.0, 0.9, 0.5, rng.uniform()], steps)
    if rng.random() < 0.4:
        multiplier[:] = 1.0
    ratio = float(np.exp(rng.uniform(-1.5, 1.0)))
    turns = rng.uniform(0, 2 * np.pi, steps) * (rng.random() < 0.6) if plane else np.zeros(steps)
    angles = np.cumsum(turns[::-1])[::-1]  # of a push at step k, at the end
    carried = np.append(np.cumprod(multiplier[::-1])[::-1][1:], 1.0)
    angles = np.append(angles[1:], 0.0)
    spread = np.sqrt((carried**2).sum())
    pushes = (ratio * carried / spread)[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
    picks = itertools.product(range(batches), repeat=epochs)
    means = [sum(pushes[e * batches + j] for e, j in enumerate(pick)) for pick in picks]
    return Instance(np.array(means), batches, steps, ratio)


@dataclass(frozen=True)
class Course:
    """A run with schedules, and the means of what it releases for each sequence of picks.

    Args:
        c: bounds of the multipliers.
        s: of every push.
        nu: of the noise.
        ends: steps after which an iterate is released, the last one included; two at most.
        law: an instance whose means are in units of the deviations of what is released.
    """

    c: np.ndarray
    s: np.ndarray
    nu: np.ndarray
    ends: tuple[int, ...]
    law: Instance


def course(rng: np.random.Generator, plane: bool, replace: bool = False) -> Course:
    """A random run: factors below and above 1, schedules, cut epochs, one release or two.

    Two released iterates of a line are a Gaussian in the plane; a single one may be in the plane
    itself, where every push has a direction of its own.
    """
    batches, epochs = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    steps = batches * epochs
    if rng.random() < 0.3:
        steps -= int(rng.integers(0, batches))
    top = rng.choice([1.0, 1.0, 0.95, 0.8, 1.2])
    c = np.full(steps, top) if rng.random() < 0.5 else rng.uniform(0.4, 1.2, steps)
    multiplier = c * rng.choice([1.0, 1.0, 0.7, rng.uniform()], steps)
    multiplier = c if rng.random() < 0.5 else multiplier
    ratio = float(np.exp(rng.uniform(-1.5, 0.8)))
    varied = rng.random() < 0.5
    s = ratio * (rng.uniform(0.2, 1.0, steps) if varied else np.ones(steps))
    nu = rng.uniform(0.7, 1.5, steps) if varied else np.ones(steps)
    ends = (steps,)
    if not plane and rng.random() < 0.5 and steps > 2:
        ends = (int(rng.integers(1, steps)), steps)
    picks = list(itertools.product(range(batches), repeat=epochs))
    signs = rng.choice([1.0, 1.0, 1.0, -1.0], steps)
    angles = rng.uniform(0, 2 * np.pi, steps) if plane else np.zeros(steps)
    carried = np.zeros((len(ends), steps))
    for row, end in enumerate(ends):
        later = np.append(np.cumprod(multiplier[1:end][::-1])[::-1], 1.0)
        carried[row, :end] = later
    covariance = (carried * nu) @ (carried * nu).T
    root = np.linalg.inv(np.linalg.cholesky(covariance))

    def means(signs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        if plane:
            size = carried[0] * s * root[0, 0]
            pushes = size[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
        else:
            pushes = (root @ (carried * (s * signs))).T
            pushes = np.pad(pushes, ((0, 0), (0, 2 - pushes.shape[1])))
        found = []
        for pick in picks:
            used = [e * batches + j for e, j in enumerate(pick) if e * batches + j < steps]
            found.append(pushes[used].sum(0) if used else np.zeros(2))
        return np.array(found)

    rivals = None
    if replace:
        opposite = rng.random() < 0.6
        turned = angles + np.pi if opposite else rng.uniform(0, 2 * np.pi, steps)
        rivals = means(-signs if opposite else rng.choice([1.0, -1.0, 0.5], steps), turned)
    law = Instance(means(signs, angles), batches, steps, ratio, rivals)
    return Course(c, s, nu, ends, law)


@dataclass(frozen=True)
class Adaptive:
    """A run on the line whose maps and pushes are functions of the state, by quadrature."""

    absent: np.ndarray
    present: np.ndarray
    batches: int
    steps: int
    ratio: float
    c: float

    def deltas(self, epsilon: float) -> tuple[float, float]:
        """delta in both orders."""
        gamma = np.exp(epsilon)
        one = np.maximum(self.present - gamma * self.absent, 0).sum()
        two = np.maximum(self.absent - gamma * self.present, 0).sum()
        return float(one), float(two)


def adaptive(rng: np.random.Generator) -> Adaptive:
    """Random maps with slopes within [-c, c], pushes whose size and sign depend on the state."""
    batches, epochs = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    steps, ratio = batches * epochs, float(np.exp(rng.uniform(-1.5, 0.7)))
    c = float(rng.choice([1.0, 1.0, 0.8]))
    reach = 7.0 * np.sqrt(steps) + 2 * ratio * epochs
    x = np.linspace(-reach, reach, 801)
    width = x[1] - x[0]

    def moved(push: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        centre = np.concatenate([[0.0], np.cumsum(slopes) * width])
        centre = centre - np.interp(0.0, x, centre) + push
        kernel = np.exp(-((x[:, None] - centre[None, :]) ** 2) / 2) * (width / np.sqrt(2 * np.pi))
        return kernel

    def steady() -> np.ndarray:
        """A function that is constant between a few random places."""
        places = np.sort(rng.uniform(-reach, reach, 6) / 3)
        values = rng.choice([-1.0, 1.0, 0.3, 0.0], 7)
        return values[np.searchsorted(places, x)]

    kernels = []
    for _ in range(steps):
        slopes = c * (rng.choice([1.0, 1.0, -1.0, 0.5]) * np.ones(800))
        if rng.random() < 0.5:
            slopes = c * np.clip(steady()[:-1] + 0.5, -1, 1)
        push = ratio * (steady() if rng.random() < 0.6 else rng.choice([-1.0, 1.0]) * np.ones(801))
        kernels.append((moved(np.zeros(801), slopes), moved(push, slopes)))
    start = np.zeros(801)
    start[400] = 1.0
    absent = start
    for plain, _ in kernels:
        absent = plain @ absent
    present = np.zeros(801)
    for pick in itertools.product(range(batches), repeat=epochs):
        law = start
        for k, (plain, pushed) in enumerate(kernels):
            law = (pushed if pick[k // batches] == k % batches else plain) @ law
        present = present + law / batches**epochs
    return Adaptive(absent, present, batches, steps, ratio, c)
