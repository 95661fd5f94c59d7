"""Predictions as a file: the class and the probabilities of every row, or its number."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lastiterate._internal.progress import Progress
from lastiterate.errors import DescriptionError
from lastiterate.models.cells import Array
from lastiterate.models.frames import need_pyarrow
from lastiterate.models.saved import TableModel
from lastiterate.models.schema import check_labels
from lastiterate.models.table import Source, read_table

_AT_ONCE = 20_000  # rows
_FORMULA = ("=", "+", "-", "@")  # spreadsheets run what begins so
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_BETWEEN = re.compile("[,;|\"']")  # between two cells, for some of them


@dataclass(frozen=True)
class Predictions:
    """Columns of equal length; ``kind`` is the extension of the file that they are for."""

    columns: dict[str, Array]
    kind: str

    def __len__(self) -> int:
        return len(self.columns["prediction"])

    @classmethod
    def of(cls, run: Path, table: Source, kind: str) -> Predictions:
        """What the model of a run's folder says about a table."""
        check_kind(kind)
        trained = TableModel.load(run)
        found = cls({}, kind)
        labels = list(map(str, getattr(trained.model, "classes_", ())))
        check_labels(labels)
        if kind == "csv":
            _refuse_formulas(labels)
        X = trained.schema.features(read_table(table))
        found.columns["prediction"] = _in_parts(trained.model.predict, X)
        if hasattr(trained.model, "predict_proba"):
            chances = _in_parts(trained.model.predict_proba, X)
            for place, label in enumerate(trained.model.classes_.tolist()):
                found.columns[f"probability of {label}"] = chances[:, place]
        return found

    def content(self) -> bytes:
        """The whole file."""
        if self.kind == "parquet":
            return self._parquet()
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        rows.writerow(self.columns)
        rows.writerows(zip(*(values.tolist() for values in self.columns.values()), strict=True))
        return text.getvalue().encode("utf-8")

    def _parquet(self) -> bytes:
        import pyarrow
        from pyarrow import parquet

        file = io.BytesIO()
        columns = {name: pyarrow.array(values.tolist()) for name, values in self.columns.items()}
        parquet.write_table(pyarrow.table(columns), file)
        return file.getvalue()


def check_kind(kind: str) -> None:
    """Raise if no file with this extension can be written: better before the work than after."""
    if kind not in ("csv", "parquet"):
        why = "the extension says in which format it is written"
        raise DescriptionError("output", f".{kind}", "a .csv or a .parquet file", why)
    if kind == "parquet":
        need_pyarrow()


def _refuse_formulas(labels: Iterable[str]) -> None:
    """The schema may come from a stranger, and a CSV is opened by spreadsheets.

    Quotes keep a label in one cell, but a cell that begins like a formula is run. Readers that
    expect another separator see cells inside of a label, and full-width signs count for some.
    """
    for label in labels:
        cells = _BETWEEN.split(unicodedata.normalize("NFKC", label))
        for cell in map(str.strip, cells):
            if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell):
                why = "a spreadsheet would run it as a formula; write .parquet, or rename the class"
                raise DescriptionError("class", label, "one that starts with a letter", why)


def _in_parts(predict: Callable[[Array], Array], X: Array) -> Array:
    """Every row by itself, so in parts it is the same."""
    parts, bar = [], Progress("rows predicted", 0, len(X))
    for first in range(0, len(X), _AT_ONCE):
        parts.append(np.asarray(predict(X[first : first + _AT_ONCE])))
        bar.add(len(parts[-1]))
    bar.close()
    return np.concatenate(parts)
