"""Generalisation bounds against channels whose gap is known exactly: never below the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr
from scipy.stats import binom, norm

from lastiterate.curves.gaussian import Gaussian
from lastiterate.generalization import generalization
from lastiterate.generalization.bound import (
    ABSOLUTE_EXPECTATION,
    EXPECTED_SIZE,
    ONE_SIDED,
    TWO_SIDED,
)
from lastiterate.generalization.expectation import on_average, pure_expectation, second_moment
from lastiterate.generalization.high_probability import j_star, posterior_gap
from lastiterate.generalization.report import Generalization


def assert_covers(found: Generalization, gap: np.ndarray, probability: np.ndarray) -> int:
    """Every sound bound holds for this law of the gap; returns how many were not vacuous."""
    informative = 0
    mean, size = float(gap @ probability), float(np.abs(gap) @ probability)
    for bound in found.bounds:
        if bound.status != "sound" or not bound.hypotheses_met:
            continue
        informative += not bound.vacuous
        if bound.bounds == ABSOLUTE_EXPECTATION:
            assert abs(mean) <= bound.value + 1e-16, bound  # the mean is itself a rounded sum
        elif bound.bounds == EXPECTED_SIZE:
            assert size <= bound.value, bound
        elif bound.bounds == ONE_SIDED:
            assert probability[gap > bound.value].sum() <= bound.failure, bound
            assert probability[-gap > bound.value].sum() <= bound.failure, bound
        else:
            assert bound.bounds == TWO_SIDED
            assert probability[np.abs(gap) > bound.value].sum() <= bound.failure, bound
    return informative


@pytest.mark.parametrize("records", [200, 2000, 20_000])
@pytest.mark.parametrize("mu", [0.01, 0.1, 0.5, 2.0])
def test_gaussian_mean(records: int, mu: float) -> None:
    # fair bits; h = (sum + N(0, 1/mu^2) > n/2); loss 1{h = z}; population risk is 1/2
    ones = np.arange(records + 1)
    weight = binom.pmf(ones, records, 0.5)
    says_one = ndtr((ones - records / 2) * mu)
    gap = np.concatenate((ones / records - 0.5, 0.5 - ones / records))
    probability = np.concatenate((weight * says_one, weight * (1 - says_one)))
    for confidence in (0.5, 0.95, 0.999):
        assert assert_covers(generalization(Gaussian(mu), records, confidence), gap, probability)


@pytest.mark.parametrize("records", [50, 1000, 100_000])
def test_an_output_that_ignores_its_data_still_has_a_gap(records: int) -> None:
    ones = np.arange(records + 1)
    gap, probability = ones / records - 0.5, binom.pmf(ones, records, 0.5)
    for confidence in (0.3, 0.95, 0.999_999):
        for private in ((0.0, 0.0), (1e-9, 0.0), (0.0, 1e-9), Gaussian(0.0), Gaussian(1e-6)):
            assert_covers(generalization(private, records, confidence), gap, probability)


@pytest.mark.parametrize("records", [100, 1000, 10_000])
@pytest.mark.parametrize("truthful", [0.05, 0.3, 1.0, 2.5])
def test_randomised_response_per_cell(records: int, truthful: float) -> None:
    # x uniform over very many cells, y a fair bit; the output answers RR(y) in occupied cells and
    # a fair coin elsewhere; loss 1{answer at x = y}: training risk Bin(n, p)/n, population risk
    # 1/2. Moving a record changes two cells, each by at most ln((1+e^r)/2) from the coin.
    honest = 1 / (1 + math.exp(-truthful))
    epsilon = max(truthful, 2 * math.log((1 + math.exp(truthful)) / 2))
    right = np.arange(records + 1)
    gap, probability = right / records - 0.5, binom.pmf(right, records, honest)
    for pair in ((epsilon, 0.0), (epsilon, records**-1.5)):
        for confidence in (0.5, 0.95, 0.999):
            assert assert_covers(generalization(pair, records, confidence), gap, probability)
    # not far from the truth either: the gap is tanh(r/2)/2 on average
    if truthful <= 0.3:
        assert gap @ probability > 0.9 * pure_expectation(epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_subset_mechanism_attains_the_pure_bound(epsilon: float) -> None:
    # one record, uniform over K symbols; output: a subset of s of them, e^epsilon times likelier
    # if it contains the record; loss 1{record in subset}
    symbols = 20_000
    size = round(symbols / (1 + math.exp(epsilon / 2)))
    inside = size * math.exp(epsilon)
    gap = inside / (inside + symbols - size) - size / symbols
    assert pure_expectation(epsilon) * (1 - 1e-3) < gap <= pure_expectation(epsilon)


@pytest.mark.parametrize("delta", [0.01, 0.3])
def test_publishing_the_record_now_and_then_attains_total_variation(delta: float) -> None:
    # one record, uniform over K symbols, published with probability delta; loss 1{published = z}
    symbols = 1000
    gap = np.array([1 - 1 / symbols, 0.0])
    probability = np.array([delta, 1 - delta])
    found = generalization((0.0, delta), 1, confidence=0.9)
    assert_covers(found, gap, probability)
    assert gap @ probability > 0.99 * found.expected


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_pure_bound_is_the_maximum_of_a_linear_programme(epsilon: float) -> None:
    # per output, W_z = a (1 + u (e^epsilon - 1)), u in [0, 1]: maximise E(W - m)_+ at mean m = 1
    best = 0.0
    for low in np.linspace(math.exp(-epsilon), 1.0, 200):
        values = np.linspace(low, low * math.exp(epsilon), 201)
        found = linprog(
            -np.maximum(values - 1, 0), A_eq=[np.ones(201), values], b_eq=[1.0, 1.0], method="highs"
        )
        best = max(best, -found.fun)
    assert best <= pure_expectation(epsilon)
    assert best == pytest.approx(pure_expectation(epsilon), rel=1e-3)


def random_channel(
    rng: np.random.Generator, records: int, symbols: int, outputs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Datasets, the law of the output given each, and the weights of datasets."""
    datasets = np.array(list(itertools.product(range(symbols), repeat=records)))
    law = rng.dirichlet(np.ones(symbols))
    channel = rng.dirichlet(np.full(outputs, rng.uniform(0.3, 5)), size=len(datasets))
    return datasets, channel, np.prod(law[datasets], axis=1)


def neighbours(datasets: np.ndarray) -> list[tuple[int, int]]:
    pairs = itertools.permutations(range(len(datasets)), 2)
    return [(a, b) for a, b in pairs if np.count_nonzero(datasets[a] != datasets[b]) == 1]


@pytest.mark.parametrize("seed", range(60))
def test_random_finite_channels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    records, symbols, outputs = int(rng.integers(1, 4)), int(rng.integers(2, 4)), 5
    datasets, channel, weight = random_channel(rng, records, symbols, outputs)
    pairs = neighbours(datasets)
    first, second = channel[[a for a, _ in pairs]], channel[[b for _, b in pairs]]
    pure = float(np.log(first / second).max()) * (1 + 1e-12)
    epsilon = float(rng.uniform(0, 1)) * pure
    excess = np.maximum(first - math.exp(epsilon) * second, 0).sum(axis=1)
    delta = float(excess.max()) * (1 + 1e-12)

    # the loss that an adversary would choose: 1 where the record makes the output likelier
    law = np.array([weight[datasets[:, 0] == z].sum() for z in range(symbols)])
    given = np.array(
        [
            weight[datasets[:, 0] == z] @ channel[datasets[:, 0] == z] / law[z]
            for z in range(symbols)
        ]
    )
    greedy = (given > law @ given).astype(float)
    for loss in (greedy, 1 - greedy, rng.uniform(0, 1, (symbols, outputs))):
        training = loss[datasets].mean(axis=1)  # dataset by output
        risk = law @ loss
        gap = (training - risk).ravel()
        probability = (weight[:, None] * channel).ravel()
        for pair in ((pure, 0.0), (epsilon, delta)):
            for confidence in (0.1, 0.5, 0.9):
                assert_covers(generalization(pair, records, confidence), gap, probability)

        # the lemma behind J*: the posterior gap E[training | h] - R(h)
        seen = weight @ channel
        posterior = (weight @ (channel * training)) / seen - risk
        for d in (0.01, 0.1, 0.3):
            exceeds = seen[posterior > -math.expm1(-epsilon) + d].sum()
            assert exceeds <= math.exp(-epsilon) * delta / d + 1e-15


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("failure", [0.001, 0.05, 0.3, 0.9])
def test_posterior_gap_of_one_bit_in_gaussian_noise(mu: float, failure: float) -> None:
    # h = +-mu/2 + N(0, 1); loss 1{sign h = z}: posterior gap tanh(mu |h|/2)/2
    value = float(posterior_gap(np.array(mu), np.array(failure)))
    if value >= 0.5:
        return
    threshold = 2 * math.atanh(2 * value) / mu
    exceeds = norm.sf(threshold - mu / 2) + norm.sf(threshold + mu / 2)
    assert exceeds <= failure


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("failure", [0.01, 0.2, 0.7, 0.95])
def test_posterior_gap_is_the_maximum_over_tests(mu: float, failure: float) -> None:
    x = np.linspace(1e-9, failure, 20_001)
    searched = float(np.max(x - ndtr(norm.ppf(x) - mu))) / failure
    value = float(posterior_gap(np.array(mu), np.array(failure)))
    assert searched <= value <= searched * (1 + 1e-6)


def test_square_root_of_kl_is_not_a_bound() -> None:
    # an output that ignores its data: KL = 0, yet training risk of a coin flip strays from 1/2
    ones = np.arange(1001)
    strays = float(np.abs(ones / 1000 - 0.5) @ binom.pmf(ones, 1000, 0.5))
    assert f"{strays:.4f}" == "0.0126"
    assert strays <= math.sqrt(second_moment(0.0, 1000)) < 1.3 * strays


def test_theorem_2_on_the_chosen_of_several_samples() -> None:
    # k samples of one fair bit each; the index of a bit equal to 1 is picked through the
    # exponential mechanism with weight e^(epsilon bit), which is epsilon-private
    for k, epsilon in itertools.product((2, 5, 9), (0.2, 1.0, 2.0)):
        mean = 0.0
        for bits in itertools.product((0, 1), repeat=k):
            scores = np.exp(epsilon * np.array(bits))
            mean += float(scores @ np.array(bits) / scores.sum()) / 2**k
        assert abs(mean - 0.5) <= on_average(epsilon, 0.0, k)


def test_j_star_is_monotone_and_pays_for_confidence() -> None:
    values = [j_star(0.1, 1e-6, n, 0.05) for n in (10**3, 10**4, 10**5, 10**6)]
    assert values == sorted(values, reverse=True)
    assert values[-1] > -math.expm1(-0.1)
    assert j_star(0.1, 1e-6, 10**4, 0.001) > j_star(0.1, 1e-6, 10**4, 0.05)
