"""How far a long job is: one line on stderr, and nothing where nobody watches."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

_PATIENCE = 2.0  # seconds before a line is worth looking at, where nobody asked for one
_PAUSE = 0.2  # seconds between two looks
_TICK = 1.0  # seconds between two lines where only time is counted

_bars = 0  # lines that are being drawn: what only counts time gives way to them
_counting = False  # whether somebody counts time already
_hidden = 0  # jobs inside of which no line is drawn


class Progress:
    """A line that is redrawn as the work proceeds: what is done, the rate, the time left.

    Args:
        what: what is counted, in words.
        done: how much was done before.
        total: how much there is to do.
        show: whether to draw; by default on a terminal only, and only if it takes a while.
    """

    def __init__(self, what: str, done: int, total: int, show: bool | None = None) -> None:
        self.watched = (sys.stderr.isatty() if show is None else show) and not _hidden
        self._patience = _PATIENCE if show is None else 0.0
        self._what, self._before, self._done, self._total = what, done, done, total
        self._started = self._looked = time.monotonic()
        self._drawn = False

    def add(self, more: int) -> None:
        """So much more is finished."""
        self._done += more
        now = time.monotonic()
        due = now - self._looked > _PAUSE or self._done == self._total
        if self.watched and due and now - self._started >= self._patience:
            self._looked = now
            self._begin()
            print(f"\r{self.line(now - self._started)}", end="", file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """What is shown after so many seconds.

        >>> bar = Progress("models audited", 0, 100, show=False)
        >>> bar.add(25); bar.line(5.0)
        'models audited: 25/100, 5/s, 15 s left '
        """
        rate = (self._done - self._before) / max(seconds, 1e-9)
        left = (self._total - self._done) / rate if rate > 0 else float("inf")
        return f"{self._what}: {self._done:,}/{self._total:,}, {rate:,.3g}/s, {left:.0f} s left "

    def _begin(self) -> None:
        global _bars
        if not self._drawn:
            self._drawn, _bars = True, _bars + 1

    def close(self) -> None:
        """End the line, if there is one."""
        global _bars
        if self._drawn:
            self._drawn, _bars = False, _bars - 1
            print(file=sys.stderr)


def shown(what: str, first: int, last: int, show: bool | None = None) -> Iterator[int]:
    """first, ..., last − 1, with a line of progress; ``show`` as in `Progress`."""
    bar = Progress(what, first, last, show)
    if not bar.watched:
        yield from range(first, last)
        return
    try:
        for step in range(first, last):
            yield step
            bar.add(1)
    finally:
        bar.close()


class Working:
    """Count the seconds of a job whose end nobody knows.

    On a terminal, in the main thread, and only once it has taken a while. The line gives way to
    bars inside of the job, and inner jobs to the outer one.

    Args:
        what: the job, in words.
        hide_parts: draw no bar inside of the job: their number is private.

    >>> with Working("calibration"):
    ...     answer = 42
    """

    def __init__(self, what: str, *, hide_parts: bool = False) -> None:
        self._what, self._hides = what, hide_parts
        self._done, self._drawn = threading.Event(), False
        self._counter: threading.Thread | None = None

    def __enter__(self) -> None:
        global _counting, _hidden
        _hidden += self._hides
        here = threading.current_thread() is threading.main_thread()
        if not _counting and here and sys.stderr.isatty():
            _counting = True
            self._counter = threading.Thread(target=self._count, daemon=True)
            self._counter.start()

    def __exit__(self, *_: object) -> None:
        global _counting, _hidden
        _hidden -= self._hides
        if self._counter is not None:
            _counting = False
            self._done.set()
            self._counter.join()
            if self._drawn:
                print(file=sys.stderr)

    def _count(self) -> None:
        started, wait = time.monotonic(), _PATIENCE
        while not self._done.wait(wait):
            wait = _TICK
            if _bars == 0:
                self._drawn = True
                line = f"{self._what}: {time.monotonic() - started:.0f} s "
                print(f"\r{line}", end="", file=sys.stderr, flush=True)
