"""The drawn string is the string: below the curve, convex, and as dear as the guarantee."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    WithoutReplacement,
    account,
)
from lastiterate.report import taut_string
from lastiterate.theory.ordered_batches import position_mus
from lastiterate.theory.run import Run

STRONGLY_CONVEX = Loss(smoothness=1.0, strong_convexity=1.0)
FULL = Training(
    records=5,
    steps=60,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    adjacency="replace",
)


def curves(figure):
    paid, arrived = figure.series
    assert np.array_equal(arrived.x, paid.x)
    return np.asarray(arrived.x), np.asarray(arrived.y), np.asarray(paid.y)


def cost(variance, paid):
    """mu^2 = sum of slope^2 x variance."""
    steps = np.diff(variance)
    used = steps > 0
    return float(np.sum(np.diff(paid)[used] ** 2 / steps[used]))


def check(training, loss, mu):
    variance, arrived, paid = curves(taut_string(training, loss))
    assert variance[0] == arrived[0] == paid[0] == 0
    assert np.all(np.diff(variance) >= 0)
    assert np.all(np.diff(paid) >= 0)
    assert np.all(paid <= arrived)
    assert paid[-1] == pytest.approx(arrived[-1], rel=1e-9)
    rising = np.diff(variance) > 1e-6 * variance[-1]  # differences of less have no digits left
    slopes = np.diff(paid)[rising] / np.diff(variance)[rising]
    assert np.all(np.diff(slopes) >= -1e-6 * slopes.max())  # a taut string under a curve: convex
    assert math.sqrt(cost(variance, paid)) == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize(
    ("training", "loss"),
    [
        (FULL, STRONGLY_CONVEX),
        (FULL, Loss(smoothness=1.0)),
        (FULL, Loss.nonconvex(smoothness=1.0)),
        (FULL.replace(diameter=0.5), Loss(smoothness=1.0)),
        (FULL.replace(diameter=0.5), Loss.nonconvex(smoothness=1.0)),
        (FULL.replace(diameter=0.5), STRONGLY_CONVEX),
        (FULL.replace(step_size=1.0), STRONGLY_CONVEX),  # c = 0: every step forgets all
        # The best restart has two steps left, and beyond a few dozen all of them cost the same.
        (FULL.replace(step_size=1.0, diameter=1.0), Loss(smoothness=1.0, strong_convexity=0.75)),
        (FULL.replace(step_size=np.linspace(0.2, 0.01, 60)), STRONGLY_CONVEX),
        (FULL.replace(noise=np.linspace(1, 3, 60), diameter=0.7), Loss(smoothness=1.0)),
        (FULL.replace(final_noise=9.0), Loss(smoothness=1.0)),
    ],
)
def test_full_batches(training, loss):
    from lastiterate.theory.full_batch import FULL_BATCH

    mu = FULL_BATCH.evaluate(training, loss).curve.mu
    check(training, loss, mu)
    assert account(training, loss).mu is None or account(training, loss).mu <= mu * (1 + 1e-9)


@pytest.mark.parametrize("scheme", [Cyclic, Shuffled])
@pytest.mark.parametrize("loss", [Loss(smoothness=1.0), Loss(smoothness=1.0, regularization=0.5)])
def test_the_worst_position_is_drawn(scheme, loss):
    training = FULL.replace(records=40, batches=scheme(4), noise=0.2)
    mus = position_mus(Run(training, loss))
    check(training, loss, mus.max())
    figure = taut_string(training, loss)
    assert f"batch {int(np.argmax(mus)) + 1} of 10" in figure.subtitle


def test_a_tail_average_shows_the_steps_before_its_window():
    training = FULL.replace(release=TailAverage(11))
    check(training, STRONGLY_CONVEX, account(FULL.replace(steps=50), STRONGLY_CONVEX).mu)


@given(
    steps=st.integers(1, 120),
    step_size=st.floats(0.01, 1.9),
    noise=st.floats(0.05, 5.0),
    curvature=st.floats(0.0, 1.0),
    diameter=st.one_of(st.just(math.inf), st.floats(0.01, 5.0)),
)
def test_random_constant_runs(steps, step_size, noise, curvature, diameter):
    from lastiterate.theory.full_batch import FULL_BATCH

    training = FULL.replace(steps=steps, step_size=step_size, noise=noise, diameter=diameter)
    loss = Loss(smoothness=1.0, strong_convexity=curvature)
    check(training, loss, FULL_BATCH.evaluate(training, loss).curve.mu)


def test_long_runs_are_thinned():
    for training in (
        FULL.replace(steps=10**12),
        FULL.replace(steps=10**5, records=4000, batches=Shuffled(100)),
    ):
        variance, arrived, paid = curves(taut_string(training, STRONGLY_CONVEX))
        assert len(variance) < 500
        assert np.all(paid <= arrived)
        assert paid[-1] == pytest.approx(arrived[-1], rel=1e-6)


@pytest.mark.parametrize(
    ("training", "loss", "why"),
    [
        (FULL.replace(batches=Poisson(0.5), adjacency="zero-out"), STRONGLY_CONVEX, "no single"),
        (FULL.replace(batches=WithoutReplacement(2)), STRONGLY_CONVEX, "no single"),
        (FULL.replace(batches=Reshuffled(1)), STRONGLY_CONVEX, "no single"),
        (FULL, Loss.unknown(), "smoothness"),
        (FULL.replace(diameter=1.0), Loss.holder(constant=1.0, exponent=0.5), "Lipschitz"),
        (FULL.replace(steps=0), STRONGLY_CONVEX, "no step"),
        (FULL.replace(noise=0.0), STRONGLY_CONVEX, "noise"),
        (FULL.replace(momentum=0.5), STRONGLY_CONVEX, "momentum"),
    ],
)
def test_runs_without_a_string_are_refused(training, loss, why):
    with pytest.raises(UnsupportedError, match=why):
        taut_string(training, loss)
