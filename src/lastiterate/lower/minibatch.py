"""Lower references of mini-batches: what linear updates really suffer.

Never a guarantee: the distance between these numbers and the bounds is what is not yet known.

Ordered batches: the update x -> c'_k x (+ the sensitivity at the record's steps) + noise has a
Gaussian law, or a mixture of them over hidden positions, so its privacy loss is computed, rounded
down. ``c_low`` is the smallest multiplier that the declared losses can reach, ``c`` the largest.

Random batches: the linear map x -> c x, with the record's gradients all pushing the same way, ends
in a mixture of Gaussians over inclusion patterns; without the record it ends in one Gaussian, and
with a record that pushes the opposite way in the mirrored mixture. Any threshold event bounds the
privacy loss of that pair from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from lastiterate.description import RandomAllocation
from lastiterate.lower.full_batch import gaussian_epsilon_down, unknown
from lastiterate.theory import dynamics
from lastiterate.theory.dynamics import Array, Steps
from lastiterate.theory.positions import Floats, checked_steps
from lastiterate.theory.run import Run

Adjacency = Literal["replace", "zero-out", "absent"]  # absent: it leaves no empty slot

MOST_STEPS = 1_000_000
CELLS = 1 << 16  # of the grid that the sum of impulses is rounded down to
THRESHOLDS = 96
# Smaller means move every threshold test's two errors the wrong way: a lower bound stays one.
_DOWN = 1 - 1e-9
_SAFE = 1e-9  # relative error of a tail probability and of the masses it is averaged with
_LATTICE = 1 << 12


# --- of a run -----------------------------------------------------------------------------------


def poisson(run: Run) -> Callable[[float], float]:
    """Linear losses under Poisson batches: only the L2 term shrinks, in every batch alike."""
    training = run.training
    if not run.steps.constant or run.loss.strong_convexity:  # then no loss of the class is linear
        return unknown
    c = max(1 - float(run.etas[0]) * run.loss.regularization, 0.0)
    s, nu = float(run.step_sensitivities[0]) / dynamics.ROUNDING**2, float(training.noises[0])
    rate, steps = training.batches.share(training.records), training.steps
    if training.adjacency == "replace":  # two opposite gradients, as far apart as is declared
        return lambda delta: linear_lower(Steps(c, s / 2, nu, steps), rate, delta, opposite=True)
    return lambda delta: linear_lower(Steps(c, s, nu, steps), rate, delta)


def without_replacement(run: Run) -> Callable[[float], float]:
    """Linear updates on subsets: all other records pull like the second of the two (or not at all).

    A batch then holds the record by a coin of its own, and the other run is one Gaussian. Every
    batch has its nominal size, so that quadratic losses shrink it too; with a record that is
    zeroed out, whose curvature would go as well, only the L2 term does.
    """
    training = run.training
    if not run.steps.constant:
        return unknown
    low, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    ends = {float(high[0])} if training.adjacency == "zero-out" else {float(low[0]), float(high[0])}
    s, nu = float(run.step_sensitivities[0]) / dynamics.ROUNDING**2, float(training.noises[0])
    rate = training.batches.divisor(training.records) / training.records / dynamics.ROUNDING
    maps = [Steps(min(c, 1.0), s, nu, training.steps) for c in ends]
    return lambda delta: max(linear_lower(steps, rate, delta) for steps in maps)


def ordered_batches(run: Run) -> Callable[[float], float]:
    """The linear references of cyclic, shuffled and reshuffled batches."""
    training = run.training
    batches = training.batches_per_epoch
    if batches is None or batches > MOST_STEPS:
        return unknown
    low, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    s, nu = run.step_sensitivities / dynamics.ROUNDING**2, training.noises
    if not training.batches.hidden:
        return lambda delta: gaussian_epsilon_down(lower_cyclic(low, high, s, nu, batches), delta)
    reference = lower_shuffled if training.batches.repeated else lower_reshuffled
    return lambda delta: reference(low, high, s, nu, batches, delta, training.adjacency)


def random_allocation(run: Run) -> Callable[[float], float]:
    """Linear losses under random allocation: only the L2 term shrinks, in every batch alike."""
    training, scheme = run.training, run.training.batches
    assert isinstance(scheme, RandomAllocation)
    batches = training.batches_per_epoch
    if run.loss.strong_convexity or batches is None or batches > MOST_STEPS:
        return unknown
    c = np.maximum(1 - run.etas * run.loss.regularization, 0.0)
    s, nu = run.step_sensitivities / dynamics.ROUNDING**2, training.noises
    reference = lower_shuffled if scheme.same_every_epoch else lower_reshuffled
    pair: Adjacency = "replace" if training.adjacency == "replace" else "absent"
    return lambda delta: reference(c, c, s, nu, batches, delta, pair)


# --- ordered batches ----------------------------------------------------------------------------


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
    for multipliers in _candidates(low, high):
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

    absent: the mixture over positions of N(m_j, 1) against N(0, 1). zero-out: the same or, where
    all other records push the opposite way, of N(2 m_j, 1) against that of N(m_j, 1): the empty
    slot says where the record is. replace: of N(m_j/2, 1) against that of N(-m_j/2, 1). Both
    orders; any threshold test gives a lower bound.

    >>> lower_shuffled(1.0, 1.0, np.ones(6), 1.0, 3, 1e-5) > 0
    True
    """
    low, high, ss, ns = _interval(c_low, c, s, nu, batches)
    if len(ss) == 0 or not np.any(ns > 0):
        return 0.0
    share = np.full(batches, 1 / batches)
    best = 0.0
    for multipliers in _candidates(low, high):
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
    for multipliers in _candidates(low, high):
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
        best = max(best, _epsilon(means, law, delta, adjacency, len(rows) * cell))
    return best


def _interval(
    c_low: ArrayLike, c: ArrayLike, s: ArrayLike, nu: ArrayLike, batches: int
) -> tuple[Floats, Floats, Floats, Floats]:
    high, ss, ns = checked_steps(c, s, nu, batches)
    low = np.broadcast_to(np.asarray(c_low, dtype=np.float64), high.shape)
    unit = float(ns.max(initial=0.0)) or 1.0  # squares of noises stay within the range of doubles
    ss, ns = ss / unit, ns / unit
    return np.minimum(low, high), high, ss, ns


def _candidates(low: Floats, high: Floats) -> Iterator[Floats]:
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
    """What each sensitivity has become at the end, and the standard deviation there (one scale)."""
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
    sensitivities = np.where(np.arange(steps) % batches == position, s, 0.0).tolist()
    noises = (nu**2).tolist()
    multipliers = list(highs)
    for _ in range(max(1, min(30, 100_000 // steps))):
        G, a, v = 1.0, 0.0, 0.0
        later = [(G, a, v)]
        for k in range(steps - 1, 0, -1):
            a, v = a + G * sensitivities[k], v + G * G * noises[k]
            G *= multipliers[k]
            later.append((G, a, v))
        A = V = 0.0
        for k in range(steps):
            G, a, v = later[steps - 1 - k]
            P, Q = G * A, G * sensitivities[k] + a
            R, S = G * G * V, G * G * noises[k] + v
            pick = P * S / (Q * R) if Q * R > 0 else highs[k]
            multipliers[k] = min(max(pick, lows[k]), highs[k])
            A = multipliers[k] * A + sensitivities[k]
            V = multipliers[k] ** 2 * V + noises[k]
    return np.array(multipliers)


def _epsilon(
    means: Floats,
    share: Floats,
    delta: float,
    adjacency: Adjacency,
    cut: float = 0.0,
) -> float:
    """The largest epsilon that some threshold test proves, both orders, rounded down.

    Args:
        means: of the final iterate, by labels.
        share: probabilities of the labels.
        delta: where it is asked.
        adjacency: which pairs of means are compared.
        cut: by how much means may have been rounded down.
    """
    if adjacency == "replace":
        return _tested((means / 2, -means / 2), share, delta)
    found = _tested((means, np.zeros_like(means)), share, delta)
    if adjacency == "zero-out" and len(means) > 1:
        found = max(found, _tested((2 * means, means + cut), share, delta))
    return found


def _tested(sides: tuple[Floats, Floats], share: Floats, delta: float) -> float:
    """sup over thresholds of log((P(x > t) - delta)/Q(x > t)), both orders, rounded down."""

    def tails(t: float, centres: Floats, upper: bool) -> float:
        tail = ndtr(centres - t) if upper else ndtr(t - centres)
        return float(share @ tail)

    def loss(t: float, upper: bool) -> float:
        inside, outside = sides if upper else sides[::-1]
        p = tails(t, inside, upper) * (1 - _SAFE) - delta
        q = tails(t, outside, upper) * (1 + _SAFE)
        return math.log(p / q) * (1 - _SAFE) - _SAFE if p > 0 and q > 0 else -math.inf

    def best_test(upper: bool) -> float:
        reach = float(max(np.abs(side).max() for side in sides)) + 10
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


# --- random batches -----------------------------------------------------------------------------


def linear_lower(steps: Steps, rate: float, delta: float, opposite: bool = False) -> float:
    """An epsilon that the linear run x -> c x suffers at delta, in the worse order, rounded down.

    ``c`` must be reachable in the declared class: never larger than the run's. ``opposite``: the
    other run's record pushes as hard the other way (by -s), where it otherwise does not push.

    >>> 0.66 < linear_lower(Steps(0.99, 1.0, 1.0, 1000), rate=0.01, delta=1e-6) <= 0.6725
    True
    """
    if delta >= 1.0 or not np.any(steps.s > 0.0):
        return 0.0
    with np.errstate(divide="ignore"):
        later = np.exp(np.concatenate([np.cumsum(np.log(steps.c[:0:-1]))[::-1], [0.0]]))
    unit = float(steps.nu.max()) or 1.0  # squares of noises stay within the range of doubles
    noise = math.sqrt(float(np.sum((later * (steps.nu / unit)) ** 2)))
    sensitivities = later * (steps.s / unit)
    if noise == 0.0:
        return math.inf if 1.0 - (1.0 - rate) ** int(np.sum(sensitivities > 0.0)) > delta else 0.0
    sums, masses = _sum_law(sensitivities / noise, rate)
    kept = masses > 1e-40
    sums, masses, lost = sums[kept], masses[kept], len(kept) * 1e-40
    low, high = float(sums[0]) - 9.0, float(sums[-1]) + 9.0
    low = low - float(sums[-1]) if opposite else low
    best = 0.0
    for _ in range(3):  # a coarse scan of thresholds, then two finer ones around the best
        at = np.linspace(low, high, THRESHOLDS)
        found = np.array([_suffered(x, sums, masses, lost, delta, opposite) for x in at])
        best = max(best, float(found.max()))
        centre, width = float(at[found.argmax()]), (high - low) / 16
        low, high = centre - width, centre + width
    return max(best - 1e-9, 0.0)


def _suffered(
    x: float, sums: Array, masses: Array, lost: float, delta: float, opposite: bool
) -> float:
    """The larger epsilon that the events above x and below x prove, one for each order.

    P(E) - e^eps Q(E) >= delta for an event E holds up to eps = log((P(E) - delta) / Q(E)).
    """
    above = float(np.sum(masses * ndtr(sums - x))) * (1 - _SAFE)
    below = float(np.sum(masses * ndtr(x - sums))) * (1 + _SAFE) + lost
    if opposite:  # the mirrored sums, which rounding down also brings nearer
        plain_above = float(np.sum(masses * ndtr(-x - sums))) * (1 + _SAFE) + lost
        plain_below = float(np.sum(masses * ndtr(x + sums))) * (1 - _SAFE)
    else:
        plain_above, plain_below = float(ndtr(-x)) * (1 + _SAFE), float(ndtr(x)) * (1 - _SAFE)
    ratios = ((above - delta) / max(plain_above, 1e-300), (plain_below - delta) / below)
    return math.log(max(*ratios, 1.0))


def _sum_law(sensitivities: Array, rate: float) -> tuple[Array, Array]:
    """The law of the sum of independently included sensitivities, rounded down to a grid.

    Smaller sums push the mixture towards the other Gaussian in both orders, so this is safe. Sums
    beyond the grid are put at its end, and sensitivities that stay below one cell are dropped.
    """
    mean, variance = rate * float(sensitivities.sum()), rate * float(np.sum(sensitivities**2))
    top = min(
        float(sensitivities.sum()), mean + 12.0 * math.sqrt(variance) + 12.0 * sensitivities.max()
    )
    grid = top / CELLS
    shifts = np.floor(sensitivities / grid * (1 - 1e-12)).astype(int)
    masses = np.zeros(CELLS + 1)
    masses[0] = 1.0
    end = 1  # cells in use; the smallest sensitivities come first, so that it grows late
    for shift in np.sort(shifts[shifts > 0]).tolist():
        moved = masses[:end] * rate
        masses[:end] *= 1.0 - rate
        grown = min(end + shift, CELLS + 1)
        masses[shift:grown] += moved[: grown - shift]
        masses[-1] += moved[max(grown - shift, 0) :].sum()
        end = grown
    return np.arange(CELLS + 1) * grid, masses
