"""Files without names, for records on their way through a disk.

Nobody can open them by a path, only their owner's processes see them at all, and the system frees
them when the process ends, however it ends: nothing is left to be deleted after a crash.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lastiterate.errors import DescriptionError, LastIterateError

_SPARE = 64 << 20  # bytes that are left to everybody else


class DiskFullError(LastIterateError, OSError):
    """No room for the private copy of the records; nothing was released."""


def _full(folder: str, needed: int | None = None) -> DiskFullError:
    free = shutil.disk_usage(folder).free
    wanted = "" if needed is None else f", and the copy takes {needed / 2**30:,.2f} GiB"
    return DiskFullError(
        f"The disk of {folder} has {free / 2**30:,.2f} GiB left{wanted}. Records are copied there "
        "once, in a secret order, so that every pass reads them one after another. Give folder= on "
        "a disk with more room; nothing was released, and nothing is left there."
    )


def usable_folder(folder: Any, needed: int) -> str:
    """The folder, or the system's own for such files, if there is room for so many bytes."""
    path = tempfile.gettempdir() if folder is None else os.fspath(folder)
    if not os.path.isdir(path):
        why = "the records are copied there once, in a secret order"
        raise DescriptionError("folder", str(path), "a folder that exists", why)
    if shutil.disk_usage(path).free < needed + _SPARE:
        raise _full(path, needed)
    return str(path)


@contextmanager
def said(folder: str) -> Iterator[None]:
    """Turns a disk that becomes full meanwhile into an error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise _full(folder) from None


def nameless(folder: str, buffer: int) -> Any:
    """A new file for reading and writing (0600), which is gone when it is closed."""
    return tempfile.TemporaryFile(dir=folder, buffering=buffer)
