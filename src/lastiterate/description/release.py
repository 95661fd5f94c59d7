"""What is released: the last iterate, or an average of the last few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.fields import at_least, check_fields, field_, integer, known_fields
from lastiterate.errors import DescriptionError


@dataclass(frozen=True)
class TailAverage:
    """The average (or any other function) of the last ``window`` iterates is released.

    ``decay`` makes it an exponential moving average that starts inside the window: the same price,
    because the window's guarantee covers all of its iterates.

    >>> TailAverage(3).weights.round(4), TailAverage(3, decay=0.5).weights
    (array([0.3333, 0.3333, 0.3333]), array([0.25, 0.25, 0.5 ]))
    """

    window: int = field_(integer, "Number of last iterates that are averaged.")
    decay: float | None = field_(
        at_least(0, at_most=1), "Factor of the average itself at every step.", default=None
    )

    def __post_init__(self) -> None:
        check_fields(self, "release.")

    @property
    def weights(self) -> NDArray[np.float64]:
        """Of the window's iterates, the newest last; an average starts as the first of them."""
        if self.decay is None:
            return np.full(self.window, 1.0 / self.window)
        weights = (1 - self.decay) * self.decay ** np.arange(self.window - 1, -1, -1.0)
        weights[0] = self.decay ** (self.window - 1)
        return np.asarray(weights, dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: ``{"tail_average": 10}``, with ``"decay"`` if it is exponential."""
        table: dict[str, Any] = {"tail_average": self.window}
        return table if self.decay is None else {**table, "decay": self.decay}


Release = Literal["last"] | TailAverage


def read_release(field: str, value: Any) -> Release:
    """Return a release, also from a table such as ``{"tail_average": 10}``."""
    if isinstance(value, Mapping):
        table = known_fields(field, value, ("tail_average", "decay"))
        return TailAverage(table.get("tail_average", 0), table.get("decay"))
    if isinstance(value, TailAverage):
        return value
    if not isinstance(value, str) or value != "last":
        raise DescriptionError(field, value, "'last' or TailAverage(window)")
    return "last"
