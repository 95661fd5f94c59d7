"""Scores that survive: an SQLite file with one row per model.

A cohort is written in one transaction, in write-ahead mode, and a row's key is the model's number,
from which its seed follows. So a process may be killed at any moment: what was committed is there,
what was not is trained again with the same seeds, and nothing is counted twice.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import AssumptionError

_TABLES = """
CREATE TABLE IF NOT EXISTS run (
    name TEXT PRIMARY KEY, value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (
    number INTEGER PRIMARY KEY, world TEXT NOT NULL, seed TEXT NOT NULL UNIQUE,
    shape TEXT NOT NULL, scores BLOB NOT NULL
);
"""


class Store:
    """The scores of one audit, in a file or (``None``) in memory.

    >>> with Store(None) as store:
    ...     store.settle({"models": 2}, entropy=7)
    ...     store.add([(0, "inside", 11, np.array([0.5]))])
    ...     store.add([(0, "inside", 11, np.array([0.7]))])      # the first one counts
    ...     store.finished(), store.scores()[0].tolist()
    7
    ({0}, [0.5])
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        target = ":memory:" if path is None else os.fspath(path)
        try:
            self._base = sqlite3.connect(target, timeout=60, isolation_level=None)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=FULL")
            self._base.executescript(_TABLES)
        except sqlite3.Error as broken:
            raise AssumptionError(
                f"{target} cannot be used as a store of scores: {broken}. Give a path where an "
                "SQLite file can be written."
            ) from broken

    def settle(self, description: Mapping[str, Any], entropy: int) -> int:
        """Fix what is audited, once; return the entropy of the first call.

        A store that belongs to another audit is refused: mixed scores mean nothing, and asking
        for more models after a look at the result would spend confidence that is not there.
        """
        wanted = json.dumps(description, sort_keys=True)
        with self._transaction():
            insert = "INSERT OR IGNORE INTO run VALUES (?, ?)"
            self._base.execute(insert, ("description", wanted))
            self._base.execute(insert, ("entropy", str(entropy)))
        found = dict(self._base.execute("SELECT name, value FROM run"))
        if found["description"] != wanted:
            raise AssumptionError(
                f"The store {self.path} belongs to another audit: it was started with "
                f"{found['description']}, and this call says {wanted}. Use a new file; the number "
                "of models must be fixed before the first look."
            )
        return int(found["entropy"])

    def add(self, rows: Iterable[tuple[int, str, int, NDArray[np.float64]]]) -> None:
        """Write (number, world, seed, scores) of some models, all or none; known ones stay."""
        packed = [
            (k, world, str(seed), json.dumps(np.shape(s)), np.asarray(s, "<f8").tobytes())
            for k, world, seed, s in rows
        ]
        with self._transaction():
            self._base.executemany("INSERT OR IGNORE INTO models VALUES (?, ?, ?, ?, ?)", packed)

    def finished(self) -> set[int]:
        """The numbers of the models that are here."""
        return {number for (number,) in self._base.execute("SELECT number FROM models")}

    def scores(self) -> dict[int, NDArray[np.float64]]:
        """The scores of every model, by number."""
        found = self._base.execute("SELECT number, shape, scores FROM models ORDER BY number")
        return {k: np.frombuffer(s, "<f8").reshape(json.loads(shape)) for k, shape, s in found}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing; other processes wait."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
