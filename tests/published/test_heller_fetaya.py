"""Heller & Fetaya 2022, statement by statement, against the raw recursions of its chains."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from lastiterate.published import heller_fetaya as paper
from lastiterate.published.setting import renyi_moments
from lastiterate.sampling import interim_privacy, posterior_privacy
from lastiterate.sampling.interim import epoch_laws

FIGURE_1 = (17_864_389, 2.0, 3.24)


def chains(problem, epochs):
    """Means and variances at the ends of epochs, equal records, then the odd one at each place."""
    p = paper.Problem(*problem)
    n, eta = int(p.records), 2 / p.total**2
    out = []
    for place in range(n + 1):  # 0: no odd record
        mean, variance, rows = 0.0, 1 / p.prior_precision, []
        for step in range(n * epochs):
            pull = p.pull / 4 if step % n == place - 1 else p.pull
            shrink = 1 - eta / 2 * (p.prior_precision + n * pull)
            mean = shrink * mean + eta / 2 * n * p.slope * pull
            variance = shrink**2 * variance + eta
            if step % n == n - 1:
                rows.append((mean, variance))
        out.append(rows)
    return np.array(out)


@pytest.mark.parametrize("problem", [(12, 1.0, 3.5, 40.0), (30, 2.0, 4.0, 7.0), (9, 0.6, 8.0, 3.0)])
def test_bounds_hold_against_the_raw_recursion(problem):
    p = paper.Problem(*problem)
    assert p.records > paper.least_records_iv_1(p.prior_precision, p.pull)
    peak = math.ceil(paper.k_dot(problem))
    laws = chains(problem, peak + 1)
    for k in range(1, peak + 1):
        mean = laws[0, k, 0]
        for place in range(1, int(p.records) + 1):
            other, variance = laws[place, k]
            assert mean - other >= paper.lemma_a4(problem, k) * (1 - 1e-9)
            assert variance <= paper.lemma_a5(problem, k, place) * (1 + 1e-9)
    gaps = (laws[0, peak, 0] - laws[1:, peak, 0]) ** 2 / laws[1:, peak, 1]
    assert gaps.min() >= paper.lemma_a7(problem)
    tails = [float(mp.ncdf(-math.sqrt(g))) for g in gaps]
    assert np.mean(tails) <= paper.claim_a8(problem)


def test_k_dot_is_where_prior_and_data_weigh_the_same():
    """lam^(2(k+1)n)/alpha = eta (1 - lam^(2(k+1)n))/(1 - lam^2) at k + 1 = k_dot + 1 epochs."""
    for problem in [(50, 2.0, 3.24), (1000, 1.0, 5.0), FIGURE_1]:
        p = paper.Problem(*problem)
        left = math.exp(2 * (paper.k_dot(problem) + 1) * p.records * p.log_lam)
        data = 2 / p.total**2 * (1 - left) / -math.expm1(2 * p.log_lam)
        assert left / p.prior_precision == pytest.approx(data, rel=1e-6)
        assert paper.k_dot(problem) > 0
    assert 2 * math.exp(-2 / 3) > 1  # Claim D.16
    assert 2 * math.exp(-2 / 2.88) < 1


def test_theorem_iv_1_end_to_end():
    for epsilon, other, delta in [(0.5, 10.0, 1e-3), (1.0, 100.0, 0.1), (0.2, 3.0, 1e-5)]:
        made = paper.theorem_iv_1(epsilon, other, delta, alpha=1.0, pull=3.24, gamma=(0.1, 1.3))
        n = made.n_p
        assert n >= max(made.n_1, made.n_2, made.n_3)
        domain = (n, 1.0, 3.24, 0.5, 1.0, made.slope, n**0.1)
        assert posterior_privacy(*domain).attained(delta) <= epsilon
        assert paper.lemma_a9((n, 1.0, 3.24, made.slope), delta) >= other * (1 - 1e-9)
        epochs = made.steps // n
        interim = interim_privacy(n, 1.0, 3.24, 1.0, made.slope, epochs, delta)
        assert interim.exact[-1] >= paper.lemma_a9((n, 1.0, 3.24, made.slope), delta)


def test_rates_of_posterior_and_chain():
    """c = n^1.3, dev = n^0.1: eps_1/(c^2/n^3) and the chain's epsilon/(c^2/n^2) settle."""
    posterior, chain = [], []
    for n in (10**9, 10**10, 10**11):
        c = n**1.3
        domain = (n, 2.0, 1.0, 0.9, 1.8, c, n**0.1)
        posterior.append(paper.lemma_a1_value(20.0, domain) / (c**2 / n**3))
        peak = interim_privacy(n, 2.0, 1.0, 1.8, c, 60, 1e-3).exact.max()
        chain.append(peak / (c / n) ** 2)
        assert paper.lemma_a7((n, 2.0, 3.24, c)) <= 2 * peak
    assert posterior[2] == pytest.approx(posterior[1], rel=0.05)
    assert min(chain) > 0.4 * max(chain)  # the epoch is a whole number: no limit, but bounded
    assert paper.lemma_a7((100, 2.0, 3.24, 8.0)) == pytest.approx(
        paper.lemma_a7((200, 2.0, 3.24, 16.0))
    )


def test_equation_20_is_negative_where_the_divergence_is_not():
    mp.mp.dps = 20

    def exact(order, gap, first, second):
        ends = [-20, -2, 0, gap, 2 + gap, 20]
        total = mp.quad(
            lambda x: mp.npdf(x, gap, first) ** order * mp.npdf(x, 0, second) ** (1 - order), ends
        )
        return float(mp.log(total) / (order - 1))

    assert paper.equation_20(5.0, 0.0, 1.0, 1.1) == pytest.approx(-1.15, abs=5e-3)
    assert exact(5, 0, 1.0, 1.1) == pytest.approx(0.0294, abs=5e-5)
    found = renyi_moments(5.0, ([1.0], [0.3], [1.0]), ([1.0], [0.0], [1.1])).divergence
    assert found == pytest.approx(exact(5, 0.3, 1.0, 1.1), rel=1e-8)


@pytest.mark.parametrize(
    ("problem", "times"), [((*FIGURE_1, 1e8), 264_700), ((10, 20.0, 3.001, 1.0), 809)]
)
def test_lemma_a7_is_loose_by_hundreds_of_thousands(problem, times):
    """At the parameters of Figure 1, and in the tightest of 300 problems tried."""
    n, alpha, pull, slope = problem
    epoch = math.ceil(paper.k_dot(problem)) + 1
    laws = epoch_laws(n, alpha, 1.0, math.sqrt(pull), slope, epoch)
    places = np.exp(laws.log_lam * np.linspace(0, n - 1, 10))
    gap = laws.common_gap[-1] + laws.order_gap[-1] * places
    variance = laws.common_variance[-1] + laws.order_variance[-1] * places**2
    assert (gap**2 / variance).min() / paper.lemma_a7(problem) == pytest.approx(times, rel=2e-3)


def test_noise_reused_in_every_epoch_is_not_the_chain():
    """The same xi in every epoch, drawn; and fresh noise, from the recursion."""
    problem, k = (20, 2.0, 3.24), 3
    p = paper.Problem(*problem)
    fresh = chains((*problem, 1.0), k + 1)[0, k, 1]
    prior = math.exp(2 * (k + 1) * p.records * p.log_lam) / p.prior_precision
    reused = paper.reused_noise_variance(problem, k)
    assert reused > 1.5 * (fresh - prior)
    lam, eta = math.exp(p.log_lam), 2 / p.total**2
    theta = np.zeros(20)  # weights of the 20 numbers in theta
    for step in range(20 * (k + 1)):
        theta *= lam
        theta[step % 20] += math.sqrt(eta)
    assert (theta**2).sum() == pytest.approx(reused, rel=1e-9)


def test_equation_50():
    for total in (2.0, 10.0, 1e6):
        eta, lam = 2 / mp.mpf(total) ** 2, 1 - 1 / mp.mpf(total)
        exact = float(eta / (1 - lam**2))
        assert exact == pytest.approx(1 / (total - 0.5), rel=1e-12)
        assert paper.equation_50(total) < exact


def test_claim_d18_fails_for_small_prior_precision():
    limit = math.exp(-2 / 3.24)
    below = paper.claim_d18((1000, 0.1, 3.24))
    assert (round(below, 6), round(limit, 6)) == (0.539366, 0.539408)
    assert paper.claim_d18((2000, 0.1, 3.24)) > below  # it grows
    for alpha in (0.6, 2.0):
        values = [paper.claim_d18((n, alpha, 3.24)) for n in (20, 100, 1000)]
        assert values == sorted(values, reverse=True)
        assert values[-1] > limit


def test_claim_c11_bounds_the_slope():
    rng = np.random.default_rng(8)
    for _ in range(200):
        count, radius = int(rng.integers(3, 9)), rng.uniform(0.5, 5)
        x, slope = rng.uniform(0.6, 1.0, count), rng.uniform(0, radius, count)
        other_x, other = x.copy(), slope.copy()
        other_x[-1], other[-1] = rng.choice([0.6, 1.0]), rng.choice([0.0, radius])
        means = [(v**2 * s).sum() / (v**2).sum() for v, s in ((x, slope), (other_x, other))]
        bound = paper.claim_c11(radius, count, 0.6, 1.0)
        assert abs(means[0] - means[1]) <= bound
        assert radius / ((count - 1) * 0.36 + 1) <= bound


def test_upper_bound_of_figure_3():
    """The moments by numerical integration at one order, and the exact composition below."""
    mp.mp.dps = 30
    rate, mu, order = mp.mpf(4) / 60_000, mp.mpf(0.2) * mp.sqrt(mp.mpf(0.001) * 60_000 / 8), 63

    def ratio(x):
        return (1 - rate + rate * mp.exp(mu * x - mu**2 / 2)) ** order * mp.npdf(x)

    moment = mp.quad(ratio, [-12, 0, 10, 20, 30, 35, 40, 60])
    rdp = 15_000 * mp.log(moment) / (order - 1)
    exact = float(rdp + mp.log(1e5) / (order - 1))
    assert paper.figure_3_upper_bound(1) == pytest.approx(exact, rel=1e-6)
    assert exact > math.log(1e5) / 62
