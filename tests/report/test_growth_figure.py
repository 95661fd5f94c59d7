"""The lines of `epsilon_growth` are the library's numbers, never smaller."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import (
    Cyclic,
    DescriptionError,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
    account,
    compare,
    plateau,
)
from lastiterate.report import epsilon_growth
from lastiterate.report.figures.growth import stopped

STRONGLY_CONVEX = Loss(smoothness=1.0, strong_convexity=1.0)
REGULARISED = Loss(smoothness=1.0, regularization=0.1)
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
SHRINKING = FULL.replace(step_size=0.1 / np.sqrt(np.arange(1, 201)))

RUNS = {
    "full": (FULL, STRONGLY_CONVEX),
    "full, convex": (FULL, Loss(smoothness=1.0)),
    "full, unknown": (FULL, Loss.unknown()),
    "full, bounded": (FULL.replace(diameter=1.0), Loss(smoothness=1.0)),
    "full, non-convex, bounded": (FULL.replace(diameter=1.0), Loss.nonconvex(smoothness=1.0)),
    "full, Hoelder": (FULL.replace(diameter=1.0, steps=40), Loss.holder(constant=1, exponent=0.5)),
    "schedule": (SHRINKING, STRONGLY_CONVEX),
    "burst": (FULL.replace(final_noise=4.0), STRONGLY_CONVEX),
    "average": (FULL.replace(release=TailAverage(20)), STRONGLY_CONVEX),
    "momentum": (FULL.replace(momentum=0.9), STRONGLY_CONVEX),
    "cyclic": (SMALL.replace(batches=Cyclic(10)), REGULARISED),
    "shuffled": (SMALL.replace(batches=Shuffled(10)), REGULARISED),
    "equalised": (SMALL.replace(batches=Shuffled(10), schedule="equalised"), REGULARISED),
    "part of an epoch": (SMALL.replace(batches=Shuffled(1)), REGULARISED),
    "reshuffled": (SMALL.replace(batches=Reshuffled(10)), REGULARISED),
    "poisson": (SMALL.replace(batches=Poisson(0.1), adjacency="zero-out"), REGULARISED),
    "without replacement": (SMALL.replace(batches=WithoutReplacement(6)), REGULARISED),
}


def lines(figure):
    """The bounds: everything but the plateau and the shaded reference."""
    return {trace.name: trace for trace in figure.series if trace.role == "bound"}


def reference(figure):
    return next((t for t in figure.series if t.name == "some loss really suffers this"), None)


@pytest.mark.parametrize("name", RUNS)
def test_every_line_ends_at_the_run_itself(name):
    training, loss = RUNS[name]
    figure = epsilon_growth(training, loss, 1e-5, points=12)
    drawn = lines(figure)
    guarantee = account(training, loss)
    best = drawn[guarantee.best_at(1e-5).theorem.name]
    assert (best.x[-1], best.y[-1]) == (training.steps, guarantee.epsilon(1e-5))
    compared = {row.theorem.name: row.epsilon for row in compare(training, loss)}
    assert set(drawn) == set(compared)
    for bound, epsilon in compared.items():
        assert drawn[bound].x[-1] == training.steps
        assert drawn[bound].y[-1] == epsilon, bound


@pytest.mark.parametrize(
    "name",
    ["full", "schedule", "burst", "average", "cyclic", "shuffled", "equalised", "full, bounded"],
)
def test_every_point_is_the_guarantee_of_the_run_stopped_there(name):
    training, loss = RUNS[name]
    figure = epsilon_growth(training, loss, 1e-5, points=9)
    drawn = lines(figure)
    for steps in set.intersection(*(set(trace.x) for trace in drawn.values())):
        least = min(trace.y[list(trace.x).index(steps)] for trace in drawn.values())
        exact = account(stopped(training, int(steps)), loss).epsilon(1e-5)
        assert least == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize(
    "name",
    [
        "full",
        "full, convex",
        "full, bounded",
        "schedule",
    ],
)
def test_the_shaded_reference_is_below_every_bound(name):
    training, loss = RUNS[name]
    figure = epsilon_growth(training, loss, 1e-5, points=12)
    shaded = reference(figure)
    assert shaded is not None
    assert shaded.y[-1] > 0
    for steps, lower in zip(shaded.x, shaded.y, strict=True):
        assert lower == account(stopped(training, int(steps)), loss).lower(1e-5)
        for trace in lines(figure).values():
            if steps in trace.x:
                assert lower <= trace.y[list(trace.x).index(steps)]


def on_screen(trace, steps):
    """The height of what is drawn at ``steps`` on axes that are logarithmic, or None."""
    x, y = np.array(trace.x, float), np.array(trace.y, float)
    if trace.shape == "points" or not x[0] < steps < x[-1]:
        return None
    k = int(np.searchsorted(x, steps))
    if trace.shape == "steps-pre":
        return y[k]
    return float(np.exp(np.interp(np.log(steps), np.log(x), np.log(y))))


def test_the_line_of_two_points_in_the_explorers_first_example():
    """Chien and Li's Figure 1: computed after 1 and 200 steps, joined at .44 where .837 is true."""
    run = FULL.replace(diameter=1.0)
    drawn = epsilon_growth(run, STRONGLY_CONVEX, 1e-5)
    assert drawn.log == "xy"
    for steps in (2, 5, 10, 20, 100):
        epsilon = account(stopped(run, steps), STRONGLY_CONVEX).epsilon(1e-5)
        least = epsilon * (1 - 5e-5)  # searches end so near to their answer
        heights = [on_screen(t, steps) for t in drawn.series if t.role == "bound"]
        assert sum(height is not None for height in heights) >= 3
        assert min(height for height in heights if height is not None) >= least, steps


def test_the_plateau_is_marked_where_the_library_finds_it():
    figure = epsilon_growth(FULL, STRONGLY_CONVEX)
    (mark,) = [trace for trace in figure.series if trace.name.startswith("plateau")]
    assert mark.x[0] == mark.x[1] == plateau(FULL, STRONGLY_CONVEX, 1e-5) == 45
    assert "after 45 steps" in figure.title
    short = epsilon_growth(FULL.replace(steps=20), STRONGLY_CONVEX)
    assert not [trace for trace in short.series if trace.name.startswith("plateau")]
    assert "would stop growing after 45" in short.title
    convex = epsilon_growth(FULL, Loss(smoothness=1.0))
    assert "hiding the states buys nothing" in convex.title


def test_few_points_are_said_to_be_few():
    training, loss = RUNS["poisson"]
    figure = epsilon_growth(training, loss)
    assert "marks" in figure.subtitle
    assert "marks" not in epsilon_growth(FULL, STRONGLY_CONVEX).subtitle


def test_long_runs_are_thinned_not_walked():
    for training, loss in (
        (FULL.replace(steps=10**12), STRONGLY_CONVEX),
        (SMALL.replace(steps=6 * 10**6, batches=Shuffled(10)), REGULARISED),
    ):
        figure = epsilon_growth(training, loss)
        assert max(len(trace.x) for trace in figure.series) <= 61
        assert lines(figure)


def test_no_step_and_no_noise_are_drawn_too():
    figure = epsilon_growth(FULL.replace(steps=0), STRONGLY_CONVEX)
    assert all(value == 0 for trace in lines(figure).values() for value in trace.y)
    figure = epsilon_growth(FULL.replace(noise=0.0), STRONGLY_CONVEX)
    assert all(math.isinf(trace.y[-1]) for trace in lines(figure).values())


def test_what_cannot_be_accounted_is_not_drawn():
    for wrong in (0.0, 2.0, math.nan):
        with pytest.raises(DescriptionError, match="delta"):
            epsilon_growth(FULL, STRONGLY_CONVEX, wrong)
    with pytest.raises(DescriptionError, match="points"):
        epsilon_growth(FULL, STRONGLY_CONVEX, points=0)
