"""What one person may be charged for ever, declared before the first model is released.

Where each day may depend on what was released before, a sum that is only read off at the end bounds
nothing: the days that were dear may be the ones that a release made dear. What is declared in
advance, and kept by refusing, does (`bounds.adaptive_stretches`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.description.portable import Portable
from lastiterate.description.validation import known_fields, number, whole
from lastiterate.errors import LifetimeBudgetError

_LARGEST = 1e9  # beyond it nothing is promised


@dataclass(frozen=True)
class LifetimeBudget(Portable):
    """A bound on what a person pays, however often and however adaptively models are released.

    Args:
        mu: nobody's data cost more than this, as Gaussian differential privacy, all days together.
        days: nobody's data are used on more days than this; None: they may be used on all of them.
        daily: no day costs more than this; None: ``mu``.

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

    mu: float
    days: int | None = None
    daily: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        why = "it bounds what a person pays for ever"
        put(self, "mu", number("lifetime_budget.mu", self.mu, why, above=0.0, at_most=_LARGEST))
        if self.days is not None:
            why = "it bounds on how many days a person's data are used"
            put(self, "days", whole("lifetime_budget.days", self.days, why))
        if self.daily is not None:
            why = "it bounds what a person pays on one day, which is no more than for ever"
            most = number("lifetime_budget.daily", self.daily, why, above=0.0, at_most=self.mu)
            put(self, "daily", None if most == self.mu else most)

    def person(self, days: int | None = None) -> float:
        """mu, rounded up, for somebody who is used on so many days (None: as many as allowed).

        >>> budget = LifetimeBudget(mu=1.0, daily=0.25)
        >>> budget.person(days=4), budget.person()
        (0.5, 1.0)
        """
        used = self.days
        if days is not None:
            why = "it says on how many days the person is used"
            used = whole("days", days, why, at_most=self.days or 2**53)
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
            mu = number("mu", each, "a day's cost is a finite number", at_least=0.0)
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
                why = f"with it somebody who is used on {used} {pays}, but {declared} is"
                raise self._refusal(spent, f"{why} {printed_down(self.mu)}")
            spent.append(mu)

    def _refusal(self, spent: list[float], why: str) -> LifetimeBudgetError:
        left = printed_down(self.remaining_mu(spent))
        return LifetimeBudgetError(
            f"Day {len(spent) + 1} is refused: {why}. Wait, use nobody who was used before, or "
            f"train with more noise: up to mu = {left} is left for this day."
        )

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values; defaults are left out."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote."""
        fields = {f.name for f in dataclasses.fields(cls)}
        return cls(**{"mu": None, **known_fields("lifetime_budget", table, fields)})

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
