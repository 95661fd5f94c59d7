"""Exact laws in the plane: mixtures of round Gaussians, cut into squares.

Cutting is a post-processing, so the divergences of the squares never exceed the truth.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

CELLS = 140


def planar_deltas(p, p_weights, q, q_weights, epsilons) -> np.ndarray:
    """Hockey sticks of two mixtures of N(mean, I) in the plane from below, the larger order."""
    means = np.concatenate([p, q])
    edges = [
        np.linspace(means[:, i].min() - 7.0, means[:, i].max() + 7.0, CELLS + 1) for i in (0, 1)
    ]

    def masses(centres, weights):
        one, two = (np.diff(ndtr(edges[i] - centres[:, i : i + 1]), axis=1) for i in (0, 1))
        return np.einsum("k,ki,kj->ij", weights, one, two)

    P, Q = masses(p, p_weights), masses(q, q_weights)
    slip = 1e-15  # of a mass; far below what is compared
    return np.array(
        [
            max(
                np.maximum(P - slip - np.exp(e) * (Q + slip), 0.0).sum(),
                np.maximum(Q - slip - np.exp(e) * (P + slip), 0.0).sum(),
            )
            for e in epsilons
        ]
    )


def in_disc(rng, radius: float) -> np.ndarray:
    """A gradient no longer than the radius, often exactly as long."""
    angle = rng.uniform(0, 2 * np.pi)
    length = radius * (1.0 if rng.random() < 0.6 else rng.uniform())
    return length * np.array([np.cos(angle), np.sin(angle)])
