"""Audits never claim more than the truth, more often than they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.audit import audit_scores
from lastiterate.audit.attacks.worst_case import QuadraticDescent
from lastiterate.audit.methods import clopper_pearson
from lastiterate.curves import gaussian

AUDITS = 2000
DELTA = 1e-5


def randomised_response(rng: np.random.Generator, epsilon: float, shape) -> tuple:
    keep = 1 / (1 + np.exp(-epsilon))
    return (rng.random(shape) < keep).astype(float), (rng.random(shape) >= keep).astype(float)


def excesses(make, truth, method="clopper-pearson", delta=DELTA, confidence=0.95, **options):
    """How many of the audits claim more than the truth; and the claims."""
    found = []
    for k in range(AUDITS):
        inside, outside = make(np.random.default_rng([17, k]))
        result = audit_scores(
            inside, outside, delta=delta, method=method, confidence=confidence, **options
        )
        found.append(result.mu_lower if method == "gdp" else result.epsilon_lower)
    return int(np.sum(np.array(found) > truth)), np.array(found)


def holds(count: int, error: float) -> bool:
    return binomtest(count, AUDITS, error, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_randomised_response(confidence):
    # delta = 1e-12 stands for pure privacy: the truth is epsilon up to that.
    count, found = excesses(
        lambda rng: randomised_response(rng, 2.0, 400), 2.0, delta=1e-12, confidence=confidence
    )
    assert holds(count, 1 - confidence)
    assert np.median(found) > 1.3


def test_gaussian_mu():
    count, found = excesses(
        lambda rng: (rng.normal(1.5, 1, 300), rng.normal(0, 1, 300)), 1.5, method="gdp"
    )
    assert holds(count, 0.05)
    assert np.median(found) > 0.9


def test_gaussian_epsilon_at_a_large_delta():
    # mu = 1 at delta = 0.1: epsilon is 1.18; the best test is close to the truth there.
    truth = gaussian.epsilon(1.0, 0.1)
    count, found = excesses(
        lambda rng: (rng.normal(1, 1, 500), rng.normal(0, 1, 500)), truth, delta=0.1
    )
    assert holds(count, 0.05)
    assert np.median(found) > 0.3 * truth


def test_noisy_descent_on_quadratics():
    run = Training(
        records=4, steps=12, step_size=0.3, noise=1.0, gradient_norm=4.0, batches=FullBatch()
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    train = QuadraticDescent(run, loss)
    inside, outside = train.worlds()
    # the exact law: both last iterates are Gaussian with the same variance
    c, s = 0.7, 0.3 * 8 / 4
    powers = c ** np.arange(12)
    mu = s * powers.sum() / np.sqrt((powers**2).sum())
    each = 50
    a = train.cohort(inside, range(AUDITS * each))
    b = train.cohort(outside, range(AUDITS * each, 2 * AUDITS * each))
    assert np.mean(a) - np.mean(b) == pytest.approx(s * powers.sum(), rel=0.01)
    assert np.std(a) == pytest.approx(np.sqrt((powers**2).sum()), rel=0.01)
    a, b = a.reshape(AUDITS, each), b.reshape(AUDITS, each)
    found = [audit_scores(x, z, method="gdp").mu_lower for x, z in zip(a, b, strict=True)]
    assert holds(int(np.sum(np.array(found) > mu)), 0.05)
    assert account(run, loss).mu == pytest.approx(mu, rel=1e-9)


def test_the_best_of_many_epochs():
    epochs = 8
    make = lambda rng: randomised_response(rng, 3.0, (312, epochs))  # noqa: E731
    count, _ = excesses(make, 3.0, delta=1e-12)
    assert holds(count, 0.05)


def test_the_harness_sees_an_uncorrected_search():
    """The best of 20 epochs, each at the full error, is wrong in most audits."""
    rng = np.random.default_rng(5)
    keep = 1 / (1 + np.exp(-3.0))
    errors = rng.binomial(250, 1 - keep, (2, AUDITS, 20))
    high = clopper_pearson.rate_above(errors, 250, 0.05)
    best = clopper_pearson.log_ratio(high[0], high[1], 1e-12).max(axis=1)
    wrong = int(np.sum(best > 3.0))
    assert wrong / AUDITS == pytest.approx(0.615, abs=0.04)
    assert not holds(wrong, 0.0975)


def test_many_thresholds_cost_nothing():
    """A score with hundreds of thresholds and no signal at all."""
    count, found = excesses(lambda rng: rng.normal(size=(2, 250)), 0.0, confidence=0.9)
    assert holds(count, 0.1)
    assert np.max(found) < 1.5


def test_searched_divides_the_error():
    rng = np.random.default_rng(0)
    scores = rng.normal(2, 1, 4000), rng.normal(0, 1, 4000)
    alone, among = (audit_scores(*scores, searched=k) for k in (1, 50))
    assert among.epsilon_lower < alone.epsilon_lower
    stricter = audit_scores(*scores, confidence=1 - 0.05 / 50)
    assert among.epsilon_lower == pytest.approx(stricter.epsilon_lower, rel=1e-12)


def test_the_credible_value_undercovers():
    """Why it is no confidence bound: the nominal 5 % quantile is exceeded far more often."""
    from lastiterate.audit.methods.credible import epsilon_credible

    rng = np.random.default_rng(8)
    keep = 1 / (1 + np.exp(-3.0))
    errors = rng.binomial(500, 1 - keep, (400, 2))
    wrong = sum(epsilon_credible(int(x), 500, int(y), 500, 1e-12, 0.05) > 3.0 for x, y in errors)
    assert wrong / 400 == pytest.approx(0.19, abs=0.05)
