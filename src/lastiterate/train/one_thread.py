"""Products too small to share, each in one thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_lock = threading.Lock()
_inside: list[Any] = []  # what the first of those inside will restore, once for each of them


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Libraries of linear algebra use one thread meanwhile, if they can be told to.

    Waking the others costs more than such products, and cores are used by several of them instead.
    The setting is the process's: of several at a time, the last one to leave restores it.

    >>> with one_thread():
    ...     pass
    """
    if not wanted or not find_spec("threadpoolctl"):
        yield
        return
    with _lock:
        limits = _inside[0] if _inside else import_module("threadpoolctl").threadpool_limits(1)
        _inside.append(limits)
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside:
                limits.restore_original_limits()
