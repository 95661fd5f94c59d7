"""What every composition theorem asks of its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError


def check_pair(epsilon: float, delta: float) -> None:
    number("epsilon", epsilon, at_least=0, infinite=True)
    number("delta", delta, at_least=0, at_most=1)


def check_rounds(rounds: int) -> None:
    if int(rounds) != rounds or not 1 <= rounds <= 2**26:
        raise DescriptionError(
            "rounds", rounds, "a whole number from 1 to 2^26", "each mechanism counts once"
        )


def check_target(target: float) -> None:
    number("target", target, at_least=0, infinite=True)


def check_slack(slack: float) -> None:
    number("slack", slack, above=0, below=1)


def check_lists(epsilons: Sequence[float], deltas: Sequence[float]) -> None:
    if len(epsilons) == 0:
        raise DescriptionError("epsilons", [], "a list with at least one entry", "no mechanism ran")
    if len(epsilons) != len(deltas):
        allowed = f"as long as epsilons ({len(epsilons)})"
        why = "every mechanism has one epsilon and one delta"
        raise DescriptionError("deltas", f"a list of {len(deltas)}", allowed, why)
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        check_pair(epsilon, delta)
        if math.isinf(epsilon):
            raise DescriptionError(
                "epsilons", epsilon, "finite", "an infinite epsilon hides nothing"
            )
