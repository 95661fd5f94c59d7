"""Tables of every kind mean the same, and whatever does not fit is refused without a cell."""

from __future__ import annotations

import datetime
import decimal
import gzip
import os
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.models import frames
from lastiterate.models.cells import TextCells
from lastiterate.models.columns import Boolean, Categorical, Date, Numeric, declared
from lastiterate.models.schema import Schema
from lastiterate.models.table import Table, read_header, read_table
from lastiterate.models.template import template

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

AGES = [41, 17, None, 90]
JOBS = ["nurse", None, "clerk, junior", "astronaut"]
BORN = [datetime.date(1969, 7, 20), None, datetime.date(2000, 1, 1), datetime.date(1930, 5, 5)]
MEMBER = [True, False, None, True]
COLUMNS = {"age": AGES, "job": JOBS, "born": BORN, "member": MEMBER, "label": ["no", "yes"] * 2}
SCHEMA = {
    "columns": {
        "age": {"low": 17, "high": 90, "missing": True},
        "job": {"categories": ["nurse", "clerk, junior"], "other": True, "missing": True},
        "born": {"low": "1930-05-05", "high": datetime.date(2000, 1, 1), "missing": True},
        "member": {"boolean": True, "missing": True},
    },
    "target": {"name": "label", "classes": ["no", "yes"]},
}
DAYS = (datetime.date(1969, 7, 20) - datetime.date(1930, 5, 5)).days
TRUTH = [
    [24 / 73, 0, 1, 0, 0, 0, DAYS / 25443, 0, 1, 0],
    [0, 0, 0, 0, 0, 1, 0, 1, 0, 0],
    [0, 1, 0, 1, 0, 0, 1, 0, 0, 1],
    [1, 0, 0, 0, 1, 0, 0, 0, 1, 0],
]


def arrow() -> Any:
    return pa.table(COLUMNS)


def csv_text() -> str:
    quoted = [f'"{job}"' if job else "" for job in JOBS]
    rows = zip(AGES, quoted, BORN, MEMBER, COLUMNS["label"], strict=True)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join([",".join(COLUMNS), *lines]) + "\n"


def written(name: str, folder: Path) -> Path:
    from pyarrow import feather, parquet

    path = folder / name
    if name == "t.csv":
        path.write_text(csv_text())
    elif name == "bom.csv":
        path.write_text(csv_text(), encoding="utf-8-sig")
    elif name == "t.csv.gz":
        path.write_bytes(gzip.compress(csv_text().encode()))
    elif name == "t.parquet":
        parquet.write_table(arrow(), path)
    elif name == "t.feather":
        feather.write_feather(arrow(), path)
    elif name == "t.arrow":
        with pa.ipc.new_file(path, arrow().schema) as file:
            file.write_table(arrow())
    else:
        with pa.ipc.new_stream(path, arrow().schema) as file:
            file.write_table(arrow())
    return path


FILES = ["t.csv", "bom.csv", "t.csv.gz", "t.parquet", "t.feather", "t.arrow", "t.arrows"]
FRAMES: dict[str, Callable[[], Any]] = {
    "arrow": arrow,
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas with categories": lambda: pd.DataFrame(COLUMNS).astype({"job": "category"}),
    "pandas with an index": lambda: pd.DataFrame(COLUMNS, index=[9, 8, 7, 6]),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars with categories": lambda: pl.DataFrame(COLUMNS).cast({"job": pl.Categorical}),
    "polars, lazy": lambda: pl.LazyFrame(COLUMNS),
    "duckdb": lambda: duckdb.connect().from_arrow(arrow()),
}


@pytest.mark.parametrize("name", [*FILES, *FRAMES])
def test_every_table_means_the_same(name: str, tmp_path: Path) -> None:
    source = FRAMES[name]() if name in FRAMES else written(name, tmp_path)
    X, y = Schema.of_table(SCHEMA).encode(read_table(source))
    np.testing.assert_allclose(X, TRUTH, rtol=1e-15)
    assert y.tolist() == ["no", "yes", "no", "yes"]


def test_the_schema_survives_json() -> None:
    import json

    schema = Schema.of_table(SCHEMA)
    assert Schema.of_table(json.loads(json.dumps(schema.to_table()))) == schema
    assert len(TRUTH[0]) == schema.width


EDGES = {
    "int beyond 2^53": (pa.array([2**53 + 1, -(2**63)]), Numeric(-1e19, 1e19), None),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), Numeric(0, 2.0**64), [[1.0]]),
    "decimal": (pa.array([decimal.Decimal("2.5")]), Numeric(0, 10), [[0.25]]),
    "half": (pa.array([np.float16(0.5)], pa.float16()), Numeric(0, 1), [[0.5]]),
    "dictionary of numbers": (pa.array([4, 4, 8]).dictionary_encode(), Numeric(0, 8), None),
    "numbers in texts": (pa.array([" 2.5 "]), Numeric(0, 10), [[0.25]]),
    "nan": (pa.array([np.nan, 1.0]), Numeric(0, 1, missing=True), [[0, 1], [1, 0]]),
    "nothing but holes": (pa.nulls(2), Numeric(0, 1, missing=True), [[0, 1]] * 2),
    "truths as numbers": (pa.array([0.0, 1.0]), Boolean(), [[0], [1]]),
    "whole numbers as categories": (pa.array([1, 2]), Categorical(("1", "2")), np.eye(2)),
    "the same with holes": (pa.array([1.0, 2.0]), Categorical(("1", "2")), np.eye(2)),
    "declared as 1.0": (pa.array([1.0, 2.0]), Categorical(("1.0", "2.0")), np.eye(2)),
    "beyond 2^53": (
        pa.array([2**53 + 1, 2**53]),
        Categorical((str(2**53 + 1), str(2**53))),
        np.eye(2),
    ),
    "truths as categories": (pa.array([True, False]), Categorical(("True", "False")), np.eye(2)),
    "zones": (
        pa.array([0, 3_600_000], pa.timestamp("ms", "America/New_York")),
        Date(0.0, 7200.0),
        [[0], [0.5]],
    ),
    "nanoseconds": (pa.array([10**9], pa.timestamp("ns")), Date(0.0, 2.0), [[0.5]]),
    "far seconds": (pa.array([2**62], pa.timestamp("s")), Date(0.0, 2.0), [[1.0]]),
    "dates in milliseconds": (pa.array([86_400_000], pa.date64()), Date(0.0, 86400.0), [[1.0]]),
    "the word null as a category": (pa.array(["null", None]), Categorical(("null", "")), np.eye(2)),
}


@pytest.mark.parametrize("name", EDGES)
def test_types_at_the_edge(name: str) -> None:
    column, kind, truth = EDGES[name]
    found = kind.columns(read_table(pa.table({"c": column})).column("c"), "c")
    assert found.min() >= 0
    assert found.max() <= 1
    if truth is not None:
        np.testing.assert_array_equal(found, truth)


SECRET = "s3cret"
MISFITS = {
    "a text among numbers": (["1", SECRET], Numeric(0, 1), "row 2"),
    "infinite": ([1.0, np.inf], Numeric(0, 1), "row 2"),
    "a hole": ([1.0, None], Numeric(0, 1), "empty"),
    "a hole among categories": (["a", None], Categorical(("a",)), "row 2"),
    "an unknown category": (["a", SECRET], Categorical(("a",)), "other = true"),
    "no date": (["2020-02-30"], Date(0, 1), "row 1"),
    "a number as a date": ([20200101], Date(0, 1), "stored as int64"),
    "a date as a number": ([datetime.date(2020, 1, 1)], Numeric(0, 1), "stored as date32"),
    "2 as a truth": ([0, 2], Boolean(), "row 2"),
    "a list": ([[1.0]], Numeric(0, 1), "stored as list"),
    "a structure": ([{"a": 1}], Categorical(("a",)), "stored as struct"),
    "bytes": ([b"a"], Categorical(("a",)), "stored as binary"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_misfits_are_refused_by_their_place(name: str) -> None:
    values, kind, said = MISFITS[name]
    cells = read_table(pa.table({"c": pa.array(values)})).column("c")
    with pytest.raises(DescriptionError, match="column 'c'") as refused:
        kind.columns(cells, "c")
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_dropped_column_may_be_anything() -> None:
    table = pa.table({"a": [[1], [2]], "x": [0.0, 1.0], "label": ["no", "yes"]})
    schema = Schema.of_table(
        {
            "columns": {"a": "drop", "x": {"low": 0, "high": 1}},
            "target": {"name": "label", "classes": ["no", "yes"]},
        }
    )
    assert schema.encode(read_table(table))[0].tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("labels", [[0.0, np.nan], ["no", None], [True, None]])
def test_a_missing_label_is_refused(labels: list[Any]) -> None:
    about = {"low": 0, "high": 1} if labels[0] == 0.0 else {"classes": ["no", "true"]}
    schema = {"columns": {"x": {"low": 0, "high": 1}}, "target": {"name": "y", **about}}
    with pytest.raises(DescriptionError, match=r"row 2, column 'y'|declared values"):
        Schema.of_table(schema).encode(read_table(pa.table({"x": [1, 2], "y": labels})))


BAD_TARGETS = [
    {"low": "2020-01-01", "high": "2021-01-01"},
    {"classes": ["a", "b"], "other": True},
    {"low": 0, "high": 1, "missing": True},
    {"classes": ["a"]},
]


@pytest.mark.parametrize("about", BAD_TARGETS, ids=str)
def test_targets_are_known_classes_or_numbers(about: dict[str, Any]) -> None:
    columns = {"x": {"low": 0, "high": 1}}
    with pytest.raises(DescriptionError, match="target 'y'"):
        Schema.of_table({"columns": columns, "target": {"name": "y", **about}})


# --- hostile headers and files --------------------------------------------------------------------


def mixed() -> Any:
    return pd.DataFrame({"a": [1, SECRET, b"x"]})


@pytest.mark.parametrize(
    "frame",
    [
        mixed,
        lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]),
        lambda: pd.DataFrame([[1, 2]], columns=["a", ""]),
        lambda: pd.DataFrame([[1, 2]], columns=["a", " a"]),
        lambda: pd.DataFrame([[1, 2]], columns=["0", 0]),
        lambda: pd.DataFrame({"a": []}),
        lambda: pd.DataFrame(),
        lambda: [1, 2],
        lambda: np.eye(2),
        lambda: None,
    ],
)
def test_frames_that_are_no_tables(frame: Callable[[], Any]) -> None:
    with pytest.raises(DescriptionError) as refused:
        read_table(frame())
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(refused.value.__context__)


def bomb() -> bytes:
    return gzip.compress(b"a\n" + bytes(80_000_000))


BAD_FILES = {
    "packed zeros": bomb(),
    "half of a packed file": gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:40],
    "two encodings": "a\ncaf\xe9\n".encode("latin-1") + "é".encode(),
    "utf-16": "a,b\n1,2\n".encode("utf-16"),
    "a torn Parquet file": b"PAR1" + bytes(100),
    "a torn Arrow file": b"ARROW1\0\0" + bytes(100),
    "a torn stream": b"\xff\xff\xff\xff" + bytes(100),
    "an old Feather file, torn": b"FEA1" + bytes(100),
    "a vast cell": b"a\n" + b"x" * 200_000 + b"\n",
    "an open quote": b'a\n"' + b"x" * 100,
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(BAD_FILES[name])
    with pytest.raises(DescriptionError, match=r"^table must"):
        read_table(path)


@pytest.mark.parametrize("name", ["PAR1", "ARROW1", "FEA1 of the year"])
def test_a_csv_may_have_such_a_column(name: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(f"{name},b\n1,2\n")
    assert read_table(tmp_path / "t").column(name).texts(name) == ["1"]


def test_a_parquet_file_that_is_made_to_fill_memory_is_not_unpacked(tmp_path: Path) -> None:
    """Runs of equal values take no room in the file."""
    from pyarrow import parquet

    rows = pa.table({"a": pa.array(np.zeros(10**6, np.int64))})
    with parquet.ParquetWriter(tmp_path / "t", rows.schema) as file:
        for _ in range(60):
            file.write_table(rows)
    assert os.stat(tmp_path / "t").st_size < 300_000
    with pytest.raises(DescriptionError, match="cells per byte"):
        read_table(tmp_path / "t")


def arrow_file(table: Any, path: Path, packed: str | None, stream: bool) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=packed)
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opened(path, table.schema, options=options) as file:
        file.write_table(table)
    return path


LONG = "x" * (1 << 20)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows"])
def test_a_long_text_in_all_rows_is_one(kind: str, tmp_path: Path) -> None:
    """Before: 12 KB became a hundred gigabytes."""
    from pyarrow import parquet

    once = pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int32), pa.array([LONG]))
    table = pa.table({"a": once, "n": once.cast(pa.dictionary(pa.int32(), pa.binary()))})
    if kind == "parquet":
        parquet.write_table(table, tmp_path / "t", compression="zstd")
    else:
        arrow_file(table, tmp_path / "t", "zstd", kind == "arrows")
    assert (tmp_path / "t").stat().st_size < 200_000
    found = read_table(tmp_path / "t")
    texts = found.column("a").texts("a")
    assert len(texts) == 10**5
    assert len({*map(id, texts)}) == 1
    assert found.column("n").stored == "binary"


def views(times: int) -> Any:
    """The same long text again and again, which is stored once."""
    each = struct.pack("<i4sii", len(LONG), LONG[:4].encode(), 0, 0)
    buffers = [None, pa.py_buffer(each * times), pa.py_buffer(LONG.encode())]
    return pa.Array.from_buffers(pa.string_view(), times, buffers)


VAST: dict[str, Callable[[], Any]] = {
    "numbers": lambda: pa.array(np.zeros(1 << 21)),
    "texts": lambda: pa.array([LONG * 16]),
    "dictionary": lambda: pa.array([LONG * 16]).dictionary_encode(),
    "views": lambda: views(16),
}


@pytest.mark.parametrize(("packed", "stream"), [("zstd", True), ("lz4", False)])
@pytest.mark.parametrize("name", VAST)
def test_an_arrow_file_that_is_made_to_fill_memory_is_not_unpacked(
    name: str, packed: str, stream: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    """Before: it was unpacked, then its rows were counted; long texts were not looked at."""
    monkeypatch.setattr(frames, "_BYTES", 1 << 20)
    path = arrow_file(pa.table({"a": VAST[name]()}), tmp_path / "t", packed, stream)
    assert path.stat().st_size < (1 << 24) / 120
    with pytest.raises(DescriptionError, match="made to fill memory"):
        read_table(path)
    assert read_header(path)[0] == ["a"]


def named_again(content: bytes) -> bytes:
    """The file in which all columns name the buffer of the first; the others are gone."""
    words = np.frombuffer(content, "<i8", len(content) // 8)
    frames = 8 * np.flatnonzero(np.isin(words[1:] & 0xFFFFFFFF, (0x184D2204, 0xFD2FB528)))
    start, apart, found = int(frames[0]), int(frames[2] - frames[1]), bytearray(content)
    for place in frames[1:].tolist():
        for named in np.flatnonzero(words[:-1] == place - start):
            if apart - 64 < words[named + 1] <= apart:  # an offset, then the length
                struct.pack_into("<q", found, 8 * int(named), 0)
        found[place : place + apart] = bytes(apart)
    return bytes(found)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("packed", ["zstd", "lz4"])
def test_a_buffer_that_all_columns_name_does_not_fill_memory(
    packed: str, stream: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    columns = {f"c{k}": pa.array(np.zeros(1 << 17)) for k in range(200)}
    path = arrow_file(pa.table(columns), tmp_path / "t", packed, stream)
    path.write_bytes(named_again(path.read_bytes()))
    monkeypatch.setattr(frames, "_ROOM", 10**9)
    assert len(read_table(path)) == 1 << 17  # nobody but its size makes it hostile
    monkeypatch.setattr(frames, "_BYTES", 1 << 20)
    monkeypatch.setattr(frames, "_PER_BYTE", 100 if packed == "zstd" else 10)
    before = pa.total_allocated_bytes()
    most = []
    look = frames._refuse_many
    monkeypatch.setattr(
        frames,
        "_refuse_many",
        lambda *told: (most.append(pa.total_allocated_bytes() - before), look(*told)),
    )
    with pytest.raises(DescriptionError, match="made to fill memory"):
        read_table(path)
    assert max(most) < 200 * (1 << 20) / 4  # 200 MB in all


def test_parts_that_an_index_names_again_and_again_are_not_unpacked(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """Many batches, each within the limit."""
    table = pa.table({"a": pa.array(np.zeros(1 << 17))})
    with pa.ipc.new_file(
        tmp_path / "t", table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as file:
        for _ in range(50):
            file.write_table(table)
    assert len(read_table(tmp_path / "t")) == 50 << 17
    monkeypatch.setattr(frames, "_BYTES", 1 << 22)
    monkeypatch.setattr(frames, "_packed_lengths", lambda _: [])  # an index that hides them
    with pytest.raises(DescriptionError, match="made to fill memory"):
        read_table(tmp_path / "t")


@pytest.mark.parametrize("stream", [True, False])
def test_a_packed_buffer_that_is_not_aligned_is_refused(stream: bool, tmp_path: Path) -> None:
    """At another place its length would not be found before it is unpacked."""
    table = pa.table({f"c{k}": pa.array(np.zeros(1 << 12) + k) for k in range(3)})
    path = arrow_file(table, tmp_path / "t", "zstd", stream)
    content = bytearray(path.read_bytes())
    words = np.frombuffer(bytes(content), "<i8", len(content) // 8)
    frames = 8 * np.flatnonzero((words[1:] & 0xFFFFFFFF) == 0xFD2FB528)
    second = int(frames[1] - frames[0])
    near = (words[1:] > 8) & (words[1:] < 4096)
    (named,) = np.flatnonzero((words[:-1] == second) & near)
    struct.pack_into("<q", content, 8 * int(named), second + 4)
    opened = pa.ipc.open_stream if stream else pa.ipc.open_file
    with pytest.raises(pa.ArrowInvalid, match="aligned"):
        opened(bytes(content)).read_all()
    path.write_bytes(content)
    with pytest.raises(DescriptionError, match="ArrowInvalid"):
        read_table(path)


def test_a_table_without_plain_columns_has_no_records(tmp_path: Path) -> None:
    for stream in (True, False):
        path = arrow_file(pa.table({"a": [[1]], "b": [{"c": 1}]}), tmp_path / "t", "lz4", stream)
        with pytest.raises(DescriptionError, match="0 records"):
            read_table(path)
        assert read_header(path)[0] == ["a", "b"]


@pytest.mark.parametrize("packed", ["zstd", "lz4", "uncompressed"])
def test_arrow_files_of_others_are_read(packed: Any, tmp_path: Path) -> None:
    frame = pl.DataFrame(COLUMNS).cast({"job": pl.Categorical})
    frame.write_ipc(tmp_path / "t.arrow", compression=packed)
    frame.write_ipc_stream(tmp_path / "t.arrows", compression=packed)
    for name in ("t.arrow", "t.arrows"):
        X, _ = Schema.of_table(SCHEMA).encode(read_table(tmp_path / name))
        np.testing.assert_allclose(X, TRUTH)


def test_a_hundred_thousand_columns(tmp_path: Path) -> None:
    names = [f"c{k}" for k in range(100_000)]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    table = read_table(tmp_path / "t.csv")
    assert table.column("c99999").texts("c99999") == ["1"]
    assert len(tomllib.loads(template(tmp_path / "t.csv", "c0"))["columns"]) == 99_999
    with pytest.raises(DescriptionError, match="column 100000 of the table"):
        Schema({n: Numeric(0, 1) for n in names[1:-1]}, "c0", Numeric(0, 1)).encode(table)


# --- a schema to fill in --------------------------------------------------------------------------

HOSTILE = [
    '=cmd|"/c calc"!A1',
    "a.b",
    "\x1b[2K",
    "\u202eevil",
    "x\ny = 1\n[columns]",
    "é",
    "?",
    "#",
]
HOSTILE += ["drop", "'''", '"""', "\\u0041", "\x7f", "\U0001f600", "a b"]


def test_hostile_names_stay_names() -> None:
    text = template(pa.table({name: [1] for name in HOSTILE}), HOSTILE[0])
    found = tomllib.loads(text)
    assert list(found["columns"]) == HOSTILE[1:]
    assert found["target"]["name"] == HOSTILE[0]
    assert not any(sign in text for sign in ("\x1b", "\u202e", "\x7f"))


def test_no_cell_changes_what_is_to_be_filled_in(tmp_path: Path) -> None:
    """Names and stored types alone: the schema of other records is the same text."""
    tables = [COLUMNS, {**COLUMNS, "age": [1, 2, 3, 4], "job": ["x"] * 4, "born": BORN[2:3] * 4}]
    for write in (lambda t: pa.table(t), lambda t: pd.DataFrame(t).astype({"age": "Int64"})):
        one, other = (template(write(table), "label") for table in tables)
        assert one == other
    first = written("t.csv", tmp_path)
    one = template(first, "label")
    first.write_text("age,job,born,member,label\nold,1,x,7,9\n")
    assert template(first, "label") == one
    for word in ("nurse", "41", "1969", "astronaut"):
        assert word not in one


def test_objects_have_no_type_until_somebody_says_so() -> None:
    """What pandas keeps as objects, its cells alone would tell."""
    for values in ([1, 2], ["a", None], BORN[2:], [None, None]):
        frame = pd.DataFrame({"c": pd.Series(values, dtype=object), "y": [0.0, 1.0]})
        assert 'c = "?"' in template(frame, "y")


def test_only_the_first_line_of_a_csv_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"age,label\n" + b"x" * 10_000 + b"\n" + b"\xff" * 10**6)
    assert read_header(tmp_path / "t.csv") == (["age", "label"], None)


@pytest.mark.parametrize("text", ["", "\n\n", "\na,b\n"])
def test_no_header_no_schema(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DescriptionError, match="empty"):
        template(tmp_path / "t.csv")


def test_what_is_not_filled_in_is_refused_with_the_remedy() -> None:
    blank = tomllib.loads(template(arrow(), "label"))
    assert blank["columns"]["member"] == {"boolean": True}
    with pytest.raises(DescriptionError, match=r"left as '\?'.*publicly known"):
        Schema.of_table(blank)
    blank["columns"] = SCHEMA["columns"]
    with pytest.raises(DescriptionError, match="left as"):
        Schema.of_table(blank)  # the classes
    blank["target"]["classes"] = ["no", "yes"]
    assert Schema.of_table(blank).encode(read_table(arrow()))[0].shape == (4, 10)
    with pytest.raises(DescriptionError, match=r"fill it in under \[target\]"):
        Schema.of_table(tomllib.loads(template(arrow())))


@pytest.mark.parametrize(
    "entry",
    [
        {"low": 0},
        {"low": 0, "high": "2020-01-01"},
        {"low": "2020-01-01", "high": "2020-01-01"},
        {"low": datetime.time(1), "high": datetime.time(2)},
        {"low": 0, "high": 1, "other": True},
        {"low": -1e308, "high": 1e308},
        {"low": float("nan"), "high": 1},
        {"categories": []},
        {"categories": ["1", 1]},
        {"categories": ["a"], "missing": "yes"},
        {"boolean": False},
        {"boolean": 1, "low": 0},
        "dropped",
        None,
        [],
    ],
    ids=str,
)
def test_bad_declarations(entry: Any) -> None:
    with pytest.raises(LastIterateError, match="'c'"):
        declared("c", entry)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("0001-01-01T00:00:00+14:00", "2000-01-01"),  # before the calendar begins
        ("1900-01-01", "9999-12-31T23:59:59-14:00"),
        ("2000-01-01T00:00:00.1", "2000-01-01T00:00:00.9"),  # ranges are to the second
    ],
)
def test_dates_that_no_calendar_has(low: str, high: str) -> None:
    with pytest.raises(DescriptionError, match="column 'c'"):
        declared("c", {"low": low, "high": high})


def test_dates_at_the_ends_of_the_calendar() -> None:
    ends = {"low": datetime.date.min, "high": datetime.date.max}
    kind = declared("c", ends)
    assert declared("c", kind.to_table()) == kind
    cells = read_table(pa.table({"c": [datetime.date.min, datetime.date.max]})).column("c")
    assert kind.columns(cells, "c")[0] == 0
    assert 0.99999 < kind.columns(cells, "c")[1] <= 1


def test_many_categories_take_no_more_room_than_their_features() -> None:
    kind = Categorical(tuple(map(str, range(200_000))))  # a square of them would be 320 GB
    assert kind.columns(TextCells(["199999"]), "c").argmax() == 199_999


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(), st.integers(-(2**63), 2**63 - 1).map(float))),
    st.floats(-1e300, 1e300),
    st.floats(1e-300, 1e300),
)
def test_whatever_a_number_is_its_features_are_bounded(
    values: list[Any], low: float, width: float
) -> None:
    kind = Numeric(low, low + width, missing=True)
    if not low < low + width:
        return
    cells = TextCells(["" if v is None else str(v) for v in values])
    if any(v is not None and np.isinf(v) for v in values):
        with pytest.raises(DescriptionError, match="row"):
            kind.columns(cells, "c")
        return
    found = kind.columns(cells, "c")
    assert found.shape == (len(values), 2)
    assert ((found >= 0) & (found <= 1)).all()
    holes = np.array([v is None or np.isnan(v) for v in values], bool)
    assert (found[:, 1] == holes).all()
    assert (found[holes, 0] == 0).all()


def test_rows_can_be_taken_from_every_kind() -> None:
    table = read_table(arrow()).take(np.array([2, 0, 0]))
    X, y = Schema.of_table(SCHEMA).encode(table)
    np.testing.assert_allclose(X, np.array(TRUTH)[[2, 0, 0]], rtol=1e-15)
    assert isinstance(table, Table)
    assert y.tolist() == ["no"] * 3
