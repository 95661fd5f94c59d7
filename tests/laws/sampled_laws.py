"""Exact laws of small linear runs on random batches: mixtures over everything that is random.

All divergences are those of the masses of cells: cutting the line into cells is a post-processing,
so they never exceed the truth, and a bound below them is wrong without any tolerance.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr

from lastiterate.curves.pairs import SampledPair

CELLS = 1500
U = 2.3e-16


@dataclass
class Mixtures:
    """Sum of p_weights[i] N(p[i], 1) against sum of q_weights[i] N(q[i], 1)."""

    p: np.ndarray
    p_weights: np.ndarray
    q: np.ndarray
    q_weights: np.ndarray

    def _cells(self, reach: float):
        ends = np.concatenate([self.p, self.q])
        edges = np.linspace(ends.min() - reach, ends.max() + reach, CELLS)
        return tuple(
            _masses(edges, means, weights)
            for means, weights in ((self.p, self.p_weights), (self.q, self.q_weights))
        )

    def deltas(self, epsilons) -> np.ndarray:
        """Hockey sticks from below, the larger of both orders."""
        (P, dP), (Q, dQ) = self._cells(9.0)
        gamma = np.exp(np.asarray(epsilons))[:, None]
        one = np.maximum(P - dP - gamma * (Q + dQ), 0.0).sum(axis=1)
        two = np.maximum(Q - dQ - gamma * (P + dP), 0.0).sum(axis=1)
        return np.maximum(one, two)

    def renyis(self, orders) -> np.ndarray:
        """Renyi divergences from below, the larger of both orders."""
        (P, dP), (Q, dQ) = self._cells(30.0)
        good = (4 * dP < P) & (4 * dQ < Q) & (P > 1e-290) & (Q > 1e-290)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = [np.log(x[good]) for x in (P - dP, P + dP, Q - dQ, Q + dQ)]
        answer = []
        for a in orders:
            one = logsumexp(a * logs[0] + (1 - a) * logs[3]) / (a - 1)
            two = logsumexp(a * logs[2] + (1 - a) * logs[1]) / (a - 1)
            answer.append(max(one, two))
        return np.array(answer)


def _masses(edges, means, weights):
    """Masses of the cells between edges and bounds on their rounding errors."""
    left, right = edges[:-1, None] - means, edges[1:, None] - means
    flip = left + right > 0
    near, far = ndtr(np.where(flip, -left, right)), ndtr(np.where(flip, -right, left))
    slip = U * (8 + np.where(flip, left, right) ** 2) * near
    return (near - far) @ weights, slip @ weights


def poisson_law(c, impulses, nu, rate) -> Mixtures:
    """x -> c_k x + xi_k impulse_k + N(0, nu_k^2) against the same without impulses."""
    later = np.array([np.prod(c[k + 1 :]) for k in range(len(impulses))])
    noise = np.sqrt(np.sum((later * nu) ** 2))
    used = np.flatnonzero(impulses)
    patterns = np.array(list(itertools.product((0, 1), repeat=len(used))))
    weights = np.prod(np.where(patterns, rate, 1 - rate), axis=1)
    means = patterns @ (later * impulses)[used] / noise
    return Mixtures(means, weights, np.zeros(1), np.ones(1))


def without_replacement_law(c, targets, others, nu, size) -> Mixtures:
    """x -> c_k x + mean over a batch of pulls + N(0, nu_k^2); one record's pull is replaced.

    ``targets`` are the pulls of the record under the two datasets, ``others`` of the rest.
    """
    records = len(others) + 1
    steps = len(c)
    later = np.array([np.prod(c[k + 1 :]) for k in range(steps)])
    noise = np.sqrt(np.sum((later * nu) ** 2))
    sides = []
    for target in targets:
        pulls = np.append(others, target)
        batches = [np.mean(pulls[list(b)]) for b in itertools.combinations(range(records), size)]
        means = np.array(list(itertools.product(batches, repeat=steps))) @ later / noise
        sides.append((means, np.full(len(means), 1 / len(means))))
    return Mixtures(*sides[0], *sides[1])


def chien_li_as_stated(order, rate, mu):
    """S_alpha as Chien & Li 2025, Definition 3.11 prints it: the divergence of N from the mixture.

    Refuted: it never exceeds log 1/(1 - rate), while the truth grows with the order.
    """
    return SampledPair(rate, 0.0, mu).log_moments(order - 1.0)[1] / (order - 1.0)
