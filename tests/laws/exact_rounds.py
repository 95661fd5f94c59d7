"""The exact law of small federated rounds, by brute force: every draw, every order, quadrature."""

from __future__ import annotations

import itertools

import numpy as np

GRID = 12_001


def normal_mixture(x: np.ndarray, centres: np.ndarray, weights: np.ndarray, noise: float):
    z = (x[:, None] - centres) / noise
    return np.exp(-z * z / 2) @ weights / (noise * np.sqrt(2 * np.pi))


def subset_sums(updates: np.ndarray, sampled: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of all subsets of ``sampled`` clients, equally likely."""
    sums = [sum(updates[list(s)]) for s in itertools.combinations(range(len(updates)), sampled)]
    return np.array(sums), np.full(len(sums), 1 / len(sums))


def coin_sums(updates: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Sums when every client flips its own coin."""
    sums, weights = [], []
    for coins in itertools.product((0, 1), repeat=len(updates)):
        sums.append(updates @ np.array(coins))
        weights.append(np.prod([rate if coin else 1 - rate for coin in coins]))
    return np.array(sums), np.array(weights)


def one_round(first, second, noise: float, epsilon: float) -> float:
    """delta(epsilon) of one noisy sum, the worse order: a lower reference (trapezoid, clipped)."""
    ends = np.concatenate([first[0], second[0]])
    x = np.linspace(ends.min() - 9 * noise, ends.max() + 9 * noise, GRID)
    p, q = normal_mixture(x, *first, noise), normal_mixture(x, *second, noise)
    step = x[1] - x[0]
    return max(
        float(np.maximum(p - np.exp(epsilon) * q, 0).sum() * step),
        float(np.maximum(q - np.exp(epsilon) * p, 0).sum() * step),
    )


def two_rounds(first, second, noise: float, epsilon: float) -> float:
    """The same for two independent rounds with the same updates."""
    ends = np.concatenate([first[0], second[0]])
    x = np.linspace(ends.min() - 8 * noise, ends.max() + 8 * noise, 1201)
    p, q = normal_mixture(x, *first, noise), normal_mixture(x, *second, noise)
    p2, q2 = np.multiply.outer(p, p), np.multiply.outer(q, q)
    area = (x[1] - x[0]) ** 2
    return max(
        float(np.maximum(p2 - np.exp(epsilon) * q2, 0).sum() * area),
        float(np.maximum(q2 - np.exp(epsilon) * p2, 0).sum() * area),
    )
