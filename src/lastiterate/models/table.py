"""Reading a table strictly: every fault is named by its row and column, and nothing is guessed.

A CSV (compressed by gzip or not), a file with types, or a data frame (`frames`). What a file is,
its first bytes say. No message shows a cell: messages travel further than records may. Nor does one
show the header of a table that does not fit: where somebody forgot the header, that is the first
record.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import os
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.progress import Progress
from lastiterate.errors import DescriptionError
from lastiterate.models.cells import Cells, TextCells, is_hole
from lastiterate.models.frames import MAGIC, is_frame, need_pyarrow, of_file, of_frame

_HOLE = "a missing value would have to be filled, and how it is filled can leak"
_NOBODY = "a model of nobody protects nobody"
_GZIP = b"\x1f\x8b"
_ROOM, _RATIO = 1 << 26, 200  # bytes that any packed file may hold, and per byte of its own
_AT_ONCE = 10_000  # rows between two looks at the clock
Source = Any  # a path, a data frame of pandas or Polars, a relation of DuckDB, a table of Arrow


@dataclass(frozen=True)
class Table:
    """Names and columns."""

    names: tuple[str, ...]
    columns: Sequence[Cells]

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def column(self, name: str) -> Cells:
        """The cells of a column."""
        if name not in self._places:
            allowed = f"one of the {len(self.names)} names of the table (not shown)"
            why = "the table has no such column, or no header"
            raise DescriptionError("column", name, allowed, why)
        return self.columns[self._places[name]]

    def texts(self, name: str) -> list[str]:
        """All cells of a column as texts; none may be empty."""
        cells = self.column(name)
        texts = cells.texts(name)
        for row, cell in enumerate(texts, cells.first):
            if is_hole(cell):
                raise empty(row, name)
        return texts

    def take(self, places: NDArray[np.int64]) -> Table:
        """The rows of these places, in this order."""
        return Table(self.names, [cells.take(places) for cells in self.columns])


def empty(row: int, name: str) -> DescriptionError:
    """A hole where none is declared."""
    return DescriptionError(f"row {row}, column {name!r}", "empty", "a value", _HOLE)


def read_table(source: Source) -> Table:
    """A table in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "people.csv"
    ...     _ = path.write_text("age,job\\n41,nurse\\n")
    ...     read_table(path).column("job").texts("job")
    ['nurse']
    """
    if is_frame(source):
        names, columns = of_frame(source)
        return _checked("the table", names, columns)
    path = _path(source)
    if (kind := _kind(path)) is not None:
        names, columns = of_file(path, kind)
        return _checked(str(path), names, columns)
    rows = list(_lines(path))
    while rows and not rows[-1]:  # an empty line at the end is no row
        rows.pop()
    if not rows:
        raise _nothing(path)
    names, rows = list(rows[0]), rows[1:]
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            why = "cells of a ragged row stand under the wrong names"
            allowed = f"{len(names)} cells, as in the header"
            raise DescriptionError(f"row {number}", f"{len(row)} cells", allowed, why)
    texts = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return _checked(str(path), names, [TextCells(cells) for cells in texts])


def read_header(source: Source) -> tuple[list[str], list[Cells] | None]:
    """The names of the columns, and cells that tell their types alone; a CSV keeps none."""
    if is_frame(source):
        names, cells = of_frame(source.head(0) if hasattr(source, "head") else source)
        return _named(names), cells
    path = _path(source)
    if (kind := _kind(path)) is not None:
        names, cells = of_file(path, kind, header_only=True)
        return _named(names), cells
    with closing(_lines(path)) as lines:
        header = next(lines, ())
    if not header:
        raise _nothing(path)
    return _named(list(header)), None


def check_file(source: Source) -> None:
    """Raise if a table is a file that cannot be opened, or that needs a package that is missing."""
    if is_frame(source):
        return
    path = _path(source)
    if not path.exists() or path.is_dir():
        error = OSError(errno.EISDIR if path.is_dir() else errno.ENOENT, "")
        error.strerror = os.strerror(error.errno or 0)
        raise _unreadable(path, error)
    if _kind(path) is not None:
        need_pyarrow()


def _nothing(path: Path) -> DescriptionError:
    return DescriptionError("table", f"{path}, which is empty", "a CSV with a header", _NOBODY)


def _path(source: Source) -> Path:
    if not isinstance(source, str | os.PathLike):
        why = "nothing else is known to have rows and columns with names"
        allowed = "a path, a data frame of pandas or Polars, a DuckDB relation or an Arrow table"
        raise DescriptionError("table", f"a {type(source).__name__}", allowed, why)
    return Path(source)


def _checked(where: str, names: list[str], columns: Sequence[Cells]) -> Table:
    table = Table(tuple(_named(names)), columns)
    if not names or not len(table):
        raise DescriptionError("table", f"{where} with 0 records", "a header and records", _NOBODY)
    return table


def _named(names: list[str]) -> list[str]:
    names = [name.strip() for name in names]
    counts = Counter(names)
    for place, name in enumerate(names, 1):
        if not name or counts[name] > 1:
            why = "a column is found by its name, which is not shown: it might be a record"
            allowed = "free of empty or repeated names"
            raise DescriptionError("header", f"faulty in column {place}", allowed, why)
    return names


def _kind(path: Path) -> str | None:
    """Which of `frames` reads the file; None for a CSV, and for whatever cannot be opened twice."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise _unreadable(path, error) from None
    binary = not head.isascii() or any(byte < 32 and byte not in b"\t\r\n" for byte in head)
    return MAGIC.get(head[:4]) if binary else None  # a CSV may have a column called PAR1


def _lines(path: Path) -> Generator[tuple[str, ...], None, None]:
    """The lines of a CSV, cells without the blanks around them."""
    try:
        with path.open("rb") as file, _unpacked(file, path) as content:
            text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
            size = path.stat().st_size if path.is_file() else 0
            yield from _watched(csv.reader(text, skipinitialspace=True, strict=True), file, size)
    except (OSError, EOFError, UnicodeError, csv.Error, zlib.error) as error:
        fault = _unreadable(path, error)
    else:
        return
    raise fault  # outside of the handler, whose error holds a part of the file


def _watched(reader: Iterator[list[str]], file: Any, size: int) -> Iterator[tuple[str, ...]]:
    bar, before = Progress("bytes of the table", 0, size), 0
    try:
        for number, line in enumerate(reader):
            yield tuple(cell.strip() for cell in line)
            if bar.watched and number % _AT_ONCE == 0:
                bar.add(file.tell() - before)
                before = file.tell()
    finally:
        bar.close()


def _unreadable(path: Path, error: Exception) -> DescriptionError:
    fault = getattr(error, "strerror", None) or type(error).__name__
    why = "it is read once, from beginning to end"
    allowed = "a readable CSV file in UTF-8, or Parquet, Arrow or Feather"
    return DescriptionError("table", f"{path} ({fault})", allowed, why)


def _unpacked(file: io.BufferedReader, path: Path) -> Any:
    return _Packed(file, path) if file.peek(2)[:2] == _GZIP else file


class _Packed(gzip.GzipFile):
    """A packed file; one that is made to fill memory or the clock is refused on the way."""

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._path, self._packed = path, file

    def read1(self, size: int = -1) -> bytes:
        content = super().read1(size)
        if self.tell() > _ROOM + _RATIO * self._packed.tell():
            why = "such a file is made to fill memory; if it is real, unpack it first"
            allowed = f"one that grows at most {_RATIO} times"
            raise DescriptionError("table", f"{self._path}, packed", allowed, why)
        return content
