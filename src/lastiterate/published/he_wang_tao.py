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

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from lastiterate._internal.formatting import printed
from lastiterate.composition import (
    Pair,
    kairouz_forms,
    kairouz_heterogeneous,
    log_chernoff,
    pure_composition,
    pure_kl,
)
from lastiterate.composition.validation import check_lists, check_pair, check_slack
from lastiterate.description.fields import number, one_of
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.published.setting import theorem
from lastiterate.theory.registry import Theorem

# --- generalisation -----------------------------------------------------------------------------


def theorem_3(epsilon: float, delta: float, parts: int) -> Pair:
    """Theorem 3: (threshold, probability) of P(R_S ≤ R + ke^-ε δ + 3ε) ≥ ε on k sub-databases.

    Status: corrected; the last inequality of its proof is reversed, and ε > 1 is no probability.

    >>> theorem_3(0.1, 1e-6, 10).delta
    0.1
    """
    return Pair(parts * math.exp(-epsilon) * delta + 3 * epsilon, epsilon)


def corollary_1(epsilon: float, delta: float, parts: int) -> float:
    """Corollary 1: E R_S(h) - E R(h) ≤ ke^-ε δ + ε.

    >>> round(corollary_1(0.1, 0.0, 1), 6)
    0.1
    """
    return parts * math.exp(-epsilon) * delta + epsilon


def exponential_mechanism(
    utilities: Sequence[float], epsilon: float, sensitivity: float = 1.0
) -> NDArray[np.float64]:
    """Definition 8: the law of the index, proportional to exp(εu/(2Δu)): ε-private.

    >>> exponential_mechanism([0.0, 2.0], 1.0).round(4)
    array([0.2689, 0.7311])
    """
    scores = epsilon * np.asarray(utilities, dtype=float) / (2 * sensitivity)
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def algorithm_b(
    train: Sequence[float], test: Sequence[float], records: int, epsilon: float
) -> NDArray[np.float64]:
    """Algorithm B in the proof of Lemma 4: the law of the sub-database it picks.

    The exponential mechanism on N(R_S_i(h_i) - R_T(h_i)): the hypothesis that overfits most.
    """
    gaps = np.asarray(train, dtype=float) - np.asarray(test, dtype=float)
    return exponential_mechanism(list(records * gaps), epsilon)


def sample_size(accuracy: float, failure: float) -> tuple[float, float, int]:
    """Theorem 1 read as PAC: (ε, δ, N) with P(|R_S - R| < accuracy) > 1 - failure.

    ε = accuracy/9, δ from failure = e^-ε δ/ε·ln(2/ε), N = (2/ε²) ln(16e^ε/δ), rounded up.

    >>> sample_size(0.45, 1e-6)[2]
    16712
    """
    number("accuracy", accuracy, "9 epsilon, a difference of risks", above=0, below=1)
    number("failure", failure, "it is a probability", above=0, below=1)
    epsilon = accuracy / 9
    delta = failure * epsilon * math.exp(epsilon) / math.log(2 / epsilon)
    return epsilon, delta, math.ceil(2 / epsilon**2 * (math.log(16 / delta) + epsilon))


def memoriser(records: int, domain: int) -> tuple[float, float]:
    """(R_S, R) of an algorithm that stores its sample and answers wrongly elsewhere.

    Remarks 1 and 2 infer PAC learnability from R_S ≤ R + small and R_S → 0. REFUTED: R_S = 0 here,
    so that both hold for every sample, and R = (1 - 1/m)^N on m equally likely points.

    >>> memoriser(100, 10**6)[0], memoriser(100, 10**6)[1] > 0.999
    (0.0, True)
    """
    return 0.0, (1 - 1 / domain) ** records


def oneto_risk(risk: float, epsilon: float, records: int) -> Pair:
    """Oneto et al. 2017, first bound: R - R_S < sqrt(6 R_S) ε^ + 6(ε² + 1/N), and its failure.

    ε^ = ε + sqrt(1/N); failure 3e^(-Nε²). As quoted by He, Wang & Tao; not verified.
    """
    spread = math.sqrt(6 * risk) * (epsilon + records**-0.5)
    return Pair(spread + 6 * (epsilon**2 + 1 / records), 3 * math.exp(-records * epsilon**2))


def oneto_variance(variance: float, epsilon: float, records: int) -> Pair:
    """Oneto et al. 2017, second bound: sqrt(4V) ε^ + 5N/(N-1)·(ε² + 1/N), failure 3e^(-Nε²)."""
    spread = math.sqrt(4 * variance) * (epsilon + records**-0.5)
    rest = 5 * records / (records - 1) * (epsilon**2 + 1 / records)
    return Pair(spread + rest, 3 * math.exp(-records * epsilon**2))


def nissim_stemmer_on_average(epsilon: float, delta: float, parts: int) -> float:
    """Nissim & Stemmer 2015, on average: |E R_S - E R| ≤ kδ + 2ε, binary loss; quoted."""
    return parts * delta + 2 * epsilon


def wang_steps(epsilon: float, delta: float, rate: float) -> float:
    """Wang et al. 2015 as quoted: SGLD is (ε, δ)-private if T > ε²/(32 rate log(2/δ)), rate τ/N.

    It cannot be meant for a fixed noise, under which more steps never reveal less of a transcript;
    the noise that goes with it is not quoted. Not verified.
    """
    return epsilon**2 / (32 * rate * math.log(2 / delta))


def kl_dwork_2010(epsilon: float) -> float:
    """Dwork, Rothblum & Vadhan 2010: KL ≤ ε(e^ε - 1) of an ε-private pair."""
    return epsilon * math.expm1(epsilon)


def kl_dwork_rothblum(epsilon: float) -> float:
    """(9), Dwork & Rothblum 2016: KL ≤ ε(e^ε - 1)/2."""
    return kl_dwork_2010(epsilon) / 2


def dwork_roth_3_20(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Pair:
    """Dwork & Roth 2014, Theorem 3.20, unequal rounds: (Σε(e^ε-1) + sqrt(2 log(1/δ~)Σε²), Σδ + δ~).

    >>> round(dwork_roth_3_20([0.1] * 100, [0.0] * 100, 1e-6).epsilon, 4)
    6.3082
    """
    check_lists(epsilons, deltas)
    root = math.sqrt(-2 * math.log(slack) * math.fsum(e * e for e in epsilons))
    return Pair(math.fsum(map(kl_dwork_2010, epsilons)) + root, math.fsum(deltas) + slack)


# --- lemmas -------------------------------------------------------------------------------------


def lemma_1(p: Sequence[float], q: Sequence[float]) -> tuple[float, float]:
    """Lemma 1: KL(p‖q) ≤ KL(M‖M') = KL(M'‖M) of a pair with the same max divergence.

    The pair is randomised response at that divergence ε, KL = ε tanh(ε/2). Status: sound.

    >>> lemma_1([0.5, 0.5], [0.25, 0.75])[0] < lemma_1([0.5, 0.5], [0.25, 0.75])[1]
    True
    """
    loss = np.log(np.asarray(p) / np.asarray(q))
    return float(np.asarray(p) @ loss), pure_kl(float(np.abs(loss).max()))


def lemma_2(p: Sequence[float], q: Sequence[float], epsilon: float) -> float:
    """Lemma 2: the least t with laws p', q' at statistical distance t from p, q, ε-close.

    By a linear programme; the lemma says t = δ/(1 + e^ε) for the δ of (p, q) at ε. Status: sound.

    >>> round(lemma_2([0.5, 0.5], [0.1, 0.9], 0.5) * (1 + math.exp(0.5)), 6)  # δ = 0.5 - e^0.5/10
    0.335128
    """
    n, grown = len(p), math.exp(epsilon)
    eye, none = np.eye(n), np.zeros((n, n))  # variables: p', q', |p' - p|, |q' - q|, t
    zero, sums = np.zeros((n, 1)), np.zeros((1, n))
    nil, two = np.zeros((1, 1)), np.full((1, 1), -2.0)
    rows = [[eye, -grown * eye, none, none, zero], [-grown * eye, eye, none, none, zero]]
    rows += [[sign * eye, none, -eye, none, zero] for sign in (1, -1)]
    rows += [[none, sign * eye, none, -eye, zero] for sign in (1, -1)]
    rows += [[sums, sums, sums + 1, sums, two], [sums, sums, sums, sums + 1, two]]
    one, other = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    limits = [np.zeros(2 * n), one, -one, other, -other, np.zeros(2)]
    total = [[sums + 1, sums, sums, sums, nil], [sums, sums + 1, sums, sums, nil]]
    cost = np.append(np.zeros(4 * n), 1.0)
    found = linprog(cost, np.block(rows), np.concatenate(limits), np.block(total), [1.0, 1.0])
    return float(np.asarray(found.x)[-1])


def lemma_3(t: float) -> float:
    """Lemma 3 (Azuma): P(ΣY_i ≥ ΣC_i + t sqrt(Σa_i²)) ≤ e^(-t²/2). REFUTED as printed.

    X_i need not determine Y_i: constant X, all Y_i = Y_1 = ±1, C_i = 0, a_i = 1, t = sqrt(T) has
    probability 1/2.
    """
    return math.exp(-(t**2) / 2)


def lemma_6(weights: Sequence[float], caps: Sequence[float], product: float) -> float:
    """Lemma 6: the maximum of 1 - Π(1 - α_i A_i) over 1 ≤ α_i ≤ c_i, Πα_i = c: at its corners.

    All α_i but one are 1 or c_i. Status: sound.

    >>> round(lemma_6([0.1, 0.2], [2.0, 3.0], 3.0), 6)
    0.64
    """
    best = 0.0
    for free in range(len(weights)):
        for choice in itertools.product((False, True), repeat=len(weights)):
            alpha = [c if high else 1.0 for c, high in zip(caps, choice, strict=True)]
            alpha[free] = product / math.prod(a for i, a in enumerate(alpha) if i != free)
            if 1 - 1e-12 <= alpha[free] <= caps[free] * (1 + 1e-12):
                kept = math.prod(1 - a * w for a, w in zip(alpha, weights, strict=True))
                best = max(best, 1 - kept)
    return best


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


def corollary_2_expansion(epsilon: float, delta: float, rounds: int, slack: float) -> float:
    """The printed expansion of Corollary 2: (T - m)·2δ/(1+e^ε) + mδ + slack, m = ceil(ε'/ε).

    True up to O(δ²). "Strictly tighter than Kairouz" fails for m = T: at (3, 1e-3), T = 20, slack
    1e-4 delta' is 1.9e-5 larger.

    >>> round(corollary_2_expansion(1.0, 1e-5, 1000, 1e-6), 6)
    0.008287
    """
    target = corollary_2(epsilon, delta, rounds, slack).epsilon
    m = min(rounds, math.ceil(target / epsilon * (1 - 1e-12)))
    return (rounds - m) * 2 * delta / (1 + math.exp(epsilon)) + m * delta + slack


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
    tail = _chernoff_as_printed(epsilon, rounds, target)
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
    return _chernoff_as_printed(e, steps, epsilon)


def _chernoff_as_printed(e: float, steps: int, epsilon: float) -> float:
    """The closed form of delta'' and delta~: steps of cost ``e``, the exponent with a minus."""
    total = steps * e
    if not epsilon < total:
        raise AssumptionError(
            f"He, Wang & Tao's delta~ is undefined at epsilon' = {printed(epsilon)}: it needs "
            f"epsilon' < T q eps~ = {printed(total)}. Compose LossDistribution.replaced, which has "
            "no such limit."
        )
    return math.exp(log_chernoff(e, steps, epsilon) - (epsilon + steps * e))


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


def theorem_8_slack(
    clients: int, sampled: int, sigma: float, rounds: int, step_delta: float, epsilon: float
) -> float:
    """Theorem 8's own closed form for delta~, with its eps~. REFUTED as Theorem 7's.

    >>> theorem_8_slack(1000, 10, 0.1, 1000, 1e-5, 30.0) < 1e-60
    True
    """
    _check_rounds(clients, sampled, sigma, rounds, step_delta)
    e = sampled / clients * theorem_8_gaussian(sampled, sigma, step_delta).epsilon
    return _chernoff_as_printed(e, rounds, epsilon)


def _check_rounds(clients: int, sampled: int, sigma: float, rounds: int, step_delta: float) -> None:
    number("sampled", sampled, at_least=1, at_most=clients)
    number("sigma", sigma, above=0)
    number("rounds", rounds, at_least=1)
    number("delta", step_delta, above=0, below=1)


ROWS: tuple[Theorem, ...] = (
    theorem(
        "he-wang-tao-2020-4",
    ),
    theorem(
        "he-wang-tao-2020-corollary-3",
    ),
    theorem(
        "he-wang-tao-2020-7",
    ),
)
