"""What is known about the loss of one record.

Regularity is what lets a step forget: it bounds how far apart one update can drive two runs. All
constants are per record and exclude the data-free L2 term, which is ``regularization``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from lastiterate.description.origin import Origin
from lastiterate.description.portable import Portable
from lastiterate.description.validation import known_fields, number, one_of
from lastiterate.errors import DescriptionError

Kind = Literal["convex", "nonconvex", "holder", "unknown"]
Provenance = Literal["proved", "declared", "estimated"]

_STEP = "it decides how far one update can drive two runs apart"


@dataclass(frozen=True)
class Loss(Portable):
    """A convex loss: each record's loss is ``smoothness``-smooth and ``strong_convexity``-convex.

    ``regularization`` is the coefficient of a data-free term (regularization/2)·‖θ‖² that every
    update adds outside any clipping. ``provenance`` says who vouches for the constants: "proved"
    by this library, "declared" by the user, or "estimated" (measured: never a guarantee). "proved"
    needs the ``origin`` that the constants are derived from, and is "declared" without it.

    Args:
        smoothness: Lipschitz constant of each record's gradient; None if none is known.
        strong_convexity: of each record's loss; 0 for a convex one.
        regularization: coefficient of the data-free term.
        provenance: who vouches for the constants.
        kind: "convex", or what `nonconvex`, `holder` and `unknown` set.
        exponent: of a Hoelder continuous gradient, set by `holder`.
        origin: the loss of this library that the constants come from.

    >>> Loss(smoothness=0.25, regularization=0.01).strong_convexity
    0.0
    >>> Loss.nonconvex(smoothness=2.0).kind
    'nonconvex'
    >>> Loss(smoothness=0.25, provenance="proved").provenance
    'declared'
    """

    smoothness: float | None
    strong_convexity: float = 0.0
    regularization: float = 0.0
    provenance: Provenance = "declared"
    kind: Kind = "convex"
    exponent: float | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        one_of("kind", self.kind, ("convex", "nonconvex", "holder", "unknown"), _STEP)
        why = "a guarantee names who vouches for its constants"
        one_of("provenance", self.provenance, ("proved", "declared", "estimated"), why)
        self._set(
            "regularization", number("regularization", self.regularization, _STEP, at_least=0)
        )
        if self.kind == "unknown":
            if self.smoothness is not None:
                raise DescriptionError(
                    "smoothness", self.smoothness, "absent", "the loss is unknown"
                )
        else:
            self._set(
                "smoothness",
                number("smoothness", self.smoothness, _STEP, at_least=0, infinite=True),
            )
        strong = number("strong_convexity", self.strong_convexity, _STEP, at_least=0)
        if strong and self.kind != "convex":
            raise DescriptionError(
                "strong_convexity", strong, "0 for a loss that is not convex", _STEP
            )
        if self.smoothness is not None and strong > self.smoothness:
            allowed = f"at most the smoothness, {self.smoothness:g}"
            why = "no function curves more than its smoothness allows"
            raise DescriptionError("strong_convexity", strong, allowed, why)
        self._set("strong_convexity", strong)
        if self.kind == "holder":
            why = "gradients differ by at most constant·distance^exponent"
            self._set("exponent", number("exponent", self.exponent, why, at_least=0, at_most=1))
        elif self.exponent is not None:
            raise DescriptionError(
                "exponent", self.exponent, "absent", "only Hoelder losses have one"
            )
        if self.origin is not None and not isinstance(self.origin, Origin):
            self._set("origin", Origin.from_dict(self.origin))
        if self.provenance == "proved" and not self._derivable():
            self._set("provenance", "declared")  # nobody proves a constant by typing a word
        if self.provenance != "proved":
            self._set("origin", None)

    def _derivable(self) -> bool:
        """Whether the origin, or claiming nothing at all, proves what is said about the loss."""
        if self.kind == "unknown":
            return True
        if self.origin is None or self.strong_convexity or self.kind == "holder":
            return False
        return self.origin.bounds_smoothness(self.smoothness)

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

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

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values; defaults are left out."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        default = {f.name: f.default for f in dataclasses.fields(self)}
        if self.origin is not None:
            values["origin"] = self.origin.to_dict()
        return {k: v for k, v in values.items() if v is not None and v != default[k]}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote.

        >>> Loss.from_dict({"kind": "unknown"}) == Loss.unknown()
        True
        """
        fields = known_fields("loss", table, {f.name for f in dataclasses.fields(cls)})
        return cls(**{"smoothness": None, **fields})

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
