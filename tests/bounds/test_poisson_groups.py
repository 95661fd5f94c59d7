"""Several records of one person in Poisson batches, against enumerated mixtures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from placed_records import mixture_deltas
from scipy.stats import binom

from lastiterate.bounds.poisson import best as best_of_one
from lastiterate.bounds.poisson import follow
from lastiterate.bounds.poisson_groups import best, group_curve, plain_group_curve
from lastiterate.bounds.steps import Steps
from lastiterate.curves.group_pair import GroupPair
from lastiterate.curves.pairs import SampledPair


def exact_deltas(factors, s, nu, rate, records, epsilon):
    """A linear run in which all records push the same way: a mixture over all coins."""
    behind = np.append(np.cumprod(factors[::-1])[::-1][1:], 1.0)
    deviation = float(np.linalg.norm(behind * nu))
    shifts, weights = [0.0], [1.0]
    chances = binom.pmf(np.arange(records + 1), records, rate)
    for carried in (behind * s).tolist():
        pairs = itertools.product(zip(shifts, weights, strict=True), enumerate(chances))
        grown = [(a + i * carried, w * p) for (a, w), (i, p) in pairs if w * p > 0]
        shifts, weights = map(list, zip(*grown, strict=True))
    return mixture_deltas(np.array(shifts), np.array(weights), deviation, epsilon)


def check(seed):
    random = np.random.default_rng(seed)
    records, count = int(random.integers(1, 4)), int(random.integers(1, 5))
    rate = float(random.choice([random.uniform(0.01, 1), 1.0], p=[0.9, 0.1]))
    most = float(random.uniform(0.2, 1.1))
    if random.integers(2):
        s, nu = np.full(count, random.uniform(0.1, 2)), np.full(count, 1.0)
        steps = Steps(most, s[0], 1.0, count)
    else:
        s, nu = random.uniform(0, 2, count), random.uniform(0.5, 2, count)
        steps = Steps(most, s, nu, count)
    factors = most * random.choice([1.0, random.uniform(0, 1)], count)
    epsilon = float(random.uniform(0, 3))
    truth = max(exact_deltas(factors, s, nu, rate, records, epsilon))
    for curve in (
        best(steps, rate, records, 1e-5).curve,
        random_path(random, steps, rate, records),
    ):
        assert curve.delta(epsilon) >= truth * (1 - 1e-7) - 1e-13


def random_path(random, steps, rate, records):
    left = [0.0]
    for c, s in zip(steps.c.tolist(), steps.s.tolist(), strict=True):
        left.append(random.uniform(0, 1) * (c * left[-1] + s) * (1 - 1e-12))
    left[-1] = 0.0
    gaps = steps.s / steps.nu * (1 + 1e-15)
    return group_curve(follow(steps, rate, left), gaps, records)


@pytest.mark.parametrize("seed", range(10))
def test_never_below_enumerated_mixtures(seed):
    check(seed)


@pytest.mark.slow
def test_hundreds_of_mixtures():
    for seed in range(1000, 1500):
        check(seed)


@pytest.mark.parametrize(("rate", "low", "high"), [(0.1, 0.0, 1.0), (0.3, 0.4, 1.5), (1.0, 0, 2.0)])
def test_one_record_is_a_sampled_pair(rate, low, high):
    ours, theirs = GroupPair(rate, 1, low, high, 0.7), SampledPair(rate, low, high)
    for tilt in (0.5, 1.0, 4.0):
        assert ours.log_moments(tilt) == pytest.approx(theirs.log_moments(tilt), rel=1e-9)
    a, b = ours.atoms(1e-3)[0], theirs.atoms(1e-3)[0]
    assert float(a.weights.sum() + a.infinity) == pytest.approx(float(b.weights.sum() + b.infinity))


def test_moments_by_the_binomial_theorem():
    """E ratio^2 = sum of w_i w_j exp(a_i a_j), in closed form."""
    pair = GroupPair(0.2, 3, 0.1, 0.6, 0.5)
    shifts = np.array([0.1, 0.6, 1.1, 1.6])
    weights = binom.pmf(np.arange(4), 3, 0.2)
    exact = math.log(weights @ np.exp(np.outer(shifts, shifts)) @ weights)
    assert exact <= pair.log_moments(1.0)[0] <= exact + 1e-9


def test_more_records_never_cost_less_and_one_costs_what_it_did():
    steps = Steps(0.5, 1.0, 1.0, 4)
    found = [best(steps, 0.02, k, 1e-6).curve.epsilon(1e-6) for k in (1, 2)]
    assert found == sorted(found)
    assert found[0] <= best_of_one(steps, 0.02, 1e-6).curve.epsilon(1e-6) * 1.01
    assert found[1] <= plain_group_curve(steps, 0.02, 2).epsilon(1e-6)


def test_no_noise_is_no_protection():
    assert best(Steps(0.9, 1.0, 0.0, 3), 0.1, 2, 1e-5).curve.epsilon(1e-5) == math.inf
    assert best(Steps(0.9, 0.0, 1.0, 3), 0.1, 2, 1e-5).curve.epsilon(1e-5) == 0.0
