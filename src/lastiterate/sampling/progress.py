"""A progress bar that keeps quiet when nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator


def steps_shown(steps: int, label: str, show: bool | None) -> Iterator[int]:
    """0, 1, ..., steps-1, with a bar on stderr; by default only if stderr is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield from range(steps)
        return
    started = drawn = time.monotonic()
    for step in range(steps):
        yield step
        now = time.monotonic()
        if now - drawn > 0.2 or step == steps - 1:
            drawn = now
            filled = 30 * (step + 1) // steps
            left = (now - started) * (steps - step - 1) / (step + 1)
            bar = "#" * filled + "-" * (30 - filled)
            print(
                f"\r{label} [{bar}] {step + 1}/{steps} {left:5.0f} s left",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
