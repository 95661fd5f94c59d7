"""The law of a sum of independent costs, every step of it rounded up.

A few outcomes are listed. Else costs are rounded up to a grid, and their laws are multiplied in the
Fourier domain. The transform
is not exact, so what comes back is an upper bound of every mass: the computed mass plus a bound of
its error. Exponential tilting makes that bound small in the tail too. Masses add to at least 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import fft

from lastiterate.theory.positions import UNIT, Floats

Rows = NDArray[np.intp]

_LOG_NEGLIGIBLE = -40 * math.log(10)  # a tail this small goes to the worst case, unresolved
_TILTS = 5
_LISTED = 4096  # outcomes that are listed one by one
_CELLS = 1 << 13  # cells of the law that is handed on


@dataclass(frozen=True)
class CostLaw:
    """The sum is at most ``costs[i]`` on an event of mass at most ``weights[i]``."""

    costs: Floats
    weights: Floats


@dataclass(frozen=True)
class _Moments:
    """Moments of the sum of the excesses over the smallest cost of each row."""

    excess: Floats
    counts: Rows

    def log_mgf(self, kappa: float) -> float:
        top = kappa * self.excess.max(axis=1)
        inner = np.exp(kappa * self.excess - top[:, None]).mean(axis=1)
        return float(self.counts @ (top + np.log(inner)))

    def tilted_mean(self, kappa: float) -> float:
        tilt = np.exp(kappa * (self.excess - self.excess.max(axis=1, keepdims=True)))
        return float(self.counts @ ((tilt * self.excess).sum(axis=1) / tilt.sum(axis=1)))

    def kappa_at(self, mean: float) -> float:
        """The tilt under which the mean is ``mean`` (which exceeds the plain mean)."""
        high = 1 / max(float(self.excess.max()), 1e-300)
        while self.tilted_mean(high) < mean and high < 1e290:
            high *= 2
        gap = lambda kappa: self.tilted_mean(kappa) - mean  # noqa: E731
        return float(scipy.optimize.brentq(gap, 0.0, high, rtol=1e-2, xtol=1e-300))


def law_of_sum(rows: Floats, counts: Rows, cap: float, points: int) -> CostLaw:
    """The law of the sum of ``counts[i]`` costs uniform on ``rows[i]``, all independent.

    ``cap`` bounds the sum besides (from a better policy for the worst case). ``points`` is the
    size of the grid.
    """
    draws = int(counts.sum())
    if not np.all(np.isfinite(rows)):  # paid where there is no noise
        return CostLaw(np.array([cap]), np.array([1.0]))
    if draws * math.log(rows.shape[1]) <= math.log(_LISTED):
        return _listed(np.repeat(rows, counts, axis=0), cap)
    smallest = rows.min(axis=1)
    base = float(counts @ smallest)
    moments = _Moments(rows - smallest[:, None], counts)
    largest = float(counts @ moments.excess.max(axis=1))
    if largest <= 1e-12 * base or not largest < 1e200:  # certain, or no noise to pay with
        certain = _up(np.array([base + largest]), draws)
        return CostLaw(np.minimum(certain, cap), np.array([1.0]))
    plain = moments.tilted_mean(0.0)
    # Chernoff: beyond ``reach`` there is a negligible mass.
    reach, steepest, kappas = largest, 1 / largest, [0.0]
    for kappa in (np.geomspace(0.1, 1e4, 26) / largest).tolist():
        beyond = (moments.log_mgf(kappa) - _LOG_NEGLIGIBLE) / kappa
        if beyond < reach:
            reach, steepest = beyond, kappa
    for share in np.linspace(0, 1, _TILTS + 1)[1:-1]:
        mean = plain + float(share) * (reach - plain)
        if plain * (1 + 1e-6) < mean < largest * (1 - 1e-3):
            kappas.append(moments.kappa_at(mean))
    grid = reach / (points - 1 - draws)
    index = np.ceil(moments.excess / grid).astype(np.intp)
    masses = np.full(points, math.inf)
    for kappa in kappas:
        masses = np.minimum(masses, _tilted_masses(index, counts, kappa * grid, points))
    tail = 0.0
    if int(counts @ index.max(axis=1)) >= points:
        rounded = _Moments(np.asarray(index * grid, dtype=np.float64), counts)
        tail = math.exp(min(rounded.log_mgf(steepest) - steepest * grid * points + 1e-6, 0.0))
    costs = np.append(base + grid * np.arange(points), base + largest)
    return _coarsen(np.minimum(_up(costs, draws), cap), np.append(masses, tail))


def _listed(rows: Floats, cap: float) -> CostLaw:
    """Every outcome by itself, where these are few: no grid."""
    sums = np.zeros(1)
    for row in rows:
        sums = np.add.outer(sums, row).ravel()
    costs, times = np.unique(np.minimum(_up(sums, len(rows)), cap), return_counts=True)
    return CostLaw(costs, np.asarray(times / len(sums) * (1 + 64 * UNIT)))


def _up(values: Floats, draws: int) -> Floats:
    """Sums of positive terms and a product with the grid: relative error below draws * UNIT."""
    return np.asarray(values * (1 + 4 * (draws + 4) * UNIT))


def _tilted_masses(index: Rows, counts: Rows, kappa: float, points: int) -> Floats:
    """Upper bounds of the masses of the sum of the indices, computed under the tilt ``kappa``.

    Sums that leave the grid come back at its beginning and only add mass there.
    """
    draws = int(counts.sum())
    log_mgf = 0.0
    laws: list[tuple[Floats, int]] = []
    for row, count in zip(index, counts.tolist(), strict=True):
        top = kappa * float(row.max())
        weight = np.exp(kappa * row - top)
        mgf = float(weight.mean())
        log_mgf += count * (top + math.log(mgf))
        law = np.bincount(row, weights=weight / (mgf * len(row)))
        laws.append((law.astype(np.float64), count))
    masses, error = _convolve(_gather(laws, points // 8), points)
    # The tilt is undone: exp(log_mgf - kappa i), with the rounding of its exponent.
    exponent = log_mgf - kappa * np.arange(points)
    exponent += 8 * UNIT * (draws + 4) * (abs(log_mgf) + kappa * points + index.shape[1])
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(masses + error, 0.0) * np.exp(exponent))


_Factor = tuple[Floats, int, float]  # a law, how often it occurs, the l2 error of each occurrence


def _gather(laws: list[tuple[Floats, int]], span: int) -> list[_Factor]:
    """Convolve short laws with each other first, on a small grid that their sum cannot leave."""
    factors: list[_Factor] = []
    short: list[_Factor] = []
    used = 0

    def flush() -> None:
        if len(short) > 1:
            law, error = _convolve(short, 1 << max(used, 1).bit_length())
            factors.append((np.asarray(law[: used + 1]), 1, error))
        else:
            factors.extend(short)

    for law, count in sorted(laws, key=lambda pair: (len(pair[0]) - 1) * pair[1]):
        need = (len(law) - 1) * count
        if need > span // 2:
            factors.append((law, count, 0.0))
            continue
        if used + need > span:
            flush()
            short, used = [], 0
        short.append((law, count, 0.0))
        used += need
    flush()
    return factors


def _convolve(factors: list[_Factor], points: int) -> tuple[Floats, float]:
    """The circular convolution of laws, and a bound of its error in l2 (so of every mass).

    One transform is off by a relative F = 8 UNIT log2(points) in l2 (Higham 2002, Theorem 24.2,
    has about 7). The laws have l2 norm <= 1 and transforms of modulus <= 1, so a product of n of
    them, each off by e_i, is off by sum (e_i + F + 3 UNIT), and the way back adds F, all to first
    order; the factor 1.01 covers the rest.
    """
    one_way = 8 * UNIT * math.log2(points)
    product = np.ones(points // 2 + 1, dtype=np.complex128)
    error = one_way
    for law, count, before in factors:
        product *= power(np.asarray(fft.rfft(law, points)), count)
        norm = min(1.0, math.sqrt(1.01 * float(law.max())))  # sum p^2 <= max p
        error += count * (before + one_way * norm + 3 * UNIT)
    return np.asarray(fft.irfft(product, points)), 1.01 * error


def power(
    base: np.ndarray[tuple[int], np.dtype[np.complex128]], count: int
) -> np.ndarray[tuple[int], np.dtype[np.complex128]]:
    """base^count by squaring."""
    out = np.ones_like(base)
    while count:
        if count & 1:
            out = out * base
        count >>= 1
        if count:
            base = base * base
    return out


def _coarsen(costs: Floats, masses: Floats) -> CostLaw:
    """At most about _CELLS cells, each at its largest cost.

    The first cost is a cell alone: it is exact, often 0 (the record is never used), and mu goes
    with its root, so that the width of a cell would be seen there.
    """
    size = max(1, len(costs) // _CELLS)
    starts = np.append(0, np.arange(1, len(costs), size))
    ends = np.append(starts[1:], len(costs)) - 1
    weights = np.add.reduceat(masses, starts) * (1 + 4 * size * UNIT)
    keep = weights > 0
    return CostLaw(costs[ends][keep], weights[keep])
