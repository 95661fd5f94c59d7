"""Ordered mini-batches: one taut string per position of the record in the epoch.

A record that sits in batch ``j`` of ``B`` is used at the steps k with k = j (mod B) alone. Its
sensitivities are sparse: every step between two of them only forgets and adds noise, so it joins
the block of the use before it, and a run of E epochs is E blocks per position. They are pooled for
all positions at once. Cyclic batches take the worst position, shuffled ones average over them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.errors import DescriptionError
from lastiterate.theory.replay import schedule

Floats = NDArray[np.float64]

UNIT = 2.0**-53
# Log of a factor that stands for c = 0. Rounding a contraction up is sound (z only grows), and
# exp(-800) is below the smallest double: it never changes a printed digit.
FORGETS_ALL = -800.0
_NEAR = 10_000.0
_RESTARTED_EPOCHS, _RESTARTED_STEPS = 500, 2_000_000  # at the end, where restarts are pooled
_UNDERFLOWN = 1e-305  # more than any cost that doubles lose


@dataclass(frozen=True)
class Blocks:
    """Aggregated steps in the log domain: impulse A, noise variance V, factor G, at the end."""

    A: Floats
    V: Floats
    G: Floats


def position_mus(
    c: ArrayLike, s: ArrayLike, nu: ArrayLike, batches: int, diameter: float = math.inf
) -> Floats:
    """The Gaussian parameter mu_j of the last iterate, for each of the ``batches`` positions j.

    Statement: a record in batch j gives the impulses s_k 1{k = j mod B}; the taut string through
    them (z_{k+1} = c_k z_k + s_k - a_{k+1} >= 0, z_T = 0) makes the pair mu_j-GDP in both orders,
    mu_j^2 = sum a^2/nu^2, and linear losses attain it. With a bounded domain the string may also
    start at z = ``diameter``; the restarts tried are those right after a step that holds the
    record, the best of all when c_k <= 1 (an earlier start of the same gap has z <= diameter at
    the later one for free), and valid always.

    Constant parameters and c = 1: mu_j^2 = (s/nu)^2 ((E-1)/B + 1/(B-j)), Ye & Shokri 2022, D.4.

    Reference: shifted interpolation, after Bok, Su, Altschuler 2024. Status: sound, rounded up.

    >>> position_mus(np.ones(6), np.ones(6), np.ones(6), batches=3).round(6)
    array([0.816497, 0.912871, 1.154701])
    """
    steps = checked_steps(c, s, nu, batches)
    return _up(np.sqrt(_segment(*steps, batches, 0, diameter)))


def constant_position_mus(
    c: float, s: float, nu: float, steps: int, batches: int, diameter: float = math.inf
) -> Floats:
    """`position_mus` for constant parameters given as numbers: O(B), whatever the steps.

    With an expansion c > 1 no restart from the diameter is tried: see `restarted_position_mus`.

    >>> constant_position_mus(1.0, 1.0, 1.0, steps=10**12, batches=2, diameter=1.0).round(3)
    array([1.   , 1.414])
    """
    checked_steps(c, s, nu, batches)
    if s == 0 or steps <= 0:
        return np.zeros(batches)
    if nu == 0:
        return np.where(np.arange(batches) < steps, math.inf, 0.0)
    reach = diameter if c <= 1 else math.inf
    return _up(np.sqrt(_constant(max(c, 1e-300), s, nu, steps, batches, 0, reach)))


def restarted_position_mus(
    c: float, s: float, nu: float, steps: int, batches: int, diameter: float
) -> Floats:
    """mu_j of the best restart from the diameter alone, for constant parameters and any c.

    Restarts are looked for after the last 500 uses of the record, or in the last 2,000,000
    steps if those are fewer. Each is valid by itself, whatever came before it.

    >>> restarted_position_mus(1.5, 1.0, 1.0, steps=10**12, batches=2, diameter=1.0).round(3)
    array([1.5  , 1.803])
    """
    checked_steps(c, s, nu, batches)
    if s == 0 or nu == 0 or steps <= 0:
        return np.full(batches, math.inf)  # nothing to forget, or nothing that forgets
    tail = min(steps, _RESTARTED_STEPS, _RESTARTED_EPOCHS * batches)
    cs, ss, ns = np.full(tail, c), np.full(tail, s), np.full(tail, nu)
    phase = (steps - tail) % batches
    squares = _general(cs, ss, ns, batches, phase, diameter, common_start=False)
    return _up(np.sqrt(squares))


def released_mus(
    c: ArrayLike,
    s: ArrayLike,
    nu: ArrayLike,
    batches: int,
    releases: Sequence[int] = (),
    window: int = 1,
    diameter: float = math.inf,
) -> Floats:
    """mu_j when the checkpoints after ``releases`` steps, and the end of the run, are released.

    Statement: after a released checkpoint both runs continue from one known point, so
    mu_j^2 is the sum over segments, for the same hidden position j. ``window`` = k releases an
    average (or all) of the last k iterates: the string ends at T-k+1 and every later impulse is
    paid on arrival, mu_j^2 = string(first T-k+1 steps) + sum over the last k-1 steps s^2/nu^2.

    Average the profiles of these mu_j over j for one hidden partition; never average mu.

    >>> one = np.ones(6)
    >>> released_mus(one, one, one, 3, releases=(3,)).round(6)
    array([0.816497, 1.      , 1.414214])
    """
    cs, ss, ns = checked_steps(c, s, nu, batches)
    steps = len(ss)
    check_releases(steps, releases, window)
    end = steps - window + 1
    # A checkpoint inside the window is released with the window already.
    cuts = sorted({0, end, *(r for r in releases if r < end)}) if steps else []
    total = np.zeros(batches)
    for start, stop in itertools.pairwise(cuts):
        part = slice(start, stop)
        total = total + _segment(cs[part], ss[part], ns[part], batches, start % batches, diameter)
    for k in range(end, steps):
        total[k % batches] += _paid_at_once(ss[k], ns[k])
    return _up(np.sqrt(_up(total, 4 * (len(cuts) + window))))


def check_releases(steps: int, releases: Sequence[int], window: int) -> None:
    """Refuse checkpoints and windows that do not lie in the run."""
    exist = f"between 1 and the number of steps ({steps})"
    if not 1 <= window <= max(steps, 1):
        why = "the tail average is taken over iterates that exist"
        raise DescriptionError("window", window, exist, why)
    for release in releases:
        if not 1 <= release <= steps:
            why = "a checkpoint outside the run cannot be accounted"
            raise DescriptionError("releases", release, exist, why)


def position_sensitivities(s: ArrayLike, batches: int, position: int) -> Floats:
    """The impulses of a record in batch ``position``: s_k at its steps, 0 elsewhere.

    >>> position_sensitivities([1., 2., 3., 4.], 2, 1)
    array([0., 2., 0., 4.])
    """
    step_sensitivities = np.array(s, dtype=np.float64, ndmin=1)
    step_sensitivities[np.arange(len(step_sensitivities)) % batches != position] = 0.0
    return step_sensitivities


def _paid_at_once(s: float, nu: float) -> float:
    if s == 0:
        return 0.0
    return math.inf if nu == 0 else max((s / nu) * (s / nu), _UNDERFLOWN)


def _up(values: Floats, roundings: int = 4) -> Floats:
    return np.asarray(values * (1 + 2 * roundings * UNIT), dtype=np.float64)


def checked_steps(
    c: ArrayLike, s: ArrayLike, nu: ArrayLike, batches: int
) -> tuple[Floats, Floats, Floats]:
    """The per-step vectors of a run with at least one batch per epoch, checked."""
    if batches < 1:
        raise DescriptionError(
            "batches", batches, "a whole number of at least 1", "an epoch has at least one batch"
        )
    return schedule(c, s, nu)


def _segment(c: Floats, s: Floats, nu: Floats, batches: int, phase: int, diameter: float) -> Floats:
    """mu_j^2 (rounded up) of a stretch of steps whose first step holds batch ``phase``."""
    if len(s) == 0:
        return np.zeros(batches)
    constant = bool(np.all(c == c[0]) and np.all(s == s[0]) and np.all(nu == nu[0]))
    if constant and s[0] == 0:
        return np.zeros(batches)
    if constant and c[0] > 0 and nu[0] > 0 and (c[0] <= 1 or math.isinf(diameter)):
        return _constant(float(c[0]), float(s[0]), float(nu[0]), len(s), batches, phase, diameter)
    return _general(c, s, nu, batches, phase, diameter)


# --- constant parameters: closed forms -----------------------------------------------------------


def _geometric(log_ratio: float, count: Floats) -> Floats:
    """1 + r + ... + r^(count-1), without cancellation near r = 1."""
    if log_ratio == 0:
        return count
    return np.asarray(np.expm1(count * log_ratio) / math.expm1(log_ratio), dtype=np.float64)


def _constant(
    c: float, s: float, nu: float, steps: int, batches: int, phase: int, diameter: float
) -> Floats:
    """mu_j^2 for constant (c, s, nu), O(B), or O(T) with a diameter.

    For c <= 1 equal windows pool (A/V >= G A/V), so there are two blocks: the full windows and
    the last one. For c >= 1 nothing pools: with x = c^B, y = c^m and m <= B steps in the last
    window, the rule A1/V1 > G2 A2/V2 reads x/(x^2-1) > y^2/(y^2-1), which y <= x excludes.
    """
    log_c = math.log(c)
    first = (np.arange(batches) - phase) % batches
    step_sensitivities = np.maximum(-((first - steps) // batches), 0)  # ceil((steps - first)/B)
    full = np.maximum(step_sensitivities - 1, 0).astype(np.float64)
    last = np.where(
        step_sensitivities > 0, steps - first - (step_sensitivities - 1) * batches, 1
    ).astype(np.float64)
    unit = max((s / nu) * (s / nu), _UNDERFLOWN)
    with np.errstate(invalid="ignore"):
        if c >= 1:
            paid = full / _geometric(-2 * log_c, np.array(float(batches)))
            cost = unit * (paid + 1 / _geometric(-2 * log_c, last))
        else:
            cost = unit * _pooled(*_full_windows(log_c, batches, full), *_last_window(log_c, last))
    if math.isfinite(diameter):
        for j in np.flatnonzero(step_sensitivities):
            restart = _constant_restarts(log_c, batches, full[j], last[j], diameter / s)
            cost[j] = min(cost[j], unit * restart)
    # Each factor exp(n log c) is off by at most 2 n|log c| UNIT (and is 0 past n|log c| = 745);
    # fewer than 16 factors and 64 roundings enter, all terms are positive, nothing cancels.
    # What underflowed is below 1e-300.
    off = (64 + 32 * min(steps * abs(log_c), 745.0)) * UNIT
    lost = max(unit * 1e-300, _UNDERFLOWN)
    cost = np.where(np.isnan(cost), math.inf, cost * (1 + off) + lost)  # 0 times an infinite ratio
    return np.asarray(np.where(step_sensitivities > 0, cost, 0.0))


def _full_windows(log_c: float, batches: int, count: Floats) -> tuple[Floats, Floats]:
    """Impulse and noise of ``count`` pooled windows of B steps (units s and nu^2), c <= 1."""
    A = math.exp((batches - 1) * log_c) * _geometric(batches * log_c, count)
    return A, _geometric(2 * log_c, batches * count)


def _last_window(log_c: float, length: Floats) -> tuple[Floats, Floats, Floats]:
    A = np.exp((length - 1) * log_c)
    return A, _geometric(2 * log_c, length), np.exp(length * log_c)


def _pooled(A1: Floats, V1: Floats, A2: Floats, V2: Floats, G2: Floats) -> Floats:
    """Cost of two blocks, merged where the taut string merges them."""
    merge = A1 * V2 > G2 * A2 * V1
    apart = np.divide(A1**2, V1, out=np.zeros_like(A2), where=V1 > 0) + A2**2 / V2
    return np.where(merge, (G2 * A1 + A2) ** 2 / (G2**2 * V1 + V2), apart)


def _constant_restarts(
    log_c: float, batches: int, full: float, last: float, diameter: float
) -> float:
    """The best restart from z = ``diameter`` (in units of s), c <= 1.

    Right after an impulse: the rest of its window, then f full windows, then the last one; or the
    rest of the last window alone.
    """
    best = math.inf
    if last > 1:
        rest = np.array(last - 1)
        with np.errstate(over="ignore"):
            best = float((np.exp(rest * log_c) * diameter) ** 2 / _geometric(2 * log_c, rest))
    if full == 0:
        return best
    # Every distance to the end up to _NEAR windows, then geometric: any subset is valid.
    f = np.arange(min(full, _NEAR))
    if full > _NEAR:
        f = np.concatenate([f, np.geomspace(_NEAR, full - 1, 200).round()])
    gap = np.array(float(batches - 1))
    A, V = np.exp(gap * log_c) * diameter, _geometric(2 * log_c, gap)
    A1, V1, G1 = *_full_windows(log_c, batches, f), np.exp(batches * f * log_c)
    A2, V2, G2 = _last_window(log_c, np.array(last))
    join = (A * V1 >= G1 * A1 * V) | (f == 0)
    Am, Vm = np.where(join, G1 * A + A1, A1), np.where(join, G1**2 * V + V1, V1)
    with np.errstate(over="ignore"):
        paid = 0.0 if V == 0 else float(A**2 / V)
    alone = np.where(join, 0.0, paid)
    joined = Am * V2 > G2 * A2 * Vm
    At, Vt = G2 * Am + A2, G2**2 * Vm + V2
    # Pooling the last window with the middle may make the first block pool too.
    chain = ~join & joined & (A * Vt > G1 * G2 * At * V)
    with np.errstate(over="ignore", invalid="ignore"):
        all_of_it = (G1 * G2 * A + At) ** 2 / ((G1 * G2) ** 2 * V + Vt)
        apart = alone + np.divide(Am**2, Vm, out=np.zeros_like(Am), where=Vm > 0) + A2**2 / V2
        cost = np.where(joined, np.where(chain, all_of_it, alone + At**2 / Vt), apart)
    cost = np.where(np.isnan(cost), math.inf, cost)
    return min(best, float(np.min(cost)))


# --- any schedule: windows, then pooling across positions ----------------------------------------


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values), dtype=np.float64)


def epoch_rows(
    c: Floats, s: Floats, nu: Floats, batches: int, phase: int = 0
) -> tuple[Floats, Floats, Floats]:
    """(log c, log s, log nu^2) as rows of epochs; padding steps do nothing (c=1, s=0, nu=0)."""
    total = phase + len(s)
    rows = -(-total // batches)
    out = []
    for values, padding in ((c, 0.0), (s, -math.inf), (nu, -math.inf)):
        flat = np.full(rows * batches, padding)
        flat[phase:total] = _log(values)
        out.append(flat.reshape(rows, batches))
    log_c, log_s, log_nu = out
    return np.maximum(log_c, FORGETS_ALL), log_s, 2 * log_nu


def suffixes(log_c: Floats, log_s: Floats, log_v: Floats) -> Blocks:
    """Column j: the steps j, ..., B-1 of the epoch as one block led by the impulse of step j."""
    rows = len(log_c)
    G = np.zeros((rows, log_c.shape[1] + 1))
    G[:, :-1] = np.cumsum(log_c[:, ::-1], axis=1)[:, ::-1]
    V = np.logaddexp.accumulate((log_v + 2 * G[:, 1:])[:, ::-1], axis=1)[:, ::-1]
    return Blocks(log_s + G[:, 1:], V, G[:, :-1])


def prefixes(log_c: Floats, log_v: Floats) -> tuple[Floats, Floats]:
    """Column j: log V and log G of the steps 0, ..., j-1 of the epoch."""
    rows, batches = log_c.shape
    G = np.zeros((rows, batches))
    np.cumsum(log_c[:, :-1], axis=1, out=G[:, 1:])
    V = np.full((rows, batches), -math.inf)
    V[:, 1:] = 2 * G[:, 1:] + np.logaddexp.accumulate(log_v[:, :-1] - 2 * G[:, 1:], axis=1)
    return V, G


def epoch_windows(
    c: Floats, s: Floats, nu: Floats, batches: int, phase: int
) -> tuple[Blocks, Blocks]:
    """Blocks from each impulse to the step before the next, and the same without its first step."""
    log_c, log_s, log_v = epoch_rows(c, s, nu, batches, phase)
    tail = suffixes(log_c, log_s, log_v)
    V, G = prefixes(log_c, log_v)
    # The window of (epoch e, position j) ends in the first j steps of epoch e+1.
    V = np.vstack([V[1:], np.full((1, V.shape[1]), -math.inf)])
    G = np.vstack([G[1:], np.zeros((1, G.shape[1]))])
    window = Blocks(tail.A + G, np.logaddexp(tail.V + 2 * G, V), tail.G + G)
    empty = np.zeros((len(G), 1))
    rest_V = np.hstack([tail.V[:, 1:], empty - math.inf])
    rest_G = np.hstack([tail.G[:, 1:], empty]) + G
    return window, Blocks(rest_G, np.logaddexp(rest_V + 2 * G, V), rest_G)


def _cost(A: Floats, V: Floats) -> Floats:
    """A^2/V from logarithms; no impulse costs nothing, an impulse without noise is infinite."""
    out = np.zeros_like(A)
    paid = np.isfinite(A)
    with np.errstate(over="ignore", under="ignore"):
        out[paid] = np.exp(2 * A[paid] - V[paid])
    return out


def _general(
    c: Floats,
    s: Floats,
    nu: Floats,
    batches: int,
    phase: int,
    diameter: float,
    *,
    common_start: bool = True,
) -> Floats:
    """mu_j^2 by pooling adjacent violators from the right, all positions at once.

    Without a common start, the best restart from the diameter.

    Rounding. Every logarithm below comes from its inputs by at most N = 2(B + E) sums or
    log-sum-exps of positive terms, each off by at most 4 UNIT (1 + M), where M bounds every
    intermediate and the sum of all |log c|. A cost is exp of three of them. A pooling decision
    that is wrong by a relative r changes the cost by r^2 only (the derivative vanishes there),
    and not pooling is always sound.
    """
    log_c, log_s, log_v = epoch_rows(c, s, nu, batches, phase)
    window, rest = epoch_windows(c, s, nu, batches, phase)
    epochs = len(log_c)
    column = np.arange(batches)
    A, V, G = (np.empty((epochs + 1, batches)) for _ in range(3))
    below = np.zeros((epochs + 2, batches))  # below[d]: cost of the d blocks under the top
    depth = np.zeros(batches, dtype=np.intp)
    best = np.full(batches, math.inf)
    log_D = math.log(diameter) if 0 < diameter < math.inf else -math.inf
    for e in range(epochs - 1, -1, -1):
        if math.isfinite(diameter):
            used = window.A[e] > -math.inf
            ends = _merge(rest.A[e] + log_D, rest.V[e], depth, (A, V, G), column)
            restart = _cost(ends[0], ends[1]) + below[ends[2], column]
            best = np.where(used, np.minimum(best, restart), best)
        a, v, depth, g = _merge(window.A[e], window.V[e], depth, (A, V, G), column, window.G[e])
        A[depth, column], V[depth, column], G[depth, column] = a, v, g
        below[depth + 1, column] = below[depth, column] + _cost(a, v)
        depth = depth + 1
        if not common_start and np.all(best <= below[depth, column]):
            break  # an earlier restart passes here too, and pays no less than z = 0 does
    cost = np.minimum(best, below[depth, column]) if common_start else best
    finite = [np.abs(x[np.isfinite(x)]) for x in (log_c, log_s, log_v)]
    M = float(finite[0].sum()) + sum(float(x.max(initial=0.0)) for x in finite[1:])
    M += math.log(len(s)) + 1
    off = math.expm1(3 * 2 * (batches + epochs) * 4 * UNIT * (1 + M))
    used = np.any(np.isfinite(window.A), axis=0)  # what underflowed is below 1e-305
    return np.asarray(cost * (1 + off) + np.where(used, _UNDERFLOWN, 0.0))


def _merge(
    a: Floats,
    v: Floats,
    depth: NDArray[np.intp],
    stack: tuple[Floats, Floats, Floats],
    column: NDArray[np.intp],
    g: Floats | None = None,
) -> tuple[Floats, Floats, NDArray[np.intp], Floats]:
    """Merge a block on the left into the blocks right of it while A1/V1 > G2 A2/V2."""
    A, V, G = stack
    g = np.zeros_like(a) if g is None else g
    active = column[depth > 0]
    a, v, g, depth = a.copy(), v.copy(), g.copy(), depth.copy()
    while len(active):
        top = depth[active] - 1
        A2, V2, G2 = A[top, active], V[top, active], G[top, active]
        a1, v1 = a[active], v[active]
        merge = a1 + V2 > G2 + A2 + v1
        active = active[merge]
        if not len(active):
            break
        A2, V2, G2, a1, v1 = A2[merge], V2[merge], G2[merge], a1[merge], v1[merge]
        a[active] = np.logaddexp(G2 + a1, A2)
        v[active] = np.logaddexp(2 * G2 + v1, V2)
        g[active] += G2
        depth[active] -= 1
        active = active[depth[active] > 0]
    return a, v, depth, g
