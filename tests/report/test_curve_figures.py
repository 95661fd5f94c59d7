"""Curves, comparisons, audits, accuracy and the hump: the traces are the library's numbers."""

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
from lastiterate.audit.result import AuditResult, Look
from lastiterate.curves import gaussian
from lastiterate.sampling import interim_privacy, posterior_privacy

pytest.importorskip("plotly")

from lastiterate.report import (
    AuditDisplay,
    ComparisonDisplay,
    accuracy_against_epsilon,
    audit_bracket,
    interim_hump,
    privacy_curve,
    tradeoff,
)
from lastiterate.report.figures.curves import tradeoff_of_pairs

LOSS = Loss(smoothness=1.0, strong_convexity=1.0)
FULL = Training(
    records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0, batches=FullBatch()
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
    figure = guarantee.plot()
    line, mark = figure.data
    for epsilon, delta in zip(line.x, line.y, strict=True):
        assert epsilon == guarantee.epsilon(float(delta))
    assert all(a >= b for a, b in pairwise(line.x))  # deltas rise
    assert (mark.x[0], mark.y[0]) == (guarantee.epsilon(1e-5), 1e-5)
    assert figure.layout.yaxis.type == "log"
    assert privacy_curve(guarantee).layout.title.text == figure.layout.title.text


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
    line = tradeoff(guarantee).data[0]
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
    figure = comparison.plot()
    bars = {
        name: value
        for trace in figure.data
        if trace.type == "bar"
        for name, value in zip(trace.y, trace.x, strict=True)
    }
    for row in comparison:
        assert bars[row.theorem.name] == row.epsilon
    (other,) = comparison.other_algorithms
    assert bars[f"{other.theorem.name} *"] == other.epsilon
    (line,) = [trace for trace in figure.data if trace.type == "scatter"]
    assert line.x[0] == account(training, REGULARISED).lower(1e-5)
    assert line.x[0] <= min(row.epsilon for row in comparison)
    display = ComparisonDisplay.from_run(training, REGULARISED, delta=1e-6)
    assert display.comparison.delta == 1e-6
    assert display.plot().figure_ is display.figure_
    assert "1e-06" in display.figure_.layout.xaxis.title.text


LOOKS = tuple(
    Look(e, e, 0.0, 1, 3, 50, 4, 50, (0.0, 0.1 * (k + 1)), (0.0, 0.1))
    for k, e in enumerate((0.3, 1.1, 0.7))
)


def test_audit_bracket_holds_both_ends():
    result = AuditResult("clopper-pearson", 1e-5, 0.95, LOOKS, 400)
    guarantee = account(FULL, LOSS)
    figure = audit_bracket(result, guarantee)
    (bars,) = [trace for trace in figure.data if trace.type == "bar"]
    assert list(bars.y) == [0.3, 1.1, 0.7]
    (upper,) = [t for t in figure.data if t.name == "guaranteed: at most this"]
    assert set(upper.y) == {guarantee.epsilon(1e-5)}
    assert "between 1.1 (audited) and 1.336 (guaranteed)" in figure.layout.title.text
    elsewhere = audit_bracket(result, guarantee, delta=1e-3)
    (bars,) = [trace for trace in elsewhere.data if trace.type == "bar"]
    assert max(bars.y) == result.epsilon_at(1e-3)
    (upper,) = [t for t in elsewhere.data if t.name == "guaranteed: at most this"]
    assert upper.y[0] == guarantee.epsilon(1e-3)


def test_audit_bracket_says_when_a_claim_is_refuted():
    result = AuditResult("clopper-pearson", 1e-5, 0.95, LOOKS, 400)
    quiet = account(FULL.replace(noise=10.0), LOSS)
    assert result.contradicts(quiet)
    assert "contradicts" in audit_bracket(result, quiet).layout.title.text
    alone = AuditDisplay.from_result(result).figure_
    assert "below epsilon = 1.1" in alone.layout.title.text
    assert not [t for t in alone.data if t.name == "guaranteed: at most this"]


def test_audit_bracket_reads_certificates_at_or_below_the_delta():
    certificate = certify(FULL, LOSS, 1e-6)
    result = AuditResult("clopper-pearson", 1e-5, 0.95, LOOKS, 400)
    figure = AuditDisplay.from_result(result, certificate).figure_
    (upper,) = [t for t in figure.data if t.name == "guaranteed: at most this"]
    claimed = [(certificate.delta, certificate.epsilon), *certificate.curve]
    assert upper.y[0] == min(e for d, e in claimed if d <= 1e-5)
    assert upper.y[0] >= account(FULL, LOSS).epsilon(1e-5)
    with pytest.raises(UnsupportedError, match="claims nothing"):
        audit_bracket(result, certificate, delta=1e-300)
    with pytest.raises(DescriptionError, match="delta"):
        audit_bracket(result, certificate, delta=0.0)


def test_accuracy_means_and_ranges():
    rows = [
        {"model": "a", "epsilon": e, "accuracy": v}
        for e, v in ((1.0, 0.7), (1.0, 0.9), (0.1, 0.6), (math.inf, 0.95))
    ]
    rows.append({"model": "b", "epsilon": 1.0, "accuracy": 0.5})
    figure = accuracy_against_epsilon(iter(rows))
    line, level, other = figure.data
    assert list(line.x) == [0.1, 1.0]
    assert list(line.y) == pytest.approx([0.6, 0.8])
    assert list(line.error_y.array) == pytest.approx([0.0, 0.1])
    assert list(line.error_y.arrayminus) == pytest.approx([0.0, 0.1])
    assert set(level.y) == {0.95}
    assert (other.name, list(other.y)) == ("b", [0.5])
    assert figure.layout.title.text == "At epsilon = 1 the best accuracy (a) is 80.0 %"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"epsilon": 1.0}],
        [{"epsilon": 0.0, "accuracy": 0.5}],
        [{"epsilon": 1.0, "accuracy": 55}],
        [{"epsilon": math.nan, "accuracy": 0.5}],
    ],
)
def test_accuracy_refuses_what_is_no_point(rows):
    with pytest.raises(DescriptionError, match="rows"):
        accuracy_against_epsilon(rows)


def test_the_hump_is_the_interim_privacy():
    interim = interim_privacy(1000, 2.0, 1.0, 1.8, 3000.0, 12, 1e-3)
    posterior = posterior_privacy(1000, 2.0, 1.0, 0.9, 1.8, 3.0, 0.1)
    figure = interim.plot(posterior)
    exact, chernoff, level = figure.data
    shown = interim.exact > 0
    assert np.array_equal(np.asarray(exact.y)[shown], interim.exact[shown])
    assert np.all(np.isnan(np.asarray(chernoff.y)[interim.chernoff <= 0]))
    assert level.y[0] == posterior.epsilon(1e-3)
    assert str(interim.peak) in figure.layout.title.text
    assert len(interim_hump(interim).data) == 2


@pytest.mark.parametrize("changes", [{"noise": 0.0}, {"steps": 0}, {"noise": 1e-9}, {"noise": 1e9}])
def test_extreme_runs_are_drawn_too(changes):
    training = FULL.replace(**changes)
    guarantee = account(training, LOSS)
    (bars, *_) = (*compare(training, LOSS).plot().data, None)
    assert bars is None or all(0 < value < math.inf for value in bars.x)
    assert guarantee.plot().data[1].x[0] == guarantee.epsilon(1e-5)
    least = np.asarray(tradeoff(guarantee).data[0].y)
    assert least[-1] == 0
    if guarantee.epsilon(1e-5) == 0:
        assert least[0] == pytest.approx(1.0)
    if guarantee.epsilon(1e-5) == math.inf:
        assert np.all(least == 0)
