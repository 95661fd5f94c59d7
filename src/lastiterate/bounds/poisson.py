"""Poisson batches with a hidden state: Theorem M2, its best path, and the simpler noise split.

A record enters each batch by its own coin, so a step is a mixture of two Gaussians. The theorem
lets the mixture carry the price of what earlier steps left over, without splitting the noise.
The proof is in docs/theory/poisson.md. This file works on numbers: Lipschitz constants c,
impulses s and noises nu of the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc, gammaln, logsumexp

from lastiterate.bounds.steps import Array, Steps, alike, once
from lastiterate.curves.bracket import halved, last_good
from lastiterate.curves.loss_distribution import LossDistribution, chernoff_epsilon
from lastiterate.curves.pairs import ROUNDING, Pair, SampledPair
from lastiterate.errors import DescriptionError

PATH_ORDERS = (2, 4, 6, 8, 10, 14)
SCREEN_ORDERS = (2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 48, 64, 128)
LEVELS = 32  # different payments that a path makes
RATIOS = 16  # different values of s / nu that a path tells apart
GROUPS = 64  # different pairs that a whole run is charged as
LONG = 10**6  # of a longer run only the last steps get a path of their own


# How large a batch can get


def batch_cap(records: int, rate: float, steps: int, failure: float) -> int:
    """The smallest M with steps * P(batch has more than M records) <= failure.

    ``failure`` must be added to delta; ``failure = 0`` gives all records.

    >>> batch_cap(10_000, 0.01, 1000, 1e-9)
    177
    >>> batch_cap(10_000, 0.01, 1000, 0.0)
    10000
    """

    def holds(cap: int) -> bool:
        return steps * float(bdtrc(cap, records, rate)) * (1.0 + 1e-9) <= failure

    return last_good(holds, good=records, bad=-1) if failure > 0.0 else records


# Theorem M2


@dataclass(frozen=True)
class DeferralPath:
    """What is left over after each step, and the pair each step then pays.

    ``left[k]`` is z_k; ``low`` and ``high`` are a_k / nu_k and b_k / nu_k, rounded up.
    """

    rate: float
    left: Array
    low: Array
    high: Array


def follow(
    steps: Steps, rate: float, left: Sequence[float] | Array, diameter: float = math.inf
) -> DeferralPath:
    """Theorem M2: the price of a path z_0, ..., z_T of left-over distances.

    *Statement.* X_{k+1} = f_k(X_k) + xi_k h_k(X_k) + N(0, nu_k^2 I) with xi_k ~ Bernoulli(rate)
    independent, f_k c_k-Lipschitz, |h_k| <= s_k; X' the same with h = 0. Let z_0 be 0, or the
    diameter of a convex set that every iterate is projected on; z_k >= 0; z_T = 0;
    u_k = c_k z_k - z_{k+1} >= -s_k. Then (X_T, X'_T) is dominated, in both orders, by the
    composition of (1 - rate) N(max(u_k, 0), nu_k^2) + rate N(s_k + u_k, nu_k^2) against
    N(0, nu_k^2), in the respective order.

    *Assumptions.* Poisson batches, zero-out adjacency, c_k valid for every realised batch of the
    other records (`sampled_batches.poisson_contraction`). h may be anything bounded: clipping
    does not hurt.

    *Proof idea.* Move a helper process by just so much that at most z_{k+1} remains. Seen from
    the helper, a step is a mixture of shifts no longer than a_k (record out) and b_k (record in);
    the likelihood ratio is a sum of two lognormals, largest in convex order when they are
    comonotone and longest. Full proof: docs/theory/poisson.md. Status: sound.

    Computed updates bring two runs that are apart to c_k z_k + drift_k, not c_k z_k.
    """
    z, s = np.asarray(left, dtype=float), steps.s
    if len(z) != steps.count + 1:
        why = "something is left over after every step, and before the first"
        raise DescriptionError("left", len(z), f"{steps.count + 1} numbers", why)
    if z[-1] != 0.0 or np.any(z < 0.0) or not (z[0] == 0.0 or z[0] >= diameter):
        allowed = "0 (or the diameter) first, never negative, 0 at last"
        why = "otherwise the helper process does not start or end where the runs do"
        raise DescriptionError("left", (z[0], z.min(), z[-1]), allowed, why)
    before = np.where(z[:-1] > 0.0, steps.c * z[:-1] + steps.drift, 0.0)
    u = before - z[1:] + 4 * ROUNDING * (before + z[1:])
    if np.any(u < -s):
        allowed = "at most c z_k + s_k after step k"
        why = "a step cannot leave over more than there is"
        raise DescriptionError("left", float((u + s).min()), allowed, why)
    low, high = np.maximum(u, 0.0), np.maximum(s + u, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (
            np.where(shift > 0.0, shift / steps.nu, 0.0) * (1.0 + 4 * ROUNDING)
            for shift in (low, high)
        )
    return DeferralPath(rate, z, low, np.maximum(low, high))


def deferral_path(
    steps: Steps, rate: float, order: int, start: float = 0.0, diameter: float = math.inf
) -> DeferralPath:
    """The path whose log-moment of this order is least (any path is sound).

    Minimise sum kappa(u_k) with sum u_k prod_{l>k} c_l = start * prod c: kappa'(u_k) is
    proportional to the weight prod_{l>k} c_l, one root. kappa has a kink at 0, so the optimum
    defers first (u < 0), then composes plainly (u = 0), then absorbs what is left (u > 0).

    >>> path = deferral_path(Steps(0.99, 1.0, 1.0, 1000), rate=0.01, order=8)
    >>> bool(path.high[0] < 1.0 < path.high[-1])
    True
    """
    c, own, nu = steps.c, steps.s, steps.nu
    s = np.maximum(own, nu * _few_ratios(own / nu))
    with np.errstate(divide="ignore"):
        behind = np.concatenate([np.cumsum(np.log(c[::-1]))[::-1], [0.0]])
    scale = float(behind.max())
    weight = np.exp(behind[1:] - scale)
    owed = start * math.exp(behind[0] - scale)
    most = _free_distance(c, s, start, diameter)
    slopes = _Slopes(order, rate, s, nu, most)

    def pays(log_price: float) -> bool:
        return float(weight @ slopes.shift(math.exp(log_price) * weight)) >= owed

    price = math.exp(halved(pays, good=80.0, bad=-80.0, rounds=48)) * weight
    u = _levelled(slopes.shift(price), price, weight, s, nu)
    left = [start]
    z = start
    for factor, impulse, pay in zip(c.tolist(), own.tolist(), u.tolist(), strict=True):
        z = min(max(factor * z - pay, 0.0), (factor * z + impulse) * (1 - 4 * ROUNDING), diameter)
        left.append(z)
    left[-1] = 0.0
    return follow(steps.replace(s=s), rate, left, start if start > 0.0 else math.inf)


def _levelled(u: Array, price: Array, weight: Array, s: Array, nu: Array) -> Array:
    """The path with few different pairs: u / nu replaced by weighted means over alike steps.

    The means keep sum u_k weight_k, and the optimum is flat, so this costs only to second order;
    rounding pairs up afterwards would cost to first order.
    """
    shift = u / nu
    answer = shift.copy()
    kinds, kind = np.unique(s / nu, return_inverse=True)
    for index in range(len(kinds)):
        for sign in (-1.0, 1.0):
            chosen = np.flatnonzero((kind == index) & (sign * shift > 0.0))
            if len(chosen) < 2:
                continue
            chosen = chosen[np.argsort(shift[chosen], kind="stable")]
            steps = np.diff(shift[chosen]) * np.maximum(np.diff((price * nu)[chosen]), 0.0)
            place = np.concatenate([[0.0], np.cumsum(np.cbrt(steps))])
            levels = max(LEVELS // (2 * len(kinds)), 2)
            block = np.minimum(place / max(place[-1], 1e-300) * levels, levels - 1).astype(int)
            mass = (weight * nu)[chosen] + 1e-300
            mean = np.bincount(block, mass * shift[chosen]) / np.maximum(
                np.bincount(block, mass), 1e-300
            )
            answer[chosen] = mean[block]
    return answer * nu


def _few_ratios(ratio: Array) -> Array:
    """Round s / nu up to few values, so that few different pairs have to be composed."""
    ordered = np.sort(ratio)
    rises = np.flatnonzero(np.diff(ordered) > 0.0)
    if len(rises) < RATIOS:
        return ratio
    place = np.cumsum(np.sqrt(np.diff(np.expm1(np.minimum(ordered**2, 50.0)))))
    cuts = np.searchsorted(place, place[-1] * np.arange(1, RATIOS) / RATIOS)
    levels = np.unique(np.append(ordered[cuts], ordered[-1]))
    return levels[np.searchsorted(levels, ratio)] * (1.0 + 4 * ROUNDING)


class _Slopes:
    """Inverse of the derivative of kappa, tabulated for a few values of s / nu."""

    def __init__(self, order: int, rate: float, s: Array, nu: Array, most: float) -> None:
        levels, self._level = np.unique(s / nu, return_inverse=True)
        self._nu = nu
        top = max(most / float(nu.min()), 1e-9)
        rising = np.concatenate([[0.0], np.geomspace(1e-7 * top, top, 1500)])
        self._tables = []
        for ratio in levels:
            falling = np.linspace(-ratio, 0.0, 1000)
            shifts = np.concatenate([falling, rising])
            slope = np.concatenate(
                [_slope(order, rate, ratio, falling, -1), _slope(order, rate, ratio, rising, 1)]
            )
            self._tables.append((np.maximum.accumulate(slope), shifts))

    def shift(self, price: Array) -> Array:
        """u_k with kappa'(u_k) = price_k."""
        scaled = price * self._nu
        if len(self._tables) == 1:
            return cast(Array, np.interp(scaled, *self._tables[0]) * self._nu)
        answer = np.zeros(len(price))
        for index, table in enumerate(self._tables):
            chosen = self._level == index
            answer[chosen] = np.interp(scaled[chosen], *table)
        return answer * self._nu


def _terms(order: int, rate: float, low: Array, high: Array) -> tuple[Array, Array]:
    """Logs of the binomial terms of E (likelihood ratio)^order, and their sums of shifts."""
    j = np.arange(order + 1.0)
    binomial = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(j < order, (order - j) * np.log1p(-rate), 0.0)
    sums = np.multiply.outer(low, order - j) + np.multiply.outer(high, j)
    own = np.multiply.outer(low**2, order - j) + np.multiply.outer(high**2, j)
    return binomial + out + j * math.log(rate) + (sums**2 - own) / 2, sums


def _slope(order: int, rate: float, ratio: float, u: Array, side: int) -> Array:
    """Derivative of the log-moment in u, in units of the noise; ``side`` decides at the kink."""
    j = np.arange(order + 1.0)
    high = ratio + u
    terms, sums = _terms(order, rate, np.maximum(u, 0.0), high)
    share = np.exp(terms - logsumexp(terms, axis=-1, keepdims=True))
    each = (order - 1) * sums if side > 0 else j * (j - 1) * high[:, None]
    return cast(Array, (share * each).sum(axis=-1))


def poisson_curve(path: DeferralPath) -> LossDistribution:
    """The composition of a path's pairs, at most GROUPS different ones, each rounded up."""
    if not np.all(np.isfinite(path.high)):
        return LossDistribution({SampledPair(path.rate, 0.0, math.inf): 1})
    pairs = np.stack([_snap(path.low), _snap(path.high)])
    kinds, counts = np.unique(pairs[:, path.high > 0.0], axis=1, return_counts=True)
    if kinds.shape[1] > GROUPS:
        kinds, counts = _grouped(path.rate, kinds, counts)
    low, high = kinds
    rows = zip(low.tolist(), np.maximum(low, high).tolist(), counts.tolist(), strict=True)
    composed: dict[Pair, int] = {}
    for a, b, count in rows:
        pair = SampledPair(path.rate, a, b)
        composed[pair] = composed.get(pair, 0) + count
    return LossDistribution(composed)


def _snap(shift: Array) -> Array:
    """Round up a little, so that payments which differ by rounding errors are one."""
    unit = max(float(shift.max(initial=0.0)), 1e-300) * 2.0**-36
    return np.ceil(shift / unit) * unit * (1.0 + 4 * ROUNDING)


def _grouped(
    rate: float, kinds: Array, counts: npt.NDArray[np.int64]
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Charge steps of similar shape and price to one longer pair.

    Within a shape (low / high) steps are sorted by price and cut where the sum of the roots of
    the price differences is equally spaced: every group then costs about the same.
    """
    low, high = kinds
    shape = np.ceil(4.0 * low / high).astype(int)
    price = _second_moment(rate, low, high)
    sort = np.lexsort((price, shape))
    low, high, price, shape, counts = low[sort], high[sort], price[sort], shape[sort], counts[sort]
    rise = np.sqrt(np.maximum(np.diff(price), 0.0) * np.sqrt(counts[:-1] * counts[1:]))
    new = np.diff(shape) > 0
    rise[new] = 0.0
    place = np.concatenate([[0.0], np.cumsum(rise)])
    cut = np.ceil(place / max(float(place[-1]), 1e-300) * (GROUPS - 6)).astype(int)
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(cut) > 0) | new]))
    lows, highs = np.maximum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    return np.stack([lows, highs]), np.add.reduceat(counts, starts)


def _second_moment(rate: float, low: Array, high: Array) -> Array:
    """Log of the second moment of the likelihood ratio, the price that sorts steps."""
    rise = (1 - rate) ** 2 * np.expm1(np.minimum(low**2, 700.0))
    rise += 2 * rate * (1 - rate) * np.expm1(np.minimum(low * high, 700.0))
    rise += rate**2 * np.expm1(np.minimum(high**2, 700.0))
    return cast(Array, np.log1p(rise))


def plain_curve(steps: Steps, rate: float) -> LossDistribution:
    """Plain composition of sampled Gaussians, all iterates published.

    >>> round(plain_curve(Steps(1.0, 1.0, 1.0, 1000), rate=0.01).epsilon(1e-6), 3)
    2.125
    """
    repeated = alike(steps.s, steps.nu)
    kept = (steps[:1] if repeated else steps).replace(c=0.0)  # nothing is left over to expand
    one = poisson_curve(follow(kept, rate, np.zeros(kept.count + 1)))
    return one.self_compose(steps.count) if repeated else one


# The best of all


@dataclass(frozen=True)
class PoissonBound:
    """A curve, the path that proves it (None for plain composition), and where it starts."""

    curve: LossDistribution
    path: DeferralPath | None
    order: int | None
    first: int


def best(steps: Steps, rate: float, delta: float, diameter: float = math.inf) -> PoissonBound:
    """The tightest curve at delta among plain composition and deferral paths of several orders.

    On a bounded convex domain a path may also start from the diameter at any step. Candidates are
    screened by Renyi moments; only the two most promising become privacy-loss distributions, and
    whichever is chosen, the answer is sound at every epsilon and delta.

    >>> bound = best(Steps(0.99, 1.0, 1.0, 1000), rate=0.01, delta=1e-6)
    >>> bound.curve.epsilon(1e-6) < 1.676
    True
    """
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a probability")
    plain = PoissonBound(plain_curve(steps, rate), None, None, 0)
    if np.any(once(steps.nu) <= 0.0) or np.all(once(steps.s) == 0.0):
        return plain
    bounds = [plain]
    for first, start in _starts(steps, diameter):
        last = steps[first:]
        if start == 0.0 and np.all(once(last.c) >= 1.0):
            continue  # without contraction and without a restart nothing is gained by deferring
        for order in PATH_ORDERS:
            path = deferral_path(last, rate, order, start, diameter)
            bounds.append(PoissonBound(poisson_curve(path), path, order, first))
    ranked = sorted(bounds, key=lambda bound: _screened(bound.curve, delta))
    chosen = ranked[0]
    if ranked[1:] and ranked[1].curve.delta(chosen.curve.epsilon(delta)) < delta:
        chosen = ranked[1]
    return chosen


def _starts(steps: Steps, diameter: float) -> Iterator[tuple[int, float]]:
    """(first step, distance there) from which a path may begin."""
    count, factor = steps.count, float(np.max(once(steps.c)))
    # Steps that contraction forgets to e^-18 defer everything, which costs nothing: the path then
    # begins at the distance that builds up without payments.
    forgets = alike(steps.c, steps.s) and factor < 1.0
    alive = math.ceil(18.0 / (1.0 - factor)) if forgets else count
    if min(alive, count) <= LONG:
        far = min(float(steps.s[0]) / (1.0 - factor), diameter) if alive < count else 0.0
        yield max(count - alive, 0), far * (1 + 1e-12)
    if math.isfinite(diameter):
        kept = 1
        while kept < min(count, LONG):
            yield count - kept, diameter
            kept = max(kept + 1, math.ceil(kept * 1.5))


def _screened(curve: LossDistribution, delta: float) -> float:
    """Epsilon by integer Renyi moments of the first order only: good enough to rank."""
    pairs = [pair for pair in curve.counts if isinstance(pair, SampledPair)]
    assert len(pairs) == len(curve.counts)
    if not pairs:
        return 0.0
    low, high = (np.array(side) for side in zip(*((p.low, p.high) for p in pairs), strict=True))
    if not np.all(np.isfinite(high)):
        return math.inf
    rate, counts = pairs[0].rate, np.array([float(curve.counts[pair]) for pair in pairs])
    moments = [
        counts @ logsumexp(_terms(order, rate, low, high)[0], axis=-1) for order in SCREEN_ORDERS
    ]
    return chernoff_epsilon(np.array(SCREEN_ORDERS, dtype=float), np.array(moments), delta)


def _free_distance(c: Array, s: Array, start: float, diameter: float) -> float:
    """The largest distance that can build up when nothing is ever paid."""
    z = most = start
    for factor, impulse in zip(c.tolist(), s.tolist(), strict=True):
        z = min(factor * z + impulse, diameter)
        most = max(most, z)
    return most
