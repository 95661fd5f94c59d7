"""Speed and accuracy of composition: goals, and what this machine measures."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from lastiterate.composition import heterogeneous, optimal
from lastiterate.generalization import generalization


def rows() -> list[dict[str, Any]]:
    """One row per goal; a ratio of at most 1 meets it."""
    epsilons = np.random.default_rng(0).uniform(0.02, 0.08, 2000).tolist()
    return [
        _row(
            "optimal, a million rounds, s", 1.0, _timed(lambda: optimal(0.01, 1e-12, 10**6, 90.0))
        ),
        _row(
            "optimal, whole curve inverted, s",
            1.0,
            _timed(lambda: optimal(0.01, 1e-12, 10**6).epsilon(1e-5)),
        ),
        _row("optimal, relative excess at 1e5 rounds", 1e-9, _excess()),
        _row(
            "heterogeneous, 2000 rounds at 1e-3, s",
            1.0,
            _timed(lambda: heterogeneous(epsilons, [1e-8] * 2000, 10.0, grid=1e-3)),
        ),
        _row(
            "generalization of a pair, s", 0.1, _timed(lambda: generalization((0.1, 1e-6), 10**4))
        ),
    ]


def _row(name: str, goal: float, measured: float) -> dict[str, Any]:
    return {"name": name, "goal": goal, "measured": measured, "ratio": measured / goal}


def _timed(work: Callable[[], object]) -> float:
    """The best of three: what the code costs, not what else the machine was doing."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _excess() -> float:
    """optimal / truth - 1 at T = 1e5, truth summed in 50 digits."""
    epsilon, rounds, target = 0.02, 100_000, 45.0
    with mpmath.workdps(50):
        e, t = mpmath.mpf(epsilon), mpmath.mpf(target)
        liar = 1 / (1 + mpmath.exp(e))
        last = int((rounds - target / epsilon) / 2)
        term = mpmath.binomial(rounds, last) * liar**last * (1 - liar) ** (rounds - last)
        total = mpmath.mpf(0)
        for count in range(last, last - 6000, -1):
            total += term * -mpmath.expm1(t - (rounds - 2 * count) * e)
            term *= count * mpmath.exp(e) / (rounds - count + 1)
        return float(mpmath.mpf(optimal(epsilon, 0.0, rounds, target)) / total - 1)


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:45s} goal {row['goal']:8.1e}  measured {row['measured']:8.1e}")
