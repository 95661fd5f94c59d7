"""Batches drawn without replacement at every step, one record replaced: the corrected theorem.

L Theorem 3.12 takes a divergence in the wrong direction (`stated` shows by how much). The
corrected statement splits the noise: one part pays for the step's own batch, by subsampling, the
other for what earlier steps left over. This file works on numbers: Lipschitz constants c,
impulses s and noises nu of the steps, each a number or one per step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lastiterate.curves.loss_distribution import LossDistribution, chernoff_epsilon
from lastiterate.curves.pairs import ROUNDING, Pair, ReplacedPair, SampledPair
from lastiterate.errors import DescriptionError
from lastiterate.theorems.per_step import Array, PerStep, part, per_step

SCREEN_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
SHARES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995)
LONG = 10**5  # a horizon is not sought farther back, nor are constant runs replayed beyond
LEVELS = 24  # different shifts that a schedule is rounded up to


def epsilon_q(order: float, rate: float, mu: float) -> float:
    """Renyi divergence of one step: a batch of share ``rate``, a Gaussian with shift ``mu``.

    (a-1)^-1 log{1 + a(a-1) int_0^inf (g^(a-2) + g^(-a-1)) q^2 e^e delta_mu(e) de} with
    g = 1 + q(e^e - 1): the divergence of the symmetric pair with profile
    q delta_mu(log(1 + (e^eps - 1)/q)). Rounded up; stable in log space at any order.

    >>> round(epsilon_q(10.0, 0.5, 2.0), 4)
    19.2298
    """
    return LossDistribution.replaced(rate, mu).rdp(order)


def stated(order: float, rate: float, mu: float) -> float:
    """S_alpha as L Definition 3.11 prints it, for study: the divergence of N from the mixture.

    Status: refuted. It never exceeds log 1/(1 - rate), while the truth grows with the order.

    >>> round(stated(2.0, 0.5, 2.0), 4)
    0.4385
    """
    return SampledPair(rate, 0.0, mu).log_moments(order - 1.0)[1] / (order - 1.0)


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


def curve(
    c: PerStep,
    s: PerStep,
    nu: PerStep,
    rate: float,
    steps: int,
    tail: int,
    share: float,
    reach: PerStep = math.inf,
    diameter: float = math.inf,
) -> LossDistribution:
    """The corrected theorem for batches without replacement, replace-one adjacency.

    *Statement.* Batches of b of n records, drawn afresh at every step; q = b/n, s = 2 eta K / b,
    every mini-batch map c-Lipschitz. For any horizon tau = steps - tail, share beta in (0, 1],
    z_tau >= min(D_tau, diameter), a_t >= 0 with z_{t+1} = c z_t - a_t >= 0 and z_T = 0: the pair
    is dominated in both orders by C_q(G(s/(sqrt(beta) nu))) at each of the last steps, composed
    with one Gaussian of mu^2 = sum a_t^2 / ((1 - beta) nu^2). With z_tau = 0 take beta = 1:
    plain composition. The best a for given tau and beta is proportional to nu_t^2 times the
    product of the later c, which gives mu^2 = (z_tau prod c)^2 / ((1 - beta) sum (nu_t w_t)^2).

    *Reference.* Corrects L (Chien, Li 2025) Theorem 3.12, whose divergence has the wrong
    direction, whose noise scale prints beta for sqrt(beta), and whose proof conditions in the
    wrong order. Status: corrected. Proof: docs/theory/without-replacement.md.
    """
    first = steps - tail
    left = _distance(c, s, first, reach, diameter)
    values = [part(x, first) for x in (c, s, nu)]
    constant = all(np.ndim(x) == 0 for x in values)
    ss, ns = (per_step(x, min(tail, 1) if constant else tail) for x in values[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        shifts = np.where(ss > 0.0, ss / (math.sqrt(share) * ns), 0.0) * (1 + 8 * ROUNDING)
    times = tail if constant else 1
    counts: dict[Pair, int] = {
        ReplacedPair(rate, mu): count * times for mu, count in _levels(shifts)
    }
    absorbed = _absorb(values[0], values[2], tail, left, 1.0 - share)
    return LossDistribution(counts).compose(LossDistribution.gaussian(absorbed))


@dataclass(frozen=True)
class WithoutReplacementBound:
    """A curve, and the horizon and split of the noise that prove it."""

    curve: LossDistribution
    tail: int
    share: float


def best(
    c: PerStep,
    s: PerStep,
    nu: PerStep,
    rate: float,
    steps: int,
    delta: float,
    reach: PerStep = math.inf,
    diameter: float = math.inf,
) -> WithoutReplacementBound:
    """Horizon and split optimised at delta (sound at every delta), screened by Renyi moments.

    >>> found = best(0.9, 1.0, 1.0, rate=0.1, steps=200, delta=1e-5)
    >>> found.tail < 200 and found.share < 1.0
    True
    """
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a share of the data")
    plain = WithoutReplacementBound(
        curve(c, s, nu, rate, steps, steps, 1.0, reach, diameter), steps, 1.0
    )
    if steps < 2 or np.any(np.asarray(nu) <= 0.0) or np.all(np.asarray(s) == 0.0):
        return plain
    window = min(steps, LONG)
    cs, ss, ns = (per_step(part(x, steps - window), window) for x in (c, s, nu))
    orders = np.array(SCREEN_ORDERS)
    tails = sorted({min(math.ceil(1.2**k), window - 1) for k in range(100)})
    if steps <= LONG:
        apart = distances(c, s, steps, reach, diameter)
        lefts = [float(apart[steps - tail]) for tail in tails]
    else:
        lefts = [_distance(c, s, steps - tail, reach, diameter) for tail in tails]
    found: list[tuple[float, int, float]] = []
    for share in SHARES:
        shifts = ss / (math.sqrt(share) * ns)
        # Only a screen: interpolating the moment between a few shifts is enough.
        knots = np.linspace(float(shifts.min()), float(shifts.max()), 12)
        if np.ptp(knots) == 0.0:
            knots = knots[:1]
        table = np.array([[(q - 1) * epsilon_q(q, rate, mu) for mu in knots] for q in orders])
        each = np.array([np.interp(shifts, knots, row) for row in table])
        summed = np.cumsum(each[:, ::-1], axis=1)
        for tail, left in zip(tails, lefts, strict=True):
            mu = _absorb(cs[-tail:], ns[-tail:], tail, left, 1.0 - share)
            moments = summed[:, tail - 1] + orders * (orders - 1) * mu * mu / 2
            found.append((chernoff_epsilon(orders, moments, delta), tail, share))
    _, tail, share = min(found)
    split = WithoutReplacementBound(
        curve(c, s, nu, rate, steps, tail, share, reach, diameter), tail, share
    )
    return min((plain, split), key=lambda bound: bound.curve.epsilon(delta))


def _distance(c: PerStep, s: PerStep, steps: int, reach: PerStep, diameter: float) -> float:
    """D_steps; for long constant runs the least of its closed-form bounds."""
    scalars = [x for x in (c, s, reach) if np.ndim(x) == 0]
    if steps <= LONG or len(scalars) < 3:
        head = [part(x, 0, steps) for x in (c, s, reach)]
        return float(distances(head[0], head[1], steps, head[2], diameter)[-1])
    factor, impulse, longest = (float(np.asarray(x)) for x in (c, s, reach))
    sums = float(steps) if factor == 1.0 else math.inf if factor > 1.0 else 1.0 / (1.0 - factor)
    return min(impulse * sums * (1 + 1e-12), longest * steps * (1 + 1e-12), diameter)


def _absorb(c: PerStep, nu: PerStep, steps: int, left: float, share: float) -> float:
    """The shift of the one Gaussian that absorbs the distance ``left`` over the given steps."""
    if left == 0.0:
        return 0.0
    if not math.isfinite(left) or not steps:
        return math.inf
    c, nu = per_step(c, steps), per_step(nu, steps)
    with np.errstate(divide="ignore"):
        later = np.concatenate([np.cumsum(np.log(c[::-1]))[::-1], [0.0]])
    scale = float(later.max())
    weight = np.exp(later - scale)
    noise = share * float(np.sum((nu * weight[1:]) ** 2))
    owed = left * float(weight[0])
    if owed == 0.0:
        return 0.0
    return owed / math.sqrt(noise) * (1 + 1e-12 * (1 + abs(scale))) if noise > 0.0 else math.inf


def _levels(shifts: Array) -> list[tuple[float, int]]:
    """Shifts rounded up to few values, with how often each occurs."""
    values, counts = np.unique(shifts[shifts > 0.0], return_counts=True)
    if len(values) > LEVELS and np.isfinite(values[-1]):
        levels = np.linspace(values[0], values[-1], LEVELS)
        levels[-1] = values[-1]
        place = np.searchsorted(levels, values)
        counts = np.bincount(place, counts, minlength=LEVELS).astype(int)
        values, counts = levels[counts > 0], counts[counts > 0]
    return list(zip(values.tolist(), counts.tolist(), strict=True))
