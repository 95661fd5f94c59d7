"""Chains whose iterates are multiples of a power of two, so that their last bits tell nothing.

**Statement.** One step of a clipped chain that may be released is

    θ ← box(θ + R(pull) + R(prior) + g·N),

pull the step's share of the clipped gradients, prior that of the log prior, R rounds to the nearest
multiple of g (and clips to public bounds), N = round((ν/g)·Z), ν² = η·temperature, with Z ideal
Gaussians. It is the described chain, in which every step drives two runs farther apart by at most
4g√d more, and by what sums of gradients round.

*Proof.* R(pull) + R(prior) + θ is a point of the grid, so adding R(νZ) is rounding the sum with νZ:
Theorem A of docs/theory/arithmetic.md. Rounding pull, prior and noise is worth g√d each; what the
product with a Gaussian prior's precision rounds (3 units of η·precision/2·|θ| ≤ 2⁴⁹g) another
(3/8)·g√d. A log prior of somebody's own is the function that it computes, the same in both worlds.
Sums are exact: |θ| ≤ 2⁵¹g, the rounded pull at most 2⁵⁰g, the rounded prior at most 2⁵¹g; the sum
is clipped to 2⁵²g, and noise is below 2⁵²g, or the result outside of the box. Clips are
projections. ∎
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Training
from lastiterate.noise import SecureSource
from lastiterate.train.grid import BOX, INTERIM, Grid

Array = Any
"""A NumPy array or a torch tensor."""


def chain_grid(
    chain: Training, start: NDArray[np.float64], prior_precision: float | None
) -> Grid | None:
    """The grid of chains from ``start``, (chains, d); None without noise or bound on gradients.

    ``prior_precision``: of a Gaussian prior; None for any other, which may pull anywhere.
    """
    first = np.abs(start).max(axis=0, initial=0.0)
    if prior_precision is not None:
        return Grid.of(chain, first, math.inf, prior_precision / chain.records)
    grid = Grid.of(chain, first, math.inf, 0.0)
    return grid and replace(grid, box=grid.spacing * BOX)


class GridSteps:
    """The steps of chains on a grid, for NumPy arrays and torch tensors.

    >>> from lastiterate import FullBatch
    >>> from lastiterate.sampling import sgld_training
    >>> chain = sgld_training(100, 5, 1e-4, clip=1.0, batches=FullBatch())
    >>> grid = chain_grid(chain, np.zeros((1, 4)), prior_precision=1.0)
    >>> steps = GridSteps(grid, chain.noises, SecureSource())
    >>> moved = steps.moved(0, np.zeros((1, 4)), np.full((1, 4), 0.1), np.zeros((1, 4)))
    >>> bool((moved / grid.spacing % 1 == 0).all())
    True
    """

    def __init__(self, grid: Grid, noises: NDArray[np.float64], source: SecureSource) -> None:
        self._grid, self._noises, self._source = grid, noises, source
        self._far = False

    def start(self, theta: Array) -> Array:
        """The nearest points of the grid."""
        return self._rounded(theta, BOX) + 0.0

    def moved(self, step: int, theta: Array, pull: Array, prior: Array) -> Array:
        """Where the chains are after a step."""
        g, box = self._grid.spacing, self._grid.box
        drift = self._rounded(prior, BOX)
        self._far = self._far or not bool((abs(prior) < BOX * g).all())
        near = theta + self._rounded(pull, BOX / 2) + drift
        near = near.clip(-INTERIM * g, INTERIM * g)
        drawn = self._source.rounded_normal(float(self._noises[step]) / g, tuple(theta.shape)) * g
        near += drawn if isinstance(theta, np.ndarray) else theta.new_tensor(drawn)
        return near.clip(-box, box)

    def left(self, theta: Array) -> bool:
        """Whether a chain left what the grid can hold, or its prior pulled it farther."""
        return self._far or not bool((abs(theta) < self._grid.box).all())

    def _rounded(self, values: Array, most: float) -> Array:
        g = self._grid.spacing
        return (values / g).round().clip(-most, most) * g
