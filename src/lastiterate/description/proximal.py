"""What follows every update: a penalty's proximal step, or the projection on a constraint.

    θ ← prox(θ − step + noise),    prox(v) = argmin_x ‖x − v‖²/2 + step_size·h(x),

with h convex and free of data. **Statement.** Such a run is as private as the run without it: prox
brings no two points farther apart (it is the resolvent of a monotone map), so that prox followed by
the next update is as Lipschitz as that update, one record moves it as far as before, and the last
prox is post-processing. Models with zeros that are exactly zero cost nothing.

A strongly convex h would bring points together by 1/(1 + step_size·r); the same term as an L2
regularization does so by 1 − step_size·r, which is less, so none is offered here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lastiterate.description.validation import known_fields, number, whole
from lastiterate.errors import DescriptionError


@dataclass(frozen=True)
class Proximal:
    """A data-free map after every update that brings no two points farther apart."""

    kind: ClassVar[str]
    rounds: ClassVar[bool] = False  # whether it leaves the grid and is rounded to it again
    constrains: ClassVar[bool] = False  # whether it projects on a bounded set: no ball is needed

    @property
    def reach(self) -> float:
        """How far from zero it may put a coordinate that was nearer."""
        return 0.0

    def width(self, size: int) -> float:
        """The diameter of the set that it projects on, with so many parameters, rounded up."""
        return math.inf

    def scale(self, step_size: float) -> float:
        """How long a vector it computes in floats: the grid keeps that within exact doubles."""
        return 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain values; defaults are left out."""
        fields = dataclasses.fields(self)
        own = {field.name: getattr(self, field.name) for field in fields}
        own = {f.name: own[f.name] for f in fields if own[f.name] != f.default}
        return {"kind": self.kind} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in own.items()
        }


def _weight(value: Any) -> float:
    return number("proximal.weight", value, "it multiplies the penalty", at_least=0.0)


def _spared(value: Any) -> int:
    why = "so many last rows of the parameters (an intercept) are left as they are"
    return whole("proximal.spared", value, why, at_least=0)


@dataclass(frozen=True)
class L1(Proximal):
    """The penalty weight·Σ|θ_i|: every update ends in a soft threshold, and zeros are exactly zero.

    Args:
        weight: of the penalty, beside the mean loss.
        spared: so many last rows of the parameters are not penalised: 1 spares an intercept.

    >>> print(L1(0.01, spared=1))
    the proximal step of 0.01 times the sum of absolute values, all but the last 1 rows
    """

    weight: float
    spared: int = 0
    kind: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _weight(self.weight))
        object.__setattr__(self, "spared", _spared(self.spared))

    def __str__(self) -> str:
        return f"the proximal step of {self.weight:g} times the sum of absolute values" + _but(self)


@dataclass(frozen=True)
class GroupLasso(Proximal):
    """The penalty weight·Σ‖θ_G‖ over groups of rows: a group is zero as a whole, or not at all.

    Args:
        weight: of the penalty, beside the mean loss.
        sizes: of the groups, which are consecutive rows of the parameters (the columns of one
            encoded category, say); None: every row by itself, that is a feature for all outputs.
        spared: so many last rows of the parameters are in no group: 1 spares an intercept.

    >>> GroupLasso(0.01, sizes=[3, 1]).to_dict()
    {'kind': 'group-lasso', 'weight': 0.01, 'sizes': [3, 1]}
    """

    weight: float
    sizes: tuple[int, ...] | None = None
    spared: int = 0
    kind: ClassVar[str] = "group-lasso"
    rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _weight(self.weight))
        object.__setattr__(self, "spared", _spared(self.spared))
        if self.sizes is not None:
            why = "a group is so many consecutive rows of the parameters"
            try:
                sizes = tuple(whole("proximal.sizes", size, why) for size in self.sizes)
            except TypeError:
                allowed = "a list of whole numbers, or None"
                raise DescriptionError("proximal.sizes", self.sizes, allowed, why) from None
            object.__setattr__(self, "sizes", sizes)

    def scale(self, step_size: float) -> float:
        return step_size * self.weight

    def __str__(self) -> str:
        groups = "rows" if self.sizes is None else f"{len(self.sizes):,} groups of rows"
        return f"the proximal step of {self.weight:g} times the lengths of {groups}" + _but(self)


@dataclass(frozen=True)
class Box(Proximal):
    """Every parameter is kept between two bounds.

    >>> f"{Box(0.0, 2.0).width(4):.6f}"
    '4.000000'
    """

    low: float
    high: float
    kind: ClassVar[str] = "box"
    constrains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        why = "parameters are kept between them"
        object.__setattr__(self, "low", number("proximal.low", self.low, why))
        object.__setattr__(self, "high", number("proximal.high", self.high, why, above=self.low))

    def width(self, size: int) -> float:
        return (self.high - self.low) * math.sqrt(size) * (1 + 2**-50 * (size > 1))

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        return f"the projection of every parameter on [{self.low:g}, {self.high:g}]"


@dataclass(frozen=True)
class Simplex(Proximal):
    """Parameters are non-negative weights that add up to ``total`` (on a grid just below it).

    >>> Simplex().width(9) <= 1.4142136
    True
    """

    total: float = 1.0
    kind: ClassVar[str] = "simplex"
    constrains: ClassVar[bool] = True
    rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        why = "parameters add up to it"
        object.__setattr__(self, "total", number("proximal.total", self.total, why, above=0.0))

    def width(self, size: int) -> float:
        return math.sqrt(2) * self.total * (1 + 2**-50)

    @property
    def reach(self) -> float:
        return self.total

    def scale(self, step_size: float) -> float:
        return self.total

    def __str__(self) -> str:
        return f"the projection on non-negative weights that add up to {self.total:g}"


def _but(penalty: L1 | GroupLasso) -> str:
    return f", all but the last {penalty.spared} rows" if penalty.spared else ""


_KINDS: dict[str, type[Proximal]] = {cls.kind: cls for cls in (L1, GroupLasso, Box, Simplex)}


def read_proximal(value: Any) -> Proximal:
    """A proximal step, or one from its plain form.

    >>> read_proximal({"kind": "l1", "weight": 0.5})
    L1(weight=0.5, spared=0)
    """
    if type(value) in _KINDS.values():  # a child may do anything
        return value  # type: ignore[no-any-return]
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind in _KINDS:
        found = _KINDS[kind]
        fields = {field.name for field in dataclasses.fields(found)}
        table = known_fields("proximal", value, {"kind", *fields})
        table.pop("kind")
        for field in dataclasses.fields(found):
            if field.default is dataclasses.MISSING and field.name not in table:
                why = "a description without it does not say what follows an update"
                raise DescriptionError(f"proximal.{field.name}", None, "given", why)
        return found(**table)
    allowed = "None, L1(weight), GroupLasso(weight, sizes), Box(low, high) or Simplex(total)"
    why = "another map after the updates might drive two runs apart"
    raise DescriptionError("proximal", value, allowed, why)
