"""Passes over the data, counted in updates."""

from __future__ import annotations

import math
from typing import Any

from lastiterate.description.batches import Batches
from lastiterate.description.validation import LARGEST_WHOLE, number
from lastiterate.errors import DescriptionError


def steps_of_epochs(epochs: Any, batches: Batches, records: int) -> int:
    """How many updates that many passes are; batches drawn at random round up.

    >>> from lastiterate import Poisson, Shuffled
    >>> steps_of_epochs(2.5, Shuffled(10), 100), steps_of_epochs(2, Poisson(0.3), 100)
    (25, 7)
    """
    why = "it counts the passes over the data"
    passes = number("epochs", epochs, why, at_least=0, at_most=LARGEST_WHOLE)
    per_epoch = batches.per_epoch(records)
    if per_epoch is None:
        return math.ceil(passes * records / batches.divisor(records) * (1 - 1e-12))
    if not (passes * per_epoch).is_integer():
        allowed = f"a whole number of updates, {per_epoch} in each epoch"
        why = "half an update does not exist; give the number of steps instead"
        raise DescriptionError("epochs", epochs, allowed, why)
    return int(passes * per_epoch)
