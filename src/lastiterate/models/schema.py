"""What a table's columns mean, declared in advance: ranges, categories, classes.

The largest age in a private table is private, and so is the list of jobs that occur in it. So both
are declared (in a TOML file or by flags) or read off another, public table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError
from lastiterate.models.table import Table, as_number, read_table

Array = NDArray[Any]
_LEAK = "what is read off private records is a release that nothing accounts for"


@dataclass(frozen=True)
class Numeric:
    """Numbers, clipped to [low, high] and scaled to [0, 1]."""

    low: float
    high: float

    def columns(self, cells: Sequence[str], name: str) -> Array:
        values = np.array([as_number(cell, row, name) for row, cell in enumerate(cells, 2)])
        scaled = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)
        return np.reshape(scaled, (-1, 1))


@dataclass(frozen=True)
class Categorical:
    """One of a list; one column of zeros and ones for each."""

    categories: tuple[str, ...]

    def columns(self, cells: Sequence[str], name: str) -> Array:
        return np.eye(len(self.categories))[self.places(cells, name)]

    def places(self, cells: Sequence[str], name: str) -> NDArray[np.int64]:
        """The place of every cell in the list."""
        place = {category: k for k, category in enumerate(self.categories)}
        found = [place.get(cell, -1) for cell in cells]
        if -1 in found:
            row = found.index(-1)
            raise DescriptionError(
                f"row {row + 2}, column {name!r}",
                "another value (not shown: error messages travel)",
                f"one of the declared values {', '.join(self.categories[:20])}",
                "a value that appears only in private records must not change the model's shape; "
                "the refusal tells that there is one, so declare all that can occur",
            )
        return np.array(found, dtype=np.int64)


Column = Numeric | Categorical


@dataclass(frozen=True)
class Schema:
    """The meaning of every column that is used, and of the target.

    >>> schema = Schema({"age": Numeric(0, 100)}, "income", Categorical(("low", "high")))
    >>> table = Table(("age", "income"), [("50", "high"), ("20", "low")])
    >>> X, y = schema.encode(table)
    >>> X.tolist(), y.tolist()
    ([[0.5], [0.2]], ['high', 'low'])
    """

    columns: Mapping[str, Column]
    target_name: str
    target: Column
    dropped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.target, Categorical) and len(self.target.categories) < 2:
            found = f"the classes {list(self.target.categories)}"
            allowed = "at least two classes"
            why = "there is nothing to tell apart"
            raise DescriptionError(f"target {self.target_name!r}", found, allowed, why)

    @property
    def classifies(self) -> bool:
        """Whether the target is a class."""
        return isinstance(self.target, Categorical)

    def without_names(self, column: str) -> Self:
        """The same without the column of the records' owners, which is no feature."""
        if column in self.columns or column == self.target_name:
            why = "who somebody is must not be learnt; use --drop, or leave it out of the schema"
            allowed = "a column that is neither a feature nor the target"
            raise DescriptionError("groups", column, allowed, why)
        return replace(self, dropped=tuple(dict.fromkeys((*self.dropped, column))))

    def encode(self, table: Table) -> tuple[Array, Array]:
        """Features and labels."""
        labels = table.column(self.target_name)
        X = self.features(table)
        if isinstance(self.target, Categorical):
            self.target.places(labels, self.target_name)
            return X, np.array(labels)
        numbers = [as_number(cell, row, self.target_name) for row, cell in enumerate(labels, 2)]
        return X, np.array(numbers)

    def features(self, table: Table) -> Array:
        """The features alone."""
        known = {*self.columns, self.target_name, *self.dropped}
        unknown = [name for name in table.names if name not in known]
        if unknown:
            place = table.names.index(unknown[0]) + 1
            allowed = "in the schema with low and high or with categories, or dropped"
            why = f"{_LEAK}; declare it, or give --public-schema-from a public table. Its name is "
            why += "not shown: in a table without a header it is a cell of the first record"
            raise DescriptionError(f"column {place} of the table", "not declared", allowed, why)
        return np.hstack(
            [kind.columns(table.column(name), name) for name, kind in self.columns.items()]
        )

    @classmethod
    def read(cls, path: Path, target: str) -> Self:
        """From a TOML file with a table per column under [columns], and [target].

        Each has either low and high or categories (classes for the target).
        """
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            why = "columns and their ranges must be declared"
            raise DescriptionError("schema", f"{path} ({error})", "a TOML file", why) from None
        return cls.of_table(table, target)

    def to_table(self) -> dict[str, Any]:
        """The declaration as plain values, in the shape of its TOML file."""
        target = {"name": self.target_name, **_declaration(self.target)}
        columns = {name: _declaration(kind) for name, kind in self.columns.items()}
        return {"columns": columns, "target": target, "drop": list(self.dropped)}

    @property
    def width(self) -> int:
        """How many features a row becomes."""
        return sum(
            len(kind.categories) if isinstance(kind, Categorical) else 1
            for kind in self.columns.values()
        )

    @classmethod
    def of_table(cls, table: Mapping[str, Any], target: str) -> Self:
        """From what such a file, or `to_table`, says."""
        columns = table.get("columns", {})
        if not isinstance(columns, dict) or not columns:
            why = "no column, no features"
            raise DescriptionError("schema", "without [columns]", "a table per column", why)
        about = dict(table.get("target", {}))
        if about.pop("name", target) != target:
            why = "the label must be known"
            raise DescriptionError("target", target, f"the schema's {table['target']['name']}", why)
        if "classes" in about:
            about["categories"] = about.pop("classes")
        kinds = {name: _column(name, entry) for name, entry in columns.items() if name != target}
        return cls(kinds, target, _column(target, about), tuple(table.get("drop", ())))

    @classmethod
    def public(cls, path: Path, target: str, dropped: Sequence[str] = ()) -> Self:
        """Inferred from a public table: ranges of numeric columns, values of the others."""
        table = read_table(path)
        kinds = {name: _inferred(table.column(name)) for name in table.names if name not in dropped}
        if target not in kinds:
            raise _missing(target, table)
        about = kinds.pop(target)
        if isinstance(about, Numeric) and len(set(table.column(target))) == 2:
            about = Categorical(tuple(sorted(set(table.column(target)))))
        return cls(kinds, target, about, tuple(dropped))

    @classmethod
    def of_flags(
        cls,
        target: str,
        numeric: Sequence[str],
        categorical: Sequence[str],
        dropped: Sequence[str],
        classes: str | None,
        target_range: str | None,
    ) -> Self:
        """From flags: NAME=LOW:HIGH, NAME=A,B,C, and the target's CLASSES or LOW:HIGH."""
        kinds: dict[str, Column] = {}
        for flag, split in ((numeric, ":"), (categorical, ",")):
            for text in flag:
                name, found, values = text.rpartition("=")
                if not found or not name:
                    shape = "NAME=LOW:HIGH" if split == ":" else "NAME=A,B,C"
                    raise DescriptionError("column", text, shape, "ranges must be declared")
                kinds[name] = _parsed(name, values, split)
        if (classes is None) == (target_range is None):
            why = "the target is a class or a number, and its values must be declared"
            allowed = "declared by --classes or by --target-range (not both)"
            raise DescriptionError("target", target, allowed, why)
        about = _parsed(target, classes or target_range or "", "," if classes else ":")
        if not kinds:
            allowed = "declared by --schema, --numeric, --category or --public-schema-from"
            raise DescriptionError("columns", "not declared", allowed, _LEAK)
        return cls(kinds, target, about, tuple(dropped))


def _parsed(name: str, values: str, split: str) -> Column:
    parts = tuple(part.strip() for part in values.split(split))
    if split == ",":
        return _column(name, {"categories": list(parts)})
    if len(parts) != 2:
        raise DescriptionError(f"column {name!r}", values, "LOW:HIGH", "values are clipped to it")
    try:
        return _column(name, {"low": float(parts[0]), "high": float(parts[1])})
    except ValueError:
        why = "values are clipped to it"
        raise DescriptionError(f"column {name!r}", values, "LOW:HIGH, two numbers", why) from None


def _declaration(kind: Column) -> dict[str, Any]:
    if isinstance(kind, Categorical):
        return {"categories": list(kind.categories)}
    return {"low": kind.low, "high": kind.high}


def _column(name: str, entry: Any) -> Column:
    where = f"column {name!r}"
    allowed = "a table with low and high, or with categories"
    if not isinstance(entry, Mapping) or set(entry) not in ({"low", "high"}, {"categories"}):
        raise DescriptionError(where, entry, allowed, "every column has a declared meaning")
    if "categories" in entry:
        values = entry["categories"]
        if not isinstance(values, list) or len({str(v) for v in values}) < max(len(values), 1):
            why = "every category is a column of its own"
            raise DescriptionError(f"{where}: categories", values, "a list without repeats", why)
        return Categorical(tuple(str(value) for value in values))
    why = "values are clipped to it"
    low, high = (number(f"{where}: {end}", entry[end], why) for end in ("low", "high"))
    if low >= high:
        why = "values are clipped to the range and scaled by its width"
        raise DescriptionError(where, dict(entry), "with low below high", why)
    return Numeric(low, high)


def _inferred(cells: Sequence[str]) -> Column:
    try:
        values = [float(cell) for cell in cells]
    except ValueError:
        return Categorical(tuple(sorted(set(cells))))
    low, high = min(values), max(values)
    return Numeric(low, high if high > low else low + 1.0)


def _missing(name: str, table: Table) -> DescriptionError:
    return DescriptionError(
        "target", name, f"one of the columns {', '.join(table.names)}", "there is no such column"
    )
