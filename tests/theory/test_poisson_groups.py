"""Several records of one person in Poisson batches, against enumerated mixtures."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
from placed_records import mixture_deltas
from scipy.stats import binom

from lastiterate import (
    Arithmetic,
    Certificate,
    CertificateError,
    Loss,
    Poisson,
    PrivacyUnit,
    Training,
    account,
    certify,
    compare,
    verify,
)
from lastiterate.curves.group_pair import GroupPair
from lastiterate.curves.pairs import SampledPair
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.poisson_paths import best as best_of_one
from lastiterate.theory.poisson_paths import (
    best_of_several,
    follow,
    group_curve,
    plain_group_curve,
)
from lastiterate.verifier.document import canonical, fingerprint
from lastiterate.verifier.witness import pack, unpack


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
        best_of_several(steps, rate, records, 1e-5).curve,
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
    found = [best_of_several(steps, 0.02, k, 1e-6).curve.epsilon(1e-6) for k in (1, 2)]
    assert found == sorted(found)
    assert found[0] <= best_of_one(steps, 0.02, 1e-6).curve.epsilon(1e-6) * 1.01
    assert found[1] <= plain_group_curve(steps, 0.02, 2).epsilon(1e-6)


def test_no_noise_is_no_protection():
    assert best_of_several(Steps(0.9, 1.0, 0.0, 3), 0.1, 2, 1e-5).curve.epsilon(1e-5) == math.inf
    assert best_of_several(Steps(0.9, 0.0, 1.0, 3), 0.1, 2, 1e-5).curve.epsilon(1e-5) == 0.0


def described(seed):
    """A random run, a person, and what each of the person's records adds at every step."""
    random = np.random.default_rng(seed)
    count, records = int(random.integers(1, 5)), int(random.integers(1, 4))
    changing = random.random() < 0.4
    run = Training(
        records=int(random.integers(3, 9)),
        steps=count,
        step_size=random.uniform(0.1, 1.5, count) if changing else random.uniform(0.1, 1.5),
        noise=random.uniform(0.3, 2.0, count) if changing else random.uniform(0.3, 2.0),
        gradient_norm=random.uniform(0.3, 2.0),
        batches=Poisson(random.choice([random.uniform(0.02, 0.9), 1.0], p=[0.9, 0.1])),
        adjacency="zero-out",
    )
    timed = random.random() < 0.3
    joined = int(random.integers(count + 1)) if timed else 0
    left = int(random.integers(joined, count + 1)) if timed else None
    norm = run.gradient_norm * random.uniform() if random.random() < 0.3 else None
    person = PrivacyUnit(records, None, joined, left, norm)
    largest = float(run.step_sizes.max())
    l2 = random.choice([0.0, random.uniform(0, 0.9)]) / largest
    loss = Loss(smoothness=random.uniform(0, 0.1) / largest, regularization=l2)
    each = run.step_sizes * (run.gradient_norm if norm is None else norm)
    each = each / (run.batches.rate * run.records)
    there = np.arange(count)
    late = count if left is None else left
    each = np.where((joined <= there) & (there < late), each, 0.0)
    return run, loss, person, each


def true_deltas(run, loss, person, each, epsilon):
    """Losses without curvature: only the L2 term contracts, whoever is in the batch."""
    factors = 1 - run.step_sizes * loss.regularization
    return exact_deltas(factors, each, run.noises, run.batches.rate, person.records, epsilon)


def check_described(seed):
    run, loss, person, each = described(seed)
    table = compare(run, loss, 1e-5, unit=person)
    assert {row.theorem.key for row in table} <= {"poisson-composition", "poisson-deferral"}
    assert table.rows
    for epsilon in (0.0, 0.7, 2.0):
        truth = max(true_deltas(run, loss, person, each, epsilon))
        for row in table:
            assert row.bound.curve.delta(epsilon) >= truth * (1 - 1e-7) - 1e-13, (run, person)


@pytest.mark.parametrize("seed", range(6))
def test_described_runs_are_never_below_enumerated_mixtures(seed):
    check_described(seed)


@pytest.mark.slow
def test_hundreds_of_described_runs():
    for seed in range(1000, 1500):
        check_described(seed)


@pytest.mark.filterwarnings("ignore:delta")
@pytest.mark.parametrize("seed", range(8))
def test_what_is_sealed_is_never_below_enumerated_mixtures(seed):
    run, loss, person, each = described(seed)
    if not each.any():
        return
    sealed = certify(run, loss, 1e-3, unit=person)
    for delta, epsilon in ((sealed.delta, sealed.epsilon), *sealed.curve):
        assert max(true_deltas(run, loss, person, each, epsilon)) <= delta * (1 + 1e-9)


def test_described_groups():
    run = Training(
        records=10_000,
        steps=300,
        step_size=0.1,
        noise=0.02,
        gradient_norm=5.0,
        batches=Poisson(0.01),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=1.0, regularization=0.1)
    found = [account(run, loss, unit=PrivacyUnit(k)).epsilon(1e-6) for k in (1, 2, 4)]
    assert found == sorted(found)
    assert found[2] > 3.5 * found[0]
    rounded = run.replace(arithmetic=Arithmetic(2.0**-14, 1e-6, 4))
    assert account(rounded, loss, unit=PrivacyUnit(2)).epsilon(1e-6) > found[1]
    reasons = [row.reason for row in compare(run, loss, unit=PrivacyUnit(31)).inapplicable]
    assert any("at most 30 records" in reason for reason in reasons)


def test_long_runs_begin_where_all_records_have_led():
    """Steps that are forgotten are skipped: the path begins at k s/(1 - c), and no closer."""
    factor, records, rate = 0.3, 2, 0.2
    curve = best_of_several(Steps(factor, 1.0, 1.0, 60), rate, records, 1e-4).curve
    last = np.full(8, factor)  # what comes before is 7e-5 of what follows
    for epsilon in (0.1, 1.0, 2.0):
        truth = max(exact_deltas(last, np.ones(8), np.ones(8), rate, records, epsilon))
        assert truth * (1 - 1e-3) <= curve.delta(epsilon) <= 3 * truth
    run = Training(
        records=100,
        steps=60,
        step_size=0.7,
        noise=0.1,
        gradient_norm=1.0,
        batches=Poisson(rate),
        adjacency="zero-out",
    )
    sealed = certify(run, Loss(smoothness=0.0, regularization=1.0), 1e-4, unit=PrivacyUnit(2))
    (segment,) = unpack(sealed.content["witness"])["segments"]
    left = segment["z"].tolist()
    assert 1 < len(left) < 60
    assert left[0] >= records * 0.7 / 20 / 0.7 * (1 - 1e-9)
    lie = copy.deepcopy(dict(sealed.content))
    lie["witness"]["segments"][0]["z"] = pack([0.6 * left[0], *left[1:]])
    lie["sha256"] = fingerprint(lie)
    with pytest.raises(CertificateError, match="starts below"):
        verify(Certificate.from_json(canonical(lie)))


def test_a_million_million_steps_are_as_small_as_one():
    curve = best_of_several(Steps(0.5, 0.3, 1.0, 10**12), 0.01, 3, 1e-6).curve
    assert 0.1 < curve.epsilon(1e-6) < 3
