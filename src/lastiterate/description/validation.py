"""One-line validators for the fields of a description.

Each returns the value in its canonical type or raises a DescriptionError that names the field,
the value, the allowed range and why it matters.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from lastiterate.errors import DescriptionError

LARGEST_WHOLE = 2**53  # beyond it a float would no longer count exactly


def whole(
    field: str, value: Any, why: str, *, at_least: int = 1, at_most: int = LARGEST_WHOLE
) -> int:
    """A whole number (bools and 3.0 are refused: they hide mistakes)."""
    count = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if count is None or count < at_least:
        allowed = f"a whole number of at least {at_least}"
        raise DescriptionError(field, _shown(value), allowed, why)
    if count > at_most:
        most = "2^53" if at_most == LARGEST_WHOLE else f"{at_most:,}"
        raise DescriptionError(field, _shown(value), f"a whole number of at most {most}", why)
    return count


def number(
    field: str,
    value: Any,
    why: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
    infinite: bool = False,
) -> float:
    """A real number in the given range; infinity only where it is meant."""
    allowed = _range(above, at_least, at_most, below, infinite)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DescriptionError(field, value, allowed, why)
    try:
        x = float(value)
    except OverflowError:
        raise DescriptionError(field, _shown(value), allowed, why) from None
    inside = above < x and at_least <= x <= at_most and not x >= below < math.inf
    if not inside or (math.isinf(x) and not infinite):
        raise DescriptionError(field, value, allowed, why)
    return x


def one_of(field: str, value: Any, options: tuple[str, ...], why: str) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in options:
        raise DescriptionError(field, value, " or ".join(repr(o) for o in options), why)
    return value


def known_fields(what: str, table: object, allowed: set[str]) -> dict[str, Any]:
    """The table as keyword arguments; a field nobody knows is a typo, and typos are refused."""
    if not isinstance(table, Mapping):
        why = "a description names its fields"
        raise DescriptionError(what, _outline(table), "a table of fields", why)
    for key in table:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, n=1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise DescriptionError(
                f"{what}.{key}",
                _outline(table[key]),
                f"a known field{meant}",
                "another one would be ignored in silence; there are " + ", ".join(sorted(allowed)),
            )
    return dict(table)


def _outline(value: object) -> object:
    """A value short enough for a message."""
    return f"a {type(value).__name__}" if isinstance(value, (Mapping, list)) else value


def _range(above: float, at_least: float, at_most: float, below: float, infinite: bool) -> str:
    parts = []
    if above > -math.inf:
        parts.append(f"above {above:g}")
    if at_least > -math.inf:
        parts.append(f"at least {at_least:g}")
    if at_most < math.inf:
        parts.append(f"at most {at_most:g}")
    if below < math.inf:
        parts.append(f"below {below:g}")
    kind = "a number" if infinite else "a finite number"
    return kind + (" " + " and ".join(parts) if parts else "")


def _shown(value: Any) -> Any:
    """The value itself, unless it has too many digits to be worth printing."""
    huge = isinstance(value, int) and value.bit_length() > 64
    return f"an integer of {value.bit_length()} bits" if huge else value
