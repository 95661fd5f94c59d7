"""What every composition theorem asks of its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lastiterate.errors import DescriptionError


def check_pair(epsilon: float, delta: float) -> None:
    if not epsilon >= 0.0:
        raise DescriptionError(
            "epsilon", epsilon, "a number of at least 0", "a negative privacy loss means nothing"
        )
    if not 0.0 <= delta <= 1.0:
        raise DescriptionError("delta", delta, "between 0 and 1", "delta is a probability")


def check_rounds(rounds: int) -> None:
    if int(rounds) != rounds or not 1 <= rounds <= 2**26:
        raise DescriptionError(
            "rounds", rounds, "a whole number from 1 to 2^26", "each mechanism counts once"
        )


def check_target(target: float) -> None:
    if not target >= 0.0:
        raise DescriptionError(
            "target", target, "a number of at least 0", "it is the epsilon of the composition"
        )


def check_slack(slack: float) -> None:
    if not 0.0 < slack < 1.0:
        raise DescriptionError(
            "slack", slack, "strictly between 0 and 1", "it is the delta paid for a smaller epsilon"
        )


def check_lists(epsilons: Sequence[float], deltas: Sequence[float]) -> None:
    if len(epsilons) == 0:
        raise DescriptionError("epsilons", [], "a list with at least one entry", "no mechanism ran")
    if len(epsilons) != len(deltas):
        raise DescriptionError(
            "deltas",
            f"a list of {len(deltas)}",
            f"as long as epsilons ({len(epsilons)})",
            "every mechanism has one epsilon and one delta",
        )
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        check_pair(epsilon, delta)
        if math.isinf(epsilon):
            raise DescriptionError(
                "epsilons", epsilon, "finite", "an infinite epsilon hides nothing"
            )
