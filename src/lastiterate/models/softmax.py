"""Softmax regression: one score per class, trained together.

Gradients are never clipped: clipping breaks the contraction that the hidden state rests on. The
bound comes from the loss and the rows; with noise, a loss kept in a ball, or a capped one, makes it
about half as long.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from lastiterate.errors import DescriptionError
from lastiterate.losses import BallSoftmax, CappedSoftmax
from lastiterate.models.base import Array
from lastiterate.models.choose import BALL, cap_in_force
from lastiterate.models.confidence import ProbableClassifier


@dataclass(eq=False, repr=False)
class PrivateSoftmaxRegression(ProbableClassifier):
    """Softmax (multinomial logistic) regression with a privacy certificate.

    Arguments are those of `PrivateLogisticRegression`, and so are the attributes. The set of the
    classes is released beside the certificate unless it is declared.

    Args:
        ball: how long the slope p − e_y of a record may be, at most 1 (`BallSoftmax`). Missing, and
            cap missing: 3/4 with noise and three classes or more.
        cap: instead, what the wrong classes of a record may have in all (`CappedSoftmax`). Of two
            classes, which are the same loss either way, 1/2 with noise.
    """

    _: KW_ONLY
    cap: float | None = None
    ball: float | None = None

    _score_per_class = True
    _in_ball: ClassVar[bool] = True  # unless the user says otherwise

    def _objective(self) -> BallSoftmax | CappedSoftmax:
        classes, ball = len(self.classes_), self.ball
        if ball is not None and self.cap is not None:
            why = "either keeps one record's pull short, and the loss is one or the other"
            raise DescriptionError("ball", ball, "absent where cap is given", why)
        if ball is None and self.cap is None and self._in_ball:
            ball = BALL if classes > 2 and not math.isinf(self.epsilon) else None
        if ball is not None:
            return BallSoftmax(classes, ball)
        return CappedSoftmax(classes, cap_in_force(self.cap, self.epsilon))

    def _linked(self, X: Any) -> Array:
        scores = self._scores(X)
        return self._objective().probability(scores)
