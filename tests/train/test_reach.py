"""How far runs get: never beyond what is proved, and the ball around them costs next to nothing."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import (
    L1,
    Arithmetic,
    Box,
    Cyclic,
    FullBatch,
    GroupLasso,
    Loss,
    Poisson,
    Simplex,
    Training,
    account,
)
from lastiterate.losses import (
    BallSoftmax,
    CappedLogistic,
    CappedSoftmax,
    Huber,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
)
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)
from lastiterate.train import noisy_descent
from lastiterate.train.grid import Grid
from lastiterate.train.reach import learnt, learnt_ball, own_ball
from lastiterate.train.summation import linear_arithmetic, score_error

LOSSES = [
    Logistic(),
    CappedLogistic(0.3),
    SquaredError(1.0),
    SquaredError(2.0**500),
    Huber(0.4),
    SmoothedHinge(0.5),
    Softmax(4),
    CappedSoftmax(3, 0.5),
    BallSoftmax(3, 0.6),
    OneVsRest(SmoothedHinge(1.0), 3),
]


def describe(loss, records, steps, pace, l2, batches, **changes):
    """Steps of ``pace`` over the smoothness."""
    eta = pace / (loss.smoothness(1.0) + l2)
    settings = {
        "records": records,
        "steps": steps,
        "step_size": eta,
        "noise": 0.0,
        "gradient_norm": loss.gradient_norm(1.0),
        "batches": batches,
        "clipping": loss.clipping,
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


@given(
    loss=st.sampled_from(LOSSES),
    seed=st.integers(0, 2**32 - 1),
    pace=st.sampled_from([0.1, 0.9, 1.25, 1.7, 1.95]),
    l2=st.sampled_from([0.0, 1e-3, 0.1, 0.5]),
    alike=st.booleans(),
    away=st.sampled_from([0.0, 0.0, 0.1, 3.0]),
)
def test_no_run_gets_farther_than_is_proved(loss, seed, pace, l2, alike, away):
    """Whatever the batches are: records of one batch pull one way, those of the next another."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, 3))
    X = np.repeat(X[:2], 6, axis=0) if alike else X
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    outputs = loss.outputs()
    if isinstance(loss, SquaredError | Huber):
        y = rng.choice([-1.0, 1.0, 0.3], 12)
    else:
        y = rng.choice([-1.0, 1.0], 12) if outputs == 1 else rng.integers(0, outputs, 12)
    start = rng.standard_normal(3 if outputs == 1 else (3, outputs))
    start *= away / np.linalg.norm(start)
    for steps, batches in ((3, Cyclic(6)), (40, Cyclic(6)), (40, FullBatch())):
        run = describe(loss, 12, steps, pace, l2, batches)
        bound = learnt(run, loss.regularity(1.0, l2), loss.at_zero(), away)
        given = {"labels": y, "regularization": l2, "feature_bound": 1.0, "start": start}
        found = noisy_descent(loss, X, run, **given).parameters
        assert np.linalg.norm(found) <= (bound - away) * (1 + 1e-12)


def test_one_step_of_least_squares_attains_it():
    loss = SquaredError(1.0)
    run = describe(loss, 1, 1, 1.0, 0.0, FullBatch())
    assert learnt(run, loss.regularity(1.0), loss.at_zero()) == 1.0
    assert noisy_descent(loss, np.ones((1, 1)), run, labels=[1.0]).parameters == [1.0]


def test_where_it_says_nothing():
    loss, height = Logistic(), math.log(2)
    known = loss.regularity(1.0)

    def far(run, known=known):
        return learnt(run, known, height)

    assert math.isfinite(far(describe(loss, 9, 5, 1.9, 0.0, FullBatch())))
    assert math.isinf(far(describe(loss, 9, 5, 2.0, 0.0, FullBatch())))
    assert math.isinf(far(describe(loss, 9, 5, 1.0, 0.0, Poisson(0.1))))
    assert math.isinf(far(describe(loss, 9, 5, 1.0, 0.0, FullBatch(), clipping="gradient")))
    plain = describe(loss, 9, 5, 1.0, 0.0, FullBatch())
    assert math.isinf(far(plain, Loss.nonconvex(smoothness=0.25)))
    assert math.isinf(far(plain, Loss.unknown()))
    assert math.isfinite(far(plain.replace(proximal=L1(0.1))))
    assert math.isinf(far(plain.replace(proximal=Box(5.0, 6.0))))
    assert math.isinf(learnt_ball(plain, known, height, np.zeros(3)))  # no noise, no grid, no ball


@given(
    seed=st.integers(0, 2**32 - 1),
    l2=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    noise=st.sampled_from([1e-12, 0.1, 30.0]),
    batches=st.sampled_from([FullBatch(), Cyclic(2), Poisson(0.2)]),
    after=st.sampled_from([None, None, L1(0.3), GroupLasso(9.0), Box(5.0, 6.0), Simplex(50.0)]),
)
def test_gradients_that_all_pull_one_way_do_not_reach_the_ball(seed, l2, noise, batches, after):
    """The worst that a function of one's own can do, from any start: nothing is clipped."""
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(4) * 10.0 ** rng.integers(-3, 3)
    away = rng.standard_normal(4)
    away /= np.linalg.norm(away)
    run = Training(
        records=20,
        steps=30,
        step_size=1.0,
        noise=noise,
        gradient_norm=1.0,
        batches=batches,
        proximal=after,
        adjacency="replace",
    )
    given = {"start": start, "regularization": l2, "random_state": int(seed)}
    free = noisy_descent(lambda _, i: np.tile(away, (len(i), 1)), None, run, **given)
    ball = own_ball(run, start, l2)
    assert np.linalg.norm(free.parameters - start) < 0.75 * ball


@pytest.mark.parametrize("momentum", [0.5, 0.99])
def test_momentum_stays_inside_and_far_from_the_end(momentum):
    """Parameters that it carries along are as long as is charged, and no longer."""
    run = Training(
        records=20,
        steps=300,
        step_size=1.0,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        momentum=momentum,
        adjacency="replace",
    )
    away = np.array([0.6, 0.8])
    given = {"start": np.ones(2), "random_state": 3}
    free = noisy_descent(lambda _, i: np.tile(away, (len(i), 1)), None, run, **given)
    assert np.linalg.norm(free.parameters - 1) < 0.75 * own_ball(run, np.ones(2), 0.0)
    held = noisy_descent(lambda _, i: np.tile(away, (len(i), 1)), None, run, radius=2.0, **given)
    ends = [Fraction(float(v)) - 1 for v in held.parameters]
    assert sum(v**2 for v in ends) <= 4
    assert np.linalg.norm(held.parameters - 1) > 1.99


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        (PrivateLogisticRegression, "classes"),
        (PrivateSoftmaxRegression, "classes"),
        (PrivateLinearSVC, "classes"),
        (PrivateRidge, "numbers"),
        (PrivateHuberRegressor, "numbers"),
    ],
)
@pytest.mark.parametrize("epsilon", [0.05, 30.0])
def test_an_estimator_stays_well_inside_its_ball(model, labels, epsilon):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((150, 6))
    y = np.sign(X[:, 0]) if labels == "classes" else np.clip(X[:, 0], -1, 1)
    fitted = model(epsilon, 1e-4, random_state=1).fit(X, y)
    run, size = fitted.training_, fitted.coef_.size + np.size(fitted.intercept_)
    ball = learnt_ball(run, fitted.loss_, fitted._objective().at_zero(), np.zeros(size))
    length = math.hypot(*fitted.coef_.ravel(), *np.ravel(fitted.intercept_))
    assert length < 0.75 * ball
    assert ball < own_ball(run, np.zeros(size), fitted.loss_.regularization) * 4


SIZES = [
    (PrivateLogisticRegression, 10**6, 101, 2),
    (PrivateLogisticRegression, 10**6, 1001, 2),
    (PrivateLogisticRegression, 20_000, 30_001, 2),
    (PrivateSoftmaxRegression, 60_000, 785, 10),
    (PrivateLinearSVC, 10**6, 101, 2),
    (PrivateRidge, 10**6, 101, 0),
    (PrivateHuberRegressor, 10**6, 101, 0),
]


@pytest.mark.parametrize(("model", "records", "columns", "classes"), SIZES)
def test_rounding_costs_an_estimator_less_than_a_thousandth(model, records, columns, classes):
    """Of its epsilon, with everything that is charged, grid and sums included."""
    fitted = model(epsilon=1.0, delta=1e-7)
    fitted.classes_, fitted.delta_ = np.arange(classes), 1e-7
    objective = fitted._objective()
    size = columns * objective.outputs()
    chosen = fitted._choose(objective, records, dimension=size)
    engine = linear_arithmetic(chosen.training, objective, columns)
    per_length = score_error(chosen.training, objective, columns, 1.0)
    fitted._pay(chosen, engine, np.zeros(size), fitted._calibrated, per_length)
    paid, real = fitted.training_, fitted.training_.replace(arithmetic="exact")
    cost = account(paid, chosen.loss).epsilon(1e-7) / account(real, chosen.loss).epsilon(1e-7) - 1
    assert 0 < cost < 1e-3


def test_gradients_are_off_by_no_more_than_both_are_long():
    run = describe(Logistic(), 10, 5, 1.0, 0.0, Poisson(0.5), noise=0.1)
    grid = Grid.of(run, np.zeros(3), 1e30, 0.0)
    told = grid.arithmetic(Arithmetic(error=1e-9), 3, per_length=1.0)
    assert Fraction(told.error) >= Fraction(1e-9) + 2 * 2  # all ten over the five that are expected
    assert told.error < 4.001
    near = Grid.of(run, np.zeros(3), 1.0, 0.0)
    assert near.arithmetic(Arithmetic(error=1e-9), 3, per_length=1e-12).error < 1.002e-9
