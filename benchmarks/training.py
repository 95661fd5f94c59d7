"""The engine's speed: a private step against its two matrix products, and what the noise costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from lastiterate import FullBatch, Shuffled, Training
from lastiterate.losses import LinearLoss, Logistic, Softmax
from lastiterate.noise import SecureSource
from lastiterate.train import bound_rows, noisy_descent

ROUNDS = 15
STEPS = 12


def seconds(job: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def mean_seconds(job: Callable[[], Any], times: int) -> float:
    """Seconds of one call, over several in a row, as a run makes them."""
    return seconds(lambda: [job() for _ in range(times)]) / times


def step_seconds(loss: LinearLoss, X: Any, y: Any, batches: Any, steps: int) -> float:
    """Seconds of one update, without reading and checking the data."""
    n = X.shape[0]
    run = Training(
        records=n,
        steps=steps + 1,
        step_size=0.5,
        noise=1e-3,
        gradient_norm=loss.gradient_norm(1.0),
        batches=batches,
        adjacency="replace",
    )
    longer = seconds(lambda: noisy_descent(loss, X, run, labels=y, regularization=1e-3))
    once = run.replace(steps=1)
    shorter = seconds(lambda: noisy_descent(loss, X, once, labels=y, regularization=1e-3))
    return (longer - shorter) / steps


def problem(n: int, d: int, outputs: int, dtype: Any) -> tuple[LinearLoss, Any, Any, Any, Any]:
    """A loss, rows of norm at most 1, labels, and the other operands of the two products."""
    rng = np.random.default_rng(0)
    X = bound_rows(rng.standard_normal((n, d)).astype(dtype), 1.0)
    if outputs == 1:
        y: Any = rng.choice([-1.0, 1.0], n)
        return Logistic(), X, y, np.zeros(d), rng.standard_normal(n)
    y = rng.integers(0, outputs, n)
    return Softmax(outputs), X, y, np.zeros((d, outputs)), rng.standard_normal((n, outputs))


def step_against_products(n: int, d: int, outputs: int, dtype: Any) -> list[dict[str, Any]]:
    """Both measured in turns and equally long, so that a busy machine slows both alike.

    The products are in double precision, of features that lie in memory as doubles: what can be
    certified is compared with what multiplies as exactly.
    """
    loss, X, y, theta, slope = problem(n, d, outputs, dtype)
    wide = X.astype(np.float64)
    noise = SecureSource()
    ours, products, noises = [], [], []
    for _ in range(ROUNDS):
        products.append(mean_seconds(lambda: (wide @ theta, wide.T @ slope), STEPS))
        ours.append(step_seconds(loss, X, y, FullBatch(), STEPS))
        noises.append(mean_seconds(lambda: noise.normal(theta.shape), STEPS))
    ratio, share = min(ours) / min(products), min(noises) / min(ours)
    what = f"{type(loss).__name__}, {n} x {d}, {outputs} output(s), {np.dtype(dtype).name}"
    return [
        _row(
            f"full-batch step / two products in double precision: {what}",
            "<= 1.4",
            ratio,
            ratio <= 1.4,
        ),
        _row(f"share of noise in a step: {what}", "< 0.2", share, share < 0.2),
    ]


def _row(name: str, goal: str, measured: Any, ok: bool | None) -> dict[str, Any]:
    return {"name": name, "goal": goal, "measured": measured, "ok": ok}


def rows() -> list[dict[str, Any]]:
    """Measurements of this module."""
    found = []
    for n, d, outputs, dtype in (
        (50_000, 100, 1, np.float64),
        (50_000, 100, 1, np.float32),
        (20_000, 784, 10, np.float64),
    ):
        found += step_against_products(n, d, outputs, dtype)
    noise = SecureSource()
    quickest = min(seconds(lambda: noise.normal(200_000)) for _ in range(ROUNDS))
    found.append(_row("secure Gaussians per second", "", 200_000 / quickest, None))
    loss, X, y, _, _ = problem(50_000, 100, 1, np.float64)
    full = min(step_seconds(loss, X, y, FullBatch(), STEPS) for _ in range(ROUNDS))
    found.append(_row("records/s, full batch, 50000 x 100", "", 50_000 / full, None))
    batch = min(step_seconds(loss, X, y, Shuffled(512), 300) for _ in range(ROUNDS))
    found.append(_row("records/s, shuffled batches of 512, 50000 x 100", "", 512 / batch, None))
    sparse = sp.random_array((200_000, 5_000), density=0.002, format="csr", rng=1)
    sparse, y = bound_rows(sparse, 1.0), np.resize([-1.0, 1.0], 200_000)
    vector, weights = np.zeros(5_000), np.ones(200_000)
    steps, products = [], []
    for _ in range(ROUNDS):
        steps.append(step_seconds(loss, sparse, y, FullBatch(), STEPS))
        products.append(mean_seconds(lambda: (sparse @ vector, sparse.T @ weights), STEPS))
    step, two = min(steps), min(products)
    name = "full-batch step / two products: sparse, 200000 x 5000, 10 per row"
    found.append(_row(name, "<= 1.4", step / two, step <= 1.4 * two))
    return found
