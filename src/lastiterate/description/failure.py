"""The delta of a promise: how often it may fail, and when that is no promise any more.

A mechanism that publishes one record picked at random keeps epsilon = 0 with delta = 1/n. From
there on a small epsilon does not say that everybody is protected, and from one half on it says
nothing worth certifying.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from lastiterate._internal.formatting import printed
from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError, PrivacyWarning

LARGEST_DELTA = 0.5  # from here on nothing is calibrated, trained or certified


def promised_delta(delta: Any, records: int | None = None) -> float:
    """The delta of a promise that somebody will rely on; refused from one half on.

    >>> promised_delta(1e-6, 1000)
    1e-06
    """
    why = "it is the probability with which the epsilon may fail"
    found = number("delta", delta, why, above=0.0, at_most=1.0)
    if found >= LARGEST_DELTA:
        why = "a promise that may fail every second time protects nobody; take less than 1/records"
        raise DescriptionError("delta", found, f"below {LARGEST_DELTA}", why)
    if records is not None:
        warn_of_large_delta(found, records, depth=3)
    return found


def large_delta(delta: float, records: int) -> str | None:
    """What to say about a delta of 1/records or more; None below.

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
    """Warn whoever asked from outside this library; its own figures ask for many deltas."""
    asked_by = sys._getframe(depth).f_globals.get("__name__", "")
    said = large_delta(delta, records)
    if said is not None and not asked_by.startswith("lastiterate."):
        warnings.warn(said, PrivacyWarning, stacklevel=depth + 1)
