"""Levels at the ends of epochs, and the law of what epochs cost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernel_runs import described

from lastiterate import Loss, Reshuffled, Training
from lastiterate.kernel.balls import KernelError, arb, precision
from lastiterate.kernel.epochs import epoch_costs, law_of_sum
from lastiterate.theory.run import Run

RIDGE = Loss(smoothness=1.0, regularization=0.1)


def training(**changes):
    fields = dict(records=100, steps=4, step_size=0.5, noise=0.1, gradient_norm=1.0)
    return Training(**{**fields, "batches": Reshuffled(50), **changes})


def test_a_partial_last_epoch_has_costs_of_its_own():
    run = training(steps=3)
    steps = Run(run, RIDGE).steps
    c, s, nu = (float(values[0]) for values in (steps.c, steps.s, steps.nu))
    unit = (s / nu) ** 2
    with precision():
        whole, partial = epoch_costs(described(run, RIDGE), [0.0, 0.0, 0.0])
    assert list(map(float, whole)) == pytest.approx([unit * c * c / (1 + c * c), unit])
    assert list(map(float, partial)) == pytest.approx([unit, 0.0])  # its second batch is not read


def test_an_epoch_that_ends_at_the_diameter_costs_nothing_and_another_one_does():
    with precision():
        run = described(training(diameter=0.5), RIDGE)
        first, second = epoch_costs(run, [0.0, 0.5, 0.0])
        assert all(cost == 0 for cost in first)
        assert all(cost > 0 for cost in second)
        closer, _ = epoch_costs(run, [0.0, 0.001, 0.0])
        assert all(cost > 0 for cost in closer)


@pytest.mark.parametrize(
    "levels",
    [[0.0, 0.0], [0.0, 0.1, 0.1], [0.0, -0.1, 0.0], [0.0, float("nan"), 0.0], ["inf"] * 3, 0.0],
)
def test_levels_that_are_no_distances_or_end_elsewhere_are_refused(levels):
    with precision(), pytest.raises(KernelError):
        epoch_costs(described(training(), RIDGE), levels)


def test_a_level_at_a_checkpoint_is_refused():
    with precision():
        run = described(training(steps=6), RIDGE, releases=(2,))
        assert len(epoch_costs(run, [0.0, 0.0, 0.1, 0.0])) == 3
        with pytest.raises(KernelError, match="release"):
            epoch_costs(run, [0.0, 0.1, 0.0, 0.0])


def test_the_law_of_the_sum_is_above_the_enumeration():
    random = np.random.default_rng(4)
    with precision():
        rows = [tuple(map(arb, random.exponential(size=3))) for _ in range(2)]
        law = law_of_sum([rows[0], rows[0], rows[1], rows[1]])
        with precision(400):
            assert sum((mass for _, mass in law), arb(0)) >= 1
        every = itertools.product(rows[0], rows[0], rows[1], rows[1])
        sums = sorted(sum(float(x) for x in costs) for costs in every)
        for level in np.linspace(0, sums[-1], 40):
            above = sum((float(mass) for square, mass in law if float(square) > level), 0.0)
            exact = sum(each > level for each in sums) / len(sums)
            assert above >= exact - 1e-12
        mean = sum(float(square) * float(mass) for square, mass in law)
    assert mean == pytest.approx(sum(sums) / len(sums), rel=1e-3)
