"""Predicted risk against simulated quadratics, within Monte-Carlo error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import (
    Cyclic,
    DescriptionError,
    FullBatch,
    Loss,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    predicted_risk,
)
from lastiterate.errors import AssumptionError

SPECTRUM = np.geomspace(0.05, 1.0, 6).clip(0.05, 1.0)
START = np.array([1.0, -0.5, 2.0, 0.3, 1.0, -1.5])
LOSS = Loss(smoothness=1.0, strong_convexity=0.05)
PATHS = 20_000


def run(**changes):
    settings = {
        "records": 40,
        "steps": 40,
        "step_size": 0.3,
        "noise": 0.2,
        "gradient_norm": 1.0,
        "batches": FullBatch(),
    }
    return Training(**({"adjacency": "replace"} | settings | changes))


def simulated(training, weights, seed):
    """Mean risk of the weighted last iterates and its standard error, by running the updates."""
    rng = np.random.default_rng(seed)
    x = np.tile(START, (PATHS, 1))
    released, velocity = np.zeros((2, *x.shape))
    window = len(weights)
    for k, (eta, nu) in enumerate(zip(training.step_sizes, training.noises, strict=True)):
        update = eta * SPECTRUM * x - nu * rng.normal(size=x.shape)
        velocity = training.momentum * velocity + update
        x = x - velocity
        if k >= training.steps - window:
            released += weights[k - training.steps + window] * x
    risks = (released**2) @ SPECTRUM / 2
    return risks.mean(), risks.std() / math.sqrt(PATHS)


CASES = {
    "constant": run(),
    "mini-batches": run(batches=Shuffled(4)),
    "burst": run(batches=Shuffled(4), final_noise=9.0),
    "burst, cyclic": run(batches=Cyclic(4), final_noise=0.25),
    "equalised and burst": run(batches=Shuffled(4), schedule="equalised", final_noise=4.0),
    "reshuffled": run(batches=Reshuffled(8), final_noise=2.0),
    "schedules": run(step_size=np.linspace(1.5, 0.1, 40), noise=np.linspace(0.1, 0.5, 40)),
    "tail average": run(release=TailAverage(30)),
    "tail average and burst": run(batches=Shuffled(4), release=TailAverage(10), final_noise=16.0),
    "momentum": run(momentum=0.8, step_size=0.1),
    "momentum and schedules": run(momentum=0.5, step_size=np.linspace(0.5, 0.1, 40), noise=0.1),
    "momentum and tail average": run(momentum=0.9, step_size=0.1, release=TailAverage(20)),
    "exponential average": run(release=TailAverage(20, decay=0.8)),
}


@pytest.mark.parametrize("name", CASES)
def test_simulated_risk(name):
    training = CASES[name]
    release = training.release
    weights = np.ones(1) if release == "last" else release.weights
    mean, error = simulated(training, weights, seed=len(name))
    predicted = predicted_risk(training, LOSS, SPECTRUM, START).total
    assert abs(predicted - mean) <= 4 * error
    assert error < 0.01 * mean  # the test can tell a percent or two


def test_simulated_exponential_average():
    training = run(release=TailAverage(25))
    weights = TailAverage(25, 0.9).weights
    assert weights.sum() == pytest.approx(1.0, rel=1e-14)
    mean, error = simulated(training, weights, seed=1)
    predicted = predicted_risk(training, LOSS, SPECTRUM, START, average=weights).total
    assert abs(predicted - mean) <= 4 * error


def test_exponential_weights_are_the_recursion():
    values = np.random.default_rng(0).normal(size=7)
    average = values[0]
    for value in values[1:]:
        average = 0.8 * average + 0.2 * value
    assert TailAverage(7, 0.8).weights @ values == pytest.approx(average, rel=1e-14)


def test_closed_form_is_the_recursion():
    constant = run(steps=30)
    listed = run(steps=30, noise=[0.2] * 30)
    one, other = (predicted_risk(t, LOSS, SPECTRUM, START) for t in (constant, listed))
    assert one.bias == pytest.approx(other.bias, rel=1e-12)
    assert one.noise == pytest.approx(other.noise, rel=1e-12)
    for step in (0.0, 2.0):  # 1 - step * 1 = +-1: a direction that forgets nothing
        a, b = (
            predicted_risk(t.replace(step_size=step), Loss(smoothness=1.0), [1.0])
            for t in (constant, listed)
        )
        assert (a.bias, a.noise) == pytest.approx((b.bias, b.noise), rel=1e-12)


def test_long_runs_forget_the_start():
    risk = predicted_risk(run(steps=10**12), LOSS, SPECTRUM, START)
    q = (1 - 0.3 * SPECTRUM) ** 2
    assert risk.bias == 0
    assert risk.noise == pytest.approx(0.02 * np.sum(SPECTRUM / (1 - q)), rel=1e-12)


def test_no_steps_no_noise():
    risk = predicted_risk(run(steps=0), LOSS, SPECTRUM, START)
    assert risk.noise == 0
    assert risk.total == pytest.approx(SPECTRUM @ START**2 / 2)


def test_what_it_refuses():
    with pytest.raises(DescriptionError, match="spectrum"):
        predicted_risk(run(), LOSS, [2.0])
    with pytest.raises(AssumptionError, match="convex"):
        predicted_risk(run(), Loss.nonconvex(smoothness=1.0), [0.5])
    with pytest.raises(DescriptionError, match="average"):  # reaches farther back than released
        predicted_risk(run(release=TailAverage(3)), LOSS, SPECTRUM, average=np.ones(4))


def test_counts_are_repeated_directions():
    repeats = [1, 3, 2, 1, 5, 4]
    whole = np.repeat(SPECTRUM, repeats), np.repeat(START, repeats)
    for training in (run(), run(release=TailAverage(7))):
        short = predicted_risk(training, LOSS, SPECTRUM, START, counts=repeats)
        long = predicted_risk(training, LOSS, *whole)
        assert (short.bias, short.noise) == pytest.approx((long.bias, long.noise), rel=1e-12)
