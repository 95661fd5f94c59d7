"""The search for good levels of the boundary policy.

Every choice of levels is valid, so nothing here carries a guarantee: it only has to be good.
The soft cost sum_e log E exp(kappa X_e)/kappa is convex in the levels and couples neighbours only;
Newton's method finds its minimum in O(E B) per round. Small kappa minimises the mean cost, large
kappa the worst one; the caller picks the kappa whose curve is best where it matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solveh_banded

from lastiterate.bounds.epoch_costs import EpochCosts, Rows
from lastiterate.bounds.positions import Floats

_NODES = 96  # positions the search looks at; the law uses all of them


@dataclass(frozen=True)
class Levels:
    """zeta_0..zeta_E, and which epochs pay (those before a restart from the diameter do not)."""

    zeta: Floats
    pays: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def costs(self, costs: EpochCosts) -> tuple[Floats, Rows]:
        """The distinct rows of costs X_e(.) under these levels, and how often each occurs."""
        epochs = np.flatnonzero(self.pays)
        if len(epochs) == 0:
            return np.zeros((0, costs.batches)), np.zeros(0, dtype=np.intp)
        key = np.column_stack([costs.row[epochs], self.zeta[epochs], self.zeta[epochs + 1]])
        _, first, counts = np.unique(key, axis=0, return_index=True, return_counts=True)
        chosen = epochs[first]
        return costs.values(chosen, self.zeta[chosen], self.zeta[chosen + 1]), counts


class LevelSearch:
    """Levels for a run cut into segments [first, last) of epochs, each from and to a known point.

    With a finite diameter a segment may also start at a later epoch, at level = diameter.
    """

    def __init__(self, costs: EpochCosts, segments: list[tuple[int, int]], diameter: float) -> None:
        nodes, self._weights = _nodes(costs.batches)
        self._costs = costs.at_positions(nodes)
        self._segments, self.diameter = segments, diameter
        self.known = {place for segment in segments for place in segment}
        self._known: dict[tuple[int, int], Floats] = {}

    def __call__(self, kappa: float) -> Levels:
        """The levels of least soft cost at ``kappa``."""
        epochs = len(self._costs.row)
        zeta, pays = np.zeros(epochs + 1), np.ones(epochs, dtype=bool)
        for first, last in self._segments:
            best, value, start = *self._solve(first, last, 0.0, kappa), first
            if math.isfinite(self.diameter):
                for restart in _restarts(first, last):
                    trial, cost = self._solve(restart, last, self.diameter, kappa)
                    if cost < value:
                        best, value, start = trial, cost, restart
            zeta[first + 1 : start] = self.diameter  # the level at a release stays 0
            zeta[start : last + 1] = best
            pays[first:start] = False
        # Nearly equal levels are made equal (never above the diameter): equal epochs are
        # convolved together.
        grid = float(zeta.max()) / 2048
        if grid > 0:
            inner = zeta < self.diameter
            zeta = np.where(inner, np.floor(zeta / grid) * grid, zeta)
        return Levels(zeta, pays)

    def _solve(self, first: int, last: int, start: float, kappa: float) -> tuple[Floats, float]:
        guess = self._known.get((first, last), np.zeros(last - first + 1)).copy()
        guess[0], guess[-1] = start, 0.0
        problem = _Problem(self._costs, self._weights, np.arange(first, last), kappa)
        found = problem.minimise(guess, self.diameter)
        self._known[first, last] = found[0]
        return found


def _restarts(first: int, last: int) -> list[int]:
    """Epochs at which a restart is tried: geometric in the distance to the end."""
    length = last - first
    ahead = {round(1.25**i) for i in range(200) if 1.25**i <= length - 1}
    return [last - epochs for epochs in sorted(ahead)]


def _nodes(batches: int) -> tuple[Rows, Floats]:
    """Positions that stand for an epoch, and their shares: dense at the end, where costs peak."""
    if batches <= _NODES:
        return np.arange(batches), np.full(batches, 1 / batches)
    nodes = batches - np.unique(np.geomspace(1, batches, _NODES).astype(np.intp))[::-1]
    return nodes, np.diff(np.append(nodes, batches)) / batches


@dataclass(frozen=True)
class _Problem:
    costs: EpochCosts
    weights: Floats
    epochs: Rows
    kappa: float

    def value(self, z: Floats) -> float:
        X = self.kappa * self.costs.values(self.epochs, z[:-1], z[1:])
        top = X.max(axis=1)
        soft = top + np.log(np.exp(X - top[:, None]) @ self.weights)
        return float(soft.sum()) / self.kappa

    def minimise(self, z: Floats, ceiling: float) -> tuple[Floats, float]:
        """Damped, projected Newton on 0 <= zeta <= ceiling, end points fixed."""
        value, damping = self.value(z), 1e-6
        for _ in range(100 if len(z) > 2 else 0):
            with np.errstate(all="ignore"):  # a search: `values` prices what it finds
                gradient, diagonal, off = self._slopes(z)
            if not all(np.all(np.isfinite(each)) for each in (gradient, diagonal, off)):
                break
            stuck = ((z[1:-1] <= 0) & (gradient > 0)) | ((z[1:-1] >= ceiling) & (gradient < 0))
            gradient = np.where(stuck, 0.0, gradient)
            off = np.where(stuck[1:] | stuck[:-1], 0.0, off)
            old = value
            for _ in range(20):
                band = np.zeros((2, len(diagonal)))
                band[0, 1:] = off
                band[1] = np.where(stuck, 1.0, diagonal) + damping * (diagonal.max() + 1e-30)
                try:  # (the banded solver does not take a single unknown)
                    one = len(gradient) == 1
                    step = -gradient / band[1] if one else solveh_banded(band, -gradient)
                except (np.linalg.LinAlgError, ValueError):  # not definite, or beyond all doubles
                    damping *= 10
                    continue
                trial = z.copy()
                trial[1:-1] = np.clip(z[1:-1] + step, 0.0, ceiling)
                new = self.value(trial)
                if new < value:
                    z, value, damping = trial, new, damping / 10
                    break
                damping *= 10
            if old - value <= 1e-8 * abs(old):
                break
        return z, value

    def _slopes(self, z: Floats) -> tuple[Floats, Floats, Floats]:
        """Gradient, and the two diagonals of the Hessian, in the inner levels."""
        X, Xx, Xy, Xxx, Xxy, Xyy = self.costs.derivatives(self.epochs, z[:-1], z[1:])
        share = np.exp(self.kappa * (X - X.max(axis=1, keepdims=True))) * self.weights
        share /= share.sum(axis=1, keepdims=True)
        x, y = (share * Xx).sum(axis=1), (share * Xy).sum(axis=1)
        xx = (share * (Xxx + self.kappa * Xx**2)).sum(axis=1) - self.kappa * x**2
        yy = (share * (Xyy + self.kappa * Xy**2)).sum(axis=1) - self.kappa * y**2
        xy = (share * (Xxy + self.kappa * Xx * Xy)).sum(axis=1) - self.kappa * x * y
        return x[1:] + y[:-1], xx[1:] + yy[:-1], xy[1:-1]
