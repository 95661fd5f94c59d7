"""Tables in files: Parquet, Arrow, Feather or CSV, a folder or a pattern of them, read in blocks.

All columns but the label are features, in the order of the first file. Nothing is guessed: files
whose columns differ, types that are not numbers and missing values are refused.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import AssumptionError, DescriptionError, MissingExtraError

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".feather": "feather",
    ".csv": "csv",
}
_BLOCK = 4 << 20  # numbers that are read at once
_SAME = "all rows are records of one table"


class ArrowFiles:
    """Features and labels of a table that lies in files.

    Args:
        files: a path, a folder, a pattern such as "data/*.parquet", a list of paths, or a dataset
            of pyarrow (which may have more formats, partitions or filters).
        label: the name of its column.

    Attributes:
        records: how many rows there are.
        features: the names of the other columns.
    """

    def __init__(self, files: Any, label: str) -> None:
        try:
            import pyarrow
            from pyarrow import dataset
        except ImportError as missing:
            raise MissingExtraError("Reading files of records", missing.name, "tables") from missing
        try:
            self._open(files, label, dataset)
        except (pyarrow.ArrowException, OSError) as wrong:
            fault = type(wrong).__name__
        else:
            return
        raise _unreadable(fault)

    def _open(self, files: Any, label: str, dataset: Any) -> None:
        found: Any = files
        if not isinstance(files, dataset.Dataset):
            paths = _paths(files)
            kind: Any = _format(paths)
            if kind == "parquet":  # by default whole row groups of several files are read ahead
                told = dataset.ParquetFragmentScanOptions(pre_buffer=False)
                kind = dataset.ParquetFileFormat(default_fragment_scan_options=told)
            found = dataset.dataset([str(path) for path in paths], format=kind)
        self._dataset, self._label = found, label
        self._one_table()
        names = found.schema.names
        if not isinstance(label, str) or names.count(label) != 1:
            allowed = f"one of its columns, once ({len(names)}, not shown)"
            why = "a model learns to predict it; in a CSV without a header names are a record"
            raise DescriptionError("label", label, allowed, why)
        self.features = [name for name in names if name != label]
        self._dtype = self._numbers()
        self.records = int(found.count_rows())
        if not self.records or not self.features:
            found_so = f"{self.records} rows with {len(self.features)} features"
            why = "no records, no run"
            raise DescriptionError("files", found_so, "a table with rows and features", why)

    def _one_table(self) -> None:
        """Raise unless all files have the same columns of the same types."""
        schema = self._dataset.schema
        if len(set(schema.names)) != len(schema.names):
            why = "a name means one column"
            raise DescriptionError("files", "a table with equal names", "different names", why)
        for piece in self._dataset.get_fragments():
            own = piece.physical_schema
            given = [field for field in schema if field.name in own.names]
            if (
                [f.name for f in own] != [f.name for f in given]
                or any(own.field(f.name).type != f.type for f in given)
                or (len(given) < len(schema) and not self._partitioned(piece))
            ):
                why = f"{_SAME}, and {os.path.basename(getattr(piece, 'path', 'one'))} differs"
                allowed = "files with the same columns, in the same order and of the same types"
                raise DescriptionError("files", "of different schemas", allowed, why)

    @staticmethod
    def _partitioned(piece: Any) -> bool:
        """Whether a column may come from the path of the file."""
        return str(piece.partition_expression) != "true"

    def _numbers(self) -> Any:
        """The type that holds every feature: float32 if that loses nothing of any of them."""
        from pyarrow import types

        kinds = numbers(self._dataset.schema, self.features)
        short = all(
            types.is_boolean(kind) or kind.bit_width <= (32 if types.is_floating(kind) else 16)
            for kind in kinds
        )
        return np.float32 if short else np.float64

    def blocks(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Features and labels of all records, once."""
        import pyarrow

        length = max(1, _BLOCK // (len(self.features) + 1))
        ahead = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        columns = [*self.features, self._label]
        try:
            batches = self._dataset.to_batches(columns=columns, batch_size=length, **ahead)
            for batch in batches:
                if not batch.num_rows:
                    continue
                yield pair_of(batch, self.features, self._label, self._dtype)
        except (pyarrow.ArrowException, OSError) as wrong:
            fault = type(wrong).__name__
        else:
            return
        raise _unreadable(fault)


def numbers(schema: Any, features: list[str]) -> list[Any]:
    """The types of these columns; raises unless all of them are numbers."""
    from pyarrow import types

    kinds = [schema.field(name).type for name in features]
    for name, kind in zip(features, kinds, strict=True):
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            allowed = "numbers; encode texts, categories and dates by public rules first"
            raise DescriptionError(f"column {name!r}", str(kind), allowed, "rows are vectors")
    return kinds


def pair_of(table: Any, features: list[str], label: str, dtype: Any) -> tuple[Any, Any]:
    """Features and labels of a table or a batch of Arrow; raises if a cell is missing."""
    X = np.empty((table.num_rows, len(features)), dtype)
    for k, name in enumerate(features):
        X[:, k] = _plain(table.column(name))
    return X, _plain(table.column(label))


def _plain(column: Any) -> NDArray[Any]:
    if column.null_count:
        raise _missing()
    several = hasattr(column, "chunks")
    values = column.to_numpy() if several else column.to_numpy(zero_copy_only=False)
    return np.asarray(values)


def arrow_table(frame: Any) -> Any:
    """A data frame of pandas as a table of Arrow; a table stays."""
    import pyarrow

    if isinstance(frame, pyarrow.Table):
        return frame
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def _unreadable(fault: str) -> AssumptionError:
    """Raised outside of the handler: the library's own message may show cells."""
    return AssumptionError(
        f"The files could not be read ({fault}): they are damaged, changed "
        "meanwhile, or of another kind than their names say. Nothing was released."
    )


def _missing() -> AssumptionError:
    return AssumptionError(
        "The files have missing values; where is not said, as messages travel. Fill them by a "
        "public rule before training, with a column that says so if that matters."
    )


def _paths(files: Any) -> list[Path]:
    several = files if isinstance(files, (list, tuple)) else [files]
    found: list[Path] = []
    for one in several:
        if not isinstance(one, (str, os.PathLike)):
            allowed = "a path, a folder, a pattern, a list of them, or a dataset of pyarrow"
            raise DescriptionError("files", type(one).__name__, allowed, "records come from there")
        path = Path(one)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _counts(p, path))
            if any("=" in part for p in inside for part in p.relative_to(path).parts[:-1]):
                allowed = "pyarrow.dataset.dataset(folder, partitioning='hive')"
                why = "names of its folders hold columns, which would be lost"
                raise DescriptionError("files", str(path), allowed, why)
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            found += sorted(Path(p) for p in glob.glob(str(one), recursive=True))
    if not found:
        allowed = "a file, or a folder or pattern with some"
        raise DescriptionError("files", str(files), allowed, "no file was found there")
    if len({path.resolve() for path in found}) != len(found):
        why = "its records would count twice"
        raise DescriptionError("files", str(files), "every file once", why)
    return found


def _counts(path: Path, folder: Path) -> bool:
    """Whether it is data: by custom, names with a dot or underscore in front are not."""
    return not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _format(paths: list[Path]) -> str:
    kinds = {_FORMATS.get(path.suffix.lower()) for path in paths}
    if len(kinds) != 1 or None in kinds:
        found = ", ".join(sorted({path.suffix or path.name for path in paths}))
        allowed = f"files of one kind: {', '.join(_FORMATS)}"
        raise DescriptionError("files", found, allowed, _SAME)
    return str(next(iter(kinds)))
