"""The cycle law: what k records of one person cost when a secret shuffle places them.

One pass over B batches, m_t records of the person in batch t: the taut string of non-expansive
steps costs g(m), the sum of N^2/l over the faces of the greatest convex minorant of the partial
sums of m (rise N, length l). If every order of the batches is equally likely, the faces are like
the cycles of a uniformly random permutation. This file computes that law, rounded up. The proof is
in docs/theory/privacy-units.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from lastiterate.errors import DescriptionError
from lastiterate.theory.cost_law import CostLaw, power
from lastiterate.theory.positions import UNIT, Floats

Complex = NDArray[np.complex128]

FINEST = 200  # cells for a cost of one
COARSEST = 8
MOST_BATCHES = 4000  # moments are convolved term by term
MOST_RECORDS = 200
MOST_CELLS = 400_000  # of all epochs together, where a verifier adds them up
_WORK = 2.4e8  # complex products that a law may take: some seconds
_CHECKED, _MOST_CHECKED = 1.2e7, 3.2e7  # products that a verifier is asked for, and at the most
_CHECKED_CELLS = 5, 40  # which need not be narrow: a verifier rounds costs to both sides
_ROUGH = (0.5, 1.0, 2.0, 4.0, 8.0)  # enough to guess how far a law reaches
_TILTS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0, 10.0, 13.0)
_ROUNDS = 4  # of looking for the last cell that matters
_ROWS = 16  # frequencies at a time: what they need stays near the processor
_UNRESOLVED = 1e-3  # of delta: so much mass may go to the worst case


@dataclass(frozen=True)
class Placement:
    """``records`` of a person in ``batches`` of ``size``, every order of the batches alike.

    ``spread``: no two of them in one batch. Otherwise every slot is as likely as every other.

    >>> Placement(batches=6, records=3, size=2, spread=True).worst
    3
    >>> Placement(batches=6, records=3, size=2, spread=False).worst
    6
    """

    batches: int
    records: int
    size: int
    spread: bool

    def __post_init__(self) -> None:
        room = self.batches if self.spread else self.batches * self.size
        if not 1 <= self.records <= room:
            why = "the guarantee is averaged over the places that they can have"
            raise DescriptionError("records of a person", self.records, f"1 to {room}", why)

    @property
    def together(self) -> int:
        """The most records of the person that one batch can hold."""
        return 1 if self.spread else min(self.size, self.records)

    @property
    def worst(self) -> int:
        """No placement costs more: N <= r l on every face, so the sum of N^2/l is at most r k."""
        return self.together * self.records

    @cached_property
    def shares(self) -> Floats:
        """Row N - 1: a_N(l) = (slots)_N / (l S^N), S all slots, slots those in l batches.

        A permutation has given cycles of lengths l_1, l_2, ... on chosen elements with probability
        1/(l_1 l_2 ...), and N given records fall into l batches in (slots)_N ways. Off by at most
        `shares_off` relatively.
        """
        lengths = np.arange(1.0, self.batches + 1)
        each = 1 if self.spread else self.size
        slots, every = lengths * each, float(self.batches * each)
        rows = [slots / every / lengths]
        for used in range(1, self.records):
            rows.append(rows[-1] * (np.maximum(slots - used, 0.0) / every))
        return np.array(rows)

    @property
    def shares_off(self) -> float:
        """Relative error of `shares`."""
        return 4 * (self.records + 2) * UNIT

    @cached_property
    def damped(self) -> Floats:
        """The shares times exp(-k l/B): what leaves the B batches is then small in a transform."""
        lengths = np.arange(1.0, self.batches + 1)
        return np.asarray(self.shares * np.exp(-self.records * lengths / self.batches))

    @property
    def growth(self) -> Floats:
        """exp(k L/B) for L = 0, ..., B, which undoes the damping of a product."""
        return np.exp(self.records * np.arange(self.batches + 1.0) / self.batches)

    @property
    def scale(self) -> float:
        """S^k / (S)_k, which makes a law of the products of shares."""
        every = self.batches * (1 if self.spread else self.size)
        return math.prod(every / (every - used) for used in range(self.records))

    def cells(self, fineness: int) -> NDArray[np.int64]:
        """Row N - 1: N^2/l in units of 1/fineness, rounded up."""
        lengths = np.arange(1, self.batches + 1)
        counts = np.arange(1, self.records + 1)[:, None]
        return np.asarray(-(-(counts**2 * fineness) // lengths), dtype=np.int64)

    def top(self, fineness: int) -> int:
        """No sum of cells is larger: each of at most k cycles is rounded up by less than one."""
        return self.worst * fineness + self.records


def _splits(records: int) -> Iterator[tuple[int, int, int]]:
    """(kappa, N, ways): of kappa records the first shares its cycle with N - 1 others."""
    for left in range(1, records + 1):
        for count in range(1, left + 1):
            yield left, count, math.comb(left - 1, count - 1)


def _totals(shares: Floats) -> list[Floats]:
    """F_0, ..., F_k: row kappa, at L, is the weight of kappa records in cycles of L batches in all.

    F_kappa = sum over N of C(kappa - 1, N - 1) a_N * F_(kappa - N), a convolution in the lengths.
    Nothing is negative, so every sum is right to within `_sums_off` relatively.
    """
    records, batches = shares.shape
    found = [np.zeros(batches + 1) for _ in range(records + 1)]
    found[0][0] = 1.0
    for left, count, ways in _splits(records):
        rest = found[left - count]
        if count == left:
            found[left][1:] += ways * shares[count - 1]
        else:
            found[left][1:] += ways * np.convolve(shares[count - 1], rest)[:batches]
    return found


def _rough_total(shares: Floats) -> float:
    """The sum of F_k of `_totals` by Fourier transforms: soon, and to a few digits only."""
    records, batches = shares.shape
    points = int(fft.next_fast_len(2 * batches + 1, real=True))
    transforms = fft.rfft(np.pad(shares, ((0, 0), (1, 0))), points, axis=1)
    found = [np.ones(transforms.shape[1], dtype=np.complex128)]  # of F_0
    for left in range(1, records + 1):
        ways = [math.comb(left - 1, count - 1) for count in range(1, left + 1)]
        whole = sum(w * transforms[n] * found[left - 1 - n] for n, w in enumerate(ways))
        total = fft.irfft(whole, points)[: batches + 1]
        found.append(fft.rfft(total, points))
    return float(total.sum())


def _sums_off(placement: Placement) -> float:
    """Relative error of a weight in `_totals`, shares included."""
    records = placement.records
    return 1.01 * records * (placement.shares_off + (placement.batches + records + 8) * UNIT)


@dataclass(frozen=True)
class Chernoff:
    """Bounds of the mass at or beyond a cell, from exponential moments.

    A sum reaches a cell if and only if it does with all terms cut down to the cap: the moments of
    those are far smaller, where several records seldom share a batch but then cost N^2.
    """

    cap: int
    tilts: Floats  # per cell
    logs: Floats  # of the moments, rounded up

    @classmethod
    def of(
        cls, placement: Placement, fineness: int, cap: int, epochs: int, rough: bool = False
    ) -> Chernoff:
        """Of all tilts; ``rough``: of a few, and no bounds but guesses."""
        cells, shares = np.minimum(placement.cells(fineness), cap), placement.shares
        off, kept, logs = _sums_off(placement), [], []
        for tilt in _ROUGH if rough else _TILTS:
            with np.errstate(over="ignore", invalid="ignore"):
                lifted = shares * np.exp(np.where(shares > 0, cells * (tilt / fineness), 0.0))
                total = _rough_total(lifted) if rough else float(_totals(lifted)[-1].sum())
                moment = total * placement.scale
            if math.isfinite(moment) and moment > 0:
                exponents = tilt * placement.worst * 8 * UNIT  # the rounding of the exponentials
                kept.append(tilt / fineness)
                log = math.log(moment) + 2 * off + placement.records * exponents + 1e-9
                logs.append(epochs * log)
        return cls(cap, np.array(kept), np.array(logs))

    def beyond(self, cells: Floats) -> Floats:
        """Upper bounds of P(sum >= cell)."""
        answer, cells = np.ones(len(cells)), np.minimum(cells, self.cap)
        for tilt, log in zip(self.tilts, self.logs, strict=True):
            answer = np.minimum(answer, np.exp(np.minimum(log - tilt * cells, 0.0)))
        return answer * (1 + 1e-9)


@lru_cache(maxsize=64)  # whoever only asks whether the law applies asks this again and again
def fineness(placement: Placement, delta: float, epochs: int = 1, *, checked: bool = False) -> int:
    """Cells for a cost of one, as many as the work allows; 0 if not even a few can be checked.

    ``checked``: what a verifier can follow, who counts the ways of one epoch in whole numbers.

    >>> fineness(Placement(batches=1000, records=10, size=60, spread=True), delta=1e-6)
    200
    >>> fineness(Placement(batches=10**6, records=10, size=60, spread=True), delta=1e-6)
    0
    """
    if placement.batches > MOST_BATCHES or placement.records > MOST_RECORDS:
        return 0
    few, many = _CHECKED_CELLS
    slots = placement.batches * (1 if placement.spread else placement.size)
    digits = placement.records * (math.log2(slots) + 4) / 200
    least = few * placement.records**2 * placement.batches * digits  # for a span of one
    if (
        least * min(placement.records, 3) > _MOST_CHECKED
        or epochs * placement.top(many) > MOST_CELLS
    ):
        return 0
    span = circle_size(placement, COARSEST, delta / epochs, rough=True)[0] / COARSEST
    each = placement.records**2 * placement.batches * span
    if few * each * digits > _MOST_CHECKED:
        return 0
    if checked:
        return int(max(few, min(many, _CHECKED / (each * digits))))
    if epochs > 1:
        span = circle_size(placement, COARSEST, delta, epochs, rough=True)[0] / COARSEST
        each = placement.records**2 * placement.batches * span
    return int(max(COARSEST, min(FINEST, 2 * _WORK / each)))


@lru_cache(maxsize=16)  # the law does not know of the noise that is being calibrated
def cycle_law(
    placement: Placement, delta: float, cells: int | None = None, epochs: int = 1
) -> CostLaw:
    """The law of g, costs and masses rounded up, for a question about this delta.

    ``epochs``: of the sum of so many independent ones.

    *Statement.* (m_t) in exchangeable order: g(m) has the law of the sum over the cycles C of an
    independent uniform permutation of the batches of N_C^2/|C|, N_C the records in C.

    *Computed as.* Costs are rounded up to cells. The characteristic function of their sum on a
    circle of M cells is found frequency by frequency: k convolutions over the lengths of cycles.
    What passes M comes back at the beginning, where it only adds mass; besides, a bound of it goes
    to the worst cost r k. Every mass is the computed one plus a bound of its error, or Chernoff's
    bound where that is smaller.

    >>> law = cycle_law(Placement(batches=6, records=2, size=2, spread=False), delta=1e-5)
    >>> bool(1.1060606 <= law.costs @ law.weights < 1.12)
    True
    """
    fine = cells or fineness(placement, delta, epochs)
    circle, chernoff = circle_size(placement, fine, delta, epochs)
    beyond = float(chernoff.beyond(np.array([float(circle)]))[0])
    tail = beyond if circle <= epochs * placement.top(fine) else 0.0
    values, error = _characteristic(placement, fine, circle)
    # A power of numbers of modulus <= 1, each off by no more than the error; products round.
    values, error = power(values, epochs), epochs * (error + 4 * UNIT) if epochs > 1 else error
    masses = np.asarray(fft.irfft(values, circle))
    error = 1.01 * (error + 8 * UNIT * math.log2(circle))
    places = np.arange(float(circle))
    masses = np.minimum(np.maximum(masses, 0.0) + error, chernoff.beyond(places))
    worst = epochs * placement.worst
    costs = np.minimum(np.append(places / fine, worst), worst)
    weights = np.append(masses, tail)
    kept = weights > 0
    return CostLaw(costs[kept] * (1 + 2 * UNIT), weights[kept])


@lru_cache(maxsize=64)
def circle_size(
    placement: Placement, fine: int, delta: float, epochs: int = 1, rough: bool = False
) -> tuple[int, Chernoff]:
    """How many cells: beyond them there is a negligible mass, or nothing at all."""
    need = epochs * placement.top(fine) + 1
    for _ in range(_ROUNDS):
        cap, chernoff = need, Chernoff.of(placement, fine, need, epochs, rough)
        small = np.flatnonzero(chernoff.beyond(np.arange(cap + 1.0)) <= delta * _UNRESOLVED)
        need = int(small[0]) if len(small) else cap
        if need > 0.9 * cap:
            break
    return int(fft.next_fast_len(max(need, 2), real=True)), chernoff


def _characteristic(placement: Placement, fine: int, circle: int) -> tuple[Complex, float]:
    """E exp(-2 pi i w sum / circle) for w = 0, ..., circle/2, and a bound of every error."""
    shares, cells = placement.damped, placement.cells(fine)
    batches, records = placement.batches, placement.records
    points = int(fft.next_fast_len(2 * batches + 1))
    frequencies = np.arange(circle // 2 + 1)
    answer, growth = np.empty(len(frequencies), dtype=np.complex128), placement.growth
    for first in range(0, len(frequencies), _ROWS):
        rows = frequencies[first : first + _ROWS, None]
        answer[first : first + _ROWS] = _rows(shares, cells, rows, circle, points) @ growth
    error = _fourier_error(placement, points) * placement.scale
    return answer * placement.scale, error + 8 * records * UNIT


def _rows(
    shares: Floats, cells: NDArray[np.int64], rows: NDArray[np.int64], circle: int, points: int
) -> Complex:
    """F_k of the damped shares at some frequencies, one per row."""
    records, batches = shares.shape
    signals, transforms = [], []
    for share, cell in zip(shares, cells, strict=True):
        angle = (rows * (cell % circle)) % circle * (-2 * math.pi / circle)
        signal = np.zeros((len(rows), batches + 1), dtype=np.complex128)
        signal[:, 1:].real, signal[:, 1:].imag = share * np.cos(angle), share * np.sin(angle)
        signals.append(signal)
        transforms.append(fft.fft(signal, points, axis=1))
    found: list[Complex] = []  # transforms of F_1, F_2, ...
    for left in range(1, records + 1):
        whole = signals[left - 1]
        if left > 1:
            total = np.zeros_like(transforms[0])
            for count in range(1, left):
                ways = math.comb(left - 1, count - 1)
                total += ways * (transforms[count - 1] * found[left - count - 1])
            whole = whole + fft.ifft(total, axis=1)[:, : batches + 1]
        if left < records:
            found.append(np.asarray(fft.fft(whole, points, axis=1)))
    return whole


def _fourier_error(placement: Placement, points: int) -> float:
    """A bound of |computed - exact| of the sum over the lengths of F_k, at every frequency.

    The exact F_kappa at a frequency is nowhere larger than F at frequency 0, which `_totals` has.
    Norms |.|_1, |.|_2 are those at 0. One transform is off by a relative t = 8 UNIT log2(points) in
    l2 (Higham 2002, Theorem 24.2). A convolution a * F of which a is off by da and F by dF in l2
    is off by |a|_1 dF + |F|_1 da in l2 (Young); its transforms and the way back add
    t (|a|_2 |F|_1 + 2 |a|_1 |F|_2), products and sums (k + 8) UNIT |a|_1 |F|_2. At the end the
    product with the growth w is off by |w|_2 dF (Cauchy-Schwarz), and by its own rounding,
    (B + 8 + 4 k) UNIT |w|_2 |F|_2. The factor 1.01 covers products of errors. Damping keeps
    sum |a|_1 |F|_1 near |F|_1, so that errors do not double with every record.
    """
    shares, records = placement.damped, placement.records
    one_way = 8 * UNIT * math.log2(points)
    # The damping, an angle below 2 pi, its cosine, a product.
    entry = placement.shares_off + (4 * records + 20) * UNIT
    sizes = _totals(shares)
    ones = [1.01 * float(row.sum()) for row in sizes]
    twos = [1.01 * float(np.linalg.norm(row)) for row in sizes]
    a_ones = 1.01 * shares.sum(axis=1)
    a_twos = 1.01 * np.linalg.norm(shares, axis=1)
    errors = [0.0] * (records + 1)
    for left, count, ways in _splits(records):
        a_one, a_two, rest = float(a_ones[count - 1]), float(a_twos[count - 1]), left - count
        if rest == 0:
            errors[left] += ways * entry * a_two
            continue
        errors[left] += ways * (
            a_one * errors[rest]
            + (entry + one_way) * a_two * ones[rest]
            + (2 * one_way + (records + 8) * UNIT) * a_one * twos[rest]
        )
    rounded = (placement.batches + 8 + 4 * records) * UNIT
    growth = 1.01 * float(np.linalg.norm(placement.growth))
    return 1.01 * growth * (errors[-1] + rounded * twos[-1])
