"""Random batches with a hidden state: forget the first steps, absorb what they left in the last.

Up to a horizon nothing is paid and two runs drift apart by a bounded distance; from there on every
step is paid for in full, and pays a little more so that the distance is gone at the end. What a
step costs is a pair that grows with both; the schemes bring their own (`poisson_replace`,
`without_replacement`). Any horizon and any payments are sound, so a rough search may choose them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from lastiterate.bounds.steps import Array, Steps, alike, once
from lastiterate.curves.bracket import halved
from lastiterate.curves.loss_distribution import LossDistribution, chernoff_epsilon
from lastiterate.curves.pairs import ROUNDING, Pair

SCREEN_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
PATH_ORDERS = (2.0, 4.0, 8.0, 16.0)
SHIFTS = np.concatenate([[0.0], np.geomspace(1e-4, 4.0, 40)])  # payments that are priced
LONG = 10**5  # a horizon is not sought farther back, nor are constant runs replayed beyond
LEVELS = 24  # different impulses that a schedule is rounded up to
PAYMENTS = 12  # different payments
_LEAST = 1e-290  # shorter distances are paid for as if they had this length: none rounds to zero

PairOf = Callable[[float, float], Pair]
"""(impulse, payment), both in units of the noise, to the pair that the step is charged as."""


@dataclass(frozen=True)
class Absorbed:
    """A curve, how many last steps it pays for, and what each of them absorbs."""

    curve: LossDistribution
    tail: int
    pays: Array | None  # None: nothing is left over, plain composition


def distance(steps: Steps, diameter: float = math.inf) -> float:
    """How far apart two runs can be after these steps.

    D_0 = 0, D_{t+1} = min(c D_t + gap, D_t + reach, diameter); for long constant runs the least of
    its closed-form bounds.

    >>> round(distance(Steps(0.5, 1.0, 1.0, 3)), 2)
    1.75
    """
    if steps.count > LONG and alike(steps.c, steps.gap, steps.reach):
        factor, impulse, longest = (float(x[0]) for x in (steps.c, steps.gap, steps.reach))
        count = float(steps.count)
        sums = count if factor == 1.0 else math.inf if factor > 1.0 else 1.0 / (1.0 - factor)
        return min(impulse * sums * (1 + 1e-12), longest * count * (1 + 1e-12), diameter)
    z = 0.0
    rows = (x.tolist() for x in (steps.c, steps.gap, steps.reach))
    for factor, impulse, longest in zip(*rows, strict=True):
        wider = 1 + 4 * ROUNDING
        z = min((factor * z + impulse) * wider, (z + longest) * wider, diameter)
    return z


def plain(pair_of: PairOf, steps: Steps) -> LossDistribution:
    """Plain composition: every step paid for, nothing left over, all iterates public."""
    repeated = steps.count > 0 and alike(steps.s, steps.nu)
    kept = steps[:1] if repeated else steps
    one = _composed(pair_of, _ratios(kept.s, kept.nu), np.zeros(kept.count))
    return one.self_compose(steps.count) if repeated else one


def absorbing(
    pair_of: PairOf, steps: Steps, pays: Array, diameter: float = math.inf
) -> LossDistribution:
    """Nothing paid but for the last ``len(pays)`` steps, each absorbing its payment.

    The payments must bring z_{t+1} = max(c_t z_t + drift_t - a_t, 0) to zero, from how far apart
    two runs can be at the first; payments that do not are no proof, and protect nothing here.
    """
    first = steps.count - len(pays)
    z, last = distance(steps[:first], diameter), steps[first:]
    rows = (x.tolist() for x in (last.c, last.drift, pays))
    for factor, slip, pay in zip(*rows, strict=True):
        z = max((factor * z + slip) * (1 + 4 * ROUNDING) - pay, 0.0) * (1 + 2 * ROUNDING)
    if z != 0.0:  # nan too
        return LossDistribution({pair_of(math.inf, math.inf): 1})
    return _composed(pair_of, _ratios(last.s, last.nu), _ratios(pays, last.nu))


def best(pair_of: PairOf, steps: Steps, delta: float, diameter: float = math.inf) -> Absorbed:
    """Horizon and payments chosen for delta (sound at every delta), screened by Renyi moments.

    Never worse at delta than plain composition.
    """
    found = Absorbed(plain(pair_of, steps), steps.count, None)
    if steps.count < 2 or np.any(once(steps.nu) <= 0.0) or not np.any(once(steps.s) > 0.0):
        return found
    chosen = _screened(pair_of, steps, delta, diameter)
    if chosen is None:
        return found
    tail, pays = chosen
    curve = absorbing(pair_of, steps, pays, diameter)
    better = curve.delta(found.curve.epsilon(delta)) < delta
    return Absorbed(curve, tail, pays) if better else found


def _screened(
    pair_of: PairOf, steps: Steps, delta: float, diameter: float
) -> tuple[int, Array] | None:
    """The most promising horizon with its payments, if it promises more than composition."""
    window = min(steps.count, LONG)
    last = steps[steps.count - window :]
    if not np.all(np.isfinite(last.c)):
        return None
    orders = np.array(SCREEN_ORDERS)
    ratios = last.s / last.nu
    knots = np.unique(np.linspace(float(ratios.min()), float(ratios.max()), 8))
    own = np.array([[log_moment(pair_of, q, r, 0.0) for r in knots] for q in orders])
    each = np.array([np.interp(ratios, knots, row) for row in own])
    summed = np.cumsum(each[:, ::-1], axis=1)
    typical = float(np.median(ratios))
    extra = np.array([[log_moment(pair_of, q, typical, a) for a in SHIFTS] for q in orders])
    extra = np.maximum.accumulate(np.minimum(extra, 1e6) - extra[:, :1], axis=1)
    if not np.all(np.isfinite(extra)):
        return None
    whole = summed[:, -1] * (steps.count / window)
    best = (chernoff_epsilon(orders, whole, delta), 0, np.zeros(0))
    tails = sorted({min(math.ceil(1.25**k), window - 1) for k in range(80)})
    for tail in tails:
        left = distance(steps[: steps.count - tail], diameter)
        if not math.isfinite(left):
            continue
        paying = last[-tail:]
        for order in PATH_ORDERS:
            pays = payments(paying, left, extra[SCREEN_ORDERS.index(order)])
            if pays is None:
                continue
            shifts = pays / paying.nu
            if shifts.max() > SHIFTS[-1]:
                continue
            paid = np.array([np.interp(shifts, SHIFTS, row).sum() for row in extra])
            epsilon = chernoff_epsilon(orders, summed[:, tail - 1] + paid, delta)
            if epsilon < best[0]:
                best = (epsilon, tail, pays)
    return (best[1], best[2]) if best[1] else None


def log_moment(pair_of: PairOf, order: float, ratio: float, shift: float) -> float:
    """Log of E exp((order - 1) loss) of a step, the worse of both orders of its pair."""
    if ratio == 0.0 and shift == 0.0:
        return 0.0
    return _worse_moment(pair_of(ratio, shift), order - 1.0)


@lru_cache(maxsize=1 << 14)
def _worse_moment(pair: Pair, tilt: float) -> float:
    """Kept: it depends on no delta, and every delta of a run asks for the same ones."""
    return max(pair.log_moments(tilt))


def payments(steps: Steps, left: float, prices: Array) -> Array | None:
    """a_t >= 0 that absorb ``left`` over these steps at least total price, on few levels.

    Minimise the sum of price(a_t / nu_t) with sum a_t w_t = left * prod c, w_t the product of the
    later c: the slope of the price at a_t / nu_t is proportional to nu_t w_t. One root. What
    rounding adds is paid at once, on top.
    """
    nu, slips = steps.nu, steps.drift * (1 + 16 * ROUNDING)
    if left == 0.0:
        return slips
    with np.errstate(divide="ignore"):
        later = np.concatenate([np.cumsum(np.log(steps.c[::-1]))[::-1], [0.0]])
    scale = float(later.max())
    top = float(nu.max(initial=0.0)) or 1.0  # all in its units: doubles end at 1e308
    weight = nu / top * np.exp(later[1:] - scale)
    owed = left * math.exp(later[0] - scale)
    if owed == 0.0:
        return slips
    owed = max(max(owed, _LEAST) / top, _LEAST)
    slopes = np.maximum.accumulate(np.diff(prices) / np.diff(SHIFTS))
    middles = np.concatenate([[0.0], (SHIFTS[2:] + SHIFTS[1:-1]) / 2])

    def shifts(log_price: float) -> Array:
        asked = math.exp(log_price) * weight
        return cast(Array, np.where(asked < slopes[0], 0.0, np.interp(asked, slopes, middles)))

    def pays(log_price: float) -> bool:
        return float(weight @ shifts(log_price)) >= owed

    chosen = shifts(halved(pays, good=90.0, bad=-60.0, rounds=40))
    if not weight @ chosen > 0.0:
        return None
    levelled = _levelled(chosen, weight)
    paid = float(weight @ levelled)
    return nu * (levelled * (owed / paid * (1 + 1e-9))) + slips


def _levelled(shifts: Array, weight: Array) -> Array:
    """Few different payments: weighted means, which keep the sum, over alike ones."""
    top = float(shifts.max())
    block = np.where(shifts > 0.0, np.ceil(np.sqrt(shifts / top) * (PAYMENTS - 1)), 0.0).astype(int)
    mass = np.bincount(block, weight, minlength=PAYMENTS)
    mean = np.bincount(block, weight * shifts, minlength=PAYMENTS) / np.maximum(mass, 1e-300)
    mean[0] = 0.0
    return cast(Array, mean[block])


def _ratios(shift: Array, nu: Array) -> Array:
    """shift / nu rounded up to 40 bits, so that alike steps are equal; 0 / 0 = 0.

    A shift that is no number (beyond doubles) costs everything.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(shift <= 0.0, 0.0, shift / nu) * (1 + 8 * ROUNDING)
        ratio = np.where(np.isnan(ratio), math.inf, ratio)
        digits, exponent = np.frexp(ratio)
        rounded: Array = np.ldexp(np.ceil(digits * 2.0**40), exponent - 40)
    return rounded


def _composed(pair_of: PairOf, ratios: Array, pays: Array) -> LossDistribution:
    """The pairs of the steps, impulses and payments rounded up to few values."""
    kinds, counts = np.unique(
        np.stack([levelled_up(ratios), levelled_up(pays)]), axis=1, return_counts=True
    )
    composed: dict[Pair, int] = {}
    for ratio, pay, count in zip(*kinds.tolist(), counts.tolist(), strict=True):
        if ratio > 0.0 or pay > 0.0:
            composed[pair_of(ratio, pay)] = count
    return LossDistribution(composed)


def levelled_up(values: Array) -> Array:
    """Values rounded up to few, if they are many; zero stays zero.

    >>> levelled_up(np.array([0.0, 1.0, 2.0])).tolist()
    [0.0, 1.0, 2.0]
    """
    snapped = np.unique(values)
    if len(snapped) <= LEVELS + 2 or not np.isfinite(snapped[-1]):
        return values
    least = float(snapped[snapped > 0.0][0])
    levels = np.append(np.linspace(least, float(snapped[-1]), LEVELS)[:-1], snapped[-1])
    return np.where(values > 0.0, levels[np.searchsorted(levels, values)], 0.0)
