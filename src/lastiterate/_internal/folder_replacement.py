"""Replace a folder as a whole: at every moment, also after a crash, it is the old or the new one.

The new folder is written inside a working folder beside the old one, which nobody else may enter
(0700). The old folder is renamed into it, the new one out of it, and the working folder is deleted.
A process that was killed on the way leaves the working folder behind; `finish_replacement` ends
what it began.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from lastiterate._internal.file_lock import held
from lastiterate.errors import AssumptionError, LastIterateError


def replacement_lock(folder: Path) -> Path:
    """The lock file of whoever replaces ``folder``."""
    return folder.with_name(f".{folder.name}.replacement-lock")


def finish_replacement(path: str | os.PathLike[str]) -> None:
    """End what a killed process began with the folder at ``path``; otherwise do nothing.

    Nothing happens either while another process replaces the folder, or where this one has no
    right to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     run = Path(place) / "run"
    ...     for part in ("before", "after"):
    ...         (_working(run) / part).mkdir(parents=True)
    ...     finish_replacement(run)
    ...     os.listdir(place)
    ['run']
    """
    try:
        folder = Path(path).resolve()
        if not folder.name or not _working(folder).is_dir():
            return
        with held(replacement_lock(folder)):
            finish_locked(folder)
    except (AssumptionError, OSError, RuntimeError, ValueError):  # in use, no right, no path
        return


def finish_locked(folder: Path) -> None:
    """The same for whoever holds the lock.

    The old folder gets into the working folder only after the new one is complete, and the new one
    leaves it last: where the folder has no name, the new one gets it.
    """
    working = _working(folder)
    old, new = working / "before", working / "after"
    if not folder.exists() and old.is_dir():
        os.rename(new if new.is_dir() else old, folder)
    if working.is_dir():
        shutil.rmtree(working)


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Put what ``write`` makes of an empty folder in the place of ``folder``, under its lock."""
    working = _working(folder)
    old, new = working / "before", working / "after"
    try:
        working.mkdir(mode=0o700)
        new.mkdir(mode=0o700)
        write(new)
        _sync(new)
        os.rename(folder, old)
        os.rename(new, folder)
    except BaseException:
        if old.is_dir() and not folder.exists():
            os.rename(old, folder)
        shutil.rmtree(working, ignore_errors=True)
        raise
    try:
        shutil.rmtree(working)
    except OSError as error:
        raise LastIterateError(
            f"The new folder is in {folder}, but the old one could not be deleted ({error}). "
            f"Delete {working}."
        ) from None


def _working(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replacement")


def _sync(folder: Path) -> None:
    """Bring the files of a folder to the disk; a full one says so here at the latest."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
