"""What is released: the last iterate, or an average of the last few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.validation import known_fields, number, whole


@dataclass(frozen=True)
class TailAverage:
    """The average (or any other function) of the last ``window`` iterates is released.

    ``decay`` makes it an exponential moving average that starts inside the window: the same price,
    because the window's guarantee covers all of its iterates.

    >>> TailAverage(3).weights.round(4), TailAverage(3, decay=0.5).weights
    (array([0.3333, 0.3333, 0.3333]), array([0.25, 0.25, 0.5 ]))
    """

    window: int
    decay: float | None = None

    def __post_init__(self) -> None:
        why = "it is the number of last iterates that are averaged"
        object.__setattr__(self, "window", whole("release.window", self.window, why))
        if self.decay is not None:
            why = "it is what the average keeps of itself at every step"
            decay = number("release.decay", self.decay, why, at_least=0.0, at_most=1.0)
            object.__setattr__(self, "decay", decay)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Of the window's iterates, the newest last; an average starts as the first of them."""
        if self.decay is None:
            return np.full(self.window, 1.0 / self.window)
        weights = (1 - self.decay) * self.decay ** np.arange(self.window - 1, -1, -1.0)
        weights[0] = self.decay ** (self.window - 1)
        return np.asarray(weights, dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """As plain values: ``{"tail_average": 10}``, with ``"decay"`` if it is exponential."""
        table: dict[str, Any] = {"tail_average": self.window}
        return table if self.decay is None else {**table, "decay": self.decay}


Release = Literal["last"] | TailAverage


def read_release(value: Any) -> Any:
    """A release from its plain form: "last", or a table such as ``{"tail_average": 10}``."""
    if not isinstance(value, Mapping):
        return value
    fields = known_fields("release", value, {"tail_average", "decay"})
    return TailAverage(fields.get("tail_average", 0), fields.get("decay"))
