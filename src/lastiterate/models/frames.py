"""Tables with types: Parquet, Arrow and Feather files, and data frames, all by way of Arrow.

Whatever speaks Arrow's own interface is read: pandas, Polars, a DuckDB relation, PyArrow. Of these
libraries only PyArrow is imported here, and nothing in a file runs.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate.errors import DescriptionError, MissingExtraError
from lastiterate.models.cells import Cells, MomentCells, NumberCells, TextCells

MAGIC = {b"PAR1": "Parquet", b"ARRO": "Arrow", b"FEA1": "Feather", b"\xff\xff\xff\xff": "stream"}
Columns = tuple[list[str], list[Cells]]

_TEXTS = ("string", "large_string", "string_view", "null")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
# A file may say in a few bytes that one value stands in 10^12 rows.
_ROOM, _PER_BYTE = 10**7, 100  # cells that any file may have, and per byte


def is_frame(source: Any) -> bool:
    """Whether it is a data frame, a relation or an Arrow table."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "collect_schema")


def of_frame(source: Any) -> Columns:
    """Names and cells of a data frame."""
    pa = _pyarrow()
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(source, pandas.DataFrame):
            table = pa.Table.from_pandas(source, preserve_index=False)
        else:  # a lazy frame of Polars is asked first
            table = pa.table(source if hasattr(source, "__arrow_c_stream__") else source.collect())
        return _columns(table)
    except Exception as error:  # libraries of other people, whose messages show cells
        found = f"a {type(source).__name__} ({type(error).__name__})"
    raise _unreadable(found)


def of_file(path: Path, kind: str, header_only: bool = False) -> Columns:
    """Names and cells of a file that begins with a word of `MAGIC`; no cells if none are asked."""
    _pyarrow()
    try:
        table = _read(path, kind, header_only)
        table.validate(full=True)  # offsets of strangers are not followed before
        return _columns(table)
    except DescriptionError:
        raise
    except Exception as error:  # a damaged file breaks its readers in many ways
        found = f"{path} ({kind}: {type(error).__name__})"
    raise _unreadable(found)


def _read(path: Path, kind: str, header_only: bool) -> Any:
    from pyarrow import feather, ipc, parquet

    size = path.stat().st_size
    if kind == "Parquet":
        with parquet.ParquetFile(path) as file:
            if header_only:
                return file.schema_arrow.empty_table()
            _refuse_bomb(file.metadata.num_rows * file.metadata.num_columns, path, size)
            return file.read()
    with path.open("rb") as opened:
        if kind == "stream":
            table = ipc.open_stream(opened).read_all()
        else:
            table = feather.read_table(io.BytesIO(opened.read()), memory_map=False)
    _refuse_bomb(table.num_rows * table.num_columns, path, size)
    return table


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as missing:
        raise MissingExtraError("A table with types", missing.name, "tables") from None
    return pyarrow


def _unreadable(found: str) -> DescriptionError:
    why = "nothing is guessed, and what is wrong is not shown: messages travel"
    return DescriptionError("table", found, "a readable table, every column of one type", why)


def _refuse_bomb(cells: int, path: Path, size: int) -> None:
    if cells > _ROOM + _PER_BYTE * size:
        why = "such a file is made to fill memory; if it is real, write it anew as CSV"
        allowed = f"one of at most {_PER_BYTE:,} cells per byte"
        raise DescriptionError("table", f"{path} with {cells:,} cells", allowed, why)


def _columns(table: Any) -> Columns:
    return [str(name) for name in table.column_names], [_cells(each) for each in table.columns]


def _cells(column: Any) -> Cells:
    """The cells of an Arrow column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if str(kind) in _TEXTS:
        return TextCells([(cell or "").strip() for cell in column.to_pylist()], str(kind), first=1)
    column = column.cast(kind)
    holes = column.is_null().to_numpy()
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        of_days = kind == pa.date32()
        ticks = pc.fill_null(column.cast(pa.int32() if of_days else pa.int64()), 0).to_numpy()
        unit = "ms" if pa.types.is_date(kind) else kind.unit
        seconds = ticks * float(_DAY) if of_days else ticks / _PER_SECOND[unit]
        return MomentCells(np.where(holes, np.nan, seconds), str(kind))
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    if any(is_one(kind) for is_one in numeric):
        if pa.types.is_boolean(kind):
            doubles = column.cast(pa.int8()).cast(pa.float64())
        else:
            doubles = column.cast(pa.float64(), safe=False)
        values = np.where(holes, np.nan, pc.fill_null(doubles, 0.0).to_numpy())
        return NumberCells(values, str(kind), exact=column)
    kind = str(kind).partition("<")[0]  # names of parts may be cells of a data frame
    return Cells(np.zeros(len(column), bool), kind)
