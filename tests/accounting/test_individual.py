"""The table of personal numbers: what the theory prints, and what it refuses to make up."""

from __future__ import annotations

import math

import pytest

from lastiterate import (
    Cyclic,
    DescriptionError,
    FullBatch,
    Loss,
    PrivacyUnit,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
    individual_epsilons,
)
from lastiterate.accounting.guarantee import Guarantee

LOSS = Loss(smoothness=1.0, regularization=0.002)


def run(batches, **changes):
    fields = {
        "records": 60_000,
        "steps": 2_000,
        "step_size": 0.05,
        "noise": 0.0005,
        "gradient_norm": 5.0,
        "batches": batches,
    }
    return Training(**{"adjacency": "replace", **fields, **changes})


def test_the_reference_run():
    """Theory, personal numbers: 50 epochs of 40 hidden batches, delta = 1e-5."""
    table = individual_epsilons(
        account(run(Shuffled(1500)), LOSS),
        first_step=[1600],
        last_step=[1600, 400],
        records=[],
        others=[PrivacyUnit(first_step=1000, last_step=1040)],
    )
    found = {row.unit: row.epsilon for row in table}
    expected = {
        PrivacyUnit(): 3.429,
        PrivacyUnit(first_step=1600): 2.1252,
        PrivacyUnit(last_step=1600): 2.379,
        PrivacyUnit(last_step=400): 0.483,
        PrivacyUnit(gradient_norm=2.5): 1.5577,
        PrivacyUnit(gradient_norm=0.5): 0.263,
        PrivacyUnit(first_step=1000, last_step=1040): 0.0595,
    }
    assert set(found) == set(expected)
    for unit, epsilon in expected.items():
        assert found[unit] == pytest.approx(epsilon, abs=6e-4), unit
    assert "tell it to that person" in str(table)


def test_every_row_is_what_account_says_and_the_own_person_is_first():
    training = run(Cyclic(1500), steps=200)
    person = PrivacyUnit(records=3, per_batch=1)
    table = individual_epsilons(account(training, LOSS, unit=person), delta=1e-6)
    assert next(iter(table)).unit == person
    assert {row.unit.first_step for row in table} == {0, 40, 160}
    assert {row.unit.last_step for row in table} == {None, 40, 160}
    assert {row.unit.records for row in table} == {2, 3, 10}
    for row in table:
        assert row.epsilon == account(training, LOSS, unit=row.unit).epsilon(1e-6)


def test_releases_stay_released():
    training = run(FullBatch(), steps=50)
    guarantee = account(training, LOSS, releases=[10])
    late = {row.unit: row.epsilon for row in individual_epsilons(guarantee, first_step=[20])}
    assert late[PrivacyUnit(first_step=20)] < late[PrivacyUnit()]
    early = {row.unit: row.epsilon for row in individual_epsilons(guarantee, last_step=[10])}
    alone = account(training.replace(steps=10), LOSS).epsilon(1e-5)
    assert early[PrivacyUnit(last_step=10)] == pytest.approx(alone)  # paid once, never forgotten


def test_people_whom_no_theorem_covers_get_no_number():
    table = individual_epsilons(
        account(run(WithoutReplacement(1500), steps=20), LOSS), records=[], last_step=[]
    )
    late = [row for row in table if row.unit.first_step]
    assert late
    assert all(math.isinf(row.epsilon) for row in late)
    assert "no theorem covers it" in str(table)
    assert "no theorem covers it" in table._repr_html_()


def test_guarantees_of_other_kinds_and_impossible_people_are_refused():
    guarantee = account(run(FullBatch(), steps=50), LOSS)

    class Other(Guarantee):
        pass

    other = Other(guarantee.run, guarantee.bounds, guarantee.lower_reference)
    for wrong in (other, guarantee.run, None):
        with pytest.raises(DescriptionError, match="guarantee"):
            individual_epsilons(wrong)
    for wrong in (
        {"first_step": [51]},
        {"gradient_norm": [6.0]},
        {"records": [0]},
        {"last_step": [-1]},
    ):
        with pytest.raises(DescriptionError):
            individual_epsilons(guarantee, **wrong)
