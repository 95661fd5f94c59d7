"""Records on a disk: copied once in the order of the run, then read one after another.

A hidden partition is a secret order, cut into batches. Here the records themselves are put in that
order, by one external shuffle (`shuffle`), so that a batch is a range of the copy and a pass over
the data is one pass over the disk. Blocks are read and added up by a few threads, so that some
compute while another one reads: sums in whole numbers do not depend on who comes first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.progress import Progress
from lastiterate.description import Training
from lastiterate.description.batches import Rows, RowStream
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.noise import Source
from lastiterate.train.grid import Parameters
from lastiterate.train.one_thread import one_thread
from lastiterate.train.scratch import nameless, said, usable_folder
from lastiterate.train.shuffle import BOX, read, rows_of, shuffled
from lastiterate.train.spread import Records, whole_pair
from lastiterate.train.whole_sums import Limbs, WholeSums

_BLOCK = 2 << 20  # bytes that are read at once
_BUFFER = 1 << 20
_THREADS = 4  # more wait for the disk
_AT_ONCE = 100  # blocks that are waited for: a full batch has as many as the file

T = TypeVar("T")
Blocks = Callable[[], Iterable[tuple[Any, Any]]]


class FiledRecords(Records):
    """Records that are read once from wherever they are, and then from a private copy.

    Args:
        blocks: returns an iterator of (rows, targets), all records once; rows have the intercept's
            column and are no longer than the run's feature_bound.
        records, columns: how many there are.
        folder: on a disk with room for the copy, 4 bytes a feature and 8 a label; by default the
            system's folder for temporary files. The copy is a file without a name.
    """

    def __init__(self, blocks: Blocks, records: int, columns: int, folder: Any = None) -> None:
        self._blocks, self.records, self.columns = blocks, records, columns
        self._kind = np.dtype([("X", "<f4", (columns,)), ("y", "<f8")])
        self._folder, self._copy = folder, _Copy(None, self._kind, 0)
        self._meanwhile = ExitStack()

    def __enter__(self) -> Self:
        self._meanwhile.enter_context(one_thread())  # in each of ours
        return self

    def __exit__(self, *_: object) -> None:
        self._meanwhile.close()
        self._copy.close()

    def arranged(self, training: Training, sums: WholeSums, source: Source) -> RowStream:
        """Copies the records, in a secret order if the batches are hidden."""
        scheme = training.batches
        if not scheme.ordered:
            raise UnsupportedError(
                f"{scheme.name} batches pick records from everywhere in the file for every update, "
                "and each would read all of it: take Shuffled, Reshuffled, Cyclic or FullBatch "
                "batches, or train in memory."
            )
        needed = self.records * self._kind.itemsize
        again = scheme.hidden and not scheme.repeated
        folder = usable_folder(self._folder, (1 + again) * needed + 2 * BOX * (needed > BOX))
        with said(folder):
            rows: Iterable[NDArray[Any]] = self._whole(sums)
            if scheme.hidden:
                rows = shuffled(rows, self.records, source, folder)
            self._keep(rows, folder)

        def reshuffle() -> None:
            with said(folder):
                before = self._copy.all()
                self._keep(shuffled(before, self.records, source, folder), folder)

        return _OneAfterAnother(training, source, reshuffle if again else None)

    def total(self, sums: WholeSums, parameters: Parameters, rows: Rows) -> Limbs:
        assert isinstance(rows, slice)

        def of(some: NDArray[Any]) -> Limbs:
            return sums.of(parameters, some["X"], sums.objective.targets(some["y"]))

        total = np.zeros((2, 3, self.columns, sums.objective.outputs()), np.int64)
        for each in self._copy.range(of, rows.start, rows.stop):
            total += each
        return total

    def _whole(self, sums: WholeSums) -> Iterator[NDArray[Any]]:
        """All records as the copy has them; raises unless there are as many as declared."""
        seen, bar = 0, Progress("records copied", 0, self.records)
        for some, targets in self._blocks():
            X, y = whole_pair(sums, some, targets)
            rows = np.empty(len(X), self._kind)
            rows["X"], rows["y"] = X, y
            seen += len(rows)
            bar.add(len(rows))
            yield rows
        bar.close()
        if seen != self.records:
            raise AssumptionError(
                f"{seen:,} records were read where {self.records:,} had been counted: the files "
                "changed meanwhile, and the noise is made for the number that was counted. Nothing "
                "was released; train again when nobody writes to them."
            )

    def _keep(self, rows: Iterable[NDArray[Any]], folder: str) -> None:
        file = nameless(folder, _BUFFER)
        try:
            for some in rows:
                file.write(some.data)
            file.flush()
        except BaseException:
            file.close()
            raise
        self._copy.close()
        self._copy = _Copy(file, self._kind, self.records)


class _OneAfterAnother(RowStream):
    """The batches of records that lie in the order of the run: ranges."""

    def __init__(
        self, training: Training, source: Source, reshuffle: Callable[[], None] | None
    ) -> None:
        super().__init__(training.batches, training.records, source)
        self._per_epoch = training.batches.per_epoch(training.records) or 1
        self._size, self._reshuffle = training.batches.largest(training.records), reshuffle

    def __next__(self) -> Rows:
        k = self.step % self._per_epoch
        if self._reshuffle is not None and k == 0 and self.step:
            self._reshuffle()
        self.step += 1
        return slice(k * self._size, (k + 1) * self._size)


class _Copy:
    """A file of rows, read in blocks by threads with room of their own."""

    def __init__(self, file: Any, kind: np.dtype[Any], count: int) -> None:
        self._file, self._kind, self._count = file, kind, count
        self._length = rows_of(_BLOCK, kind)
        self._threads = ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1))
        self._own, self._reading = threading.local(), threading.Lock()

    def range(self, work: Callable[[NDArray[Any]], T], first: int, last: int) -> Iterator[T]:
        """What ``work`` makes of rows first, ..., last − 1, block by block; it keeps no row."""
        starts = range(first, last, self._length)
        each = map if len(starts) < 2 else self._threads.map
        for k in range(0, len(starts), _AT_ONCE):
            some = starts[k : k + _AT_ONCE]
            yield from each(lambda k: work(self._read(k, min(k + self._length, last))), some)

    def all(self) -> Iterator[NDArray[Any]]:
        """Rows of the whole file."""
        self._file.seek(0)
        return read(self._file, self._kind, self._count)

    def close(self) -> None:
        """The file is gone."""
        self._threads.shutdown(cancel_futures=True)
        if self._file is not None:
            self._file.close()

    def _read(self, first: int, last: int) -> NDArray[Any]:
        """These rows, where this thread read the ones before."""
        if not hasattr(self._own, "room"):
            self._own.room = np.empty(self._length, self._kind)
        rows: NDArray[Any] = self._own.room[: last - first]
        with self._reading:
            self._file.seek(first * self._kind.itemsize)
            read = self._file.readinto(rows.view(np.uint8))
        if read != rows.nbytes:
            raise AssumptionError("The private copy of the records was cut short meanwhile.")
        return rows
