"""Numbers are in their range, whatever is given in their place."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate.description.fields import integer, number
from lastiterate.errors import DescriptionError

ENDS = st.none() | st.floats(-3, 3)


@given(
    value=st.floats(allow_nan=True, allow_infinity=True) | st.floats(-3, 3) | st.integers(-3, 3),
    above=ENDS,
    at_least=ENDS,
    at_most=ENDS,
    below=ENDS,
    infinite=st.booleans(),
)
def test_a_number_is_returned_if_it_is_in_range_and_refused_if_not(value, infinite, **ends):
    given_ends = {name: end for name, end in ends.items() if end is not None}
    inside = not math.isnan(value) and value > -math.inf and (infinite or value < math.inf)
    if "above" in given_ends:
        inside = inside and value > given_ends["above"]
    if "at_least" in given_ends:
        inside = inside and value >= given_ends["at_least"]
    if "at_most" in given_ends:
        inside = inside and value <= given_ends["at_most"]
    if "below" in given_ends:
        inside = inside and value < given_ends["below"]
    if inside:
        assert number("x", value, infinite=infinite, **given_ends) == value
        return
    with pytest.raises(DescriptionError, match=r"^x must be ") as refused:
        number("x", value, infinite=infinite, **given_ends)
    for name, end in given_ends.items():
        sign = {"above": ">", "at_least": ">=", "at_most": "<=", "below": "<"}[name]
        assert f"{sign} {end:g}" in str(refused.value)


@pytest.mark.parametrize("value", [True, "1", None, 1j, np.ones(1), [1.0], 10**400])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(DescriptionError):
        number("x", value, at_least=0)


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(1), Fraction(1, 2)])
def test_numbers_of_other_kinds_are_numbers(value: Any) -> None:
    found = number("x", value, above=0, below=2)
    assert type(found) is float
    assert found == value


@given(st.integers(-5, 15))
def test_whole_numbers_have_two_ends(value: int) -> None:
    if 2 <= value <= 10:
        assert integer("n", value, at_least=2, at_most=10) == value
    else:
        with pytest.raises(DescriptionError, match=r"^n must"):
            integer("n", value, at_least=2, at_most=10)


@pytest.mark.parametrize("value", [2**53 + 1, 3.0, True, "3", math.nan])
def test_what_is_not_counted_exactly_is_refused(value: Any) -> None:
    with pytest.raises(DescriptionError):
        integer("n", value)
