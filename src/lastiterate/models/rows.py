"""Rows that are short enough: what every proved constant rests on.

An intercept is a column of ones, and counts. With a declared bound, longer rows are shortened to
it. Without one, every row is rescaled to norm 1 with the intercept inside: the largest norm in the
data is itself private, so it cannot be measured, and no other bound would hold for all data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from lastiterate.description.fields import number
from lastiterate.losses.rounding import root_up
from lastiterate.train import bound_rows
from lastiterate.train.features import matrix, rescaled, row_norms
from lastiterate.train.torch_backend import on_device

LONGEST = 1e150  # beyond, squares of norms have no number
Matrix = Any  # a dense array, a CSR array, a tensor or shards


@dataclass(frozen=True)
class Rows:
    """How raw features become rows of norm at most `norm`.

    >>> Rows(feature_bound=None, fit_intercept=False).of([[3.0, 4.0]]).round(6).tolist()
    [[0.6, 0.8]]
    >>> Rows(feature_bound=10.0, fit_intercept=True).of([[3.0, 4.0]]).tolist()
    [[3.0, 4.0, 1.0]]
    """

    feature_bound: float | None
    fit_intercept: bool

    def __post_init__(self) -> None:
        if self.feature_bound is not None:
            number("feature_bound", self.feature_bound, above=0.0, at_most=LONGEST)

    @property
    def norm(self) -> float:
        """No row is longer, the intercept's column included."""
        if self.feature_bound is None:
            return 1.0
        bound = float(self.feature_bound)
        return root_up(Fraction(bound) ** 2 + 1) if self.fit_intercept else bound

    def of(self, data: Any) -> Matrix:
        """The rows, with the intercept's column last.

        Rows of tensors and shards are not rescaled here: a factor beside each row does it.
        """
        if on_device(data):
            from lastiterate.models import tensors

            return tensors.rows_of(data, self)
        if self.feature_bound is not None:
            return self._with_intercept(bound_rows(data, self.feature_bound))
        X = self._with_intercept(matrix(data))
        norms = row_norms(X)
        return rescaled(X, norms, 1.0, norms > 0)

    def _with_intercept(self, X: Matrix) -> Matrix:
        if not self.fit_intercept:
            return X
        ones: Matrix = np.ones((X.shape[0], 1), X.dtype)
        if isinstance(X, np.ndarray):
            return np.hstack([X, ones])
        return sp.csr_array(sp.hstack([X, ones]))

    def __str__(self) -> str:
        intercept = ", the intercept's column of ones included" if self.fit_intercept else ""
        if self.feature_bound is None:
            return f"every row is rescaled to norm 1{intercept}"
        bound = f"rows longer than {self.feature_bound:g} are shortened"
        return f"{bound} (norm {self.norm:g}{intercept})"
