"""Records that stand out: blank or mislabelled, and the datasets with and without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.description.fields import integer
from lastiterate.errors import DescriptionError

Data = tuple[NDArray[Any], NDArray[Any]]


def mislabelled(dataset: Data, record: int, label: Any = None) -> Data:
    """The dataset with another label at one record: by default the class seen least often.

    >>> X, y = np.eye(3), np.array([1, 1, -1])
    >>> mislabelled((X, y), 0)[1]
    array([-1,  1, -1])
    """
    X, y = checked(dataset, record)
    if label is None:
        classes, counts = np.unique(y, return_counts=True)
        others = classes != y[record]
        if not others.any():
            raise DescriptionError(
                "label", None, "given", f"all labels are {y[record]!r}: no other one is known"
            )
        label = classes[others][np.argmin(counts[others])]
    return X, _with(y, record, label)


def blank(dataset: Data, record: int, label: Any, value: float = 0.0) -> Data:
    """The dataset with an empty record (all features ``value``) and the given label.

    With ``value`` 0 a linear model without intercept has no gradient there: use it for networks.
    """
    X, y = checked(dataset, record)
    return replaced((X, y), record, np.full(X.shape[1:], value), label)


def replaced(dataset: Data, record: int, x: ArrayLike, label: Any) -> Data:
    """The neighbouring dataset in which one record is another one."""
    X, y = checked(dataset, record)
    return _with(X, record, x), _with(y, record, label)


def _with(column: NDArray[Any], record: int, value: Any) -> NDArray[Any]:
    changed = np.array(column)
    changed[record] = value
    return changed


def checked(dataset: Data, record: int) -> Data:
    """The dataset as arrays, if it has such a record."""
    X, y = np.asarray(dataset[0]), np.asarray(dataset[1])
    integer("record", record, at_least=0)
    if record >= len(X) or len(X) != len(y):
        raise DescriptionError(
            "record", record, f"below {min(len(X), len(y))}", "one record of the data is changed"
        )
    return X, y
