"""JSON values as numbers, with exact types and bounded sizes.

A list of doubles is a JSON list or, compressed, ``{"float64": base64(zlib(little-endian bytes)),
"length": n}``. Infinity is the text "inf". Nothing expands beyond its declared length.
"""

from __future__ import annotations

import base64
import math
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from lastiterate.kernel.balls import MalformedError

MOST_NUMBERS = 40_000_000  # in one certificate, all lists together: 320 MB
LARGEST_WHOLE = 2**53
Table = Mapping[str, Any]


def well_formed(condition: Any, message: str) -> None:
    """Raise a `MalformedError` unless the condition holds."""
    if not condition:
        raise MalformedError(message)


def check_sizes(value: Any) -> int:
    """Return how many numbers the lists of a JSON value hold; raise where there are too many."""
    if isinstance(value, Mapping):
        if set(value) == {"float64", "length"}:
            return whole(value["length"], "length", 0, MOST_NUMBERS)
        total = sum(map(check_sizes, value.values()))
    elif isinstance(value, list):
        total = len(value) + sum(
            check_sizes(item) for item in value if isinstance(item, list | dict)
        )
    else:
        return 0
    well_formed(total <= MOST_NUMBERS, f"more than {MOST_NUMBERS:,} numbers")
    return total


def fields(value: Any, name: str, required: Sequence[str], optional: Sequence[str] = ()) -> Table:
    """The table itself, if it has the required fields and no unknown ones."""
    well_formed(isinstance(value, Mapping), f"{name} is not a table")
    found = set(value)
    known = set(required) <= found <= {*required, *optional}
    well_formed(known, f"{name} has missing or unknown fields: {sorted(map(str, found))}"[:300])
    return value  # type: ignore[no-any-return]


def whole(value: Any, name: str, least: int = 0, most: int = LARGEST_WHOLE) -> int:
    """A whole number in the range."""
    well_formed(type(value) is int and least <= value <= most, f"{name} is not a whole number")
    return int(value)


def number(
    value: Any, name: str, least: float = 0.0, most: float = math.inf, *, infinite: bool = False
) -> float:
    """A double in the range; infinite only where that is allowed."""
    if infinite and value == "inf":
        return math.inf
    good = type(value) in (int, float) and abs(value) <= sys.float_info.max
    well_formed(good and least <= value <= most, f"{name} is not a number in its range")
    return float(value)


def word(value: Any, name: str, options: Sequence[str]) -> str:
    """One of a few texts."""
    well_formed(isinstance(value, str) and value in options, f"{name} is not one of {options}")
    return str(value)


def flag(value: Any, name: str) -> bool:
    """True or false."""
    well_formed(isinstance(value, bool), f"{name} is not true or false")
    return bool(value)


def numbers(value: Any, name: str, length: int | None = None) -> array[float]:
    """A list of finite doubles, none negative, of this length."""
    found = doubles(value, name)
    well_formed(length is None or len(found) == length, f"{name} does not have {length} numbers")
    well_formed(all(0 <= x < math.inf for x in found), f"{name} holds no finite numbers >= 0")
    return found


def doubles(value: Any, name: str) -> array[float]:
    """A list of doubles, as it is."""
    if isinstance(value, list):
        well_formed(all(type(x) in (int, float) for x in value), f"{name} is not a list of numbers")
        try:
            return array("d", value)
        except OverflowError:
            raise MalformedError(f"{name} holds a number beyond every double") from None
    table = fields(value, name, ("float64", "length"))
    length = whole(table["length"], name, 0, MOST_NUMBERS)
    found = array("d")
    try:
        reader = zlib.decompressobj()
        raw = reader.decompress(base64.b64decode(table["float64"], validate=True), 8 * length + 1)
    except (zlib.error, ValueError, TypeError):
        raise MalformedError(f"{name} cannot be expanded") from None
    complete = len(raw) == 8 * length and reader.eof and not reader.unused_data
    well_formed(complete, f"{name} does not hold the {length} numbers it declares")
    found.frombytes(raw)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def wholes(value: Any, name: str, most: int) -> list[int]:
    """A list of whole numbers from 0 to ``most``, which may be written as doubles."""
    found = numbers(value, name)
    well_formed(all(x <= most and x == int(x) for x in found), f"{name} holds other numbers")
    return [int(x) for x in found]


def flags(value: Any, name: str, length: int) -> list[bool]:
    """A list of true and false, which may be written as 1 and 0."""
    if isinstance(value, list) and all(type(x) is bool for x in value):
        value = [int(x) for x in value]
    found = numbers(value, name, length)
    well_formed(all(x in (0, 1) for x in found), f"{name} holds other values than true and false")
    return [bool(x) for x in found]
