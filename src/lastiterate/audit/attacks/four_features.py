"""HF's attack: four probabilities of a model, and a linear classifier that learns to read them.

HF section V: p(y*|x*), p(y0|x*), p(y*|x0), p(y0|x0), where the record x* replaced x0. The
classifier is fitted on the choosing part of the models; the audit counts its errors on the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.audit.attacks.thresholds import probability
from lastiterate.errors import DescriptionError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FourFeatures:
    """The score function: model -> four probabilities."""

    canary: Any
    canary_label: Any
    original: Any
    original_label: Any

    def __call__(self, model: Any) -> Array:
        """The features of one model."""
        labels = (self.canary_label, self.original_label)
        return np.array(
            [probability(model, x, y) for x in (self.canary, self.original) for y in labels]
        )


@dataclass(frozen=True)
class LinearClassifier:
    """Logistic regression on standardised features; its margin is the score.

    >>> rng = np.random.default_rng(0)
    >>> judge = LinearClassifier().fit(rng.normal(1, 1, (50, 4)), rng.normal(0, 1, (50, 4)))
    >>> bool(judge(np.ones((1, 4))) > judge(np.zeros((1, 4))))
    True
    """

    strength: float = 1.0  # of the fit; scikit-learn's C

    def fit(self, inside: Array, outside: Array) -> Callable[[Array], Array]:
        """Learn from the features of models of both worlds."""
        try:
            from sklearn.linear_model import LogisticRegression
        except ImportError as missing:
            raise DescriptionError(
                "attack", "LinearClassifier", "used with scikit-learn installed", "it fits there"
            ) from missing
        both = np.concatenate([inside, outside])
        mean, spread = both.mean(axis=0), both.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        labels = np.repeat([1, 0], [len(inside), len(outside)])
        fitted = LogisticRegression(C=self.strength, max_iter=1000).fit(
            (both - mean) / spread, labels
        )
        weights, offset = np.asarray(fitted.coef_[0]), float(fitted.intercept_[0])

        def judge(features: Array) -> Array:
            return np.asarray((features - mean) / spread @ weights + offset)

        return judge
