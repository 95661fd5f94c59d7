"""The description of a run: validation, derived quantities, the constructors of the literature."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import (
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
)
from lastiterate.description import Schedule
from lastiterate.description.fields import rows
from lastiterate.errors import DescriptionError, LastIterateError


def training(**changes: Any) -> Training:
    fields: dict[str, Any] = {
        "records": 100,
        "steps": 10,
        "step_size": 0.1,
        "noise": 0.2,
        "gradient_norm": 3.0,
        "batches": Shuffled(10),
    }
    return Training(**({"adjacency": "replace"} | fields | changes))


# --- validation: the field, its value, what is allowed -------------------------------------------

HUGE = pytest.param(10**5000, id="5000-digits")


@pytest.mark.parametrize("field", ["records", "steps"])
@pytest.mark.parametrize("value", [-1, 1.0, math.nan, math.inf, "1", None, True, 2**53 + 1, HUGE])
def test_counts(field: str, value: object) -> None:
    with pytest.raises(DescriptionError) as error:
        training(**{field: value})
    assert error.value.field == field
    assert "an integer" in str(error.value)
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, LastIterateError)


def test_no_records_is_an_error_and_no_steps_is_a_run() -> None:
    with pytest.raises(DescriptionError, match=r"^records must"):
        training(records=0, batches=FullBatch())
    assert training(steps=0).epochs == 0.0


@pytest.mark.parametrize("field", ["step_size", "noise", "gradient_norm", "diameter"])
@pytest.mark.parametrize("value", [math.nan, -1e-9, -math.inf, "1", None, True, 10**400, 1j])
def test_quantities(field: str, value: object) -> None:
    with pytest.raises(DescriptionError) as error:
        training(**{field: value})
    assert error.value.field == field
    assert ">= 0" in str(error.value)


@pytest.mark.parametrize("field", ["step_size", "noise", "gradient_norm"])
def test_infinite_quantities(field: str) -> None:
    with pytest.raises(DescriptionError) as error:
        training(**{field: math.inf})
    assert error.value.field == field


@pytest.mark.parametrize("field", ["step_size", "noise"])
@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([0.1] * 9, "list of 10 values"),
        ([0.1] * 11, "list of 10 values"),
        ([], "shape"),
        (np.full((10, 1), 0.1), "shape"),
        (np.array(0.1), "shape"),
        ([0.1] * 4 + [math.nan] + [0.1] * 5, "[4] must"),
        ([0.1] * 9 + [math.inf], "[9] must"),
        ([-0.1] + [0.1] * 9, "[0] must"),
        (["0.1"] * 10, "other values"),
        ([True] * 10, "other values"),
        ([0.1] * 9 + [True], "other values"),
        ([0.1] * 9 + [None], "other values"),
        (np.ones(10, dtype=bool), "other values"),
        (np.ones(10, dtype=complex), "other values"),
        (np.array(["1"] * 10), "other values"),
        ([[0.1] * 10], "other values"),
        ([10**400] * 10, "[0] must"),
    ],
)
def test_lists(field: str, values: object, says: str) -> None:
    with pytest.raises(DescriptionError) as error:
        training(**{field: values})
    assert str(error.value).startswith(field)
    assert says in str(error.value)


@pytest.mark.parametrize("field", ["adjacency", "clipping", "schedule", "release"])
@pytest.mark.parametrize("value", ["Replace", "", 1, True, math.nan])
def test_words(field: str, value: object) -> None:
    with pytest.raises(DescriptionError) as error:
        training(**{field: value})
    assert error.value.field == field


@pytest.mark.parametrize("value", ["shuffled", Shuffled, None, 10, {"scheme": "half"}])
def test_batches_are_required_and_typed(value: object) -> None:
    for make in (
        lambda: training(batches=value),
        lambda: Training.dp_sgd(
            records=10,
            steps=1,
            step_size=1.0,
            noise_multiplier=1.0,
            clip=1.0,
            batches=value,  # type: ignore[arg-type]
        ),
    ):
        with pytest.raises(DescriptionError, match=r"^batches"):
            make()


@pytest.mark.parametrize("scheme", [Cyclic, Shuffled, Reshuffled, WithoutReplacement])
def test_a_batch_larger_than_the_data(scheme: type) -> None:
    with pytest.raises(DescriptionError, match=r"^batches\.size must"):
        training(batches=scheme(101))
    assert training(batches=scheme(100)).batches.divisor(100) == 100


@pytest.mark.parametrize("window", [0, -1, 2.0, True, "3", math.nan])
def test_windows(window: object) -> None:
    with pytest.raises(DescriptionError, match=r"^release\.window must"):
        TailAverage(window)  # type: ignore[arg-type]


def test_a_window_longer_than_the_run() -> None:
    with pytest.raises(DescriptionError, match=r"^release\.window must"):
        training(release=TailAverage(11))


def test_an_out_of_range_step_size_is_not_an_error_of_the_description() -> None:
    assert training(step_size=1e9).step_size == 1e9


@given(st.floats(0, 100), st.sampled_from(["replace", "zero-out"]))
def test_sensitivity_is_at_most_what_the_gradient_norm_allows(value: float, adjacency: str) -> None:
    natural = 6.0 if adjacency == "replace" else 3.0
    if value <= natural:
        assert training(sensitivity=value, adjacency=adjacency).sensitivity == value
    else:
        with pytest.raises(DescriptionError, match=r"^sensitivity must"):
            training(sensitivity=value, adjacency=adjacency)


@pytest.mark.parametrize("value", [math.nan, -1.0, True, "1", math.inf])
def test_sensitivity(value: object) -> None:
    with pytest.raises(DescriptionError, match=r"^sensitivity must"):
        training(sensitivity=value)


# --- as a value ----------------------------------------------------------------------------------


def test_it_is_frozen_hashable_printable_and_pickles() -> None:
    run = training(step_size=np.linspace(0.1, 1, 10), release=TailAverage(3), diameter=5)
    with pytest.raises(FrozenInstanceError):
        run.noise = 1.0  # type: ignore[misc]
    same = training(step_size=list(np.linspace(0.1, 1, 10)), release=TailAverage(3), diameter=5.0)
    assert run == same
    assert hash(run) == hash(same)
    assert pickle.loads(pickle.dumps(run)) == run
    assert "10 values from 0.1 to 1" in str(run)
    assert "diameter 5" in str(run)
    assert repr(run).startswith("Training(records=100, steps=10")


def test_a_pickled_run_still_derives_its_sensitivity() -> None:
    again = pickle.loads(pickle.dumps(training()))
    assert again.replace(adjacency="zero-out").sensitivity == 3.0


def test_schedules_are_values_and_cannot_be_changed() -> None:
    values = np.array([0.0, 0.5])
    schedule = Schedule("noise", values)
    values[0] = 9.0
    assert list(schedule) == [0.0, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        schedule.values[0] = 1.0
    with pytest.raises(AttributeError, match="immutable"):
        schedule.values = values  # type: ignore[misc]
    negative_zero = Schedule("noise", [-0.0, 0.5])
    assert schedule == negative_zero
    assert hash(schedule) == hash(negative_zero)
    assert schedule != Schedule("noise", [0.0, 0.5, 0.5])


def test_every_kind_of_number_and_list_is_read_once() -> None:
    assert training(step_size=Fraction(1, 4), noise=np.float32(0.5)).step_size == 0.25
    assert training(steps=np.int64(10)).steps == 10
    run = training(step_size=(0.1 * k for k in range(10)), noise=range(10))
    assert np.array_equal(run.noises, np.arange(10.0))
    assert len(run.step_sizes) == 10


def test_a_constant_run_of_a_million_million_steps_takes_no_memory() -> None:
    run = training(steps=10**12)
    assert run.constant
    assert run.step_sizes.shape == (10**12,)
    assert run.step_sizes.strides == (0,)
    assert run.noises.strides == (0,)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 300))
def test_epochs_are_another_way_to_give_steps(size: int, batches: int, steps: int) -> None:
    run = training(records=size * batches, steps=steps, batches=Shuffled(size))
    assert run.replace(noise=0.3).steps == run.replace(noise=0.3).scale_noise(2.0).steps == steps
    whole = training(records=size * batches, steps=None, epochs=7, batches=Shuffled(size))
    assert (whole.steps, whole.epochs) == (7 * batches, 7.0)
    assert run.replace(epochs=7) == whole
    assert whole.replace(steps=steps) == run
    assert whole.replace(batches=FullBatch()).steps == 7 * batches
    assert whole.to_dict() == training(**(whole.to_dict() | {"epochs": None})).to_dict()
    assert "epochs" not in whole.to_dict()


def test_epochs_of_random_batches_round_up() -> None:
    run = training(steps=None, epochs=2, batches=Poisson(batch_size=30))
    assert (run.steps, run.batches) == (7, Poisson(0.3))
    assert run.epochs == pytest.approx(2.1)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"steps": 10, "epochs": 2}, "epochs"),
        ({"steps": None}, "steps"),
        ({"steps": None, "epochs": 0.25}, "epochs"),
        ({"steps": None, "epochs": -1}, "epochs"),
        ({"steps": None, "epochs": math.inf}, "epochs"),
    ],
)
def test_steps_and_epochs_do_not_contradict(changes: Any, field: str) -> None:
    with pytest.raises(DescriptionError) as error:
        training(**{"batches": Shuffled(50)} | changes)
    assert error.value.field == field


def test_a_replaced_length_contradicts_carried_epochs() -> None:
    """`dataclasses.replace` does not know that steps and epochs belong together: it raises."""
    run = training()
    for change in ({"steps": 20}, {"records": 200}, {"batches": FullBatch()}):
        with pytest.raises(DescriptionError) as error:
            dataclasses.replace(run, **change)
        assert error.value.field == "epochs"


def test_fields_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        Training(100, 10, 0.1, 0.2, 3.0, FullBatch(), adjacency="replace")  # type: ignore[misc]


def test_every_field_has_a_help_text_and_refuses_a_wrong_type() -> None:
    for name, row in rows(Training).items():
        assert row.help.endswith(".")
        if name != "sensitivity_basis":
            with pytest.raises(DescriptionError) as error:
                training(**{name: object()})
            assert error.value.field == name


@pytest.mark.parametrize("constructor", [Training.dp_sgd, Training.langevin])
def test_constructors_list_every_field(constructor: Any) -> None:
    """Each parameter is a field of `Training` or part of the convention; none is forgotten."""
    parameters = set(inspect.signature(constructor).parameters)
    convention = {"noise_multiplier", "clip", "sigma", "gradient_sensitivity"}
    stated = {"noise", "gradient_norm", "sensitivity", "sensitivity_basis"}  # by the convention
    assert set(rows(Training)) - stated <= parameters
    assert parameters <= set(rows(Training)) | convention


# --- what follows from it ------------------------------------------------------------------------


def test_impulse_by_hand() -> None:
    # One record of norm <= 3 replaced: the sum of a batch's gradients moves by 6, divided by 10.
    assert training().impulse == 0.6
    assert training(adjacency="zero-out").impulse == 0.3
    assert training(batches=FullBatch()).impulse == 6 / 100
    assert training(batches=Poisson(0.2), adjacency="zero-out").impulse == 3 / 20


def test_replace_derives_the_sensitivity_again() -> None:
    run = training(adjacency="zero-out")
    assert run.sensitivity == 3.0
    assert run.replace(adjacency="replace").sensitivity == 6.0
    assert run.replace(gradient_norm=5.0).sensitivity == 5.0
    assert run.replace(steps=3).replace(adjacency="replace").sensitivity == 6.0
    assert dataclasses.replace(run, adjacency="replace").sensitivity == 6.0
    assert run.scale_noise(2.0).replace(adjacency="replace").sensitivity == 6.0


def test_replace_keeps_a_sensitivity_only_for_what_it_was_declared_for() -> None:
    run = training(adjacency="zero-out", sensitivity=2.5)
    assert run.replace(sensitivity=None).sensitivity == 3.0
    for same in (run.replace(steps=3), run.scale_noise(2.0), run.replace(adjacency="zero-out")):
        assert same.sensitivity == same.declared_sensitivity == 2.5
    again = pickle.loads(pickle.dumps(copy.deepcopy(run)))  # what it was declared for travels
    for old in (run, run.replace(steps=3), again):
        for other, implied in ({"adjacency": "replace"}, 6.0), ({"gradient_norm": 4.0}, 4.0):
            for new in (old.replace(**other), dataclasses.replace(old, **other)):
                assert new.sensitivity == implied
                assert new.declared_sensitivity is None
    assert run.replace(gradient_norm=1.0).sensitivity == 1.0
    assert run.replace(gradient_norm=4.0, sensitivity=2.5).sensitivity == 2.5
    assert run.replace(gradient_norm=4.0, sensitivity=run.sensitivity).sensitivity == 2.5
    with pytest.raises(DescriptionError, match=r"^sensitivity must"):
        run.replace(gradient_norm=1.0, sensitivity=2.5)


def test_a_declared_sensitivity_is_said() -> None:
    assert "by at most 2.5 (declared)" in str(training(sensitivity=2.5))
    assert "declared" not in str(training(sensitivity=6.0)) + str(training())
    assert training(sensitivity=6.0).declared_sensitivity is None  # what the norm implies anyway
    assert "by at most 0 (declared)" in str(training(sensitivity=0.0))


def test_steps_that_are_not_whole_epochs() -> None:
    run = training(records=103, steps=25, batches=Cyclic(10))
    assert run.batches_per_epoch == 10
    assert run.epochs == 2.5
    assert run.dropped_records == 3
    assert "3 records dropped" in str(run)
    assert training(records=103, batches=Poisson(0.1), adjacency="zero-out").dropped_records == 0
    assert training(batches=FullBatch()).epochs == 10.0
    assert training(batches=WithoutReplacement(50)).epochs == 5.0
    assert training(batches=Poisson(0.5)).epochs == 5.0
    assert training(batches=Poisson(0.5)).batches_per_epoch is None


def test_scale_noise() -> None:
    assert training().scale_noise(3.0).noise == pytest.approx(0.6, rel=1e-15)
    scaled = training(noise=range(10)).scale_noise(2.0)
    assert np.array_equal(scaled.noises, 2.0 * np.arange(10))
    with pytest.raises(DescriptionError, match="noise"):
        training().scale_noise(-1.0)


# --- the equalising last epoch -------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(0, 4), st.floats(0.01, 2))
def test_equalised_steps_shrink_in_the_last_epoch_only(
    batches: int, epochs: int, base: float
) -> None:
    run = training(
        records=7 * batches,
        steps=batches * epochs,
        step_size=base,
        batches=Cyclic(7),
        schedule="equalised",
    )
    expected = [base] * (batches * max(epochs - 1, 0))
    if epochs:
        expected += [base * math.sqrt((batches - j) / batches) for j in range(batches)]
    assert run.step_sizes == pytest.approx(expected, rel=1e-15)
    assert np.array_equal(run.noises, np.full(batches * epochs, 0.2))
    assert not run.constant


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"steps": 15}, "steps"),
        ({"batches": Poisson(0.1), "adjacency": "zero-out"}, "schedule"),
        ({"batches": WithoutReplacement(10)}, "schedule"),
        ({"step_size": [0.1] * 10}, "step_size"),
    ],
)
def test_equalised_needs_whole_epochs_and_a_base_value(changes: Any, field: str) -> None:
    with pytest.raises(DescriptionError) as error:
        training(schedule="equalised", **changes)
    assert error.value.field == field


# --- the conventions of the literature -----------------------------------------------------------


sizes = st.floats(1e-50, 1e50)


@given(sizes, sizes, sizes, st.integers(1, 100))
def test_dp_sgd_by_hand(eta: float, multiplier: float, clip: float, size: int) -> None:
    run = Training.dp_sgd(
        records=100,
        steps=5,
        step_size=eta,
        noise_multiplier=multiplier,
        clip=clip,
        batches=Shuffled(size),
    )
    assert run.noise == pytest.approx(eta * multiplier * clip / size, rel=1e-12, abs=0)
    assert run.gradient_norm == clip
    assert (run.adjacency, run.clipping) == ("zero-out", "gradient")
    # What accountants call the noise multiplier: noise over what one record adds.
    assert run.noise / (eta * run.impulse) == pytest.approx(multiplier, rel=1e-12)


def test_dp_sgd_divides_by_the_nominal_batch() -> None:
    run = Training.dp_sgd(
        records=1000,
        steps=3,
        step_size=[1.0, 2.0, 4.0],
        noise_multiplier=2.0,
        clip=0.5,
        batches=Poisson(0.01),
        adjacency="zero-out",
        clipping="none",
    )
    assert run.noises == pytest.approx([0.1, 0.2, 0.4], rel=1e-15)
    assert run.clipping == "none"


def test_dp_sgd_with_an_equalised_schedule_keeps_the_base_noise() -> None:
    run = Training.dp_sgd(
        records=40,
        steps=4,
        step_size=2.0,
        noise_multiplier=3.0,
        clip=1.0,
        batches=Cyclic(10),
        schedule="equalised",
    )
    assert run.noises == pytest.approx([0.6] * 4, rel=1e-15)
    assert run.step_sizes[-1] == pytest.approx(1.0)


@given(sizes, sizes, sizes)
def test_langevin_by_hand(eta: float, sigma: float, change: float) -> None:
    run = Training.langevin(
        records=20,
        steps=5,
        step_size=eta,
        sigma=sigma,
        gradient_sensitivity=change,
        adjacency="replace",
    )
    assert run.noise == pytest.approx(math.sqrt(2 * eta * sigma**2), rel=1e-12, abs=0)
    assert run.sensitivity == change
    assert run.batches == FullBatch()
    # C: the impulse of a step is eta * S_g / n.
    assert eta * run.impulse == pytest.approx(eta * change / 20, rel=1e-12, abs=0)
    removed = Training.langevin(
        records=20,
        steps=5,
        step_size=eta,
        sigma=sigma,
        gradient_sensitivity=change,
        adjacency="zero-out",
    )
    assert removed.sensitivity == change


def test_langevin_with_a_schedule() -> None:
    run = Training.langevin(
        records=20,
        steps=2,
        step_size=(x for x in (0.5, 2.0)),
        sigma=3.0,
        gradient_sensitivity=1.0,
        adjacency="replace",
    )
    assert run.noises == pytest.approx([3.0, 6.0], rel=1e-15)


@pytest.mark.parametrize("field", ["noise_multiplier", "clip", "step_size", "records"])
@pytest.mark.parametrize("value", [math.nan, -1, math.inf, True, "1", None])
def test_dp_sgd_fields(field: str, value: object) -> None:
    fields: dict[str, Any] = {
        "records": 10,
        "steps": 1,
        "step_size": 1.0,
        "noise_multiplier": 1.0,
        "clip": 1.0,
        "batches": Shuffled(5),
    }
    with pytest.raises(DescriptionError) as error:
        Training.dp_sgd(**(fields | {field: value}))
    assert error.value.field == field


@pytest.mark.parametrize("field", ["sigma", "gradient_sensitivity", "step_size"])
@pytest.mark.parametrize("value", [math.nan, -1, math.inf, True, "1", None])
def test_langevin_fields(field: str, value: object) -> None:
    fields: dict[str, Any] = {
        "records": 10,
        "steps": 1,
        "step_size": 1.0,
        "sigma": 1.0,
        "gradient_sensitivity": 1.0,
    }
    with pytest.raises(DescriptionError) as error:
        Training.langevin(**({"adjacency": "replace"} | fields | {field: value}))
    assert error.value.field == field
