"""One column of a table, read as numbers, as texts, as dates or as truths.

What a column means is declared, and every file is read by that declaration: text of a CSV, or
values that a Parquet file or a data frame stored with a type. A cell that does not fit is named by
its place and never shown: messages travel further than records may.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError

Array = NDArray[Any]
_TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "1": 1.0, "0": 0.0}
_HIDDEN = "something else (not shown: error messages travel)"
EXACT = 2.0**53  # doubles below it are whole numbers without a gap


@dataclass(frozen=True)
class Cells:
    """A column, stored as something that means nothing here (lists, structures, bytes).

    Such a column can only be dropped; the kinds below read what they can. Holes are nan among
    numbers and "" among texts. Rows are counted from ``first``, as people do in such a file.
    """

    values: Any
    stored: str
    first: int = 1

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: NDArray[np.int64]) -> Self:
        """The cells of these places, in this order."""
        return replace(self, values=self.values[places])

    def numbers(self, name: str) -> Array:
        """Finite numbers."""
        self._refuse(name, "a number")

    def seconds(self, name: str) -> Array:
        """Dates and times as seconds since 1970, in universal time."""
        self._refuse(name, "a date")

    def truths(self, name: str) -> Array:
        """1 for true, 0 for false."""
        self._refuse(name, "true or false")

    def texts(self, name: str) -> list[str]:
        """As a CSV would hold them."""
        self._refuse(name, "a text")

    def _refuse(self, name: str, declared: str) -> NoReturn:
        why = (
            "how one becomes the other is not guessed. Declare what it is, or drop the column, or "
            "store it as plain numbers, texts, dates or truths"
        )
        raise DescriptionError(f"column {name!r}", f"stored as {self.stored}", declared, why)


def is_hole(cell: str) -> bool:
    """Whether nothing stands in a cell of a CSV.

    >>> [is_hole(cell) for cell in ("", "NaN", "null", "0", "none")]
    [True, True, True, False, False]
    """
    return cell == "" or cell.lower() in ("nan", "null")


def instant(text: str) -> float:
    """Seconds since 1970 of a date or time in ISO 8601; without a zone it is universal time.

    >>> instant("1969-12-31"), instant("1970-01-01T01:00:00+01:00")
    (-86400.0, 0.0)
    """
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


def misfit(row: int, name: str, declared: str) -> DescriptionError:
    """A cell that is not what its column is declared as."""
    why = "this is what the column is declared as"
    return DescriptionError(f"row {row}, column {name!r}", _HIDDEN, declared, why)


@dataclass(frozen=True)
class TextCells(Cells):
    """Cells of a CSV, or of a column of texts."""

    values: Sequence[str]
    stored: str = "text"
    first: int = 2  # the header is row 1

    def take(self, places: NDArray[np.int64]) -> Self:
        return replace(self, values=[self.values[place] for place in places.tolist()])

    def numbers(self, name: str) -> Array:
        return self._each(_finite, name, "a finite number")

    def seconds(self, name: str) -> Array:
        return self._each(instant, name, "a date as 2024-01-31, or with a time of the day")

    def truths(self, name: str) -> Array:
        return self._each(lambda cell: _TRUTHS[cell.lower()], name, "true or false")

    def texts(self, name: str) -> list[str]:
        return list(self.values)

    def _each(self, read: Callable[[str], float], name: str, declared: str) -> Array:
        numbers = np.empty(len(self.values))
        wrong = None
        for place, cell in enumerate(self.values):
            try:
                numbers[place] = math.nan if is_hole(cell) else read(cell)
            except (ValueError, KeyError, OverflowError):
                wrong = place
                break
        if wrong is not None:  # raised outside of the handler, whose own message shows the cell
            raise misfit(wrong + self.first, name, declared)
        return numbers


def _finite(cell: str) -> float:
    value = float(cell)
    if not math.isfinite(value) or "_" in cell:  # 1_000 is a number in Python alone
        raise ValueError
    return value


@dataclass(frozen=True)
class NumberCells(Cells):
    """Numbers or truths that a file or a data frame stored as such."""

    values: Array  # doubles
    exact: Any = None  # the column of Arrow, which has integers beyond 2^53 too

    def take(self, places: NDArray[np.int64]) -> Self:
        return replace(self, values=self.values[places], exact=self.exact.take(places))

    def numbers(self, name: str) -> Array:
        self._refuse_some(np.isinf(self.values), name, "a finite number")
        return self.values

    def truths(self, name: str) -> Array:
        wrong = ~(np.isnan(self.values) | np.isin(self.values, (0.0, 1.0)))
        self._refuse_some(wrong, name, "true or false")
        return self.values

    def texts(self, name: str) -> list[str]:
        return [spelled(value) for value in self.exact.to_pylist()]

    def _refuse_some(self, wrong: NDArray[np.bool_], name: str, declared: str) -> None:
        if wrong.any():
            raise misfit(int(np.argmax(wrong)) + self.first, name, declared)


def spelled(value: Any) -> str:
    """A value as a CSV would hold it.

    >>> [spelled(value) for value in (True, 2.0, 2**60 + 1, None, "a ")]
    ['true', '2', '1152921504606846977', '', 'a']
    """
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return str(int(value))  # whole numbers with holes are kept as doubles
    return str(value).strip()


@dataclass(frozen=True)
class MomentCells(Cells):
    """Dates and times that a file or a data frame stored as such."""

    values: Array  # seconds since 1970

    def seconds(self, name: str) -> Array:
        return self.values
