"""How long ordered mini-batches take to account: seconds against the goal, one row each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lastiterate.theory.positions import position_mus
from lastiterate.theory.reshuffled import reshuffled

BATCHES = EPOCHS = 1_000


def _schedules() -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A constant run of a million steps, and one whose every step is different."""
    one = np.ones(BATCHES * EPOCHS)
    rng = np.random.default_rng(0)
    varied = tuple(
        one * rng.uniform(low, high, len(one))
        for low, high in ((0.9999, 1.0), (0.5, 1.0), (0.9, 1.1))
    )
    return (0.9999 * one, one, one), varied


def rows() -> list[dict[str, Any]]:
    """Name, goal and measured seconds, their ratio, and whether the goal is met."""
    constant, varied = _schedules()
    small = tuple(v[: 40 * 200] for v in constant)
    cases: list[tuple[str, float, Callable[[], object]]] = [
        ("shuffled, 10^6 steps, constant", 2.0, lambda: position_mus(*constant, BATCHES)),
        ("shuffled, 10^6 steps, any schedule", 60.0, lambda: position_mus(*varied, BATCHES)),
        (
            "shuffled, 10^6 steps, any schedule, bounded domain",
            60.0,
            lambda: position_mus(*varied, BATCHES, 5.0),
        ),
        ("reshuffled, 40 x 200", 20.0, lambda: reshuffled(*small, 40, delta=1e-6)),
        ("reshuffled, 1000 x 1000", 120.0, lambda: reshuffled(*constant, BATCHES, delta=1e-6)),
        (
            "reshuffled, 1000 x 1000, any schedule",
            120.0,
            lambda: reshuffled(*varied, BATCHES, delta=1e-6),
        ),
    ]
    out = []
    for name, goal, work in cases:
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
        ratio = seconds / goal
        out.append(
            {"name": name, "goal": goal, "measured": seconds, "ratio": ratio, "ok": ratio <= 1}
        )
    return out


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:55s} {row['measured']:8.2f} s   goal {row['goal']:6.1f} s")
