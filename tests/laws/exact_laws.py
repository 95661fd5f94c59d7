"""Exact laws of linear runs: Gaussians, or mixtures of them over hidden positions.

The update x -> c'_k x + shift + N(0, nu_k^2) with |c'_k| <= c_k and impulses of size at most s_k
belongs to every class (c, s, nu), and its law is known. Divergences are computed from below:
hockey sticks from the masses of cells (a post-processing), so a bound under them is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import logsumexp, ndtr


@dataclass
class Pair:
    """Mixtures of N(p_i, 1) and N(q_i, 1) with common weights."""

    p: np.ndarray
    q: np.ndarray
    weights: np.ndarray

    def delta(self, epsilon, cells=3000):
        """A lower bound of the hockey-stick divergences of both orders, whichever is larger."""
        both = np.concatenate([self.p, self.q])
        edges = np.linspace(both.min() - 9, both.max() + 9, cells)
        P = np.diff(ndtr(edges[:, None] - self.p) @ self.weights)
        Q = np.diff(ndtr(edges[:, None] - self.q) @ self.weights)

        # Differences of numbers up to 1 are known to 1e-16 each; only clear excesses count.
        def stick(a, b):
            return np.maximum(a - np.exp(epsilon) * b - 1e-15 * (1 + np.exp(epsilon)), 0).sum()

        return max(stick(P, Q), stick(Q, P))

    def renyi(self, order):
        """Renyi divergence by the trapezoidal rule, the larger of both orders."""
        both = np.concatenate([self.p, self.q])
        spread = order * (both.max() - both.min())
        x = np.linspace(both.min() - spread - 12, both.max() + spread + 12, 6000)
        logs = [
            logsumexp(-((x[:, None] - m) ** 2) / 2, b=self.weights, axis=1)
            for m in (self.p, self.q)
        ]
        step = np.log((x[1] - x[0]) / np.sqrt(2 * np.pi))
        return max(
            (logsumexp(order * a + (1 - order) * b) + step) / (order - 1)
            for a, b in (logs, logs[::-1])
        )


def linear_run(rng, c, s, nu, sequences):
    """A random linear run: the pair of laws when position sequences are drawn uniformly.

    ``sequences`` lists, per hidden outcome, the steps at which the record is used.
    """
    steps = len(s)
    multiplier = c * rng.choice([1.0, 1.0, 0.9, rng.uniform()], steps)
    impulse = s * rng.choice([1.0, 1.0, rng.uniform(0.5, 1)], steps)
    if rng.uniform() < 0.2:
        impulse = impulse * rng.choice([-1.0, 1.0], steps)
    ahead = np.append(np.cumprod(multiplier[:0:-1])[::-1], 1.0)
    deviation = np.sqrt(np.sum((nu * ahead) ** 2))
    means = np.array([np.sum((impulse * ahead)[used]) for used in sequences]) / deviation
    share = rng.choice([0.0, 0.5, 1.0])  # how much of the change the second dataset takes
    offset = rng.choice([0.0, 1.0]) * rng.normal(size=len(means))  # the other records, reordered
    weights = np.full(len(means), 1 / len(means))
    return Pair(offset + (1 - share) * means, offset - share * means, weights)


def constant(c, s, steps):
    """The same step with unit noise, again and again."""
    return np.full(steps, c), np.full(steps, s), np.ones(steps)


def random_schedule(rng, steps, constant=None):
    """(c, s, nu) of a random run; half of them constant."""
    if rng.uniform() < 0.5 if constant is None else constant:
        values = rng.choice([0.5, 0.9, 0.99, 1.0, 1.05]), rng.uniform(0.1, 1.5), rng.uniform(0.5, 2)
        return tuple(np.full(steps, v) for v in values)
    return rng.uniform(0.4, 1.1, steps), rng.uniform(0, 1.5, steps), rng.uniform(0.4, 2, steps)


def string_cost(c, s, nu, start=0, number=Fraction):
    """The taut string in exact rational arithmetic: an oracle for mu^2 (or in floats, faster)."""
    blocks = []
    start = number(float(start))
    for ck, sk, nk in zip(c.tolist(), s.tolist(), nu.tolist(), strict=True):
        ck, sk, nk = number(ck), number(sk), number(nk)
        A, V, G = sk + ck * start, nk * nk, ck
        start = number(0)
        while blocks and blocks[-1][0] * V > G * A * blocks[-1][1]:
            A1, V1, G1 = blocks.pop()
            A, V, G = G * A1 + A, G * G * V1 + V, G1 * G
        blocks.append((A, V, G))
    return sum((A * A / V for A, V, G in blocks if A > 0), number(0))
