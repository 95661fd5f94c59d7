"""An audit with one training run: many canaries, each in or out on a coin flip."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.audit.methods import one_run
from lastiterate.audit.result import AuditResult, Look
from lastiterate.errors import DescriptionError

Array = NDArray[np.float64]

SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed; the error is divided among them."""


def judge(
    scores: Array,
    included: NDArray[np.bool_],
    delta: float,
    confidence: float,
    searched: int,
) -> AuditResult:
    """Guess the coins from the scores and bound epsilon."""
    m = len(included)
    if scores.shape != (m,):
        raise DescriptionError(
            "scores", f"of shape {scores.shape}", f"{m} numbers, one a canary", "each is guessed"
        )
    if np.isnan(scores).any():
        count = int(np.isnan(scores).sum())
        raise DescriptionError(
            "scores", f"NaN for {count} canaries", "numbers", "a guess needs a number"
        )
    if np.ptp(scores) == 0:
        raise DescriptionError(
            "scores", f"{scores[0]:g} for every canary", "able to differ", "nothing can be guessed"
        )
    sizes = sorted({max(2, round(share * m)) for share in SHARES})
    level = (1 - confidence) / (searched * len(sizes))
    order = np.argsort(scores, kind="stable")
    looks = [_look(order, included, size, delta, level) for size in sizes]
    return AuditResult("one-run", delta, confidence, tuple(looks), 1, searched)


def _look(order: Any, included: Any, size: int, delta: float, level: float) -> Look:
    low, high = order[: size // 2], order[len(order) - (size - size // 2) :]
    wrong_in = int(np.count_nonzero(~included[high]))  # guessed in, was out
    wrong_out = int(np.count_nonzero(included[low]))
    right = size - wrong_in - wrong_out
    epsilon = one_run.epsilon_below(right, size, len(order), delta, level)
    # Here "outside" counts guesses of "in": the false alarms among them.
    return Look(
        epsilon,
        0.0,
        float("nan"),
        1,
        wrong_in,
        max(len(high), 1),
        wrong_out,
        max(len(low), 1),
        (0.0, 1.0),
        (0.0, 1.0),
    )
