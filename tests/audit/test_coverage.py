"""Audits never claim more than the truth, more often than they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom, binomtest

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.audit import audit_scores
from lastiterate.audit.attacks.worst_case import QuadraticDescent
from lastiterate.audit.methods import clopper_pearson
from lastiterate.audit.one_run import judge
from lastiterate.curves import gaussian

AUDITS = 2000


def holds(count: int, error: float) -> bool:
    return binomtest(count, AUDITS, error, alternative="greater").pvalue > 1e-3


# --- mechanisms whose privacy is known exactly: scores of both worlds ----------------------------


def gaussian_scores(rng, shape):
    return rng.normal(1.5, 1, shape), rng.normal(0, 1, shape)


def randomised_response(rng, shape, epsilon=2.0):
    keep = 1 / (1 + np.exp(-epsilon))
    return (rng.random(shape) < keep).astype(float), (rng.random(shape) >= keep).astype(float)


RUN = Training(
    records=4,
    steps=12,
    step_size=0.3,
    noise=1.0,
    gradient_norm=4.0,
    batches=FullBatch(),
    adjacency="replace",
)
QUADRATIC = Loss(smoothness=1.0, strong_convexity=1.0)
POWERS = 0.7 ** np.arange(12)
SHIFT, SPREAD = 0.3 * 8 / 4 * POWERS.sum(), np.sqrt((POWERS**2).sum())


def noisy_descent_scores(rng, shape):
    train, count = QuadraticDescent(RUN, QUADRATIC), int(np.prod(shape))
    seeds = rng.integers(2**60, size=(2, count))
    worlds = zip(train.worlds(), seeds, strict=True)
    return tuple(train.cohort(world, s.tolist()).reshape(shape) for world, s in worlds)


def test_the_exact_law_of_the_quadratics():
    a, b = noisy_descent_scores(np.random.default_rng(0), 50_000)
    assert np.mean(a) - np.mean(b) == pytest.approx(SHIFT, rel=0.01)
    assert np.std(a) == pytest.approx(SPREAD, rel=0.01)
    assert account(RUN, QUADRATIC).mu == pytest.approx(SHIFT / SPREAD, rel=1e-9)


# Each: scores, delta, the true epsilon at it (a large delta, where the best test is near it; a
# tiny one stands for pure privacy), the true mu, models per world.
MECHANISMS = {
    "Gaussian": (gaussian_scores, 0.1, gaussian.epsilon(1.5, 0.1), 1.5, 300),
    # its smallest mu is that of the two rates, 1/(1 + e^2) each
    "randomised response": (
        randomised_response,
        1e-12,
        2.0,
        -2 * float(ndtri(1 / (1 + np.exp(2.0)))),
        300,
    ),
    "noisy descent": (
        noisy_descent_scores,
        0.1,
        gaussian.epsilon(SHIFT / SPREAD, 0.1),
        SHIFT / SPREAD,
        60,
    ),
}
DEFAULT = {
    ("randomised response", "clopper-pearson"),
    ("Gaussian", "gdp"),  # which is the law of noisy descent's scores, see above
}
PAIRS = [
    pytest.param(m, k, marks=() if (m, k) in DEFAULT else pytest.mark.slow)
    for m in MECHANISMS
    for k in ("clopper-pearson", "gdp")
]


@pytest.mark.parametrize(("mechanism", "method"), PAIRS)
@pytest.mark.parametrize("confidence", [0.95, pytest.param(0.8, marks=pytest.mark.slow)])
def test_two_worlds(mechanism, method, confidence):
    """2,000 audits, thresholds chosen from the data: no more often above the truth than said."""
    make, delta, epsilon, mu, models = MECHANISMS[mechanism]
    inside, outside = make(np.random.default_rng(17), (AUDITS, models))
    found = [
        audit_scores(i, o, delta=delta, method=method, confidence=confidence)
        for i, o in zip(inside, outside, strict=True)
    ]
    if method == "gdp":
        claims, truth = np.array([f.mu_lower for f in found]), mu
    else:
        claims, truth = np.array([f.epsilon_lower for f in found]), epsilon
    assert holds(int(np.sum(claims > truth)), 1 - confidence)
    assert np.median(claims) > 0.1 * truth  # and they say something


CANARIES = 200


@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(m, marks=() if m == "randomised response" else pytest.mark.slow)
        for m in MECHANISMS
    ],
)
def test_one_run(mechanism):
    """Every canary passes its own copy of the mechanism; a search over guesses is paid for."""
    make, delta, _, mu, _ = MECHANISMS[mechanism]
    delta = min(delta, 1e-3)  # all canaries pay for delta
    truth = 2.0 if mechanism == "randomised response" else gaussian.epsilon(mu, delta)
    rng = np.random.default_rng(23)
    included = rng.random((AUDITS, CANARIES)) < 0.5
    scores = np.where(included, *make(rng, (AUDITS, CANARIES))) + 1e-9 * rng.random(included.shape)
    claims = np.array(
        [judge(s, i, delta, 0.95, 1).epsilon_lower for s, i in zip(scores, included, strict=True)]
    )
    assert holds(int(np.sum(claims > truth)), 0.05)
    # guesses are exact for randomised response; Gaussian traces say less than they could
    assert np.median(claims) > (0.4 if mechanism == "randomised response" else 0.1) * truth


@pytest.mark.parametrize("method", ["clopper-pearson", pytest.param("gdp", marks=pytest.mark.slow)])
def test_the_best_of_many_epochs(method):
    epochs, models = 8, 312
    inside, outside = randomised_response(
        np.random.default_rng(3), (AUDITS, models, epochs), epsilon=3.0
    )
    truth = 3.0 if method == "clopper-pearson" else -2 * float(ndtri(1 / (1 + np.exp(3.0))))
    found = [
        audit_scores(i, o, delta=1e-12, method=method) for i, o in zip(inside, outside, strict=True)
    ]
    claims = [f.mu_lower if method == "gdp" else f.epsilon_lower for f in found]
    assert holds(int(np.sum(np.array(claims) > truth)), 0.05)


def test_the_harness_sees_an_uncorrected_search_over_guesses():
    """One run: the best of many numbers of guesses, each at the full error, is wrong too often."""
    rng = np.random.default_rng(7)
    keep = 1 / (1 + np.exp(-2.0))
    right = np.cumsum(rng.random((AUDITS, CANARIES)) < keep, axis=1)  # ordered by confidence
    wrong = np.zeros(AUDITS, bool)
    for r in range(10, CANARIES + 1, 5):
        least = next(v for v in range(r + 2) if binom.sf(v - 1, r, keep) <= 0.05)
        wrong |= right[:, r - 1] >= least
    assert not holds(int(wrong.sum()), 0.05)


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


@pytest.mark.parametrize("method", ["clopper-pearson", pytest.param("gdp", marks=pytest.mark.slow)])
def test_many_thresholds_cost_nothing(method):
    """A score with hundreds of thresholds and no signal at all."""
    scores = np.random.default_rng(9).normal(size=(AUDITS, 2, 250))
    found = [audit_scores(*pair, method=method, confidence=0.9) for pair in scores]
    claims = np.array([f.mu_lower if method == "gdp" else f.epsilon_lower for f in found])
    assert holds(int(np.sum(claims > 0)), 0.1)


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
