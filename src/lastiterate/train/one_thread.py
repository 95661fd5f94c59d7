"""Products too small to share, each in one thread."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec


def one_thread(wanted: bool = True) -> AbstractContextManager[object]:
    """Libraries of linear algebra use one thread meanwhile, if they can be told to.

    Waking the others costs more than such products, and cores are used by several of them instead.

    >>> with one_thread():
    ...     pass
    """
    if wanted and find_spec("threadpoolctl"):
        limits: AbstractContextManager[object] = import_module("threadpoolctl").threadpool_limits(1)
        return limits
    return nullcontext()
