"""SGLD and posterior sampling as printed: refuted claims, for study only.

He, Wang & Tao 2020, Theorem 7 (SGLD by composition) loses a factor 2 in the Gaussian step, uses a
subsampling rule that holds for small epsilon only, and composes by a false theorem. Heller & Fetaya
2022, Lemma A.1 (one posterior sample) drops the noise precision from its condition. No guarantee
rests on the printed forms. Throughout mu = 2 L / (tau sigma) and rate = tau / N, batches fresh
without replacement and secret.
"""

from __future__ import annotations

import math

from lastiterate.composition import Pair
from lastiterate.description.validation import number
from lastiterate.errors import AssumptionError
from lastiterate.sampling.posterior import PosteriorPrivacy


def theorem_7_gaussian(mu: float, step_delta: float) -> Pair:
    """He, Wang & Tao's (eps~, delta) of one unsampled step. REFUTED: 2 sqrt 2 stands where 4 sqrt 2
    should.

    >>> from lastiterate.curves import gaussian
    >>> claim = theorem_7_gaussian(1.0, 1e-5)
    >>> round(gaussian.delta(1.0, claim.epsilon) / claim.delta)      # the truth is 208 times worse
    208
    """
    _check(mu, 1.0, 1, step_delta)
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
    _check(mu, rate, 1, step_delta)
    return Pair(2 * rate * theorem_7_gaussian(mu, step_delta).epsilon, rate * step_delta)


def theorem_7(mu: float, rate: float, steps: int, step_delta: float, slack: float) -> Pair:
    """He, Wang & Tao 2020, Theorem 7 with its slack delta~ given. REFUTED (e.g. mu = 3, q = 1e-3, T
    = 1e4).

    >>> from lastiterate.curves.loss_distribution import LossDistribution
    >>> claim = theorem_7(3.0, 1e-3, 10_000, 1e-5, 1e-6)
    >>> step = LossDistribution.replaced(1e-3, 3.0)
    >>> round(claim.epsilon, 2), round(step.self_compose(10_000).epsilon(claim.delta), 1)
    (15.03, 25.1)
    """
    _check(mu, rate, steps, step_delta)
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
    """He, Wang & Tao's closed form for delta~. REFUTED: wrong sign of the exponent, and half the
    step.

    Undefined for epsilon >= T q eps~, and then this raises.

    >>> theorem_7_slack(0.1, 0.01, 1000, 1e-5, 1.0) < 1e-20
    True
    """
    _check(mu, rate, steps, step_delta)
    e = rate * theorem_7_gaussian(mu, step_delta).epsilon
    total = steps * e
    if not epsilon < total:
        raise AssumptionError(
            f"He, Wang & Tao's delta~ is undefined at epsilon' = {epsilon:g}: it needs "
            f"epsilon' < T q eps~ = "
            f"{total:g}. Compose LossDistribution.replaced, which has no such "
            "limit."
        )
    log = -(epsilon + total) / 2
    log += steps * (math.log(2 * total / (total - epsilon)) - math.log1p(math.exp(e)))
    log -= (epsilon + total) / (2 * e) * math.log((total + epsilon) / (total - epsilon))
    return math.exp(log)


def lemma_a1_printed(order: float, posterior: PosteriorPrivacy) -> float:
    """Heller & Fetaya 2022, Lemma A.1 with its printed condition on n. REFUTED for noise_precision
    > 1.

    The printed n > 1 + 10 (x_high^2/x_low^2) order/noise_precision lets the variances differ too
    much; ``posterior.lemma(order)`` has the corrected condition.

    >>> from lastiterate.sampling import posterior_privacy
    >>> n = 23
    >>> p = posterior_privacy(n, 0.1, 10, 1, 1, 5 * n**0.3, n**0.3, adjacency="either")
    >>> round(lemma_a1_printed(20, p), 1), round(p.rdp(20), 1)
    (257.4, 835.8)
    """
    ratio = posterior.x_high**2 / posterior.x_low**2
    needed = max(1 + 10 * ratio * order / posterior.noise_precision, 1 + order * ratio)
    if not posterior.records > needed:
        raise AssumptionError(
            f"Heller & Fetaya 2022, Lemma A.1 needs more than {needed:g} records, and there "
            f"are {posterior.records}."
        )
    return posterior.lemma_value(order)


def _check(mu: float, rate: float, steps: int, step_delta: float) -> None:
    number("mu", mu, "it is 2 L / (tau sigma)", above=0)
    number("rate", rate, "it is the share of records in a batch", above=0, at_most=1)
    number("steps", steps, "each step costs privacy", at_least=1)
    number("step_delta", step_delta, "it is a probability", above=0, below=1)
