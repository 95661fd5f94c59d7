"""Secret random bytes: a stream cipher under a key that nobody has.

AES-256 in counter mode under a key from the operating system, which is as unpredictable as the
operating system's own source and many times faster; without the `cryptography` package the
operating system is asked for every byte. Bytes are handed out once: not again by a forked child,
a copy, a pickle, or another thread. `KeyedStream` alone can repeat itself, for whoever has its key.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import AssumptionError

try:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
except ImportError:  # pragma: no cover - the package is in the `models` extra
    Cipher = None  # type: ignore[assignment,misc]

_BLOCK = 1 << 17  # bytes made under one key
_forks = 0  # how many forks lie between this process and the one that was started


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, where processes do not fork
    os.register_at_fork(after_in_child=_forked)


def secret_bytes(count: int) -> NDArray[np.uint8]:
    """Fresh bytes under a fresh key."""
    if Cipher is None:
        return np.frombuffer(bytearray(os.urandom(count)), np.uint8)
    encryptor = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    out = bytearray(count + 15)  # update_into asks for a block to spare
    encryptor.update_into(bytes(count), out)
    return np.frombuffer(out, np.uint8)[:count]


class _Waiting:
    """Bytes of one process that wait to be handed out, and who may take them now."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.left = np.empty(0, np.uint8)


class SecretStream:
    """Random bytes, each handed out at most once.

    A process finds what waits for it under its own name. So a forked child never meets bytes of
    its parent, nor a lock that a thread of the parent held, and all threads of a child meet the
    same new bytes: `dict.setdefault` lets one of them win.
    """

    def __init__(self) -> None:
        self._waiting = {_process(): _Waiting()}

    def __reduce__(self) -> tuple[Any, ...]:
        return SecretStream, ()  # a copy has a life of its own

    def take(self, count: int) -> NDArray[np.uint8]:
        """The next bytes. A forked child never sees bytes of its parent."""
        used = count + -count % 8  # whole words, so that every view is aligned
        if used >= _BLOCK:
            return secret_bytes(used)[:count]
        mine = self._of_this_process()
        with mine.lock:
            if used > len(mine.left):
                mine.left = secret_bytes(_BLOCK)
            taken, mine.left = mine.left[:used], mine.left[used:]
        return taken[:count]

    def _of_this_process(self) -> _Waiting:
        name = _process()
        found = self._waiting.get(name)
        if found is None:
            found = self._waiting.setdefault(name, _Waiting())
            for other in list(self._waiting):
                if other != name:  # an ancestor's bytes: never ours to hand out
                    self._waiting.pop(other, None)
        return found


class KeyedStream:
    """Random bytes under one key, which can be made again from that key.

    Without a key it draws one from the operating system, and is ``fresh``: nobody else has it.

    >>> stream = KeyedStream()
    >>> again = KeyedStream(stream.key)
    >>> bool((stream.take(40) == again.take(40)).all()), stream.fresh, again.fresh
    (True, True, False)
    """

    __slots__ = ("_encryptor", "_lock", "_process", "fresh", "key")

    def __init__(self, key: bytes | None = None) -> None:
        if Cipher is None:
            raise AssumptionError(
                "Noise that can be drawn again needs the package `cryptography` "
                "(pip install lastiterate[models])."
            )
        self.fresh = key is None
        self.key = os.urandom(32) if key is None else key
        self._encryptor = Cipher(algorithms.AES(self.key), modes.CTR(bytes(16))).encryptor()
        self._lock, self._process = threading.Lock(), _process()

    def __reduce__(self) -> tuple[Any, ...]:
        return SecretStream, ()  # a copy has a life of its own

    def take(self, count: int) -> NDArray[np.uint8]:
        """The next bytes; a forked child has none, as they are its parent's."""
        if self._process != _process():
            raise AssumptionError(
                "This stream of noise belongs to the process that this one was forked from, which "
                "goes on with the same bytes: noise that is used twice hides nothing. Start the "
                "run in the process that ends it."
            )
        used = count + -count % 8
        out = bytearray(used + 15)
        with self._lock:
            self._encryptor.update_into(bytes(used), out)
        return np.frombuffer(out, np.uint8)[:count]


def _process() -> tuple[int, int]:
    """Names this process; a number that was given away again differs in the forks before it."""
    return os.getpid(), _forks
