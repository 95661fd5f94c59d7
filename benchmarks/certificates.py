"""How long it takes to sign and to check a certificate, and how tight the signed number is."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate import (
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
    calibrate,
    certify,
    verify,
)
from lastiterate.description import Batches


def random_schedule(steps: int, batches: Batches) -> Training:
    """A run with random step sizes and noises."""
    random = np.random.default_rng(1)
    return Training(
        records=50_000,
        steps=steps,
        step_size=random.uniform(0.0, 0.2, steps),
        noise=random.uniform(1e-3, 3e-3, steps),
        gradient_norm=1.0,
        batches=batches,
        adjacency="replace",
    )


def sampled(batches: Batches, adjacency: str) -> Training:
    """A constant run of 1,000 steps with batches drawn afresh."""
    return Training(
        records=10_000,
        steps=1_000,
        step_size=0.1,
        noise=1e-3,
        gradient_norm=1.0,
        batches=batches,
        adjacency=adjacency,
    )


def _timed(job: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return job(), time.perf_counter() - start


def _signed(name: str, run: Training, loss: Loss, goal: float | None) -> list[dict[str, Any]]:
    certificate, signing = _timed(lambda: certify(run, loss, delta=1e-6))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        certificate.save(path)
        size = path.stat().st_size
        _, checking = _timed(lambda: verify(path))
    excess = certificate.epsilon / account(run, loss).epsilon(1e-6) - 1
    goal_text = "-" if goal is None else f"<= {goal:g} s"
    return [
        {
            "name": f"verify: {name}",
            "goal": goal_text,
            "measured": f"{checking:.2f} s (signing {signing:.1f} s, {size:,} bytes, "
            f"epsilon + {excess:.1e})",
            "ratio": None if goal is None else checking / goal,
            "ok": None if goal is None else checking <= goal,
        }
    ]


def rows() -> list[dict[str, Any]]:
    """The measurements."""
    loss = Loss(smoothness=1.0, regularization=0.1)
    answer = _signed("full batch, 10^6 random steps", random_schedule(10**6, FullBatch()), loss, 10)
    shuffled = random_schedule(10**5, Shuffled(500))
    answer += _signed("shuffled, 10^5 random steps, 100 batches", shuffled, loss, None)
    reshuffled = random_schedule(2000, Reshuffled(1250))
    answer += _signed("reshuffled, 50 random epochs of 40", reshuffled, loss, None)
    answer += _signed("Poisson, 1,000 steps", sampled(Poisson(0.01), "zero-out"), loss, None)
    fresh = sampled(WithoutReplacement(100), "replace")
    answer += _signed("without replacement, 1,000 steps", fresh, loss, None)
    wide = Training(
        records=1,
        steps=4000,
        step_size=1.0,
        noise=1.0,
        gradient_norm=0.05,
        adjacency="zero-out",
        batches=FullBatch(),
        diameter=20.0,
    )
    answer += _signed("coupling, 4,000 steps on a set 20 noises wide", wide, Loss(0.0), 30)
    run = sampled(Shuffled(100), "replace")
    found, seconds = _timed(lambda: calibrate(run, loss, 1.0, 1e-6))
    reached = account(found, loss).epsilon(1e-6)
    answer.append(
        {
            "name": "calibrate: noise of a shuffled run, 1,000 steps",
            "goal": "epsilon in [0.999, 1]",
            "measured": f"{reached:.6f} in {seconds:.3f} s",
            "ratio": reached,
            "ok": 0.999 <= reached <= 1.0,
        }
    )
    return answer
