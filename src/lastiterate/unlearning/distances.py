"""How far every record has driven a run from the run without it: one float per record.

**Statement.** Update k of the run without the records S is c_k-Lipschitz, and at the run's own
iterate X_k its exact map differs from the one with S by at most (η_k/b)·Σ_{i∈S} ‖∇ℓ_i(X_k)‖. Run
both with the same batches and noise. They end at most Σ_{i∈S} ζ_i + ω apart, with

    ζ_i ← c_k·ζ_i + (η_k/b)·‖∇ℓ_i(X_k)‖,    ω ← c_k·ω + (what one update rounds).

*Proof.* Both updates are a map, the same noise, and a projection that brings no two points apart.
‖φ(X) − φ'(X')‖ ≤ ‖φ(X) − φ'(X)‖ + ‖φ'(X) − φ'(X')‖, and the sum of norms bounds the first. ∎

No bound on gradients is needed. Stored is ζ_i/P with P = Π c_k, so that an update touches only its
own batch; P is rounded up in each step, so that P_end/P_k is never below the product of the c.
"""

from __future__ import annotations

from math import fsum, inf, nextafter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy

Floats = NDArray[np.float64]

_LEAST = 2.0**-200  # of a contraction; a larger one is sound
_LOW, _HIGH = 2.0**-400, 2.0**400  # beyond them P starts again at 1


class Distances:
    """The distances of all records, update by update.

    Args:
        contraction: c_k of every update.
        shares: η_k/b, never below.
        rounded: what update k rounds, in two runs together.
        units: of every record: what is noted counts so many times. A gradient x ⊗ slope is noted
            by its slope, and ‖x‖ is its unit.

    >>> half = np.full(2, 0.5)
    >>> kept = Distances(half, np.ones(2), np.zeros(2), units=np.ones(3))
    >>> for norms in ([1.0, 2.0], [4.0, 0.0]):
    ...     kept.begin()
    ...     kept.note(np.array([0, 2]), np.array(norms))
    >>> [round(kept.of([i]), 12) for i in range(3)], round(kept.of([0, 2]), 12)
    ([4.5, 0.0, 1.0], 5.5)
    """

    def __init__(self, contraction: Floats, shares: Floats, rounded: Floats, units: Floats) -> None:
        self._c, self._shares, self._rounded, self._units = contraction, shares, rounded, units
        told = (each.tolist() for each in (contraction, shares, rounded))
        self._told = list(zip(*told, strict=True))  # plain floats: an update has little time
        self._each, self._product = np.zeros(len(units)), 1.0
        self._omega, self._done, self._factor = 0.0, 0, 0.0

    def begin(self) -> None:
        """The next update."""
        c, share, own = self._told[self._done]
        c = max(c, _LEAST)
        self._done += 1
        self._product = nextafter(self._product * c, inf)
        if not _LOW <= self._product <= _HIGH:
            self._each, self._product = self._raised(self._done - 1), 1.0
        if self._omega or own:
            moved = nextafter(c * self._omega, inf) if self._omega else 0.0
            self._omega = nextafter(moved + own, inf)
        self._factor = nextafter(nextafter(share, inf) / self._product, inf)

    def note(self, rows: Any, norms: Floats) -> None:
        """Records of this update's batch, each once, and how long their gradients are.

        What overflows is infinitely far, and is replayed. ``norms`` may be changed.
        """
        if isinstance(rows, slice):
            daxpy(norms, self._each[rows], a=self._factor)  # in place
        else:
            norms *= self._factor
            self._each[rows] += norms

    def of(self, records: Any, *more: float) -> float:
        """How far these records together, and ``more``, have driven the run, at most."""
        some = self._distances()[np.asarray(records, dtype=np.int64)]
        parts = [*some.tolist(), self._omega, *more]
        if not np.isfinite(parts).all():
            return inf
        try:
            total = fsum(parts)
        except OverflowError:
            return inf
        return nextafter(total, inf) if total else 0.0

    @property
    def common(self) -> float:
        """What all of it rounds, in any two runs."""
        return self._omega

    def following(self, first: int, own: float, common: float) -> Distances:
        """Those of somebody who has driven a run so far when update ``first`` comes."""
        one = Distances(
            self._c[first:], self._shares[first:], self._rounded[first:], units=np.ones(1)
        )
        one._each[:], one._omega = own, common
        return one

    def without(self, records: Any) -> tuple[Distances, float]:
        """The same with nothing of these records, and what they drove without the common part."""
        each = self._distances()
        gone = np.asarray(records, dtype=np.int64)
        kept = each.copy()
        kept[gone] = 0.0
        own = Distances.ended(each, np.zeros(1)).of(gone)
        return Distances.ended(kept, np.array([self._omega])), own

    def _raised(self, done: int) -> Floats:
        """ζ in units, lifted above what its products and sums, two roundings an update, lost."""
        with np.errstate(all="ignore"):
            held = (self._each + done * 2.0**-1070) * self._product
            return np.nextafter(held * (1 + (done + 4) * 2.0**-51), np.inf)

    def _distances(self) -> Floats:
        with np.errstate(all="ignore"):
            return np.nextafter(self._raised(self._done) * self._units, np.inf)

    def to_arrays(self) -> dict[str, Floats]:
        """What a file keeps of a run that has ended."""
        return {"distances": self._distances(), "common": np.array([self._omega])}

    @classmethod
    def ended(cls, distances: Floats, common: Floats) -> Distances:
        """Those of a run that has ended."""
        nothing = np.zeros(0)
        found = cls(nothing, nothing, nothing, np.ones(len(distances)))
        found._each, found._omega = distances.astype(np.float64), float(common[0])
        return found
