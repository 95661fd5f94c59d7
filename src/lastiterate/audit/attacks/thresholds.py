"""Logit of one record and projection of the parameters: scores that are higher with the record.

A model is a function from one record's features to class probabilities, an object with
``predict_proba``, or a vector of linear parameters (labels -1 and +1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

_FLOOR = 1e-300


def probability(model: Any, x: Any, label: Any) -> float:
    """The probability that the model gives to ``label`` at ``x``."""
    if isinstance(model, np.ndarray):
        return float(expit(label * np.dot(np.asarray(x, float), model)))
    if hasattr(model, "predict_proba"):
        given = np.asarray(model.predict_proba(np.asarray(x)[None]))[0]
        return float(given[list(model.classes_).index(label)])
    return float(np.asarray(model(x), float)[label])


@dataclass(frozen=True)
class LogitScore:
    """ln(p/(1 − p)) at the record: closer to Gaussian than the loss (Carlini et al. 2022).

    >>> round(LogitScore(np.array([1.0, 0.0]), 1)(np.array([2.0, 5.0])), 6)
    2.0
    """

    x: Any
    label: Any

    def __call__(self, model: Any) -> float:
        """The score of one model."""
        if isinstance(model, np.ndarray):
            return float(self.label * np.dot(np.asarray(self.x, float), model))
        p = probability(model, self.x, self.label)
        return float(np.log(max(p, _FLOOR)) - np.log(max(1 - p, _FLOOR)))


@dataclass(frozen=True)
class DirectionScore:
    """The parameters along a direction: where the record's gradient pushed them.

    >>> DirectionScore(np.array([0.0, -1.0]))(np.array([2.0, 5.0]))
    -5.0
    """

    direction: NDArray[np.float64]

    def __call__(self, model: Any) -> float:
        """The score of one model."""
        return float(np.dot(self.direction, np.asarray(model, float)))
