"""Tables with types: Parquet, Arrow and Feather files, and data frames, all by way of Arrow.

Whatever speaks Arrow's own interface is read: pandas, Polars, a DuckDB relation, PyArrow. Of these
libraries only PyArrow is imported here, and nothing in a file runs.
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Iterable, Iterator
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
_BYTES = 1 << 28  # that any file may become, and so many per byte of its own
_AT_ONCE = 1000  # texts
_LZ4, _ZSTD, _SKIPPED = 0x184D2204, range(0xFD2FB51E, 0xFD2FB529), range(0x184D2A50, 0x184D2A60)
_FRAMES = np.array([_LZ4, *_ZSTD, *_SKIPPED], np.uint32)  # how packed buffers begin
_ADDRESSES = 1 << 47  # no system allocates so many bytes


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
        return _columns(table.schema, table.columns, table.num_rows, math.inf)
    except Exception as error:  # libraries of other people, whose messages show cells
        found = f"a {type(source).__name__} ({type(error).__name__})"
    raise _unreadable(found)


def need_pyarrow() -> None:
    """Raise if PyArrow, which reads and writes tables with types, is not installed."""
    _pyarrow()


def of_file(path: Path, kind: str, header_only: bool = False) -> Columns:
    """Names and cells of a file that begins with a word of `MAGIC`; no cells if none are asked."""
    _pyarrow()
    room = _BYTES + _PER_BYTE * path.stat().st_size
    try:
        schema, columns, rows = (_parquet if kind == "Parquet" else _arrow)(path, kind, header_only)
        for column in columns:
            if column is not None:
                column.validate(full=True)  # offsets of strangers are not followed before
        return _columns(schema, columns, rows, room)
    except DescriptionError:
        raise
    except Exception as error:  # a damaged file breaks its readers in many ways
        found = f"{path} ({kind}: {type(error).__name__})"
    raise _unreadable(found)


def _arrow(path: Path, kind: str, header_only: bool) -> tuple[Any, list[Any], int]:
    from pyarrow import feather, ipc

    content = path.read_bytes()
    if kind == "Feather":  # of the first version, which packs nothing
        table = feather.read_table(io.BytesIO(content), memory_map=False)
        _refuse_many(table.num_rows * table.num_columns, path)
        return table.schema, table.columns, table.num_rows
    opened = ipc.open_stream if kind == "stream" else ipc.open_file
    schema = opened(content).schema
    if header_only:
        return schema, schema.empty_table().columns, 0
    parts = _bodies(content) if kind == "stream" else [content]
    return schema, *_unpacked(opened, content, _packed_lengths(parts), path)


def _unpacked(opened: Any, content: bytes, lengths: list[int], path: Path) -> tuple[list[Any], int]:
    """Columns and number of rows of an Arrow file; None for nested columns.

    pyarrow has no limit for what a batch unpacks to. Here the buffers are bounded before they are
    unpacked, each counted once. Where a file may name one of them often, its columns are unpacked
    one by one, and memory is looked at after each batch. Not bounded: the parts of a single column
    of views, and dictionaries, that are the same buffer again and again.
    """
    import pyarrow as pa

    room, before = _BYTES + _PER_BYTE * len(content), pa.total_allocated_bytes()
    fault = _made_to_fill(f"{path}, packed", f"one that grows at most {_PER_BYTE} times")
    if sum(lengths) > room:
        raise fault
    schema = opened(content).schema
    plain = [place for place, field in enumerate(schema) if _means_something(field.type)]
    together = 3 * len(plain) * max(lengths, default=0) <= room  # of a column: three at most
    found: dict[int, Any] = {}
    rows = 0
    for places in [plain] if plain and together else [[place] for place in plain]:
        options = pa.ipc.IpcReadOptions(included_fields=places)
        file, batches, rows = opened(content, options=options), [], 0
        for batch in _batches(file):
            batches.append(batch)
            rows += batch.num_rows
            _refuse_many(rows * len(schema), path)
            if pa.total_allocated_bytes() - before > room:
                raise fault
        chosen = pa.schema([schema.field(place) for place in places])
        found |= dict(zip(places, pa.Table.from_batches(batches, chosen).columns, strict=True))
    return [found.get(place) for place in range(len(schema))], rows


def _batches(file: Any) -> Iterator[Any]:
    if hasattr(file, "num_record_batches"):
        return (file.get_batch(place) for place in range(file.num_record_batches))
    return iter(file)


def _bodies(content: bytes) -> Iterator[Any]:
    """The bodies of the messages of a stream."""
    from pyarrow import ipc

    messages = ipc.MessageReader.open_stream(content)
    with contextlib.suppress(StopIteration):
        while True:
            yield messages.read_next_message().body or b""


def _packed_lengths(parts: Iterable[Any]) -> list[int]:
    """Unpacked bytes of every packed buffer.

    Such a buffer begins at a multiple of 8 bytes (pyarrow refuses others) with its unpacked length,
    then the mark of its frame.
    """
    found: list[int] = []
    for part in parts:
        count = len(part) // 8
        marks = np.frombuffer(part, "<u4", 2 * count)[2::2]
        lengths = np.frombuffer(part, "<i8", count)[:-1][np.isin(marks, _FRAMES)]
        found += lengths[(lengths > 0) & (lengths < _ADDRESSES)].tolist()
    return found


def _parquet(path: Path, _: str, header_only: bool) -> tuple[Any, list[Any], int]:
    """Without nested values, which mean nothing here; equal texts stay one."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        schema, facts = file.schema_arrow, file.metadata
    if header_only:
        return schema, schema.empty_table().columns, 0
    _refuse_many(facts.num_rows * facts.num_columns, path)
    plain = [field.name for field in schema if _means_something(field.type)]
    texts = [field.name for field in schema if _is_text(_plain(field.type))]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        found = file.read(columns=plain)
    columns = [found.column(name) if name in plain else None for name in schema.names]
    return schema, columns, facts.num_rows


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as missing:
        raise MissingExtraError("A table with types", missing.name, "tables") from None
    return pyarrow


def _unreadable(found: str) -> DescriptionError:
    why = "nothing is guessed, and what is wrong is not shown: messages travel"
    return DescriptionError("table", found, "a readable table, every column of one type", why)


def _refuse_many(cells: int, path: Path) -> None:
    if cells > _ROOM + _PER_BYTE * path.stat().st_size:
        allowed = f"one of at most {_PER_BYTE:,} cells per byte"
        raise _made_to_fill(f"{path} with {cells:,} cells", allowed)


def _made_to_fill(found: str, allowed: str) -> DescriptionError:
    why = "such a file is made to fill memory; if it is real, write it anew as CSV"
    return DescriptionError("table", found, allowed, why)


def _columns(schema: Any, columns: list[Any], rows: int, room: float) -> Columns:
    cells = [
        _cells(column, room)
        if column is not None and _means_something(field.type)
        # names of the parts of a type may be cells of a data frame
        else Cells(np.zeros(rows, bool), str(_plain(field.type)).partition("<")[0])
        for field, column in zip(schema, columns, strict=True)
    ]
    return [str(name) for name in schema.names], cells


def _plain(kind: Any) -> Any:
    """The type of the values, where these are kept once each."""
    return getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind


def _is_text(kind: Any) -> bool:
    return str(kind) in _TEXTS


def _is_moment(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _means_something(kind: Any) -> bool:
    from pyarrow import types

    kind = _plain(kind)
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    return _is_text(kind) or _is_moment(kind) or any(is_one(kind) for is_one in numeric)


def _cells(column: Any, room: float) -> Cells:
    """The cells of an Arrow column that means something."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = _plain(column.type)
    if _is_text(kind):
        return TextCells(_texts(column, room), str(kind), first=1)
    column = column.cast(kind)
    holes = column.is_null().to_numpy()
    if _is_moment(kind):
        of_days = kind == pa.date32()
        ticks = pc.fill_null(column.cast(pa.int32() if of_days else pa.int64()), 0).to_numpy()
        unit = "ms" if pa.types.is_date(kind) else kind.unit
        seconds = ticks * float(_DAY) if of_days else ticks / _PER_SECOND[unit]
        return MomentCells(np.where(holes, np.nan, seconds), str(kind))
    if pa.types.is_boolean(kind):
        doubles = column.cast(pa.int8()).cast(pa.float64())
    else:
        doubles = column.cast(pa.float64(), safe=False)
    values = np.where(holes, np.nan, pc.fill_null(doubles, 0.0).to_numpy())
    return NumberCells(values, str(kind), exact=column)


def _texts(column: Any, room: float) -> list[str]:
    """All texts; those that a file keeps once are one object here too."""
    import pyarrow as pa

    texts: list[str] = []
    for chunk in column.chunks:
        if pa.types.is_dictionary(column.type):
            known = [*_stripped(chunk.dictionary, room), ""]
            places = chunk.indices.fill_null(len(known) - 1).to_pylist()
            texts += [known[place] for place in places]
        else:
            texts += _stripped(chunk, room)
    return texts


def _stripped(values: Any, room: float) -> list[str]:
    """Of views many may show the same long text: no more of them than there is room for."""
    texts: list[str] = []
    for first in range(0, len(values), _AT_ONCE):
        some = [(text or "").strip() for text in values.slice(first, _AT_ONCE).to_pylist()]
        room -= sum(map(len, some))
        if room < 0:
            raise _made_to_fill("with texts", f"one that grows at most {_PER_BYTE} times")
        texts += some
    return texts
