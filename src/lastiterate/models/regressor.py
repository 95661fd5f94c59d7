"""Targets as numbers: clipped to a declared range, measured from its middle in half its width."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError
from lastiterate.models.base import NO_NOISE, Array, PrivateLinearModel
from lastiterate.models.choose import RESIDUAL
from lastiterate.models.elsewhere import Elsewhere
from lastiterate.models.read_numbers import scored
from lastiterate.models.stream import Streamed
from lastiterate.models.unlearning import Erasing

_NARROWEST = 2.0**-1000  # half of a narrower range may be no number
_WHY = "targets are clipped to it, so it must not be measured on them"


@dataclass(eq=False, repr=False)
class PrivateRegressor(RegressorMixin, Erasing, Elsewhere, Streamed, PrivateLinearModel):  # type: ignore[misc]
    """A regression; targets beyond ``target_range`` are clipped to it."""

    _: KW_ONLY
    target_bound: float | None = None
    target_range: Any = None
    _numeric_labels: ClassVar[bool] = True
    _row_norm: ClassVar[float | None] = 2.0  # as long as they come: it tells about the target

    @property
    def _ends(self) -> tuple[float, float]:
        """The range of the targets: declared, found, or else [-1, 1]."""
        if self.target_range is None and self.target_bound is None:
            found: tuple[float, float] = self.__dict__.get("target_range_", (-1.0, 1.0))
            return found
        if self.target_range is None:
            bound = number("target_bound", self.target_bound, _WHY, above=_NARROWEST)
            return -bound, bound
        allowed = "(low, high), two finite numbers with low below high, and target_bound left out"
        try:
            low, high = (number("target_range", end, _WHY) for end in self.target_range)
            apart = _NARROWEST < high - low < math.inf and math.isfinite(low + high)
        except (TypeError, ValueError):
            apart = False
        if not apart or self.target_bound is not None:
            raise DescriptionError("target_range", self.target_range, allowed, _WHY)
        return low, high

    def _unknown_range(self, y: Any, unpaid: str) -> Array | None:
        if not self.target_range is self.target_bound is None:
            return None
        if not unpaid:
            return np.asarray(y, np.float64)
        if unpaid == NO_NOISE:
            y = np.asarray(y, np.float64)
            self.target_range_ = float(y.min()), max(float(y.max()), float(y.min()) + 1.0)
            return None
        warnings.warn(
            f"target_range was not given, and nothing finds it here ({unpaid}): targets are "
            "clipped to [-1, 1]. Declare target_range=(low, high).",
            stacklevel=6,
        )
        return None

    @property
    def _unit(self) -> float:
        low, high = self._ends
        return high / 2 - low / 2

    @property
    def _middle(self) -> float:
        low, high = self._ends
        return low / 2 + high / 2

    def _limit(self, field: str, limit: float | None) -> float:
        """From where on a residual pulls no harder, in units of half the range."""
        if limit is None:
            return RESIDUAL
        unit = self._unit
        return number(field, limit, above=0.0) / unit

    def _targets(self, y: Array) -> Array:
        if np.asarray(y).dtype.kind not in "biuf":  # NumPy's own message shows the value
            why = "targets are numbers; which one is not shown, because error messages travel"
            raise DescriptionError("y", "not numeric", "one number per record", why)
        low, high = self._ends
        inside = np.clip(np.asarray(y, dtype=np.float64), low, high)
        return np.clip((inside - self._middle) / self._unit, -1.0, 1.0)

    def _store(self, parameters: Array) -> None:
        coefficients, intercepts = self._split(parameters * self._unit)
        self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])

    def _joined(self, parameters: Mapping[str, Array]) -> Array:
        return super()._joined(parameters) / self._unit

    def predict(self, X: Any) -> Array:
        """The predicted targets: scores, counted from the middle of the range."""
        return self._scores(X)[:, 0] + self._middle

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R squared; on private records that is a release by itself."""
        return scored(partial(super().score, X), y, sample_weight, "numbers")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on 50 records noise is most of the answer
        return tags
