"""Arrays and JSON that may come from strangers: nothing in them runs, and memory is bounded.

A pickle (joblib, torch.load, NumPy's object arrays) runs code when it is opened. Here an archive
holds doubles alone, stored and not compressed, so that it can never expand beyond its own size; and
JSON is bounded in size and depth, names nothing twice, and has no numbers that a double cannot
hold.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.json_size import nesting, values
from lastiterate.errors import DescriptionError

MOST_ARRAY_BYTES = 1 << 30
MOST_JSON_BYTES = 16 << 20
MOST_DEPTH = 64
MOST_VALUES = 2_000_000
_WHY = "what cannot be read as plain data is not read at all"


def archived(arrays: Mapping[str, Any]) -> bytes:
    """Arrays of doubles as one .npz archive."""
    file = io.BytesIO()
    doubles = {name: np.asarray(value, "<f8", order="C") for name, value in arrays.items()}
    np.savez(file, **doubles)  # type: ignore[arg-type]
    return file.getvalue()


def read_arrays(path: Path) -> dict[str, NDArray[np.float64]]:
    """What `archived` wrote.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.npz"
    ...     _ = path.write_bytes(archived({"coef": [[1.0, 2.0]], "intercept": 0.5}))
    ...     read_arrays(path)
    {'coef': array([[1., 2.]]), 'intercept': array(0.5)}
    """
    try:
        _refuse_pipes(path)
        size = path.stat().st_size
        if size > MOST_ARRAY_BYTES:
            raise ValueError(f"{size:,} bytes, more than {MOST_ARRAY_BYTES:,}")
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("compressed arrays")
            if sum(entry.file_size for entry in entries) > size:
                raise ValueError("arrays that overlap")
            if len({entry.filename for entry in entries}) < len(entries):
                raise ValueError("an array twice")
            return {
                entry.filename.removesuffix(".npy"): _array(archive.read(entry))
                for entry in entries
            }
    except Exception as error:  # a damaged archive breaks its readers in many ways
        found = f"{path.name} ({type(error).__name__}: {error!s:.200})"
        allowed = "an .npz archive of doubles, not compressed"
        raise DescriptionError("model", found, allowed, _WHY) from None


def _array(content: bytes) -> NDArray[np.float64]:
    """The numbers are counted before they get any memory."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array in another format")
    shape, columns_first, kind = np.lib.format.read_array_header_1_0(file)
    if kind != np.dtype("<f8"):
        raise ValueError(f"numbers of the kind {kind}")
    numbers = np.frombuffer(content, "<f8", offset=file.tell()).astype(np.float64)
    return numbers.reshape(shape, order="F" if columns_first else "C")


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object."""
    return read_hashed_json(path)[0]


def read_hashed_json(path: Path) -> tuple[dict[str, Any], str]:
    """One JSON object, and the SHA-256 of the file that it was read from.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "run.json"
    ...     _ = path.write_text('{"steps": 10, "steps": 20}')
    ...     read_json(path)
    Traceback (most recent call last):
    ...
    lastiterate.errors.DescriptionError: run.json must be one JSON object, got 'ValueError: a \
name twice: steps': what cannot be read as plain data is not read at all.
    """
    try:
        _refuse_pipes(path)
        with path.open("rb") as file:
            raw = file.read(MOST_JSON_BYTES + 1)
        if len(raw) > MOST_JSON_BYTES:
            raise ValueError(f"more than {MOST_JSON_BYTES:,} bytes")
        if values(raw) > MOST_VALUES or nesting(raw) > MOST_DEPTH:
            raise ValueError(f"more than {MOST_VALUES:,} values or {MOST_DEPTH} levels")
        table = json.loads(
            raw.decode("utf-8"),
            parse_constant=_number,
            parse_float=_number,
            object_pairs_hook=_once,
        )
        if not isinstance(table, dict):
            raise ValueError(type(table).__name__)
    except (OSError, ValueError, RecursionError) as error:
        found = f"{type(error).__name__}: {error!s:.200}"
        raise DescriptionError(path.name, found, "one JSON object", _WHY) from None
    return table, hashlib.sha256(raw).hexdigest()


def _refuse_pipes(path: Path) -> None:
    """Opening a pipe waits for a writer who may never come."""
    if path.exists() and not path.is_file():
        raise ValueError("no plain file")


def _number(word: str) -> float:
    """A number that a double can hold; 1e999 would silently become infinite."""
    if not math.isfinite(value := float(word)):
        raise ValueError(f"{word[:40]} is not a number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"a name twice: {name[:40]}")
        table[name] = value
    return table
