"""Where the truth is known, audits come close to it, and never above the certificate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    UnsupportedError,
    WithoutReplacement,
    account,
)
from lastiterate.audit import audit, audit_scores
from lastiterate.audit.attacks.canaries import replaced
from lastiterate.audit.attacks.thresholds import DirectionScore
from lastiterate.audit.attacks.worst_case import QuadraticDescent
from lastiterate.audit.shadow import LinearCohort
from lastiterate.losses import Logistic

QUADRATIC = Loss(smoothness=1.0, strong_convexity=1.0)


def test_noisy_descent_on_a_quadratic():
    """10,000 models: at least 0.93 of the certified mu."""
    run = Training(
        records=5,
        steps=200,
        step_size=0.1,
        noise=0.35,
        gradient_norm=4.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    train = QuadraticDescent(run, QUADRATIC)
    guarantee = account(run, QUADRATIC)
    result = audit(train, *train.worlds(), models=10_000, method="gdp", random_state=0, cohort=1000)
    assert guarantee.mu is not None
    assert 0.93 * guarantee.mu <= result.mu_lower <= guarantee.mu
    assert not result.contradicts(guarantee)
    # and a certificate that claims a tenth less is refuted
    braver = account(run.scale_noise(1.1), QUADRATIC)
    weaker = account(run.scale_noise(1.25), QUADRATIC)
    assert result.contradicts(weaker)
    assert weaker.mu < braver.mu < guarantee.mu


@pytest.mark.parametrize(
    ("batches", "adjacency"),
    [
        (Cyclic(2), "replace"),
        (Shuffled(2), "replace"),
        (Shuffled(2), "zero-out"),
        (Poisson(0.3), "zero-out"),
    ],
)
def test_hidden_batches_stay_below_their_guarantee(batches, adjacency):
    run = Training(
        records=8,
        steps=16,
        step_size=0.5,
        noise=1.0,
        gradient_norm=6.0,
        batches=batches,
        adjacency=adjacency,
    )
    loss = QUADRATIC if adjacency == "replace" else Loss(smoothness=1.0, regularization=0.5)
    train = QuadraticDescent(run, loss)
    result = audit(
        train,
        *train.worlds(),
        models=20_000,
        delta=1e-2,
        random_state=1,
        cohort=2500,
        confidence=0.999,
    )
    guarantee = account(run, loss)
    assert 0.2 * guarantee.epsilon(1e-2) < result.epsilon_lower <= guarantee.epsilon(1e-2)


@pytest.mark.parametrize(
    "batches", [Shuffled(2), Reshuffled(3), WithoutReplacement(2), Poisson(0.3)]
)
def test_one_hidden_step_is_the_mixture_over_who_was_drawn(batches):
    """(1 - q) N(0, nu^2) + q N(eta s / divisor, nu^2), q the share of a batch."""
    n, eta, nu = 8, 0.5, 0.2
    run = Training(
        records=n,
        steps=1,
        step_size=eta,
        noise=nu,
        gradient_norm=3.0,
        batches=batches,
        adjacency="zero-out",
    )
    train = QuadraticDescent(run, Loss(smoothness=1.0))
    q, shift = batches.share(n), eta * run.sensitivity / batches.divisor(n)

    def law(x):
        return (1 - q) * stats.norm.cdf(x, 0, nu) + q * stats.norm.cdf(x, shift, nu)

    inside, outside = train.worlds()
    assert stats.kstest(train.cohort(inside, range(4000)), law).pvalue > 1e-6
    assert stats.kstest(train.cohort(outside, range(4000)), "norm", (0, nu)).pvalue > 1e-6


def test_linear_cohorts_are_bracketed():
    """Logistic regression, one record turned round: below its certificate, above zero."""
    rng = np.random.default_rng(0)
    n = 20
    X = rng.standard_normal((n, 2)) * [0.5, 0.05]
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    run = Training(
        records=n,
        steps=60,
        step_size=1.0,
        noise=0.06,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    inside = replaced((X, y), 0, [0.0, 1.0], 1.0)
    outside = replaced((X, y), 0, [0.0, 1.0], -1.0)
    train = LinearCohort(Logistic(), run, regularization=0.05)
    found = audit(
        train,
        inside,
        outside,
        models=4000,
        score=DirectionScore(np.array([0.0, 1.0])),
        method="gdp",
        random_state=2,
        cohort=1000,
    )
    guarantee = account(run, Loss(smoothness=0.25, regularization=0.05))
    assert 0.3 * guarantee.mu < found.mu_lower <= guarantee.mu


def test_a_wrong_certificate_is_caught():
    """The trainer forgets four fifths of its noise; the certificate does not know."""
    run = Training(
        records=5,
        steps=50,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    cheat = QuadraticDescent(run.scale_noise(0.2), QUADRATIC)
    result = audit(cheat, *cheat.worlds(), models=4000, random_state=0, cohort=1000)
    assert result.contradicts(account(run, QUADRATIC))


def test_worst_case_refuses_what_it_cannot_attain():
    run = Training(
        records=8,
        steps=4,
        step_size=0.5,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    with pytest.raises(UnsupportedError, match="curvature"):
        QuadraticDescent(run, QUADRATIC)
    with pytest.raises(UnsupportedError, match="unbounded"):
        QuadraticDescent(run.replace(adjacency="replace", diameter=1.0), QUADRATIC)


def test_direction_does_not_matter():
    rng = np.random.default_rng(0)
    a, b = rng.normal(2, 1, 3000), rng.normal(0, 1, 3000)
    up, down = audit_scores(a, b, method="gdp"), audit_scores(-a, -b, method="gdp")
    assert up.mu_lower == pytest.approx(down.mu_lower, abs=0.05)
    assert up.mu_lower > 1.7
    assert up.best.direction == 1
    assert down.best.direction == -1
