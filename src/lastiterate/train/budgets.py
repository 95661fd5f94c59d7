"""What the records of a run have spent of their budgets (`Training.individual_budget`).

A record pays for a use with ((η/b)·‖gradient‖ + what the use rounds)²/ν², rounded up; a use that it
cannot pay for counts as 0. What is spent says who a record is: nothing of it leaves the run.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lastiterate.bounds.dynamics import ROUNDING, pushes, squared_ratio
from lastiterate.description import Arithmetic, Training
from lastiterate.description.rows import Rows
from lastiterate.errors import UnsupportedError
from lastiterate.losses.rounding import up
from lastiterate.train.grid import Parameters

Floats = NDArray[np.float64]
Counted = Callable[[Rows, Floats], NDArray[np.bool_]]


@runtime_checkable
class Individual(Protocol):
    """Sums of gradients that ask, with the norms of a batch's gradients, which ones count."""

    def total_of(self, parameters: Parameters, rows: Rows, counted: Counted) -> Parameters:
        """The sum of the gradients in ``rows`` that count."""


def payable(training: Training, gradients: object) -> Individual | None:
    """The gradients, if this run has budgets and they can keep them; None if it has none."""
    if training.individual_budget is None:
        return None
    if not isinstance(gradients, Individual):
        raise UnsupportedError(
            "An individual_budget needs the norm of every gradient: use noisy_descent with a loss "
            "of lastiterate.losses on an array or a sparse matrix, or leave individual_budget out."
        )
    return gradients


class Budgets:
    """The budgets of all records, and the update that is next.

    ``training``: the run as it is certified, with what its sums and its grid round.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=2, steps=3, step_size=2.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out", individual_budget=1.1)
    >>> budgets = Budgets(run)
    >>> for norms in ([1.0, 0.5], [1.0, 0.5], [0.0, 0.9]):
    ...     print(budgets.counted(slice(0, 2), np.array(norms)).tolist())
    ...     budgets.update += 1
    [True, True]
    [False, True]
    [True, False]
    """

    def __init__(self, training: Training) -> None:
        assert training.individual_budget is not None
        self._training, self.update = training, 0
        self._etas, self._nus = training.step_sizes, training.noises
        self._limit = -up(-(Fraction(training.individual_budget) ** 2))
        self._spent = np.zeros(training.records)
        told = training.arithmetic
        self._rounded = told.charge if isinstance(told, Arithmetic) else 0.0

    def counted(self, rows: Rows, norms: Floats) -> NDArray[np.bool_]:
        """Who of these records can pay for a gradient that is so long; they do."""
        training, alike = self._training, np.ones(len(norms))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            mean = np.nextafter(norms / training.batches.divisor(training.records), np.inf)
            each = (mean + self._rounded) * ROUNDING
            s = np.nextafter(pushes(alike * self._etas[self.update], each, training), np.inf)
            costs = squared_ratio(s, alike * self._nus[self.update]) * ROUNDING
            total = np.nextafter(self._spent[rows] + costs, np.inf)
        enough: NDArray[np.bool_] = (total <= self._limit) & np.isfinite(norms)
        self._spent[rows] = np.where(enough, total, self._spent[rows])
        return enough


class Filtered:
    """The sums of a run's gradients, one for every update, without what records cannot pay for."""

    def __init__(self, gradients: Individual, training: Training) -> None:
        self._gradients, self._budgets = gradients, Budgets(training)

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of an update; asked for once in each."""
        found = self._gradients.total_of(parameters, rows, self._budgets.counted)
        self._budgets.update += 1
        return found
