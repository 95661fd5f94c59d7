"""Lower references for ordered mini-batches: what linear updates really suffer.

Never a guarantee: the distance between these numbers and the bounds is what is not yet known.
The update x -> c'_k x (+ impulse at the record's steps) + noise has a Gaussian law, or a mixture
of them over hidden positions, so its privacy loss is computed, rounded down. ``c_low`` is the
smallest multiplier that the declared losses can reach, ``c`` the largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from lastiterate.bounds.positions import Floats, checked_steps

Adjacency = Literal["replace", "zero-out"]

# Smaller means move every threshold test's two errors the wrong way: a lower bound stays one.
_DOWN = 1 - 1e-9
_SAFE = 1e-9  # relative error of a tail probability and of the masses it is averaged with
_LATTICE = 1 << 12


def lower_cyclic(
    c_low: ArrayLike, c: ArrayLike, s: ArrayLike, nu: ArrayLike, batches: int
) -> float:
    """A mu that some linear run suffers at its worst position, rounded down.

    Multipliers within [c_low, c] are improved one at a time: the final signal to noise
    (P c' + Q)^2/(R c'^2 + S) has its maximum at c' = P S/(Q R).

    >>> bool(abs(lower_cyclic(0.0, 1.0, np.ones(6), 1.0, batches=3) - (4 / 3) ** 0.5) < 1e-6)
    True
    """
    low, high, ss, ns = _interval(c_low, c, s, nu, batches)
    if len(ss) == 0 or not np.any(ns > 0):
        return 0.0
    best = 0.0
    for multipliers in _candidates(low, high, batches):
        means = _means(multipliers, ss, ns, batches)
        position = int(np.argmax(means))
        best = max(best, float(means[position]))
    last = (len(ss) - 1) % batches
    for position in {last, 0}:
        found = _ascend(low, high, ss, ns, batches, position)
        best = max(best, float(_means(found, ss, ns, batches)[position]))
    return best * _DOWN


def lower_shuffled(
    c_low: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    nu: ArrayLike,
    batches: int,
    delta: float,
    adjacency: Adjacency = "zero-out",
) -> float:
    """An epsilon that some linear run with one hidden partition suffers at ``delta``.

    zero-out: the mixture over positions of N(m_j, 1) against N(0, 1); replace: of N(m_j/2, 1)
    against that of N(-m_j/2, 1). Both orders; any threshold test gives a lower bound.

    >>> lower_shuffled(1.0, 1.0, np.ones(6), 1.0, 3, 1e-5) > 0
    True
    """
    low, high, ss, ns = _interval(c_low, c, s, nu, batches)
    if len(ss) == 0 or not np.any(ns > 0):
        return 0.0
    share = np.full(batches, 1 / batches)
    best = 0.0
    for multipliers in _candidates(low, high, batches):
        means = _means(multipliers, ss, ns, batches)
        best = max(best, _epsilon(means * _DOWN, share, delta, adjacency))
    return best


def lower_reshuffled(
    c_low: ArrayLike,
    c: ArrayLike,
    s: ArrayLike,
    nu: ArrayLike,
    batches: int,
    delta: float,
    adjacency: Adjacency = "zero-out",
) -> float:
    """An epsilon that some linear run with a new hidden partition per epoch suffers at ``delta``.

    The mean is a sum of independent draws, one per epoch; its law is convolved on a lattice,
    each draw rounded down.

    >>> lower_reshuffled(1.0, 1.0, np.ones(6), 1.0, 3, 1e-5) > 0
    True
    """
    low, high, ss, ns = _interval(c_low, c, s, nu, batches)
    if len(ss) == 0 or not np.any(ns > 0):
        return 0.0
    best = 0.0
    for multipliers in _candidates(low, high, batches):
        signal, noise = _signals(multipliers, ss, ns)
        if noise == 0:  # below what doubles can hold
            continue
        padded = np.zeros(-(-len(ss) // batches) * batches)
        padded[: len(ss)] = signal / noise
        rows = padded.reshape(-1, batches)
        largest = float(rows.max(axis=1).sum())
        if not 0 < largest < math.inf:
            continue
        cell = largest / _LATTICE
        law = np.ones(1)
        for row in np.floor(rows / cell).astype(np.intp):
            law = np.convolve(law, np.bincount(row) / batches)
        means = np.arange(len(law), dtype=np.float64) * (cell * _DOWN)
        best = max(best, _epsilon(means, law, delta, adjacency))
    return best


def _interval(
    c_low: ArrayLike, c: ArrayLike, s: ArrayLike, nu: ArrayLike, batches: int
) -> tuple[Floats, Floats, Floats, Floats]:
    high, ss, ns = checked_steps(c, s, nu, batches)
    low = np.broadcast_to(np.asarray(c_low, dtype=np.float64), high.shape)
    unit = float(ns.max(initial=0.0)) or 1.0  # squares of noises stay within the range of doubles
    ss, ns = ss / unit, ns / unit
    return np.minimum(low, high), high, ss, ns


def _candidates(low: Floats, high: Floats, batches: int) -> Iterator[Floats]:
    """Multipliers to try: between the two ends throughout, or forgetting all but the end."""
    for share in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0):
        yield low + share * (high - low)
    if np.array_equal(low, high):
        return
    steps = len(low)
    length = 1
    while length < steps:
        yield np.where(np.arange(steps) < steps - length, low, high)
        # Forgetting just before the last ``length`` steps is enough if one step can do it.
        forget = high.copy()
        forget[steps - length] = low[steps - length]
        yield forget
        length = length * 2 if length > 4 else length + 1


def _signals(multipliers: Floats, s: Floats, nu: Floats) -> tuple[Floats, float]:
    """What each impulse has become at the end, and the standard deviation there (one scale)."""
    with np.errstate(divide="ignore"):
        logs = np.log(multipliers)
    ahead = np.append(np.cumsum(logs[:0:-1])[::-1], 0.0)
    factor = np.exp(ahead - ahead.max())
    return s * factor, float(np.sqrt(np.sum((nu * factor) ** 2)))


def _means(multipliers: Floats, s: Floats, nu: Floats, batches: int) -> Floats:
    """The mean of the final iterate, over its deviation, for each position of the record."""
    signal, noise = _signals(multipliers, s, nu)
    if noise == 0:
        return np.zeros(batches)
    position = np.arange(len(s)) % batches
    return np.bincount(position, weights=signal, minlength=batches) / noise


def _ascend(
    low: Floats, high: Floats, s: Floats, nu: Floats, batches: int, position: int
) -> Floats:
    """Coordinate ascent of the signal to noise of one position, sweeping forwards."""
    steps = len(s)
    cap = math.exp(min(600 / steps, 600.0))  # products stay within the float range
    lows, highs = np.minimum(low, cap).tolist(), np.minimum(high, cap).tolist()
    impulses = np.where(np.arange(steps) % batches == position, s, 0.0).tolist()
    noises = (nu**2).tolist()
    multipliers = list(highs)
    for _ in range(max(1, min(30, 100_000 // steps))):
        G, a, v = 1.0, 0.0, 0.0
        later = [(G, a, v)]
        for k in range(steps - 1, 0, -1):
            a, v = a + G * impulses[k], v + G * G * noises[k]
            G *= multipliers[k]
            later.append((G, a, v))
        A = V = 0.0
        for k in range(steps):
            G, a, v = later[steps - 1 - k]
            P, Q = G * A, G * impulses[k] + a
            R, S = G * G * V, G * G * noises[k] + v
            pick = P * S / (Q * R) if Q * R > 0 else highs[k]
            multipliers[k] = min(max(pick, lows[k]), highs[k])
            A = multipliers[k] * A + impulses[k]
            V = multipliers[k] ** 2 * V + noises[k]
    return np.array(multipliers)


def _epsilon(means: Floats, share: Floats, delta: float, adjacency: Adjacency) -> float:
    """sup over thresholds of log((P(x > t) - delta)/Q(x > t)), both orders, rounded down."""
    own = np.zeros_like(means) if adjacency == "zero-out" else -means / 2
    sides = (means + own, own)

    def tails(t: float, centres: Floats, upper: bool) -> float:
        tail = ndtr(centres - t) if upper else ndtr(t - centres)
        return float(share @ tail)

    def loss(t: float, upper: bool) -> float:
        inside, outside = sides if upper else sides[::-1]
        p = tails(t, inside, upper) * (1 - _SAFE) - delta
        q = tails(t, outside, upper) * (1 + _SAFE)
        return math.log(p / q) * (1 - _SAFE) - _SAFE if p > 0 and q > 0 else -math.inf

    def best_test(upper: bool) -> float:
        reach = float(means.max()) + 10
        points = np.linspace(-reach, reach, 41).tolist()
        centre = max(points, key=lambda t: loss(t, upper))
        width = points[1] - points[0]
        found = minimize_scalar(
            lambda t: -max(loss(t, upper), -1e6),
            bounds=(centre - width, centre + width),
            method="bounded",
            options={"xatol": 1e-6},
        )
        return max(loss(centre, upper), -float(found.fun), 0.0)

    return max(best_test(True), best_test(False))
