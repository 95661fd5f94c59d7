"""L: Theorem A.1 and Corollary A.3, shuffled cyclic mini-batches (Chien, Li 2025).

Theorem A.1 is the taut-string program with the extra demand that every impulse after the restart
is paid in full on arrival. It is kept to be compared: spreading an impulse over the steps that
follow it is what makes the taut string 1.6 to 4.8 times smaller on mini-batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError, UnsupportedError

_UP = 1 + 1e-11  # fewer than 1e4 roundings of positive terms
_SEQUENCES = 4096


def fixed_sequence(
    c: float,
    s: float,
    nu: float,
    steps: int,
    arrivals: Sequence[int],
    diameter: float = math.inf,
) -> float:
    """Chien & Li 2025, Theorem A.1: kappa with R_alpha <= kappa alpha, the record being read at
    ``arrivals``.

    kappa = (1/2 nu^2) min over tau of the least sum_{t >= tau} (s_t + a_t)^2 with
    sum_{t >= tau} a_t c^(T-1-t) >= d_tau c^(T-tau): s_t + a_t = max(s_t, k c^(T-1-t)), k from one
    root (the minimum over their beta of s^2/beta + a^2/(1-beta) is (s+a)^2). d_tau is Lemma A.2's
    distance, at most the diameter. tau: 0 and right after each arrival, every choice being valid.
    For updates that are c-Lipschitz (exponent 1 of their Hoelder condition).
    Status: sound; the printed proof conditions in an order that fails, and is repaired; the sums
    run to the last epoch begun, E-1.

    >>> round(fixed_sequence(1.0, 1.0, 1.0, steps=4, arrivals=[0]), 6)
    0.166667
    """
    if not c > 0 or not nu > 0:
        raise DescriptionError("c, nu", (c, nu), "both positive", "the theorem divides by both")
    impulses = np.zeros(steps)
    impulses[list(arrivals)] = s
    with np.errstate(over="ignore", under="ignore"):
        impulses /= nu  # in units of the noise
    diameter = diameter / nu
    best = _squares(impulses)
    distance = 0.0
    for tau in range(1, steps):
        distance = min(c * distance + float(impulses[tau - 1]), diameter)
        if impulses[tau - 1] > 0:
            best = min(best, _from(c, impulses[tau:], distance))
    return max(best / 2 * _UP, 0.0 if s == 0 or len(arrivals) == 0 else 1e-290)


# A conversion asks for some hundred orders, and kappa is the same in all of them.
_remembered = lru_cache(maxsize=4096)(fixed_sequence)


def _squares(values: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.sum(values**2))


def _from(c: float, impulses: NDArray[np.float64], distance: float) -> float:
    """Least sum of (s_t + a_t)^2 that pays ``distance`` besides every impulse."""
    left = len(impulses)
    log_c = math.log(c)
    # Units of the end for c <= 1, of the restart for c > 1: no power overflows.
    shift = 0.0 if c <= 1 else left * log_c
    weight = np.exp(np.arange(left - 1, -1, -1) * log_c - shift)
    goal = distance * math.exp(left * log_c - shift)
    with np.errstate(over="ignore", invalid="ignore"):
        threshold = np.divide(impulses, weight, out=np.full(left, math.inf), where=weight > 0)
        order = np.argsort(threshold)
        squares = np.cumsum((weight**2)[order])
        levels = goal + np.cumsum((weight * impulses)[order])
        levels /= np.where(squares > 0, squares, 1.0)
        # k is the level of the first n steps once the next threshold lies above it.
        after = np.append(threshold[order][1:], math.inf)
        n = int(np.argmax(levels <= after))
        cost = float(np.sum(np.maximum(impulses, levels[n] * weight) ** 2))
    return math.inf if math.isnan(cost) else cost  # weights beyond the range of doubles: no help


def shuffled(
    c: float,
    s: float,
    nu: float,
    steps: int,
    batches: int,
    order: float,
    diameter: float = math.inf,
    reshuffled: bool = False,
) -> float:
    """Chien & Li 2025, Corollary A.3: R_alpha <= log(E_B exp((alpha-1) eps(alpha, B)))/(alpha-1).

    The average is over the position of the record, drawn once, or anew in each epoch
    (``reshuffled``; the number of sequences must then be small). Status: sound (the proof cites
    the divergence of Kullback and Leibler for joint convexity; Lemma A.5 is what it needs).

    >>> once = shuffled(1.0, 1.0, 1.0, steps=4, batches=2, order=2.0)
    >>> once <= 2.0 * fixed_sequence(1.0, 1.0, 1.0, steps=4, arrivals=[1, 3])
    True
    """
    if not order > 1:
        raise DescriptionError("order", order, "greater than 1", "Renyi divergence needs it")
    epochs = -(-steps // batches)
    sequences: Iterable[tuple[int, ...]]
    if reshuffled:
        if batches**epochs > _SEQUENCES:
            raise UnsupportedError(
                f"Corollary A.3 averages over {batches}^{epochs} sequences of batches, more than "
                f"{_SEQUENCES}: it cannot be computed. The boundary policy covers reshuffled runs"
            )
        sequences = itertools.product(range(batches), repeat=epochs)
    else:
        sequences = ((j,) * epochs for j in range(batches))
    exponents = []
    for sequence in sequences:
        read = tuple(e * batches + j for e, j in enumerate(sequence) if e * batches + j < steps)
        kappa = _remembered(c, s, nu, steps, read, diameter)
        exponents.append((order - 1) * order * kappa)
    mean = np.logaddexp.reduce(exponents) - math.log(len(exponents))
    slack = 4 * len(exponents) * 2.0**-53 * (1 + max(exponents))
    return (max(float(mean), 0.0) + slack) / (order - 1)
