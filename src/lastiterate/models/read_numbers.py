"""A table of numbers as scikit-learn reads one, without its words about cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from lastiterate.errors import DescriptionError

_SHOWS = ("could not convert", "Complex data")  # what messages that show cells begin with


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
