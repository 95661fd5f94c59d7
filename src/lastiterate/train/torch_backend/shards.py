"""Features that do not fit on the device: rows in host memory or in files, read ahead in blocks.

`.npy` and `.safetensors` files are memory-mapped, so nothing is copied until a block is read;
`.parquet` files are read one row group at a time. Threads read the next blocks while the device
works on this one (`staging`).
"""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.train.torch_backend import staging

_SAFE = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
BLOCK = 32 << 20  # bytes that are read at once


class Shard(ABC):
    """Some rows, one after another."""

    shape: tuple[int, int]
    dtype: torch.dtype

    @abstractmethod
    def rows(self, first: int, last: int) -> Tensor:
        """Rows first, ..., last − 1 in host memory, without a copy where possible."""


class TensorShard(Shard):
    """Rows of a tensor in host memory or of a mapped file."""

    def __init__(self, values: Tensor, mapped: bool = False) -> None:
        self._values = values
        self.mapped = mapped
        self.shape = (int(values.shape[0]), int(values.shape[1]))
        self.dtype = values.dtype

    def rows(self, first: int, last: int) -> Tensor:
        return self._values[first:last]

    def lock(self) -> None:
        """Have a GPU read the rows where they are; a mapped file may be larger than memory."""
        if not self.mapped:
            staging.page_lock(self._values, self)


class ParquetShard(Shard):
    """All columns of a parquet file as float32, one row group at a time."""

    dtype = torch.float32

    def __init__(self, path: Path) -> None:
        try:
            from pyarrow import parquet
        except ImportError as missing:
            raise UnsupportedError(
                f"Reading {path.name} needs the package `pyarrow`; or save it as .npy."
            ) from missing
        self._file = parquet.ParquetFile(path)
        described = self._file.metadata
        counts = [described.row_group(g).num_rows for g in range(described.num_row_groups)]
        self._ends = np.cumsum(counts).tolist()
        self.shape = (described.num_rows, described.num_columns)
        self._kept: tuple[int, Tensor] | None = None

    def _group(self, which: int) -> Tensor:
        if self._kept is None or self._kept[0] != which:
            table = self._file.read_row_group(which)
            columns = [table.column(c).to_numpy() for c in range(self.shape[1])]
            values = np.stack(columns, axis=1).astype(np.float32)
            self._kept = (which, torch.from_numpy(values))
        return self._kept[1]

    def rows(self, first: int, last: int) -> Tensor:
        parts = []
        while first < last:
            which = bisect_right(self._ends, first)
            start = self._ends[which - 1] if which else 0
            until = min(last, self._ends[which])
            parts.append(self._group(which)[first - start : until - start])
            first = until
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class Shards:
    """Rows of several files or arrays, one after another.

    Args:
        sources: paths (.npy, .safetensors, .parquet), arrays or host tensors.
        name: of the tensor in a .safetensors file; needed when it holds several.

    >>> rows = Shards([np.eye(3, dtype=np.float32), np.ones((2, 3), np.float32)])
    >>> rows.shape, rows.rows(2, 4).tolist()
    ((5, 3), [[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, sources: Any, name: str | None = None) -> None:
        several = sources if isinstance(sources, (list, tuple)) else [sources]
        self._shards = [_open(one, name) for one in several]
        if not self._shards or len({(s.shape[1], s.dtype) for s in self._shards}) != 1:
            found = [f"{s.shape} {s.dtype}" for s in self._shards]
            why = "all rows are records of one table"
            raise DescriptionError("sources", found, "shards of equal width and type", why)
        self.dtype = self._shards[0].dtype
        self._ends = np.cumsum([s.shape[0] for s in self._shards]).tolist()
        self.shape = (int(self._ends[-1]), self._shards[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, first: int, last: int) -> Tensor:
        """Rows first, ..., last − 1; no copy if they lie in one shard."""
        parts = self.pieces(first, last)
        if not parts:
            return torch.empty((0, self.shape[1]), dtype=self.dtype)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def pieces(self, first: int, last: int) -> list[Tensor]:
        """Rows first, ..., last − 1, the rows of each shard by themselves and not copied."""
        parts = []
        while first < last:
            which = bisect_right(self._ends, first)
            start = self._ends[which - 1] if which else 0
            until = min(last, self._ends[which])
            parts.append(self._shards[which].rows(first - start, until - start))
            first = until
        return parts

    def gather(self, indices: Sequence[int] | Any) -> Tensor:
        """These rows, copied, in ascending order of their index."""
        wanted = np.sort(np.asarray(indices))
        out = torch.empty((len(wanted), self.shape[1]), dtype=self.dtype)
        place = 0
        for which, shard in enumerate(self._shards):
            start = self._ends[which - 1] if which else 0
            mine = wanted[(wanted >= start) & (wanted < self._ends[which])] - start
            if isinstance(shard, TensorShard):
                index = torch.from_numpy(mine)
                out[place : place + len(mine)] = shard.rows(0, shard.shape[0])[index]
            else:
                for k, row in enumerate(mine.tolist()):
                    out[place + k] = shard.rows(row, row + 1)[0]
            place += len(mine)
        return out

    def block_length(self) -> int:
        """How many rows are read at once."""
        return max(1, BLOCK // (self.shape[1] * self.dtype.itemsize))

    def blocks(
        self, first: int, last: int, device: torch.device, length: int | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Rows first, ..., last − 1 in blocks on the device, each read while the last is used.

        A block is valid until the next one is asked for.
        """
        step = length or self.block_length()
        cuts = [slice(a, min(a + step, last)) for a in range(first, last, step)]
        if device.type == "cuda":
            for shard in self._shards:
                if isinstance(shard, TensorShard):
                    shard.lock()
            yield from staging.to_gpu(self, cuts, device)
        else:
            for cut, block in staging.ahead(self, cuts):
                yield cut, block.to(device)


def _open(source: Any, name: str | None) -> Shard:
    if isinstance(source, Tensor):
        return TensorShard(_checked(source))
    if isinstance(source, np.ndarray):
        return TensorShard(_checked(_as_tensor(source)))
    path = Path(source)
    if path.suffix == ".npy":
        found = np.load(path, mmap_mode="c", allow_pickle=False)
        return TensorShard(_checked(_as_tensor(found)), mapped=True)
    if path.suffix == ".safetensors":
        return TensorShard(_checked(_safetensor(path, name)), mapped=True)
    if path.suffix == ".parquet":
        return ParquetShard(path)
    raise UnsupportedError(
        f"Cannot read features from {path.name}: use .npy, .safetensors or .parquet."
    )


def _as_tensor(values: np.ndarray[Any, Any]) -> Tensor:
    if values.dtype.kind not in "f":
        values = values.astype(np.float32)
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def _checked(values: Tensor) -> Tensor:
    if values.ndim != 2 or values.dtype not in _SAFE.values():
        found = f"an array of shape {tuple(values.shape)} and type {values.dtype}"
        allowed = "tables of floating-point numbers, one row per record"
        why = "a gradient bound rests on the norm of every row"
        raise DescriptionError("sources", found, allowed, why)
    return values


def _safetensor(path: Path, name: str | None) -> Tensor:
    """A mapped tensor: eight bytes of header length, a JSON header, then the raw values."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    if name is None and len(header) == 1:
        name = next(iter(header))
    if name not in header or header[name]["dtype"] not in _SAFE:
        found = ", ".join(f"{key} ({value['dtype']})" for key, value in header.items())
        why = f"{path.name} holds {found}"
        raise DescriptionError("name", name, "a floating-point tensor of the file", why)
    first, last = header[name]["data_offsets"]
    raw = np.memmap(path, np.uint8, "c", offset=8 + length + first, shape=(last - first,))
    return torch.from_numpy(raw).view(_SAFE[header[name]["dtype"]]).view(*header[name]["shape"])
