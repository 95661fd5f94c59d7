"""Poisson batches and a person with several records, each with a coin of its own.

Theorem M2 with more components: i of the k records are in the batch with probability
Bin(k, q)(i), and the step then carries i impulses and what earlier steps left over. The lemma of M2
holds for any number of components (docs/theory/privacy-units.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lastiterate.bounds import poisson
from lastiterate.bounds.poisson import (
    GROUPS,
    PATH_ORDERS,
    DeferralPath,
    PoissonBound,
    _snap,
    _starts,
    deferral_path,
    follow,
    plain_curve,
)
from lastiterate.bounds.steps import Array, Steps, alike, once
from lastiterate.curves.group_pair import GroupPair
from lastiterate.curves.loss_distribution import LossDistribution, chernoff_epsilon
from lastiterate.curves.pairs import ROUNDING, Pair, SampledPair
from lastiterate.errors import DescriptionError

_SCREEN_ORDERS = (2.0, 3.0, 5.0, 8.0, 16.0, 32.0)


def group_curve(path: DeferralPath, gaps: Array, records: int) -> LossDistribution:
    """Theorem G5: the price of a path when each of k records has its own coin.

    *Statement.* As `poisson.follow`, with X_{k+1} = f_k(X_k) + sum over i of xi_{k,i} h_{k,i}(X_k)
    + N(0, nu_k^2 I), i = 1, ..., ``records``, all coins independent. The run is dominated, in both
    orders, by the composition of sum over i of Bin(records, rate)(i) N((i s_k + u_k)_+, nu_k^2)
    against N(0, nu_k^2). ``gaps`` are s_k / nu_k, rounded up.

    *Proof.* Given that i records are in, the gap to be closed is at most c_k z_k + i s_k - z_{k+1}.
    The likelihood ratio is a sum of lognormals, largest in convex order when they are comonotone
    and longest, whatever their number. So longer shifts may stand for shorter ones.
    """
    if not (np.all(np.isfinite(path.high)) and np.all(np.isfinite(gaps))):
        return LossDistribution({SampledPair(path.rate, 0.0, math.inf): 1})
    used = (path.high > 0.0) | (gaps > 0.0)
    columns = np.stack([_snap(path.low), _snap(path.high), _snap(gaps)])[:, used]
    kinds, counts = np.unique(columns, axis=1, return_counts=True)
    if kinds.shape[1] > GROUPS:
        sort = np.lexsort((kinds[1], kinds[2]))
        kinds, counts = kinds[:, sort], counts[sort]
        starts = np.unique(np.linspace(0, len(counts) - 1, GROUPS).astype(int))
        kinds = np.maximum.reduceat(kinds, starts, axis=1)
        counts = np.add.reduceat(counts, starts)
    composed: dict[Pair, int] = {}
    for low, high, gap, count in zip(*kinds.tolist(), counts.tolist(), strict=True):
        pair = GroupPair(path.rate, records, low, max(low, high), gap)
        composed[pair] = composed.get(pair, 0) + count
    return LossDistribution(composed)


def _gaps(steps: Steps) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(steps.s > 0.0, steps.s / steps.nu, 0.0)
    return np.asarray(ratio * (1.0 + 4 * ROUNDING))


def plain_group_curve(steps: Steps, rate: float, records: int) -> LossDistribution:
    """Plain composition, all iterates published.

    >>> from lastiterate.bounds.poisson import plain_curve
    >>> steps = Steps(1.0, 1.0, 1.0, 100)
    >>> one, two = plain_curve(steps, 0.01), plain_group_curve(steps, 0.01, 2)
    >>> one.epsilon(1e-6) < two.epsilon(1e-6)
    True
    """
    if records == 1:
        return plain_curve(steps, rate)
    repeated = alike(steps.s, steps.nu)
    kept = (steps[:1] if repeated else steps).replace(c=0.0)  # nothing is left over to expand
    one = group_curve(follow(kept, rate, np.zeros(kept.count + 1)), _gaps(kept), records)
    return one.self_compose(steps.count) if repeated else one


def best_stretches(
    stretches: Sequence[Steps],
    rate: float,
    records: int,
    delta: float,
    diameter: float = math.inf,
    beside: LossDistribution | None = None,
) -> list[PoissonBound]:
    """A bound for each stretch between releases; those of several records are found one by one."""
    if records == 1:
        return poisson.best_stretches(stretches, rate, delta, diameter, beside)
    return [best(steps, rate, records, delta, diameter) for steps in stretches]


def best(
    steps: Steps, rate: float, records: int, delta: float, diameter: float = math.inf
) -> PoissonBound:
    """The tightest curve at delta among plain composition and deferral paths.

    The paths are the best ones of a single record whose coin shows the chance that any of the k
    is in: any path is sound.

    >>> bound = best(Steps(0.9, 1.0, 1.0, 30), rate=0.01, records=3, delta=1e-6)
    >>> bound.curve.epsilon(1e-6) < plain_group_curve(Steps(0.9, 1.0, 1.0, 30), 0.01, 3).epsilon(
    ...     1e-6
    ... )
    True
    """
    if records == 1:
        return poisson.best(steps, rate, delta, diameter)
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a probability")
    plain = PoissonBound(plain_group_curve(steps, rate, records), None, None, 0)
    if np.any(once(steps.nu) <= 0.0) or np.all(once(steps.s) == 0.0):
        return plain
    bounds = [plain]
    any_of_them = -math.expm1(records * math.log1p(-rate)) if rate < 1.0 else 1.0
    all_in = once(steps.s) * records
    together = steps.replace(s=float(all_in[0]) if alike(steps.s) else all_in)
    for first, start in _starts(together, diameter):
        last = steps[first:]
        if start == 0.0 and np.all(once(last.c) >= 1.0):
            continue  # without contraction and without a restart nothing is gained by deferring
        for order in PATH_ORDERS:
            found = deferral_path(last, any_of_them, order, start, diameter)
            path = DeferralPath(rate, found.left, found.low, found.high)
            curve = group_curve(path, _gaps(last), records)
            bounds.append(PoissonBound(curve, path, order, first))
    ranked = sorted(bounds, key=lambda bound: _screened(bound.curve, delta))
    chosen = ranked[0]
    if ranked[1:] and ranked[1].curve.delta(chosen.curve.epsilon(delta)) < delta:
        chosen = ranked[1]
    return chosen


def _screened(curve: LossDistribution, delta: float) -> float:
    """Epsilon by a few Renyi moments of the first order only: good enough to rank."""
    orders = np.array(_SCREEN_ORDERS)
    moments = [
        sum(count * pair.log_moments(order - 1.0)[0] for pair, count in curve.counts.items())
        for order in _SCREEN_ORDERS
    ]
    return chernoff_epsilon(orders, np.array(moments), delta)
