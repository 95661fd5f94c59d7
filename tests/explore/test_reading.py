"""Texts become descriptions, or complaints at the right field."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    PrivacyUnit,
    Shuffled,
    TailAverage,
    Training,
)
from lastiterate.explore.fields import DEFAULTS, FIELDS
from lastiterate.explore.presets import PRESETS
from lastiterate.explore.reading import read, shown


def test_the_form_describes_the_run_it_says() -> None:
    found = read(DEFAULTS).description
    assert found is not None
    assert found.training == Training(
        records=60_000,
        steps=2_000,
        step_size=0.05,
        noise=0.0005,
        gradient_norm=5.0,
        batches=Shuffled(1500),
        adjacency="zero-out",
    )
    assert found.loss == Loss(smoothness=0.25, regularization=0.002)
    assert found.delta == 1e-5


def test_every_choice_reaches_the_description() -> None:
    state = DEFAULTS | {
        "unit": "steps",
        "length": "1e3",
        "batches": "poisson",
        "rate": "0.01",
        "adjacency": "zero-out",
        "clipping": "gradient",
        "diameter": "2.5",
        "release": "tail",
        "window": "7",
        "loss": "holder",
        "smoothness": "3",
        "exponent": "0.25",
        "delta": "1e-7",
    }
    found = read(state).description
    assert found is not None
    training, loss = found.training, found.loss
    assert (training.steps, training.batches) == (1000, Poisson(0.01))
    assert (training.adjacency, training.clipping) == ("zero-out", "gradient")
    assert (training.diameter, training.release) == (2.5, TailAverage(7))
    assert loss == Loss.holder(constant=3.0, exponent=0.25, regularization=0.002)
    assert found.delta == 1e-7


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("nonconvex", Loss.nonconvex(smoothness=0.25, regularization=0.002)),
        ("unknown", Loss.unknown(regularization=0.002)),
    ],
)
def test_every_loss_is_offered(kind: str, loss: Loss) -> None:
    found = read(DEFAULTS | {"loss": kind}).description
    assert found is not None
    assert found.loss == loss


def test_an_empty_diameter_is_no_projection() -> None:
    found = read(DEFAULTS | {"diameter": ""}).description
    assert found is not None
    assert found.training.diameter == math.inf


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("records", "0", ">= 1"),
        ("records", "-5", ">= 1"),
        ("records", "many", "whole number"),
        ("records", "3.5", "whole number"),
        ("records", "60,000", "whole number"),
        ("records", "1e15", "at most"),
        ("records", "", "whole number"),
        ("length", "-1", ">= 0"),
        ("length", "0.0001", "steps is an integer"),
        ("length", "nan", "number such as"),
        ("length", "1e300", "<="),
        ("step_size", "-0.1", ">= 0"),
        ("step_size", "inf", "finite"),
        ("step_size", "1e400", "finite"),
        ("noise", "none", "number such as"),
        ("noise", "-1", ">= 0"),
        ("gradient_norm", "-1", ">= 0"),
        ("size", "0", ">= 1"),
        ("size", "70000", "<= the number of records"),
        ("diameter", "-1", ">= 0"),
        ("diameter", "wide", "number such as"),
        ("smoothness", "-1", ">= 0"),
        ("strong_convexity", "5", "<= smoothness"),
        ("regularization", "-0.1", ">= 0"),
        ("delta", "0", "> 0"),
        ("person_records", "0", ">= 1"),
        ("person_records", "60001", "<= the number of records"),
        ("person_records", "", "whole number"),
        ("per_batch", "0", ">= 1"),
        ("per_batch", "two", "whole number"),
        ("first_step", "-1", ">= 0"),
        ("first_step", "2001", "<= the number of steps"),
        ("last_step", "2001", "<= the number of steps"),
        ("last_step", "1.5", "whole number"),
        ("own_norm", "5.1", "<= the training's"),
        ("own_norm", "-1", ">= 0"),
        ("delta", "2", "<= 1"),
        ("sgld_records", "0", ">= 1"),
        ("sgld_exponent", "99", "<= 5"),
        ("sgld_scale", "0", "> 0"),
        ("sgld_epochs", "1e9", "<= 500"),
        ("sgld_delta", "1", "<= 0.4"),
    ],
)
def test_a_bad_value_is_marked_at_its_field_in_words(field: str, text: str, words: str) -> None:
    reading = read(DEFAULTS | {field: text})
    assert set(reading.complaints) == {field}
    assert words in reading.complaints[field]
    if field.startswith("sgld"):
        assert reading.hump is None
        assert reading.description is not None
    else:
        assert reading.description is None
        assert reading.hump is not None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"batches": "poisson", "adjacency": "zero-out", "rate": "0"}, "rate"),
        ({"batches": "poisson", "adjacency": "zero-out", "rate": "1.5"}, "rate"),
        ({"release": "tail", "window": "0"}, "window"),
        ({"release": "tail", "window": "2001"}, "window"),
        ({"loss": "holder", "exponent": "2"}, "exponent"),
        ({"batches": "reshuffled", "unit": "steps", "length": "2e6"}, "length"),
        ({"records": "1e9", "size": "1", "unit": "steps"}, "size"),
        ({"person_records": "41", "per_batch": "1"}, "person_records"),
        ({"first_step": "9", "last_step": "8"}, "last_step"),
        ({"batches": "full", "unit": "steps", "length": "1e8", "last_step": "8"}, "length"),
    ],
)
def test_what_only_some_choices_need_is_checked_there(changes: dict[str, str], field: str) -> None:
    assert set(read(DEFAULTS | changes).complaints) == {field}


def test_all_bad_fields_are_marked_at_once() -> None:
    bad = {"records": "x", "noise": "y", "delta": "z", "smoothness": "w"}
    assert set(read(DEFAULTS | bad).complaints) == set(bad)


def test_whom_the_form_speaks_of() -> None:
    found = read(DEFAULTS).description
    assert found is not None
    assert found.unit == PrivacyUnit()
    told = {
        "person_records": "6",
        "per_batch": "2",
        "first_step": "5",
        "last_step": "9",
        "own_norm": "0.5",
    }
    found = read(DEFAULTS | told).description
    assert found is not None
    assert found.unit == PrivacyUnit(6, 2, 5, 9, 0.5)
    assert "per_batch" not in shown(DEFAULTS | {"batches": "full"})
    found = read(DEFAULTS | told | {"batches": "full"}).description
    assert found is not None
    assert found.unit == PrivacyUnit(6, None, 5, 9, 0.5)


def test_hidden_fields_are_not_read() -> None:
    state = DEFAULTS | {"rate": "nonsense", "exponent": "nonsense", "window": "nonsense"}
    assert {"rate", "exponent", "window"}.isdisjoint(shown(state))
    assert read(state).complaints == {}


def test_every_pair_of_batches_and_adjacency_is_covered() -> None:
    for batches in ("poisson", "without-replacement"):
        for adjacency in ("replace", "zero-out"):
            reading = read(DEFAULTS | {"batches": batches, "adjacency": adjacency})
            assert reading.description is not None
            assert reading.complaints == {}


def test_numbers_may_be_written_as_people_write_them() -> None:
    for text in ("60000", "6e4", "60_000", " 60000 ", "+60000", "6.0e4"):
        found = read(DEFAULTS | {"records": text}).description
        assert found is not None
        assert found.training.records == 60_000


_numbers = [name for name, field in FIELDS.items() if field.kind != "choice"]
_choices = {
    name: st.sampled_from([value for value, _ in field.options])
    for name, field in FIELDS.items()
    if field.kind == "choice"
}
_anything = st.text(max_size=12) | st.floats().map(repr) | st.integers().map(str)


@given(st.fixed_dictionaries({name: _anything for name in _numbers} | _choices))
def test_no_text_breaks_the_reading(state: dict[str, str]) -> None:
    reading = read(state)
    assert set(reading.complaints) <= set(FIELDS)
    assert reading.complaints or reading.description is not None


def test_presets_can_be_read() -> None:
    runs = {name: read(DEFAULTS | p.values).description for name, p in PRESETS.items()}
    assert all(runs.values())
    # As printed in the papers' captions and appendices.
    assert runs["chien-li-figure-1"].training == Training(
        records=5,
        steps=200,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        diameter=1.0,
        adjacency="replace",
    )
    c = Training.langevin(
        records=5000,
        steps=400,
        step_size=0.02,
        sigma=0.02,
        gradient_sensitivity=4.0,
        gradient_norm=2.0,
        adjacency="replace",
    )
    assert runs["chourasia-figure-2"].training.replace(noise=c.noise) == c
    assert math.isclose(runs["chourasia-figure-2"].training.noise, c.noise, rel_tol=1e-15)
    assert runs["mini-batch-logistic"].training.batches == Cyclic(1500)
