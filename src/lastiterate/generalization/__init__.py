"""What a privacy guarantee says about unseen data.

A private output depends little on any one record, so training risk and population risk cannot be
far apart. ``generalization`` lists every bound of that kind with its conditions and names the best.
"""

from lastiterate.generalization.bound import GeneralizationBound
from lastiterate.generalization.report import Generalization, generalization

__all__ = ["Generalization", "GeneralizationBound", "generalization"]
