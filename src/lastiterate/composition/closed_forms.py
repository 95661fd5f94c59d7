"""Composition bounds that fit on one line, for comparison and for hand checks.

All are sound and all are looser than ``optimal`` and ``heterogeneous``: basic and advanced
composition, the three forms of Kairouz, Oh and Viswanath, and what survives of He, Wang and Tao
2020: their Theorem 5, Lemma 5, and Corollary 3 with the sign of its exponent corrected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lastiterate.composition.validation import (
    check_lists,
    check_pair,
    check_rounds,
    check_slack,
    check_target,
)
from lastiterate.curves.gaussian import exp_up

_UP = 1 + 2.0**-45  # a handful of correctly rounded operations, with room to spare


class Pair(NamedTuple):
    """An (epsilon, delta) guarantee."""

    epsilon: float
    delta: float


class KairouzForms(NamedTuple):
    """The three epsilons of Kairouz, Oh, Viswanath; each is valid at the same delta."""

    sum: float
    square_root: float
    azuma: float


def basic(epsilon: float, delta: float, rounds: int) -> Pair:
    """(T epsilon, T delta). Reference: Dwork, Kenthapadi, McSherry, Mironov, Naor (2006). Sound.

    >>> round(basic(0.1, 1e-6, 10).epsilon, 9)
    1.0
    """
    check_pair(epsilon, delta)
    check_rounds(rounds)
    return Pair(rounds * epsilon * _UP, min(1.0, rounds * delta * _UP))


def advanced(epsilon: float, delta: float, rounds: int, slack: float) -> Pair:
    """(epsilon sqrt(2 T ln(1/slack)) + T epsilon (e^epsilon - 1), T delta + slack).

    Reference: Dwork, Rothblum, Vadhan (2010), Theorem III.3. Status: sound.

    >>> round(advanced(0.1, 0.0, 100, 1e-6).epsilon, 4)
    6.3082
    """
    check_pair(epsilon, delta)
    check_rounds(rounds)
    check_slack(slack)
    growth = math.expm1(epsilon) if epsilon < 700.0 else math.inf
    root = epsilon * math.sqrt(2.0 * rounds * -math.log(slack))
    mean = rounds * epsilon * growth if epsilon > 0.0 else 0.0
    return Pair((root + mean) * _UP, min(1.0, (rounds * delta + slack) * _UP))


def kairouz(epsilon: float, delta: float, rounds: int, slack: float) -> Pair:
    """The smallest of the three forms, at delta' = 1 - (1 - delta)^T (1 - slack).

    Reference: Kairouz, Oh, Viswanath (2015), Theorem 3.4. Status: sound.

    >>> round(kairouz(1.0, 1e-5, 1000, 1e-6).epsilon, 2)
    628.34
    """
    check_pair(epsilon, delta)
    check_rounds(rounds)
    forms = kairouz_forms(epsilon, rounds, slack)
    return Pair(min(forms), _joint(rounds * _log1m(delta), slack))


def kairouz_forms(epsilon: float, rounds: int, slack: float) -> KairouzForms:
    """T e; m + sqrt(2 V ln(e + sqrt(V)/slack)); m + sqrt(2 V ln(1/slack)).

    m = T e tanh(e/2) and V = T e^2. Reference: Kairouz, Oh, Viswanath (2015), Theorem 3.4.

    >>> [round(form, 3) for form in kairouz_forms(0.1, 100, 1e-6)]
    [10.0, 5.756, 5.756]
    """
    check_pair(epsilon, 0.0)
    check_rounds(rounds)
    return _forms(rounds * epsilon, rounds * pure_kl(epsilon), rounds * epsilon**2, slack)


def kairouz_heterogeneous(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Pair:
    """The same for unequal mechanisms, at delta' = 1 - (1 - slack) prod(1 - delta_i).

    Reference: Kairouz, Oh, Viswanath (2015), Theorem 3.5. Status: sound.

    >>> round(kairouz_heterogeneous([0.1] * 100, [0.0] * 100, 1e-6).epsilon, 3)
    5.756
    """
    check_lists(epsilons, deltas)
    forms = _forms(
        math.fsum(epsilons),
        math.fsum(pure_kl(e) for e in epsilons),
        math.fsum(e * e for e in epsilons),
        slack,
    )
    return Pair(min(forms), _joint(math.fsum(_log1m(d) for d in deltas), slack))


def pure_composition(epsilons: Sequence[float], slack: float) -> Pair:
    """(sqrt(2 ln(1/slack) sum e_i^2) + sum e_i tanh(e_i/2), slack) for pure mechanisms.

    Reference: He, Wang & Tao 2020, Theorem 5, with the root over its first term alone; a root over
    both terms, as one may read the print, is false. Status: sound; superseded by ``heterogeneous``.

    >>> round(pure_composition([0.1] * 100, 1e-6).epsilon, 3)
    5.756
    """
    check_lists(epsilons, [0.0] * len(epsilons))
    check_slack(slack)
    squares = math.fsum(e * e for e in epsilons)
    mean = math.fsum(pure_kl(e) for e in epsilons)
    return Pair((math.sqrt(2.0 * -math.log(slack) * squares) + mean) * _UP, slack)


def pure_kl(epsilon: float) -> float:
    """KL(A(S) || A(S')) <= epsilon tanh(epsilon/2) for pure epsilon, in both orders.

    Proof: KL = E_Q[r ln r] with E_Q r = 1 and r in [e^-epsilon, e^epsilon]; r ln r is convex, so
    the worst law of r sits on the two ends: randomised response, which attains it.
    Reference: He, Wang & Tao 2020, Lemma 5. Status: sound, tight.

    >>> round(pure_kl(1.0), 9)
    0.462117157
    """
    check_pair(epsilon, 0.0)
    return epsilon * math.tanh(epsilon / 2.0) * _UP


def chernoff(epsilon: float, rounds: int, target: float) -> float:
    """delta'' of ``rounds`` pure mechanisms at epsilon' = ``target``, by Chernoff's bound.

    e^(-T KL(a, p)) with a = (1 + target/(T epsilon))/2 and p = 1/(1 + e^-epsilon): the chance that
    the privacy loss of T randomised responses exceeds the target.
    Reference: He, Wang & Tao 2020, Corollary 3. Status: corrected (the print has e^(-(target + T
    epsilon)/2) where its own optimiser gives e^(+(target + T epsilon)/2)); below the mean loss it
    is the trivial 1.

    >>> round(chernoff(0.1, 100, 5.298), 7)
    4.8e-06
    """
    return float(exp_up(min(0.0, log_chernoff(epsilon, rounds, target))))


def log_chernoff(epsilon: float, rounds: int, target: float) -> float:
    """The logarithm of ``chernoff``.

    >>> log_chernoff(0.1, 100, 11.0)
    -inf
    """
    check_pair(epsilon, 0.0)
    check_rounds(rounds)
    check_target(target)
    if target >= rounds * epsilon * _UP:
        return -math.inf
    if math.isinf(epsilon):
        return 0.0
    share = min(1.0, 0.5 * (1.0 + target / (rounds * epsilon)))
    honest = 1.0 / (1.0 + math.exp(-epsilon))
    if share <= honest:
        return 0.0
    log_liar = -epsilon - math.log1p(math.exp(-epsilon))
    divergence = share * math.log(share / honest)
    if share < 1.0:
        divergence += (1.0 - share) * (math.log1p(-share) - log_liar)
    return -rounds * max(0.0, divergence - 2.0**-49 * (1.0 + epsilon))


def _forms(total: float, mean: float, squares: float, slack: float) -> KairouzForms:
    check_slack(slack)
    if total == 0.0:
        return KairouzForms(0.0, 0.0, 0.0)
    root = math.sqrt(2.0 * squares * math.log(math.e + math.sqrt(squares) / slack))
    azuma = math.sqrt(2.0 * squares * -math.log(slack))
    return KairouzForms(total * _UP, (mean + root) * _UP, (mean + azuma) * _UP)


def _joint(log_kept: float, slack: float) -> float:
    return min(1.0, -math.expm1(log_kept + math.log1p(-slack)) * _UP)


def _log1m(delta: float) -> float:
    return math.log1p(-delta) if delta < 1.0 else -math.inf
