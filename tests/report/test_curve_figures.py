"""Curves, comparisons and audits: the series are the library's numbers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from lastiterate import (
    DescriptionError,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    UnsupportedError,
    account,
    certify,
    compare,
)
from lastiterate._internal.formatting import printed
from lastiterate.audit.result import AuditResult, Look
from lastiterate.curves import gaussian
from lastiterate.report import audit_bracket, comparison_bars, privacy_curve, tradeoff
from lastiterate.report.figures.curve import tradeoff_of_pairs

LOSS = Loss(smoothness=1.0, strong_convexity=1.0)
FULL = Training(
    records=5,
    steps=200,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    adjacency="replace",
)
SMALL = FULL.replace(records=60, noise=0.05, steps=12)
REGULARISED = Loss(smoothness=1.0, regularization=0.1)
GUARANTEES = {
    "gaussian": (FULL, LOSS),
    "mixture": (SMALL.replace(batches=Shuffled(10)), REGULARISED),
    "searched": (SMALL.replace(batches=Reshuffled(10)), REGULARISED),
    "coupling": (FULL.replace(diameter=1.0), Loss(smoothness=1.0)),
    "convolved": (SMALL.replace(batches=Poisson(0.1), adjacency="zero-out"), REGULARISED),
}


@pytest.mark.parametrize("name", GUARANTEES)
def test_privacy_curve_is_the_guarantee(name):
    guarantee = account(*GUARANTEES[name])
    figure = privacy_curve(guarantee)
    line, mark = figure.series
    for epsilon, delta in zip(line.x, line.y, strict=True):
        assert epsilon == guarantee.epsilon(float(delta))
    assert all(a >= b for a, b in pairwise(line.x))  # deltas rise
    assert (mark.x[0], mark.y[0]) == (guarantee.epsilon(1e-5), 1e-5)
    assert line.shape == "steps-pre"
    assert figure.log == "y"


@given(mu=st.floats(0.01, 6.0), rate=st.floats(0.0, 1.0))
def test_pairs_never_promise_more_than_the_gaussian_they_come_from(mu, rate):
    pairs = [(e, gaussian.delta(mu, e)) for e in np.linspace(0, gaussian.epsilon(mu, 1e-6), 46)]
    rates = np.array([rate])
    exact = ndtr(-ndtri(rate) - mu)
    found = tradeoff_of_pairs(pairs, rates)[0]
    assert found <= exact + 1e-12
    assert found >= exact - 0.005


@pytest.mark.parametrize("name", GUARANTEES)
def test_tradeoff_obeys_every_pair_the_guarantee_proves(name):
    guarantee = account(*GUARANTEES[name])
    line = tradeoff(guarantee).series[0]
    rates, least = np.asarray(line.x), np.asarray(line.y)
    assert np.all(least <= 1 - rates)
    assert np.all(np.diff(least) <= 1e-12)
    assert np.all(np.diff(np.diff(least) / np.diff(rates)) >= -1e-6)  # convex
    for epsilon in (0.0, 0.3):  # the line may not lie above the exact profile: max = delta
        profile = float(np.max(1 - least - math.exp(epsilon) * rates))
        assert profile >= guarantee.delta(epsilon) - 2e-3
    if name in ("gaussian", "mixture"):
        finer = [(e, guarantee.delta(e)) for e in np.linspace(0, guarantee.epsilon(1e-9), 300)]
        assert np.all(least <= tradeoff_of_pairs(finer, rates) + 3e-4)


def test_comparison_bars_are_the_comparison():
    training = SMALL.replace(batches=Shuffled(10))
    comparison = compare(training, REGULARISED)
    own, others, reference = comparison_bars(comparison).series
    for series, rows in ((own, comparison.rows), (others, comparison.other_algorithms)):
        assert list(series.x) == [row.epsilon for row in rows]
        assert list(series.texts) == [printed(row.epsilon) for row in rows]
    assert list(own.y) == [row.theorem.name for row in comparison]
    assert others.role == "other"  # drawn hollow: no claim about this run
    assert reference.lower
    assert reference.x[0] == account(training, REGULARISED).lower(1e-5)
    assert reference.x[0] <= min(row.epsilon for row in comparison)
    assert "1e-06" in comparison_bars(compare(training, REGULARISED, delta=1e-6)).x_label


LOOKS = tuple(
    Look(e, e, 0.0, 1, 3, 50, 4, 50, (0.0, 0.1 * (k + 1)), (0.0, 0.1))
    for k, e in enumerate((0.3, 1.1, 0.7))
)


def test_audit_bracket_holds_both_ends():
    result = AuditResult("clopper-pearson", 1e-5, 0.95, LOOKS, 400)
    guarantee = account(FULL, LOSS)
    figure = audit_bracket(result, guarantee)
    bars = figure.series[0]
    assert list(bars.y) == [0.3, 1.1, 0.7]
    (upper,) = [t for t in figure.series if t.name == "guaranteed: at most this"]
    assert set(upper.y) == {guarantee.epsilon(1e-5)}
    assert "between 1.1 (audited) and 1.336 (guaranteed)" in figure.title
    elsewhere = audit_bracket(result, guarantee, delta=1e-3)
    bars = elsewhere.series[0]
    assert max(bars.y) == result.epsilon_at(1e-3)
    (upper,) = [t for t in elsewhere.series if t.name == "guaranteed: at most this"]
    assert upper.y[0] == guarantee.epsilon(1e-3)


def test_audit_bracket_says_when_a_claim_is_refuted():
    result = AuditResult("clopper-pearson", 1e-5, 0.95, LOOKS, 400)
    quiet = account(FULL.replace(noise=10.0), LOSS)
    assert result.contradicts(quiet)
    assert "contradicts" in audit_bracket(result, quiet).title
    alone = audit_bracket(result)
    assert "below epsilon = 1.1" in alone.title
    assert not [t for t in alone.series if t.name == "guaranteed: at most this"]


def test_audit_bracket_reads_certificates_at_or_below_the_delta():
    certificate = certify(FULL, LOSS, 1e-6)
    result = AuditResult("clopper-pearson", 1e-5, 0.95, LOOKS, 400)
    figure = audit_bracket(result, certificate)
    (upper,) = [t for t in figure.series if t.name == "guaranteed: at most this"]
    claimed = [(certificate.delta, certificate.epsilon), *certificate.curve]
    assert upper.y[0] == min(e for d, e in claimed if d <= 1e-5)
    assert upper.y[0] >= account(FULL, LOSS).epsilon(1e-5)
    with pytest.raises(UnsupportedError, match="claims nothing"):
        audit_bracket(result, certificate, delta=1e-300)
    with pytest.raises(DescriptionError, match="delta"):
        audit_bracket(result, certificate, delta=0.0)


@pytest.mark.parametrize("changes", [{"noise": 0.0}, {"steps": 0}, {"noise": 1e-9}, {"noise": 1e9}])
def test_extreme_runs_are_drawn_too(changes):
    training = FULL.replace(**changes)
    guarantee = account(training, LOSS)
    bars = comparison_bars(compare(training, LOSS))
    assert all(0 < value < math.inf for series in bars.series for value in series.x)
    curve = privacy_curve(guarantee)
    assert curve.series[1].x[0] == guarantee.epsilon(1e-5)
    for figure in (bars, curve, tradeoff(guarantee)):
        figure.plot()
    least = np.asarray(tradeoff(guarantee).series[0].y)
    assert least[-1] == 0
    if guarantee.epsilon(1e-5) == 0:
        assert least[0] == pytest.approx(1.0)
    if guarantee.epsilon(1e-5) == math.inf:
        assert np.all(least == 0)
