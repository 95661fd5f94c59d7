"""One at a time: a file that is held while a run uses what lies beside it.

Two runs that go on from one checkpoint share its noise up to there and release twice what was
accounted for once; two processes that replace one folder would lose each other's result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lastiterate.errors import AssumptionError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def refused(what: str) -> AssumptionError:
    """Why a second run does not get it."""
    return AssumptionError(
        f"{what} is in use by another run. Two that go on from one state share their noise up to "
        "there, and the guarantee counts one release. Wait until that run has ended, or give this "
        "one a checkpoint of its own."
    )


@contextmanager
def held(path: Path, busy: AssumptionError | None = None) -> Iterator[None]:
    """Holds the lock file ``path``, or raises ``busy`` at once; it is gone afterwards.

    The system lets go of a lock when its process ends, however it ends. Where it cannot, the file
    itself is the lock, and stays after a crash until somebody deletes it.
    """
    handle = _locked(path, refused(f"What {path} locks") if busy is None else busy)
    try:
        yield
    finally:
        if fcntl is None:
            os.close(handle)  # no open file can be deleted there
            path.unlink(missing_ok=True)
        else:
            path.unlink(missing_ok=True)  # while it is locked, so that nobody's lock is deleted
            os.close(handle)


def _locked(path: Path, busy: AssumptionError) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    while True:
        try:
            handle = os.open(path, flags | (os.O_EXCL if fcntl is None else 0), 0o600)
        except FileExistsError:
            raise busy from None
        if fcntl is None:
            return handle
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise busy from None
        try:
            if os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False)):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)  # whoever held it deleted it just now: this was a lock on nothing
