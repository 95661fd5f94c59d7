"""Columns as splines over a declared range: curved answers of a linear model, nothing learnt.

A column becomes the B-splines of its range, cut into equal pieces; of degree 1 these are hats, and
a linear model of them is a broken line in every column. Knots come from the declared range, so no
record is looked at and the step costs nothing.

**Norm.** B-splines are nonnegative and add up to 1 inside of the range, where every value is
clipped to: those of a column are no longer than 1 (a Euclidean length is at most the sum), those of
d columns than √d. Divided by that, no row is longer than 1; the factor is rounded down by more than
evaluating so few convex combinations can round up.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import SplineTransformer
from sklearn.utils.validation import check_is_fitted

from lastiterate.description.validation import whole
from lastiterate.errors import DescriptionError
from lastiterate.models.ranges import middle_and_half
from lastiterate.models.read_numbers import read_numbers

_ROOM = 1 - 2.0**-40
_NARROWEST, _WIDEST = 2.0**-1000, 2.0**1000  # beyond, quotients and further knots are no numbers
_WHY = "knots lie between the ends, which must not be measured on the records"


class SplineFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """B-splines of every column over its declared range; rows of norm at most 1.

    Args:
        low, high: the range of every column, a number or one per column; values are clipped to
            it. Declared, because the extremes of a private column are private.
        pieces: equal parts of the range; a column becomes pieces + degree columns.
        degree: 1 for hats (broken lines), 3 for smooth curves.
        sparse_output: return a CSR matrix, of which a row has degree + 1 entries per column.

    In a `Pipeline`, `certificate_of(pipeline)` takes it as it is: it learns nothing.

    >>> SplineFeatures(0.0, 1.0, pieces=2).fit_transform([[0.25], [1.0], [9.0]]).round(3).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        low: Any = -1.0,
        high: Any = 1.0,
        *,
        pieces: int = 8,
        degree: int = 1,
        sparse_output: bool = False,
    ) -> None:
        self.low = low
        self.high = high
        self.pieces = pieces
        self.degree = degree
        self.sparse_output = sparse_output

    def fit(self, X: Any, y: Any = None) -> Self:
        """Look at the number of columns, and at nothing else."""
        read_numbers(self, X, dtype=np.float64)
        pieces = whole("pieces", self.pieces, "every piece of the range has its own line")
        degree = whole("degree", self.degree, "it is that of the polynomials", at_least=0)
        middle, half = middle_and_half(self.low, self.high, self.n_features_in_, _WHY)
        knots = middle + half * np.linspace(-1.0, 1.0, pieces + 1)[:, None]
        if not (np.diff(knots, axis=0) > 0).all():
            allowed = "so few that their ends are different numbers"
            raise DescriptionError("pieces", pieces, allowed, "the range is too narrow for them")
        gaps = np.diff(knots, axis=0)
        if gaps.min() < _NARROWEST or np.abs(knots).max() > _WIDEST / (2 * degree + 1):
            ends, why = (self.low, self.high), "splines divide by the pieces and reach beyond them"
            raise DescriptionError("low, high", ends, "neither so narrow nor so wide", why)
        self._splines = SplineTransformer(
            degree=degree, knots=knots, sparse_output=bool(self.sparse_output)
        )
        self._splines.fit(np.vstack([middle - half, middle + half]))
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Clip to the declared range, then the splines, divided by the root of the columns."""
        check_is_fitted(self, "_splines")
        X = read_numbers(self, X, dtype=np.float64, reset=False)
        middle, half = middle_and_half(self.low, self.high, self.n_features_in_, _WHY)
        inside = np.clip(X, middle - half, middle + half)
        splines = self._splines.transform(inside)
        return splines * (_ROOM / np.sqrt(self.n_features_in_))  # type: ignore[no-any-return]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The column's name and the number of the spline."""
        check_is_fitted(self, "_splines")
        names = getattr(self, "feature_names_in_", None)
        return np.asarray(
            self._splines.get_feature_names_out(names if input_features is None else input_features)
        )
