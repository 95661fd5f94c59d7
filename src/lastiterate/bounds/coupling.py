"""Coupling on a bounded convex domain: an optimal stopping problem on one distance.

Two runs on a bounded set meet again and again if their noises are reflected, and meeting is free;
only the last stretch has to be paid for, by the taut string. When the run is long enough to cross
its domain (T nu^2 above D^2) this beats shifted interpolation. This file holds the numerics: one
matrix-vector product per step, every rounding upwards. Full text: docs/theory/coupling.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from lastiterate.bounds import taut_string
from lastiterate.bounds.constant_steps import constant
from lastiterate.bounds.ledger import Bound, Proof, Run, Theorem
from lastiterate.bounds.replay import schedule
from lastiterate.bounds.shifted_interpolation import ShiftedInterpolation
from lastiterate.curves import gaussian
from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import check_nonnegative, check_order, check_probability
from lastiterate.description import FullBatch
from lastiterate.errors import DescriptionError

Floats = NDArray[np.float64]

_CELLS_PER_NOISE = 30  # cells of the grid in one standard deviation of the noise
_FEWEST_CELLS, _MOST_CELLS = 256, 1600
MOST_CHECKED = 1000  # cells that the verifier's grid has at most
_ROOM = 3e-4  # relative: for another way of rounding
_SETTLED = 3e-4  # V(D)/V(0) - 1 below this: more steps change nothing that is printed
_CROSSINGS = 60  # T nu^2/D^2 of the last steps that are looked at; those before are covered by D
_STRING_NODES = 65  # distances from which taut strings are computed; mu is convex between them
_EXPANDING_NODES = 17  # the same where each takes a search
_BATCH = 12  # epsilons that are tried together
_RESOLUTION = 1e-4  # of an epsilon: far below what the grid adds
_DROWNED = 1e30  # T nu^2/D^2 beyond which the squares leave the range of doubles
_AFFORDABLE = 2e10  # multiplications that one answer of the accountant may cost: seconds
_UP = 1 + 1e-12  # a product of 1600 positive terms, and the special functions at 8 deviations


@dataclass(frozen=True, eq=False)
class CouplingProblem:
    """c, s and nu of every step (once, with ``steps``, if all are alike) and the diameter."""

    c: Floats
    s: Floats
    nu: Floats
    steps: int
    diameter: float

    @classmethod
    def of(
        cls, c: ArrayLike, s: ArrayLike, nu: ArrayLike, diameter: float, steps: int | None = None
    ) -> CouplingProblem:
        """Checked and, where every step is alike, stored once."""
        cs, ss, ns = schedule(c, s, nu)
        if not (0 < diameter < math.inf):
            why = "two runs on a bounded domain meet again; elsewhere they need not"
            raise DescriptionError("diameter", diameter, "positive and finite", why)
        if np.any(ns <= 0):
            raise DescriptionError("nu", 0.0, "positive at every step", "no noise, no coupling")
        count = len(cs) if steps is None else steps
        if all(np.all(v == v[0]) for v in (cs, ss, ns)):
            cs, ss, ns = cs[:1], ss[:1], ns[:1]
        elif count != len(cs):
            why = "each step has its own value"
            raise DescriptionError("steps", count, f"{len(cs)}, as many as values", why)
        return cls(cs, ss, ns, count, float(diameter))

    @property
    def constant(self) -> bool:
        return len(self.c) == 1

    def step(self, left: int) -> tuple[float, float, float]:
        """c, s, nu of the step that has ``left`` - 1 steps after it."""
        k = 0 if self.constant else self.steps - left
        return float(self.c[k]), float(self.s[k]), float(self.nu[k])


def stopped_delta(problem: CouplingProblem, epsilons: ArrayLike) -> Floats:
    """An upper bound on delta of the last iterate at each epsilon, in both orders.

    Theorem (coupling with stopping). X_{k+1} = P[f_k(X_k) + N(0, nu_k^2 I)], X' likewise with
    f'_k, from one starting point; P projects on a convex set of diameter D; f_k is c_k-Lipschitz
    and |f_k - f'_k| <= s_k. With j steps left, two points at distance at most r have
        H_gamma <= V_j(r) = min{ delta_mu(eps), E V_{j-1}(min(D, B(c r + s))) },  V_0 = 1{r > 0},
    mu the taut string of the j steps from z = r, B(rho) a Brownian motion from rho with variance
    4 nu^2, absorbed at 0. So delta(eps) <= V_T(0).
    Proof. Reflect the noise of one run in the hyperplane between the two means, until they meet:
    both marginals are right, the distance of the two is B(rho), and no likelihood is paid. Take
    positive parts under the expectation; P and min(D, .) only shorten distances. A smaller gap
    than rho is reached by a dummy coordinate, dropped afterwards. Stopping is Theorem SI.
    Reference: this library, docs/theory/coupling.md. Status: sound.

    Grid. V_j is stored at r_i = i h. With S(y, rho) = P(B(rho) > y),
        E V(B(rho)) = V(0) + integral of S(y, rho) dV(y),
    and -S_yy = -S_rho,rho <= S/(4 nu^2), because (x phi)' = (1 - x^2) phi <= phi. Hence
    (1) where V is a chord on a cell, the trapezoidal rule is too small by at most h^2/(48 nu^2)
    S(left); (2) between two points rho the expectation E - V(0) lies above its chord by at most
    (c h)^2/(32 nu^2) of its value at the right end. Both are added. On a cell where a run may
    stop, V is rounded up to the cell's right end.

    >>> problem = CouplingProblem.of(1.0, 0.1, 1.0, diameter=1.0, steps=20)
    >>> bool(stopped_delta(problem, [1.1775])[0] < 1.0e-5)
    True
    """
    targets = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    check_nonnegative("epsilon", targets)
    if problem.steps == 0:
        return np.zeros(len(targets))
    nodes = _nodes(problem)
    mus = _strings(problem)(problem, nodes)
    last: tuple[float, float, float] | None = None
    V = np.ones((len(nodes), len(targets)))
    V[0] = 0.0
    chord = np.zeros((len(nodes) - 1, len(targets)), dtype=bool)
    stopping = True
    for left in range(1, problem.steps + 1):
        here = problem.step(left)
        if here != last:
            survival, last = _survival(nodes, *here), here
        expected = _expectation(survival, V, chord, nodes[1], *here)
        V, goes_on = expected, np.ones(V.shape, dtype=bool)
        if stopping and (price := mus(left)) is not None:
            stop = gaussian.delta(*np.broadcast_arrays(price[:, None], targets))
            goes_on = expected < stop
            V = np.minimum(expected, stop)
            # Later strings only cost more once they pay for more steps than their start is worth.
            late = problem.constant and left * float(problem.s[0]) > problem.diameter
            stopping = not (late and goes_on.all())
        chord = goes_on[:-1] & goes_on[1:]
        settled = np.all(V[-1] <= V[0] * (1 + _SETTLED))
        if settled or left * float(problem.nu.min()) ** 2 > _CROSSINGS * problem.diameter**2:
            return np.array(V[-1])  # any earlier distance is at most D
    return np.array(V[0])


def _nodes(problem: CouplingProblem) -> Floats:
    wanted = _CELLS_PER_NOISE * problem.diameter / float(problem.nu.min())
    cells = int(min(max(math.ceil(wanted), _FEWEST_CELLS), _MOST_CELLS))
    nodes = np.arange(cells + 1) * (problem.diameter / cells) * (1 + 2.0**-50)
    return np.asarray(nodes, dtype=np.float64)


def _survival(nodes: Floats, c: float, s: float, nu: float) -> Floats:
    """P(B(c r_i + s) > y_k), rounded up: a difference of two tails, the smaller subtracted."""
    rho = ((c * nodes + s) * (1 + 2.0**-50))[:, None]
    near, far = (rho - nodes) / (2 * nu), (rho + nodes) / (2 * nu)
    larger = ndtr(near)
    error = larger * (4e-14 + 1e-15 * near * near)
    return np.asarray(np.minimum(larger - ndtr(-far) + error, 1.0))


def _expectation(
    survival: Floats, V: Floats, chord: NDArray[np.bool_], h: float, c: float, s: float, nu: float
) -> Floats:
    """E V(min(D, B(c r + s))) at the nodes, raised so that the chord between nodes is above it."""
    rise = np.diff(V, axis=0)
    weights = np.zeros(V.shape)
    weights[:-1] = rise * np.where(chord, 0.5 + h * h / (48 * nu * nu), 1.0)
    weights[1:] += np.where(chord, 0.5 * rise, 0.0)
    gain = (survival @ weights) * _UP
    bend = c * c * h * h / (32 * nu * nu) * _UP
    gain[:-1] += bend * gain[1:]
    gain[-1] *= 1 + bend
    raised = np.maximum.accumulate(V[0] + gain, axis=0) * (1 + 2.0**-50)
    return np.asarray(np.minimum(raised, 1.0))


# --- the price of stopping: taut strings from every distance --------------------------------------

Strings = Callable[[int], Floats | None]  # None: runs do not stop with so many steps left


def _strings(problem: CouplingProblem) -> Callable[[CouplingProblem, Floats], Strings]:
    if not problem.constant:
        return _any_strings
    return _constant_strings if problem.c[0] <= 1 else _expanding_strings


def _constant_strings(problem: CouplingProblem, nodes: Floats) -> Strings:
    """mu(r) = (c^j r + s sum c^i) / (nu sqrt(sum c^(2i))), i < j: one block, since c <= 1."""
    c, s, nu = problem.step(1)

    def mus(left: int) -> Floats:
        powers = left * math.log(c) if c > 0 else -math.inf
        if c == 1:
            carried, arrived, weight = 1.0, float(left), float(left)
        else:
            carried = math.exp(powers)
            arrived = -math.expm1(powers) / (1 - c)
            weight = -math.expm1(2 * powers) / ((1 - c) * (1 + c))
        return (carried * nodes + s * arrived) / (nu * math.sqrt(weight)) * (1 + 1e-11)

    return mus


def _expanding_strings(problem: CouplingProblem, nodes: Floats) -> Strings:
    """Equal steps with c > 1, from the closed form; mu(r) is convex, see `_any_strings`.

    Runs stop where 1, ..., 32 steps are left, or three percent more, and more, and so on.
    """
    steps = problem.step(1)
    reach = float(nodes[-1])

    def mus(left: int) -> Floats | None:
        if left > 32 and math.floor(32 * math.log(left)) == math.floor(32 * math.log(left - 1)):
            return None
        starts = np.linspace(0.0, reach, _EXPANDING_NODES)
        table = _expanding_table(*steps, left, reach)
        return np.asarray(np.interp(nodes, starts, table) * (1 + 1e-12))

    return mus


@lru_cache(maxsize=4096)
def _expanding_table(c: float, s: float, nu: float, left: int, reach: float) -> tuple[float, ...]:
    """Runs that differ in their length alone, and every epsilon that is tried, share these."""
    starts = np.linspace(0.0, reach, _EXPANDING_NODES)
    return tuple(constant(c, s, nu, left, float(z)) for z in starts)


def _any_strings(problem: CouplingProblem, nodes: Floats) -> Strings:
    """mu(r) is the least norm over shifts that depend linearly on r: convex, so chords are above.

    mu of every restart is off by rounding only (below 1e-10, see `taut_string.restarts`).
    """
    starts = np.linspace(0.0, nodes[-1], _STRING_NODES)
    steps = problem.c, problem.s, problem.nu
    squares = np.array([taut_string.restarts(*steps, float(z)) for z in starts])
    table = np.sqrt(squares) * (1 + 1e-9)

    def mus(left: int) -> Floats:
        return np.asarray(np.interp(nodes, starts, table[:, problem.steps - left]))

    return mus


class Coupling(Curve):
    """The curve of `stopped_delta`, computed when it is asked; ``mu`` is that of a taut string.

    ``mu`` bounds the answers (the minimum of both is reported) and the search for epsilon.
    """

    def __init__(self, problem: CouplingProblem, mu: float) -> None:
        self.problem, self._string = problem, mu
        self._delta = lru_cache(maxsize=64)(self._delta_of)
        self._epsilon = lru_cache(maxsize=64)(self._epsilon_of)

    def delta(self, epsilon: float) -> float:
        """The smaller of the coupling bound and the taut string."""
        return self._delta(float(epsilon))

    def epsilon(self, delta: float) -> float:
        """Bisected from the safe side: an epsilon whose bound was found to be at most delta."""
        check_probability("delta", delta)
        return self._epsilon(float(delta))

    def rdp(self, order: float) -> float:
        """The taut string's: a hockey stick at one epsilon says nothing about Renyi."""
        check_order(order)
        return gaussian.rdp(self._string, order)

    @property
    def string(self) -> gaussian.Gaussian:
        """The taut string's curve, which the answers never exceed."""
        return gaussian.Gaussian(self._string)

    def _delta_of(self, epsilon: float) -> float:
        coupled = float(stopped_delta(self.problem, epsilon)[0])
        return min(coupled, gaussian.delta(self._string, epsilon))

    def _epsilon_of(self, delta: float) -> float:
        safe = gaussian.epsilon(self._string, delta) * (1 + 2.0**-40)  # a tie names the string
        if not 0 < safe < math.inf:
            return safe
        tried = np.linspace(0.0, safe, _BATCH + 1)[:-1]
        unsafe = 0.0
        for _ in range(4):
            bounds = stopped_delta(self.problem, tried)
            holds = np.flatnonzero(bounds <= delta)
            fails = np.flatnonzero(bounds > delta)
            if len(fails) == 0 and tried[0] == 0:
                return 0.0
            safe = min([safe, *tried[holds].tolist()])
            unsafe = max([unsafe, *tried[fails].tolist()])
            if safe - unsafe <= _RESOLUTION * safe:
                break
            tried = _next_tries(tried, bounds, delta, unsafe, safe)
        return safe


class NearOneDelta(Curve):
    """The coupling curve at one delta, and on a coarse list of epsilons at all others.

    Whoever checks it rounds in another way: the room for that is left here.
    """

    def __init__(self, curve: Coupling, delta: float) -> None:
        self._curve, self._delta, self._epsilon = curve, delta, curve.epsilon(delta)
        shares = np.concatenate([np.linspace(0.5, 1.0, 8), np.geomspace(1.05, 3.0, 16)])
        self._epsilons = self._epsilon * shares
        bounds = stopped_delta(curve.problem, self._epsilons)
        self._deltas = np.minimum.accumulate(bounds) * (1 + _ROOM)

    def epsilon(self, delta: float) -> float:
        """The searched epsilon, or the least of the list that holds; never above the string's."""
        string = self._curve.string.epsilon(delta)
        if delta == self._delta:
            return min(self._epsilon * (1 + _ROOM), string)
        held = self._epsilons[self._deltas <= delta]
        return min(float(held[0]), string) if len(held) else string

    def delta(self, epsilon: float) -> float:
        return self._curve.delta(epsilon)

    def rdp(self, order: float) -> float:
        return self._curve.rdp(order)


def _next_tries(tried: Floats, bounds: Floats, delta: float, unsafe: float, safe: float) -> Floats:
    """Where log delta is expected to cross, closely; and a few points to keep the bracket small."""
    guess = (unsafe + safe) / 2
    usable = bounds > 0
    if usable.sum() > 1:
        falling = np.log(bounds[usable])[::-1]
        guess = float(np.interp(math.log(delta), falling, tried[usable][::-1]))
    guess = min(max(guess, unsafe), safe)
    close = guess + (safe - unsafe) * np.geomspace(1e-4, 0.05, _BATCH // 2 - 1)
    below = guess - (safe - unsafe) * np.geomspace(1e-4, 0.05, _BATCH // 2 - 1)
    spread = np.linspace(unsafe, safe, 4)[1:-1]
    points = np.unique(np.concatenate([below, close, spread, [guess]]))
    return points[(points > unsafe) & (points < safe)]


class StoppedCoupling(Theorem):
    """Full batches on a bounded convex domain, long enough to cross it."""

    key = "stopped-coupling"
    name = "Stopped coupling"
    reference = "this library, docs/theory/coupling.md"
    statement = (
        "On a convex set of diameter D, V_0(r) = 1{r > 0} and V_j(r) = min{delta_mu(r,j)(eps), "
        "E V_{j-1}(min(D, B(c r + s)))}, mu(r, j) the taut string of the last j steps from z = r, "
        "B(rho) a Brownian motion from rho with variance 4 nu^2 absorbed at 0 (reflected noise). "
        "The last iterate has delta(eps) <= V_T(0), in both orders and any dimension."
    )
    schemes = (FullBatch,)
    assumptions = (
        "full batch",
        "updates are Lipschitz",
        "parameters are projected on a bounded convex set",
    )
    rounding = True

    def objection(self, run: Run) -> str | None:
        training = run.training
        if not 0 < training.diameter < math.inf:
            return "it needs a bounded domain"
        if run.contraction is None or not np.all(np.isfinite(run.contraction)):
            return "it needs updates with a known Lipschitz constant"
        if not run.last_only:
            return "more than the last iterate is released"
        noises = training.noises[:1] if training.constant else training.noises
        if np.any(noises == 0) or np.all(run.impulses == 0):
            return "it needs noise at every step and something to hide"
        return _hopeless(run, noises)

    def prove(self, run: Run) -> Bound:
        training = run.training
        assert run.contraction is not None
        noises = training.noises[:1] if training.constant else training.noises
        problem = CouplingProblem.of(
            run.contraction, run.impulses, noises, training.diameter, training.steps
        )
        string = ShiftedInterpolation().prove(run)
        assert string.curve.mu is not None
        curve = Coupling(problem, string.curve.mu)
        wanted = math.ceil(_CELLS_PER_NOISE * training.diameter / float(noises.min()))
        cells = min(max(wanted, _FEWEST_CELLS), MOST_CHECKED)
        witness = {**string.witness, "cells": cells}
        return Bound(
            self, curve, witness, search=lambda delta: Proof(NearOneDelta(curve, delta), witness)
        )


def _hopeless(run: Run, noises: Floats) -> str | None:
    """Whether the bound cannot be better than the taut string, or takes too long to find out."""
    training = run.training
    steps, D = training.steps, training.diameter
    repeats = steps / len(noises)
    with np.errstate(over="ignore", under="ignore"):
        crossings = float(np.sum((noises / D) ** 2)) * repeats
    if crossings > _DROWNED:
        return "the noise dwarfs the domain, and every step alone hides the record"
    if crossings < 1:
        return "two runs have no time to meet (T nu^2 < D^2): the taut string is hardly beaten"
    ratio = D / float(noises.min())
    cells = max(_CELLS_PER_NOISE * ratio, _FEWEST_CELLS)
    work = cells**2 * (24 * min(steps, 4 * ratio**2 + 100) if training.constant else 100 * steps)
    if cells > _MOST_CELLS or work > _AFFORDABLE:
        return (
            f"the domain is {ratio:.3g} noise standard deviations wide and the run has {steps:,} "
            "steps: too much work (lastiterate.bounds.coupling.stopped_delta can be asked)"
        )
    return None
