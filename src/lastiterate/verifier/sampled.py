"""Batches drawn afresh at every step, in ball arithmetic.

Poisson batches: the certificate carries the distances z_k that a helper process keeps and a short
menu of pairs. Every step is priced anew and charged to the cheapest pair of the menu that is at
least as long. Without replacement, and Poisson with a record replaced: the certificate carries what
each of the last steps absorbs of the distance that the steps before them left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import Ball, above, arb, proved
from lastiterate.verifier.losses import Grouped, Opposed, Replaced, Shift, Step, check_pairs
from lastiterate.verifier.steps import Case, factors
from lastiterate.verifier.strings import infinite, ratio, repeated

Floats = NDArray[np.float64]
Counted = list[tuple[Step, int]]
Pushed = tuple[Floats, int]
MOST_COINS = 30  # of a person with several records
FEW = 40  # different steps that need no menu
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
) -> tuple[Floats, Floats, Floats]:
    """Shifts (none in, one in, each further one) of each step in units of noise, rounded up.

    ``left`` are z_first, ..., z_last. Unless both runs have a ``common`` point there, the
    start must be at least the diameter, or at least what equal contracting steps can ever build up,
    all records of the person in every batch.
    """
    steps = last - first
    lengths = all(math.isfinite(z) and z >= 0 for z in left)
    if len(left) != steps + 1 or left[-1] != 0 or not lengths:
        raise CertificateError("the witness is no path of distances that ends at 0")
    c = poisson_factors(case, cap, first, last)
    s = case.impulses(first, last)
    if not common and left[0] < case.training.diameter:
        settled = case.constant and proved(c[0] < 1)
        most = case.unit.records * s[0] if settled else infinite()
        if not (settled and proved(arb(left[0]) >= most / (1 - c[0]))):
            raise CertificateError("the path of the witness starts below the distance it may have")
    lows, highs = np.empty(steps), np.empty(steps)
    z = arb(left[0])
    rows = zip(
        repeated(c, steps),
        repeated(s, steps),
        repeated(case.noises(first, last), steps),
        repeated(case.slips(first, last), steps),
        left[1:],
        strict=True,
    )
    for k, (factor, impulse, noise, slip, after) in enumerate(rows):
        z, before = arb(after), z
        move = (factor * before + slip if before > 0 else arb(0)) - z
        if proved(move < -impulse):
            raise CertificateError(f"step {first + k} leaves over more than there is")
        out, joined = move.max(arb(0)), (impulse + move).max(arb(0))
        lows[k] = float_above(ratio(out, noise)) if out != 0 else 0.0
        highs[k] = max(float_above(ratio(joined, noise)) if joined != 0 else 0.0, lows[k])
    return lows, highs, np.array(list(repeated(_gaps(case, first, last).tolist(), steps)))


def plain(case: Case, first: int, last: int) -> tuple[Floats, Floats, Floats]:
    """Nothing is left over: each step is a sampled Gaussian. One entry if all are alike."""
    gaps = _gaps(case, first, last)
    return np.zeros(len(gaps)), gaps, gaps


def _gaps(case: Case, first: int, last: int) -> Floats:
    """What each record of the person adds, in units of noise; one entry if all are alike."""
    pairs = zip(case.impulses(first, last), case.noises(first, last), strict=True)
    return np.array([float_above(ratio(s, nu)) if s != 0 else 0.0 for s, nu in pairs])


def charged(
    case: Case,
    rate: float,
    shifts: tuple[Floats, Floats, Floats],
    menu: Sequence[Sequence[float]],
    repeats: int = 1,
) -> Counted:
    """Each step charged to the cheapest pair of the menu that is at least as long.

    ``shifts``: no record in the batch, one, and what each further one of the person adds.
    """
    records = case.unit.records
    lows, highs, gaps = shifts
    if not (np.all(np.isfinite(highs)) and np.all(np.isfinite(gaps))):
        raise CertificateError("a step without noise uses the record")
    check_pairs(len(menu))
    if records > MOST_COINS:
        raise CertificateError(f"more than {MOST_COINS} records of a person have too many coins")
    pairs = sorted({tuple(map(float, pair)) for pair in menu}, key=lambda p: _price(rate, p[:2]))
    open_ = np.flatnonzero((highs > 0) | (gaps > 0) if records > 1 else highs > 0)
    counts: Counted = []
    for low, high, *more in pairs:
        fits = (lows[open_] <= low) & (highs[open_] <= high)
        step: Step = Shift(rate, low, high)
        if records > 1:
            step = Grouped(rate, low, high, records, *more)
            fits &= gaps[open_] <= step.gap
        if fits.any():
            counts.append((step, int(fits.sum()) * repeats))
            open_ = open_[~fits]
    if len(open_):
        raise CertificateError("a step is dearer than every pair the witness offers")
    return counts


def _price(rate: float, pair: Sequence[float]) -> float:
    """The second moment of the likelihood ratio, roughly: it only sorts the menu."""
    low, high = (min(shift, 26.0) for shift in pair)
    kept = 1.0 - rate
    return (
        kept * kept * math.expm1(low * low)
        + 2 * rate * kept * math.expm1(low * high)
        + rate * rate * math.expm1(high * high)
    )


# --- a horizon, and payments after it ------------------------------------------------------------


def batch_share(case: Case) -> float:
    """q = b/n, rounded up."""
    size = getattr(case.training.batches, "size", case.training.records)
    return min(float_above(arb(size) / case.training.records), 1.0)


def pushes(case: Case, first: int, last: int) -> list[Ball]:
    """How far one record moves a batch drawn without replacement, against any other batch of it.

    A record that is zeroed out displaces another one: twice its sensitivity. Rounding is that of
    two sums in either case.
    """
    times = 1 if case.training.adjacency == "replace" else 2
    if case.training.single_point:
        times = 0
    each = times * arb(float(case.training.sensitivity)) / case.divisor + case.rounding
    return case.pushes(each, first, last)


def lengths(case: Case, first: int, last: int) -> list[Ball]:
    """How far one record alone moves a batch that holds it; one entry if all are alike."""
    return case.pushes(arb(case.training.gradient_norm) / case.divisor + case.rounding, first, last)


def fixed_factors(case: Case, first: int, last: int) -> list[Ball]:
    """Lipschitz constants of updates whose batches have their nominal size."""
    found = case.factors(first, last)
    if found is None:
        raise CertificateError("the loss has no smoothness that a horizon could use")
    return found


def farthest(case: Case, first: int, last: int) -> list[Ball]:
    """2 eta K and rounding: no fixed batch adds more, if the L2 term does not overshoot."""
    l2 = arb(case.loss.regularization)
    return [
        case.far(eta) + eta * case.rounding + case.slip if proved(eta * l2 <= 1) else infinite()
        for eta in case.etas(first, last)
    ]


def distance(case: Case, steps: int, c: list[Ball], s: list[Ball], reach: list[Ball]) -> Ball:
    """How far apart two runs can be after these steps from a common point.

    D <- min(c D + s, D + reach, diameter).
    """
    width = arb(case.training.diameter)
    if steps <= 0:
        return arb(0)
    if case.constant and steps > WALKED:
        settled = s[0] / (1 - c[0]) if proved(c[0] < 1) else infinite()
        return above(settled.min(reach[0] * steps).min(width))
    z = arb(0)
    rows = zip(repeated(c, steps), repeated(s, steps), repeated(reach, steps), strict=True)
    for factor, impulse, longest in rows:
        z = above((factor * z + impulse).min(z + longest).min(width))
    return z


def paid_off(case: Case, first: int, last: int, c: list[Ball], left: Ball, pays: Floats) -> None:
    """Raise unless the payments absorb ``left``: z <- max(c z + rounding - a, 0) must end at 0."""
    steps = last - first
    slips = repeated(case.slips(first, last), steps)
    rows = zip(repeated(c, steps), slips, pays.tolist(), strict=True)
    z = left
    for factor, slip, pay in rows:
        z = above((factor * z + slip - arb(pay)).max(arb(0)))
    if not z == 0:
        raise CertificateError("the payments of the witness leave something over")


def payments(stretch: Mapping[str, Any]) -> Floats | None:
    """What the last steps of a stretch absorb; None if all its steps are paid for plainly."""
    if stretch.get("pays") is None:
        return None
    pays = np.asarray(stretch["pays"], dtype=np.float64)
    steps = stretch["last"] - stretch["first"]
    if pays.ndim != 1 or not 0 < len(pays) <= steps:
        raise CertificateError("the witness has payments for another number of steps")
    if not np.all(np.isfinite(pays) & (pays >= 0)):
        raise CertificateError("a payment of the witness is not a length")
    return pays


def shifted(case: Case, first: int, last: int, lengths: list[Ball], pays: Floats | None) -> Pushed:
    """(record, payment, both) of each step in units of noise, rounded up to doubles.

    One row, and how often it counts, where all steps are alike.
    """
    noises, cache = case.noises(first, last), dict[float, tuple[float, ...]]()
    alike = case.constant
    steps = min(last - first, 1) if alike and pays is None else last - first
    rows = []
    paid = [0.0] * steps if pays is None else pays.tolist()
    for s, nu, pay in zip(repeated(lengths, steps), repeated(noises, steps), paid, strict=True):
        row = cache.get(pay) if alike else None
        if row is None:
            one, both = (ratio(x, nu) if x != 0 else arb(0) for x in (s, s + arb(pay)))
            own = ratio(arb(pay), nu) if pay else arb(0)
            row = tuple(float_above(x) if x != 0 else 0.0 for x in (one, own, both))
            cache[pay] = row
        rows.append(row)
    found = np.array(rows).reshape(steps, 3)
    if not np.all(np.isfinite(found)):
        raise CertificateError("a step without noise uses the record")
    return found, (last - first if alike and pays is None else 1)


def priced(pushed: Pushed, menu: Sequence[Sequence[float]], make: Callable[..., Step]) -> Counted:
    """Each step charged to the first pair of the menu that is at least as long in every way.

    The menu holds (record, payment) pairs; steps that are all alike need none.
    """
    rows, repeats = pushed
    rows = rows[(rows > 0).any(axis=1)]
    if not len(rows):
        return []
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    if len(kinds) <= FEW:
        return [
            (make(*kind), int(count) * repeats)
            for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
        ]
    check_pairs(len(menu))
    offers = sorted({(float(s), float(a), _sum_up(s, a)) for s, a in menu}, key=lambda o: o[2])
    open_, charges = np.arange(len(kinds)), Counted()
    for offer in offers:
        fits = np.all(kinds[open_] <= np.array(offer), axis=1)
        if fits.any():
            charges.append((make(*offer), int(counts[open_[fits]].sum()) * repeats))
            open_ = open_[~fits]
    if len(open_):
        raise CertificateError("a step is dearer than every pair the witness offers")
    return charges


def _sum_up(a: float, b: float) -> float:
    return math.nextafter(float(a) + float(b), math.inf)


def replaced(rate: float) -> Callable[..., Step]:
    """The pair of a batch without replacement."""
    return lambda record, pay, both: Replaced(rate, both, pay)


def opposed(rate: float) -> Callable[..., Step]:
    """The pair of a Poisson batch with one record replaced."""
    return lambda record, pay, both: Opposed(rate, pay, both, record)
