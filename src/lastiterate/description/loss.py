"""What is known about the loss of one record, and which loss of this library proves it.

Regularity bounds how far apart one update can drive two runs. All constants are per record and
exclude the data-free L2 term, which is ``regularization``. An `Origin` names a loss of this library
and its parameters, so that a reader of a description or a certificate derives the constants again:
the suprema stand in `lastiterate.losses` too, where their proofs are; here they are written again,
in exact fractions and without any trainer, so that a mistake in one of the two shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from lastiterate.description.fields import (
    at_least,
    check_fields,
    check_rules,
    choice,
    documented,
    field_,
    integer_from,
    number,
)
from lastiterate.description.serialization import Serializable
from lastiterate.errors import DescriptionError

Kind = Literal["convex", "nonconvex", "holder", "unknown"]
Provenance = Literal["proved", "declared", "estimated"]
PANEL = "The loss of one record"
LOSS_FIELDS: Mapping[str, frozenset[str]] = {
    "convex": frozenset({"smoothness", "strong_convexity"}),
    "nonconvex": frozenset({"smoothness"}),
    "holder": frozenset({"smoothness", "exponent"}),
    "unknown": frozenset(),
}
_SAME = 1e-9  # relative: quotients such as prior_precision/records that were rounded differently


@dataclass(frozen=True)
class Constants:
    """What is proved of one record's loss, as exact upper bounds."""

    smoothness: Fraction
    squared_norm: Fraction  # of the gradient


def _one_score(slope: Fraction, curvature: Fraction, origin: Origin) -> Constants:
    """Gradient φ'·x; with several classes the binary gradients are stacked, the Hessian is not."""
    square = Fraction(origin.feature_bound) ** 2
    return Constants(curvature * square, slope**2 * square * (origin.classes or 1))


def _limited(origin: Origin) -> Fraction:
    return Fraction(origin.limit or 0)


def _variance(cap: Fraction) -> Fraction:
    """The largest w(1 − w) with w at most the cap."""
    widest = min(cap, Fraction(1, 2))
    return widest * (1 - widest)


def _softmax(cap: Fraction, origin: Origin) -> Constants:
    """Slope p − e_y, at most √2·cap; curvature at most 2·cap(1 − cap), 1/2 from cap = 1/2."""
    square = Fraction(origin.feature_bound) ** 2
    return Constants(2 * _variance(cap) * square, 2 * (cap**2) * square)


def _ball_softmax(origin: Origin) -> Constants:
    """Slope p − e_y kept in a ball, in which the wrong classes have no more than its radius."""
    radius, square = _limited(origin), Fraction(origin.feature_bound) ** 2
    return Constants(2 * _variance(radius) * square, radius**2 * square)


def _bounded_softmax(origin: Origin) -> Constants:
    """Parameters in a ball of radius B around 0: no score is √2·BR above that of the true class."""
    plain = _softmax(Fraction(1), origin)
    margin = math.sqrt(2) * _float(origin.limit) * origin.feature_bound * (1 + 2**-50)
    odds = math.exp(-margin) * (1 - 2**-50) / ((origin.classes or 2) - 1)
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
    "capped-logistic": _Kind(lambda o: _one_score(_limited(o), _variance(_limited(o)), o), 1.0),
    "softmax": _Kind(lambda o: _softmax(Fraction(1), o), several=True),
    "capped-softmax": _Kind(lambda o: _softmax(_limited(o), o), 1.0, several=True),
    "ball-softmax": _Kind(_ball_softmax, 1.0, several=True),
    "bounded-softmax": _Kind(_bounded_softmax, math.inf, several=True),
}
_IN_A_BALL = ("bounded-softmax",)
NAMES = tuple(_KINDS)


def _read_origin(_field: str, value: Any) -> Origin:
    return value if isinstance(value, Origin) else Origin.from_dict(value)


@dataclass(frozen=True)
class Origin(Serializable):
    """A loss of this library and what its constants were derived from.

    >>> Origin("logistic", feature_bound=2.0).constants.smoothness
    Fraction(1, 1)
    >>> print(Origin("huber", 1.0, limit=0.5))
    huber loss (limit 0.5), features of norm at most 1.0
    """

    table_name = "origin"

    name: str = field_(choice(*NAMES), "Name of the loss.")
    feature_bound: float = field_(
        at_least(0), "R, no record's features are longer (the intercept's column included)."
    )
    limit: float | None = field_(
        number, "Threshold, clip, width, cap or radius of the loss, if it has one.", default=None
    )
    classes: int | None = field_(
        integer_from(2), "Of a softmax; else the number of one-vs-rest scores.", default=None
    )
    start: float | None = field_(
        at_least(0), "Norm of the start, for constants that hold in a ball around 0.", default=None
    )

    def __post_init__(self) -> None:
        check_fields(self, "origin.")
        kind = _KINDS[self.name]
        if kind.most is not None:
            number("origin.limit", self.limit, above=0, at_most=kind.most)
        ball, limit = self.name in _IN_A_BALL, _float(self.limit)
        rules = [
            (kind.most is None and self.limit is not None, "limit", "left out for this loss"),
            (kind.several and self.classes is None, "classes", "an integer >= 2"),
            (not ball and self.start is not None, "start", "left out for this loss"),
            (ball and _float(self.start) > limit, "start", f"<= limit = {limit:g}"),
        ]
        check_rules(self, rules, "origin.")

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

    def __str__(self) -> str:
        words = f"{self.name} loss"
        if self.limit is not None:
            words += f" (limit {self.limit!r})"
        if self.classes is not None:
            words += f" of {self.classes} classes"
        if self.start:
            words += f" from a start of norm {self.start!r}"
        return f"{words}, features of norm at most {self.feature_bound!r}"


@documented
@dataclass(frozen=True)
class Loss(Serializable):
    """A convex loss: each record's loss is ``smoothness``-smooth and ``strong_convexity``-convex.

    ``regularization`` is the coefficient of a data-free term (regularization/2)·‖θ‖² that every
    update adds outside any clipping. ``provenance`` says where the constants come from: "proved"
    by this library, "declared" by the user, or "estimated" (measured: never a guarantee). "proved"
    needs the ``origin`` that the constants are derived from, and is "declared" without it.

    >>> Loss(smoothness=0.25, regularization=0.01).strong_convexity
    0.0
    >>> Loss.nonconvex(smoothness=2.0).kind
    'nonconvex'
    >>> Loss(smoothness=0.25, provenance="proved").provenance
    'declared'
    """

    table_name = "loss"

    smoothness: float | None = field_(
        at_least(0, infinite=True),
        "Lipschitz (or Hoelder) constant of each record's gradient.",
        PANEL,
        default=None,
    )
    strong_convexity: float = field_(
        at_least(0), "Strong convexity, without the L2 term.", PANEL, default=0.0
    )
    regularization: float = field_(
        at_least(0), "Coefficient of the L2 term, which no clip touches.", PANEL, default=0.0
    )
    provenance: Provenance = field_(
        choice("proved", "declared", "estimated"), "Source of the constants.", default="declared"
    )
    kind: Kind = field_(
        choice("convex", "nonconvex", "holder", "unknown"),
        "Kind of the loss: convex, nonconvex, holder or unknown.",
        PANEL,
        default="convex",
        flag="loss",
    )
    exponent: float | None = field_(
        at_least(0, at_most=1), "Hoelder exponent of the gradient.", PANEL, default=None
    )
    origin: Origin | None = field_(
        _read_origin, "The loss of this library that the constants come from.", default=None
    )

    def __post_init__(self) -> None:
        check_fields(self)
        known, holder = self.kind != "unknown", self.kind == "holder"
        smooth, strong = self.smoothness, self.strong_convexity
        most = math.inf if smooth is None else smooth
        rules = [
            (not known and smooth is not None, "smoothness", "left out for an unknown loss"),
            (known and smooth is None, "smoothness", ">= 0 or inf"),
            (strong > 0 and self.kind != "convex", "strong_convexity", "0 unless it is convex"),
            (strong > most, "strong_convexity", f"<= smoothness = {most:g}"),
            (holder and self.exponent is None, "exponent", "a finite number >= 0 and <= 1"),
            (not holder and self.exponent is not None, "exponent", "left out unless Hoelder"),
        ]
        check_rules(self, rules)
        if self.provenance == "proved" and not self._derivable():
            object.__setattr__(self, "provenance", "declared")  # the word alone proves nothing
        if self.provenance != "proved":
            object.__setattr__(self, "origin", None)

    def _derivable(self) -> bool:
        """Whether the origin, or claiming nothing at all, proves what is said about the loss."""
        if self.kind == "unknown":
            return True
        if self.origin is None or self.strong_convexity or self.kind == "holder":
            return False
        return self.origin.bounds_smoothness(self.smoothness)

    @classmethod
    def nonconvex(
        cls,
        *,
        smoothness: float,
        regularization: float = 0.0,
        provenance: Provenance = "declared",
        origin: Origin | None = None,
    ) -> Loss:
        """A smooth loss that need not be convex."""
        return cls(smoothness, 0.0, regularization, provenance, "nonconvex", origin=origin)

    @classmethod
    def holder(
        cls,
        *,
        constant: float,
        exponent: float,
        regularization: float = 0.0,
        provenance: Provenance = "declared",
    ) -> Loss:
        """Gradients at distance r differ by at most ``constant * r**exponent``."""
        return cls(constant, 0.0, regularization, provenance, "holder", exponent)

    @classmethod
    def unknown(
        cls,
        *,
        regularization: float = 0.0,
        provenance: Provenance = "declared",
        origin: Origin | None = None,
    ) -> Loss:
        """Nothing is known but the bound on the gradients."""
        return cls(None, 0.0, regularization, provenance, "unknown", origin=origin)

    @property
    def convex(self) -> bool:
        """Whether each record's loss is convex."""
        return self.kind == "convex"

    def with_regularization(self, regularization: float) -> Loss:
        """The same loss with another data-free L2 term."""
        return replace(self, regularization=regularization)

    def __str__(self) -> str:
        constant = 0.0 if self.smoothness is None else self.smoothness
        data = {
            "convex": f"convex, {constant:g}-smooth",
            "nonconvex": f"not convex, {constant:g}-smooth",
            "holder": f"Hoelder gradient (constant {constant:g}, exponent {self.exponent})",
            "unknown": "of unknown regularity",
        }[self.kind]
        if self.strong_convexity:
            data += f", {self.strong_convexity:g}-strongly convex"
        l2 = f", L2 term {self.regularization:g}" if self.regularization else ""
        return f"{data}{l2} ({self.provenance})"


def accepted_loss(claimed: Loss | None, known: Loss) -> Loss:
    """Return the loss that a guarantee of a run may rest on; raises if the claim contradicts it.

    Args:
        claimed: what the caller says about the loss; None claims nothing.
        known: what the run knows, with the L2 term of its updates.

    >>> ran = Loss.unknown(regularization=0.1)
    >>> accepted_loss(Loss(smoothness=1.0, regularization=0.1), ran).smoothness
    1.0
    >>> accepted_loss(Loss.unknown(), ran).regularization
    0.1
    """
    if claimed is None:
        return known
    if not isinstance(claimed, Loss):
        raise DescriptionError("loss", claimed, "a Loss, such as Loss.unknown()")
    silent = claimed.kind == "unknown" and claimed.regularization == 0
    l2 = known.regularization
    if not silent and not math.isclose(claimed.regularization, l2, rel_tol=_SAME, abs_tol=0.0):
        allowed = f"{l2!r}, the L2 term of the updates that were made"
        raise DescriptionError("loss.regularization", claimed.regularization, allowed)
    if not _follows(claimed, known):
        allowed = f"left out, or claim no more than the run's own loss: {known}"
        raise DescriptionError("loss", str(claimed), allowed)
    # Constants count as proved only where the run itself has the loss that they are proved for.
    own = claimed.origin is not None and claimed.origin == known.origin
    origin = claimed.origin if own else None
    return replace(claimed, regularization=l2, origin=origin)


def _follows(claimed: Loss, known: Loss) -> bool:
    """Whether what is known implies the claim, or says nothing about it."""
    if "unknown" in (claimed.kind, known.kind):
        return True
    if claimed.strong_convexity > known.strong_convexity:
        return False
    if claimed.kind == "holder" or known.kind == "holder":
        alike = claimed.kind == known.kind and claimed.exponent == known.exponent
    else:
        alike = known.convex or not claimed.convex
    return alike and (claimed.smoothness or 0.0) >= (known.smoothness or 0.0)
