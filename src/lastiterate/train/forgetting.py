"""`unlearn`: one perturbation that forgets records, where a `Ledger` was kept of the run."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lastiterate.bounds.dynamics import ROUNDING
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Training
from lastiterate.description.validation import number
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import SecureSource
from lastiterate.noise.rounded import LARGEST_SCALE
from lastiterate.noise.source import repeated
from lastiterate.printing import printed
from lastiterate.progress import Working
from lastiterate.train.features import matrix, sparse
from lastiterate.train.gradients import LinearGradients
from lastiterate.train.grid import Parameters
from lastiterate.train.loop import Backend, Draws, Run
from lastiterate.train.norms import lengths
from lastiterate.train.reach import below
from lastiterate.train.recording import distances
from lastiterate.train.settings import Settings
from lastiterate.unlearning.distances import Distances
from lastiterate.unlearning.ledger import Book, Ledger

if TYPE_CHECKING:
    from lastiterate.certificate import Certificate


@dataclass(frozen=True)
class Forgotten:
    """A model that has forgotten some records.

    Attributes:
        parameters: perturbed; train on from them with what remains as you like, that costs the
            deleted nothing.
        mu: √models·b/ν: it and the models after earlier requests are together mu-GDP, in both
            orders, against the same runs, perturbed alike, each without *all* that were deleted up
            to its request from the start. What an earlier one tells of those who were deleted after
            it is not covered. (Against one person alone who never joined, while the others are
            deleted in both worlds: twice that, for the models after this person's deletion, if
            neither reader nor request rests on one from before it.)
        budget: b, of the ledger.
        noise: ν, of the perturbation.
        grid: the parameters are whole multiples of it.
        deleted: how many records were forgotten, in this request and before.
        records: how many the run had.
        models: how many the ledger has released, this one included.
        experiment: the run was seeded, or its sums have no proved error: this is no guarantee.
        remains: what is still kept of the run and of the forgotten, and where.
    """

    parameters: Parameters
    mu: float
    budget: float
    noise: float
    grid: float
    deleted: int
    records: int
    models: int
    experiment: bool
    remains: tuple[str, ...]

    @property
    def curve(self) -> Gaussian:
        """What it says at every epsilon and delta."""
        return Gaussian(self.mu)

    def certificate(
        self, delta: float, dataset: str = "", *, parameters: Any = None, alone: bool = False
    ) -> Certificate:
        """The certificate of this model; an experiment has none.

        Args:
            delta: with which probability epsilon may fail.
            dataset: a label of your choice.
            parameters: of the model that was made of this one and of what remains; this one's if
                left out.
            alone: for readers who see no other model of this ledger, where no request was made
                because of one: mu is then b/ν.
        """
        from lastiterate.certificate.unlearned import certify_unlearned

        bound = self.parameters if parameters is None else parameters
        counted = dataclasses.replace(self, models=1) if alone else self
        return certify_unlearned(counted, delta, dataset, bound)

    def __str__(self) -> str:
        what = "An EXPERIMENT, no guarantee: " if self.experiment else ""
        against = "a run without all of these from the start"
        if self.models > 1:
            against = (
                f"runs, for each of the {self.models} models of its ledger together one without "
                "all that were deleted up to it from the start (it tells of those deleted later)"
            )
        kept = "".join(f"\n  {line}" for line in self.remains) or " nothing"
        return (
            f"{what}{self.deleted:,} of {self.records:,} records forgotten: "
            f"{printed(self.mu, 6)}-GDP against {against}.\nIt holds towards somebody "
            "who saw no model from before the deletion, and only if nobody's request was made "
            "because of such a model. Of records that stay it says nothing.\nWhat remains, beside "
            f"your own copies of the data, logs and backups:{kept}"
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
    wait: float | None = None,
    progress: bool | None = None,
) -> Forgotten:
    """Forget records of a run whose ledger was kept: b/ν-GDP, whatever the records are.

    Where they, and those before them, drove the run no farther than the budget, its last iterate is
    perturbed. Otherwise the run is repeated without them, with the same batches and noise, and that
    is perturbed; later requests count from there. The ledger writes the new state down before
    anything is returned; with its last request it erases the secrets of the run. Asking once more
    for records that are forgotten already returns the last model again, and costs nothing.

    Args:
        objective, data, training, labels, regularization, start, feature_bound, radius: exactly as
            the run had them; anything else is refused. Rows of the deleted are still there, those
            of earlier requests may hold anything that is allowed (zeros, say).
        ledger: the one of that run.
        deleted: indices of the records to forget.
        wait: so many seconds after the ledger was asked its file is written and the answer leaves,
            and if it is not ready then, after so many again: whether the run had to be repeated
            tells about the deleted, and must not be seen in the time. Decide it from public numbers
            before the request; by default twice as long as the run took. 0: at once, where nobody
            outside can measure.
        progress: a bar of a replay; by default none, because that there is one tells about the
            deleted.

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
    book, served, before = ledger.known(), ledger.served, ledger.gone
    asked = indices_of(deleted, training.records)
    why = "whether the run was repeated must not be seen in the time"
    wait = 2 * book.seconds if wait is None else number("wait", wait, why, at_least=0.0)
    told = Settings(
        labels=labels,
        regularization=regularization,
        start=start,
        feature_bound=feature_bound,
        radius=radius,
        progress=bool(progress),
        noise=repeated(book.memory) if book.memory else None,
    )
    was = _Remaining(objective, data, training, told, before)
    if was.run.keeping.run != book.run:
        raise AssumptionError(
            "The ledger belongs to another run (another description, loss, regularization, start, "
            "or other records or another order of them): nothing it says holds for this one. Give "
            "exactly what the run had; only rows that were forgotten may have changed."
        )
    if np.isin(asked, before).all() and served:
        return _forgotten(ledger, book, ledger.released, training.records, served, len(before))
    book, gone = ledger.book(), np.union1d(before, asked)
    some_left(asked, before, training.records)
    told = dataclasses.replace(told, noise=repeated(book.memory))
    remaining = _Remaining(objective, data, training, told, gone)
    grid, farther = perturbation_grid(ledger.noise, book.grid, remaining.run.centre.size)
    with Working("forgetting"):
        driven = was.driven(book, asked)
        decided = time.monotonic()  # all before it takes equally long, whichever way it goes on
        if driven.of([0], book.spent, farther) <= ledger.budget:
            spent = math.nextafter(book.spent + driven.without([0])[1], math.inf)
            kept = book.distances.without(asked)[0]
            book = dataclasses.replace(book, distances=kept, spent=spent)
        else:
            book = remaining.replayed(book, served + 1 == ledger.requests, ledger.path)
        book = dataclasses.replace(book, run=remaining.run.keeping.run)
        assert book.parameters is not None
        released = _perturbed(book.parameters, ledger.noise, grid)
        _until(decided, wait)  # before the file is written, which has a time too
        ledger.serve(served, book, gone, released)
    return _forgotten(ledger, book, released, training.records, served + 1, len(gone))


def _forgotten(
    ledger: Ledger, book: Book, released: Parameters, records: int, models: int, deleted: int
) -> Forgotten:
    released.flags.writeable = False
    return Forgotten(
        parameters=released,
        mu=ledger.mu_of(models),
        budget=ledger.budget,
        noise=ledger.noise,
        grid=perturbation_grid(ledger.noise, book.grid, released.size)[0],
        deleted=deleted,
        records=records,
        models=models,
        experiment=book.experiment,
        remains=ledger.remains,
    )


def _until(began: float, wait: float) -> None:
    """Sleep up to the next multiple of ``wait`` since ``began``."""
    if wait:
        took = time.monotonic() - began
        time.sleep(max(0.0, wait * math.ceil(took / wait) - took))


class _Remaining:
    """A run without some records: their slots are empty, all else is drawn as it was."""

    def __init__(
        self,
        objective: LinearLoss,
        data: Any,
        training: Training,
        told: Settings,
        gone: NDArray[np.int64],
    ) -> None:
        if not isinstance(objective, LinearLoss):
            why = "a ledger is kept of such a loss alone"
            raise DescriptionError("objective", objective, "a loss of lastiterate.losses", why)
        l2, bound = told.regularization, told.feature_bound
        some, labels = emptied(data, told.labels, gone)
        self.gradients = LinearGradients(objective, some, labels, training, l2, bound)
        self.run = Run.of(objective, training, told, self.gradients, digested=True)

    def driven(self, book: Book, asked: NDArray[np.int64]) -> Distances:
        """How far these records together drove the run: by their norms, then along its path."""
        run, training, gradients = self.run, self.run.training, self.gradients
        one = np.ones(1)
        whole = distances(run.rounding(gradients), gradients.loss, one)
        first = training.steps - len(book.path)
        own = book.distances.without(asked)[1]
        far = whole.following(first, own, book.distances.common)
        draws = Draws(run, Backend())
        for k in range(training.steps if len(book.path) else 0):
            rows = draws.rows()
            if training.batches.hidden:  # batches come from the stream that noise comes from
                draws.noise(k)
            if k >= first:
                far.begin()
                if isinstance(rows, slice):
                    some = asked[(asked >= rows.start) & (asked < rows.stop)]
                else:
                    some = asked[np.isin(asked, rows)]
                theta = book.path[k - first]
                far.note([0], lengths(gradients.total(theta, some).reshape(1, -1)) * one)
        return far

    def replayed(self, book: Book, last: bool, held: int) -> Book:
        """The run, repeated and, unless no other request can come, written down again."""
        scratch = Ledger(0.0, 1.0, path=held)
        run = self.run if last else dataclasses.replace(self.run, ledger=scratch)
        ended = run.descended(self.gradients, Backend()).parameters
        if last:
            return dataclasses.replace(book, parameters=ended)
        found = scratch.book()
        return dataclasses.replace(
            book, distances=found.distances, path=found.path, parameters=ended, spent=0.0
        )


def emptied(data: Any, labels: Any, gone: NDArray[np.int64]) -> tuple[Any, Any]:
    """Copies in which these rows are 0, and so are their gradients, under one label."""
    X = matrix(data)
    if not len(gone) or gone[-1] >= X.shape[0]:  # too few rows are refused elsewhere
        return X, labels
    if labels is not None and len(labels) == X.shape[0]:
        labels = np.array(labels)
        labels[gone] = labels[np.setdiff1d(np.arange(len(labels)), gone)[0]]
    if not sparse(X):
        X = X.copy()
        X[gone] = 0.0
        return X, labels
    kept = np.ones(X.shape[0], X.dtype)
    kept[gone] = 0.0
    X = sp.csr_array(sp.diags_array(kept) @ X)
    X.eliminate_zeros()
    return X, labels


def some_left(asked: NDArray[np.int64], before: NDArray[np.int64], records: int) -> None:
    """Raise unless these are new requests, and somebody stays."""
    if np.isin(asked, before).any():
        allowed = "records that are not forgotten yet, or only such that are"
        why = "a model is released for every request, and each takes from the noise of the others"
        raise DescriptionError("deleted", "records of earlier requests too", allowed, why)
    if len(before) + len(asked) == records:
        why = "a model of nobody is trained without any data"
        raise DescriptionError("deleted", "all that is left", "fewer records", why)


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
    return found


def indices_of(deleted: ArrayLike, records: int) -> NDArray[np.int64]:
    """The numbers of some records, sorted; raises unless they are different ones."""
    given = np.asarray(deleted)
    named = set(given.ravel().tolist()) if given.dtype.kind in "iu" else set()
    if given.ndim != 1 or not named or len(named) < len(given) or not named <= set(range(records)):
        allowed = f"different indices from 0 to {records - 1}, at least one"
        why = "a record that is not named is not forgotten"
        raise DescriptionError("deleted", deleted, allowed, why)
    return np.sort(given.astype(np.int64))
