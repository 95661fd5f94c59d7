"""Stopping and going on, without releasing an iterate.

A guarantee for the last iterate assumes that nobody sees the others, and a file is seen by
backups, administrators and whoever gets the disk. So a checkpoint lives in memory, or encrypted
and authenticated under a key that the caller holds elsewhere; plain files are refused. A
checkpoint that is decrypted and shown to anybody is a release, and the certificate changes:
`account(training, loss, releases=(step,))`.
"""

from __future__ import annotations

import io
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.atomic_write import write_whole
from lastiterate._internal.encryption import Seal
from lastiterate._internal.file_lock import held, refused
from lastiterate.description.fields import integer
from lastiterate.errors import AssumptionError

_SOMETIMES = ("order", "velocity", "kept")  # arrays that not every run has


@dataclass(frozen=True)
class State:
    """Everything a run needs to go on."""

    run: str  # a digest of the description that was running
    step: int
    parameters: NDArray[np.float64]
    tail: NDArray[np.float64]
    order: NDArray[np.int64] | None
    nonce: str | None
    source: dict[str, Any] | None
    experiment: bool  # no certificate may be given: a part of the run was seeded, or too coarse
    velocity: NDArray[np.float64] | None = None  # of a run with momentum
    kept: NDArray[np.bool_] | None = None  # who counts, if some records were dropped

    def to_bytes(self) -> bytes:
        """As an archive of plain arrays and JSON (never a pickle)."""
        table = {
            "run": self.run,
            "step": self.step,
            "nonce": self.nonce,
            "source": self.source,
            "experiment": self.experiment,
        }
        arrays: dict[str, NDArray[Any]] = {"parameters": self.parameters, "tail": self.tail}
        for name in _SOMETIMES:
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        text = np.frombuffer(json.dumps(table, default=np.ndarray.tolist).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, table=text, **arrays)  # type: ignore[arg-type]
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Read what ``to_bytes`` wrote."""
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            table = json.loads(archive["table"].tobytes())
            # What does not say that it may be certified (an older file) may not.
            table["experiment"] = table.get("experiment") is not False
            return cls(
                parameters=archive["parameters"],
                tail=archive["tail"],
                **{name: archive.get(name) for name in _SOMETIMES},
                **table,
            )


class Checkpoint(ABC):
    """Where a run keeps its state every ``every`` updates, and looks for one when it starts."""

    def __init__(self, every: int = 100) -> None:
        self.every = integer("every", every)
        self._in_use = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """For one run alone; raises if another one has it."""
        if not self._in_use.acquire(blocking=False):
            raise refused("The checkpoint")
        try:
            yield
        finally:
            self._in_use.release()

    @abstractmethod
    def save(self, state: State) -> None:
        """Replace what is kept, all or nothing."""

    @abstractmethod
    def load(self) -> State | None:
        """What is kept, if anything."""

    @abstractmethod
    def clear(self) -> None:
        """Forget it: the run is over."""


class MemoryCheckpoint(Checkpoint):
    """Kept in this process and gone with it."""

    def __init__(self, every: int = 100) -> None:
        super().__init__(every)
        self._state: State | None = None
        self._process = os.getpid()

    def save(self, state: State) -> None:
        self._state, self._process = state, os.getpid()

    def load(self) -> State | None:
        if self._state is not None and self._process != os.getpid():
            raise AssumptionError(
                "The checkpoint was kept by the process that this one was forked from, which may "
                "go on from it too: two runs would share their noise up to there, and the "
                "guarantee counts one release. Use a checkpoint made in this process."
            )
        return self._state

    def clear(self) -> None:
        self._state = None

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryCheckpoint, (self.every,)  # a pickle could end up on disk


class EncryptedCheckpoint(Checkpoint):
    """Kept in a file that only the holder of ``key`` can read or forge (AES-256-GCM).

    The key (32 bytes, `EncryptedCheckpoint.new_key()`) must not lie beside the file. The file
    knows its place: a copy elsewhere is not resumed, as both would go on from the same noise.
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes, every: int = 100) -> None:
        super().__init__(every)
        self._path = Path(path).resolve()  # one name, by whatever link or from wherever it is used
        self._seal = Seal(key, "a checkpoint")

    @contextmanager
    def held(self) -> Iterator[None]:
        with super().held(), held(self._path.with_name(f".{self._path.name}.lock")):
            yield

    @staticmethod
    def new_key() -> bytes:
        """A fresh key from the operating system.

        >>> len(EncryptedCheckpoint.new_key())
        32
        """
        return os.urandom(32)

    def save(self, state: State) -> None:
        content = os.fsencode(self._path) + b"\0" + state.to_bytes()
        write_whole(self._path, self._seal.sealed(content), mode=0o600)

    def load(self) -> State | None:
        if not self._path.exists():
            return None
        try:
            place, _, state = self._seal.opened(self._path.read_bytes()).partition(b"\0")
            if place == os.fsencode(self._path):
                return State.from_bytes(state)
        except ValueError as wrong:
            raise AssumptionError(
                f"{self._path} was not written with this key, or was changed since: it is not "
                "resumed. Give the key it was written with, or delete it to start again."
            ) from wrong
        raise AssumptionError(
            f"{self._path} was written as {os.fsdecode(place)!r}, and is a copy or was moved. Two "
            "runs that go on from one checkpoint share their noise up to there, and the guarantee "
            "counts one release. If no other copy of it is left, move it back there; or delete it "
            "to start again."
        )

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


def usable(checkpoint: Any) -> Checkpoint | None:
    """The checkpoint, or an error that says why a plain file is none."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    raise AssumptionError(
        f"checkpoint is {checkpoint!r}: a plain file would be a released iterate, which the "
        "guarantee for the last iterate does not cover. Use MemoryCheckpoint(), or "
        "EncryptedCheckpoint(path, key) with a key kept elsewhere."
    )
