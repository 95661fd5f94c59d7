"""Scores that survive: an SQLite file with one row per model, and a key in a file beside it.

A cohort is written in one transaction, in write-ahead mode, and a row's key is the model's number,
from which its seed follows. So a process may be killed at any moment: what was committed is there,
what was not is trained again with the same seeds, and nothing is counted twice.

Scores with their seeds, or with a digest of the data, would let anybody try out who the audited
record is. So seeds and digests stand in the file under a secret key only, which lies in
``NAME.key``; and every row has a checksum under it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.atomic_write import write_whole
from lastiterate.errors import AssumptionError

_TABLES = """
CREATE TABLE IF NOT EXISTS run (
    name TEXT PRIMARY KEY, value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (
    number INTEGER PRIMARY KEY, world TEXT NOT NULL, seed TEXT NOT NULL UNIQUE,
    shape TEXT NOT NULL, scores BLOB NOT NULL, checksum TEXT NOT NULL
);
"""
_KEY_BYTES = 32
_DAMAGED = "The file is damaged: delete it and its key, and start the audit again."
_ADVICE = {
    "SQLITE_FULL": "Make room: finished models are kept, and the same call goes on from there.",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
}


class Store:
    """The scores of one audit, in a file or (``None``) in memory.

    The file and its key are readable by their owner alone. Hand on the scores without the key:
    whoever has both can try out candidates for the audited record.

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
        try:
            self._key = secrets.token_bytes(_KEY_BYTES) if self.path is None else _key(self.path)
        except OSError as broken:
            raise self._unusable(broken) from broken
        with self._in_words():
            target = self.path or ":memory:"
            self._base = sqlite3.connect(target, timeout=60, isolation_level=None)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=FULL")
            self._base.executescript(_TABLES)

    def digest(self, *content: bytes) -> str:
        """A digest of what must not change; without the key it says nothing."""
        lengths = json.dumps([len(each) for each in content]).encode()
        return hmac.new(self._key, b"".join((lengths, *content)), hashlib.sha256).hexdigest()

    def settle(self, description: Mapping[str, Any], entropy: int) -> int:
        """Fix what is audited, once; return the entropy of the first call.

        A store that belongs to another audit is refused: mixed scores mean nothing, and asking
        for more models after a look at the result would spend confidence that is not there.
        """
        wanted = json.dumps(description, sort_keys=True)
        with self._transaction():
            insert = "INSERT OR IGNORE INTO run VALUES (?, ?)"
            hidden = self._masked(str(entropy).encode()).hex()
            self._base.execute(insert, ("description", wanted))
            self._base.execute(insert, ("entropy", hidden))
            checksum = self.digest(wanted.encode(), hidden.encode())
            self._base.execute(insert, ("checksum", checksum))
            found = dict(self._base.execute("SELECT name, value FROM run"))
        if found["description"] != wanted:
            raise AssumptionError(
                f"The store {self.path} belongs to another audit: it was started with "
                f"{found['description']}, and this call says {wanted}. Use a new file; the number "
                "of models must be fixed before the first look."
            )
        hidden = str(found["entropy"])
        if found["checksum"] != self.digest(wanted.encode(), hidden.encode()):
            raise self._changed("its seed")
        return int(self._masked(bytes.fromhex(hidden)))

    def add(self, rows: Iterable[tuple[int, str, int, NDArray[np.float64]]]) -> None:
        """Write (number, world, seed, scores) of some models, all or none; known ones stay."""
        packed = []
        for k, world, seed, scores in rows:
            shape, content = json.dumps(np.shape(scores)), np.asarray(scores, "<f8").tobytes()
            row = (k, world, self.digest(str(seed).encode()), shape, content)
            packed.append((*row, self._checksum(*row)))
        with self._transaction():
            self._base.executemany("INSERT OR IGNORE INTO models VALUES (?, ?, ?, ?, ?, ?)", packed)

    def finished(self) -> set[int]:
        """The numbers of the models that are here."""
        return set(self.scores())

    def scores(self) -> dict[int, NDArray[np.float64]]:
        """The scores of every model, by number."""
        with self._in_words():
            found = list(self._base.execute("SELECT * FROM models ORDER BY number"))
        for *row, checksum in found:
            if checksum != self._checksum(*row):
                raise self._changed(f"the row of model {row[0]}")
        return {
            k: np.frombuffer(content, "<f8").reshape(json.loads(shape))
            for k, _, _, shape, content, _ in found
        }

    def _checksum(self, number: Any, world: Any, seed: Any, shape: Any, scores: Any) -> str:
        content = scores if isinstance(scores, bytes) else repr(scores).encode()
        return self.digest(json.dumps([number, world, seed, shape], default=repr).encode(), content)

    def _masked(self, content: bytes) -> bytes:
        """The content, hidden under the key, or shown again; only ever used for one value."""
        pad = hashlib.shake_256(self._key + b"entropy").digest(len(content))
        return bytes(a ^ b for a, b in zip(content, pad, strict=True))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing; other processes wait."""
        with self._in_words():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has ended it already
                    self._base.execute("ROLLBACK")
                raise

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as broken:
            raise self._unusable(broken) from broken

    def _unusable(self, broken: Exception) -> AssumptionError:
        advice = _ADVICE.get(getattr(broken, "sqlite_errorname", ""), "")
        advice = advice or "Give a path where an SQLite file can be written."
        return AssumptionError(
            f"{self.path} cannot be used as a store of scores: {broken}. {advice}"
        )

    def _changed(self, what: str) -> AssumptionError:
        return AssumptionError(
            f"In the store {self.path} {what} is not what was written, or was written with another "
            f"key. An audit with scores that nobody measured says nothing. {_DAMAGED}"
        )

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(path: Path) -> bytes:
    """The secret of a store, made before the store itself; both are for their owner alone."""
    beside = path.with_name(f"{path.name}.key")
    begun = path.exists() and path.stat().st_size  # looked at first: by now it has its key
    if not beside.exists():
        if begun:
            raise FileNotFoundError(f"its key {beside} is missing, without which it says nothing")
        with suppress(FileExistsError):  # another process was faster
            write_whole(beside, secrets.token_bytes(_KEY_BYTES), mode=0o600, replace=False)
    with _own(path, os.O_CREAT | os.O_RDWR) as handle:
        if hasattr(os, "fchmod"):
            os.fchmod(handle, 0o600)
    with _own(beside, os.O_RDONLY) as handle:
        if os.name == "posix" and os.fstat(handle).st_mode & 0o077:
            raise PermissionError(
                f"others may read or write its key {beside}: if nobody did, chmod 600 it"
            )
        key = os.read(handle, _KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise OSError(f"its key {beside} has another length than {_KEY_BYTES} bytes")
    return key


@contextmanager
def _own(path: Path, flags: int) -> Iterator[int]:
    """The open file; raises unless it is a plain one and ours.

    In a folder that others may write to, a link leads to any file of ours that they choose, and a
    key that lies there already is one that they know.
    """
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():
        raise PermissionError(f"{path} is a link: give the file itself")
    handle = os.open(path, flags | careful, 0o600)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise PermissionError(f"{path} is no plain file")
        if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user: use a folder of your own")
        yield handle
    finally:
        os.close(handle)
