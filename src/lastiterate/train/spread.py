"""Records that lie elsewhere, on a disk or on a cluster: parameters in, exact gradient sum out.

That is all a run asks of them. The sum is one of whole numbers (`whole_sums`), so it does not
matter how the records are divided, in which order parts answer, or which answer was asked for
twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Arithmetic, Training
from lastiterate.description.batches import Rows, RowStream
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.losses.data import feature_bound_of
from lastiterate.noise import Source
from lastiterate.train.features import check_rows, row_norms
from lastiterate.train.grid import Parameters
from lastiterate.train.settings import Settings
from lastiterate.train.summation import score_error, whole_arithmetic
from lastiterate.train.whole_sums import Limbs, WholeSums

Pair = tuple[NDArray[np.float32], NDArray[Any]]


class Records(ABC):
    """So many records of so many columns, an intercept's included, somewhere."""

    records: int
    columns: int

    @abstractmethod
    def total(self, sums: WholeSums, parameters: Parameters, rows: Rows) -> Limbs:
        """Σ ``sums.of`` over the records in ``rows``, every one of them counted once."""

    def arranged(self, training: Training, sums: WholeSums, source: Source) -> RowStream:
        """The batches of a run, which begins now: its secret order, if any, is drawn here."""
        return training.batches.rows(self.records, source)


def whole_pair(sums: WholeSums, rows: Any, targets: Any) -> Pair:
    """Rows and targets of some records as sums want them; raises if a row is too long.

    >>> from lastiterate.losses import Logistic
    >>> sums = WholeSums(Logistic(), columns=1, feature_bound=1.0, gradient_norm=1.0)
    >>> X, y = whole_pair(sums, np.array([[0.5]]), np.array([1.0]))
    >>> X.tolist(), y.tolist()
    ([[2097152.0]], [1.0])
    """
    X = rows if isinstance(rows, np.ndarray) else rows.toarray()
    if X.shape[1] != sums.columns:
        why = "all rows are records of one table"
        raise DescriptionError("columns", X.shape[1], f"{sums.columns} as elsewhere", why)
    check_rows(row_norms(X), sums.feature_bound, sums.columns)
    return sums.features(X), sums.objective.targets(targets)


class SpreadGradients:
    """What a run asks of gradients, asked of records that lie elsewhere."""

    objection = ""  # their sums have a proved error

    def __init__(self, objective: Any, data: Records, training: Training, told: Settings) -> None:
        if not isinstance(objective, LinearLoss):
            why = "records that lie elsewhere know no other gradients"
            raise DescriptionError("objective", objective, "a loss of lastiterate.losses", why)
        if training.clipping != "none":
            raise UnsupportedError(
                "Records that lie elsewhere are summed with clipping='none': take a loss whose "
                "gradients are short by themselves."
            )
        for name in ("labels", "weights", "checkpoint", "groups"):
            if getattr(told, name) is not None:
                why = "the records lie elsewhere, with their labels, and are not looked at here"
                raise DescriptionError(name, "given", "absent with such records", why)
        if data.records != training.records:
            why = "what is certified must be what runs"
            allowed = f"training.records = {training.records} records"
            raise DescriptionError("data", f"{data.records} records", allowed, why)
        R = feature_bound_of(objective, training, told.feature_bound)
        assert R is not None  # only clipping='gradient' has none
        self._data, self._training, self._objective = data, training, objective
        self._sums = WholeSums(objective, data.columns, R, training.gradient_norm)
        self.shape = self._sums.shape
        self.loss = objective.regularity(R, told.regularization)
        self.per_length = score_error(training, objective, data.columns, R)

    def arithmetic(self, size: int) -> Arithmetic | None:
        """How far its sums can be off."""
        return whole_arithmetic(self._training, self._objective, self._data.columns)

    def content(self) -> Iterable[NDArray[Any]]:
        """Nothing: the records are not here."""
        return ()

    def rows(self, source: Source) -> RowStream:
        """The batches of the run."""
        return self._data.arranged(self._training, self._sums, source)

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of the gradients of the records in ``rows``."""
        if not np.isfinite(parameters).all():
            return np.full(self.shape, np.nan)  # it diverged, which is reported at the end
        return self._sums.value(self._data.total(self._sums, parameters, rows))
