"""Speed and memory of the taut string, its restarts, closed forms and moduli."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from lastiterate.theory.modulus import Modulus, taut_path
from lastiterate.theory.taut_string import constant, constant_curve, restarts, taut_string


def _seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds of one core, the best of a few runs: other work on the machine does not count."""
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def _schedule(steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0.8, 1.2, steps), rng.uniform(0, 1, steps), rng.uniform(0.5, 2, steps)


def _peak_megabytes(work: Callable[[], object]) -> float:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return peak


def rows() -> list[dict[str, str | float]]:
    """Name, goal, measured, and ratio = measured / goal (at most 1 is met)."""
    large, middle = _schedule(10**6), _schedule(10**5)
    sizes = [10**4, 10**5, 10**6]
    schedules = [_schedule(n) for n in sizes]
    times = [_seconds(lambda x=x: taut_string(*x), 5) for x in schedules]
    slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    hoelder = Modulus(c=1.0, h=0.1, p=0.5, e=1.0, cap=0.4)
    measured = [
        ("taut string, 10^6 random steps, seconds", 0.3, times[-1]),
        (
            "taut string, 10^6 random steps, peak MB",
            200.0,
            _peak_megabytes(lambda: taut_string(*large)),
        ),
        ("taut string, log-log slope of time, 10^4 to 10^6", 1.1, slope),
        ("all restarts, 10^5 steps, seconds", 1.0, _seconds(lambda: restarts(*middle, 1.0))),
        (
            "closed form, 10^12 steps, seconds",
            1e-3,
            _seconds(lambda: constant(1 - 1e-9, 1.0, 1.0, 10**12)),
        ),
        (
            "curve mu(T), T = 1..10^4, seconds",
            0.01,
            _seconds(lambda: constant_curve(0.999, 1.0, 1.0, np.arange(1, 10_001), 5.0)),
        ),
        (
            "Hoelder 0.5, 200 steps, seconds",
            1.0,
            _seconds(lambda: taut_path(hoelder, np.full(200, 0.08), 1.0, 1.0)),
        ),
    ]
    return [
        {"name": name, "goal": goal, "measured": value, "ratio": value / goal}
        for name, goal, value in measured
    ]
