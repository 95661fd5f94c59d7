"""What a table's columns mean, declared in advance: ranges, categories, classes.

The largest age in a private table is private, and so is the list of jobs that occur in it. So both
are declared, in a TOML file or by flags.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from lastiterate._internal.progress import Progress
from lastiterate.errors import DescriptionError
from lastiterate.models.cells import Array, Cells
from lastiterate.models.columns import (
    BLANK,
    Boolean,
    Categorical,
    Column,
    Date,
    declared,
)
from lastiterate.models.table import Table, empty

DROP = "drop"  # in the place of a column's meaning: it is no feature
_LEAK = "what is read off private records is a release that nothing accounts for"


@dataclass(frozen=True)
class Schema:
    """The meaning of every column that is used, and of the target.

    >>> from lastiterate.models.cells import TextCells
    >>> from lastiterate.models.columns import Numeric
    >>> schema = Schema({"age": Numeric(0, 100)}, "income", Categorical(("low", "high")))
    >>> table = Table(("age", "income"), [TextCells(["50", "20"]), TextCells(["high", "low"])])
    >>> X, y = schema.encode(table)
    >>> X.tolist(), y.tolist()
    ([[0.5], [0.2]], ['high', 'low'])
    """

    columns: Mapping[str, Column]
    target_name: str
    target: Column
    dropped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if type(self.target) is Boolean:
            object.__setattr__(self, "target", Categorical((False, True)))
        about = self.target
        if isinstance(about, Date) or about.missing or getattr(about, "other", False):
            allowed = "classes, or low and high of numbers, without missing and other"
            why = "a record without a known label teaches nothing"
            raise DescriptionError(f"target {self.target_name!r}", about.to_table(), allowed, why)
        if isinstance(self.target, Categorical) and len(self.target.categories) < 2:
            found = f"the classes {list(self.target.categories)}"
            allowed = "at least two classes"
            why = "there is nothing to tell apart"
            raise DescriptionError(f"target {self.target_name!r}", found, allowed, why)
        if isinstance(self.target, Categorical):
            check_labels(self.target.categories)

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
        labels = self.labels(table.column(self.target_name))
        self._refuse_strangers(table)
        return self.features(table), labels

    def labels(self, cells: Cells) -> Array:
        """The target as a model takes it: declared classes, or numbers."""
        if isinstance(self.target, Categorical):
            return np.array(self.target.categories)[self.target.places(cells, self.target_name)]
        values = self.target.read(cells, self.target_name)
        if np.isnan(values).any():
            raise empty(int(np.argmax(np.isnan(values))) + cells.first, self.target_name)
        return values

    def features(self, table: Table) -> Array:
        """The features alone; columns that are not declared are not looked at."""
        bar = Progress("columns encoded", 0, len(self.columns))
        blocks = []
        for name, kind in self.columns.items():
            blocks.append(kind.columns(table.column(name), name))
            bar.add(1)
        bar.close()
        return np.hstack(blocks)

    def _refuse_strangers(self, table: Table) -> None:
        """What is trained on is declared, column by column."""
        known = {*self.columns, self.target_name, *self.dropped}
        unknown = [name for name in table.names if name not in known]
        if unknown:
            place = table.names.index(unknown[0]) + 1
            allowed = "in the schema with low and high or with categories, or dropped"
            why = f"{_LEAK}; declare it. Its name is "
            why += "not shown: in a table without a header it is a cell of the first record"
            raise DescriptionError(f"column {place} of the table", "not declared", allowed, why)

    @classmethod
    def read(cls, path: Path, target: str | None = None) -> Self:
        """From a TOML file with a table per column under [columns], and [target].

        Each has low and high (numbers or dates), categories (classes for the target) or
        boolean = true; or it is "drop".
        """
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            why = "columns and their ranges must be declared"
            raise DescriptionError("schema", f"{path} ({error})", "a TOML file", why) from None
        return cls.of_table(table, target)

    def to_table(self) -> dict[str, Any]:
        """The declaration as plain values, in the shape of its TOML file."""
        target = {"name": self.target_name, **self.target.to_table()}
        columns = {name: kind.to_table() for name, kind in self.columns.items()}
        return {"columns": columns, "target": target, "drop": list(self.dropped)}

    @property
    def width(self) -> int:
        """How many features a row becomes."""
        return sum(len(kind.features(name)) for name, kind in self.columns.items())

    @classmethod
    def of_table(cls, table: Mapping[str, Any], target: str | None = None) -> Self:
        """From what such a file, or `to_table`, says; the target may be named there alone."""
        columns, about = table.get("columns", {}), table.get("target", {})
        if not isinstance(columns, Mapping) or not columns:
            why = "no column, no features"
            raise DescriptionError("schema", "without [columns]", "a table per column", why)
        if not isinstance(about, Mapping):
            why = "its classes or its range must be declared"
            raise DescriptionError("schema: target", about, "a table", why)
        about = dict(about)
        named = about.pop("name", target)
        target = named if target is None else target
        if not isinstance(named, str) or named != target or named == BLANK:
            why = "the label must be known; fill it in under [target]"
            raise DescriptionError("target", target, f"the schema's {named}", why)
        if "classes" in about:
            about["categories"] = about.pop("classes")
        dropped = [*table.get("drop", ()), *(n for n, entry in columns.items() if entry == DROP)]
        kinds = {
            name: declared(name, entry)
            for name, entry in columns.items()
            if name not in (target, *dropped)
        }
        return cls(kinds, target, declared(target, about, target=True), tuple(dropped))

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
            allowed = "declared by --schema, --numeric or --category"
            raise DescriptionError("columns", "not declared", allowed, _LEAK)
        return cls(kinds, target, about, tuple(dropped))


def check_labels(labels: Iterable[Any]) -> None:
    """Raise if a class label has a control character: in a file or a terminal it acts as one.

    >>> check_labels(["30 to 40", 7, "caf\u00e9"])
    >>> check_labels(["a\\r=1+1"])
    Traceback (most recent call last):
    ...
    lastiterate.errors.DescriptionError: class must be free of control characters, got \
'a\\r=1+1': in a file of predictions it could begin a line or a formula; rename the class.
    """
    for label in map(str, labels):
        if any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") for each in label):
            why = "in a file of predictions it could begin a line or a formula; rename the class"
            raise DescriptionError("class", label, "free of control characters", why)


def _parsed(name: str, values: str, split: str) -> Column:
    parts = tuple(part.strip() for part in values.split(split))
    if split == ",":
        return declared(name, {"categories": list(parts)})
    if len(parts) != 2:
        raise DescriptionError(f"column {name!r}", values, "LOW:HIGH", "values are clipped to it")
    try:
        return declared(name, {"low": float(parts[0]), "high": float(parts[1])})
    except ValueError:
        why = "values are clipped to it"
        raise DescriptionError(f"column {name!r}", values, "LOW:HIGH, two numbers", why) from None
