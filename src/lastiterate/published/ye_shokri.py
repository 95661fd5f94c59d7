"""Ye & Shokri 2022: mini-batches of a strongly convex loss, and Balle et al. 2019 inside.

Theorems of mini-batches are stated in one unit, the price of one published update, ``unit`` =
s^2/(2 nu^2) = eta S_g^2/(4 sigma^2 b^2); ``c`` = 1 - eta lambda; the run has K whole ``epochs`` of
B ``batches`` and the record sits in batch ``position``. Each function returns a coefficient kappa
with R_alpha <= kappa alpha for every order, or, where the bound is not linear in alpha, R_alpha.
The taut string is never above the linear ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lastiterate.curves.renyi import Renyi, linear
from lastiterate.description import Cyclic, FullBatch, Shuffled, WithoutReplacement
from lastiterate.errors import DescriptionError
from lastiterate.published.chourasia_ye_shokri import lemma_8, lemma_9, theorem_2
from lastiterate.published.setting import (
    UP,
    convex,
    evaluated,
    first_reason,
    log_density,
    moments_on_grid,
    renyi_moments,
    short_steps,
    smooth_steps,
    strongly_convex,
    theorem,
    two_batches,
    unit,
    whole_epochs,
    worst_position,
)
from lastiterate.theory.positions import UNIT
from lastiterate.theory.registry import ADJACENCIES, Proof, Theorem
from lastiterate.theory.run import Run

# Fewer than 2^13 roundings of positive terms enter each closed form.
_UP_MANY = 1 + 2.0**13 * UNIT


# --- recursions ---------------------------------------------------------------------------------


def theorem_2_1(unit: float, rate: float, batches: int, epochs: int) -> float:
    """Theorem 2.1, the naive baseline: κ = unit·2(1 - e^(-ηλKB/2))·2/(ηλ), ``rate`` = ηλ.

    Chourasia, Ye & Shokri's Corollary 1 with n replaced by b and KB updates, as appendix C has it.
    Status: sound (the record is charged at every step).

    >>> round(theorem_2_1(1.0, 0.01, batches=20, epochs=100), 3)
    399.982
    """
    return theorem_2(unit, rate, batches * epochs)


def ryffel_3_3(unit: float, rate: float, batches: int, epochs: int) -> float:
    """Ryffel et al. 2022, Corollary 3.3: Theorem 2.1 with n² for b². REFUTED (appendix C).

    It assumes for the mixture over batches the log-Sobolev constant of one component.

    >>> ryffel_3_3(1.0, 0.01, batches=20, epochs=1) < 0.1 < 1.0  # unit = 1: the last batch's use
    True
    """
    return theorem_2_1(unit, rate, batches, epochs) / batches**2


def lemma_d3(c: float, variance: float, steps: int) -> float:
    """Lemmas D.2 (c = 1) and D.3: the LSI constant after so many steps from a point.

    1/(2ησ² Σ_(s<k) c^(2s)), ``variance`` = 2ησ², for updates that are c-Lipschitz.

    >>> lemma_d3(1.0, 0.5, 4)
    0.5
    """
    constant = math.inf
    for _ in range(steps):
        constant = lemma_9(lemma_8(constant, c), variance / 2)
    return constant


class Recursion(NamedTuple):
    """R_α of the last iterate, and the order α' at which the first iterate is read."""

    divergence: float
    first_order: float


def lemma_3_2(order: float, unit: float, c: float, read: Sequence[bool]) -> Recursion:
    """Lemma 3.2 from a point, along the LSI constants of Lemma D.3 (c = 1: D.2).

    A step that reads the record adds unit·α to R_α; another has R_α/α <- R_α'/α'/f with f = 1 +
    2ησ²c_k/L² and α' = 1 + (α-1)/f. ``read`` says which steps read it. Status: sound.

    >>> lemma_3_2(4.0, 1.0, 1.0, [True, False, False, False])  # (90): 1/j of one use
    Recursion(divergence=1.0, first_order=1.75)
    """
    weight, kappa, current = 1.0, 0.0, order
    for step in reversed(range(len(read))):
        if read[step]:
            kappa += weight * unit
        else:  # with 2ησ² = 1
            fade = 1 + lemma_8(lemma_d3(c, 1.0, step), c)
            weight, current = weight / fade, 1 + (current - 1) / fade
    return Recursion(order * kappa, current)


def contraction_at_fixed_order(order: float, steepness: float, variance: float) -> float:
    """What is left of R_α after Gaussian noise, over the share 1/f that (157) claims. REFUTED: > 1.

    ν = N(0, 1) has LSI constant 1, μ = ν·(1 + tanh(steepness·x)/2), f = 1 + variance; by
    quadrature. Lemma 3.2 itself moves the order and holds.

    >>> round(contraction_at_fixed_order(100.0, 20.0, 1.0), 2)
    1.83
    """
    x = np.linspace(-14.0, 14.0, 8001)
    nu = log_density(x, ([1.0], [0.0], [1.0]))
    before = moments_on_grid(order, x, nu + np.log1p(np.tanh(steepness * x) / 2), nu)
    edges = np.append(x, x[-1] + x[1] - x[0]) - (x[1] - x[0]) / 2
    spread = np.diff(ndtr((x[:, None] - edges) / math.sqrt(variance)), axis=1) * -1
    after_nu = spread @ np.exp(nu)
    after_mu = spread @ (np.exp(nu) * (1 + np.tanh(steepness * x) / 2))
    after = moments_on_grid(order, x, np.log(after_mu), np.log(after_nu))
    return after.divergence * (1 + variance) / before.divergence


def lemma_4_1(
    order: float, weights: Sequence[float], first: Sequence[float], second: Sequence[float]
) -> tuple[float, float]:
    """Lemma 4.1: exp((α-1)R_α) of two mixtures is at most the mean of the components' own.

    Both sides for components N(first_j, 1) and N(second_j, 1). Status: sound.

    >>> left, right = lemma_4_1(2.0, [0.5, 0.5], [0.0, 1.0], [0.0, 0.0])
    >>> round(left, 4), round(right, 4)
    (1.4296, 1.8591)
    """
    ones = [1.0] * len(weights)
    joint = renyi_moments(order, (weights, first, ones), (weights, second, ones))
    gaps = (np.asarray(first) - np.asarray(second)) ** 2
    return joint.moment, float(np.exp(order * (order - 1) * gaps / 2) @ np.asarray(weights))


def equation_141(unit: float, rate: float, batches: int, epochs: int) -> float:
    """(141): the first term of Theorems 3.3 and 4.2 as printed, ``rate`` = ηλ.

    >>> round(equation_141(1.0, 0.5, batches=2, epochs=60), 4)
    1.3333
    """
    c = 1 - rate
    return theorem_3_3(unit, c, batches, epochs) - one_impulse(unit, c, batches)


def equation_146(unit: float, rate: float, batches: int) -> float:
    """(146): unit/(Bηλ), claimed to bound (141). REFUTED."""
    return unit / (batches * rate)


def proposition_f1(feature_norm: float) -> tuple[float, float]:
    """Proposition F.1: Lipschitz constant sqrt(2(L²+1)) and smoothness (L²+1)/2 of softmax."""
    return math.sqrt(2 * (feature_norm**2 + 1)), (feature_norm**2 + 1) / 2


def algorithm_2_sigma(step_size: float, multiplier: float, sensitivity: float, batch: int) -> float:
    """Appendix F.1: the σ of Algorithm 1 that Algorithm 2 has, sqrt(η/2)·σ_mul·S_g/(2b).

    >>> sigma = algorithm_2_sigma(0.5, 4.0, 2.0, 100)
    >>> round(0.5 * (2.0 / 100 / sigma) ** 2 / 4, 6)  # unit = 2/σ_mul²
    0.125
    """
    return math.sqrt(step_size / 2) * multiplier * sensitivity / (2 * batch)


# --- theorems ---------------------------------------------------------------------------------


def _check(c: float, batches: int, epochs: int, position: int, at_least: int = 1) -> None:
    if not 0 < c <= 1:
        raise DescriptionError(
            "c", c, "in (0, 1]", "these bounds need a convex loss and a step size below 2/beta"
        )
    if batches < at_least:
        raise DescriptionError(
            "batches",
            batches,
            f"at least {at_least}",
            "the theorem splits an epoch in two"
            if at_least > 1
            else "an epoch has at least one batch",
        )
    if epochs < 1:
        raise DescriptionError("epochs", epochs, "at least 1", "the bounds count whole epochs")
    if not 0 <= position < batches:
        raise DescriptionError(
            "position", position, f"between 0 and {batches - 1}", "the record sits in one batch"
        )


def _sum(c: float, count: int) -> float:
    """1 + c^2 + ... + c^(2(count-1))."""
    if c == 1:
        return float(count)
    return math.expm1(2 * count * math.log(c)) / math.expm1(2 * math.log(c))


def one_impulse(unit: float, c: float, steps: int) -> float:
    """e(j), (99): one use of the record with ``steps`` noisy steps to fade in, its own included.

    >>> round(one_impulse(1.0, 1.0, 4), 9)
    0.25
    """
    return _UP_MANY * unit * c ** (2 * (steps - 1)) / _sum(c, steps)


def theorem_d4(unit: float, batches: int, epochs: int, position: int = 0) -> float:
    """Theorem D.4: kappa = unit ((K-1)/B + 1/(B-j)).

    Convex, beta-smooth, eta < 2/beta, one fixed partition. Status: sound, and optimal (it is the
    taut string at c = 1).

    >>> round(theorem_d4(1.0, batches=10, epochs=5, position=9), 3)
    1.4
    """
    _check(1.0, batches, epochs, position)
    return _UP_MANY * unit * ((epochs - 1) / batches + 1 / (batches - position))


def theorem_3_3(unit: float, c: float, batches: int, epochs: int, position: int = 0) -> float:
    """Theorem 3.3 as printed: kappa = e(floor(B/2)) (1 - r^(K-1))/(1 - r) + e(B-j).

    r = c^(2(B - floor(B/2))); strongly convex, smooth, eta < 2/(lambda+beta), B >= 2, one fixed
    partition. Status: sound; loses a factor r in the first term between (106) and (107), and the
    explanation (145)-(146) is false.

    >>> round(theorem_3_3(1.0, 0.98, 10, 2), 4)
    0.267
    """
    _check(c, batches, epochs, position, at_least=2)
    half = batches // 2
    earlier = one_impulse(unit, c, half) * _sum(c ** (batches - half), epochs - 1)
    return _UP_MANY * (earlier + one_impulse(unit, c, batches - position))


def theorem_3_3_split(
    unit: float, c: float, batches: int, epochs: int, split: int, position: int = 0
) -> float:
    """Theorem 3.3 with the lost factor, and an epoch split after ``split`` steps.

    kappa = e(r) rho (1 - rho^(K-1))/(1 - rho) + e(B-j), rho = c^(2(B-r)). ``split`` = B/2 is the
    theorem with its factor restored, ``split`` = B composes whole epochs. Status: corrected.

    >>> round(theorem_3_3_split(1.0, 0.98, 10, 2, split=5), 4)
    0.2333
    """
    _check(c, batches, epochs, position)
    if not 1 <= split <= batches:
        raise DescriptionError(
            "split", split, f"between 1 and {batches}", "it counts steps of one epoch"
        )
    fade = c ** (batches - split)
    earlier = one_impulse(unit, c, split) * fade**2 * _sum(fade, epochs - 1)
    return _UP_MANY * (earlier + one_impulse(unit, c, batches - position))


def theorem_3_3_restored(
    unit: float, c: float, batches: int, epochs: int, position: int = 0
) -> float:
    """Theorem 3.3 with the lost factor restored, at the paper's own split floor(B/2).

    >>> round(theorem_3_3_restored(1.0, 0.9, 4, 10), 4)
    1.0118
    """
    _check(c, batches, epochs, position, at_least=2)
    return theorem_3_3_split(unit, c, batches, epochs, batches // 2, position)


def theorem_3_3_best_split(
    unit: float, c: float, batches: int, epochs: int, position: int = 0
) -> float:
    """Theorem 3.3 corrected, at the best split r in 1..B (r = B included).

    >>> round(theorem_3_3_best_split(1.0, 0.98, 10, 2), 4)
    0.1656
    """
    return min(
        theorem_3_3_split(unit, c, batches, epochs, split, position)
        for split in range(1, batches + 1)
    )


def theorem_4_2(unit: float, c: float, batches: int, epochs: int, order: float) -> float:
    """Theorem 4.2: R_alpha for one hidden partition, reused in every epoch.

    R = alpha kappa_1 + log(avg_j exp((alpha-1) alpha e(B-j)))/(alpha-1), kappa_1 the first term
    of Theorem 3.3 with its lost factor. Status: sound (printed with eta < 2/(lambda+eta) for
    2/(lambda+beta)).

    >>> theorem_4_2(1.0, 0.9, 4, 10, 4.0) < 4 * theorem_3_3_restored(1.0, 0.9, 4, 10, position=3)
    True
    """
    _check(c, batches, epochs, 0, at_least=2)
    _check_order(order)
    first = theorem_3_3_restored(unit, c, batches, epochs) - one_impulse(unit, c, batches)
    last = [one_impulse(unit, c, batches - j) for j in range(batches)]
    exponents = (order - 1) * order * np.array(last)
    top = float(exponents.max())
    # The largest exponent is taken out, so that neither a tiny nor a huge one loses digits.
    if top < 1:
        moment = math.log1p(math.fsum(np.expm1(exponents)) / batches)
    else:
        moment = top + math.log(math.fsum(np.exp(exponents - top)) / batches)
    return _UP_MANY * (order * first + moment / (order - 1))


def theorem_4_3(unit: float, c: float, rate: float, steps: int, order: float) -> float:
    """Theorem 4.3: R_alpha when each step draws its batch afresh, the record with ``rate``.

    log S <- logaddexp(log q + (alpha-1) alpha unit + log S, log(1-q) + c^2 log S), R = log S
    /(alpha-1); in logarithms, since S itself overflows. Status: sound for independent batches
    only (never for shuffles), and as a recursion on bounds linear in alpha: (157) is false as an
    inequality between true divergences.

    >>> round(theorem_4_3(1.0, 1.0, 1.0, steps=3, order=2.0), 6)
    6.0
    """
    _check(c, 1, 1, 0)
    _check_order(order)
    if not 0 < rate <= 1:
        raise DescriptionError("rate", rate, "in (0, 1]", "it is a sampling probability")
    log_in = math.log(rate) + (order - 1) * order * unit
    log_out = math.log1p(-rate) if rate < 1 else -math.inf
    log_S = 0.0
    for _ in range(steps):
        log_S = float(np.logaddexp(log_in + log_S, log_out + c**2 * log_S))
    # Each round is off by a few UNIT of log S plus the size of the logarithms added to it.
    off = 8 * (steps + 1) * UNIT * (1 + abs(log_S) + abs(log_in) + abs(math.log(rate)))
    return (log_S + off) / (order - 1) if steps else 0.0


def theorem_d5(
    unit: float,
    step_size: float,
    smoothness: float,
    strong_convexity: float,
    batches: int,
    epochs: int,
    position: int = 0,
) -> float:
    """Theorem D.5, after Balle et al. 2019, Theorem 5, composed over K epochs.

    Last epoch: kappa = unit at j = B-1, else unit/(B-j-1) (1 - 2 eta beta lambda/(beta+lambda))^
    ((B-j)/2). Every earlier use has B steps to fade: the same with j = 0 (for B = 1, unit).
    Strongly convex, smooth, eta <= 2/(beta+lambda). Status: sound, dominated.

    >>> round(theorem_d5(1.0, 0.1, 1.0, 1.0, batches=1, epochs=3), 9)
    3.0
    """
    _check(1.0, batches, epochs, position)
    if not 0 < step_size <= 2 / (smoothness + strong_convexity):
        allowed = "in (0, 2/(smoothness + strong_convexity)]"
        why = "beyond it the step map does not contract as the theorem assumes"
        raise DescriptionError("step_size", step_size, allowed, why)
    curvature = 2 * smoothness * strong_convexity / (smoothness + strong_convexity)
    fade = max(1 - step_size * curvature, 0.0) + 8 * UNIT

    def alone(j: int) -> float:
        left = batches - j
        return unit if left == 1 else unit / (left - 1) * fade ** (left / 2)

    return _UP_MANY * ((epochs - 1) * alone(0) + alone(position))


def theorem_d6(unit: float, rate: float, steps: int, line: int = 125) -> float:
    """Theorem D.6, full batches: κ = 2·unit·Σ_(k=1..K) (1 - x)^k, x = ηλ/2, ``rate`` = ηλ.

    ``line`` = 124 stops one line earlier in the proof, x = ηλ - (ηλ)²/2. Status: sound.

    >>> theorem_d6(1.0, 0.1, 200, line=124) < theorem_d6(1.0, 0.1, 200)
    True
    """
    x = rate / 2 if line == 125 else rate - rate * rate / 2
    shrunk = steps * math.log1p(-x) if x < 1 else -math.inf
    return 2 * unit * (1 - x) * -math.expm1(shrunk) / x


def _check_order(order: float) -> None:
    if not order > 1:
        raise DescriptionError("order", order, "greater than 1", "Renyi divergence needs it")


def clipped_softmax_contraction(step_size: float, regularization: float) -> float:
    """Proposition F.2: clipped softmax contracts by 1 − ηλ. REFUTED for three or more classes."""
    return 1 - step_size * regularization


# --- of a run -----------------------------------------------------------------------------------


def _sobolev(line: int) -> Callable[[Run], Proof]:
    """Theorem D.6 of a run, or its line (124)."""

    def bound(run: Run) -> Proof:
        rate = float(run.etas[0]) * run.curvature
        return Proof(linear(theorem_d6(unit(run), rate, run.training.steps, line) * UP))

    return bound


def _epochs(run: Run) -> tuple[int, int]:
    return run.batches, run.training.steps // run.batches


def _cyclic(
    coefficient: Callable[[float, float, int, int, int], float],
) -> Callable[[Run], Proof]:
    """A linear bound of cyclic batches at the worst position."""

    def bound(run: Run) -> Proof:
        (batches, epochs), c, price = _epochs(run), run.steps.one[0], unit(run)
        worst = worst_position(lambda j: coefficient(price, c, batches, epochs, j), batches)
        return Proof(linear(worst))

    return bound


def _convex_cyclic(run: Run) -> Proof:
    batches, epochs = _epochs(run)
    return Proof(linear(theorem_d4(unit(run), batches, epochs, batches - 1)))


def _balle(run: Run) -> Proof:
    (batches, epochs), price = _epochs(run), unit(run)
    steps = float(run.etas[0]), run.smoothness, run.curvature
    worst = worst_position(lambda j: theorem_d5(price, *steps, batches, epochs, j), batches)
    return Proof(linear(worst))


def _shuffled_once(run: Run) -> Proof:
    (batches, epochs), c, price = _epochs(run), run.steps.one[0], unit(run)
    return Proof(Renyi(lambda order: theorem_4_2(price, c, batches, epochs, order)))


def _sampled(run: Run) -> Proof:
    training, c, price = run.training, run.steps.one[0], unit(run)
    rate = min(training.batches.divisor(training.records) / training.records * (1 + 1e-15), 1.0)
    return Proof(Renyi(lambda order: theorem_4_3(price, c, rate, training.steps, order)))


def _sobolev_steps(run: Run) -> str | None:
    eta = float(run.etas[0])
    if eta * (run.curvature + run.smoothness) > 2:
        return "it needs step_size <= 2/(strong convexity + smoothness of the step)"
    if eta * run.curvature > 1:
        return "it needs step_size <= 1/(strong convexity of the step)"
    return None


def _few_batches(run: Run) -> str | None:
    if run.batches > 1000:
        return "trying every split of every position is not affordable beyond 1,000 batches"
    return None


_CONVEX = first_reason(evaluated, convex, smooth_steps)
_EPOCHS = first_reason(evaluated, whole_epochs, convex, smooth_steps)
_STRONG = first_reason(_EPOCHS, strongly_convex, short_steps, two_batches)
_SOBOLEV = first_reason(convex, strongly_convex, _sobolev_steps)

ROWS: tuple[Theorem, ...] = (
    theorem(
        "ye-shokri-2022-d6",
        schemes=(FullBatch,),
        bound=_sobolev(125),
        limits=_SOBOLEV,
        supports=ADJACENCIES,
    ),
    theorem(
        "ye-shokri-2022-d6-sharper",
        schemes=(FullBatch,),
        bound=_sobolev(124),
        limits=_SOBOLEV,
        supports=ADJACENCIES,
    ),
    theorem(
        "ye-shokri-2022-d4",
        schemes=(Cyclic,),
        bound=_convex_cyclic,
        limits=_EPOCHS,
        supports=ADJACENCIES,
    ),
    theorem(
        "ye-shokri-2022-3.3",
        schemes=(Cyclic,),
        bound=_cyclic(theorem_3_3),
        limits=_STRONG,
        supports=ADJACENCIES,
    ),
    theorem(
        "ye-shokri-2022-3.3-restored",
        schemes=(Cyclic,),
        bound=_cyclic(theorem_3_3_restored),
        limits=_STRONG,
        supports=ADJACENCIES,
    ),
    theorem(
        "ye-shokri-2022-3.3-best-split",
        schemes=(Cyclic,),
        bound=_cyclic(theorem_3_3_best_split),
        limits=first_reason(_few_batches, _STRONG),
        supports=ADJACENCIES,
    ),
    theorem(
        "ye-shokri-2022-d5", schemes=(Cyclic,), bound=_balle, limits=_STRONG, supports=ADJACENCIES
    ),
    theorem(
        "ye-shokri-2022-4.2",
        schemes=(Shuffled,),
        bound=_shuffled_once,
        limits=_STRONG,
        supports=ADJACENCIES,
    ),
    theorem(
        "ye-shokri-2022-4.3",
        schemes=(WithoutReplacement,),
        bound=_sampled,
        limits=first_reason(_CONVEX, short_steps),
        supports=frozenset({"replace"}),
    ),
    theorem(
        "ye-shokri-2022-f2",
    ),
)
