"""Targets as numbers: clipped to a declared bound and measured in units of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from lastiterate.description.validation import number
from lastiterate.models.base import Array, PrivateLinearModel
from lastiterate.models.stream import Streamed
from lastiterate.models.unlearning import Erasing


@dataclass(eq=False, repr=False)
class PrivateRegressor(RegressorMixin, Erasing, Streamed, PrivateLinearModel):  # type: ignore[misc]
    """A regression; targets beyond ``target_bound`` are clipped to it."""

    _: KW_ONLY
    target_bound: float = 1.0
    _numeric_labels: ClassVar[bool] = True

    @property
    def _unit(self) -> float:
        why = "targets are clipped to it, so it must not be measured on them"
        return number("target_bound", self.target_bound, why, above=0.0)

    def _targets(self, y: Array) -> Array:
        return np.clip(np.asarray(y, dtype=np.float64) / self._unit, -1.0, 1.0)

    def _store(self, parameters: Array) -> None:
        coefficients, intercepts = self._split(parameters * self._unit)
        self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])

    def _joined(self, parameters: Mapping[str, Array]) -> Array:
        return super()._joined(parameters) / self._unit

    def predict(self, X: Any) -> Array:
        """The predicted targets."""
        return self._scores(X)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on 50 records noise is most of the answer
        return tags
