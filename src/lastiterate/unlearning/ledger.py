"""`Ledger`: what the records of a run really did to it, so that one perturbation forgets them.

**Statement.** Fix a budget b and a noise ν before training. Let X be the run, Y the run without the
deleted records under the same batches and noise, and ζ ≥ ‖X − Y‖ a function of the run
(`distances`). Release X + N(0, ν²I) if ζ ≤ b, else Y + N(0, ν²I), and whatever is made of that and
the remaining records. This is b/ν-GDP, in both orders, against Y + N(0, ν²I) always: a run that
never had these records. It holds for all data and all deleted records; gradients need no bound.

*Proof.* Given batches and noise, the two outputs are Gaussians at most b apart (0 after a replay);
average by joint convexity. ∎ A replay with *fresh* noise is unsound: which runs are replayed
depends on X, so that the others are no longer a fair sample.
"""

from __future__ import annotations

import io
import json
import math
import os
import threading
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description.validation import number
from lastiterate.errors import AssumptionError
from lastiterate.losses.rounding import up
from lastiterate.sealing import Seal
from lastiterate.unlearning.distances import Distances
from lastiterate.whole_files import write_whole

_GONE = (
    "This ledger has no run to forget from: none was trained with it, the run did not end, or it "
    "was used already. A second output of the same run would halve the noise of the first, which "
    "nobody accounted for. Train again on what remains, with a new Ledger."
)


_MOST = 2.0**200


@dataclass(frozen=True)
class Book:
    """A run as its ledger remembers it: as secret as the run itself."""

    run: str  # a digest of description, loss, start and records
    grid: float
    experiment: bool
    memory: dict[str, Any]  # of the source of noise
    distances: Distances
    parameters: NDArray[np.float64] | None = None


class Ledger:
    """A budget and a noise, fixed before training, and what training writes down beside them.

    Give it to `lastiterate.train.noisy_descent`, and later to `lastiterate.train.unlearn`, once.
    Whoever reads it can subtract the noise of the run: it stays in memory, or encrypted in a file.

    Args:
        budget: b, how far the deleted records may have driven the run; beyond it is trained again.
        noise: ν, the standard deviation of the perturbation that follows either way.

    >>> ledger = Ledger(budget=0.05, noise=0.2)
    >>> ledger.mu, round(ledger.curve.epsilon(1e-5), 3)
    (0.25, 0.926)
    """

    def __init__(self, budget: float, noise: float) -> None:
        why = "it is fixed before training, or it would depend on the records"
        self._budget = number("budget", budget, why, at_least=0.0)
        self._noise = number(
            "noise", noise, "it hides what the records did", above=0.0, at_most=_MOST
        )
        self._book: Book | None = None
        self._lock = threading.Lock()
        self._used, self._process, self._path = False, os.getpid(), Path()

    @property
    def budget(self) -> float:
        """How far the deleted records may have driven the run."""
        return self._budget

    @property
    def noise(self) -> float:
        """The standard deviation of the perturbation."""
        return self._noise

    @property
    def mu(self) -> float:
        """b/ν, rounded up: of Gaussian differential privacy, against never having joined."""
        ratio = Fraction(self._budget) / Fraction(self._noise)
        return up(ratio) if ratio < Fraction(1e300) else math.inf

    @property
    def curve(self) -> Gaussian:
        """What that says at every epsilon and delta."""
        return Gaussian(self.mu)

    def __repr__(self) -> str:
        return f"Ledger(budget={self._budget!r}, noise={self._noise!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise AssumptionError(
            "A ledger is not copied, pickled or sent: two of them would perturb one run twice, and "
            "a file could be read. Use Ledger.save(path, key)."
        )

    def begin(self, book: Book) -> None:
        """A run starts to write; one run, in this process."""
        self._here()
        if self._used:
            raise AssumptionError("A ledger is for one run: make a new Ledger for this one.")
        self._used, self._book = True, book

    def end(self, parameters: NDArray[np.float64]) -> None:
        """The run ended here."""
        assert self._book is not None
        told = self._book
        ended = parameters.copy()
        self._book = Book(told.run, told.grid, told.experiment, told.memory, told.distances, ended)

    def book(self) -> Book:
        """The run that was written down."""
        self._here()
        if self._book is None or self._book.parameters is None:
            raise AssumptionError(_GONE)
        return self._book

    def spend(self) -> None:
        """Erase what was written, before its only output leaves; raises if somebody was faster."""
        with self._lock:
            self.book()
            self._book = None
        if self._path != Path():
            try:
                self._path.unlink()
            except FileNotFoundError:
                raise AssumptionError(_GONE) from None

    def save(self, path: str | os.PathLike[str], key: bytes) -> None:
        """Keep it in a file that only the holder of ``key`` reads; `unlearn` deletes the file.

        There is one file of a ledger, and a copy of it must not be used beside it.
        """
        told, seal = self.book(), Seal(key, "a ledger")
        if self._path != Path():
            raise AssumptionError(f"This ledger lies in {self._path} already: one run, one ledger.")
        assert told.parameters is not None
        facts = {
            "budget": self._budget,
            "noise": self._noise,
            "run": told.run,
            "grid": told.grid,
            "experiment": told.experiment,
            "memory": told.memory,
        }
        text = np.frombuffer(json.dumps(facts, default=np.ndarray.tolist).encode(), np.uint8)
        arrays = {**told.distances.to_arrays(), "parameters": told.parameters}
        file = io.BytesIO()
        np.savez(file, table=text, **arrays)  # type: ignore[arg-type]
        where = Path(path).resolve()
        write_whole(where, seal.sealed(file.getvalue()), mode=0o600, replace=False)
        self._path = where

    @classmethod
    def load(cls, path: str | os.PathLike[str], key: bytes) -> Ledger:
        """The ledger of a file."""
        where, seal = Path(path).resolve(), Seal(key, "a ledger")
        try:
            with np.load(io.BytesIO(seal.opened(where.read_bytes())), allow_pickle=False) as kept:
                table = json.loads(kept["table"].tobytes())
                ledger = cls(table.pop("budget"), table.pop("noise"))
                distances = Distances.ended(kept["distances"], kept["common"])
                ledger._book = Book(**table, distances=distances, parameters=kept["parameters"])
        except (ValueError, KeyError, TypeError) as wrong:
            raise AssumptionError(
                f"{where} is no ledger of this key, or was changed since: nothing is forgotten "
                "with it. Give the key it was written with, or train again on what remains."
            ) from wrong
        ledger._used, ledger._path = True, where
        return ledger

    def _here(self) -> None:
        if self._process != os.getpid():
            raise AssumptionError(
                "The ledger belongs to the process that this one was forked from: both could "
                "perturb one run. Save it, and load it where it is used."
            )
