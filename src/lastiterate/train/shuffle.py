"""One external shuffle: rows that do not fit in memory, in a uniformly random order.

**Statement** (Rao 1961, Sandelius 1962). Give every row a box by independent uniform draws, shuffle
every box uniformly, and put the boxes one after another: all orders are equally likely. *Proof.*
Given who is in which box, all orders inside of boxes are equally likely; and permuting the rows
beforehand does not change the law of who is in which box. So the law of the result is invariant
under all permutations, and only the uniform one is. ∎ There are no keys, so there are no ties.

A box that is too large for memory is shuffled in the same way again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.noise import Source
from lastiterate.train.scratch import nameless

Rows = NDArray[Any]  # one element a row
BOX = 160 << 20  # bytes of rows that are shuffled in memory
_MOST_BOXES = 400  # open files
_BUFFERS = 128 << 20  # bytes of all boxes that wait to be written
_AT_ONCE = 8 << 20  # bytes that are handed on at once
_BESIDE = 24  # bytes beside a row while it is shuffled: a key, and its place twice


def shuffled(
    blocks: Iterable[Rows], count: int, source: Source, folder: str, box: int = BOX
) -> Iterator[Rows]:
    """The rows of all blocks in a uniformly random order, block by block.

    Args:
        blocks: rows, read once.
        count: about how many there are: the number of boxes depends on it, the law does not.
        source: who is in which box, and in which order.
        folder: where boxes lie meanwhile, as files without names.
        box: bytes that are shuffled in memory.

    >>> from lastiterate.noise import source
    >>> some = shuffled([np.arange(4), np.arange(4, 9)], 9, source(), ".", box=99)
    >>> sorted(np.concatenate(list(some)).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    with ExitStack() as stack:
        files: list[Any] = []
        counts: list[int] = []
        kind: Any = None
        for block in blocks:
            if kind is None:
                kind = block.dtype
                boxes = -(-5 * count * (kind.itemsize + _BESIDE) // (4 * box))
                boxes = min(_openable(), max(1, boxes))
                each = _BUFFERS // _MOST_BOXES
                files = [stack.enter_context(nameless(folder, each)) for _ in range(boxes)]
                counts = [0] * boxes
            where = source.integers(len(files), len(block))
            ordered = block[np.argsort(where, kind="stable")]
            ends = np.cumsum(np.bincount(where, minlength=len(files))).tolist()
            for k, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
                files[k].write(ordered[first:last].data)
                counts[k] += last - first
        for file, held in zip(files, counts, strict=True):
            file.seek(0)
            if held * (kind.itemsize + _BESIDE) <= 2 * box or held < 2:
                rows = np.fromfile(file, kind, held)
                order = source.permutation(held)
                for first in range(0, held, length := rows_of(_AT_ONCE, kind)):
                    yield rows[order[first : first + length]]
                del rows, order
            else:
                yield from shuffled(read(file, kind, held), held, source, folder, box)
            file.close()  # its room is free before the next one is read


def _openable() -> int:
    """How many files may be open at a time, with room for everybody else's."""
    try:
        import resource
    except ImportError:  # Windows
        return 128
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_BOXES if allowed < 0 else max(2, min(_MOST_BOXES, allowed // 2))


def rows_of(size: int, kind: np.dtype[Any]) -> int:
    """How many rows have so many bytes; at least one."""
    return max(1, size // kind.itemsize)


def read(file: Any, kind: np.dtype[Any], count: int) -> Iterator[Rows]:
    """Rows of a file, from where it is, in blocks."""
    length = rows_of(_AT_ONCE, kind)
    for first in range(0, count, length):
        yield np.fromfile(file, kind, min(length, count - first))
