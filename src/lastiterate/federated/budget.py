"""The durable count of rounds: what a server that crashes and comes back must not forget.

A round is written down as spent before its noise exists. If the server dies after that, nobody can
tell whether the noisy model left, so the round stays spent; only the model may be lost. The model
of the last finished round is kept in the same file, which makes resuming possible.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.federated.federation import Federation

Arrays = dict[str, NDArray[Any]]

_TABLE = """
CREATE TABLE IF NOT EXISTS run (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    federation TEXT NOT NULL,
    spent INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    spoiled TEXT NOT NULL,
    releases TEXT NOT NULL,
    secure INTEGER NOT NULL,
    model BLOB
)
"""


class Budget:
    """The rounds of one federation, counted in one SQLite file that one server holds at a time.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> run = Federation(clients=9, sampled=3, rounds=2, clip=1.0, noise_multiplier=6.0)
    >>> budget = Budget(Path(folder) / "rounds.sqlite", run)
    >>> budget.spend()
    1
    >>> budget.close()                                # the server dies before the round is over
    >>> budget = Budget(Path(folder) / "rounds.sqlite", run)
    >>> budget.spent, budget.kept, budget.left
    (1, 0, 1)
    """

    def __init__(self, path: str | Path, federation: Federation, *, secure: bool = True) -> None:
        self.path, self.federation = Path(path), federation
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Intermediate models are secret: nobody else may read the file.
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        self._database = sqlite3.connect(
            self.path, timeout=0.0, isolation_level=None, check_same_thread=False
        )
        try:
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA synchronous = EXTRA")
            with self._change():
                self._database.execute(_TABLE)
                self._open_run(secure)
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise AssumptionError(
                f"The budget file {self.path} cannot be used ({error}). If another server holds "
                f"it, stop that one first: two servers would spend the same rounds twice."
            ) from None
        except BaseException:
            self._database.close()
            raise

    def _open_run(self, secure: bool) -> None:
        mine = json.dumps(self.federation.to_dict(), sort_keys=True)
        row = self._database.execute("SELECT federation FROM run").fetchone()
        if row is None:
            insert = "INSERT INTO run VALUES (1, ?, 0, 0, '', '[]', ?, NULL)"
            self._database.execute(insert, (mine, int(secure)))
        elif row[0] != mine:
            why = "rounds already spent under another description cannot be accounted under this"
            allowed = f"a file of this very run, not of {row[0]}"
            raise DescriptionError("budget", str(self.path), allowed, why)
        elif not secure:
            self._database.execute("UPDATE run SET secure = 0")

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """All or nothing, and on the disk when it is over."""
        self._database.execute("BEGIN EXCLUSIVE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _read(self, column: str) -> Any:
        return self._database.execute(f"SELECT {column} FROM run").fetchone()[0]

    @property
    def spent(self) -> int:
        """Rounds whose noisy model may have left."""
        return int(self._read("spent"))

    @property
    def left(self) -> int:
        """Rounds that may still be run."""
        return self.federation.rounds - self.spent

    @property
    def kept(self) -> int:
        """Rounds behind the model that is kept."""
        return int(self._read("kept"))

    @property
    def spoiled(self) -> str:
        """Why nothing is hidden from outsiders, or ""."""
        return str(self._read("spoiled"))

    @property
    def releases(self) -> tuple[int, ...]:
        """Rounds after which the model was shown to outsiders."""
        return tuple(json.loads(self._read("releases")))

    @property
    def secure(self) -> bool:
        """Whether all noise came from a secure source."""
        return bool(self._read("secure"))

    def spend(self) -> int:
        """Write one more round down as spent, durably; its number. Call before any noise is drawn.

        Raises when none is left.
        """
        with self._change():
            spent = self.spent
            if spent >= self.federation.rounds:
                raise AssumptionError(
                    f"All {self.federation.rounds} rounds are spent: another one would cost "
                    f"privacy that was never accounted. Describe a new run with more rounds."
                )
            self._database.execute("UPDATE run SET spent = spent + 1")
        return spent + 1

    def keep(self, model: Arrays) -> None:
        """Keep the model of the round that is now over."""
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **model)
        with self._change():
            self._database.execute(
                "UPDATE run SET kept = kept + 1, model = ?", (stream.getvalue(),)
            )

    def model(self) -> Arrays | None:
        """The model of the last finished round, if there is one."""
        blob = self._read("model")
        if blob is None:
            return None
        with np.load(io.BytesIO(blob), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}

    def spoil(self, why: str) -> None:
        """Write down why the last-iterate number must not be relied on."""
        with self._change():
            self._database.execute("UPDATE run SET spoiled = ? WHERE spoiled = ''", (why,))

    def distrust(self) -> None:
        """Write down that some noise came from a source that is not secure."""
        with self._change():
            self._database.execute("UPDATE run SET secure = 0")

    def show(self, round_: int) -> None:
        """Write down that the model after this round is shown to outsiders."""
        with self._change():
            releases = sorted({*self.releases, round_})
            self._database.execute("UPDATE run SET releases = ?", (json.dumps(releases),))

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
