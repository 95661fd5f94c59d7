"""A table of numbers as scikit-learn reads one, without its words about cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from lastiterate.errors import DescriptionError

# What messages that show cells have in them.
_SHOWS = ("could not convert", "Complex data", "label input types")


def read_numbers(estimator: Any, *data: Any, **told: Any) -> Any:
    """What `sklearn.utils.validation.validate_data` reads; no message or warning shows a cell."""
    try:
        with np.errstate(invalid="ignore", over="ignore"):  # a warning would tell of huge values
            return validate_data(estimator, *data, **told)
    except ValueError as error:
        if not any(words in str(error) for words in _SHOWS):
            raise
    # Raised outside of the handler, so that the message is not even the reason of this one.
    why = "Complex data not supported, nor texts; which cell is not said, as messages travel"
    raise DescriptionError("X or y", "not numeric", "a table of numbers, and labels", why)


def scored(score: Callable[..., Any], y: Any, sample_weight: Any, allowed: str) -> float:
    """A score of scikit-learn's; no message shows a label or a weight."""
    try:
        return float(score(y, sample_weight))
    except ValueError as error:
        ours = isinstance(error, DescriptionError)
        if ours or not any(words in str(error) for words in _SHOWS):
            raise
    why = "predictions are compared with such labels, and weights are numbers; none is shown"
    raise DescriptionError("y or sample_weight", "of another kind", allowed, why)
