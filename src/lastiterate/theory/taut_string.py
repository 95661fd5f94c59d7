"""Theorem SI (shifted interpolation) and its exact optimum, the taut string.

Everything a run does to privacy is in three numbers per step: c (how far the update may spread
two points), s (how far one record may move it), nu (the noise). This file finds the cheapest
vector of shifts for any schedule of them; ``replay`` turns that vector into a guarantee.

**Theorem SI.** X_{k+1} = P[f_k(X_k) + N(0, nu_k^2 I)] and X' likewise with f'_k, one common
initial law, P a projection on a closed convex set K. Assume f_k is c_k-Lipschitz on K and
|f_k(x) - f'_k(x)| <= s_k. Take z_0 = 0, or any step tau and z_tau >= diam K. For all shifts
a_{k+1} >= 0 with z_{k+1} = c_k z_k + s_k - a_{k+1} >= 0 and z_T = 0, the pair (X_T, X'_T) is
mu-GDP in both orders, mu^2 = sum_{k >= tau} (a_{k+1}/nu_k)^2.

*Proof.* The last P is post-processing; write f for f after P, which is still c-Lipschitz. Couple
X_tau and X'_tau at distance <= z_tau, put Y_tau = X'_tau, and with the noise of X let
Y_{k+1} = l f_k(X_k) + (1-l) f'_k(Y_k) + Z_k, l = a_{k+1}/(c_k z_k + s_k). Since
|f_k(X_k) - f'_k(Y_k)| <= c_k z_k + s_k, by induction |X_k - Y_k| <= z_k, so Y_T = X_T. Given
Y_k = x, Y_{k+1} is a mixture of N(f'_k(x) + v, nu_k^2 I) with |v| <= a_{k+1}, while X'_{k+1} given
X'_k = x is N(f'_k(x), nu_k^2 I). Hockey-stick divergences are convex in the first law, so this
step is a_{k+1}/nu_k-GDP; composition gives mu. The Gaussian trade-off is its own inverse: both
orders. QED. (After Bok, Su, Altschuler 2024.) Status: sound; tight on an unbounded domain.

Full text: docs/theory/shifted-interpolation.md.

Where every step has the same c, s and nu, no vector of shifts is built: `constant`,
`constant_restart` and `constant_curve` are closed forms, rounded up by one part in 10**12, ten
times what their special functions can lose. A million million steps cost as much as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from lastiterate.curves.bracket import last_good
from lastiterate.errors import DescriptionError
from lastiterate.theory.replay import SLICE, Floats, check_start, replay, schedule

Integers = NDArray[np.int64]

_CHUNK = 150.0  # products of c stay within exp(+-150) inside a chunk: their squares do not overflow
_SILENT = 1e-75  # noise below this part of the largest is treated as none
_UNIT = 2.0**-53
_UP = 1.0 + 1e-12
_TINY = 1e-290  # lifts what underflowed back above the truth


@dataclass(frozen=True, eq=False)
class TautString:
    """A vector of shifts and the mu it proves. ``shifts[k]`` is paid at step k.

    ``start`` is the distance at step ``restart``; shifts before it are 0.
    """

    shifts: Floats
    start: float
    mu: float
    restart: int = 0


def taut_string(c: ArrayLike, s: ArrayLike, nu: ArrayLike, start: float = 0.0) -> TautString:
    """The cheapest shifts for any schedule: exact up to one part in 10**9, never below.

    Divide step k by C_k = c_1 ... c_k: the partial sums of a/C must stay below those of s/C and
    meet them at the end, and sum (a/C)^2 / (nu/C)^2 is to be least. That is the greatest convex
    minorant of the sums of s/C against the sums of (nu/C)^2, found by pooling adjacent violators.

    >>> taut_string(1.0, [1.0, 0.0, 0.0, 0.0], 1.0).shifts.round(6)
    array([0.25, 0.25, 0.25, 0.25])
    >>> round(taut_string(0.9, [0, 0, 0, 1] * 5, 1.0).mu ** 2, 4)   # not 1.2751
    1.5868
    """
    c, s, nu = schedule(c, s, nu)
    start = check_start(start)
    shifts = _cheapest_shifts(c, s, nu, start)
    return TautString(shifts, start, replay(c, s, nu, shifts, start))


@dataclass(frozen=True)
class _Run:
    """The steps that can pay, each with the silent steps before it folded in.

    ``index`` are their places in the schedule. Scaled: the largest nu is 1.
    """

    index: Integers
    c: Floats
    s: Floats
    nu: Floats
    noise: float


def _fold_silent(c: Floats, s: Floats, nu: Floats, first: int) -> _Run | None:
    """Steps without noise only pass the distance on: fold each into the next one that pays."""
    noise = float(nu[first:].max(initial=0.0))
    pays = nu > _SILENT * noise
    pays[:first] = False
    index = np.flatnonzero(pays)
    if len(index) == 0:
        return None
    if len(index) == len(c) - first:
        return _Run(index, c[first:], s[first:], nu[first:] / noise, noise)
    factors, jumps = np.empty(len(index)), np.empty(len(index))
    factor, jump, j = 1.0, 0.0, 0
    last = int(index[-1]) + 1
    for k, (ck, sk) in enumerate(zip(c[first:last].tolist(), s[first:last].tolist(), strict=True)):
        factor, jump = factor * ck, ck * jump + sk
        if pays[first + k]:
            factors[j], jumps[j] = factor, jump
            factor, jump, j = 1.0, 0.0, j + 1
    if not (np.all(np.isfinite(factors)) and np.all(np.isfinite(jumps))):
        return None
    return _Run(index, factors, jumps, nu[index] / noise, noise)


def _last_reset(c: Floats) -> int:
    """A step with c = 0 forgets all before it: only the last of them and what follows count."""
    zeros = np.flatnonzero(c == 0)
    return int(zeros[-1]) if len(zeros) else 0


@dataclass(frozen=True)
class _Products:
    """C_k = c_1 ... c_k as mantissa[k] * 2**exponent[k]: no overflow, no logarithms."""

    mantissa: Floats
    exponent: Integers
    chunks: Integers  # where each chunk of common exponent starts, and the end

    def ratio(self, i: int, j: int) -> float:
        """C_j / C_i, infinite or 0 beyond the float range."""
        shift = int(self.exponent[j] - self.exponent[i])
        quotient = float(self.mantissa[j] / self.mantissa[i])
        return math.ldexp(quotient, shift) if shift < 700 else math.inf

    def ratios(self, i: Integers, j: Integers) -> Floats:
        shift = np.clip(self.exponent[j] - self.exponent[i], -3000, 3000)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.ldexp(self.mantissa[j] / self.mantissa[i], shift))


def _products(c: Floats) -> _Products:
    n = len(c)
    variation = np.abs(np.log(c[1:]))
    labels = (np.cumsum(variation) / _CHUNK).astype(np.int64)
    labels = np.concatenate([[0], labels])
    chunks = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [n]])
    mantissa = c.copy()
    mantissa[0] = 1.0
    exponent = np.zeros(n, dtype=np.int64)
    shift, before = 0, 1.0
    for i, j in zip(chunks[:-1].tolist(), chunks[1:].tolist(), strict=True):
        left, power = math.frexp(before)
        right, another = math.frexp(mantissa[i])
        mantissa[i] = left * right
        shift += power + another
        np.cumprod(mantissa[i:j], out=mantissa[i:j])
        exponent[i:j] = shift
        before = float(mantissa[j - 1])
    return _Products(mantissa, exponent, chunks)


def _pool(run: _Run, products: _Products) -> tuple[Integers, Integers]:
    """First step and reference step of every block of the greatest convex minorant.

    A block is (A, V): its arrivals and noise carried to its reference step. Two neighbours are
    pooled if A1/V1 > F A2/V2, F = C_ref2/C_ref1, into (F A1 + A2, F^2 V1 + V2), or the same
    divided by F when F > 1. SciPy pools inside each chunk, where plain floats are safe; here the
    chunks are joined. Once a block of a chunk is pushed without violation the rest fits too.
    """
    n = len(run.c)
    first, reference = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    total, weight = np.empty(n), np.empty(n)
    top = 0
    for i, j in zip(products.chunks[:-1].tolist(), products.chunks[1:].tolist(), strict=True):
        p = products.mantissa[i:j]
        w = (run.nu[i:j] / p) ** 2
        fit = scipy.optimize.isotonic_regression(run.s[i:j] / p / w, weights=w)
        starts = fit.blocks[:-1]
        ends = fit.blocks[1:] - 1
        carry = p[ends]
        block_weight = carry * carry * fit.weights
        block_total = carry * fit.x[starts] * fit.weights
        b = 0
        while b < len(starts):
            f, r, a, v = i + starts[b], i + ends[b], block_total[b], block_weight[b]
            pooled = False
            while top:
                up = products.ratio(int(reference[top - 1]), int(r))
                down = 1.0 / up if up > 0 else math.inf
                up, down = min(up, 1.0), min(down, 1.0)
                a1, v1 = total[top - 1], weight[top - 1]
                if not down * a1 / v1 > up * a / v:
                    break
                a, v = up * a1 + down * a, up * up * v1 + down * down * v
                f, r = first[top - 1], r if up <= down else reference[top - 1]
                top -= 1
                pooled = True
            first[top], reference[top], total[top], weight[top] = f, r, a, v
            top += 1
            b += 1
            if not pooled:
                rest = len(starts) - b
                new = slice(top, top + rest)
                first[new], reference[new] = i + starts[b:], i + ends[b:]
                total[new], weight[new] = block_total[b:], block_weight[b:]
                top += rest
                break
    return first[:top].copy(), reference[:top].copy()


def _cheapest_shifts(c: Floats, s: Floats, nu: Floats, start: float) -> Floats:
    """The optimal a_k = nu_k^2 (c_{k+1} ... c_end) A/V of each block, a hair larger."""
    shifts = np.zeros(len(c))
    if len(c) == 0:
        return shifts
    reset = _last_reset(c)
    run = _fold_silent(c, s, nu, reset)
    if run is None:
        return shifts
    jumps = run.s.copy()
    jumps[0] += run.c[0] * start
    scale = float(jumps.max())
    if scale == 0 or not math.isfinite(scale):
        return shifts
    jumps /= scale
    run = _Run(run.index, run.c, jumps, run.nu, run.noise)
    products = _products(run.c)
    first, reference = _pool(run, products)
    length = np.diff(np.append(first, len(jumps)))

    carry = products.ratios(np.arange(len(jumps)), np.repeat(reference, length))
    noise = (carry * run.nu) ** 2
    jumps *= carry
    total, weight = np.add.reduceat(jumps, first), np.add.reduceat(noise, first)
    paid = noise * np.repeat(total / weight, length)  # carried to the reference step
    # The replay rounds each step up by at most 10 units of c z + s. Carried to the end of a block
    # that is 10 units of the sum below: pay so much more that the replay still ends at 0.
    carried = np.add.reduceat(np.cumsum(jumps) - np.cumsum(paid) + paid, first)
    busy = np.divide(carried, total, out=np.zeros(len(total)), where=total > 0)
    more = 1.0 + _UNIT * (11.0 * np.clip(busy, 0.0, length) + 64.0)
    np.divide(paid, carry, out=paid, where=carry > 0)
    shifts[run.index] = paid * np.repeat(more * scale, length)
    return shifts


def restarts(c: ArrayLike, s: ArrayLike, nu: ArrayLike, diameter: ArrayLike) -> Floats:
    """mu^2 of every restart tau = 0 ... T-1 from z_tau = diameter (a number, or one per step).

    In O(T log T): pooling from the right gives the blocks of every suffix as a tree (a step's
    parent is where its block ends); a restart only raises its first step, which then swallows
    blocks up the tree. Blocks rise along the tree, so "swallowed" is monotone and found by
    doubling. For searching: not rounded up. ``best`` replays what it picks.

    >>> restarts(1.0, [1.0] * 4, 1.0, 2.0).round(6)
    array([9.      , 8.333333, 8.      , 9.      ])
    """
    c, s, nu = schedule(c, s, nu)
    width = np.asarray(diameter, dtype=np.float64)
    if width.ndim > 1 or np.any(np.isnan(width)) or np.any(width < 0):
        raise DescriptionError("diameter", diameter, "at least 0", "it is a distance")
    c, s, nu, width = np.broadcast_arrays(c, s, nu, width)
    value = np.full(len(c), math.inf)
    if len(c) == 0:
        return value
    width = np.where(c > 0, width, 0.0)
    reset = _last_reset(c)
    run = _fold_silent(c, s, nu, reset)
    last = int(run.index[-1]) if run is not None else reset - 1
    # After the last noise nothing can be paid: all must arrive as 0 there.
    quiet = np.cumsum(s[::-1])[::-1] == 0
    value[last + 1 :][quiet[last + 1 :] & (width[last + 1 :] == 0)] = 0.0
    if run is not None and not np.any(s[last + 1 :] > 0):
        span = slice(reset, last + 1)
        finite = np.isfinite(width[span])
        head = _arrivals(c[span], s[span], np.where(finite, width[span], 0.0), nu[span], run)
        block = np.searchsorted(run.index, np.arange(reset, last + 1))
        value[span] = np.where(finite, _swallow(run, head, block), math.inf)
    value[:reset] = value[reset]
    return value


def _arrivals(c: Floats, s: Floats, width: Floats, nu: Floats, run: _Run) -> Floats:
    """What reaches the next paying step when step tau starts from the diameter."""
    if len(run.index) == len(c):
        return s + c * width
    head = np.empty(len(c))
    factor, jump = 1.0, 0.0
    for k in range(len(c) - 1, -1, -1):
        if nu[k] > _SILENT * run.noise:
            factor, jump = 1.0, 0.0
        factor, jump = factor * c[k], factor * s[k] + jump
        head[k] = factor * width[k] + jump
    return head


def _swallow(run: _Run, head: Floats, block: Integers) -> Floats:
    """The value of each restart that brings ``head`` to the paying step ``block``."""
    n = len(run.c)
    products = _products(run.c)
    total, weight, reference, after, tail = _suffix_blocks(run, products)
    # Level 0 of the doubling table is one block, level j is 2^j blocks in a row.
    last = np.arange(n)
    levels = [(total, weight, reference, after, last)]
    while np.any(after < n):
        both = np.flatnonzero(after < n)
        next_, farther = after[both], np.full(n, n + 1)
        A, V, R = total.copy(), weight.copy(), reference.copy()
        A[both], V[both], R[both] = _join(
            products,
            (total[both], weight[both], reference[both]),
            (total[next_], weight[next_], reference[next_]),
        )
        farther[both] = after[next_]
        total, weight, reference, after = A, V, R, farther
        last = np.where(after <= n, last[np.minimum(levels[-1][3], n - 1)], 0)
        levels.append((total, weight, reference, after, last))

    A, V, R, position = head.copy(), run.nu[block] ** 2, block.copy(), block + 1
    total, weight, reference = levels[0][:3]
    for group_total, group_weight, group_reference, group_after, group_last in reversed(levels):
        inside = np.flatnonzero(position < n)
        inside = inside[group_after[position[inside]] <= n]
        at = position[inside]
        a, v, r = _join(
            products,
            (A[inside], V[inside], R[inside]),
            (group_total[at], group_weight[at], group_reference[at]),
        )
        end = group_last[at]
        up, down = _capped(products, r, reference[end])
        take = down * a / v > up * total[end] / weight[end]
        taken = inside[take]
        A[taken], V[taken], R[taken] = a[take], v[take], r[take]
        position[taken] = group_after[at[take]]
    with np.errstate(over="ignore"):
        return np.asarray((A * A / V + tail[position]) / run.noise / run.noise)


def _capped(products: _Products, i: Integers, j: Integers) -> tuple[Floats, Floats]:
    """min(1, F) and min(1, 1/F) for F = C_j / C_i."""
    return np.minimum(products.ratios(i, j), 1.0), np.minimum(products.ratios(j, i), 1.0)


_Blocks = tuple[Floats, Floats, Integers]


def _join(products: _Products, left: _Blocks, right: _Blocks) -> _Blocks:
    """Pool blocks pairwise, carried to whichever reference step has the smaller C."""
    (a1, v1, r1), (a2, v2, r2) = left, right
    up, down = _capped(products, r1, r2)
    with np.errstate(under="ignore"):
        return (up * a1 + down * a2, up * up * v1 + down * down * v2, np.where(up <= down, r2, r1))


def _suffix_blocks(
    run: _Run, products: _Products
) -> tuple[Floats, Floats, Integers, Integers, Floats]:
    """For every k the first block (A, V, reference, end) of the steps k..., and their value."""
    n = len(run.c)
    total, weight = run.s.tolist(), (run.nu**2).tolist()
    reference, after, tail = list(range(n)), list(range(1, n + 1)), [0.0] * (n + 1)
    mantissa, exponent = products.mantissa.tolist(), products.exponent.tolist()
    for k in range(n - 1, -1, -1):
        a, v, r, j = total[k], weight[k], k, k + 1
        while j < n:
            r2 = reference[j]
            shift = exponent[r2] - exponent[r]
            up = mantissa[r2] / mantissa[r]
            if shift:
                up = math.ldexp(up, shift) if shift < 700 else math.inf
            if up <= 1.0:
                if not a / v > up * total[j] / weight[j]:
                    break
                a, v, r = up * a + total[j], up * up * v + weight[j], r2
            else:
                up = 1.0 / up
                if not up * a / v > total[j] / weight[j]:
                    break
                a, v = a + up * total[j], v + up * up * weight[j]
            j = after[j]
        total[k], weight[k], reference[k], after[k] = a, v, r, j
        tail[k] = a * a / v + tail[j]
    return (np.array(total), np.array(weight), np.array(reference), np.array(after), np.array(tail))


def best(c: ArrayLike, s: ArrayLike, nu: ArrayLike, diameter: ArrayLike = math.inf) -> TautString:
    """The better of the common start and the best restart from the diameter.

    >>> best(1.0, [0.08] * 200, 1.0, diameter=1.0).restart
    187
    """
    c, s, nu = schedule(c, s, nu)
    width = np.asarray(diameter, dtype=np.float64)
    if np.all(width == math.inf):  # restarts only where c = 0 forgets anyway
        return taut_string(c, s, nu)
    width = np.broadcast_to(width, len(c))
    length = min(_WINDOW, len(c))
    found, settled = _best_restart(c, s, nu, width, length)
    if settled and length < len(c):
        return found
    earliest = _earliest_restart(c, s, nu, width) if length < len(c) else 0
    while not settled and length < len(c) - earliest:
        length = min(8 * length, len(c) - earliest)
        found, settled = _best_restart(c, s, nu, width, length)
    if settled and length < len(c):
        return found
    common = taut_string(c, s, nu)
    return found if found.mu < common.mu else common


_WINDOW = 4096  # last steps whose restarts are looked at first


def _best_restart(
    c: Floats, s: Floats, nu: Floats, width: Floats, length: int
) -> tuple[TautString, bool]:
    """The best restart in the last ``length`` steps, and whether all others cost more.

    A path that begins before these steps pays for them at least what a common start would.
    """
    first = len(c) - length
    last = slice(first, len(c))
    value = restarts(c[last], s[last], nu[last], width[last])
    tau = first + int(np.argmin(value)) if length else 0
    if not length or not math.isfinite(value[tau - first]):
        return TautString(np.zeros(len(c)), 0.0, math.inf), False
    start = float(width[tau]) if math.isfinite(width[tau]) else 0.0  # only where c = 0 forgets it
    rest = taut_string(c[tau:], s[tau:], nu[tau:], start)
    found = TautString(np.concatenate([np.zeros(tau), rest.shifts]), start, rest.mu, tau)
    return found, taut_string(c[last], s[last], nu[last]).mu > rest.mu * (1 + 1e-8)


def _earliest_restart(c: Floats, s: Floats, nu: Floats, width: Floats) -> int:
    """No restart before this step is better than a common start.

    Whatever first pays for the diameter costs diameter^2 / U at least, U the sum of
    (nu_k / (c_tau ... c_k))^2 over k >= tau, and the rest what a common start at tau would. Paying
    for the steps before tau as they come, and such a start, costs sum (s_k / nu_k)^2 instead.
    """
    with np.errstate(over="ignore", under="ignore"):
        before = np.cumsum(np.divide(s, nu, out=np.where(s > 0, np.inf, 0.0), where=nu > 0) ** 2)
    earliest, noise = len(c), 0.0
    values = (c, nu, width, before)
    for start in range(len(c) - 1, -1, -SLICE):
        rows = (x[max(start - SLICE + 1, 0) : start + 1][::-1].tolist() for x in values)
        for place, (factor, own, apart, paid) in enumerate(zip(*rows, strict=True)):
            noise = (own * own + noise) / (factor * factor) if factor > 1e-100 else math.inf
            if apart * apart < paid * noise * (1 + 1e-8):
                earliest = start - place
    return earliest


# --- closed forms of equal steps ----------------------------------------------------------------


def _scalars(c: float, s: float, nu: float) -> tuple[float, float, float]:
    factor, jump, noise = schedule(float(c), float(s), float(nu))
    return float(factor[0]), float(jump[0]), float(noise[0])


def _counts(steps: ArrayLike) -> Floats:
    counts = np.asarray(steps, dtype=np.float64)
    if np.any(counts < 0) or np.any(counts != np.floor(counts)) or np.any(counts > 2**53):
        raise DescriptionError("steps", steps, "whole numbers of at least 0", "it counts updates")
    return counts


def _spread_evenly(c: float, s: float, start: float, steps: Floats) -> Floats:
    """(c^m z + s sum c^i) / sqrt(sum c^(2i)), i < m: mu with unit noise if z >= 0 never binds.

    For c > 1 numerator and denominator are divided by c^(m-1), so nothing overflows.
    """
    if c == 0:
        return np.full(steps.shape, s)
    if c == 1:
        return (start + s * steps) / np.sqrt(steps)
    ratio, gap = (c, 1 - c) if c < 1 else (1 / c, (c - 1) / c)
    exponent = -steps * abs(math.log(c))
    with np.errstate(under="ignore"):
        carried = start * np.exp(exponent) if c < 1 else np.full(steps.shape, start * c)
        arrived = s * -np.expm1(exponent) / gap
        weight = -np.expm1(2 * exponent) / (gap * (1 + ratio))
    lifted = np.where(start > 0, np.maximum(carried, _TINY), 0.0)
    return np.asarray((lifted + arrived) / np.sqrt(weight), dtype=np.float64)


def constant(c: float, s: float, nu: float, steps: int, start: float = 0.0) -> float:
    """The optimal mu of ``steps`` equal steps from distance ``start``, rounded up.

    With q = c^T: mu^2 = (s/nu)^2 (1-q)/(1+q) (1+c)/(1-c) for c < 1 and start 0, and T (s/nu)^2
    (plain composition) for c >= 1. A start that is not 0 and c > 1: the start is paid off over
    the first j steps, the rest is composition; j comes from a bisection of the pooling rule.

    Status: sound, and attained by linear maps.

    >>> round(constant(0.9, 1.0, 1.0, 3), 6)
    1.725695
    >>> round(constant(1.1, 2.0, 1.0, 10**12), 3)
    2000000.0
    """
    c, s, nu = _scalars(c, s, nu)
    start = check_start(start)
    total = int(_counts(steps))
    if total == 0:
        return math.inf if start > 0 else 0.0
    if s == 0 and (start == 0 or c == 0):
        return 0.0
    if nu == 0:
        return math.inf
    pooled = total
    if c > 1:
        pooled = 0 if start == 0 else _pooled_steps(c, s, start, total)
    even = float(_spread_evenly(c, s, start, np.array(pooled, float))) if pooled else 0.0
    return max(math.hypot(even, math.sqrt(total - pooled) * s) / nu * _UP, _TINY)


def _pooled_steps(c: float, s: float, start: float, steps: int) -> int:
    """The first j with A_j/V_j <= c s, the pooling rule; monotone in j."""

    def stops(j: int) -> bool:
        decay = -j * math.log(c)
        total = start - s * math.expm1(decay) / (c - 1)  # A_j / c^j
        weight = -math.expm1(2 * decay) / (c - 1) / (c + 1)  # V_j / c^(2j)
        if not (total > 0 and weight > 0):  # below all doubles: any answer gives a valid bound
            return True
        return math.log(total) - math.log(weight) + decay <= math.log(c) + math.log(s)

    return last_good(stops, good=steps, bad=0) if s > 0 else steps


def constant_restart(c: float, s: float, nu: float, steps: int, diameter: float) -> float:
    """The best mu when the distance restarts from the diameter of a bounded domain, rounded up.

    The minimum over m <= T - 1 steps left of (c^m D + s sum c^i)^2 / (nu^2 sum c^(2i)), i < m.
    In q = c^m its derivative has the one zero q = 1 + (c-1) D/s, so the best whole m is next to
    log q / log c. For c > 1 a given m may be beaten by paying earlier, but that policy is one of
    the other m followed by steps that only cost, so the minimum over m is the optimum.
    Infinite when no restart is possible (fewer than two steps, unbounded domain).

    >>> round(constant_restart(1.0, 0.08, 1.0, 200, 1.0) ** 2 / 2, 6)
    0.160062
    """
    return float(_restart(*_scalars(c, s, nu), _counts(steps), diameter))


def _restart(c: float, s: float, nu: float, steps: Floats, diameter: float) -> Floats:
    if math.isnan(diameter) or diameter < 0:
        raise DescriptionError("diameter", diameter, "at least 0", "it is a distance")
    if math.isinf(diameter):
        return np.full(steps.shape, math.inf)
    if nu == 0:
        free = s == 0 and (c == 0 or diameter == 0)
        return np.where(steps > 1, 0.0 if free else math.inf, math.inf)
    near = _near_best(c, s, diameter)
    last = np.maximum(steps - 1, 1)
    left = np.clip(near, 1, last[..., np.newaxis])
    with np.errstate(over="ignore"):
        mu = np.maximum(_spread_evenly(c, s, diameter, left).min(axis=-1) / nu * _UP, _TINY)
    return np.where(steps > 1, mu, math.inf)


def _near_best(c: float, s: float, diameter: float) -> Floats:
    """Whole numbers of remaining steps next to the one zero of the derivative."""
    if s == 0 or (c - 1) * diameter <= -s:
        ideal = math.inf
    elif c == 1:
        ideal = diameter / s
    else:
        ideal = math.log1p((c - 1) * diameter / s) / math.log(c) if c > 0 else 1.0
    return math.floor(min(ideal, 2.0**53)) + np.arange(-1, 3, dtype=np.float64)


def best_restart(c: float, s: float, nu: float, steps: int, diameter: float) -> int:
    """How many steps are left at the restart that `constant_restart` found (at least 2 steps).

    >>> best_restart(1.0, 0.08, 1.0, 200, 1.0)
    13
    """
    left = {int(min(max(near, 1), steps - 1)) for near in _near_best(c, s, diameter)}
    return min(sorted(left), key=lambda count: constant(c, s, nu, count, diameter))


def constant_curve(
    c: float, s: float, nu: float, steps: ArrayLike, diameter: float = math.inf
) -> Floats:
    """The best mu for each number of steps: from a common start or from the diameter.

    >>> constant_curve(1.0, 1.0, 1.0, [1, 4, 100], diameter=2.0).round(6)
    array([1.      , 2.      , 2.828427])
    """
    c, s, nu = _scalars(c, s, nu)
    counts = _counts(steps)
    if nu == 0 or s == 0:
        common = np.where((counts > 0) & (s > 0), math.inf, 0.0)
    else:
        some = np.maximum(counts, 1)
        mu = s * np.sqrt(some) if c > 1 else _spread_evenly(c, s, 0.0, some)
        common = np.where(counts > 0, np.maximum(mu / nu * _UP, _TINY), 0.0)
    return np.minimum(common, _restart(c, s, nu, counts, diameter))
