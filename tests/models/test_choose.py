"""The automatic choice: whole epochs, contracting steps, what the user gives is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate import FullBatch, Shuffled, account
from lastiterate.accounting.calibration import calibrate
from lastiterate.curves import gaussian
from lastiterate.description import Origin
from lastiterate.errors import DescriptionError
from lastiterate.losses import Logistic, Softmax
from lastiterate.models import PrivateLogisticRegression, PrivateSoftmaxRegression
from lastiterate.models.choose import choose

RECORDS = st.integers(2, 10**6)
EPSILON = st.floats(0.01, 20)


@given(RECORDS, EPSILON, st.floats(0.1, 30), st.sampled_from(["zero-out", "replace"]))
@settings(max_examples=60, deadline=None)
def test_every_choice_is_a_run_that_contracts(
    records: int, epsilon: float, row_norm: float, adjacency: str
) -> None:
    chosen = choose(
        Logistic(),
        records=records,
        row_norm=row_norm,
        epsilon=epsilon,
        delta=1e-6,
        adjacency=adjacency,
    )
    run, loss = chosen.training, chosen.loss
    assert run.steps % (run.batches_per_epoch or 1) == 0
    assert run.step_size * (loss.smoothness + loss.regularization) <= 2
    assert run.gradient_norm == row_norm
    assert run.adjacency == adjacency
    if isinstance(run.batches, Shuffled) and run.batches_per_epoch > 1:
        assert run.release == "last"  # averages of mini-batch runs lost wherever they were tried
        assert (run.schedule == "equalised") != (run.final_noise > 1)
    else:
        assert run.schedule is None
        assert run.final_noise == 1


@given(RECORDS, st.integers(1, 5000))
@settings(max_examples=40, deadline=None)
def test_steps_asked_for_are_taken(records: int, steps: int) -> None:
    chosen = choose(Logistic(), records=records, row_norm=1.0, epsilon=1.0, delta=1e-6, steps=steps)
    assert chosen.training.steps == steps
    assert "as asked for" in str(chosen)


@given(RECORDS, st.integers(1, 10**6))
@settings(max_examples=40, deadline=None)
def test_batches_asked_for_are_taken(records: int, size: int) -> None:
    run = choose(
        Logistic(), records=records, row_norm=1.0, epsilon=1.0, delta=1e-6, batch_size=size
    ).training
    if size >= records:
        assert run.batches == FullBatch()
    else:
        assert run.batches == Shuffled(size)


def test_scaling_the_features_scales_the_run() -> None:
    """Rows twice as long with parameters half as long are the same problem."""
    one, two = (
        choose(
            Softmax(3), records=1000, row_norm=R, epsilon=1.0, delta=1e-5, regularization=0.0
        ).training
        for R in (1.0, 2.0)
    )
    assert two.steps == one.steps
    assert two.step_size * 4 == pytest.approx(one.step_size)


def test_many_columns_of_few_records_learn_for_less_time() -> None:
    """Down to a half with few records, no less than the root, and all of it from enough on."""

    def time(columns: int, records: int = 2_000, **given: float) -> float:
        known = {"records": records, "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-5}
        run = choose(Softmax(3), columns=columns, regularization=0.0, **known, **given).training
        return float(run.steps * run.step_size)

    whole = time(0)
    assert time(50) == whole
    mu = gaussian.mu(1.0, 1e-5)
    expected = [(50 / 60) ** 0.5, 0.5 + 2_000 * mu / (40 * 250), 0.5 + 2_000 * mu / (40 * 800)]
    times = [time(columns) / whole for columns in (60, 250, 800)]
    assert times == pytest.approx(expected, rel=0.02)
    assert time(100, 200_000) == time(0, 200_000)
    assert time(800, learning_time=300.0) == pytest.approx(time(0, learning_time=300.0))


@pytest.mark.parametrize("classes", [2, 3])
def test_three_classes_of_many_prepared_columns_learn_for_less_time(classes: int) -> None:
    X, y = np.random.default_rng(0).standard_normal((400, 80)), np.arange(400) % classes
    kind = PrivateSoftmaxRegression
    prepared = kind(1.0, 1e-4, feature_range=(-3.0, 3.0), random_state=0).fit(X, y)
    assert ("times 0.79" in str(prepared.choice_)) == (classes == 3)
    as_they_are = kind(1.0, 1e-4, prepare=None, feature_bound=9.0, random_state=0).fit(X, y)
    assert "times" not in str(as_they_are.choice_)


def test_small_batches_need_no_more_noise_than_full_ones() -> None:
    """The claim behind the default: noise per unit of learning time, at equal steps."""
    chosen = choose(Logistic(), records=20_000, row_norm=1.0, epsilon=1.0, delta=1e-6)
    small = calibrate(chosen.training, chosen.loss, 1.0, 1e-6)
    full = small.replace(batches=FullBatch(), schedule=None)
    full = calibrate(full, chosen.loss, 1.0, 1e-6)
    assert small.noise <= full.noise * 1.001


def test_without_noise_it_runs_to_convergence() -> None:
    chosen = choose(
        Logistic(), records=100, row_norm=1.0, epsilon=math.inf, delta=0.0, regularization=0.01
    )
    assert chosen.training.batches == FullBatch()
    assert chosen.training.release == "last"
    assert "condition number 26" in str(chosen)


def test_the_choice_does_not_look_at_the_data() -> None:
    rng = np.random.default_rng(0)
    models = []
    for scale in (1.0, 1e-3, 1e3):
        X, y = scale * rng.standard_normal((300, 5)), np.arange(300) % 2
        models.append(PrivateLogisticRegression(1.0, 1e-4, random_state=0).fit(X, y))
    assert models[0].training_ == models[1].training_ == models[2].training_
    assert str(models[0].choice_) == str(models[2].choice_)


def test_several_classes_are_kept_in_a_ball_where_there_is_noise() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))

    def loss(classes: int, **settings: Any) -> Origin:
        model = PrivateSoftmaxRegression(delta=1e-3, random_state=0, steps=2, **settings)
        return model.fit(X, np.arange(300) % classes).loss_.origin  # type: ignore[return-value]

    assert loss(3) == Origin("ball-softmax", 1.0, 0.75, 3)
    assert loss(2) == Origin("capped-softmax", 1.0, 0.5, 2)
    assert loss(3, epsilon=math.inf) == Origin("capped-softmax", 1.0, 1.0, 3)
    assert loss(3, cap=0.4) == Origin("capped-softmax", 1.0, 0.4, 3)
    assert loss(2, ball=0.4) == Origin("ball-softmax", 1.0, 0.4, 2)
    with pytest.raises(DescriptionError, match="ball"):
        loss(3, cap=0.4, ball=0.4)
    with pytest.raises(DescriptionError, match="radius"):
        loss(3, ball=1.1)


def test_the_choice_meets_the_target() -> None:
    chosen = choose(Logistic(), records=5000, row_norm=1.0, epsilon=0.5, delta=1e-6)
    run = calibrate(chosen.training, chosen.loss, 0.5, 1e-6)
    assert account(run, chosen.loss).epsilon(1e-6) <= 0.5
