"""Fields of a description: declared once, with the check, the help text and where it is shown.

`check_fields` checks a description against its fields; flags, forms, files and the documentation
read the same rows (`rows`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import partial
from numbers import Integral, Real
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lastiterate._internal.formatting import printed
from lastiterate.errors import DescriptionError, PrivacyWarning

LARGEST_INTEGER = 2**53  # beyond it a float would no longer count exactly
LARGEST_DELTA = 0.5  # from here on nothing is calibrated, trained or certified

Check = Callable[[str, Any], Any]
Described = TypeVar("Described", bound=type)
Read = TypeVar("Read", covariant=True)
Given = TypeVar("Given", contravariant=True)


class Stored(Generic[Read, Given]):
    """Annotation of a field that is given as one type and stored, after its check, as another."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any) -> Read: ...
        def __set__(self, instance: object, value: Given) -> None: ...


@dataclass(frozen=True)
class Row:
    """What is known about a field besides its name and default.

    Attributes:
        check: returns the canonical value, or raises a DescriptionError.
        help: one sentence for flags, forms and the documentation.
        panel: group of the flag on the command line; "" if there is no flag.
        flag: name of the flag where it differs from the field's.
        options: values that the command line takes besides those of the check.
        derived: whether it follows from other fields, so that files do not hold it.
        always: whether files hold it even where it is the default.
        required: whether a file that does not hold it raises; a changed default must not change
            what a file means.
    """

    check: Check
    help: str
    panel: str = ""
    flag: str = ""
    options: tuple[str, ...] = ()
    derived: bool = False
    always: bool = False
    required: bool = False

    @property
    def type(self) -> type:
        """Type of the flag."""
        if self.options:
            return str
        kind = self.check.func if isinstance(self.check, partial) else self.check
        return {integer: int, one_of: str, boolean: bool}.get(kind, float)


def field_(check: Check, text: str, panel: str = "", *, default: Any = MISSING, **row: Any) -> Any:
    """Return a dataclass field with its `Row`; a default of None allows None."""
    about = Row(check, text, panel, **row)
    shown = not about.derived
    return dataclasses.field(default=default, compare=shown, repr=shown, metadata={"row": about})


def rows(described: Any) -> dict[str, Row]:
    """Return the rows of a description or of its class, by name.

    >>> from lastiterate import Training
    >>> rows(Training)["noise"].help
    'Standard deviation of the noise added to the parameters in one update.'
    """
    return {field.name: field.metadata["row"] for field in dataclasses.fields(described)}


def documented(described: Described) -> Described:
    """Append the help text of every field to the docstring of a class (a decorator)."""
    texts = "".join(f"\n        {name}: {row.help}" for name, row in rows(described).items())
    described.__doc__ = f"{described.__doc__}\n    Args:{texts}\n    "
    return described


def check_fields(described: Any, prefix: str = "") -> None:
    """Replace every field by its checked value, or raise a DescriptionError."""
    for field in dataclasses.fields(described):
        value = getattr(described, field.name)
        if value is not None or field.default is not None:
            value = field.metadata["row"].check(prefix + field.name, value)
            object.__setattr__(described, field.name, value)


def check_rules(described: Any, rules: Iterable[tuple[bool, str, str]], prefix: str = "") -> None:
    """Raise a DescriptionError for the first rule (violated, field, allowed) that is violated."""
    for violated, field, allowed in rules:
        if violated:
            value = attrgetter(field)(described)
            raise DescriptionError(prefix + field, _outline(value), allowed)


def integer(
    field: str, value: Any, reason: str = "", *, at_least: int = 1, at_most: int = LARGEST_INTEGER
) -> int:
    """Return an integer; bools and 3.0 raise, for they hide mistakes."""
    count = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if count is None or count < at_least:
        raise DescriptionError(field, _short(value), f"an integer >= {at_least}", reason)
    if count > at_most:
        most = "2^53" if at_most == LARGEST_INTEGER else f"{at_most:,}"
        raise DescriptionError(field, _short(value), f"an integer <= {most}", reason)
    return count


def number(
    field: str,
    value: Any,
    reason: str = "",
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
    infinite: bool = False,
) -> float:
    """Return a float in the given range; infinity only if ``infinite``."""
    ends = ((">", above), (">=", at_least), ("<=", at_most), ("<", below))
    limits = " and ".join(f"{sign} {end:g}" for sign, end in ends if math.isfinite(end))
    allowed = f"{limits or 'a number'} or inf" if infinite else f"a finite number {limits}".strip()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DescriptionError(field, value, allowed, reason)
    try:
        x = float(value)
    except OverflowError:
        raise DescriptionError(field, _short(value), allowed, reason) from None
    inside = above < x and at_least <= x <= at_most and not x >= below < math.inf
    if not inside or (math.isinf(x) and not infinite):
        raise DescriptionError(field, value, allowed, reason)
    return x


def one_of(field: str, value: Any, options: tuple[str, ...], reason: str = "") -> str:
    """Return one of a few words."""
    if not isinstance(value, str) or value not in options:
        raise DescriptionError(field, value, " or ".join(map(repr, options)), reason)
    return value


def boolean(field: str, value: Any) -> bool:
    """Return a bool."""
    if not isinstance(value, bool):
        raise DescriptionError(field, value, "true or false")
    return value


def at_least(low: float, **ends: Any) -> Check:
    """Return the check of a number >= low."""
    return partial(number, at_least=low, **ends)


def above(low: float, **ends: Any) -> Check:
    """Return the check of a number > low."""
    return partial(number, above=low, **ends)


def integer_from(low: int) -> Check:
    """Return the check of an integer >= low."""
    return partial(integer, at_least=low)


def choice(*options: str) -> Check:
    """Return the check of one of a few words."""
    return partial(one_of, options=options)


def known_fields(what: str, table: object, allowed: Iterable[str]) -> dict[str, Any]:
    """Return a table as keyword arguments; an unknown name raises."""
    names = sorted(allowed)
    if not isinstance(table, Mapping):
        raise DescriptionError(what, _outline(table), "a table of fields")
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            allowed = f"a known field ({meant}fields: {', '.join(names)})"
            raise DescriptionError(f"{what}.{key}", _outline(table[key]), allowed)
    return dict(table)


def checked_delta(delta: Any, records: int | None = None) -> float:
    """Return the delta of a guarantee, below one half; warns from 1/records on.

    >>> checked_delta(1e-6, 1000)
    1e-06
    """
    found = number("delta", delta, above=0.0, at_most=1.0)
    if found >= LARGEST_DELTA:
        raise DescriptionError("delta", found, f"< {LARGEST_DELTA}; use less than 1/records")
    if records is not None:
        warn_of_large_delta(found, records, depth=3)
    return found


def large_delta(delta: float, records: int) -> str | None:
    """Return a warning about a delta of 1/records or more; None below.

    >>> large_delta(1e-6, 1000) is None
    True
    """
    if delta < 1 / max(records, 1):
        return None
    return (
        f"delta = {printed(delta)} is not below 1/records = 1/{records:,}: publishing one record "
        "picked at random would be allowed. Use a delta well below that, such as 1/(10 records)."
    )


def warn_of_large_delta(delta: float, records: int, *, depth: int = 2) -> None:
    """Warn a caller outside of this library, whose own figures evaluate many deltas."""
    caller = sys._getframe(depth).f_globals.get("__name__", "")
    message = large_delta(delta, records)
    if message is not None and not caller.startswith("lastiterate."):
        warnings.warn(message, PrivacyWarning, stacklevel=depth + 1)


def _outline(value: object) -> object:
    """A value short enough for a message."""
    return f"a {type(value).__name__}" if isinstance(value, (Mapping, list, tuple)) else value


def _short(value: Any) -> Any:
    """The value itself, unless it has too many digits to be worth printing."""
    huge = isinstance(value, int) and value.bit_length() > 64
    return f"an integer of {value.bit_length()} bits" if huge else value
