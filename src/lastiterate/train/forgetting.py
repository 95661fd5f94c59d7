"""`unlearn`: one perturbation that forgets records, where a `Ledger` was kept of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lastiterate.bounds.dynamics import ROUNDING
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Training
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import SecureSource
from lastiterate.noise.rounded import LARGEST_SCALE
from lastiterate.noise.source import repeated
from lastiterate.train.features import matrix, sparse
from lastiterate.train.gradients import LinearGradients
from lastiterate.train.grid import Parameters
from lastiterate.train.loop import Backend, Run
from lastiterate.train.reach import below
from lastiterate.train.settings import Settings
from lastiterate.unlearning.ledger import Ledger

if TYPE_CHECKING:
    from lastiterate.certificate import Certificate


@dataclass(frozen=True)
class Forgotten:
    """A model that has forgotten some records.

    Attributes:
        parameters: perturbed; train on from them with what remains as you like, that costs nothing.
        mu: b/ν: it is mu-GDP, in both orders, against the same run without the records from the
            start and the same perturbation.
        budget: b, of the ledger.
        noise: ν, of the perturbation.
        grid: the parameters are whole multiples of it.
        deleted: how many records were forgotten.
        records: how many the run had.
        experiment: the run was seeded, or its sums have no proved error: this is no guarantee.
    """

    parameters: Parameters
    mu: float
    budget: float
    noise: float
    grid: float
    deleted: int
    records: int
    experiment: bool

    @property
    def curve(self) -> Gaussian:
        """What it says at every epsilon and delta."""
        return Gaussian(self.mu)

    def certificate(self, delta: float, dataset: str = "") -> Certificate:
        """The certificate of this model, bound to its parameters; an experiment has none."""
        from lastiterate.certificate.unlearned import certify_unlearned

        return certify_unlearned(self, delta, dataset)

    def __str__(self) -> str:
        what = "An EXPERIMENT, no guarantee: " if self.experiment else ""
        return (
            f"{what}{self.deleted:,} of {self.records:,} records forgotten: {self.mu:.6g}-GDP "
            "against a run that never had them.\nIt holds towards somebody who saw no model from "
            "before the deletion, and only if nobody's request was made because of such a model. "
            "Whether the ledger or a replay served it is not said, but the time it took may tell."
        )


def unlearn(
    objective: LinearLoss,
    data: Any,
    training: Training,
    ledger: Ledger,
    deleted: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    regularization: float = 0.0,
    start: ArrayLike | None = None,
    feature_bound: float | None = None,
    radius: float | None = None,
    progress: bool | None = None,
) -> Forgotten:
    """Forget records of a run whose ledger was kept: b/ν-GDP, whatever the records are.

    Where they drove the run no farther than the budget, its last iterate is perturbed. Otherwise
    the run is repeated without them, with the same batches and noise, and that is perturbed. The
    ledger, with the secrets of the run, is erased before anything is returned: it serves one
    request, of any number of records.

    Args:
        objective, data, training, labels, regularization, start, feature_bound, radius: exactly as
            the run had them; anything else is refused. Rows of the deleted are still there.
        ledger: the one of that run.
        deleted: indices of the records to forget.
        progress: of a replay, as in `noisy_descent`.

    >>> from lastiterate import FullBatch
    >>> from lastiterate.losses import Logistic
    >>> from lastiterate.train import noisy_descent
    >>> X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
    >>> run = Training(records=40, steps=20, step_size=1.0, noise=1e-3, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out")
    >>> ledger = Ledger(budget=0.5, noise=1.0)  # before the run
    >>> model = noisy_descent(Logistic(), X, run, labels=y, ledger=ledger)
    >>> forgotten = unlearn(Logistic(), X, run, ledger, [2, 7], labels=y)
    >>> forgotten.mu, f"{forgotten.certificate(delta=1e-3).epsilon:.3f}"
    (0.5, '1.352')
    """
    if not isinstance(ledger, Ledger):
        why = "without it nobody knows what the records did"
        raise DescriptionError("ledger", ledger, "the Ledger of the run", why)
    book, gone = ledger.book(), _indices(deleted, training.records)
    told = Settings(
        labels=labels,
        regularization=regularization,
        start=start,
        feature_bound=feature_bound,
        radius=radius,
        progress=progress,
        noise=repeated(book.memory),
    )
    gradients = _gradients(objective, data, training, told)
    if Run.of(objective, training, told, gradients, digested=True).keeping.run != book.run:
        raise AssumptionError(
            "The ledger belongs to another run (another description, loss, regularization, start, "
            "or other records or another order of them): nothing it says holds for this one. Give "
            "exactly what the run had."
        )
    assert book.parameters is not None
    grid, farther = perturbation_grid(ledger.noise, book.grid, book.parameters.size)
    apart = math.nextafter(book.distances.of(gone) + farther, math.inf)
    if apart <= ledger.budget:
        known = book.parameters
    else:
        known = _replayed(objective, data, training, told, gone)
    forgotten = _perturbed(known, ledger.noise, grid)
    ledger.spend()
    return Forgotten(
        parameters=forgotten,
        mu=ledger.mu,
        budget=ledger.budget,
        noise=ledger.noise,
        grid=grid,
        deleted=len(gone),
        records=training.records,
        experiment=book.experiment,
    )


def _replayed(
    objective: LinearLoss, data: Any, training: Training, told: Settings, gone: NDArray[np.int64]
) -> Parameters:
    """The run without some records: their slots are empty, all else is drawn as it was."""
    gradients = _gradients(objective, _emptied(data, gone), training, told)
    return Run.of(objective, training, told, gradients).descended(gradients, Backend()).parameters


def _gradients(
    objective: LinearLoss, data: Any, training: Training, told: Settings
) -> LinearGradients:
    if not isinstance(objective, LinearLoss):
        why = "a ledger is kept of such a loss alone"
        raise DescriptionError("objective", objective, "a loss of lastiterate.losses", why)
    l2, bound = told.regularization, told.feature_bound
    return LinearGradients(objective, data, told.labels, training, l2, bound)


def _emptied(data: Any, gone: NDArray[np.int64]) -> Any:
    """A copy in which these rows are 0, and so are their gradients."""
    X = matrix(data)
    if not sparse(X):
        X = X.copy()
        X[gone] = 0.0
        return X
    kept = np.ones(X.shape[0], X.dtype)
    kept[gone] = 0.0
    return sp.csr_array(sp.diags_array(kept) @ X)


def perturbation_grid(noise: float, own: float, size: int) -> tuple[float, float]:
    """The grid of the run, or the finest one that this noise can be drawn on.

    And how much farther apart the nearest points of it can be: g√d, rounded up.

    >>> perturbation_grid(1.0, 2.0**-30, 9)[1], perturbation_grid(2.0**40, 2.0**-30, 9)[0]
    (0.0, 0.25)
    """
    if noise / own <= LARGEST_SCALE:
        return own, 0.0
    grid = below(noise / LARGEST_SCALE)
    grid = grid if noise / grid <= LARGEST_SCALE else 2 * grid
    return grid, math.sqrt(size) * grid * ROUNDING


def _perturbed(known: Parameters, noise: float, grid: float) -> Parameters:
    """Rounded noise on a grid: what rounding X + N(0, ν²I) to it gives, for X on it."""
    drawn = SecureSource().rounded_normal(noise / grid, known.shape)
    found: Parameters = (np.rint(known / grid) + drawn) * grid
    found.flags.writeable = False
    return found


def _indices(deleted: ArrayLike, records: int) -> NDArray[np.int64]:
    given = np.asarray(deleted)
    named = set(given.ravel().tolist()) if given.dtype.kind in "iu" else set()
    if given.ndim != 1 or not named or len(named) < len(given) or not named <= set(range(records)):
        allowed = f"different indices from 0 to {records - 1}, at least one"
        why = "a record that is not named is not forgotten"
        raise DescriptionError("deleted", deleted, allowed, why)
    return given.astype(np.int64)
