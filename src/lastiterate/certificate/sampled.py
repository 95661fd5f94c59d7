"""Batches drawn afresh at every step, in ball arithmetic.

Poisson batches: the certificate carries the distances z_k that a helper process keeps and a short
menu of pairs. Every step is priced anew and charged to the cheapest pair of the menu that is at
least as long. Without replacement: the certificate carries the shifts and how the noise is split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lastiterate.certificate.balls import Ball, above, arb, proved
from lastiterate.certificate.losses import Replaced, Shift, Step
from lastiterate.certificate.steps import Case, factors
from lastiterate.certificate.strings import geometric, infinite, ratio, repeated
from lastiterate.errors import CertificateError

Floats = NDArray[np.float64]
Counted = list[tuple[Step, int]]
WALKED = 1_000_000  # equal steps that are walked one by one before a closed bound is used


def float_above(ball: Ball) -> float:
    """The next double above everything in the ball."""
    return math.nextafter(float(above(ball)), math.inf)


def overcrowded(case: Case, cap: int) -> Ball:
    """An upper bound on the probability that some batch has more than ``cap`` records."""
    records, rate = case.training.records, getattr(case.training.batches, "rate", 1.0)
    if cap >= records:
        return arb(0)
    if cap < 0:
        return arb(1)
    # P(Bin(n, q) > M) is the regularised incomplete beta function I_q(M + 1, n - M).
    tail = arb(rate).beta_lower(arb(cap + 1), arb(records - cap), regularized=True)
    return above(case.training.steps * tail).min(arb(1)) if tail.is_finite() else arb(1)


def poisson_factors(case: Case, cap: int, first: int, last: int) -> list[Ball]:
    """Lipschitz constants of steps whose batches have at most ``cap`` records."""
    rate = getattr(case.training.batches, "rate", 1.0)
    crowding = arb(cap) / (arb(rate) * case.training.records)
    found = factors(case.etas(first, last), case.loss, case.training.clipping, crowding)
    if found is None:
        raise CertificateError("the loss has no smoothness that a path could use")
    return found


def deferral(
    case: Case, cap: int, first: int, last: int, left: Sequence[float], common: bool
) -> tuple[Floats, Floats]:
    """Shifts (record out, record in) of each step in units of noise, rounded up to doubles.

    ``left`` are z_first, ..., z_last. Unless both runs have a ``common`` point there, the start
    must be at least the diameter, or at least what equal contracting steps can ever build up.
    """
    steps = last - first
    lengths = all(math.isfinite(z) and z >= 0 for z in left)
    if len(left) != steps + 1 or left[-1] != 0 or not lengths:
        raise CertificateError("the witness is no path of distances that ends at 0")
    c = poisson_factors(case, cap, first, last)
    s = case.impulses(first, last)
    if not common and left[0] < case.training.diameter:
        settled = case.training.constant and proved(c[0] < 1)
        if not (settled and proved(arb(left[0]) >= s[0] / (1 - c[0]))):
            raise CertificateError("the path of the witness starts below the distance it may have")
    lows, highs = np.empty(steps), np.empty(steps)
    z = arb(left[0])
    rows = zip(
        repeated(c, steps), repeated(s, steps), repeated(case.noises(first, last), steps),
        left[1:], strict=True,
    )  # fmt: skip
    for k, (factor, impulse, noise, after) in enumerate(rows):
        z, before = arb(after), z
        move = factor * before - z
        if proved(move < -impulse):
            raise CertificateError(f"step {first + k} leaves over more than there is")
        out, joined = move.max(arb(0)), (impulse + move).max(arb(0))
        lows[k] = float_above(ratio(out, noise)) if out != 0 else 0.0
        highs[k] = max(float_above(ratio(joined, noise)) if joined != 0 else 0.0, lows[k])
    return lows, highs


def plain(case: Case, first: int, last: int) -> tuple[Floats, Floats]:
    """Nothing is left over: each step is a sampled Gaussian. One entry if all are alike."""
    pairs = zip(case.impulses(first, last), case.noises(first, last), strict=True)
    highs = np.array([float_above(ratio(s, nu)) if s != 0 else 0.0 for s, nu in pairs])
    return np.zeros(len(highs)), highs


def charged(
    rate: float, lows: Floats, highs: Floats, menu: Sequence[Sequence[float]], repeats: int = 1
) -> Counted:
    """Each step charged to the cheapest pair of the menu that is at least as long."""
    if not np.all(np.isfinite(highs)):
        raise CertificateError("a step without noise uses the record")
    pairs = sorted({(float(low), float(high)) for low, high in menu}, key=lambda p: _price(rate, p))
    used = highs > 0
    open_ = np.flatnonzero(used)
    counts: Counted = []
    for low, high in pairs:
        fits = (lows[open_] <= low) & (highs[open_] <= high)
        if fits.any():
            counts.append((Shift(rate, low, high), int(fits.sum()) * repeats))
            open_ = open_[~fits]
    if len(open_):
        raise CertificateError("a step is dearer than every pair the witness offers")
    return counts


def _price(rate: float, pair: tuple[float, float]) -> float:
    """The second moment of the likelihood ratio, roughly: it only sorts the menu."""
    low, high = (min(shift, 26.0) for shift in pair)
    kept = 1.0 - rate
    return (
        kept * kept * math.expm1(low * low)
        + 2 * rate * kept * math.expm1(low * high)
        + rate * rate * math.expm1(high * high)
    )


# --- without replacement -------------------------------------------------------------------------


def batch_share(case: Case) -> float:
    """q = b/n, rounded up."""
    size = getattr(case.training.batches, "size", case.training.records)
    return min(float_above(arb(size) / case.training.records), 1.0)


def distance(case: Case, first: int, last: int) -> Ball:
    """How far apart two runs can be after these steps from a common point.

    D <- min(c D + s, D + 2 eta K, diameter); the middle one if the L2 term does not overshoot.
    """
    steps, width = last - first, arb(case.training.diameter)
    if steps <= 0:
        return arb(0)
    c, s = case.factors(first, last), case.impulses(first, last)
    if c is None:
        raise CertificateError("the loss has no smoothness that a horizon could use")
    l2 = arb(case.loss.regularization)
    reach = [
        case.far(eta) if proved(eta * l2 <= 1) else infinite() for eta in case.etas(first, last)
    ]
    if case.training.constant and steps > WALKED:
        settled = s[0] / (1 - c[0]) if proved(c[0] < 1) else infinite()
        return above(settled.min(reach[0] * steps).min(width))
    z = arb(0)
    rows = zip(repeated(c, steps), repeated(s, steps), repeated(reach, steps), strict=True)
    for factor, impulse, longest in rows:
        z = above((factor * z + impulse).min(z + longest).min(width))
    return z


def absorbed(case: Case, first: int, last: int, left: Ball, share: float) -> Ball:
    """mu^2 of the one Gaussian that absorbs the distance ``left`` with this share of the noise."""
    steps = last - first
    if left == 0:
        return arb(0)
    c, nu = case.factors(first, last), case.noises(first, last)
    assert c is not None
    if case.training.constant:
        carried, weight = left * c[0] ** steps, nu[0] ** 2 * geometric(c[0] * c[0], steps)
    else:
        product, weight = arb(1), arb(0)
        for factor, noise in zip(reversed(c), reversed(nu), strict=True):
            weight += (noise * product) ** 2
            product *= factor
        carried = left * product
    return ratio(carried**2, weight * share)


def replaced_steps(
    case: Case, first: int, last: int, share: float, menu: Sequence[float]
) -> Counted:
    """Each step on a fresh subset, with ``share`` of its noise, charged to the menu."""
    if last <= first:
        return []
    rate, root = batch_share(case), arb(share).sqrt()
    pairs = zip(case.impulses(first, last), case.noises(first, last), strict=True)
    shifts = np.array([float_above(ratio(s, root * nu)) if s != 0 else 0.0 for s, nu in pairs])
    if not np.all(np.isfinite(shifts)):
        raise CertificateError("a step without noise uses the record")
    levels = np.unique(np.asarray(menu, dtype=np.float64))
    repeats = 1
    if case.training.constant:
        levels, repeats = np.unique(shifts), last - first
    place = np.searchsorted(levels, shifts[shifts > 0])
    if np.any(place == len(levels)):
        raise CertificateError("a step is dearer than every pair the witness offers")
    counts = np.bincount(place, minlength=len(levels))
    return [
        (Replaced(rate, float(mu)), int(count) * repeats)
        for mu, count in zip(levels, counts, strict=True)
        if count
    ]
