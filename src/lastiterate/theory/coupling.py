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

from lastiterate.curves import gaussian
from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import check_nonnegative, check_order, check_probability
from lastiterate.description import FullBatch
from lastiterate.errors import DescriptionError
from lastiterate.theory import taut_string
from lastiterate.theory.dynamics import once
from lastiterate.theory.full_batch import full_batch_bound
from lastiterate.theory.path_witness import LazyWitness
from lastiterate.theory.registry import LIPSCHITZ, Proof, Theorem
from lastiterate.theory.replay import schedule
from lastiterate.theory.run import Run
from lastiterate.theory.taut_string import constant

Floats = NDArray[np.float64]

_CELLS_PER_NOISE = 30  # cells of the grid in one standard deviation of the noise
_FEWEST_CELLS, _MOST_CELLS = 256, 1600
MOST_CHECKED = 1000  # cells that the verifier's grid has at most
_ROOM = 3e-4  # relative: for another way of rounding
_SETTLED = 3e-4  # V(D)/V(0) - 1 below this: more steps change nothing that is printed
_CROSSINGS = 60  # T nu^2/D^2 of the last steps that are looked at; those before are covered by D
_STRING_NODES = 65  # distances from which taut strings are computed; mu is convex between them
_EXPANDING_NODES = 17  # the same where each takes a search
_BATCH = 12  # epsilons that are tried first, on a grid whose cells are _COARSER times as wide
_COARSER = 4
# Then parts of the epsilon where log delta is expected to cross: a finer grid's is a little lower,
_BELOW = np.array([0.955, 0.975, 0.99, 1.005])
_AROUND = np.array([1 + 4e-6, 1 + 6e-5])  # and at last it is known closely
_RESOLUTION = 5e-5  # of an epsilon: far below what the grid adds
_DROWNED = 1e30  # T nu^2/D^2 beyond which the squares leave the range of doubles
_AFFORDABLE = 2e10  # multiplications that one answer of the accountant may cost: seconds
_PROFILE = 1000  # values of mu in a table of what stopping costs at least
_UNTHREADED = 9000  # numbers of a matrix up to which BLAS does not think of threads
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
        """Whether all steps are equal."""
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
    return _stopped(problem, epsilons)


def _stopped(problem: CouplingProblem, epsilons: ArrayLike, coarser: int = 1) -> Floats:
    """`stopped_delta`, on a grid whose cells are ``coarser`` times as wide: larger, and sooner."""
    targets = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    check_nonnegative("epsilon", targets)
    if problem.steps == 0:
        return np.zeros(len(targets))
    nodes = _nodes(problem.diameter, _cells(problem) // coarser)
    mus = _strings(problem)(problem, nodes)
    last: tuple[float, float, float] | None = None
    V = np.ones((len(nodes), len(targets)))
    V[0] = 0.0
    chord = np.zeros((len(nodes) - 1, len(targets)))  # 1 on cells where V is below its chord
    prices = _Prices(targets)
    stopping, smallest = True, float(problem.nu.min())
    for left in range(1, problem.steps + 1):
        here = problem.step(left)
        if here != last:
            survival, last = _transition(problem.diameter, len(nodes) - 1, *here), here
        V = expected = _expectation(survival, V, chord, nodes[1], here[0], here[2])
        goes_on = expected < 1.0
        if stopping and (price := mus(left)) is not None:
            stop = prices(price, expected)
            goes_on = expected < stop
            V = np.minimum(expected, stop)
            # Later strings only cost more once they pay for more steps than their start is worth.
            late = problem.constant and left * float(problem.s[0]) > problem.diameter
            stopping = not (late and goes_on.all())
        chord = (goes_on[:-1] & goes_on[1:]).astype(np.float64)
        settled = np.all(V[-1] <= V[0] * (1 + _SETTLED))
        if settled or left * smallest**2 > _CROSSINGS * problem.diameter**2:
            return np.array(V[-1])  # any earlier distance is at most D
    return np.array(V[0])


class _Prices:
    """delta of stopping, computed only where it may be below what going on is expected to cost.

    delta_mu grows with mu: a short table tells from below what a stop costs.
    """

    def __init__(self, targets: Floats) -> None:
        self._targets = targets
        self._mus = np.geomspace(1e-3, 1e2, _PROFILE)
        self._least = np.zeros((_PROFILE + 1, len(targets)))
        self._least[1:] = gaussian.delta(self._mus[:, None], targets)

    def __call__(self, mus: Floats, expected: Floats) -> Floats:
        """At every node; 1 where a stop is known not to be cheaper than ``expected``."""
        asked = self._least[np.searchsorted(self._mus, mus, side="right")] < expected
        node, target = np.nonzero(asked)
        stop = np.ones(expected.shape)
        if len(node):
            stop[asked] = gaussian.delta(mus[node], self._targets[target])
        return stop


def _cells(problem: CouplingProblem) -> int:
    wanted = _CELLS_PER_NOISE * problem.diameter / float(problem.nu.min())
    return int(min(max(math.ceil(wanted), _FEWEST_CELLS), _MOST_CELLS))


def _nodes(diameter: float, cells: int) -> Floats:
    nodes = np.arange(cells + 1) * (diameter / cells) * (1 + 2.0**-50)
    return np.asarray(nodes, dtype=np.float64)


@lru_cache(maxsize=2)  # every epsilon that is tried needs the same ones
def _transition(diameter: float, cells: int, c: float, s: float, nu: float) -> Floats:
    return _few_rows(_survival(_nodes(diameter, cells), c, s, nu))


def _survival(nodes: Floats, c: float, s: float, nu: float) -> Floats:
    """P(B(c r_i + s) > y_k), rounded up: a difference of two tails, the smaller subtracted."""
    rho = ((c * nodes + s) * (1 + 2.0**-50))[:, None]
    near, far = (rho - nodes) / (2 * nu), (rho + nodes) / (2 * nu)
    larger = ndtr(near)
    error = larger * (4e-14 + 1e-15 * near * near)
    return np.asarray(np.minimum(larger - ndtr(-far) + error, 1.0))


def _few_rows(matrix: Floats) -> Floats:
    """The same rows (and zeros) in stacks so small that BLAS multiplies each on this thread alone.

    A product per step is over before a second thread has heard of it. Where others keep the cores
    busy, waiting for that thread is most of the time.
    """
    rows = max(_UNTHREADED // matrix.shape[1], 1)
    stacks = -(-len(matrix) // rows)
    padded = np.zeros((stacks * rows, matrix.shape[1]))
    padded[: len(matrix)] = matrix
    return padded.reshape(stacks, rows, -1)


def _expectation(
    survival: Floats, V: Floats, chord: Floats, h: float, c: float, nu: float
) -> Floats:
    """E V(min(D, B(c r + s))) at the nodes, raised so that the chord between nodes is above it."""
    rise = V[1:] - V[:-1]
    half = rise * chord * 0.5
    weights = np.zeros(V.shape)
    weights[:-1] = rise - half + half * (h * h / (24 * nu * nu))
    weights[1:] += half
    gain = (survival @ weights).reshape(-1, V.shape[1])[: len(V)] * _UP
    bend = c * c * h * h / (32 * nu * nu) * _UP
    gain[:-1] += bend * gain[1:]
    gain[-1] *= 1 + bend
    gain += V[0]
    raised = np.maximum.accumulate(gain, axis=0) * (1 + 2.0**-50)
    return np.minimum(raised, 1.0, out=raised)


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
    reach = problem.diameter * (1 + 2.0**-40)  # beyond the last node of every grid

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
    starts, table = _string_table(problem)

    def mus(left: int) -> Floats:
        return np.asarray(np.interp(nodes, starts, table[:, problem.steps - left]))

    return mus


@lru_cache(maxsize=1)  # every grid and every epsilon that is tried share it
def _string_table(problem: CouplingProblem) -> tuple[Floats, Floats]:
    starts = np.linspace(0.0, problem.diameter * (1 + 2.0**-40), _STRING_NODES)
    steps = problem.c, problem.s, problem.nu
    squares = np.array([taut_string.restarts(*steps, float(z)) for z in starts])
    return starts, np.sqrt(squares) * (1 + 1e-9)


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
        """Searched from the safe side: an epsilon whose bound was found to be at most delta."""
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
        bounds = _stopped(self.problem, tried, _COARSER)
        if bounds[0] <= delta:
            return 0.0
        # Two pairs (epsilon, bound): the first fails, the second holds, whatever grid found it. The
        # string's epsilon has no bound of this kind yet: 0, so that it is never taken for close.
        fails, holds = (0.0, float(bounds[0])), (safe, 0.0)
        around = _BELOW
        for _ in range(6):
            tried = _crossing(tried, bounds, delta, fails[0], holds[0]) * around
            tried = tried[(tried > fails[0]) & (tried < holds[0])]
            if len(tried) == 0:
                tried = np.array([(fails[0] + holds[0]) / 2])
            bounds = stopped_delta(self.problem, tried)
            for pair in zip(tried.tolist(), bounds.tolist(), strict=True):
                if pair[1] > delta:
                    fails = max(fails, pair)
                else:
                    holds = min(holds, pair)
            if _gained(fails, holds, delta) <= _RESOLUTION * holds[0]:
                break
            around = _AROUND
        return holds[0]


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
        """The coupling curve's."""
        return self._curve.delta(epsilon)

    def rdp(self, order: float) -> float:
        """The taut string's."""
        return self._curve.rdp(order)


def _gained(fails: tuple[float, float], holds: tuple[float, float], delta: float) -> float:
    """How much smaller than the one that holds an epsilon might be, on the secant of log delta."""
    apart = holds[0] - fails[0]
    if holds[1] == 0:
        return apart
    return apart * math.log(delta / holds[1]) / math.log(fails[1] / holds[1])


def _crossing(tried: Floats, bounds: Floats, delta: float, unsafe: float, safe: float) -> float:
    """Where the bounds are expected to be ``delta``: epsilon is a cubic in their logarithm."""
    usable = np.flatnonzero(bounds > 0)
    logs = np.log(bounds[usable] / delta)
    near = np.argsort(np.abs(logs), kind="stable")[:4]
    x, y = logs[near], tried[usable[near]]
    guess = 0.0
    with np.errstate(all="ignore"):
        for i in range(len(x)):
            others = np.delete(x, i)
            guess += float(y[i] * np.prod(others / (others - x[i])))
    return guess if unsafe < guess < safe else (unsafe + safe) / 2


def stopped_coupling_limits(run: Run) -> str | None:
    """What is special about it: a bounded domain that the run is long enough to cross."""
    if not 0 < run.training.diameter < math.inf:
        return "it needs a bounded domain"
    noises = once(run.steps.nu)
    if np.any(noises == 0) or np.all(once(run.steps.s) == 0):
        return "it needs noise at every step and something to hide"
    return _hopeless(run, noises)


def stopped_coupling_bound(run: Run) -> Proof:
    """The curve of `stopped_delta`, never above the taut string's."""
    training = run.training
    c, s, noises = (once(each) for each in (run.steps.c, run.steps.s, run.steps.nu))
    problem = CouplingProblem.of(c, s, noises, training.diameter, training.steps)
    string = full_batch_bound(run)
    assert string.curve.mu is not None
    curve = Coupling(problem, string.curve.mu)
    wanted = math.ceil(_CELLS_PER_NOISE * training.diameter / float(noises.min()))
    cells = min(max(wanted, _FEWEST_CELLS), MOST_CHECKED)
    witness = LazyWitness(lambda: {**string.witness, "cells": cells})
    return Proof(curve, witness, search=lambda delta: Proof(NearOneDelta(curve, delta), witness))


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
    each = 24 * min(steps, 4 * ratio**2 + 100) if run.steps.constant else 100 * steps
    work = cells**2 * each
    if cells > _MOST_CELLS or work > _AFFORDABLE:
        return (
            f"the domain is {ratio:.3g} noise standard deviations wide and the run has {steps:,} "
            "steps: too much work (lastiterate.theory.coupling.stopped_delta can be asked)"
        )
    return None


STOPPED_COUPLING = Theorem(
    key="stopped-coupling",
    name="Stopped coupling",
    reference="this library, docs/theory/coupling.md",
    statement=(
        "On a convex set of diameter D, V_0(r) = 1{r > 0} and V_j(r) = min{delta_mu(r,j)(eps), "
        "E V_{j-1}(min(D, B(c r + s)))}, mu(r, j) the taut string of the last j steps from z = r, "
        "B(rho) a Brownian motion from rho with variance 4 nu^2 absorbed at 0 (reflected noise). "
        "The last iterate has delta(eps) <= V_T(0), in both orders and any dimension."
    ),
    schemes=(FullBatch,),
    bound=stopped_coupling_bound,
    limits=stopped_coupling_limits,
    supports=LIPSCHITZ,
    assumptions=(
        "full batch",
        "updates are Lipschitz",
        "parameters are projected on a bounded convex set",
    ),
)
