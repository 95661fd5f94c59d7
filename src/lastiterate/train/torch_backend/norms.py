"""Norms on a device that are never too small, and factors that never leave a vector too long.

As `lastiterate.train.norms`, which says why; here without branches on what the numbers are, where
an update may be recorded as a graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lastiterate.train.norms import HIGH, LOW, SMALLEST, UNIT


def scaled_lengths(rows: Tensor) -> Tensor:
    """The norm of every row in double precision, or a little more; the largest entry divided out.

    >>> float(scaled_lengths(torch.tensor([[3e-170, 4e-170]], dtype=torch.float64))[0]) > 4.99e-170
    True
    """
    double = rows.double()
    top = double.abs().amax(1, keepdim=True) if rows.shape[1] else double.new_zeros(len(rows), 1)
    scale = top.clamp(min=torch.finfo(torch.float64).tiny)
    near = double / scale
    norms = scale[:, 0] * (near * near).sum(1).sqrt()
    return torch.where(norms > 0, _up(norms, rows.shape[1]), norms)


def row_lengths(rows: Tensor) -> Tensor:
    """Likewise, at the speed of a plain norm where rows are of ordinary size."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    norms = _up(norms, rows.shape[1])
    odd = ~((norms > LOW**0.5) & (norms < HIGH**0.5))
    if odd.any():
        norms[odd] = scaled_lengths(rows[odd])
    return norms


def chunk_lengths(rows: Tensor) -> Tensor:
    """Likewise, for chunks of one size: what is rounded depends on a row and its place alone."""
    norms = _up(torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64), rows.shape[1])
    odd = ~((norms > LOW**0.5) & (norms < HIGH**0.5))
    return torch.where(odd, scaled_lengths(rows), norms) if odd.any() else norms


def shortening(norms: Tensor, longest: float) -> Tensor:
    """min(1, longest/norm), rounded down; 0 where the quotient has no bits to spare."""
    factors = longest / norms.nan_to_num(nan=torch.inf).clamp(min=longest)  # NaN: 0 times infinity
    factors = torch.where(norms > longest, factors * (1 - 8 * UNIT), factors)
    return torch.where(factors < SMALLEST, 0.0, factors)


def _up(norms: Tensor, columns: int) -> Tensor:
    return torch.nextafter(norms * (1 + (columns + 8) * UNIT), norms.new_full((), torch.inf))
