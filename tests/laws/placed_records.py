"""Where the records of a person can be, one placement after another, and what follows exactly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
from scipy.special import log_ndtr


def placements(
    batches: int, size: int, records: int, *, spread: bool
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every (m_1, ..., m_B) with its probability."""
    each = 1 if spread else size
    total = math.comb(batches * each, records)

    def rest(place: int, left: int, ways: int) -> Iterator[tuple[tuple[int, ...], int]]:
        if place == batches:
            if left == 0:
                yield (), ways
            return
        for m in range(min(each, left) + 1):
            for tail, count in rest(place + 1, left - m, ways * math.comb(each, m)):
                yield (m, *tail), count

    for m, ways in rest(0, records, 1):
        yield m, Fraction(ways, total)


def minorant_energy(m: Sequence[int]) -> Fraction:
    """Sum of N^2/l over the faces of the greatest convex minorant of the partial sums of m."""
    faces: list[tuple[int, int]] = []
    for rise in m:
        length = 1
        while faces and Fraction(faces[-1][0], faces[-1][1]) > Fraction(rise, length):
            before = faces.pop()
            rise, length = rise + before[0], length + before[1]
        faces.append((rise, length))
    return sum((Fraction(n * n, length) for n, length in faces), Fraction(0))


def energies_of_orders(m: Sequence[int]) -> Counter[Fraction]:
    """The energies of all orders of m."""
    return Counter(minorant_energy(order) for order in permutations(m))


def energies_of_cycles(m: Sequence[int]) -> Counter[Fraction]:
    """Sum over the cycles of N^2/l, for all permutations."""
    found: Counter[Fraction] = Counter()
    for images in permutations(range(len(m))):
        seen: set[int] = set()
        total = Fraction(0)
        for start in range(len(m)):
            place, rise, length = start, 0, 0
            while place not in seen:
                seen.add(place)
                rise, length, place = rise + m[place], length + 1, images[place]
            if length:
                total += Fraction(rise * rise, length)
        found[total] += 1
    return found


def mixture_deltas(
    shifts: np.ndarray, weights: np.ndarray, deviation: float, epsilon: float
) -> tuple[float, float]:
    """The mixture of N(shift, deviation^2) against N(0, deviation^2), in both orders, exactly.

    All shifts >= 0: the likelihood ratio rises, so the best test is a half line.
    """
    means = np.asarray(shifts, dtype=float) / deviation
    logs = np.log(np.asarray(weights, dtype=float))

    def loss(x: float) -> float:
        return float(np.logaddexp.reduce(logs + means * x - means**2 / 2))

    def crossing(level: float) -> float:
        low, high = -60.0, 60.0 + float(means.max())
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if loss(middle) < level else (low, middle)
        return (low + high) / 2

    share = np.exp(logs)
    if means.max() == 0:
        return 0.0, 0.0
    at = crossing(epsilon)
    first = float(share @ np.exp(log_ndtr(means - at))) - math.exp(epsilon + log_ndtr(-at))
    at = crossing(-epsilon)
    second = math.exp(log_ndtr(at)) - math.exp(epsilon) * float(
        share @ np.exp(log_ndtr(at - means))
    )
    return max(first, 0.0), max(second, 0.0)
