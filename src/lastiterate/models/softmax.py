"""Softmax regression: one score per class, trained together.

Gradients are never clipped: clipping breaks the contraction that the hidden state rests on. The
bound comes from the loss and the rows; with noise, the capped loss makes it half as long.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from lastiterate.losses import CappedSoftmax
from lastiterate.models.base import Array
from lastiterate.models.choose import cap_in_force
from lastiterate.models.classifier import PrivateClassifier


@dataclass(eq=False, repr=False)
class PrivateSoftmaxRegression(PrivateClassifier):
    """Softmax (multinomial logistic) regression with a privacy certificate.

    Arguments are those of `PrivateLogisticRegression`, and so are the attributes; cap limits the
    probability of all wrong classes together. The set of the classes is released beside the
    certificate unless it is declared.
    """

    _: KW_ONLY
    cap: float | None = None

    _score_per_class = True

    def _objective(self) -> CappedSoftmax:
        return CappedSoftmax(len(self.classes_), cap_in_force(self.cap, self.epsilon))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes.

        A capped loss pulls scores of confident records too far; this undoes it.
        """
        scores = self._scores(X)
        return self._objective().probability(scores)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))
