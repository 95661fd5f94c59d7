"""Reading a CSV strictly: every fault is named by its row and column, and nothing is guessed.

No message shows a cell: messages travel further than records may. Nor does one show the header of
a table that does not fit: where somebody forgot the header, that is the first record.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lastiterate.errors import DescriptionError

_HOLE = "a missing value would have to be filled, and how it is filled can leak"


@dataclass(frozen=True)
class Table:
    """A header and rows of text; the header is row 1."""

    names: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def column(self, name: str) -> list[str]:
        """All cells of a column; none may be empty."""
        if name not in self.names:
            allowed = f"one of the {len(self.names)} names in the first line (not shown)"
            why = "the table has no such column, or no header"
            raise DescriptionError("column", name, allowed, why)
        place = self.names.index(name)
        cells = [row[place] for row in self.rows]
        for row, cell in enumerate(cells, 2):
            if cell == "" or cell.lower() in ("nan", "null"):
                raise DescriptionError(f"row {row}, column {name!r}", "empty", "a value", _HOLE)
        return cells


def read_table(path: Path) -> Table:
    """A comma-separated file with a header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            lines = [tuple(cell.strip() for cell in line) for line in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = "it is read once, from beginning to end"
        fault = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise DescriptionError("table", f"{path} ({fault})", "a readable CSV file", why) from None
    while lines and not lines[-1]:  # an empty line at the end is no row
        lines.pop()
    if not lines:
        raise DescriptionError("table", f"{path}, which is empty", "a CSV with a header", _NOBODY)
    names, rows = lines[0], lines[1:]
    repeated = [k for k, name in enumerate(names, 1) if names.count(name) > 1 or not name]
    if repeated:
        why = "a column is found by its name, which is not shown: it might be a record"
        allowed = "free of empty or repeated names"
        raise DescriptionError("header", f"faulty in column {repeated[0]}", allowed, why)
    if not rows:
        raise DescriptionError("table", f"{path} with 0 records", "a header and records", _NOBODY)
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            why = "cells of a ragged row stand under the wrong names"
            allowed = f"{len(names)} cells, as in the header"
            raise DescriptionError(f"row {number}", f"{len(row)} cells", allowed, why)
    return Table(names, rows)


_NOBODY = "a model of nobody protects nobody"


def as_number(cell: str, row: int, column: str) -> float:
    """A finite number, or an error that says where it is not."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        why = "the column is declared as numeric"
        found = "something else (not shown: error messages travel)"
        raise DescriptionError(f"row {row}, column {column!r}", found, "a finite number", why)
    return value
