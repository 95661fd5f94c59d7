"""What leaves the building: the last iterate, or an average of the last few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lastiterate.description.validation import whole


@dataclass(frozen=True)
class TailAverage:
    """The average (or any other function) of the last ``window`` iterates is released."""

    window: int

    def __post_init__(self) -> None:
        why = "it is the number of last iterates that are averaged"
        object.__setattr__(self, "window", whole("release.window", self.window, why))


Release = Literal["last"] | TailAverage
