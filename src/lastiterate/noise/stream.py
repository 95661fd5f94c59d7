"""Secret random bytes: a stream cipher under a key that nobody has.

AES-256 in counter mode under a key from the operating system, which is as unpredictable as the
operating system's own source and many times faster; without the `cryptography` package the
operating system is asked for every byte. Bytes are handed out once: not again by a forked child,
a copy, a pickle, or another thread.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def _process() -> tuple[int, int]:
    """Names this process; a number that was given away again differs in the forks before it."""
    return os.getpid(), _forks
