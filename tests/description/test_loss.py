"""What is known about the loss: every field validated, every kind consistent."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import Loss
from lastiterate.errors import DescriptionError

NOT_NUMBERS = [math.nan, -1.0, True, "1", [1.0], 10**400]
constants = st.floats(0, 1e6)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, None, -math.inf])
def test_smoothness(value: object) -> None:
    for make in (
        lambda: Loss(smoothness=value),  # type: ignore[arg-type]
        lambda: Loss.nonconvex(smoothness=value),  # type: ignore[arg-type]
        lambda: Loss.holder(constant=value, exponent=0.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(DescriptionError) as error:
            make()
        assert error.value.field == "smoothness"
        assert ">= 0" in str(error.value)


def test_infinite_smoothness_is_a_rough_loss_not_an_error() -> None:
    assert Loss(smoothness=math.inf).smoothness == math.inf


@pytest.mark.parametrize("field", ["strong_convexity", "regularization"])
@pytest.mark.parametrize("value", [*NOT_NUMBERS, math.inf, None])
def test_other_constants(field: str, value: object) -> None:
    with pytest.raises(DescriptionError) as error:
        Loss(**{"smoothness": math.inf, field: value})  # type: ignore[arg-type]
    assert error.value.field == field
    assert "finite number >= 0" in str(error.value)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, math.inf, 1.01, None])
def test_exponent(value: object) -> None:
    with pytest.raises(DescriptionError, match=r"^exponent must"):
        Loss.holder(constant=1.0, exponent=value)  # type: ignore[arg-type]


def test_exponent_only_for_hoelder_losses() -> None:
    with pytest.raises(DescriptionError, match=r"^exponent must"):
        Loss(smoothness=1.0, exponent=0.5)


@given(constants, constants)
def test_strong_convexity_never_exceeds_smoothness(smooth: float, strong: float) -> None:
    if strong <= smooth:
        assert Loss(smoothness=smooth, strong_convexity=strong).convex
    else:
        with pytest.raises(DescriptionError, match=r"^strong_convexity must"):
            Loss(smoothness=smooth, strong_convexity=strong)


@pytest.mark.parametrize("kind", ["nonconvex", "holder", "unknown"])
def test_only_convex_losses_are_strongly_convex(kind: str) -> None:
    exponent = 0.5 if kind == "holder" else None
    smoothness = None if kind == "unknown" else 2.0
    with pytest.raises(DescriptionError, match="strong_convexity"):
        Loss(smoothness, strong_convexity=1.0, kind=kind, exponent=exponent)  # type: ignore[arg-type]


def test_an_unknown_loss_has_no_smoothness() -> None:
    with pytest.raises(DescriptionError, match=r"^smoothness must"):
        Loss(1.0, kind="unknown")


@pytest.mark.parametrize("value", ["Convex", "", None, 1, True])
def test_words(value: object) -> None:
    with pytest.raises(DescriptionError, match=r"^kind must"):
        Loss(1.0, kind=value)  # type: ignore[arg-type]
    with pytest.raises(DescriptionError, match=r"^provenance must"):
        Loss(1.0, provenance=value)  # type: ignore[arg-type]


def test_it_is_a_value() -> None:
    loss = Loss(smoothness=1, strong_convexity=0.5, regularization=0.1)
    assert isinstance(loss.smoothness, float)
    assert len({loss, Loss(1.0, 0.5, 0.1), Loss(1.0, 0.5)}) == 2
    assert pickle.loads(pickle.dumps(loss)) == loss
    with pytest.raises(FrozenInstanceError):
        loss.smoothness = 2.0  # type: ignore[misc]


def test_with_regularization_changes_nothing_else_and_validates() -> None:
    loss = Loss.holder(constant=2.0, exponent=0.5, provenance="proved")
    other = loss.with_regularization(0.25)
    assert other == Loss.holder(
        constant=2.0, exponent=0.5, provenance="proved", regularization=0.25
    )
    with pytest.raises(DescriptionError, match=r"^regularization must"):
        loss.with_regularization(-1)


def test_it_says_who_vouches() -> None:
    assert "estimated" in str(Loss(1.0, provenance="estimated"))
    assert "2-strongly convex" in str(Loss(3.0, 2.0))
    assert "unknown regularity" in str(Loss.unknown())
