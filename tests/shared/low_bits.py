"""A generic distinguisher by low bits: what it sees, how it learns, and what its verdict proves.

Releases of two neighbouring data sets are turned into a few discrete features of their last bits:
trailing zeros, residues of the significand, gaps to the nearest multiples of public units, signs
of zeros. Half of the releases choose the event that favours one world most, the other half tests
it: exact binomial bounds say below which delta a claim (epsilon, delta) is refuted.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Floats = NDArray[np.float64]

CONFIDENCE = 1e-8  # of one bound: hundreds of tests do not raise a false alarm


def features(releases: Floats, unit: float) -> dict[str, NDArray[np.int64]]:
    """Discrete views of every release; ``unit``: the size of what one record moves it by."""
    bits = releases.view(np.int64)
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    with np.errstate(divide="ignore", over="ignore"):
        exponent = np.frexp(releases)[1].astype(np.int64)
    low = np.where(releases == 0, 1 << 52, mantissa & -mantissa)
    trailing = np.round(np.log2(low.astype(np.float64))).astype(np.int64)
    zeros = np.where(releases == 0, 99, trailing + exponent)  # of the last bit that is set
    size = np.clip(exponent - math.frexp(unit)[1], -30, 6)
    found = {
        "last bit": zeros,
        "trailing": trailing,
        "size and trailing": 100 * size + trailing,
        "sign of zero": (np.signbit(releases) & (releases == 0)).astype(np.int64),
        "is zero": (releases == 0).astype(np.int64),
    }
    for k in (1, 2, 3, 5):
        found[f"mod {2**k}"] = mantissa & ((1 << k) - 1)
    for k in (40, 44, 48, 52):  # multiples of the doubles near ``unit``, of which noise may know
        spacing = math.ldexp(unit, -k)
        gap = np.abs(releases / spacing - np.rint(releases / spacing))
        found[f"gap {k}"] = 100 * size + np.ceil(8 * gap).astype(np.int64)
    return found


def refuted_delta(one: Floats, other: Floats, epsilon: float, unit: float) -> float:
    """With confidence no (epsilon, delta) with a smaller delta holds; 0: nothing was found."""
    found = 0.0
    half_one, half_other = len(one) // 2, len(other) // 2
    seen_one, seen_other = features(one, unit), features(other, unit)
    for name in seen_one:
        for a, b, m, n in (
            (seen_one[name], seen_other[name], half_one, half_other),
            (seen_other[name], seen_one[name], half_other, half_one),
        ):
            event = _learnt(a[:m], b[:n], epsilon)
            hits = int(np.isin(a[m:], event).sum()), int(np.isin(b[n:], event).sum())
            least = _bound(hits[0], len(a) - m, upper=False)
            most = _bound(hits[1], len(b) - n, upper=True)
            found = max(found, least - math.exp(epsilon) * most)
    return found


def _learnt(a: NDArray[np.int64], b: NDArray[np.int64], epsilon: float) -> NDArray[np.int64]:
    """The values that are more than e^epsilon times as frequent in a as in b."""
    values = np.unique(a)
    many = np.searchsorted(np.sort(a), values, "right") - np.searchsorted(np.sort(a), values)
    few = np.searchsorted(np.sort(b), values, "right") - np.searchsorted(np.sort(b), values)
    return values[many / len(a) > 1.5 * math.exp(epsilon) * few / len(b) + 10 / len(a)]


def _bound(hits: int, runs: int, *, upper: bool) -> float:
    """Clopper and Pearson."""
    if upper:
        return 1.0 if hits == runs else float(beta.ppf(1 - CONFIDENCE, hits + 1, runs - hits))
    return 0.0 if hits == 0 else float(beta.ppf(CONFIDENCE, hits, runs - hits + 1))
