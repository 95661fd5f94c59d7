"""What one column of a table means, and which features it becomes.

Every feature lies in [0, 1], whatever the cells hold: ranges and categories are declared, never
measured.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError
from lastiterate.models.cells import EXACT, Array, Cells, instant, is_hole, spelled
from lastiterate.models.table import empty

BLANK = "?"  # what a schema to fill in has in the place of what only its user may say
_CLIPPED = "values are clipped to it"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Numeric:
    """Numbers, clipped to [low, high] and scaled to [0, 1]; then whether the cell is empty."""

    low: float
    high: float
    missing: bool = False

    def features(self, name: str) -> list[str]:
        """What its features are called."""
        return [name, *_indicator(name, self.missing)]

    def columns(self, cells: Cells, name: str) -> Array:
        """The features of every cell."""
        values = self.read(cells, name)
        holes = np.isnan(values)
        if holes.any() and not self.missing:
            raise empty(int(np.argmax(holes)) + cells.first, name)
        inside = np.clip(np.where(holes, self.low, values), self.low, self.high)
        scaled = (inside - self.low) / (self.high - self.low)
        return np.column_stack([np.where(holes, 0.0, scaled), *([holes] if self.missing else [])])

    def read(self, cells: Cells, name: str) -> Array:
        """The cells as numbers."""
        return cells.numbers(name)

    def to_table(self) -> dict[str, Any]:
        """The declaration as plain values."""
        return {"low": self.low, "high": self.high, **_flags(missing=self.missing)}


@dataclass(frozen=True)
class Date(Numeric):
    """Dates or times; the range is in seconds since 1970, and declared as in ISO 8601."""

    def read(self, cells: Cells, name: str) -> Array:
        return cells.seconds(name)

    def to_table(self) -> dict[str, Any]:
        low, high = (_EPOCH + datetime.timedelta(seconds=end) for end in (self.low, self.high))
        return {"low": low.isoformat(), "high": high.isoformat(), **_flags(missing=self.missing)}


@dataclass(frozen=True)
class Boolean(Numeric):
    """True or false."""

    low: float = 0.0
    high: float = 1.0

    def read(self, cells: Cells, name: str) -> Array:
        return cells.truths(name)

    def to_table(self) -> dict[str, Any]:
        return {"boolean": True, **_flags(missing=self.missing)}


@dataclass(frozen=True)
class Categorical:
    """One of a list; one feature of zeros and ones for each.

    With ``other`` one more for whatever is not in the list, with ``missing`` one for empty cells.
    The classes of a target may be numbers or truths: predictions have their type.
    """

    categories: tuple[Any, ...]
    other: bool = False
    missing: bool = False

    def features(self, name: str) -> list[str]:
        """What its features are called."""
        others = [f"{name} is another value"] if self.other else []
        named = [f"{name} = {category}" for category in self.categories]
        return [*named, *others, *_indicator(name, self.missing)]

    def columns(self, cells: Cells, name: str) -> Array:
        """The features of every cell."""
        places = self.places(cells, name)
        ones = np.zeros((len(places), len(self.features(name))))
        ones[np.arange(len(places)), places] = 1.0
        return ones

    def places(self, cells: Cells, name: str) -> NDArray[np.int64]:
        """The place of every cell among the features."""
        known, texts = self._known(), cells.texts(name)
        places = {text: self._place(text, known) for text in set(texts)}
        found = np.array([places[text] for text in texts], dtype=np.int64)
        if (found == _EMPTY).any():
            raise empty(int(np.argmax(found == _EMPTY)) + cells.first, name)
        if (found == _UNKNOWN).any():
            row = int(np.argmax(found == _UNKNOWN)) + cells.first
            raise DescriptionError(
                f"row {row}, column {name!r}",
                "another value (not shown: error messages travel)",
                f"one of the declared values {', '.join(map(str, self.categories[:20]))}",
                "a value that appears only in private records must not change the model's shape; "
                "the refusal tells that there is one, so declare all that can occur, or (of a "
                "feature) other = true",
            )
        return found

    def _known(self) -> dict[str, int]:
        """The declared texts, then how a file with types spells the same numbers and truths."""
        named = list(enumerate(self.categories))
        known = {each if isinstance(each, str) else spelled(each): place for place, each in named}
        for place, category in ((place, str(each)) for place, each in named):
            known.setdefault(category, place)
            if category in ("True", "False"):
                known.setdefault(category.lower(), place)
            whole = category.removesuffix(".0")
            if whole.removeprefix("-").isdecimal():
                known.setdefault(whole, place)
        return known

    def _place(self, text: str, known: Mapping[str, int]) -> int:
        if text in known:
            return known[text]
        if is_hole(text):
            return len(self.categories) + self.other if self.missing else _EMPTY
        return len(self.categories) if self.other else _UNKNOWN

    def to_table(self) -> dict[str, Any]:
        """The declaration as plain values."""
        return {"categories": list(self.categories)} | _flags(
            other=self.other, missing=self.missing
        )


Column = Numeric | Categorical
_UNKNOWN, _EMPTY = -1, -2


def _indicator(name: str, missing: bool) -> list[str]:
    return [f"{name} is missing"] if missing else []


def _flags(**flags: bool) -> dict[str, bool]:
    return {name: True for name, flag in flags.items() if flag}


def declared(name: str, entry: Any, target: bool = False) -> Column:
    """The meaning that an entry of a schema declares.

    Args:
        name: of the column.
        entry: its declaration.
        target: whether it is the target, whose classes keep their type; categories are texts.

    >>> declared("age", {"low": 0, "high": 120, "missing": True})
    Numeric(low=0.0, high=120.0, missing=True)
    >>> declared("ill", {"categories": [0, 1]}, target=True).categories
    (0, 1)
    """
    where = f"column {name!r}"
    if _blank(entry):
        allowed = "filled in, or dropped"
        why = (
            "only you can say what is publicly known: low and high, categories, or boolean = true. "
            'What is read off the records would leak; a column that is not needed is "drop"'
        )
        raise DescriptionError(where, f"left as {BLANK!r} in the schema", allowed, why)
    rest = dict(entry) if isinstance(entry, Mapping) else {}
    missing, other = (rest.pop(flag, False) for flag in ("missing", "other"))
    shape = set(rest)
    if not (
        isinstance(missing, bool)
        and isinstance(other, bool)
        and (shape in ({"low", "high"}, {"categories"}) or rest == {"boolean": True})
        and (not other or shape == {"categories"})
    ):
        allowed = (
            "a table with low and high, with categories (and other = true), or with boolean = "
            "true; each with missing = true if cells may be empty"
        )
        raise DescriptionError(where, entry, allowed, "every column has a declared meaning")
    if shape == {"boolean"}:
        return Boolean(missing=missing)
    if shape == {"categories"}:
        values = rest["categories"]
        if not isinstance(values, list) or len({str(v) for v in values}) < max(len(values), 1):
            why = "every category is a column of its own"
            raise DescriptionError(f"{where}: categories", values, "a list without repeats", why)
        named = _labels(where, values) if target else tuple(map(str, values))
        return Categorical(named, other, missing)
    low, high = _seconds(rest["low"]), _seconds(rest["high"])
    kind = Numeric if low is None or high is None else Date
    if low is None or high is None:
        low, high = (number(f"{where}: {end}", rest[end], _CLIPPED) for end in ("low", "high"))
    if not 0 < high - low < np.inf:
        why = "values are clipped to the range and scaled by its width"
        raise DescriptionError(where, dict(entry), "with low below high", why)
    return kind(low, high, missing)


def _labels(where: str, values: list[Any]) -> tuple[Any, ...]:
    """Classes of one type: truths, whole numbers (also stored as doubles), or texts."""
    plain = [each.item() if isinstance(each, np.generic) else each for each in values]
    kinds = {type(each) for each in plain}
    if kinds == {bool}:
        return tuple(plain)
    if not kinds & {bool, int, float}:
        return tuple(map(str, plain))
    if not kinds <= {int, float} or not all(abs(each) < EXACT and each % 1 == 0 for each in plain):
        allowed = "all texts, all true or false, or all whole numbers between -2^53 and 2^53"
        raise DescriptionError(f"{where}: classes", values, allowed, "predictions have their type")
    return tuple(plain if kinds == {int} else map(float, plain))


def _blank(entry: Any) -> bool:
    """Whether something in it waits to be filled in."""
    if isinstance(entry, Mapping):
        return any(_blank(value) for value in entry.values())
    return bool(entry == BLANK or entry == [BLANK])


def _seconds(end: Any) -> float | None:
    """A date of TOML, or a text that is one, to the second."""
    try:  # a datetime of TOML is a date too
        seconds = instant(end.isoformat() if isinstance(end, datetime.date) else end) // 1.0
        _ = _EPOCH + datetime.timedelta(seconds=seconds)  # a zone may lead out of the calendar
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds
