"""Records in parts on workers: every part answers for itself, and counts once.

What a worker keeps of a part (`Held`) knows its number and a digest of its records, and an answer
brings both along, with the number of the question. So a part that is asked twice because a worker
was lost counts once, an answer to another question ends the run, and so does a part that was
computed anew with other records, as a random order or a clock makes it. Workers with another
version of what computes refuse to.
"""

from __future__ import annotations

import hashlib
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from lastiterate import __version__
from lastiterate.description.batches import Rows
from lastiterate.errors import AssumptionError, LastIterateError
from lastiterate.train import Records
from lastiterate.train.arrow_files import arrow_table, numbers, pair_of
from lastiterate.train.grid import Parameters
from lastiterate.train.spread import whole_pair
from lastiterate.train.whole_sums import Limbs, WholeSums


class Fact(NamedTuple):
    """What is known of a part: its number, how many records it has, and their digest."""

    part: int
    records: int
    digest: bytes


class Held(NamedTuple):
    """A part as a worker keeps it."""

    fact: Fact
    X: NDArray[np.float32]
    y: NDArray[Any]


class Answer(NamedTuple):
    """The sum of some records of a part, asked for in one question."""

    fact: Fact
    question: int
    counted: int
    total: Limbs


class Failed(NamedTuple):
    """What a part was refused for: the errors of engines hide it."""

    error: Exception


def versions() -> str:
    """What this process computes with."""
    python = ".".join(platform.python_version_tuple()[:2])
    numbers = f"NumPy {np.__version__}, SciPy {scipy.__version__}"
    return f"lastiterate {__version__}, {numbers}, Python {python}"


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Work that is made in one process and done in another."""

    made_with: str = field(default_factory=versions)

    def check(self) -> None:
        """Raise unless this process has what the other one has."""
        if self.made_with != versions():
            raise AssumptionError(
                f"A worker has {versions()}, and the process that trains {self.made_with}: they "
                "may add up otherwise, and what is certified is one arithmetic. Nothing was "
                "released. Install the same versions everywhere."
            )


@dataclass(frozen=True)
class Keep(_Job):
    """What workers do first: a part of the table, as it is, to rows and targets."""

    reader: Any
    sums: WholeSums
    features: list[str]
    label: str

    def __call__(self, part: int, frame: Any) -> Held | Failed:
        try:
            self.check()
            table = arrow_table(frame)
            X, y = np.empty((0, self.sums.columns), np.float32), np.empty(0)
            if table.num_rows:  # an empty part need not know its types
                numbers(table.schema, self.features)
                pair = pair_of(table, self.features, self.label, np.float64)
                if not np.isfinite(pair[0]).all():
                    raise AssumptionError(
                        "A part of the data set has NaN or infinity in a row, whose gradient has "
                        "no bound. Nothing was released. Fill such cells by a public rule first."
                    )
                X, y = whole_pair(self.sums, *self.reader.read(*pair))
        except Exception as error:
            return Failed(error)
        digest = hashlib.sha256(np.ascontiguousarray(X).data)
        digest.update(np.ascontiguousarray(y, dtype=np.float64).data)
        return Held(Fact(part, len(y), digest.digest()), X, y)


@dataclass(frozen=True)
class Ask(_Job):
    """What workers do in every update: parameters in, exact gradient sum out."""

    sums: WholeSums
    parameters: Parameters
    question: int

    def __call__(self, held: Held | Failed, rows: Rows) -> Answer | Failed:
        if isinstance(held, Failed):
            return held
        try:
            self.check()
        except AssumptionError as error:
            return Failed(error)
        y = held.y[rows]
        total = self.sums.of(self.parameters, held.X[rows], y)
        return Answer(held.fact, self.question, len(y), total)


class Workers(ABC):
    """An engine that keeps parts and asks them; whatever it loses it computes again."""

    @abstractmethod
    def keep(self, job: Keep) -> Iterable[Fact | Failed]:
        """Have every part kept where it is, as ``job(part, frame)``; what is known of each."""

    @abstractmethod
    def ask(self, job: Ask, rows: dict[int, Rows]) -> Iterable[Answer | Failed]:
        """``job(held, rows[part])`` of every part in ``rows``, in any order."""


class SpreadRecords(Records):
    """The records of all parts, those of part 0 first."""

    def __init__(self, workers: Workers, job: Keep) -> None:
        found: dict[int, Fact] = {}
        for fact in map(_raised, workers.keep(job)):
            if found.setdefault(fact.part, fact) != fact:
                raise _others(fact.part)
        self._workers, self._sums, self._question = workers, job.sums, 0
        self._facts = [found[part] for part in sorted(found)]
        self._ends = np.cumsum([0, *(fact.records for fact in self._facts)])
        self.records, self.columns = int(self._ends[-1]), job.sums.columns

    def total(self, sums: WholeSums, parameters: Parameters, rows: Rows) -> Limbs:
        if sums != self._sums:  # features are kept in its units
            raise AssumptionError("The parts were kept for another run: keep them for this one.")
        self._question += 1
        facts = {fact.part: fact for fact in self._facts}
        asked = dict(zip(facts, self._split(rows), strict=True))
        asked = {part: some for part, some in asked.items() if _length(some)}
        totals: dict[int, Limbs] = {}
        job = Ask(sums, parameters, self._question)
        for answer in map(_raised, self._workers.ask(job, asked)):
            part = answer.fact.part
            if answer.fact != facts.get(part) or answer.counted != _length(asked.get(part, ())):
                raise _others(part)
            if answer.question != job.question:
                raise AssumptionError(
                    f"Part {part} of the data set answered to another update than it was asked "
                    "for: its gradients are those of other parameters. Nothing was released."
                )
            if not np.array_equal(totals.setdefault(part, answer.total), answer.total):
                raise AssumptionError(
                    f"Part {part} of the data set answered twice, with different sums: workers "
                    "compute in different ways. Nothing was released. Use processors of one kind."
                )
        if totals.keys() != asked.keys():
            raise AssumptionError(
                "Some parts of the data set did not answer: their records would be missing in the "
                "model. Nothing was released."
            )
        shape = (2, 3, self.columns, sums.objective.outputs())
        total = np.zeros(shape, np.int64)
        for each in totals.values():
            total += each
        return total

    def _split(self, rows: Rows) -> list[Rows]:
        """The rows of a batch, numbered part by part."""
        if isinstance(rows, slice):
            cuts = [np.clip(end, rows.start, rows.stop) for end in self._ends.tolist()]
            each = zip(cuts[:-1], cuts[1:], self._ends[:-1].tolist(), strict=True)
            return [slice(int(low - first), int(high - first)) for low, high, first in each]
        ordered = np.sort(rows)
        places = np.searchsorted(ordered, self._ends)
        parts = zip(places[:-1], places[1:], self._ends[:-1], strict=True)
        return [ordered[low:high] - first for low, high, first in parts]


def _others(part: int) -> AssumptionError:
    return AssumptionError(
        f"Part {part} of the data set has other records than before: it was computed "
        "again, in another way. The model would be of records that nobody described. "
        "Nothing was released. Write the data set to files first, and train on those."
    )


def _length(rows: Any) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _raised(found: Any) -> Any:
    """The answer, or its error, raised here."""
    if not isinstance(found, Failed):
        return found
    if isinstance(found.error, LastIterateError):  # the words of others may show cells
        raise found.error
    raise AssumptionError(
        f"A worker could not read its part of the data set ({type(found.error).__name__}). Nothing "
        "was released."
    )
