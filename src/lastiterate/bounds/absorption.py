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
from typing import cast

import numpy as np

from lastiterate.bounds.per_step import Array, PerStep, part, per_step
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


def distances(
    c: PerStep, s: PerStep, steps: int, reach: PerStep = math.inf, diameter: float = math.inf
) -> Array:
    """D_0 = 0, D_{t+1} = min(c D_t + s, D_t + reach, diameter): how far apart two runs can be.

    ``reach`` is 2 eta K: with gradients no longer than K one step adds no more.

    >>> distances(0.5, 1.0, 3).round(2).tolist()
    [0.0, 1.0, 1.5, 1.75]
    """
    cs, ss, rs = (per_step(x, steps).tolist() for x in (c, s, reach))
    apart = [0.0]
    for factor, impulse, longest in zip(cs, ss, rs, strict=True):
        z = apart[-1]
        apart.append(
            min(
                (factor * z + impulse) * (1 + 4 * ROUNDING),
                (z + longest) * (1 + 4 * ROUNDING),
                diameter,
            )
        )
    return np.array(apart)


def distance(c: PerStep, s: PerStep, steps: int, reach: PerStep, diameter: float) -> float:
    """D_steps; for long constant runs the least of its closed-form bounds."""
    scalars = [x for x in (c, s, reach) if np.ndim(x) == 0]
    if steps <= LONG or len(scalars) < 3:
        head = [part(x, 0, steps) for x in (c, s, reach)]
        return float(distances(head[0], head[1], steps, head[2], diameter)[-1])
    factor, impulse, longest = (float(np.asarray(x)) for x in (c, s, reach))
    sums = float(steps) if factor == 1.0 else math.inf if factor > 1.0 else 1.0 / (1.0 - factor)
    return min(impulse * sums * (1 + 1e-12), longest * steps * (1 + 1e-12), diameter)


def plain(pair_of: PairOf, s: PerStep, nu: PerStep, steps: int) -> LossDistribution:
    """Plain composition: every step paid for, nothing left over, all iterates public."""
    constant = np.ndim(s) == 0 and np.ndim(nu) == 0
    kept = min(steps, 1) if constant else steps
    ratios = _ratios(per_step(s, kept), per_step(nu, kept))
    one = _composed(pair_of, ratios, np.zeros(kept))
    return one.self_compose(steps) if constant and steps else one


def absorbing(
    pair_of: PairOf,
    c: PerStep,
    s: PerStep,
    nu: PerStep,
    left: float,
    pays: Array,
    drift: PerStep = 0.0,
) -> LossDistribution:
    """The last ``len(pays)`` steps, starting at distance ``left``, each absorbing its payment.

    The payments must bring z_{t+1} = max(c_t z_t + drift_t - a_t, 0) to zero; payments that do not
    are no proof, and protect nothing here. ``drift`` is what rounding may add at any step.
    """
    steps = len(pays)
    z = left
    rows = (per_step(x, steps).tolist() for x in (c, drift, pays))
    for factor, slip, pay in zip(*rows, strict=True):
        z = max((factor * z + slip) * (1 + 4 * ROUNDING) - pay, 0.0) * (1 + 2 * ROUNDING)
    if z > 0.0:
        return LossDistribution({pair_of(math.inf, math.inf): 1})
    nus = per_step(nu, steps)
    return _composed(pair_of, _ratios(per_step(s, steps), nus), _ratios(pays, nus))


def best(
    pair_of: PairOf,
    c: PerStep,
    gap: PerStep,
    s: PerStep,
    nu: PerStep,
    steps: int,
    delta: float,
    reach: PerStep = math.inf,
    diameter: float = math.inf,
    drift: PerStep = 0.0,
) -> Absorbed:
    """Horizon and payments chosen for delta (sound at every delta), screened by Renyi moments.

    ``gap`` is what a step adds to the distance of two runs, ``s`` the impulse of its pair. Never
    worse at delta than plain composition.
    """
    found = Absorbed(plain(pair_of, s, nu, steps), steps, None)
    if steps < 2 or np.any(np.asarray(nu) <= 0.0) or not np.any(np.asarray(s) > 0.0):
        return found
    chosen = _screened(pair_of, c, gap, s, nu, steps, delta, reach, diameter, drift)
    if chosen is None:
        return found
    tail, pays = chosen
    last = [part(x, steps - tail) for x in (c, s, nu, drift)]
    left = distance(c, gap, steps - tail, reach, diameter)
    curve = absorbing(pair_of, last[0], last[1], last[2], left, pays, last[3])
    better = curve.delta(found.curve.epsilon(delta)) < delta
    return Absorbed(curve, tail, pays) if better else found


def _screened(
    pair_of: PairOf,
    c: PerStep,
    gap: PerStep,
    s: PerStep,
    nu: PerStep,
    steps: int,
    delta: float,
    reach: PerStep,
    diameter: float,
    drift: PerStep,
) -> tuple[int, Array] | None:
    """The most promising horizon with its payments, if it promises more than composition."""
    window = min(steps, LONG)
    cs, ss, ns, ds = (per_step(part(x, steps - window), window) for x in (c, s, nu, drift))
    if not np.all(np.isfinite(cs)):
        return None
    orders = np.array(SCREEN_ORDERS)
    ratios = ss / ns
    knots = np.unique(np.linspace(float(ratios.min()), float(ratios.max()), 8))
    own = np.array([[_moment(pair_of, q, r, 0.0) for r in knots] for q in orders])
    each = np.array([np.interp(ratios, knots, row) for row in own])
    summed = np.cumsum(each[:, ::-1], axis=1)
    typical = float(np.median(ratios))
    extra = np.array([[_moment(pair_of, q, typical, a) for a in SHIFTS] for q in orders])
    extra = np.maximum.accumulate(np.minimum(extra, 1e6) - extra[:, :1], axis=1)
    if not np.all(np.isfinite(extra)):
        return None
    whole = summed[:, -1] * (steps / window)
    best = (chernoff_epsilon(orders, whole, delta), 0, np.zeros(0))
    tails = sorted({min(math.ceil(1.25**k), window - 1) for k in range(80)})
    for tail in tails:
        left = distance(c, gap, steps - tail, reach, diameter)
        if not math.isfinite(left):
            continue
        for order in PATH_ORDERS:
            prices = extra[SCREEN_ORDERS.index(order)]
            pays = payments(cs[-tail:], ns[-tail:], left, prices, ds[-tail:])
            if pays is None:
                continue
            shifts = pays / ns[-tail:]
            if shifts.max() > SHIFTS[-1]:
                continue
            paid = np.array([np.interp(shifts, SHIFTS, row).sum() for row in extra])
            epsilon = chernoff_epsilon(orders, summed[:, tail - 1] + paid, delta)
            if epsilon < best[0]:
                best = (epsilon, tail, pays)
    return (best[1], best[2]) if best[1] else None


def _moment(pair_of: PairOf, order: float, ratio: float, shift: float) -> float:
    if ratio == 0.0 and shift == 0.0:
        return 0.0
    return max(pair_of(ratio, shift).log_moments(order - 1.0))


def payments(c: Array, nu: Array, left: float, prices: Array, drift: PerStep = 0.0) -> Array | None:
    """a_t >= 0 that absorb ``left`` over these steps at least total price, on few levels.

    Minimise the sum of price(a_t / nu_t) with sum a_t w_t = left * prod c, w_t the product of the
    later c: the slope of the price at a_t / nu_t is proportional to nu_t w_t. One root. What
    rounding adds is paid at once, on top.
    """
    slips = per_step(drift, len(c)) * (1 + 16 * ROUNDING)
    if left == 0.0:
        return slips
    with np.errstate(divide="ignore"):
        later = np.concatenate([np.cumsum(np.log(c[::-1]))[::-1], [0.0]])
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
    """shift / nu rounded up to 40 bits, so that alike steps are equal; 0 / 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(shift > 0.0, shift / nu, 0.0) * (1 + 8 * ROUNDING)
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
