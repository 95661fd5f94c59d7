"""Heller & Fetaya 2022: posterior samples and unfinished chains of SGLD, as printed, for study.

Linear regression on n equal records with slope c: prior precision alpha, noise precision beta,
``pull`` = x_h^2 beta, A = alpha + n pull, step size 2/A^2, lam = 1 - 1/A; one record of the other
data set is half as long, lam' = 1 - (alpha + n pull/4)/A^2. `lastiterate.sampling` has the closed
forms that replace the printed bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lastiterate.errors import AssumptionError
from lastiterate.published.setting import theorem
from lastiterate.theory.registry import Theorem


def proposition_iii_4(order: float, epsilon: float, delta: float) -> float:
    """Proposition III.4 (Mironov 2017): (ν, ε)-RDP is (ε + log(1/δ)/(ν-1), δ)-DP.

    >>> round(proposition_iii_4(11.0, 0.5, 1e-5), 4)
    1.6513
    """
    return epsilon + math.log(1 / delta) / (order - 1)


class Problem(NamedTuple):
    """n, alpha, x_h^2 beta, c."""

    records: float
    prior_precision: float
    pull: float
    slope: float = 1.0

    @property
    def total(self) -> float:
        """A = alpha + n x_h^2 beta."""
        return self.prior_precision + self.records * self.pull

    @property
    def log_lam(self) -> float:
        """ln lam."""
        return math.log1p(-1 / self.total)

    @property
    def log_epoch(self) -> float:
        """ln(lam' lam^(n-1)): an epoch of the other data set."""
        other = (self.prior_precision + self.records * self.pull / 4) / self.total**2
        return math.log1p(-other) + (self.records - 1) * self.log_lam


def worst_order(pull: float) -> float:
    """v_1 = max(6, 1 + 2 exp(1/(x_h^2 beta)))."""
    return max(6.0, 1 + 2 * math.exp(1 / pull))


def least_records_iv_1(alpha: float, pull: float) -> float:
    """n_1 of Theorem IV.1: the condition of Lemmas A.5 to A.9, x_h^2 beta > 3 apart."""
    grown = alpha * (math.exp(2 / pull) - 2) + 0.5
    return max(1 / (2 * alpha) - 1, alpha, grown) / pull


def k_dot(problem: Sequence[float]) -> float:
    """k of Lemma A.6: the epoch at which prior and data weigh the same in the variance.

    ln(1 + (1 - lam^2)/(alpha eta))/(-2n ln lam) - 1.

    >>> round(k_dot((17_864_389, 2.0, 3.24)), 2)
    26.83
    """
    p = Problem(*problem)
    fresh = -math.expm1(2 * p.log_lam) * p.total**2 / (2 * p.prior_precision)
    return math.log1p(fresh) / (-2 * p.records * p.log_lam) - 1


def lemma_a4(problem: Sequence[float], k: int) -> float:
    """Lemma A.4: mu - mu' >= lam^(n-1) n c pull/A lam^(k(n-1)) (lam'^(k+1) - lam^(k+1))."""
    p = Problem(*problem)
    relief = p.log_epoch - p.records * p.log_lam  # ln(lam'/lam)
    scale = p.records * p.slope * p.pull / p.total * math.exp((k + 1) * p.records * p.log_lam)
    return scale * math.expm1((k + 1) * relief)


def lemma_a5(problem: Sequence[float], k: int, place: int = 2) -> float:
    """Lemmas A.5 and A.6: an upper bound on the variance after epoch k + 1, odd record r-th.

    2 or 6 times (lam' lam^(n-r))^2/alpha (lam' lam^(n-1))^(2k) up to k_dot; v_1 covers both at its
    ceiling. ``place`` is r.
    """
    p = Problem(*problem)
    factor = worst_order(p.pull) if k > k_dot(problem) else 2.0 if place == 1 else 6.0
    logs = 2 * (k + 1) * p.log_epoch - 2 * (place - 1) * p.log_lam
    return factor / p.prior_precision * math.exp(logs)


def lemma_a7(problem: Sequence[float]) -> float:
    """Lemmas A.7 and IV.6: (mu - mu')^2/sigma'^2 at the epoch after ceil(k_dot), from below.

    exp(-2/pull) alpha/v_1 (3/(32 pull))^2 (c/n)^2 = Omega(c^2/n^2). Status: sound, loose.
    """
    p = Problem(*problem)
    ratio = 3 / (32 * p.pull) * p.slope / p.records
    return math.exp(-2 / p.pull) * p.prior_precision / worst_order(p.pull) * ratio**2


def claim_a8(problem: Sequence[float]) -> float:
    """Claim A.8: P(theta' > mu) <= exp(-lemma_a7/2)."""
    return math.exp(-lemma_a7(problem) / 2)


def lemma_a9(problem: Sequence[float], delta: float) -> float:
    """Lemmas A.9, IV.7: SGLD is not (eps, delta)-private for eps < lemma_a7/2 + ln(1/2 - delta)."""
    return lemma_a7(problem) / 2 + math.log(0.5 - delta)


class Counterexample(NamedTuple):
    """What Theorem IV.1 constructs: n_1, n_2, n_3, n_p = max, c_p and T."""

    n_1: float
    n_2: float
    n_3: float
    n_p: int
    slope: float
    steps: int


def theorem_iv_1(
    epsilon: float,
    other: float,
    delta: float,
    alpha: float = 1.0,
    pull: float = 3.24,
    gamma: tuple[float, float] = (0.1, 1.2),
) -> Counterexample:
    """Theorem IV.1: a posterior that is (epsilon, delta)-private, SGLD that is not (other, delta).

    x_l = x_h/2, x_h = 1, c_p = n_p^gamma_2, T = (ceil(k_dot) + 1) n_p. Status: corrected: n_3
    without 1/beta (Lemma A.1), the exponent 1/(2 - gamma_1 - gamma_2) of the fourth term.

    >>> made = theorem_iv_1(0.5, 10.0, 1e-3)
    >>> lemma_a9((made.n_p, 1.0, 3.24, made.slope), 1e-3) >= 10.0
    True
    """
    g1, g2 = gamma
    order = 2 * math.log(1 / delta) / epsilon + 1
    n_1 = least_records_iv_1(alpha, pull) + 1
    n_3 = 1 + 40 * order + 1  # x_h^2/x_l^2 = 4
    crowd = 1 + n_3 ** (g1 - g2)
    mixed = 16 * order / epsilon * 16 * (alpha + pull) / 0.9
    square = 4 * order / epsilon * 64 * (alpha + pull) ** 2 / (0.9 * pull)
    n_2 = max(
        1 + 32 / epsilon,
        1 + 4 * order * (1 + 8 * (order - 1) / epsilon),
        (64 * order * pull / (0.9 * epsilon)) ** (1 / (1 - 2 * g1)),
        (mixed * crowd) ** (1 / (2 - g1 - g2)),
        (square * crowd**2) ** (1 / (3 - 2 * g2)),
    )
    apart = 2 * worst_order(pull) / alpha * (32 * pull / 3) ** 2 * math.exp(2 / pull)
    far = (apart * (other - math.log(0.5 - delta))) ** (1 / (2 * (g2 - 1)))
    n_p = math.ceil(max(n_1, n_2, n_3, far))
    steps = (math.ceil(k_dot((n_p, alpha, pull))) + 1) * n_p
    return Counterexample(n_1, n_2, n_3, n_p, float(n_p) ** g2, steps)


def equation_20(order: float, gap: float, first: float, second: float) -> float:
    """(20): the Renyi divergence of N(gap, first^2) from N(0, second^2) as printed. REFUTED.

    ln(s1/s2) + (nu-1)/2 ln(s2^2/v) + nu gap^2/(2v), v = nu s2^2 + (1-nu) s1^2: the first logarithm
    is upside down, (nu-1)/2 stands for 1/(2(nu-1)).

    >>> round(equation_20(5.0, 0.0, 1.0, 1.1), 2)  # true: 0.0294
    -1.15
    """
    v = order * second**2 + (1 - order) * first**2
    log = math.log(first / second) + (order - 1) / 2 * math.log(second**2 / v)
    return log + order * gap**2 / (2 * v)


def reused_noise_variance(problem: Sequence[float], k: int) -> float:
    """Lemma A.3 as printed: the noise part of the variance if all epochs use the same xi. REFUTED.

    eta (sum_j lam^(jn))^2 sum_i lam^(2i); fresh noise gives eta sum_j lam^(2jn) sum_i lam^(2i), and
    that is what the paper uses later.
    """
    p = Problem(*problem)
    fade = math.exp(p.records * p.log_lam)
    inner = math.expm1(2 * p.records * p.log_lam) / math.expm1(2 * p.log_lam)
    return 2 / p.total**2 * inner * sum(fade**j for j in range(k + 1)) ** 2


def equation_50(total: float) -> float:
    """(50): eta/(1 - lam^2) printed as 1/(A + 1/8). REFUTED: it is 1/(A - 1/2)."""
    return 1 / (total + 0.125)


def claim_d18(problem: Sequence[float]) -> float:
    """Claims D.18, D.20: lam^(2n), claimed to decrease in n to exp(-2/pull). REFUTED.

    True if (2 alpha - 1)(alpha + n pull) > 1; false for alpha <= 1/2.

    >>> claim_d18((1000, 0.1, 3.24)) < math.exp(-2 / 3.24)
    True
    """
    p = Problem(*problem)
    return math.exp(2 * p.records * p.log_lam)


def claim_c11(radius: float, count: int, x_low: float, x_high: float) -> float:
    """Claim C.11: the sensitivity of the mean slope, R (2(n-1) h l + h^2)/(n(n-1) l^2), h = x_h^2.

    Status: sound; R h/((n-1) l + h) is attained, about half.
    """
    low, high = x_low**2, x_high**2
    return radius * (2 * (count - 1) * high * low + high**2) / (count * (count - 1) * low**2)


def figure_3_upper_bound(
    epochs: int, delta: float = 1e-5, records: int = 60_000, batch: int = 4
) -> float:
    """Figure 3's upper bound: Opacus' RDP of Poisson batches, orders to 63, Proposition III.4.

    Clip 0.2, effective step 0.001: noise sqrt(2b·0.001/n) against 0.001·0.2, one record removed.
    Orders end at 63, so that no number is below log(1/δ)/62 = 0.186. Status: sound, loose.

    >>> [round(figure_3_upper_bound(epochs), 3) for epochs in (1, 6)]
    [0.186, 0.19]
    """
    rate, ratio = batch / records, 0.2 * math.sqrt(0.001 * records / (2 * batch))
    found = math.inf
    for order in range(2, 64):
        terms = [
            math.comb(order, k)
            * (1 - rate) ** (order - k)
            * rate**k
            * math.expm1(k * (k - 1) * ratio**2 / 2)
            for k in range(2, order + 1)
        ]
        steps = epochs * records / batch
        rdp = steps * math.log1p(math.fsum(terms)) / (order - 1)
        found = min(found, proposition_iii_4(order, rdp, delta))
    return found


def lemma_a1_value(order: float, domain: Sequence[float]) -> float:
    """eps_1 of Lemma A.1, whatever n is; ``domain`` is (n, alpha, beta, x_l, x_h, c, n^gamma_1).

    >>> n = 23
    >>> round(lemma_a1_value(20, (n, 0.1, 10, 1, 1, 5 * n**0.3, n**0.3)), 1)  # the truth is 835.7
    257.4
    """
    n, alpha, beta, x_low, x_high, c, dev = domain
    low, high = x_low**2, x_high**2
    curved = high * (alpha + high * beta) * (c + dev)
    return (
        high / (2 * (n - 1) * low)
        + (order - 1) * order * high / (2 * ((n - 1) * low - order * high))
        + 20 * order * beta * high**2 * dev**2 / (9 * n * low)
        + 20 * order * high**2 * (alpha + high * beta) / (9 * low**2) * (c + dev) * dev / n**2
        + 5 * order * curved**2 / (9 * low**3 * beta) / n**3
    )


def lemma_a1_printed(order: float, domain: Sequence[float]) -> float:
    """Lemma A.1 with its printed condition on n. REFUTED for noise_precision > 1.

    The printed n > 1 + 10 (x_high^2/x_low^2) order/noise_precision lets the variances differ too
    much; `lastiterate.sampling.PosteriorPrivacy.lemma` has the corrected condition.
    """
    n, _, beta, x_low, x_high, *_ = domain
    ratio = x_high**2 / x_low**2
    needed = max(1 + 10 * ratio * order / beta, 1 + order * ratio)
    if not n > needed:
        raise AssumptionError(
            f"Heller & Fetaya 2022, Lemma A.1 needs more than {needed:g} records, and there "
            f"are {n:g}."
        )
    return lemma_a1_value(order, domain)


ROWS: tuple[Theorem, ...] = (theorem("heller-fetaya-2022-a1"),)
