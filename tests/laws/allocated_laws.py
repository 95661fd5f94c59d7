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

    def deltas(self, epsilon: float) -> tuple[float, float]:
        """delta in both orders: on the line from below, on the plane by a fine grid."""
        gamma = np.exp(epsilon)
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
