"""How batches are described: sizes, rates, what is dropped, what a message says."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import (
    Cyclic,
    FullBatch,
    Poisson,
    RandomAllocation,
    Reshuffled,
    Shuffled,
    WithoutReplacement,
)
from lastiterate.description.batches import SCHEMES, read_batches
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.noise import source

HUGE = pytest.param(10**5000, id="5000-digits")
SIZED = (Cyclic, Shuffled, Reshuffled, RandomAllocation, WithoutReplacement)
PARTITIONS = (Cyclic, Shuffled, Reshuffled)


@pytest.mark.parametrize("scheme", SIZED)
@pytest.mark.parametrize(
    "size", [0, -3, 2.0, math.nan, math.inf, True, "10", None, [10], 2**53 + 1, HUGE]
)
def test_a_bad_size_is_refused_by_name(scheme: type, size: object) -> None:
    with pytest.raises(DescriptionError) as error:
        scheme(size)
    assert error.value.field == "batches.size"
    assert isinstance(error.value, (ValueError, LastIterateError))
    assert "an integer" in str(error.value)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0000001, math.nan, math.inf, True, "0.1", None])
def test_a_rate_outside_zero_to_one_is_refused(rate: object) -> None:
    with pytest.raises(DescriptionError, match=r"^batches\.rate must"):
        Poisson(rate)  # type: ignore[arg-type]


def test_a_rate_of_one_is_allowed() -> None:
    assert Poisson(1).rate == 1.0


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_partitions_cover_all_records_but_the_dropped_ones(records: int, size: int) -> None:
    for scheme in PARTITIONS:
        batches = scheme(size)
        if size > records:
            with pytest.raises(DescriptionError, match=r"^batches\.size must"):
                batches.of(records)
            continue
        assert batches.of(records) is batches
        per_epoch, dropped = batches.per_epoch(records), batches.dropped(records)
        assert per_epoch * size + dropped == records
        assert 0 <= dropped < size
        assert per_epoch >= 1


@given(st.integers(1, 10**6), st.data())
def test_poisson_batches_of_an_expected_size(records: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, records))
    scheme = Poisson(batch_size=size)
    assert math.isnan(scheme.rate)  # before it is used with records
    assert scheme.of(records) == Poisson(size / records)
    assert scheme.divisor(records) == Poisson(size / records).divisor(records)
    assert next(scheme.rows(records, source(0)), None) is not None
    with pytest.raises(DescriptionError) as error:
        scheme.of(size - 1)
    assert error.value.field == "batches.batch_size"


def test_the_divisor_is_nominal() -> None:
    assert FullBatch().divisor(7) == 7.0
    assert Shuffled(3).divisor(7) == 3.0
    assert Poisson(0.5).divisor(7) == 3.5


def test_schemes_of_one_size_are_different_values() -> None:
    assert len({scheme(10) for scheme in SIZED}) == len(SIZED)
    assert len({Cyclic(10), Cyclic(10), Cyclic(11)}) == 2
    assert repr(Shuffled(size=1500)) == "Shuffled(size=1500)"


@pytest.mark.parametrize(
    "batches",
    [
        FullBatch(),
        Cyclic(2),
        Shuffled(3),
        Reshuffled(4),
        RandomAllocation(4),
        RandomAllocation(4, same_every_epoch=True),
        Poisson(0.25),
        WithoutReplacement(5),
    ],
)
def test_every_scheme_reads_its_own_table(batches: object) -> None:
    name = batches.name  # type: ignore[attr-defined]
    assert SCHEMES[name] is type(batches)
    assert read_batches("batches", batches.to_dict()) == batches  # type: ignore[attr-defined]
    assert read_batches("batches", batches) is batches


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"scheme": "shufled", "size": 3}, "batches.scheme"),
        ({"size": 3}, "batches.scheme"),
        ({"scheme": "shuffled"}, "batches"),
        ({"scheme": "shuffled", "rate": 0.1}, "batches"),
        ({"scheme": "poisson", "size": 3}, "batches"),
        ({"scheme": "poisson"}, "batches.rate"),
        ({"scheme": "poisson", "rate": 0.1, "batch_size": 3}, "batches.rate"),
        ({"scheme": "full", "size": 3}, "batches"),
        ({"scheme": "full", "sise": 3}, "batches.sise"),
        ("shuffled", "batches"),
        (None, "batches"),
        ([1, 2], "batches"),
    ],
)
def test_a_bad_table_is_refused_by_name(table: object, field: str) -> None:
    with pytest.raises(DescriptionError) as error:
        read_batches("batches", table)
    assert error.value.field == field


def test_same_every_epoch_is_true_or_false() -> None:
    for value in (1, 0, "yes", None):
        with pytest.raises(DescriptionError, match="same_every_epoch"):
            RandomAllocation(4, same_every_epoch=value)  # type: ignore[arg-type]


def test_random_allocation_drops_nobody_and_has_a_nominal_divisor() -> None:
    scheme = RandomAllocation(10)
    assert (scheme.per_epoch(47), scheme.dropped(47), scheme.divisor(47)) == (4, 0, 10.0)
    assert scheme.share(47) == 0.25
    assert scheme.largest(47) == 47
    assert Fraction(10) == scheme.exact_divisor(47)
