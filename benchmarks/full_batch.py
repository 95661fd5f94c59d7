"""The exact optimum against the way the paper computes it, and the accountant's own speed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.curves import gaussian
from lastiterate.theory.full_batch import FULL_BATCH
from lastiterate.theory.taut_string import constant_curve


def best_of(times: int, job: Callable[[], Any]) -> float:
    """Seconds of the quickest of several runs."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def generic(c: float, s: float, diameter: float, steps: int) -> float:
    """Chien & Li 2025, Theorem 3.1 by a general optimiser over beta, for every tau: coefficient at
    unit noise.
    """
    best = steps * s * s
    for tau in range(1, steps):
        left = steps - tau
        distance = min(s * tau if c == 1 else s * (c**tau - 1) / (c - 1), diameter)
        weights = c ** (-2.0 * np.arange(1, left + 1))

        def cost(
            beta: np.ndarray, distance: float = distance, weights: np.ndarray = weights
        ) -> float:
            return float((s * s / beta).sum() + distance**2 / ((1 - beta) * weights).sum())

        found = minimize(cost, np.full(left, 0.5), bounds=[(1e-6, 1 - 1e-6)] * left)
        best = min(best, float(found.fun))
    return best / 2


def rows() -> list[dict[str, Any]]:
    """Measurements of this module."""
    found = []
    string = FULL_BATCH
    steps, s = 60, 0.08
    run = Training(
        records=5,
        steps=steps,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        diameter=1.0,
        adjacency="replace",
    )
    for kind, c, loss in (
        ("strongly convex", 0.9, Loss(smoothness=1.0, strong_convexity=1.0)),
        ("convex", 1.0, Loss(smoothness=1.0)),
        ("not convex", 1.1, Loss.nonconvex(smoothness=1.0)),
    ):
        start = time.perf_counter()
        theirs = generic(c, s, 1.0, steps)
        slow = time.perf_counter() - start
        fast = best_of(20, lambda loss=loss: string.evaluate(run, loss))  # type: ignore[misc]
        ours = (string.evaluate(run, loss).curve.mu or 0.0) ** 2 / 2
        name = f"shifted interpolation vs generic optimiser, {kind}, T = {steps}"
        found.append(
            {
                "name": f"{name}: times faster",
                "goal": ">= 1000",
                "measured": slow / fast,
                "ok": slow / fast >= 1000,
            }
        )
        found.append(
            {
                "name": f"{name}: our value / theirs",
                "goal": "<= 1",
                "measured": ours / theirs,
                "ok": ours <= theirs * (1 + 1e-9),
            }
        )
    forever = run.replace(steps=10**12, diameter=math.inf)
    seconds = best_of(20, lambda: account(forever, Loss(smoothness=1.0, regularization=0.01)).mu)
    found.append(
        {
            "name": "account, constant parameters, T = 10^12, ms",
            "goal": "< 5",
            "measured": seconds * 1e3,
            "ok": seconds < 5e-3,
        }
    )
    counts = np.arange(1, 10_001)
    seconds = best_of(
        5, lambda: gaussian.epsilon(constant_curve(0.99, 0.08, 1.0, counts, 1.0), 1e-5)
    )
    found.append(
        {
            "name": "epsilon(T) for T = 1..10^4, s",
            "goal": "<= 0.2",
            "measured": seconds,
            "ok": seconds <= 0.2,
        }
    )
    return found
