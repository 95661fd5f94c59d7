"""The table of personal numbers: what the theory prints, and what it refuses to make up."""

from __future__ import annotations

import math

import pytest

from lastiterate import (
    Cyclic,
    DescriptionError,
    Exposure,
    FullBatch,
    Loss,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
    personal,
)
from lastiterate.guarantee import Guarantee

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
    return Training(**{**fields, **changes})


def test_the_reference_run():
    """Theory, personal numbers: 50 epochs of 40 hidden batches, delta = 1e-5."""
    table = personal(
        account(run(Shuffled(1500)), LOSS),
        joined=[1600],
        left=[1600, 400],
        records=[],
        others=[Exposure(joined=1000, left=1040)],
    )
    found = {row.exposure: row.epsilon for row in table}
    expected = {
        Exposure(): 3.429,
        Exposure(joined=1600): 2.1252,
        Exposure(left=1600): 2.379,
        Exposure(left=400): 0.483,
        Exposure(gradient_norm=2.5): 1.5577,
        Exposure(gradient_norm=0.5): 0.263,
        Exposure(joined=1000, left=1040): 0.0595,
    }
    assert set(found) == set(expected)
    for exposure, epsilon in expected.items():
        assert found[exposure] == pytest.approx(epsilon, abs=6e-4), exposure
    assert "tell it to that person" in str(table)


def test_every_row_is_what_account_says_and_the_own_person_is_first():
    training = run(Cyclic(1500), steps=200)
    person = Exposure(records=3, per_batch=1)
    table = personal(account(training, LOSS, exposure=person), delta=1e-6)
    assert next(iter(table)).exposure == person
    assert {row.exposure.joined for row in table} == {0, 40, 160}
    assert {row.exposure.left for row in table} == {None, 40, 160}
    assert {row.exposure.records for row in table} == {2, 3, 10}
    for row in table:
        assert row.epsilon == account(training, LOSS, exposure=row.exposure).epsilon(1e-6)


def test_releases_stay_released():
    training = run(FullBatch(), steps=50)
    guarantee = account(training, LOSS, releases=[10])
    late = {row.exposure: row.epsilon for row in personal(guarantee, joined=[20])}
    assert late[Exposure(joined=20)] < late[Exposure()]
    early = {row.exposure: row.epsilon for row in personal(guarantee, left=[10])}
    alone = account(training.replace(steps=10), LOSS).epsilon(1e-5)
    assert early[Exposure(left=10)] == pytest.approx(alone)  # paid once, never forgotten


def test_people_whom_no_theorem_covers_get_no_number():
    table = personal(account(run(WithoutReplacement(1500), steps=20), LOSS), records=[], left=[])
    late = [row for row in table if row.exposure.joined]
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
            personal(wrong)
    for wrong in ({"joined": [51]}, {"gradient_norm": [6.0]}, {"records": [0]}, {"left": [-1]}):
        with pytest.raises(DescriptionError):
            personal(guarantee, **wrong)
