"""Composition of unequal guarantees, between two certified bounds.

The exact delta' is #P-hard (Murtagh, Vadhan 2016): it sums over all subsets of rounds. On a grid
of privacy losses it becomes a walk. Splitting each loss onto its two grid neighbours with both
masses kept can only help an attacker (merging them recovers the original), so it bounds from
above with an error of the square of the grid; rounding every epsilon down bounds from below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate.composition.homogeneous import join_deltas
from lastiterate.composition.validation import check_lists, check_target
from lastiterate.description.fields import number

_U = 2.0**-53
_GRID = 1e-3
_CELLS = 2**20  # the grid is coarsened when the losses would span more cells than this
Array = NDArray[np.float64]
_NEGLIGIBLE = 1e-40  # a probability given up per round and side; the upper bound adds it back


class Bracket(NamedTuple):
    """The optimal delta' lies between these two."""

    lower: float
    upper: float


class _Round(NamedTuple):
    """One round on the grid: shifts in cells, their probabilities, the mean and largest loss."""

    shifts: tuple[int, ...]
    masses: tuple[float, ...]
    mean: float
    largest: float


def heterogeneous(
    epsilons: Sequence[float],
    deltas: Sequence[float],
    target: float,
    *,
    grid: float | None = None,
) -> Bracket:
    """(lower, upper) around the smallest delta' at epsilon' = ``target``.

    Statement: adaptive (epsilon_i, delta_i)-private mechanisms together are (target, upper)-
    private; for some such mechanisms no delta' below ``lower`` holds. ``grid`` is the spacing of
    privacy losses (1e-3, coarser when the losses span more than 2^20 of it); the upper bound
    converges like its square (given more than a few rounds), the lower one linearly.
    Assumptions: each mechanism is private for every fixed past output.
    Reference: Murtagh, Vadhan (2016), Theorems 1.5 and 1.7. Status: sound.

    >>> lower, upper = heterogeneous([0.1, 0.2, 0.35], [0.0, 0.0, 1e-6], target=0.4)
    >>> round(lower, 3), round(upper, 3)
    (0.045, 0.045)
    """
    check_lists(epsilons, deltas)
    check_target(target)
    if grid is not None:
        number("grid", grid, above=0)
    losses = sorted((float(e) for e in epsilons if e > 0.0), reverse=True)
    log_kept = math.fsum(math.log1p(-d) if d < 1.0 else -math.inf for d in deltas)
    if not losses:
        floor = join_deltas(log_kept, 0.0)
        return Bracket(_down(floor), floor)
    if grid is None:
        grid = max(_GRID, math.fsum(losses) / _CELLS)
        if losses[0] == losses[-1]:
            grid = losses[0]  # equal rounds: a grid of that spacing makes both bounds exact
    upper = _walk([_split(e, grid) for e in losses], target, grid, up=True)
    lower = _walk([_round_down(e, grid) for e in losses], target, grid, up=False)
    return Bracket(_down(join_deltas(log_kept, lower)), join_deltas(log_kept, upper))


def _down(delta: float) -> float:
    return delta * (1 - 64 * _U)


def _split(epsilon: float, grid: float) -> _Round:
    """Randomised response with its losses +-epsilon split onto the grid, both masses kept.

    P-mass p at epsilon = j h + r becomes a at j h and b at (j+1) h with a + b = p and
    a e^(-jh) + b e^(-(j+1)h) = p e^(-epsilon); the other side is the mirror image.
    """
    cell = _cell(epsilon, grid)
    # rounded up: a slightly larger epsilon is a slightly weaker mechanism
    beyond = min(grid, float(Fraction(epsilon) - cell * Fraction(grid)) * (1 + 2 * _U))
    honest = 1.0 / (1.0 + math.exp(-epsilon))
    right = honest * math.expm1(-beyond) / math.expm1(-grid)
    left = honest * math.exp(-beyond) * math.expm1(beyond - grid) / math.expm1(-grid)
    shifts = (cell, cell + 1, -cell, -cell - 1)
    masses = (left, right, left * math.exp(-cell * grid), right * math.exp(-(cell + 1) * grid))
    kept = [(s, m) for s, m in zip(shifts, masses, strict=True) if m > 0.0]
    mean = math.fsum(s * m for s, m in kept) * grid
    return _Round(
        tuple(s for s, _ in kept), tuple(m for _, m in kept), mean, max(s for s, _ in kept) * grid
    )


def _round_down(epsilon: float, grid: float) -> _Round:
    """Randomised response at the largest grid loss not above epsilon."""
    cell = _cell(epsilon, grid)
    loss = cell * grid
    honest = 1.0 / (1.0 + math.exp(-loss))
    mean = loss * math.tanh(loss / 2)
    return _Round((cell, -cell), (honest, honest * math.exp(-loss)), mean, loss)


def _cell(epsilon: float, grid: float) -> int:
    """floor(epsilon / grid) in exact arithmetic: a rounded quotient could be one too many."""
    return math.floor(Fraction(epsilon) / Fraction(grid))


def _walk(rounds: list[_Round], target: float, grid: float, *, up: bool) -> float:
    """E[(1 - e^(target - L))_+] of the summed loss L, rounded up or down.

    Only losses that can still cross the target are carried. Lower ones are dropped; for higher
    ones the answer is linear, so they are paid out at once. "Can cross" means up to probability
    1e-40 by Hoeffding's inequality (either order of the pair: the walk mirrors itself), which the
    upper bound adds.
    """
    squares = np.cumsum([r.largest**2 for r in reversed(rounds)])[::-1]
    means = np.cumsum([r.mean for r in reversed(rounds)])[::-1]
    ranges = np.cumsum([r.largest for r in reversed(rounds)])[::-1]
    reach = np.minimum(ranges, means + np.sqrt(-2.0 * math.log(_NEGLIGIBLE) * squares))
    reach = np.append(reach * (1 + 1e-9), 0.0)[1:]  # what the rounds still to come can add

    # three buffers, used in turn: fresh arrays of this size cost more than the sums in them
    most = max(max(r.shifts) for r in rounds)
    cells = 2 * min(math.ceil(reach[0] / grid) + 4, sum(max(r.shifts) for r in rounds)) + 1
    now, then, product = (np.ones(cells + 2 * most) for _ in range(3))
    mass = now[:1]
    start = 0  # the cell of mass[0]
    paid = 0.0
    for step, left in zip(rounds, reach.tolist(), strict=True):
        mass, start = _convolve(mass, start, step, then, product)
        now, then = then, now
        bottom = math.floor((target - left) / grid) - 2
        top = math.ceil((target + left) / grid) + 2
        if start + mass.size > top + 1:
            cut = max(0, top + 1 - start)
            paid += _pay(mass[cut:], start + cut, target, grid, up)
            mass = mass[:cut]
        if start < bottom:
            mass = mass[bottom - start :]
            start = bottom
        if mass.size == 0:
            break
    paid += _pay(mass, start, target, grid, up)
    inflation = 16 * (len(rounds) + 8) * _U
    if up:
        given_up = 2 * len(rounds) * _NEGLIGIBLE if np.any(reach < _later(ranges)) else 0.0
        return min(1.0, paid * (1 + inflation) + given_up)
    return max(0.0, min(1.0, paid) * (1 - inflation))


def _later(ranges: Array) -> Array:
    return np.append(ranges, 0.0)[1:]


def _convolve(
    mass: Array, start: int, step: _Round, out: Array, product: Array
) -> tuple[Array, int]:
    """Add one round to the walk: a sum of shifted copies, nonnegative, no FFT noise."""
    least, most = min(step.shifts), max(step.shifts)
    out, product = out[: mass.size + most - least], product[: mass.size]
    out.fill(0.0)
    for shift, probability in zip(step.shifts, step.masses, strict=True):
        np.multiply(mass, probability, out=product)
        out[shift - least : shift - least + mass.size] += product
    return out, start + least


def _pay(mass: Array, start: int, target: float, grid: float, up: bool) -> float:
    """Sum of mass * (1 - e^(target - loss))_+, each loss rounded up or down."""
    loss = grid * np.arange(start, start + mass.size, dtype=np.float64)
    loss *= 1 + (2 if up else -2) * _U
    above = loss > target
    return float(np.sum(mass[above] * -np.expm1(target - loss[above])))
