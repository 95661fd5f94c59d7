"""`Ledger`: what the records of a run really did to it, so that one perturbation forgets them.

**Statement.** Fix a budget b and a noise ν before training. Let X be the run, X̃_r the run without
all records that are deleted up to request r, under the same batches and noise, and P_r a function
of the run and the requests with ‖P_r − X̃_r‖ ≤ b: an iterate that is known already if a bound ζ on
its distance (`distances`) says so, else X̃_r itself. Release P_r + N(0, ν²I) after request r, with
fresh noise, and whatever is made of that and the remaining records. R such models together are
√R·b/ν-GDP, in both orders, against X̃_r + N(0, ν²I) in their place: runs that never had these
records. It holds for all data and all deleted records; gradients need no bound. Requests may depend
on the models that were released in this way, but on nothing else that the run told.

*Proof.* Fix batches and noise. Given the models before it, and so the request, each model is a
Gaussian, in both worlds, with means at most b apart: R adaptive Gaussian rounds. Average over
batches and noise by joint convexity. ∎ The reference of model r is a run without *all* records that
were deleted up to request r; those who are deleted later are still in it, and for them model r is
one from before their deletion. Where one person alone never joins and the others are deleted in
both worlds, both may have been repeated for different requests: at most 2b apart, in models after
this person's deletion whose requests do not rest on earlier ones. A replay with *fresh* noise is
unsound: which runs are replayed depends on X, so that the others are no longer a fair sample.
"""

from __future__ import annotations

import io
import json
import math
import os
import threading
import zipfile
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description.validation import number, whole
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.holding import held
from lastiterate.losses.rounding import root_up
from lastiterate.sealing import Seal
from lastiterate.unlearning.distances import Distances
from lastiterate.whole_files import write_whole

_GONE = (
    "This ledger has no run to forget from: none was trained with it, the run did not end, or all "
    "its requests were served. One more model of the same run would take from the noise of the "
    "others, which nobody accounted for. Train again on what remains, with a new Ledger."
)
_FASTER = (
    "Another request was served from this ledger meanwhile: this one was not, and nothing of it "
    "was released. Load the ledger again, and ask again."
)
_MOST = 2.0**200
_LONGEST_PATH = 1 << 30
_LARGEST = 1 << 31  # bytes of a file
_FILE = "ledger"


@dataclass(frozen=True)
class Book:
    """A run as its ledger remembers it: as secret as the run itself."""

    run: str  # a digest of description, loss, start and the records that were not forgotten
    grid: float
    experiment: bool
    memory: dict[str, Any]  # of the source of noise
    distances: Distances  # where the path begins
    path: NDArray[np.float64]  # the iterates of the last updates, as many as were asked for
    seconds: float = 0.0  # that it took
    spent: float = 0.0  # how far those drove it that were forgotten since
    parameters: NDArray[np.float64] | None = None

    @property
    def closed(self) -> Book:
        """Without anything that a further model could be made of."""
        nothing = Distances.ended(np.zeros(0), np.zeros(1))
        return Book(self.run, self.grid, self.experiment, {}, nothing, np.zeros(0))


class Ledger:
    """A budget and a noise, fixed before training, and what training writes down beside them.

    Give it to `noisy_descent` or to the `fit` of an estimator, and later to `unlearn`. Whoever
    reads it can subtract the noise of the run: it stays in memory, or encrypted in a folder.

    Args:
        budget: b, how far the deleted records may have driven the run; beyond it is trained again.
        noise: ν, the standard deviation of the perturbation that follows either way.
        requests: how many models it may release, one after each request; any number of records
            may be in a request.
        path: bytes. So many of the last iterates are kept too, and there the gradients of the
            deleted are added before their length is taken: of random records it is much less.
            0: only norms, one number per record.
        folder: where it is kept, for its owner alone (0700, its file 0600): new or empty.
        key: 32 bytes (`EncryptedCheckpoint.new_key()`) that encrypt it. Keep them elsewhere, in a
            store of secrets: not in the folder, beside the model or in a backup with either.

    >>> ledger = Ledger(budget=0.05, noise=0.2)
    >>> ledger.mu, round(ledger.curve.epsilon(1e-5), 3)
    (0.25, 0.926)
    >>> Ledger(budget=0.05, noise=0.2, requests=16).mu
    1.0
    """

    def __init__(
        self,
        budget: float,
        noise: float,
        *,
        requests: int = 1,
        path: int = 0,
        folder: str | os.PathLike[str] | None = None,
        key: bytes | None = None,
    ) -> None:
        why = "it is fixed before training, or it would depend on the records"
        self._budget = number("budget", budget, why, at_least=0.0)
        self._noise = number(
            "noise", noise, "it hides what the records did", above=0.0, at_most=_MOST
        )
        self._requests = whole("requests", requests, "every model takes from the noise of the rest")
        why = "it bounds what is stored, by a number that does not depend on the records"
        self._bytes = whole("path", path, why, at_least=0)
        if self._bytes > _LONGEST_PATH:
            raise DescriptionError("path", path, f"at most {_LONGEST_PATH:,}", why)
        self._book: Book | None = None
        self._gone: NDArray[np.int64] = np.zeros(0, np.int64)
        self._served, self._released = 0, np.zeros(0)
        self._lock, self._process = threading.Lock(), os.getpid()
        self._used, self._path, self._seal = False, Path(), None if key is None else _seal(key)
        if (folder is None) != (key is None):
            missing = "key" if key is None else "folder"
            why = "a ledger on a disk is encrypted, under a key that lies elsewhere"
            raise DescriptionError(missing, None, "given with the other one", why)
        if folder is not None:
            self._path = _made(Path(folder).resolve()) / _FILE

    @property
    def budget(self) -> float:
        """How far the deleted records may have driven the run."""
        return self._budget

    @property
    def noise(self) -> float:
        """The standard deviation of the perturbation."""
        return self._noise

    @property
    def requests(self) -> int:
        """How many models it may release."""
        return self._requests

    @property
    def path(self) -> int:
        """How many bytes of iterates it keeps at most."""
        return self._bytes

    @property
    def served(self) -> int:
        """How many it has released."""
        return self._served

    @property
    def gone(self) -> NDArray[np.int64]:
        """The records that were forgotten; for whoever keeps the data, and nobody else."""
        return self._gone.copy()

    @property
    def mu(self) -> float:
        """√requests·b/ν, rounded up: all its models together, against runs without the deleted."""
        return self.mu_of(self._requests)

    def mu_of(self, models: int) -> float:
        """√models·b/ν, rounded up."""
        ratio = Fraction(self._budget) / Fraction(self._noise)
        return root_up(models * ratio**2) if ratio < Fraction(2) ** 400 else math.inf

    @property
    def curve(self) -> Gaussian:
        """What that says at every epsilon and delta."""
        return Gaussian(self.mu)

    @property
    def remains(self) -> tuple[str, ...]:
        """What is kept now, of the run and of the forgotten."""
        where = "in memory" if self._path == Path() else f"encrypted in {self._path}"
        told = []
        if self._book is not None and self._book.parameters is not None:
            told.append(
                f"{where}: the run as it was before the deletion (its iterates, "
                f"{len(self._book.path) + 1:,} of them, the key of its noise, how far each other "
                f"record drove it), for {self._requests - self._served} more requests"
            )
        if self._served:
            told.append(f"{where}: the numbers of the forgotten rows, and the last model")
        return tuple(told)

    def __repr__(self) -> str:
        more = f", requests={self._requests}" if self._requests > 1 else ""
        return f"Ledger(budget={self._budget!r}, noise={self._noise!r}{more})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise AssumptionError(
            "A ledger is not copied, pickled or sent: two of them would perturb one run twice, and "
            "a file could be read. Keep it in a folder (folder=, key=), and Ledger.load it."
        )

    def begin(self, book: Book) -> None:
        """A run starts to write; one run, in this process."""
        self._here()
        with self._lock:
            if self._used:
                raise AssumptionError("A ledger is for one run: make a new Ledger for this one.")
            self._used, self._book = True, book

    def end(self, parameters: NDArray[np.float64], seconds: float) -> None:
        """The run ended here, after so long."""
        assert self._book is not None
        self._book = replace(self._book, parameters=parameters.copy(), seconds=seconds)
        if self._path != Path():
            self._write(first=True)

    def known(self) -> Book:
        """The run that was written down, or what is left of it when all requests were served."""
        self._here()
        if self._book is None or (self._book.parameters is None and not self._served):
            raise AssumptionError(_GONE)
        return self._book

    def book(self) -> Book:
        """The run that was written down."""
        if self.known().parameters is None:
            raise AssumptionError(_GONE)
        return self.known()

    @property
    def released(self) -> NDArray[np.float64]:
        """The model of the last request that was served."""
        return self._released.copy()

    def serve(
        self, after: int, book: Book, gone: NDArray[np.int64], released: NDArray[np.float64]
    ) -> None:
        """Write down, before it leaves, the model of the request that follows ``after`` others.

        Raises if somebody was faster. With the last one all secrets of the run are erased.
        """
        with self._lock:
            self.book()
            if self._served != after:
                raise AssumptionError(_FASTER)
            if self._path == Path():
                self._turn(book, gone, released)
                return
            with held(self._path.with_name(f".{_FILE}.lock")):
                assert self._seal is not None
                if _read(self._path, self._seal)[0]["served"] != after:
                    raise AssumptionError(_FASTER)
                before = self._book, self._gone, self._released, self._served
                self._turn(book, gone, released)
                try:
                    self._write()
                except BaseException:
                    self._book, self._gone, self._released, self._served = before
                    raise

    def _turn(self, book: Book, gone: NDArray[np.int64], released: NDArray[np.float64]) -> None:
        self._served += 1
        self._book = book if self._served < self._requests else book.closed
        self._gone, self._released = gone.copy(), released.copy()

    def erase(self) -> None:
        """Close it: nothing is forgotten with it any more, and no secret of the run is kept."""
        with self._lock:
            self._book = None
            if self._path != Path():
                self._path.unlink(missing_ok=True)

    def _write(self, first: bool = False) -> None:
        """Replace the file, all or nothing."""
        told = self._book
        assert told is not None
        assert self._seal is not None
        facts = {
            "budget": self._budget,
            "noise": self._noise,
            "requests": self._requests,
            "bytes": self._bytes,
            "served": self._served,
            "run": told.run,
            "grid": told.grid,
            "experiment": told.experiment,
            "memory": told.memory,
            "seconds": told.seconds,
        }
        text = np.frombuffer(json.dumps(facts, default=np.ndarray.tolist).encode(), np.uint8)
        arrays: dict[str, NDArray[Any]] = {**told.distances.to_arrays(), "path": told.path}
        # As a number of bytes, not of digits: the size of the file must not tell what was done.
        spent = np.array([told.spent])
        arrays |= {"gone": self._gone, "released": self._released, "spent": spent}
        if told.parameters is not None:
            arrays["parameters"] = told.parameters
        file, seal = io.BytesIO(), self._seal
        np.savez(file, table=text, **arrays)  # type: ignore[arg-type]

        def content(number: int) -> bytes:
            return seal.sealed(file.getvalue(), _place(self._path, number))

        write_whole(self._path, content, mode=0o600, replace=not first)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], key: bytes) -> Ledger:
        """The ledger of a folder; where it was not written it is refused, as a copy would be."""
        path, seal = Path(folder).resolve() / _FILE, _seal(key)
        table, arrays = _read(path, seal)
        try:
            given = (table.pop("budget"), table.pop("noise"))
            ledger = cls(*given, requests=table.pop("requests"), path=table.pop("bytes"))
            ledger._served = int(table.pop("served"))
            ledger._gone, ledger._released = arrays["gone"], arrays["released"]
            distances = Distances.ended(arrays["distances"], arrays["common"])
            table["spent"] = float(arrays["spent"][0])
            ended = arrays.get("parameters")
            ledger._book = Book(**table, distances=distances, path=arrays["path"], parameters=ended)
        except (ValueError, KeyError, TypeError) as wrong:
            raise _foreign(path) from wrong
        ledger._used, ledger._path, ledger._seal = True, path, seal
        return ledger

    def _here(self) -> None:
        if self._process != os.getpid():
            raise AssumptionError(
                "The ledger belongs to the process that this one was forked from: both could "
                "perturb one run. Keep it in a folder, and load it where it is used."
            )


def _seal(key: bytes) -> Seal:
    return Seal(key, "a ledger")


def _place(path: Path, number: int) -> bytes:
    """What a copy has not: the name of the file, and its number on the file system.

    Numbers are given again: a backup in the place of a file that is gone may have the same one.
    """
    return os.fsencode(path) + f"\0{number}".encode()


def _made(folder: Path) -> Path:
    """A folder of its owner alone, with nothing in it."""
    why = "what a ledger holds makes noise subtractable, and one ledger must not replace another"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        empty = not any(folder.iterdir())
    except OSError as wrong:
        allowed = "one that can be made or is empty"
        raise DescriptionError("folder", f"{folder} ({wrong})", allowed, why) from None
    if not empty:
        raise DescriptionError("folder", f"{folder}, not empty", "a new or empty folder", why)
    return folder


def _read(path: Path, seal: Seal) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a file holds; raises unless it is the one that was written, and no copy of it."""
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            sealed = file.read() if about.st_size <= _LARGEST and about.st_nlink == 1 else b""
        opened = io.BytesIO(seal.opened(sealed, _place(path, about.st_ino)))
        with np.load(opened, allow_pickle=False) as kept:
            arrays = dict(kept)
        table = json.loads(arrays.pop("table").tobytes())
        return table, arrays
    except OSError:
        raise AssumptionError(_GONE + f" (There is no ledger in {path.parent}.)") from None
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as wrong:
        raise _foreign(path) from wrong


def _foreign(path: Path) -> AssumptionError:
    return AssumptionError(
        f"{path} is no ledger of this key, or was changed or moved, or is a copy: whoever used "
        "both would release more models than their noise is made for. Give the key it was written "
        "with and the file where it was written, or train again on what remains."
    )
