"""One process that answers the page's tasks, each within its limit.

A task that overruns, or that nobody wants any more, is stopped by an alarm inside the process; a
process that does not react, or has died, is given up.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from lastiterate.errors import LastIterateError
from lastiterate.explore.findings import Outcome, Task, find

READY = "ready"  # what a worker sends first
_AGAIN = 0.25  # seconds between two attempts to stop a task inside its process
_GRACE = 2.0  # seconds between asking a worker to stop a task and giving it up
_MOST_MEMORY = 8 << 30  # bytes of address space of a worker

_log = logging.getLogger(__name__)


class OverrunError(BaseException):  # not for a library's `except Exception`
    """Raised inside a worker when its task has used up its time."""


class Worker:
    """One process that answers one task after the other."""

    def __init__(self, niceness: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, niceness), name="explore-worker", daemon=True
        )
        self.process.start()
        theirs.close()

    def wait_until_ready(self) -> bool:
        """Wait until it has loaded what it needs, however slow the machine is; False if it died."""
        try:
            while not self.pipe.poll(1.0):
                if not self.process.is_alive():
                    return False
            return bool(self.pipe.recv() == READY)
        except (OSError, EOFError):
            return False

    def answer(self, task: Task, limit: float, forgotten: Callable[[], bool]) -> Outcome | None:
        """The answer to a task within so many seconds; None if the worker has to be given up.

        A task that is ``forgotten`` is stopped before its time.
        """
        deadline = time.monotonic() + limit
        asked_to_stop = False
        try:
            self.pipe.send((task, limit))
            while not self.pipe.poll(0.25):
                late = time.monotonic() - deadline
                if late > _GRACE or not self.process.is_alive():
                    return None
                if forgotten() and not asked_to_stop:
                    self.interrupt()
                    asked_to_stop, deadline = True, time.monotonic()
            found = self.pipe.recv()
        except (OSError, EOFError):
            return None
        except Exception:  # what cannot be unpickled
            _log.exception("An answer of a worker cannot be read")
            return None
        return found if isinstance(found, Outcome) else None

    def interrupt(self) -> None:
        """Ask it to give up its task."""
        if hasattr(signal, "SIGALRM") and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGALRM)

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.kill()
        self.process.join(timeout=5)


def _work(pipe: Connection, niceness: int) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    if hasattr(os, "nice"):
        os.nice(niceness)
    _limit_memory()
    # Sliders reach numbers that overflow; theorems then answer with infinity, and NaN is refused.
    warnings.simplefilter("ignore", RuntimeWarning)
    clock = _Clock()
    import lastiterate.report  # noqa: F401  (so that the first figure does not wait)

    pipe.send(READY)
    while True:
        try:
            task, limit = pipe.recv()
        except (EOFError, OSError):
            return
        outcome = _answer(task, limit, clock)
        try:
            pipe.send(outcome)
        except OSError:
            return


def _answer(task: Task, limit: float, clock: _Clock) -> Outcome:
    """What was found; nothing of a task that was stopped, whatever came of it.

    A library may turn the exception that stops it into another one of its own, or pass over it and
    go on with half of its numbers.
    """
    outcome, failure = Outcome(overrun=True), ""
    try:
        with clock.running(limit):
            found = find(task)
            outcome = Outcome(found, weight=len(pickle.dumps(found)))
    except OverrunError:
        pass
    except LastIterateError as error:
        outcome = Outcome(refused=str(error))
    except MemoryError:
        outcome = Outcome(refused="This needs more memory than the page allows itself.")
    except Exception:
        failure = traceback.format_exc()
        outcome = Outcome(refused="This could not be computed; the terminal has the details.")
    if clock.rang:
        return Outcome(overrun=True)
    if failure:
        _log.error("A question of the page failed:\n%s", failure)
    return outcome


class _Clock:
    """Stops a task in the middle, where the system has alarms; ``rang``: whether it did."""

    def __init__(self) -> None:
        self._counting = False
        self.rang = False
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: Any) -> None:
        if self._counting:
            self.rang = True
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)  # should somebody pass over it
            raise OverrunError

    @contextlib.contextmanager
    def running(self, limit: float) -> Any:
        """Raise OverrunError in here after ``limit`` seconds."""
        self.rang, self._counting = False, True
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            yield
        finally:
            self._counting = False
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
