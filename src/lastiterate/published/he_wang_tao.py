"""He, Wang & Tao 2020: composition, SGLD and federated averaging as printed: refuted, for study.

Theorems 4 and 6 and Corollary 2 bound the probability of rectangles of outputs alone. The event
"some round revealed the record" is the complement of a rectangle: it alone costs
1 - prod(1 - delta_i), which the printed delta' can undercut. Corollary 3 carries a wrong sign.
Theorem 7 (SGLD by composition) loses a factor 2 in the Gaussian step, uses a subsampling rule that
holds for small epsilon only, and composes by a false theorem; throughout mu = 2 L / (tau sigma) and
rate = tau / N, batches fresh without replacement and secret. Theorem 8 (federated averaging):
Algorithm 2 averages tau clipped updates (clip L) of N clients and adds N(0, L^2 sigma^2 I) to the
average, so that mu = 2/(tau sigma) if one client is replaced and 1/(tau sigma) if its update
becomes zero; it shares the errors of Theorem 7. No guarantee rests on anything in this file;
`lastiterate.composition` has the true values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate._internal.formatting import printed
from lastiterate.composition import (
    Pair,
    kairouz_forms,
    kairouz_heterogeneous,
    log_chernoff,
    pure_composition,
)
from lastiterate.composition.validation import check_lists, check_pair, check_slack
from lastiterate.description.fields import number, one_of
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.theory.registry import Theorem

# --- composition --------------------------------------------------------------------------------


def theorem_4(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Pair:
    """Theorem 4 (unequal rounds, epsilon' the least of Kairouz' three forms). REFUTED.

    delta' = max over a of 2 - prod(1 - e^a_i d_i/(1+e^e_i)) - prod(1 - d_i/(1+e^e_i)) + slack,
    where sum a_i = epsilon' and all but one a_i are 0 or e_i. The maximum is relaxed upwards
    (the last a_i on a chord), in favour of the claim.

    >>> claimed = theorem_4([1.0] * 1000, [1e-5] * 1000, 1e-6)
    >>> claimed.delta < 1 - (1 - 1e-5) ** 1000      # below what revealing alone costs
    True
    """
    epsilon = kairouz_heterogeneous(epsilons, deltas, slack).epsilon
    return Pair(epsilon, _rectangles(epsilons, deltas, epsilon, slack))


def theorem_6(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Pair:
    """Theorem 6: Theorem 4 with epsilon' of Theorem 5. REFUTED by the same event.

    >>> claimed = theorem_6([1.0] * 1000, [1e-5] * 1000, 1e-6)
    >>> claimed.delta < 1 - (1 - 1e-5) ** 1000
    True
    """
    check_lists(epsilons, deltas)
    epsilon = pure_composition(epsilons, slack).epsilon
    return Pair(epsilon, _rectangles(epsilons, deltas, epsilon, slack))


def corollary_2(epsilon: float, delta: float, rounds: int, slack: float) -> Pair:
    """He, Wang & Tao 2020, Corollary 2 (equal rounds). REFUTED.

    delta' = 1 - (1 - e^e d/(1+e^e))^m (1 - d/(1+e^e))^(T-m) + 1 - (1 - d/(1+e^e))^T + slack with
    m = ceil(epsilon'/epsilon) and epsilon' the least of Kairouz' three forms.

    >>> from lastiterate.composition import optimal
    >>> claim = corollary_2(1.0, 1e-5, 1000, 1e-6)
    >>> round(claim.delta, 6), round(optimal(1.0, 1e-5, 1000, claim.epsilon), 6)
    (0.008267, 0.00995)
    """
    check_pair(epsilon, delta)
    target = min(kairouz_forms(epsilon, rounds, slack))
    return Pair(target, float(_equal_rectangles(epsilon, delta, rounds, target) + slack))


def corollary_3(epsilon: float, delta: float, rounds: int, slack: float) -> Pair:
    """Corollary 3 (equal rounds, Chernoff's bound for the slack). REFUTED even at delta = 0.

    The print has e^(-(epsilon' + T epsilon)/2) where the proof's own optimiser gives the plus
    sign; ``lastiterate.composition.chernoff`` is the corrected value.

    >>> round(corollary_3(0.1, 0.0, 100, 1e-5).delta, 13)     # at least 6.2e-8 in truth
    1.1e-12
    """
    check_pair(epsilon, delta)
    check_slack(slack)
    target = kairouz_forms(epsilon, rounds, slack).azuma
    if not 0.0 < target < rounds * epsilon:
        raise UnsupportedError(
            f"He, Wang & Tao 2020, Corollary 3 is undefined at epsilon' = {printed(target)}: it "
            f"needs epsilon' < T epsilon = {printed(rounds * epsilon)}; use "
            "lastiterate.composition.optimal, which has no such limit."
        )
    tail = math.exp(log_chernoff(epsilon, rounds, target) - (target + rounds * epsilon))
    return Pair(target, float(_equal_rectangles(epsilon, delta, rounds, target) + tail))


def subsampled_linear(epsilon: float, delta: float, rate: float) -> Pair:
    """(2 q epsilon, q delta), the subsampling rule of Theorems 7 and 8. REFUTED.

    Sound only while ln(1 + q (e^epsilon - 1)) <= 2 q epsilon.

    >>> subsampled_linear(3.0, 0.0, 0.01).epsilon        # randomised response attains 0.1747
    0.06
    """
    check_pair(epsilon, delta)
    return Pair(2.0 * rate * epsilon, rate * delta)


def _equal_rectangles(
    epsilon: float, delta: ArrayLike, rounds: int, target: float
) -> NDArray[np.float64]:
    """The two rectangle terms of Corollary 2, without the slack."""
    small = np.asarray(delta, dtype=np.float64) / (1.0 + math.exp(epsilon))
    large = np.asarray(delta, dtype=np.float64) / (1.0 + math.exp(-epsilon))
    m = min(rounds, math.ceil(target / epsilon * (1 - 1e-12))) if epsilon > 0.0 else rounds
    first = -np.expm1(m * np.log1p(-large) + (rounds - m) * np.log1p(-small))
    return np.asarray(first - np.expm1(rounds * np.log1p(-small)), dtype=np.float64)


def _rectangles(
    epsilons: Sequence[float], deltas: Sequence[float], budget: float, slack: float
) -> float:
    """The printed maximum, relaxed upwards.

    -ln(1 - e^a d/(1+e^e)) is convex in a, hence below its chord on [0, e]; with chords the
    maximum is a fractional knapsack, filled in the order of steepest chords.
    """
    e = np.asarray(epsilons, dtype=np.float64)
    d = np.asarray(deltas, dtype=np.float64)
    at_rest = -np.log1p(-d / (1.0 + np.exp(e)))
    spent = -np.log1p(-d / (1.0 + np.exp(-e)))
    gain = spent - at_rest
    order = np.argsort(-gain / np.where(e > 0.0, e, np.inf))
    before = np.concatenate(([0.0], np.cumsum(e[order])[:-1]))
    share = np.clip((budget - before) / np.where(e[order] > 0.0, e[order], 1.0), 0.0, 1.0)
    exponent = float(np.sum(at_rest) + np.sum(share * gain[order]))
    return float(-math.expm1(-exponent) - math.expm1(-float(np.sum(at_rest))) + slack)


# --- SGLD ---------------------------------------------------------------------------------------


def theorem_7_gaussian(mu: float, step_delta: float) -> Pair:
    """(eps~, delta) of one unsampled step. REFUTED: 2 sqrt 2 stands where 4 sqrt 2 should.

    >>> from lastiterate.curves import gaussian
    >>> claim = theorem_7_gaussian(1.0, 1e-5)
    >>> round(gaussian.delta(1.0, claim.epsilon) / claim.delta)      # the truth is 208 times worse
    208
    """
    _check_step(mu, 1.0, 1, step_delta)
    log = math.log(1 / step_delta)
    return Pair((math.sqrt(2 * log) * mu + mu * mu) / 2, step_delta)


def theorem_7_step(mu: float, rate: float, step_delta: float) -> Pair:
    """He, Wang & Tao's (2 q eps~, q delta) of one step on a random batch. REFUTED from mu = 0.2 on.

    >>> from lastiterate.curves import gaussian
    >>> claim = theorem_7_step(1.0, 0.01, 1e-5)
    >>> truth = 0.01 * gaussian.delta(1.0, math.log1p(math.expm1(claim.epsilon) / 0.01))
    >>> round(truth / claim.delta)
    2375
    """
    _check_step(mu, rate, 1, step_delta)
    return Pair(2 * rate * theorem_7_gaussian(mu, step_delta).epsilon, rate * step_delta)


def theorem_7(mu: float, rate: float, steps: int, step_delta: float, slack: float) -> Pair:
    """Theorem 7 with its slack delta~ given. REFUTED (e.g. mu = 3, q = 1e-3, T = 1e4).

    >>> from lastiterate.curves.loss_distribution import LossDistribution
    >>> claim = theorem_7(3.0, 1e-3, 10_000, 1e-5, 1e-6)
    >>> step = LossDistribution.replaced(1e-3, 3.0)
    >>> round(claim.epsilon, 2), round(step.self_compose(10_000).epsilon(claim.delta), 1)
    (15.03, 25.1)
    """
    _check_step(mu, rate, steps, step_delta)
    return composed_as_printed(theorem_7_step(mu, rate, step_delta), steps, slack)


def composed_as_printed(step: Pair, steps: int, slack: float) -> Pair:
    """How Theorems 7 and 8 of He, Wang & Tao 2020 add up equal steps. REFUTED.

    >>> composed_as_printed(Pair(0.1, 0.0), 100, 1e-6).delta
    1e-06
    """
    epsilon = math.sqrt(2 * math.log(1 / slack) * steps) * step.epsilon
    epsilon += steps * step.epsilon * math.tanh(step.epsilon / 2)
    whole = math.ceil(epsilon / step.epsilon)  # printed without a cap at T
    small = step.delta / (1 + math.exp(step.epsilon))
    large = step.delta / (1 + math.exp(-step.epsilon))
    first = -math.expm1(whole * math.log1p(-large) + (steps - whole) * math.log1p(-small))
    return Pair(epsilon, first - math.expm1(steps * math.log1p(-small)) + slack)


def theorem_7_slack(mu: float, rate: float, steps: int, step_delta: float, epsilon: float) -> float:
    """The closed form for delta~. REFUTED: wrong sign of the exponent, and half the step.

    Undefined for epsilon >= T q eps~, and then this raises.

    >>> theorem_7_slack(0.1, 0.01, 1000, 1e-5, 1.0) < 1e-20
    True
    """
    _check_step(mu, rate, steps, step_delta)
    e = rate * theorem_7_gaussian(mu, step_delta).epsilon
    total = steps * e
    if not epsilon < total:
        raise AssumptionError(
            f"He, Wang & Tao's delta~ is undefined at epsilon' = {printed(epsilon)}: it needs "
            f"epsilon' < T q eps~ = {printed(total)}. Compose LossDistribution.replaced, which has "
            "no such limit."
        )
    log = -(epsilon + total) / 2
    log += steps * (math.log(2 * total / (total - epsilon)) - math.log1p(math.exp(e)))
    log -= (epsilon + total) / (2 * e) * math.log((total + epsilon) / (total - epsilon))
    return math.exp(log)


def _check_step(mu: float, rate: float, steps: int, step_delta: float) -> None:
    number("mu", mu, above=0)
    number("rate", rate, above=0, at_most=1)
    number("steps", steps, at_least=1)
    number("step_delta", step_delta, above=0, below=1)


# --- federated averaging ------------------------------------------------------------------------


def theorem_8_gaussian(
    sampled: int, sigma: float, step_delta: float, *, reading: str = "printed"
) -> Pair:
    """He, Wang & Tao's (eps~, delta) of one round without sampling. REFUTED for replaced clients.

    ``reading``: "printed", eps~ = 4 (sigma/tau) sqrt(ln(1/delta) + 1/tau^2) / (2 sigma^2), or
    "outside", with 1/tau^2 outside the root as in the paper's Theorem 7. Correct would be
    (4 sqrt 2 (sigma/tau) sqrt(ln(1/delta)) + 4/tau^2) / (2 sigma^2). For a client whose update
    becomes zero "outside" is sound (2 > sqrt 2), "printed" is not.

    >>> from lastiterate.curves import gaussian
    >>> claim = theorem_8_gaussian(1, 1.0, 1e-5)
    >>> float(f"{gaussian.delta(2.0, claim.epsilon):.2g}")  # the truth, where 1e-5 is said
    0.0022
    """
    _check_rounds(sampled, sampled, sigma, 1, step_delta)
    one_of("reading", reading, ("printed", "outside"))
    log = math.log(1 / step_delta)
    if reading == "printed":
        top = 4 * sigma / sampled * math.sqrt(log + 1 / sampled**2)
    else:
        top = 4 * sigma / sampled * math.sqrt(log) + 1 / sampled**2
    return Pair(top / (2 * sigma**2), step_delta)


def theorem_8_step(
    clients: int, sampled: int, sigma: float, step_delta: float, *, reading: str = "printed"
) -> Pair:
    """He, Wang & Tao's (2 q eps~, q delta) of one round with sampling. REFUTED.

    >>> from lastiterate.federated import account_federated
    >>> claim = theorem_8_step(1000, 10, 0.1, 1e-5)
    >>> truth = account_federated(1000, 10, 1, clip=1.0, noise_multiplier=1.0)
    >>> truth.delta(claim.epsilon) > 100 * claim.delta
    True
    """
    _check_rounds(clients, sampled, sigma, 1, step_delta)
    rate = sampled / clients
    whole = theorem_8_gaussian(sampled, sigma, step_delta, reading=reading)
    return Pair(2 * rate * whole.epsilon, rate * step_delta)


def theorem_8(
    clients: int,
    sampled: int,
    sigma: float,
    rounds: int,
    step_delta: float,
    slack: float,
    *,
    reading: str = "printed",
) -> Pair:
    """Theorem 8 with its slack delta~ given and eq. (15)'s epsilon read as eps~. REFUTED.

    Its closed form for delta~ is that of Theorem 7 (`theorem_7_slack`) and shares
    its errors.

    >>> from lastiterate.federated import account_federated
    >>> claim = theorem_8(1000, 1, 0.7, 10_000, 1e-5, 1e-6)
    >>> truth = account_federated(1000, 1, 10_000, clip=1.0, noise_multiplier=0.7)
    >>> round(claim.epsilon, 2), round(truth.epsilon(claim.delta), 2)
    (12.67, 20.49)
    """
    _check_rounds(clients, sampled, sigma, rounds, step_delta)
    number("slack", slack, above=0, below=1)
    step = theorem_8_step(clients, sampled, sigma, step_delta, reading=reading)
    return composed_as_printed(step, rounds, slack)


def _check_rounds(clients: int, sampled: int, sigma: float, rounds: int, step_delta: float) -> None:
    number("sampled", sampled, at_least=1, at_most=clients)
    number("sigma", sigma, above=0)
    number("rounds", rounds, at_least=1)
    number("delta", step_delta, above=0, below=1)


ROWS: tuple[Theorem, ...] = (
    Theorem(
        key="he-wang-tao-2020-4",
        name="He, Wang & Tao 2020, Theorems 4 and 6, Corollary 2",
        reference="He, Wang & Tao 2020, Theorems 4 and 6, Corollary 2",
        status="refuted",
        statement="A closed form for delta' of T-fold composition of (epsilon, delta) mechanisms.",
        counterexample=(
            "each round reveals the bit with probability delta: delta' is at least 1-(1-delta)^T; "
            "epsilon = 1, T = 1000, delta = 1e-5: claimed 8.267e-3, optimal 9.950e-3"
        ),
        correction="Use the exact optimum, lastiterate.composition.optimal.",
    ),
    Theorem(
        key="he-wang-tao-2020-corollary-3",
        name="He, Wang & Tao 2020, Corollary 3",
        reference="He, Wang & Tao 2020, Corollary 3",
        status="refuted",
        statement="A Chernoff form of delta'' for pure mechanisms.",
        counterexample=(
            "the sign of an exponent is wrong; epsilon = 0.1, T = 100: claimed 1.1e-12, optimal "
            "6.2e-8"
        ),
        correction="With the sign corrected it is sound: 4.8e-6 in the same example.",
    ),
    Theorem(
        key="he-wang-tao-2020-7",
        name="He, Wang & Tao 2020, Theorems 7 and 8",
        reference="He, Wang & Tao 2020, Theorems 7 (SGLD) and 8 (federated averaging)",
        status="refuted",
        statement="Closed forms for the privacy of SGLD and of agnostic federated learning.",
        counterexample=(
            "the Gaussian step loses a factor of 2; mu = 3, q = 1e-3, T = 1e4: claimed (15.03, "
            "1e-4), true delta at least 4.6e-3"
        ),
        correction="Compose the exact one-step profile as a privacy-loss distribution.",
    ),
)
