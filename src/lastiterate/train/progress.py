"""A progress bar for long runs, quiet when nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

_PATIENCE = 2.0  # seconds before a bar is worth looking at
_PAUSE = 0.1  # seconds between two looks


def shown(first: int, last: int, show: bool | None = None) -> Iterator[int]:
    """first, ..., last − 1 with a bar on stderr; by default only on a terminal, for long runs.

    Without the package `rich` there is no bar.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield from range(first, last)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    except ImportError:
        yield from range(first, last)
        return
    started = looked = time.monotonic()
    bar = Progress(
        "noisy descent",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=last, completed=first)
    try:
        for step in range(first, last):
            yield step
            now = time.monotonic()
            if now - looked > _PAUSE and now - started > _PATIENCE:
                bar.start()  # once started, a further call changes nothing
                bar.update(task, completed=step + 1)
                looked = now
    finally:
        bar.stop()
