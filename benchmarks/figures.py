"""How quickly figures answer: the explorer redraws them at every move of a slider."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from lastiterate import Cyclic, FullBatch, Loss, Shuffled, Training
from lastiterate.report import epsilon_growth, taut_string

FULL = Training(
    records=5,
    steps=10**5,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    adjacency="replace",
)
BATCHES = Training(
    records=60_000,
    steps=10**5,
    step_size=0.05,
    noise=5e-4,
    gradient_norm=5.0,
    batches=Shuffled(1500),
    adjacency="replace",
)
LOGISTIC = Loss(smoothness=12.5, regularization=0.01)
RUNS = {
    "full, strongly convex": (FULL, Loss(smoothness=1.0, strong_convexity=1.0)),
    "full, convex, bounded": (FULL.replace(diameter=1.0), Loss(smoothness=1.0)),
    "full, non-convex, bounded": (FULL.replace(diameter=1.0), Loss.nonconvex(smoothness=1.0)),
    "shuffled": (BATCHES, LOGISTIC),
    "cyclic": (BATCHES.replace(batches=Cyclic(1500)), LOGISTIC),
}


def _milliseconds(work: Callable[[], object], repeats: int = 5) -> float:
    """CPU time of one core, the best of a few runs."""
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return 1000 * best


def rows() -> list[dict[str, Any]]:
    """Name, goal, measured, ok; all runs have 100,000 steps."""
    measured = []
    for name, run in RUNS.items():
        drawn = {"epsilon_growth": epsilon_growth, "taut_string": taut_string}
        for figure, draw in drawn.items():
            value = _milliseconds(lambda draw=draw, run=run: draw(*run))
            measured.append((f"{figure}, {name}, ms", value))
    return [
        {"name": name, "goal": 100.0, "measured": value, "ok": value <= 100.0}
        for name, value in measured
    ]
