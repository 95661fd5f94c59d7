"""Weights of records and of classes, none of them above a declared maximum.

A record of weight w counts w times: Σ w·loss + n·λ/2·‖θ‖² is minimised, as scikit-learn does. With
W the largest weight that can occur, that has the minimum of Σ (w/W)·loss + n·(λ/W)/2·‖θ‖², and
this is what runs. A convex loss with gradients of length at most K that turn at most β fast keeps
both when it is multiplied by a number of [0, 1]: sensitivity, smoothness, noise and certificate are
those of the plain loss. In the units of the user all of them are W times as large: twice the
declared maximum is twice the noise.

A weight is part of its record. One that was computed from other records too (a share, a count, an
inverse frequency) tells of them, and nothing here counts that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError, UnsupportedError

Array = NDArray[np.float64]

_WHY = "a record pulls as hard as its weight says, and noise is made for the heaviest"


def weights_of_records(given: Any, heaviest: Any, records: int) -> Array:
    """The weights over their declared maximum, in [0, 1].

    >>> weights_of_records([1.0, 4.0], 4.0, 2).tolist()
    [0.25, 1.0]
    """
    most = number("max_sample_weight", heaviest, _WHY, above=0.0)
    weights = np.asarray(given)
    if weights.dtype.kind not in "biuf" or weights.shape != (records,):
        found = f"of shape {weights.shape} and type {weights.dtype}"
        raise DescriptionError("sample_weight", found, "one number per record", _WHY)
    weights = weights.astype(np.float64)
    if not ((weights >= 0) & (weights <= most)).all():
        found = "with a number outside (not shown: error messages travel)"
        allowed = f"between 0 and max_sample_weight = {most:g}, which is declared"
        raise DescriptionError("sample_weight", found, allowed, _WHY)
    return weights / most


def weights_of_classes(given: Any, classes: NDArray[Any]) -> Array:
    """One weight for every class, 1 for those that are not named.

    >>> weights_of_classes({"rare": 5.0}, np.array(["common", "rare"])).tolist()
    [1.0, 5.0]
    """
    if isinstance(given, str) and given == "balanced":
        raise UnsupportedError(
            "class_weight='balanced' counts how often each class occurs, which nothing pays for: "
            "give the weights as numbers, from public shares (1 / (classes * share))."
        )
    allowed = "a dictionary of numbers from 0 on, not all 0, by the labels of classes"
    labels = classes.tolist()
    if not isinstance(given, Mapping) or not all(label in labels for label in given):
        raise DescriptionError("class_weight", given, allowed, _WHY)
    weights = [
        number(f"class_weight[{label!r}]", given.get(label, 1.0), _WHY, at_least=0.0)
        for label in labels
    ]
    if not max(weights):
        raise DescriptionError("class_weight", given, allowed, _WHY)
    return np.array(weights)
