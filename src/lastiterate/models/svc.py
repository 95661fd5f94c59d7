"""Linear support vector classification with a smoothed hinge."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from lastiterate.losses import LinearLoss, OneVsRest, SmoothedHinge
from lastiterate.models.classifier import PrivateClassifier


@dataclass(eq=False, repr=False)
class PrivateLinearSVC(PrivateClassifier):
    """A linear support vector classifier with a privacy certificate.

    Arguments are those of `PrivateLogisticRegression`, and so are the attributes, but for cap.
    The set of the classes is released beside the certificate unless it is declared.

    Args:
        width: margin over which the corner of the hinge is rounded; the smoothness is R²/width.
    """

    _: KW_ONLY
    width: float = 1.0

    def _objective(self) -> LinearLoss:
        hinge = SmoothedHinge(self.width)
        return hinge if self._one_score else OneVsRest(hinge, len(self.classes_))
