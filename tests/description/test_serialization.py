"""Descriptions as text: what is written is read back, and nothing else is."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate import (
    Arithmetic,
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
)
from lastiterate.description import Batches
from lastiterate.errors import DescriptionError

quantities = st.floats(0, 1e300, allow_subnormal=True)


@st.composite
def losses(draw: st.DrawFn) -> Loss:
    common: Any = {
        "regularization": draw(quantities),
        "provenance": draw(st.sampled_from(["proved", "declared", "estimated"])),
    }
    smoothness = draw(st.one_of(quantities, st.just(float("inf"))))
    kind = draw(st.sampled_from(["convex", "nonconvex", "holder", "unknown"]))
    if kind == "nonconvex":
        return Loss.nonconvex(smoothness=smoothness, **common)
    if kind == "holder":
        return Loss.holder(constant=smoothness, exponent=draw(st.floats(0, 1)), **common)
    if kind == "unknown":
        return Loss.unknown(**common)
    strong = draw(st.floats(0, min(smoothness, 1e300)))
    return Loss(smoothness=smoothness, strong_convexity=strong, **common)


@st.composite
def batches(draw: st.DrawFn, records: int) -> Batches:
    sizes = st.integers(1, records)
    return draw(
        st.one_of(
            st.just(FullBatch()),
            st.builds(Cyclic, sizes),
            st.builds(Shuffled, sizes),
            st.builds(Reshuffled, sizes),
            st.builds(WithoutReplacement, sizes),
            st.builds(Poisson, st.floats(0, 1, exclude_min=True)),
        )
    )


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    records = draw(st.integers(1, 2**53))
    scheme = draw(batches(records))
    steps = draw(st.integers(1, 12))
    equalised = scheme == FullBatch() and draw(st.booleans())
    per_step = st.one_of(quantities, st.lists(quantities, min_size=steps, max_size=steps))
    norm = draw(quantities)
    return Training(
        records=records,
        steps=steps,
        step_size=draw(quantities if equalised else per_step),
        noise=draw(per_step),
        gradient_norm=norm,
        batches=scheme,
        diameter=draw(st.one_of(quantities, st.just(float("inf")))),
        adjacency=draw(st.sampled_from(["replace", "zero-out"])),
        clipping=draw(st.sampled_from(["none", "gradient", "margin"])),
        sensitivity=draw(st.one_of(st.none(), st.floats(0, norm))),
        release=draw(st.one_of(st.just("last"), st.builds(TailAverage, st.integers(1, steps)))),
        schedule="equalised" if equalised else None,
        arithmetic=draw(st.one_of(st.just("exact"), st.builds(Arithmetic, error=quantities))),
    )


@settings(deadline=None)
@given(trainings())
def test_a_training_survives_json_and_toml(training: Training) -> None:
    for again in (
        Training.from_json(training.to_json()),
        Training.from_toml(training.to_toml()),
        Training.from_dict(training.to_dict()),
    ):
        assert again == training
        assert hash(again) == hash(training)
        # A derived sensitivity is still derived, a given one is still given.
        assert again.to_dict() == training.to_dict()


@settings(deadline=None)
@given(losses())
def test_a_loss_survives_json_and_toml(loss: Loss) -> None:
    for again in (
        Loss.from_json(loss.to_json()),
        Loss.from_toml(loss.to_toml()),
        Loss.from_dict(loss.to_dict()),
    ):
        assert again == loss
        assert hash(again) == hash(loss)


@given(trainings(), losses())
def test_the_text_is_what_other_programs_read(training: Training, loss: Loss) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    for thing in (training, loss):
        plain = json.loads(thing.to_json(), parse_constant=refuse)
        assert set(plain) == set(tomllib.loads(thing.to_toml()))


def test_a_sensitivity_read_back_follows_the_adjacency() -> None:
    run = Training(
        records=10,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=3.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    assert "sensitivity" not in run.to_dict()
    assert Training.from_toml(run.to_toml()).replace(adjacency="zero-out").sensitivity == 3.0


GOOD = {
    "records": 9,
    "steps": 2,
    "step_size": 1.0,
    "noise": 1.0,
    "gradient_norm": 1.0,
    "batches": {"scheme": "full"},
    "adjacency": "zero-out",
}


@pytest.mark.parametrize("field", sorted(GOOD))
def test_a_missing_field_is_named(field: str) -> None:
    table = {name: value for name, value in GOOD.items() if name != field}
    with pytest.raises(DescriptionError) as error:
        Training.from_dict(table)
    assert error.value.field.removeprefix("training.") == field


@pytest.mark.parametrize(
    ("cls", "table", "field"),
    [
        (Training, {**GOOD, "step_sise": 1.0}, "training.step_sise"),
        (Training, {**GOOD, "epochs": [1]}, "training.epochs"),
        (Training, {**GOOD, "sensitivity_basis": (1.0, "replace")}, "training.sensitivity_basis"),
        (Training, {**GOOD, "release": {"window": 3}}, "release.window"),
        (Training, {**GOOD, "release": {}}, "release.window"),
        (Training, {**GOOD, "noise": {"a": 1}}, "noise"),
        (Training, [1], "training"),
        (Loss, {"smothness": 1.0}, "loss.smothness"),
        (Loss, {}, "smoothness"),
        (Loss, "convex", "loss"),
    ],
)
def test_a_wrong_table_is_refused_by_name(cls: type, table: object, field: str) -> None:
    with pytest.raises(DescriptionError) as error:
        cls.from_dict(table)  # type: ignore[attr-defined]
    assert error.value.field == field


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1, 2]", "null", "3", "[" * 100_000, '{"a":' * 700 + "1" + "}" * 700, "9" * 9999],
)
@pytest.mark.parametrize("cls", [Training, Loss])
def test_broken_json_is_one_clear_error(cls: type, text: str) -> None:
    with pytest.raises(DescriptionError) as error:
        cls.from_json(text)  # type: ignore[attr-defined]
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "text", ["records =", "[[", "a = " + "[" * 100_000, "\x00", "a = 1\na = 2"]
)
@pytest.mark.parametrize("cls", [Training, Loss])
def test_broken_toml_is_one_clear_error(cls: type, text: str) -> None:
    with pytest.raises(DescriptionError, match=r"^description must be valid TOML"):
        cls.from_toml(text)  # type: ignore[attr-defined]


def test_a_name_that_occurs_twice_is_refused() -> None:
    """Somebody who reads the file would see one noise, the accountant another."""
    for table in (GOOD, GOOD | {"batches": {"scheme": "shuffled", "size": 2}}):
        text = json.dumps(table)
        twice = text.replace('"noise": 1.0', '"noise": 100.0, "noise": 1.0')
        inner = text.replace('"size": 2', '"size": 4, "size": 2')
        for wrong in {twice, inner} - {text}:
            with pytest.raises(DescriptionError, match="occurs twice"):
                Training.from_json(wrong)


def test_json_words_for_numbers_that_are_not() -> None:
    for word in ("NaN", "Infinity", "-Infinity", '"inf"'):
        text = json.dumps(GOOD).replace('"noise": 1.0', f'"noise": {word}')
        with pytest.raises(DescriptionError, match=r"^noise must"):
            Training.from_json(text)
