"""Files that are written whole or not at all.

The content goes to a temporary file beside the target, down to the disk, and only then gets its
name. At every moment, also after a crash, the name holds the old file, the whole new one, or
nothing.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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
