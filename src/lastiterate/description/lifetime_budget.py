"""What one person may be charged for ever, declared before the first model is released.

Where each day may depend on what was released before, a sum that is only read off at the end bounds
nothing: the days that were dear may be the ones that a release made dear. What is declared in
advance, and kept by refusing, does (`bounds.adaptive_stretches`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.description.fields import (
    above,
    check_fields,
    check_rules,
    field_,
    integer,
    number,
)
from lastiterate.description.serialization import Serializable
from lastiterate.errors import LifetimeBudgetError

_LARGEST = 1e9  # beyond it nothing is promised


@dataclass(frozen=True)
class LifetimeBudget(Serializable):
    """A bound on what a person pays, however often and however adaptively models are released.

    A day is one run from what was released before it to what it releases.

    >>> lifetime_budget = LifetimeBudget(mu=1.0, days=4, daily=0.6)
    >>> print(lifetime_budget)
    mu = 1 for ever, used on at most 4 days, none of them beyond mu = 0.6
    >>> lifetime_budget.check([0.5, 0.5, 0.5, 0.5, 0.5])      # any 4 of them: mu = 1
    >>> lifetime_budget.check([0.5, 0.5, 0.6, 0.5])
    Traceback (most recent call last):
        ...
    lastiterate.errors.LifetimeBudgetError: Day 4 is refused: with it somebody who is used on \
4 days could pay mu = 1.054, but the lifetime budget that was declared before the first day is 1. \
Wait, use nobody who was used before, or train with more noise: up to mu = 0.3741 is left for this \
day.
    """

    table_name = "lifetime_budget"

    mu: float = field_(
        partial(number, above=0.0, at_most=_LARGEST), "Bound on the cost of all days together."
    )
    days: int | None = field_(integer, "Largest number of days that use a unit.", default=None)
    daily: float | None = field_(above(0), "Bound on the cost of one day.", default=None)

    def __post_init__(self) -> None:
        check_fields(self, "lifetime_budget.")
        if self.daily is not None:
            allowed = f"<= mu = {self.mu:g}"
            check_rules(self, [(self.daily > self.mu, "daily", allowed)], "lifetime_budget.")
            if self.daily == self.mu:
                object.__setattr__(self, "daily", None)

    def person(self, days: int | None = None) -> float:
        """mu, rounded up, for somebody who is used on so many days (None: as many as allowed).

        >>> budget = LifetimeBudget(mu=1.0, daily=0.25)
        >>> budget.person(days=4), budget.person()
        (0.5, 1.0)
        """
        used = self.days
        if days is not None:
            used = integer("days", days, at_most=self.days or 2**53)
        if self.daily is None or used is None:
            return self.mu
        return min(self.mu, _root_up(used * Fraction(self.daily) ** 2))

    def remaining_mu(self, spent: Sequence[float]) -> float:
        """The largest mu that the next day may have after these; rounded down."""
        others = None if self.days is None else self.days - 1
        room = Fraction(self.mu) ** 2 - _dearest(spent, others)
        return min(_root_down(room), self.mu if self.daily is None else self.daily)

    def check(self, mus: Iterable[float]) -> None:
        """Raise if these days, in their order, are more than was declared; exact arithmetic."""
        spent: list[float] = []
        for each in mus:
            mu = number("mu", each, at_least=0.0)
            most = self.mu if self.daily is None else self.daily
            if mu > most:
                raise self._refusal(
                    spent, f"it costs mu = {printed(mu)}, and no day may cost more than {most:g}"
                )
            total = _dearest([*spent, mu], self.days)
            if total > Fraction(self.mu) ** 2:
                used = "every day" if self.days is None else f"{self.days:,} days"
                pays = f"could pay mu = {printed(_root_up(total))}"
                declared = "the lifetime budget that was declared before the first day"
                reason = f"with it somebody who is used on {used} {pays}, but {declared} is"
                raise self._refusal(spent, f"{reason} {printed_down(self.mu)}")
            spent.append(mu)

    def _refusal(self, spent: list[float], reason: str) -> LifetimeBudgetError:
        left = printed_down(self.remaining_mu(spent))
        return LifetimeBudgetError(
            f"Day {len(spent) + 1} is refused: {reason}. Wait, use nobody who was used before, or "
            f"train with more noise: up to mu = {left} is left for this day."
        )

    def __str__(self) -> str:
        used = f", used on at most {self.days:,} days" if self.days is not None else ""
        each = f", none of them beyond mu = {printed(self.daily)}" if self.daily is not None else ""
        return f"mu = {printed(self.mu)} for ever{used}{each}"


def _dearest(mus: Sequence[float], days: int | None) -> Fraction:
    """The sum of mu^2 over so many of the dearest days; exact."""
    squares = sorted((Fraction(mu) ** 2 for mu in mus), reverse=True)
    return sum(squares[:days], Fraction(0))


def _root_down(square: Fraction) -> float:
    """A double next to the root whose square is not above this; 0 if nothing is left."""
    if square <= 0:
        return 0.0
    scale = 2 ** max(0, 64 - (square.numerator // square.denominator).bit_length() // 2)
    scale <<= max(0, square.denominator.bit_length() - square.numerator.bit_length())
    whole_root = math.isqrt(square.numerator * scale * scale // square.denominator)
    root = float(Fraction(whole_root, scale))  # the nearest double: at most a step too high
    return root if Fraction(root) ** 2 <= square else math.nextafter(root, 0.0)


def _root_up(square: Fraction) -> float:
    """A double next to the root whose square is not below this."""
    root = _root_down(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
