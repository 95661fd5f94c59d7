"""A forked child never hands out its parent's bytes, whichever of its threads asks first."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

from lastiterate.noise.stream import SecretStream

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")

FORKS, THREADS, BYTES = 40, 4, 64


def drawn_by_threads(stream: SecretStream) -> bytes:
    """What several threads take that all start at once."""
    taken: list[bytes] = []
    start = threading.Barrier(THREADS)

    def draw() -> None:
        start.wait()
        taken.append(stream.take(BYTES).tobytes())

    threads = [threading.Thread(target=draw) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return b"".join(taken)


def of_a_child(stream: SecretStream) -> bytes:
    """What the threads of one forked child take."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, drawn_by_threads(stream))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        content = file.read()
    os.waitpid(pid, 0)
    return content


def test_no_thread_of_a_child_sees_the_parents_bytes():
    """With the reset done by whoever came first, a second thread took old bytes: 1 fork in 9."""
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns in the middle of everything
    try:
        for _ in range(FORKS):
            stream = SecretStream()
            stream.take(8)  # so that bytes are waiting
            child = np.frombuffer(of_a_child(stream), np.uint64)
            parent = stream.take(4096).view(np.uint64)
            assert len(child) == THREADS * BYTES // 8
            assert len(np.unique(child)) == len(child)
            assert not np.intersect1d(child, parent).size
    finally:
        sys.setswitchinterval(patience)


def test_a_lock_that_another_thread_holds_does_not_block_the_child():
    stream = SecretStream()
    stream.take(8)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with stream._of_this_process().lock:
            holding.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait()
    try:
        assert len(of_a_child(stream)) == THREADS * BYTES
    finally:
        done.set()
        holder.join()


def test_a_child_forgets_what_its_parent_had_waiting():
    stream = SecretStream()
    waiting = stream._of_this_process()
    stream.take(8)
    pid = os.fork()
    if pid == 0:
        stream.take(8)
        os._exit(0 if waiting not in stream._waiting.values() else 1)
    assert os.waitpid(pid, 0)[1] == 0
