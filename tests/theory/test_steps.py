"""Steps: one number for all steps or one per step, cut into stretches."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Loss, Poisson, Training
from lastiterate.errors import DescriptionError
from lastiterate.theory import poisson_paths as poisson
from lastiterate.theory import without_replacement as absorption
from lastiterate.theory.dynamics import Steps, alike, once
from lastiterate.theory.run import Run


def test_a_stretch_holds_the_values_of_its_own_steps():
    rng = np.random.default_rng(1)
    for _ in range(50):
        count = int(rng.integers(0, 8))
        listed = {name: rng.uniform(0, 2, count) for name in ("s", "rounding_drift", "gap")}
        steps = Steps(0.9, nu=1.0, count=count, **listed)
        first, last = sorted(rng.integers(0, count + 3, 2).tolist())
        stretch = steps[first:last]
        assert stretch.count == len(stretch.c) == len(range(count)[first:last])
        for name, values in listed.items():
            assert getattr(stretch, name).tolist() == values[first:last].tolist()
        assert alike(stretch.c, stretch.nu, stretch.reach)
        assert stretch.count == 0 or not stretch.constant


def test_a_number_stands_for_any_number_of_steps_and_takes_no_memory():
    steps = Steps(0.9, 1.0, 2.0, 10**15)[10**14 :]
    assert steps.constant
    assert steps.count == 9 * 10**14
    assert [once(each).tolist() for each in (steps.c, steps.s, steps.nu)] == [[0.9], [1.0], [2.0]]
    assert steps[:0].constant
    assert not Steps([0.9], 1.0, 2.0, 1).constant  # a schedule of one step is a schedule


def test_a_new_impulse_is_a_new_gap_unless_one_is_given():
    steps = Steps(0.9, 1.0, 1.0, 3)
    assert steps.gap.tolist() == [1.0, 1.0, 1.0]
    assert steps.replace(s=[3.0, 2.0, 1.0]).gap.tolist() == [3.0, 2.0, 1.0]
    assert steps.replace(s=2.0, gap=4.0).gap.tolist() == [4.0, 4.0, 4.0]
    assert steps.replace(c=0.5).gap.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["c", "s", "nu", "rounding_drift", "reach", "gap"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, [1.0, 1.0], [1.0, -1.0, 1.0], [[1.0] * 3]])
def test_what_is_no_value_of_every_step_is_refused(name, value):
    values = {"c": 0.9, "s": 1.0, "nu": 1.0}
    with pytest.raises(DescriptionError, match=f"{name} of the steps"):
        Steps(**{**values, name: value}, count=3)


@pytest.mark.parametrize("count", [-1, 2.0, True, None])
def test_what_counts_no_steps_is_refused(count):
    with pytest.raises(DescriptionError, match="count"):
        Steps(0.9, 1.0, 1.0, count)


def test_steps_cannot_be_changed():
    for s in (1.0, [1.0, 1.0, 1.0], np.ones(3)):
        steps = Steps(0.9, s, 1.0, 3)
        with pytest.raises(AttributeError):
            steps.count = 4
        for stretch in (steps, steps[1:], steps.replace(c=0.5)):
            with pytest.raises(ValueError, match="read-only"):
                stretch.s[0] = 0.0


def test_impulses_that_differ_never_meet_a_closed_form():
    """A record that is used at some steps only, in a run whose steps are otherwise alike."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        count = int(rng.integers(2, 30))
        steps = Steps(0.9, 1.0, 1.0, count)
        some = steps.replace(s=np.where(np.arange(count) < count // 2, 1.0, 0.0))
        assert steps.constant
        assert not some.constant
        assert poisson.best(some, 0.3, 1e-5).curve.epsilon(1e-5) <= (
            poisson.best(steps[: count // 2], 0.3, 1e-5).curve.epsilon(1e-5) * (1 + 1e-6)
        )
        assert absorption.distance(some) <= absorption.distance(steps)


def run(**changes):
    fields = {"records": 100, "steps": 6, "step_size": 0.1, "noise": 0.2, "gradient_norm": 1.0}
    return Training(**{"adjacency": "replace", **fields, "batches": FullBatch(), **changes})


def test_a_run_is_constant_where_its_description_is():
    loss = Loss(1.0, regularization=0.1)
    assert Run(run(steps=10**12), loss).steps.constant
    for changes in ({"final_noise": 2.0}, {"noise": [0.2] * 6}, {"step_size": [0.1] * 6}):
        described = Run(run(**changes), loss)
        assert not described.steps.constant
        assert described.steps.nu.tolist() == described.training.noises.tolist()
        assert len(described.steps.s) == 6
    assert not Run(run(steps=1, noise=[0.2]), loss).steps.constant
    assert np.isinf(Run(run(), Loss.unknown()).steps.c).all()


def test_other_impulses_take_the_place_of_the_runs_own():
    for batches in (Poisson(0.1), Cyclic(50)):
        for described in (run(batches=batches), run(batches=batches, step_size=[0.1] * 6)):
            case = Run(described, Loss(1.0))
            other = case.having(s=2 * case.step_sensitivities)
            assert other.s.tolist() == other.gap.tolist() == (2 * case.steps.s).tolist()
            assert other.constant == described.constant
