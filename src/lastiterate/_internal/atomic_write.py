"""Files that are written whole or not at all.

The content goes to a temporary file beside the target, down to the disk, and only then gets its
name. At every moment, also after a crash, the name holds the old file, the whole new one, or
nothing.
"""

from __future__ import annotations

import glob
import os
import tempfile
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_whole(path: Path, content: bytes, *, mode: int = 0o644, replace: bool = True) -> None:
    """Write ``content`` under the name ``path``.

    Args:
        path: the name; its folder must exist.
        content: what the file holds.
        mode: who may read it. The temporary file is never readable by others.
        replace: whether an older file of that name may go; if not, FileExistsError is raised and
            the older file stays as it is.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "note", b"first", replace=False)
    ...     (Path(folder) / "note").read_bytes(), os.listdir(folder)
    (b'first', ['note'])
    """
    handle, temporary, locked = _temporary(path)
    with locked:
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, mode)
            if replace:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)  # fails where the name is taken, even just now
                os.unlink(temporary)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


def _temporary(path: Path) -> tuple[int, str, AbstractContextManager[object]]:
    """A new file beside ``path``, its name, and the lock on it; what killed writers left is gone.

    The system lets go of a lock when its process ends, so a temporary file that nobody has locked
    will never get its name.
    """
    prefix = f".{path.name}.writing-"
    if fcntl is None:
        return *tempfile.mkstemp(dir=path.parent, prefix=prefix), nullcontext()
    for left in path.parent.glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError):
            found = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
            finally:
                os.close(found)
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(temporary):
            return handle, temporary, os.fdopen(os.dup(handle))
        os.close(handle)  # somebody took it for a leftover before it was locked


def _sync_folder(folder: Path) -> None:
    """Make the new name durable too, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
