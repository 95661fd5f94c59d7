"""What is drawn between computed points is a guarantee too: no line runs below the accountant."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lastiterate import FullBatch, Loss, Shuffled, TailAverage, Training, account, plateau
from lastiterate._internal.formatting import printed, printed_down
from lastiterate.curves import gaussian
from lastiterate.report import epsilon_growth, privacy_curve, tradeoff
from lastiterate.report.figures.growth import stopped

FULL = Training(
    records=5,
    steps=200,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    adjacency="replace",
)
CONVEX = Loss(smoothness=1.0)
# The bounded run of the coupling bound, computed at two numbers of steps only.
COUPLED = Training(
    records=100,
    steps=300,
    step_size=0.5,
    noise=0.05,
    gradient_norm=3.0,
    batches=FullBatch(),
    diameter=0.1,
    adjacency="replace",
)
REGULARISED = Loss(smoothness=1.0, regularization=0.1)
RUNS = {
    "coupled": (COUPLED, CONVEX),
    "coupled at two points": (
        COUPLED.replace(steps=2000, noise=0.3, gradient_norm=1.0),
        CONVEX,
    ),
    "strongly convex": (FULL, Loss(smoothness=1.0, strong_convexity=1.0)),
    "convex": (FULL, CONVEX),
    "average": (FULL.replace(release=TailAverage(20)), REGULARISED),
    "shuffled": (FULL.replace(records=60, steps=30, batches=Shuffled(10)), REGULARISED),
    "schedule": (FULL.replace(noise=np.linspace(1, 3, 200)), REGULARISED),
}


def height(trace, x):
    """What is drawn there, by the definition of the shapes; None for nothing."""
    xs, ys = np.asarray(trace.x, float), np.asarray(trace.y, float)
    hit = np.flatnonzero(xs == x)
    if len(hit):
        return ys[hit[0]]
    if trace.shape == "points" or not xs[0] < x < xs[-1]:
        return None
    k = int(np.searchsorted(xs, x))
    if trace.shape == "steps-pre":  # up or down first, then along
        return ys[k]
    if trace.shape == "steps-post":
        return ys[k - 1]
    return ys[k - 1] + (ys[k] - ys[k - 1]) * (x - xs[k - 1]) / (xs[k] - xs[k - 1])


@pytest.mark.parametrize("name", RUNS)
def test_no_line_of_growth_runs_below_what_account_says_there(name):
    training, loss = RUNS[name]
    figure = epsilon_growth(training, loss, 1e-5, points=6)
    bounds = [t for t in figure.series if t.role == "bound"]
    assert bounds
    drawn = 0
    for steps in np.unique(np.geomspace(20, training.steps, 7).astype(int)):
        truth = account(stopped(training, int(steps)), loss)
        for trace in bounds:
            y = height(trace, steps)
            if y is not None:
                drawn += 1
                assert y >= truth.epsilon(1e-5) * (1 - 1e-9), (trace.name, steps)
        for trace in figure.series:
            if trace.lower and (y := height(trace, steps)) is not None:
                assert y <= truth.lower(1e-5) * (1 + 1e-9)
    assert drawn


def test_where_steps_differ_nothing_is_drawn_between_the_marks():
    training, loss = RUNS["schedule"]
    figure = epsilon_growth(training, loss, 1e-5, points=6)
    assert all(t.shape == "points" for t in figure.series if t.role == "bound")


@pytest.mark.parametrize("name", ["coupled", "strongly convex", "shuffled"])
def test_every_pair_on_the_privacy_curve_holds(name):
    training, loss = RUNS[name]
    guarantee = account(training, loss)
    trace = privacy_curve(guarantee).series[0]
    assert trace.shape == "steps-pre"
    pairs = list(zip(trace.x, trace.y, strict=True))
    for (epsilon, delta), (_, later) in list(itertools.pairwise(pairs))[::5]:
        between = math.sqrt(delta * later)
        assert guarantee.epsilon(between) <= epsilon * (1 + 1e-12)


def test_the_line_of_the_best_attack_is_below_the_exact_trade_off():
    guarantee = account(*RUNS["convex"])
    trace = tradeoff(guarantee).series[0]
    assert guarantee.mu is not None
    for x in np.linspace(0.001, 0.999, 200):
        assert height(trace, x) <= gaussian.tradeoff(guarantee.mu, x) + 1e-12


def test_the_legend_never_promises_more_than_was_computed():
    for training, loss in (RUNS["convex"], RUNS["shuffled"]):
        for trace in epsilon_growth(training, loss, 1e-5, points=12).series:
            if trace.value:
                rounded = printed_down if trace.lower else printed
                assert trace.value == rounded(trace.y[-1])


def test_without_noise_there_is_no_plateau():
    silent = FULL.replace(noise=0.0)
    assert plateau(silent, Loss(smoothness=1.0, strong_convexity=1.0), 1e-5) is None
    figure = epsilon_growth(silent, Loss(smoothness=1.0, strong_convexity=1.0))
    assert "stop" not in figure.title
