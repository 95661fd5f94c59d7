"""What a privacy guarantee tells generalisation bounds, whatever form it came in.

Bounds here speak of replacing one record, because the argument swaps a training record for a
fresh one. A guarantee for zeroed-out records is turned into one for replaced records first: out
with the old record and in with the new one are two changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lastiterate.composition import OptimalComposition, Pair, pure_kl
from lastiterate.curves.base import Curve
from lastiterate.errors import DescriptionError

_DELTAS = tuple(10.0 ** (-k / 2) for k in range(3, 31))  # where a curve is asked for pairs
_ORDERS = (1.0001, 1.01, 1.1)  # Renyi divergences of any order above 1 bound the KL divergence


@runtime_checkable
class PrivacyCurve(Protocol):
    """A Guarantee or a Curve: anything that answers these three."""

    @property
    def mu(self) -> float | None: ...
    def epsilon(self, delta: float) -> float: ...
    def delta(self, epsilon: float) -> float: ...


@dataclass(frozen=True)
class Privacy:
    """The facts that bounds use, all for replace-one neighbours.

    ``pairs``: (epsilon, delta) guarantees that hold; ``total_variation``: delta at epsilon 0;
    ``kl``: bound on the KL divergence of neighbours (inf: none known); ``pure``: epsilon at
    delta 0, or None; ``mu``: of Gaussian differential privacy, or None.
    """

    pairs: tuple[Pair, ...]
    total_variation: float
    kl: float
    pure: float | None
    mu: float | None


def read_privacy(guarantee: PrivacyCurve | tuple[float, float], adjacency: str | None) -> Privacy:
    """Collect the facts.

    >>> read_privacy((1.0, 0.0), None).pure
    1.0
    """
    changes = {"replace": 1, "zero-out": 2}.get(adjacency or _own_adjacency(guarantee))
    if changes is None:
        why = "a generalisation bound needs to know what a neighbouring dataset is"
        raise DescriptionError("adjacency", adjacency, '"replace" or "zero-out"', why)
    unit = getattr(guarantee, "unit", None)
    if unit is not None and not unit.default:
        why = "the argument swaps any one record, whenever it is used"
        raise DescriptionError("unit", str(unit), "that of a single record", why)
    if isinstance(guarantee, tuple):
        return _from_pair(*_grouped(Pair(*guarantee), changes))
    if not isinstance(guarantee, PrivacyCurve):
        allowed = "an (epsilon, delta) tuple, a Guarantee or a Curve"
        why = "anything else does not say how private the output is"
        raise DescriptionError("guarantee", guarantee, allowed, why)
    return _from_curve(guarantee, changes)


def _own_adjacency(guarantee: object) -> str:
    training = getattr(guarantee, "training", None)
    return str(getattr(training, "adjacency", "replace"))


def _from_pair(epsilon: float, delta: float) -> Privacy:
    worst = OptimalComposition(epsilon, delta, 1)
    pure = epsilon if delta == 0.0 and epsilon < math.inf else None
    kl = math.inf if pure is None else pure_kl(pure)
    return Privacy((Pair(epsilon, delta),), worst.delta(0.0), kl, pure, None)


def _from_curve(curve: PrivacyCurve, changes: int) -> Privacy:
    pairs = [_grouped(pair, changes) for pair in _asked(curve)]
    pure: float | None = None
    # a Guarantee refuses delta = 0; a bare curve may know a pure epsilon
    if isinstance(curve, Curve) and (least := curve.epsilon(0.0)) < math.inf:
        pure = changes * least
        pairs.append(Pair(pure, 0.0))
    mu = None if curve.mu is None else changes * curve.mu
    kl = math.inf if pure is None else pure_kl(pure)
    if mu is not None:
        kl = min(kl, mu * mu / 2.0)
    rdp = getattr(curve, "rdp", None)
    if changes == 1 and rdp is not None:
        kl = min(kl, *(float(rdp(order)) for order in _ORDERS))
    variation = min(1.0, changes * curve.delta(0.0))
    return Privacy(tuple(pairs), variation, kl, pure, mu)


def _asked(curve: PrivacyCurve) -> Iterator[Pair]:
    for delta in _DELTAS:
        yield Pair(curve.epsilon(delta), delta)


def _grouped(pair: Pair, changes: int) -> Pair:
    """(2 epsilon, (1 + e^epsilon) delta) for two changes."""
    if changes == 1 or pair.delta == 0.0:
        return Pair(changes * pair.epsilon, pair.delta)
    growth = 1.0 + math.exp(min(pair.epsilon, 700.0))
    return Pair(2.0 * pair.epsilon, min(1.0, growth * pair.delta))
