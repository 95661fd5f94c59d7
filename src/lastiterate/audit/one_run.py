"""An audit with one training run: many canaries, each in or out on a coin flip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.audit.methods import one_run
from lastiterate.audit.result import AuditResult, Look
from lastiterate.audit.scores import _probabilities
from lastiterate.description.validation import whole
from lastiterate.errors import DescriptionError
from lastiterate.noise.seeded import generator

Array = NDArray[np.float64]

SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed, unless the caller fixes a number."""


def audit_one_run(
    train: Callable[[NDArray[np.bool_], int], ArrayLike],
    canaries: int,
    *,
    guesses: int | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    searched: int = 1,
    random_state: int | None = None,
) -> AuditResult:
    """Bound epsilon from the guesses about many canaries in one model.

    Args:
        train: (included, seed) -> one score per canary, higher where the model looks as if the
            canary took part; ``included`` says which canaries do.
        canaries: how many.
        guesses: how many coins are guessed (the most extreme scores of both ends, evenly). By
            default several shares are tried and the error is divided among them.
        delta: of the epsilon that is refuted.
        confidence: of the lower bound.
        searched: how many audits the caller chooses the best of.
        random_state: a seed for the coins and for ``train``.

    >>> def train(included, seed):      # every canary leaves a trace of mu = 4
    ...     return 4 * included + np.random.default_rng(seed).standard_normal(len(included))
    >>> audit_one_run(train, 1000, random_state=1).epsilon_lower > 3
    True
    """
    delta, confidence = _probabilities(delta, confidence)
    m = whole("canaries", canaries, "each one is a coin to guess", at_least=2)
    rng = generator(random_state)
    included = rng.random(m) < 0.5
    scores = np.asarray(train(included.copy(), int(rng.integers(2**62))), float)
    return judge(scores, included, guesses, delta, confidence, searched)


def judge(
    scores: Array,
    included: NDArray[np.bool_],
    guesses: int | None,
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
    if guesses is not None:
        sizes = [whole("guesses", guesses, "no guess, no bound", at_least=2)]
        if sizes[0] > m:
            why = "every canary is guessed at most once"
            raise DescriptionError("guesses", guesses, f"at most {m}", why)
    else:
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
