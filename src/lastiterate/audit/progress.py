"""How far an audit is: models, rate, time left; quiet when nobody watches."""

from __future__ import annotations

import sys
import time


class Progress:
    """A line on stderr, redrawn as models arrive."""

    def __init__(self, done: int, total: int, show: bool | None) -> None:
        self._show = sys.stderr.isatty() if show is None else show
        self._before, self._done, self._total = done, done, total
        self._started = self._drawn = time.monotonic()

    def add(self, models: int) -> None:
        """So many more are finished."""
        self._done += models
        now = time.monotonic()
        if self._show and (now - self._drawn > 0.2 or self._done == self._total):
            self._drawn = now
            print(f"\r{self.line(now - self._started)}", end="", file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """What is shown after so many seconds.

        >>> bar = Progress(0, 100, show=False)
        >>> bar.add(25); bar.line(5.0)
        'audit 25/100 models, 5/s, 15 s left'
        """
        rate = (self._done - self._before) / max(seconds, 1e-9)
        left = (self._total - self._done) / rate if rate > 0 else float("inf")
        return f"audit {self._done:,}/{self._total:,} models, {rate:,.3g}/s, {left:.0f} s left"

    def close(self) -> None:
        """End the line."""
        if self._show:
            print(file=sys.stderr)
