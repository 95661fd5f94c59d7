"""Closed forms never undercut the optimum; the numbers of the literature come out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog

from lastiterate.composition import (
    Pair,
    advanced,
    basic,
    chernoff,
    heterogeneous,
    kairouz,
    kairouz_forms,
    kairouz_heterogeneous,
    optimal,
    pure_composition,
    pure_kl,
)
from lastiterate.published.he_wang_tao import subsampled_linear


@settings(max_examples=150, deadline=None)
@given(
    epsilon=st.floats(1e-3, 4),
    delta=st.sampled_from([0.0, 1e-10, 1e-6, 1e-3]),
    rounds=st.integers(1, 5000),
    log_slack=st.floats(-12, -1),
)
def test_never_below_the_optimum(
    epsilon: float, delta: float, rounds: int, log_slack: float
) -> None:
    slack = 10**log_slack
    pairs = [basic(epsilon, delta, rounds), advanced(epsilon, delta, rounds, slack)]
    kept = kairouz(epsilon, delta, rounds, slack)
    pairs += [kept._replace(epsilon=form) for form in kairouz_forms(epsilon, rounds, slack)]
    for pair in pairs:
        # 1e-9: ``optimal`` is rounded up by at most that much
        assert optimal(epsilon, delta, rounds, pair.epsilon) <= pair.delta * (1 + 1e-9)
    pure = pure_composition([epsilon] * rounds, slack)
    assert optimal(epsilon, 0.0, rounds, pure.epsilon) <= pure.delta * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_unequal_rounds_never_below_the_lower_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    epsilons = rng.uniform(0.05, 1.0, 40).tolist()
    deltas = (10 ** rng.uniform(-9, -4, 40)).tolist()
    pair = kairouz_heterogeneous(epsilons, deltas, 1e-5)
    assert heterogeneous(epsilons, deltas, pair.epsilon).lower <= pair.delta
    pure = pure_composition(epsilons, 1e-5)
    assert heterogeneous(epsilons, [0.0] * 40, pure.epsilon).lower <= pure.delta


@settings(max_examples=150, deadline=None)
@given(epsilon=st.floats(1e-3, 4), rounds=st.integers(1, 5000), share=st.floats(0, 1.2))
def test_corrected_corollary_3_never_below_the_optimum(
    epsilon: float, rounds: int, share: float
) -> None:
    target = share * rounds * epsilon
    assert optimal(epsilon, 0.0, rounds, target) <= chernoff(epsilon, rounds, target) * (1 + 1e-9)


def test_corrected_corollary_3_is_the_papers_formula_with_a_plus() -> None:
    e, t, target = 0.1, 100, 5.298
    printed = (
        math.exp((target + t * e) / 2)
        * (2 * t * e / ((1 + math.exp(e)) * (t * e - target))) ** t
        * ((t * e + target) / (t * e - target)) ** (-(target + t * e) / (2 * e))
    )
    assert chernoff(e, t, target) == pytest.approx(printed, rel=1e-9)
    assert f"{chernoff(e, t, target):.1e}" == "4.8e-06"


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 2.0, 4.0, 8.0])
def test_lemma_5_is_attained_by_randomised_response(epsilon: float) -> None:
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    attained = p * math.log(p / q) + q * math.log(q / p)
    assert attained <= pure_kl(epsilon) <= attained * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_lemma_5_is_the_maximum_of_a_linear_programme(epsilon: float) -> None:
    # the law of the likelihood ratio r under Q: E r = 1, maximise E r ln r
    ratio = np.exp(np.linspace(-epsilon, epsilon, 4001))
    found = linprog(-ratio * np.log(ratio), A_eq=[np.ones_like(ratio), ratio], b_eq=[1.0, 1.0])
    assert -found.fun == pytest.approx(pure_kl(epsilon), rel=1e-6)


def test_theorem_5_with_the_root_over_both_terms_is_false() -> None:
    epsilons, slack = [0.5] * 400, 1e-3
    squares, mean = sum(e * e for e in epsilons), sum(pure_kl(e) for e in epsilons)
    misread = math.sqrt(2 * math.log(1 / slack) * squares + mean)
    assert heterogeneous(epsilons, [0.0] * 400, misread).lower > slack
    assert pure_composition(epsilons, slack).epsilon > misread


def subsampled(epsilon: float, delta: float, rate: float) -> Pair:
    """Balle, Barthe & Gaboardi 2018, Theorem 9: a uniform subset, one record replaced; tight."""
    return Pair(math.log1p(rate * math.expm1(epsilon)), rate * delta)


def test_linear_subsampling_is_sound_up_to_these_epsilons() -> None:
    def excess(epsilon: float, rate: float) -> float:
        claim = subsampled_linear(epsilon, 0.0, rate).epsilon
        return subsampled(epsilon, 0.0, rate).epsilon - claim

    limits = [brentq(excess, 0.5, 5.0, args=(rate,)) for rate in (1e-7, 0.01, 0.1)]
    assert [f"{limit:.3f}" for limit in limits] == ["1.256", "1.278", "1.509"]
    assert f"{brentq(excess, 0.5, 5.0, args=(1e-7,)):.4f}" == "1.2564"
    assert all(excess(e, 0.5) <= 0 for e in np.linspace(0.01, 40, 400))


def test_subsampled_randomised_response_attains_the_tight_rule() -> None:
    # N = 100 records, one is drawn and answers through RR(3); neighbours differ in one record
    epsilon, records = 3.0, 100
    honest = 1 / (1 + math.exp(-epsilon))
    ones = np.arange(records) / records  # share of ones among the others, in hundredths
    before = ones * honest + (1 - ones) * (1 - honest)
    after = (ones + 1 / records) * honest + (1 - ones - 1 / records) * (1 - honest)
    attained = max(np.max(np.log(after / before)), np.max(np.log((1 - before) / (1 - after))))
    tight = subsampled(epsilon, 0.0, 1 / records).epsilon
    assert tight == pytest.approx(attained, rel=1e-12)
    assert f"{attained:.4f}" == "0.1747"
    assert f"{subsampled_linear(epsilon, 0.0, 1 / records).epsilon:.2f}" == "0.06"


def test_subsampling_of_random_channels() -> None:
    # one of three records is drawn and passed through a random channel; exact divergences
    rng = np.random.default_rng(3)
    for _ in range(50):
        channel = rng.dirichlet(np.ones(4), size=3)
        ratio = np.log(channel[:, None, :] / channel[None, :, :])
        epsilon = float(rng.uniform(0, 1) * ratio.max())
        delta = max(
            float(np.maximum(channel[a] - math.exp(epsilon) * channel[b], 0).sum())
            for a, b in itertools.permutations(range(3), 2)
        )
        bound = subsampled(epsilon, delta, 1 / 3)
        for others in itertools.product(range(3), repeat=2):
            rest = channel[list(others)].sum(axis=0)
            for a, b in itertools.permutations(range(3), 2):
                p, q = (rest + channel[a]) / 3, (rest + channel[b]) / 3
                truth = float(np.maximum(p - math.exp(bound.epsilon) * q, 0).sum())
                assert truth <= bound.delta + 1e-15
