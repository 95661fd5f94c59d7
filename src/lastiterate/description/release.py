"""What leaves the building: the last iterate, or an average of the last few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lastiterate.description.portable import known_fields
from lastiterate.description.validation import whole


@dataclass(frozen=True)
class TailAverage:
    """The average (or any other function) of the last ``window`` iterates is released."""

    window: int

    def __post_init__(self) -> None:
        why = "it is the number of last iterates that are averaged"
        object.__setattr__(self, "window", whole("release.window", self.window, why))


Release = Literal["last"] | TailAverage


def read_release(value: Any) -> Any:
    """A release from its plain form: "last", or a table such as ``{"tail_average": 10}``."""
    if not isinstance(value, Mapping):
        return value
    return TailAverage(known_fields("release", value, {"tail_average"}).get("tail_average", 0))
