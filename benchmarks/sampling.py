"""Speed of the sampling room: the interim table and many Langevin chains at once."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np

from lastiterate.description import Cyclic
from lastiterate.sampling import interim_privacy, logistic_likelihood, sgld

FIGURE_RECORDS = 17_864_389


def interim_curve() -> tuple[float, float]:
    """Best time of five, and peak memory in megabytes, of 100 epochs at n = 17,864,389."""

    def run() -> None:
        interim_privacy(FIGURE_RECORDS, 2, 1, 1.8, FIGURE_RECORDS**1.1456, 100, 1e-3)

    times = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return min(times), peak


def chains_against_a_loop(
    chains: int = 1000, steps: int = 10_000, looped: int = 5
) -> tuple[float, float]:
    """Processor seconds for all chains at once, and for a Python loop over them (one core each).

    The loop runs ``looped`` chains only and is scaled up: its chains do not interact.
    """
    records, d, size, eta = 500, 20, 50, 1e-3
    rng = np.random.default_rng(0)
    X = rng.standard_normal((records, d)) / np.sqrt(d)
    y = (rng.random(records) < 1 / (1 + np.exp(-X @ rng.standard_normal(d)))).astype(float)

    start = time.process_time()
    sgld(
        logistic_likelihood(),
        X,
        y,
        np.zeros((chains, d)),
        steps=steps,
        step_size=eta,
        batches=Cyclic(size),
        thin=100,
        random_state=1,
        progress=False,
    )
    together = time.process_time() - start

    start = time.process_time()
    for chain in range(looped):
        noise = np.random.default_rng(chain)
        theta, kept = np.zeros(d), []
        for step in range(steps):
            first = size * (step % (records // size))
            rows, labels = X[first : first + size], y[first : first + size]
            pull = (labels - 1 / (1 + np.exp(-(rows @ theta)))) @ rows
            theta = theta + eta / 2 * (-theta + records / size * pull)
            theta = theta + np.sqrt(eta) * noise.standard_normal(d)
            if step % 100 == 0:
                kept.append(theta)
    one_by_one = (time.process_time() - start) * chains / looped
    return together, one_by_one


def rows() -> list[dict[str, object]]:
    """One row a goal: name, goal, measured, and ratio (at least 1 means reached)."""
    seconds, megabytes = interim_curve()
    together, one_by_one = chains_against_a_loop()
    speedup = one_by_one / together
    return [
        {
            "name": "interim privacy, 100 epochs, n = 17,864,389",
            "goal": "<= 0.1 s",
            "measured": f"{seconds:.4f} s",
            "ratio": 0.1 / seconds,
        },
        {
            "name": "interim privacy, peak memory",
            "goal": "< 50 MB",
            "measured": f"{megabytes:.1f} MB",
            "ratio": 50 / megabytes,
        },
        {
            "name": "1,000 Langevin chains x 10,000 steps, d = 20, n = 500, batch 50 (NumPy)",
            "goal": ">= 20x a Python loop over chains (5 chains measured, scaled to 1,000)",
            "measured": f"{together:.1f} s against {one_by_one:.0f} s of one core, {speedup:.1f}x",
            "ratio": speedup / 20,
        },
    ]


if __name__ == "__main__":
    for row in rows():
        print(row)
