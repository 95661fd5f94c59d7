"""The cheapest payments that absorb a distance, where the modulus of an update is concave.

A step that absorbs the length a costs price(a/nu) more, price increasing and convex. Minimise the
sum of the prices with z_{k+1} = g_k(z_k) + drift_k - a_k >= 0 and z = 0 at the end, from a distance
that is given before every step: the path may begin at any of them, what came before is free. Where
z_k > 0 an optimum has price'(a_{k-1}/nu_{k-1})/nu_{k-1} = g'_k(z_k) price'(a_k/nu_k)/nu_k. So the
last payment determines all others, backwards: one number is searched, and each of its values gives
the best place to begin as well. Any payments are sound; whoever uses them replays them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lastiterate.theory.dynamics import Array, Steps
from lastiterate.theory.modulus import inverse_modulus, modulus_at, slope_of_modulus

LAST_PAYMENTS = np.geomspace(1e-4, 38.0, 64)  # in units of the noise
_FINER = 32  # around the best of them
LEVELS = 20  # different payments of a path
_SCALED = np.geomspace(1e-12, 0.5, 60)  # by how much levelled payments may have to grow


@dataclass(frozen=True, eq=False)
class Prices:
    """What a step costs: ``own`` each, and ``extra`` for the payments ``shifts`` (both rise)."""

    own: Array
    shifts: Array
    extra: Array


def cheapest_payments(steps: Steps, begins: Array, prices: Prices) -> Array | None:
    """The payments of the last steps of a run that cost least, or None.

    Args:
        steps: the steps that may pay.
        begins: how far apart the runs can be before each of them if nothing was paid.
        prices: what payments cost, in units of the noise.
    """
    path, place = _best_path(steps, begins, prices, LAST_PAYMENTS)
    if path is None:
        return None
    around = LAST_PAYMENTS[max(place - 1, 0)], LAST_PAYMENTS[min(place + 1, len(LAST_PAYMENTS) - 1)]
    finer, _ = _best_path(steps, begins, prices, np.geomspace(*around, _FINER))
    return _paid(steps, path if finer is None else finer)


def _best_path(
    steps: Steps, begins: Array, prices: Prices, last: Array
) -> tuple[Array | None, int]:
    """The cheapest distances z_k, ..., z_T = 0, and which last payment they have."""
    slopes = np.maximum.accumulate(np.diff(prices.extra) / np.diff(prices.shifts))
    middles = (prices.shifts[1:] + prices.shifts[:-1]) / 2
    rows, nu, drift = steps.rows, steps.nu, steps.rounding_drift
    z, total = np.zeros(len(last)), np.zeros(len(last))
    price = np.interp(last, middles, slopes) / nu[-1]
    path, least, place = None, math.inf, 0
    behind = [z]
    for k in range(steps.count - 1, -1, -1):
        asked = price * nu[k]
        shift = np.where(asked < slopes[0], 0.0, np.interp(asked, slopes, middles))
        row, after, before = rows[:, k : k + 1], z, total + prices.own[k]
        z = inverse_modulus(row, np.maximum(after + shift * nu[k] - drift[k], 0.0))
        total = before + np.interp(shift, prices.shifts, prices.extra)
        behind.append(z)
        begun = modulus_at(row[:, 0].tolist(), float(begins[k])) + drift[k]
        needed = np.maximum(begun - after, 0.0) / nu[k]  # a path begins no farther than it must
        first = before + np.interp(needed, prices.shifts, prices.extra)
        there = np.where(z >= begins[k], first, math.inf)
        index = int(there.argmin())
        if there[index] < least:
            least, place = float(there[index]), index
            path = np.array([column[index] for column in reversed(behind)])
            path[0] = begins[k]
        if not np.any(total < least):
            break
        with np.errstate(over="ignore", invalid="ignore"):
            slope = slope_of_modulus(row, np.where(z > 0, z, 1.0))
            price = np.minimum(price * np.where(z > 0, slope, 1.0), 1e290)
    return path, place


def _paid(steps: Steps, path: Array) -> Array | None:
    """The payments of a path, alike ones levelled: as many as a composition can tell apart."""
    last = steps[steps.count - len(path) + 1 :]
    exact = _walked(last, path)
    shifts = exact / last.nu
    change = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(shifts)))])
    if change[-1] > 0 and len(np.unique(shifts)) > LEVELS:
        block = np.minimum(change / change[-1] * LEVELS, LEVELS - 1).astype(int)
        mean = np.bincount(block, shifts) / np.maximum(np.bincount(block), 1)
        levelled = mean[block] * last.nu
        for scale in _SCALED.tolist():
            if _remaining(last, float(path[0]), levelled * (1 + scale)) == 0.0:
                return np.asarray(levelled * (1 + scale))
    return exact


def _walked(steps: Steps, path: Array) -> Array:
    """What each step pays to follow a path, a hair more than needed."""
    rows = zip(steps.rows.T.tolist(), steps.rounding_drift.tolist(), strict=True)
    pays, z = [], float(path[0])
    for (row, rounding), after in zip(rows, path[1:].tolist(), strict=True):
        reach = (modulus_at(row, z) + rounding) * (1 + 2.0**-40)
        z = min(after, reach)
        pays.append(reach - z)
    return np.array(pays)


def _remaining(steps: Steps, z: float, pays: Array) -> float:
    """What payments leave, to the precision of a search."""
    rows = zip(steps.rows.T.tolist(), steps.rounding_drift.tolist(), pays.tolist(), strict=True)
    for row, rounding, pay in rows:
        z = max((modulus_at(row, z) + rounding) * (1 + 2.0**-40) - pay, 0.0)
    return z
