"""Which loss of this library proves a constant, from plain numbers alone.

A word like "proved" can be typed by anybody. An `Origin` names the loss and what it was given, so
that whoever reads a description or a certificate derives the constants again. The suprema stand in
`lastiterate.losses` too, where their proofs are; here they are written a second time, in exact
fractions and without any trainer, so that a slip in one of the two shows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from lastiterate.description.validation import known_fields, number, one_of, whole
from lastiterate.errors import DescriptionError

_WHY = "only a loss of this library proves constants"


@dataclass(frozen=True)
class Constants:
    """What is proved of one record's loss, as exact upper bounds."""

    smoothness: Fraction
    squared_norm: Fraction  # of the gradient


@dataclass(frozen=True)
class Origin:
    """A loss of this library and what its constants were derived from.

    Args:
        name: one of `NAMES`.
        feature_bound: R, no record's features are longer (the intercept's column included).
        limit: the threshold, clip, width, cap or radius of the loss, where it has one.
        classes: of a softmax; for a loss of one score: one score for each class (one-vs-rest).
        start: the norm of the parameters before the first update, where constants hold in a ball
            around 0 only; absent: they start at 0.

    >>> Origin("logistic", feature_bound=2.0).constants.smoothness
    Fraction(1, 1)
    >>> print(Origin("huber", 1.0, limit=0.5))
    huber loss (limit 0.5), features of norm at most 1.0
    """

    name: str
    feature_bound: float
    limit: float | None = None
    classes: int | None = None
    start: float | None = None

    def __post_init__(self) -> None:
        one_of("origin.name", self.name, NAMES, _WHY)
        kind = _KINDS[self.name]
        why = "constants grow with the norm of the features"
        put = object.__setattr__
        bound = number("origin.feature_bound", self.feature_bound, why, at_least=0)
        put(self, "feature_bound", bound)
        if kind.most is not None:
            why = "the constants of this loss rest on it"
            value = number("origin.limit", self.limit, why, above=0, at_most=kind.most)
            put(self, "limit", value)
        elif self.limit is not None:
            raise DescriptionError("origin.limit", self.limit, "absent", "this loss has none")
        if self.classes is not None or kind.several:
            why = "each class has its own score"
            put(self, "classes", whole("origin.classes", self.classes, why, at_least=2))
        if self.start is not None:
            if self.name not in _IN_A_BALL:
                why = "constants of this loss hold anywhere"
                raise DescriptionError("origin.start", self.start, "absent", why)
            why = "a run starts inside of the ball where its constants hold"
            start = number("origin.start", self.start, why, at_least=0, at_most=_float(self.limit))
            put(self, "start", start)

    @property
    def constants(self) -> Constants:
        """The constants, derived anew."""
        return _KINDS[self.name].derive(self)

    def covers(self, diameter: float) -> bool:
        """Whether constants hold on the ball of this diameter around the start.

        Parameters there have norm at most ‖start‖ + diameter/2.

        >>> Origin("bounded-softmax", 1.0, limit=3.0, classes=2, start=2.0).covers(2.5)
        False
        """
        if self.name not in _IN_A_BALL:
            return True
        room = _limited(self) - Fraction(_float(self.start))
        return math.isfinite(diameter) and Fraction(diameter) / 2 <= room

    @property
    def bounded_head(self) -> bool:
        """Whether it is a loss of a network on a ball, which a network's own code computes."""
        return self.name in _IN_A_BALL

    def bounds_gradients(self, norm: float) -> bool:
        """Whether no gradient is longer than ``norm``."""
        return math.isfinite(norm) and Fraction(norm) ** 2 >= self.constants.squared_norm

    def bounds_smoothness(self, smoothness: float | None) -> bool:
        """Whether no gradient turns faster."""
        if smoothness is None:
            return False
        return math.isinf(smoothness) or Fraction(smoothness) >= self.constants.smoothness

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values; what is absent is left out."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote."""
        fields = known_fields("origin", table, {f.name for f in dataclasses.fields(cls)})
        return cls(**{"name": None, "feature_bound": None, **fields})

    def __str__(self) -> str:
        words = f"{self.name} loss"
        if self.limit is not None:
            words += f" (limit {self.limit!r})"
        if self.classes is not None:
            words += f" of {self.classes} classes"
        if self.start:
            words += f" from a start of norm {self.start!r}"
        return f"{words}, features of norm at most {self.feature_bound!r}"


def _one_score(slope: Fraction, curvature: Fraction, origin: Origin) -> Constants:
    """Gradient φ'·x; with several classes the binary gradients are stacked, the Hessian is not."""
    square = Fraction(origin.feature_bound) ** 2
    return Constants(curvature * square, slope**2 * square * (origin.classes or 1))


def _limited(origin: Origin) -> Fraction:
    return Fraction(origin.limit or 0)


def _bend(cap: Fraction) -> Fraction:
    """The largest w(1 − w) with w at most the cap."""
    widest = min(cap, Fraction(1, 2))
    return widest * (1 - widest)


def _softmax(cap: Fraction, origin: Origin) -> Constants:
    """Slope p − e_y, at most √2·cap; curvature at most 2·cap(1 − cap), 1/2 from cap = 1/2."""
    square = Fraction(origin.feature_bound) ** 2
    return Constants(2 * _bend(cap) * square, 2 * (cap**2) * square)


def _ball_softmax(origin: Origin) -> Constants:
    """Slope p − e_y kept in a ball, in which the wrong classes have no more than its radius."""
    radius, square = _limited(origin), Fraction(origin.feature_bound) ** 2
    return Constants(2 * _bend(radius) * square, radius**2 * square)


def _bounded_softmax(origin: Origin) -> Constants:
    """Parameters in a ball of radius B around 0: no score is √2·BR above that of the true class."""
    plain = _softmax(Fraction(1), origin)
    reach = math.sqrt(2) * _float(origin.limit) * origin.feature_bound * (1 + 2**-50)
    odds = math.exp(-reach) * (1 - 2**-50) / ((origin.classes or 2) - 1)
    share = min(Fraction(1 / (1 + odds) * (1 + 2**-50)), Fraction(1))
    return Constants(plain.smoothness, plain.squared_norm * share**2)


def _float(value: float | None) -> float:
    return 0.0 if value is None else value


@dataclass(frozen=True)
class _Kind:
    """How a loss derives its constants; the largest limit it takes (None: it has no limit)."""

    derive: Callable[[Origin], Constants]
    most: float | None = None
    several: bool = False


_KINDS = {
    "logistic": _Kind(lambda o: _one_score(Fraction(1), Fraction(1, 4), o)),
    "huber": _Kind(lambda o: _one_score(_limited(o), Fraction(1), o), math.inf),
    "squared-error": _Kind(lambda o: _one_score(_limited(o), Fraction(1), o), math.inf),
    "smoothed-hinge": _Kind(lambda o: _one_score(Fraction(1), 1 / _limited(o), o), math.inf),
    "squared-hinge": _Kind(lambda o: _one_score(_limited(o), Fraction(1), o), math.inf),
    "capped-logistic": _Kind(lambda o: _one_score(_limited(o), _bend(_limited(o)), o), 1.0),
    "softmax": _Kind(lambda o: _softmax(Fraction(1), o), several=True),
    "capped-softmax": _Kind(lambda o: _softmax(_limited(o), o), 1.0, several=True),
    "ball-softmax": _Kind(_ball_softmax, 1.0, several=True),
    "bounded-softmax": _Kind(_bounded_softmax, math.inf, several=True),
}
_IN_A_BALL = ("bounded-softmax",)
NAMES = tuple(_KINDS)
