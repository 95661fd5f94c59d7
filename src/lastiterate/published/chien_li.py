"""Chien & Li 2025: convergent privacy without convexity or smoothness (shifted divergences).

Theorems 3.1, 3.7 and A.1 are the taut-string programme with the extra demand that every step pays
at least its own sensitivity when it arrives; spreading it over later steps is what makes shifted
interpolation smaller. They are kept with their exact optimum, to be compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.renyi import Renyi, linear
from lastiterate.description import (
    Cyclic,
    FullBatch,
    Reshuffled,
    Shuffled,
    WithoutReplacement,
)
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.published.setting import (
    UP,
    evaluated,
    renyi_moments,
    theorem,
    unit,
    worst_position,
)
from lastiterate.theory import dynamics
from lastiterate.theory.dynamics import Array
from lastiterate.theory.full_batch import modulus_path
from lastiterate.theory.registry import ADJACENCIES, ANY_UPDATE, Proof, Theorem
from lastiterate.theory.run import Run

_UP_MANY = 1 + 1e-11  # fewer than 1e4 roundings of positive terms
_SEQUENCES = 4096
_SMALLEST = 1e-290  # lifts what underflowed back above the truth
_FORGETS = 1e-100  # a factor whose powers leave the range of doubles
_HORIZONS = 100_000  # more remaining steps are not tried: any subset of horizons is a valid bound
_EACH = 2_000  # horizons tried one by one; beyond them coarsely, then closely around the best


def output_perturbation_coefficient(diameter: float, noise: float) -> float:
    """Figure 1: R_alpha <= alpha·D²/(2ν²). REFUTED: the gradient step moves before the noise.

    >>> output_perturbation_coefficient(1.0, 1.0)
    0.5
    """
    return diameter**2 / (2 * noise**2)


# --- as printed -----------------------------------------------------------------------------------


class Clipped(NamedTuple):
    """Clipped mini-batch steps in the paper's letters: η, (L, λ)-Hölder gradients, K, b, σ, D."""

    step_size: float
    constant: float
    exponent: float
    clip: float
    batch: int
    noise: float
    diameter: float = math.inf

    @property
    def sensitivity(self) -> float:
        """2ηK/b."""
        return 2 * self.step_size * self.clip / self.batch

    def g(self, x: float, share: float = 1.0) -> float:
        """x + ηL·share·x^λ."""
        return x + self.step_size * self.constant * share * float(x**self.exponent)

    def h(self, z: float) -> float:
        """The inverse of g."""
        if z <= 0:
            return 0.0
        return float(brentq(lambda x: self.g(x) - z, 0.0, z, xtol=1e-18, maxiter=10_000))


def inverse_g(run: Clipped | Sequence[float], z: float) -> float:
    """Lemma 3.9: h(z), the solution x of x + ηLx^λ = z.

    >>> round(inverse_g((0.1, 10.0, 0.5, 1.0, 1, 1.0), 2.0), 9)  # ((sqrt(L² + 4z) - L)/2)²
    1.0
    """
    return Clipped(*run).h(z)


def lemma_a2(run: Clipped | Sequence[float], steps: int, arrivals: Sequence[int]) -> list[float]:
    """Lemma A.2 (3.5, 3.10 for full batches): D_0..D_T, all branches, at most the diameter.

    0 up to the first use of the record, then min(g(D; ηL(b-1)/b) + 2ηK/b, D + 2ηK) after a use and
    min(g(D; ηL), D + 2ηK) after any other step.

    >>> lemma_a2((0.25, 1.0, 1.0, 1.0, 2, 1.0), 3, [1])
    [0.0, 0.0, 0.25, 0.3125]
    """
    run = Clipped(*run)
    distance, far = [0.0], 2 * run.step_size * run.clip
    for t in range(steps):
        used, last = t in arrivals, distance[-1]
        grown = run.g(last, (run.batch - 1) / run.batch if used else 1.0)
        grown += run.sensitivity if used else 0.0
        distance.append(min(grown, last + far, run.diameter) if used or last > 0 else 0.0)
    return distance


def theorem_a1_printed(
    run: Clipped | Sequence[float], steps: int, arrivals: Sequence[int]
) -> float:
    """Theorems A.1, 3.7 and 3.1 as printed: the coefficient of α, any Hölder exponent, any τ.

    min over τ and a of Σ_(t≥τ) (s_t + a_t)²/2σ² (the best β), A_T = 0, A_t = h(A_(t+1) + a_t), A_τ
    ≥ D_τ. The optimum has s_t + a_t = max(s_t, w_t), w_t = g'(A_(t+1)) w_(t+1); for each τ and last
    active step the least w is bisected. Every feasible choice is a valid bound.

    >>> run = Clipped(0.0591537, 1.0, 1.0, 0.0741369 / 2 / 0.0591537, 1, 1.0, 0.2614704)
    >>> round(theorem_a1_printed(run, 16, [2, 6, 10, 14]), 7)
    0.0085838
    """
    run = Clipped(*run)
    uses = [run.sensitivity if t in arrivals else 0.0 for t in range(steps)]
    goals = lemma_a2(run, steps, arrivals)
    best, top = sum(u * u for u in uses), math.sqrt(len(arrivals)) * run.sensitivity

    def paid(last: int, kappa: float, tau: int) -> float:
        """The cost from τ on with this last active step and weight; infinite if infeasible."""
        level, weight, cost = 0.0, kappa, sum(u * u for u in uses[last + 1 :])
        for t in range(last, tau - 1, -1):
            if t < last:
                if level == 0 and run.exponent < 1:
                    return math.inf
                weight *= 1 + (run.g(1.0) - 1) * run.exponent * level ** (run.exponent - 1)
            step = max(uses[t], weight)
            level, cost = run.h(level + step - uses[t]), cost + step * step
        return cost if level >= goals[tau] else math.inf

    for last in range(steps) if run.exponent < 1 else [steps - 1]:
        for tau in range(last + 1):
            low, high = 0.0, top  # no step pays more than composition
            for _ in range(40):
                middle = (low + high) / 2 if low > 1e-6 * top else math.sqrt(low * high + 1e-24)
                feasible = paid(last, middle, tau) < math.inf
                low, high = (low, middle) if feasible else (middle, high)
            best = min(best, paid(last, high, tau))
    return float(best) / (2 * run.noise**2)


def corollary_a3_printed(
    order: float, run: Clipped | Sequence[float], steps: int, batches: int
) -> float:
    """Corollary A.3 with Theorem A.1 as printed inside; one hidden partition, any exponent."""
    costs = [theorem_a1_printed(run, steps, range(j, steps, batches)) for j in range(batches)]
    exponents = (order - 1) * order * np.array(costs)
    return float(np.logaddexp.reduce(exponents) - math.log(batches)) / (order - 1)


def definition_3_11(order: float, rate: float, noise: float) -> float:
    """S_α(q, σ) = D_α(N(0, σ²) ‖ (1-q)N(0, σ²) + qN(1, σ²)): never above log 1/(1-q).

    >>> round(definition_3_11(2.0, 0.5, 0.5), 4)  # the other order: 2.6672
    0.4385
    """
    mixed = [1 - rate, rate], [0.0, 1.0], [noise, noise]
    return renyi_moments(order, ([1.0], [0.0], [noise]), mixed).divergence


def theorem_3_12(
    order: float, rate: float, s: float, nu: float, steps: int, c: float, diameter: float = math.inf
) -> float:
    """Theorem 3.12 as printed, for c-Lipschitz updates and one β for all steps. REFUTED.

    min over τ and β of (T-τ)·S_α(q, βν/s) + αD_τ²/(2ν²(1-β)Σ_(i≤T-τ) c^(-2i)).

    >>> round(theorem_3_12(8.0, 0.5, 1.0, 0.5, steps=2, c=1.0, diameter=0.5), 3)
    1.148
    """
    best, distance = steps * definition_3_11(order, rate, nu / s), 0.0
    for tau in range(1, steps):
        distance = min(c * distance + s, diameter)
        left = steps - tau
        shift = order * distance**2 / (2 * nu**2 * sum(c ** (-2 * i) for i in range(1, left + 1)))

        def price(beta: float, left: int = left, shift: float = shift) -> float:
            return left * definition_3_11(order, rate, beta * nu / s) + shift / (1 - beta)

        found = minimize_scalar(
            price, bounds=(0.01, 0.99), method="bounded", options={"xatol": 0.01}
        )
        best = min(best, float(found.fun))
    return best


def walk_on_an_interval(
    order: float,
    diameter: float,
    s: float,
    nu: float,
    steps: int,
    c: float = 1.0,
    rate: float = 1.0,
) -> float:
    """R_α of two projected walks from the middle of [0, D], on cells (which lose, never gain).

    x <- clip(D/2 + c(x - D/2) ± s/2 + N(0, ν²)): the record's gradient points up in one data set
    and down in the other; it is in the batch with probability ``rate``, else others point down.

    >>> claim = 1.01 * output_perturbation_coefficient(1.0, 0.5)
    >>> round(walk_on_an_interval(1.01, 1.0, 0.75, 0.5, 60) / claim, 2)
    1.43
    """
    edges = np.linspace(0.0, diameter, 402)
    points = np.concatenate([[0.0], (edges[1:] + edges[:-1]) / 2, [diameter]]) - diameter / 2
    kernels = []
    for shift in (-s / 2, s / 2):
        z = (edges - diameter / 2 - (c * points + shift)[:, None]) / nu
        kernels.append(np.diff(ndtr(z), axis=1, prepend=0.0, append=1.0))
    other = kernels[0]
    one = (1 - rate) * other + rate * kernels[1]
    p = q = np.eye(len(points))[len(points) // 2]
    for _ in range(steps):
        p, q = p @ one, q @ other
    return math.log(float(np.sum(p**order * q ** (1 - order)))) / (order - 1)


def conditioning_gap(z: float, s: float = 1.0) -> float:
    """What the proofs of Theorems 3.1 to A.1 take for 0: a divergence D_2 given Z = Z' = z.

    T = 2, ψ = identity, ψ' - ψ = s·sign(x), ν = 1, β = 1/2: Z' depends on the iterate, so that
    conditioning on it tilts the iterate's law: log(zs/tanh(zs)). The statements stand.

    >>> round(conditioning_gap(1.0), 2), round(conditioning_gap(4.0), 2)
    (0.27, 1.39)
    """
    return math.log(z * s / math.tanh(z * s))


def altschuler_talwar(c: float, s: float, nu: float, steps: int, diameter: float) -> float:
    """Altschuler & Talwar 2022, as Figure 1(b) compares with it: the coefficient of α.

    The diameter D at the restart and half of the noise for each part: min over m of (m s² + D²/Σ_
    (i≤m) c^(-2i))/ν², or composition. Their constants are not quoted; these are of their argument.

    >>> round(altschuler_talwar(0.9, 0.08, 1.0, 200, 1.0), 4)
    0.0903
    """
    weights = np.cumsum(c ** (-2.0 * np.arange(1, steps + 1)))
    restarted = np.arange(1, steps + 1) * s**2 + diameter**2 / weights
    return min(steps * s**2 / 2, float(restarted.min())) / nu**2


def example_a14(x: float, y: float) -> float:
    """Appendix A.14: |G(x) - G(y)|/|x - y|^(1/3) of G(x) = |x|^(1/3): at most 1.

    Printed constant 2^(2/3), which is that of sign(x)|x|^(1/3): true, and loose.
    """
    return float(abs(abs(x) ** (1 / 3) - abs(y) ** (1 / 3)) / abs(x - y) ** (1 / 3))


# --- full batches -------------------------------------------------------------------------------


def theorem_3_1(run: Run) -> Proof:
    """Theorem 3.1 with its exact optimum over tau and beta."""
    training = run.training
    c, s, nu = run.steps.one
    cap = float(dynamics.reach(run.etas[:1], training)[0] + run.rounding_drifts[0])
    best = unit(run) * training.steps
    if nu > 0 and s > 0:

        def costs(left: Array) -> Array:
            start = _distance(c, s, cap, training.diameter, training.steps - left)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                cost = remaining_cost(c, s / nu, start / nu, left)  # in units of the noise
            return np.where(np.isnan(cost), math.inf, np.maximum(cost, _SMALLEST))

        best = min(best, _cheapest(costs, min(training.steps - 1, _HORIZONS)) / 2)
    return Proof(linear(best * UP))


def theorem_3_7(run: Run) -> Proof:
    """Theorem 3.7: gradients that are only Hoelder continuous."""
    mu = modulus_path(run, 0, run.training.steps)[0].mu
    return Proof(linear(mu * mu / 2 * UP))


def _cheapest(costs: Callable[[Array], Array], most: int) -> float:
    """The least cost over 1..most remaining steps."""
    left = np.arange(1, min(most, _EACH) + 1, dtype=float)
    if most > _EACH:
        left = np.append(left, np.unique(np.geomspace(_EACH + 1, most, 400).round()))
    found = costs(left)
    if most > _EACH:
        i = int(np.argmin(found))
        low, high = left[max(i - 1, 0)], left[min(i + 1, len(left) - 1)]
        found = np.append(found, costs(np.arange(low, high + 1)))
    return float(found.min(initial=math.inf))


def _distance(c: float, s: float, cap: float, diameter: float, steps: Array) -> Array:
    """d_tau: how far apart two runs can be after so many steps."""
    if c == 1:
        tracked = s * steps
    else:
        with np.errstate(over="ignore"):
            tracked = s * np.expm1(steps * math.log(c)) / (c - 1) if c > 0 else s + 0 * steps
    return np.minimum(np.minimum(tracked, cap * steps), diameter)


def remaining_cost(c: float, s: float, start: Array, left: Array) -> Array:
    """min Σ(s + a_i)² over a_i ≥ 0 with Σ c^(−i) a_i = start, i = 1..left (every step pays s).

    s + a_i = max(s, κ c^(−i)): the active steps are the last ones for c < 1 and the first ones
    for c > 1; their number is found by bisection, κ then in closed form.
    """
    if c < _FORGETS:
        return left * s * s + (c * start) ** 2 + 2 * c * start * s  # the next step pays for it
    towards = c if c < 1 else 1 / c
    if towards < _FORGETS:
        return np.full(left.shape, math.inf)  # the distance leaves the range of doubles
    # In units where the most active step has weight 1: the demand and the weights towards^r.
    with np.errstate(under="ignore"):
        demand = start * (np.exp(left * math.log(c)) if c < 1 else c)

    def kappa(active: Array) -> Array:
        return (demand + s * _geometric_sum(towards, active)) / _geometric_sum(towards**2, active)

    low, high = np.ones_like(left), left.copy()
    while np.any(low < high):  # largest count whose least active step still pays at least s
        middle = np.ceil((low + high) / 2)
        fits = kappa(middle) * towards ** (middle - 1) >= s
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return kappa(low) ** 2 * _geometric_sum(towards**2, low) + (left - low) * s * s


def _geometric_sum(q: float, terms: Array) -> Array:
    """Σ_{r < terms} q^r."""
    return terms.copy() if q == 1 else np.expm1(terms * math.log(q)) / (q - 1)


# --- mini-batches -------------------------------------------------------------------------------


def theorem_a1(
    c: float,
    s: float,
    nu: float,
    steps: int,
    arrivals: Sequence[int],
    diameter: float = math.inf,
) -> float:
    """Theorem A.1: kappa with R_alpha <= kappa alpha, the record being read at ``arrivals``.

    kappa = (1/2 nu^2) min over tau of the least sum_{t >= tau} (s_t + a_t)^2 with
    sum_{t >= tau} a_t c^(T-1-t) >= d_tau c^(T-tau): s_t + a_t = max(s_t, k c^(T-1-t)), k from one
    root (the minimum over their beta of s^2/beta + a^2/(1-beta) is (s+a)^2). d_tau is Lemma A.2's
    distance, at most the diameter. tau: 0 and right after each arrival, every choice being valid.
    For updates that are c-Lipschitz (exponent 1 of their Hoelder condition).
    Status: sound; the printed proof conditions in an order that fails, and is repaired; the sums
    run to the last epoch begun, E-1.

    >>> round(theorem_a1(1.0, 1.0, 1.0, steps=4, arrivals=[0]), 6)
    0.166667
    """
    if not c > 0 or not nu > 0:
        raise DescriptionError("c, nu", (c, nu), "both positive", "the theorem divides by both")
    uses = np.zeros(steps)
    uses[list(arrivals)] = s
    with np.errstate(over="ignore", under="ignore"):
        uses /= nu  # in units of the noise
    diameter = diameter / nu
    best = _squares(uses)
    distance = 0.0
    for tau in range(1, steps):
        distance = min(c * distance + float(uses[tau - 1]), diameter)
        if uses[tau - 1] > 0:
            best = min(best, _from(c, uses[tau:], distance))
    return max(best / 2 * _UP_MANY, 0.0 if s == 0 or len(arrivals) == 0 else 1e-290)


# A conversion asks for some hundred orders, and kappa is the same in all of them.
_remembered = lru_cache(maxsize=4096)(theorem_a1)


def _squares(values: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.sum(values**2))


def _from(c: float, uses: NDArray[np.float64], distance: float) -> float:
    """Least sum of (s_t + a_t)^2 that pays ``distance`` besides every use of the record."""
    left = len(uses)
    log_c = math.log(c)
    # Units of the end for c <= 1, of the restart for c > 1: no power overflows.
    shift = 0.0 if c <= 1 else left * log_c
    weight = np.exp(np.arange(left - 1, -1, -1) * log_c - shift)
    goal = distance * math.exp(left * log_c - shift)
    with np.errstate(over="ignore", invalid="ignore"):
        threshold = np.divide(uses, weight, out=np.full(left, math.inf), where=weight > 0)
        order = np.argsort(threshold)
        squares = np.cumsum((weight**2)[order])
        levels = goal + np.cumsum((weight * uses)[order])
        levels /= np.where(squares > 0, squares, 1.0)
        # k is the level of the first n steps once the next threshold lies above it.
        after = np.append(threshold[order][1:], math.inf)
        n = int(np.argmax(levels <= after))
        cost = float(np.sum(np.maximum(uses, levels[n] * weight) ** 2))
    return math.inf if math.isnan(cost) else cost  # weights beyond the range of doubles: no help


def corollary_a3(
    c: float,
    s: float,
    nu: float,
    steps: int,
    batches: int,
    order: float,
    diameter: float = math.inf,
    reshuffled: bool = False,
) -> float:
    """Corollary A.3: R_alpha <= log(E_B exp((alpha-1) eps(alpha, B)))/(alpha-1).

    The average is over the position of the record, drawn once, or anew in each epoch
    (``reshuffled``; the number of sequences must then be small). Status: sound (the proof cites
    the divergence of Kullback and Leibler for joint convexity; Lemma A.5 is what it needs).

    >>> once = corollary_a3(1.0, 1.0, 1.0, steps=4, batches=2, order=2.0)
    >>> once <= 2.0 * theorem_a1(1.0, 1.0, 1.0, steps=4, arrivals=[1, 3])
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


# --- of a run -----------------------------------------------------------------------------------


def output_perturbation(run: Run) -> Proof:
    """One step from anywhere on the domain: mu = (g(D) + s)/nu."""
    training, last = run.training, run.etas[-1:]
    shape = dynamics.modulus(last, training, run.loss)
    assert shape is not None
    spread = float(shape(training.diameter)[0]) * dynamics.ROUNDING
    gap = np.array([spread + float(dynamics.step_sensitivities(last, training)[0])])
    square = float(dynamics.squared_ratio(gap, training.noises[-1:])[0])
    return Proof(Gaussian(math.sqrt(square) * (1 + 1e-12)))


def _fixed_sequence(run: Run) -> Proof:
    steps, batches, diameter = run.training.steps, run.batches, run.training.diameter
    worst = worst_position(
        lambda j: theorem_a1(*run.steps.one, steps, range(j, steps, batches), diameter), batches
    )
    return Proof(linear(worst))


def _averaged_sequences(run: Run) -> Proof:
    steps, batches, diameter = run.training.steps, run.batches, run.training.diameter
    return Proof(Renyi(lambda order: corollary_a3(*run.steps.one, steps, batches, order, diameter)))


def _bounded(run: Run) -> str | None:
    if math.isinf(run.training.diameter):
        return "the domain is unbounded (diameter = inf)"
    if dynamics.modulus(run.etas[-1:], run.training, run.loss) is None:
        return dynamics.no_modulus(run.training, run.loss) or dynamics.OUT_OF_RANGE
    return None


def _holder(run: Run) -> str | None:
    if run.loss.kind not in ("holder", "unknown"):
        return "it is meant for losses whose gradient is only Hoelder continuous"
    if run.loss.regularization:
        return "it is stated without an L2 term"
    if not math.isfinite(run.training.diameter):
        return "the domain is unbounded (diameter = inf)"
    return dynamics.no_modulus(run.training, run.loss)


def _sequences(run: Run) -> str | None:
    if run.steps.one[0] == 0:
        return "it divides by the contraction, and one step forgets everything here"
    if run.batches * run.training.steps > 400_000:
        return "it is not evaluated beyond 400,000 positions times steps"
    return evaluated(run)


_LAST = ADJACENCIES | {"expansion"}

ROWS: tuple[Theorem, ...] = (
    theorem("chien-li-2025-3.1", schemes=(FullBatch,), bound=theorem_3_1, supports=_LAST),
    theorem(
        "chien-li-2025-3.7",
        schemes=(FullBatch,),
        bound=theorem_3_7,
        limits=_holder,
        supports=_LAST | {"no Lipschitz constant"},
    ),
    theorem(
        "chien-li-2025-a1",
        schemes=(Cyclic,),
        bound=_fixed_sequence,
        limits=_sequences,
        supports=_LAST,
    ),
    theorem(
        "chien-li-2025-corollary-a3",
        schemes=(Shuffled,),
        bound=_averaged_sequences,
        limits=_sequences,
        supports=_LAST,
    ),
    theorem(
        "output-perturbation",
        schemes=(FullBatch, Cyclic, Shuffled, Reshuffled),
        bound=output_perturbation,
        limits=_bounded,
        supports=ANY_UPDATE,
    ),
    theorem("chien-li-2025-figure-1", schemes=(FullBatch,)),
    theorem("chien-li-2025-3.12-printed", schemes=(WithoutReplacement,)),
)
