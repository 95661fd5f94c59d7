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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lastiterate.description.fields import (
    above,
    at_least,
    check_fields,
    check_rules,
    field_,
    integer,
    integer_from,
    number,
)
from lastiterate.description.serialization import Serializable
from lastiterate.errors import DescriptionError


@dataclass(frozen=True)
class Proximal(Serializable):
    """A data-free map after every update that brings no two points farther apart."""

    table_name = "proximal"
    kind: ClassVar[str]
    rounds: ClassVar[bool] = False  # whether it leaves the grid and is rounded to it again
    constrains: ClassVar[bool] = False  # whether it projects on a bounded set: no ball is needed

    def __post_init__(self) -> None:
        check_fields(self, "proximal.")

    @property
    def reach(self) -> float:
        """Largest absolute value that it may give to a coordinate that was smaller."""
        return 0.0

    def width(self, size: int) -> float:
        """Return the diameter of its set in ``size`` dimensions, rounded up."""
        return math.inf

    def scale(self, step_size: float) -> float:
        """Return the length of the vectors it computes in floats, which the grid must represent."""
        return 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; defaults are left out."""
        return {"kind": self.kind} | super().to_dict()


def _weight() -> Any:
    return field_(at_least(0), "Factor of the penalty, which is added to the mean loss.")


def _spared() -> Any:
    text = "Number of last rows of the parameters without penalty: 1 spares an intercept."
    return field_(integer_from(0), text, default=0)


@dataclass(frozen=True)
class L1(Proximal):
    """The penalty weight·Σ|θ_i|: every update ends in a soft threshold, and zeros are exactly zero.

    >>> print(L1(0.01, spared=1))
    the proximal step of 0.01 times the sum of absolute values, all but the last 1 rows
    """

    kind = "l1"
    weight: float = _weight()
    spared: int = _spared()

    def __str__(self) -> str:
        return f"the proximal step of {self.weight:g} times the sum of absolute values" + _but(self)


def _group_sizes(field: str, value: Any) -> tuple[int, ...]:
    try:
        return tuple(integer(field, size) for size in value)
    except TypeError:
        raise DescriptionError(field, value, "a list of integers, or None") from None


@dataclass(frozen=True)
class GroupLasso(Proximal):
    """The penalty weight·Σ‖θ_G‖ over groups of rows: a group is zero as a unit, or not at all.

    Groups are consecutive rows of the parameters (the columns of one encoded category, say).

    >>> GroupLasso(0.01, sizes=[3, 1]).to_dict()
    {'kind': 'group-lasso', 'weight': 0.01, 'sizes': [3, 1]}
    """

    kind = "group-lasso"
    rounds = True
    weight: float = _weight()
    sizes: tuple[int, ...] | None = field_(
        _group_sizes, "Numbers of rows of the groups; None: every row is a group.", default=None
    )
    spared: int = _spared()

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

    kind = "box"
    constrains = True
    low: float = field_(number, "Lower bound of every parameter.")
    high: float = field_(number, "Upper bound of every parameter.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rules(self, [(self.high <= self.low, "high", f"> low = {self.low:g}")], "proximal.")

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

    kind = "simplex"
    constrains = True
    rounds = True
    total: float = field_(above(0), "Sum of the parameters.", default=1.0)

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


def read_proximal(field: str, value: Any) -> Proximal:
    """Return a proximal step, also from its table.

    >>> read_proximal("proximal", {"kind": "l1", "weight": 0.5})
    L1(weight=0.5, spared=0)
    """
    if type(value) in _KINDS.values():  # a subclass may do anything
        return value  # type: ignore[no-any-return]
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind].from_dict({name: value[name] for name in value if name != "kind"})
    allowed = "None, L1(weight), GroupLasso(weight, sizes), Box(low, high) or Simplex(total)"
    raise DescriptionError(field, value, allowed)
