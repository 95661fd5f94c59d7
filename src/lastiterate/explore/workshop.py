"""Worker processes that answer the page's questions while the page stays quick.

Three lanes: closed forms, searches, and searches that only fill the table. A request waits a
moment for its answers and shows what is there; the page asks again for the rest. What nobody asks
for any more is dropped, and a task that overruns its limit is stopped, so that neither a hurried
user nor fifty of them can pile up work. Answers are kept.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

from lastiterate.errors import LastIterateError
from lastiterate.explore.findings import Outcome, Task, find

QUICK_LIMIT = 1.0  # seconds in the quick lane; what takes longer changes lanes
LANES = {"quick": 0, "slow": 5, "idle": 10}  # and how far their workers stand back for others
_FORGET = 2.5  # seconds after which an answer that nobody asked for again is not worth computing
_KEPT = 4096  # answers
_MOST_QUEUED = 512  # tasks
_GRACE = 2.0  # seconds between asking a worker to stop a task and ending the worker
_MOST_MEMORY = 8 << 30  # bytes of address space of a worker

_log = logging.getLogger(__name__)


class OverrunError(BaseException):  # not for a library's `except Exception`
    """Raised inside a worker when its task has used up its time."""


class Workshop:
    """The lanes, what is queued in them, and the answers so far.

    >>> with Workshop() as workshop:
    ...     workshop.ask([], patience=0)
    {}
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._answers: OrderedDict[Task, Outcome] = OrderedDict()
        self._wanted: dict[Task, float] = {}
        self._queues: dict[str, list[Task]] = {lane: [] for lane in LANES}
        self._queued: set[Task] = set()
        self._running: set[Task] = set()
        self._closed = False
        self._ready = 0
        self._threads = [
            threading.Thread(target=self._drive, args=(lane,), daemon=True) for lane in LANES
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, tasks: Iterable[Task], patience: float) -> dict[Task, Outcome | None]:
        """The answers that are there after at most ``patience`` seconds; None for the others."""
        asked = list(tasks)
        with self._changed:
            until = time.monotonic() + patience
            for task in asked:
                if task not in self._answers:
                    self._wanted[task] = max(until, self._wanted.get(task, until))
                    self._enqueue(task, lane_of(task))
            missing = [task for task in asked if task not in self._answers]
            if missing:
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: all(task in self._answers for task in missing), timeout=patience
                )
            for task in asked:
                if task in self._answers:
                    self._answers.move_to_end(task)
            return {task: self._answers.get(task) for task in asked}

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait for the workers to have loaded what they need; whether they have."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._ready >= len(self._threads), timeout=timeout
            )

    def close(self) -> None:
        """End the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)

    def _enqueue(self, task: Task, lane: str) -> None:
        if task in self._running or task in self._queued:
            return
        queue = self._queues[lane]
        if len(queue) >= _MOST_QUEUED:
            self._drop(queue, lambda waiting: waiting is queue[0])
        queue.append(task)
        self._queued.add(task)

    def _drop(self, queue: list[Task], unwanted: Callable[[Task], bool]) -> None:
        for task in [waiting for waiting in queue if unwanted(waiting)]:
            queue.remove(task)
            self._queued.discard(task)
            self._wanted.pop(task, None)

    def _take(self, lane: str) -> Task | None:
        """The most urgent task of a lane that somebody still wants; None when it is time to go."""
        with self._changed:
            while not self._closed:
                queue = self._queues[lane]
                self._drop(queue, self._unwanted)
                if queue:
                    task = min(queue, key=lambda waiting: waiting.urgency)
                    queue.remove(task)
                    self._queued.discard(task)
                    self._running.add(task)
                    return task
                self._changed.wait(timeout=1.0)
            return None

    def _drive(self, lane: str) -> None:
        """Hand tasks to one worker process, one at a time, and keep its answers."""
        worker = Worker(LANES[lane])
        try:
            worker.wait_until_ready()
            with self._changed:
                self._ready += 1
                self._changed.notify_all()
            while (task := self._take(lane)) is not None:
                limit = QUICK_LIMIT if lane == "quick" else task.limit
                outcome = self._run(worker, task, limit)
                if outcome is None:
                    worker.end()
                    worker = Worker(LANES[lane])
                    worker.wait_until_ready()
                    outcome = Outcome(overrun=True)
                with self._changed:
                    self._running.discard(task)
                    self._keep(task, outcome, lane)
                    self._changed.notify_all()
        finally:
            worker.end()

    def _keep(self, task: Task, outcome: Outcome, lane: str) -> None:
        if outcome.overrun and lane == "quick":
            self._enqueue(task, lane_of(task, overrun=True))
            return
        if outcome.overrun and self._unwanted(task):
            self._wanted.pop(task, None)
            return  # given up because nobody asked, not because it cannot be answered
        self._answers[task] = outcome
        self._wanted.pop(task, None)
        while len(self._answers) > _KEPT:
            self._answers.popitem(last=False)

    def _unwanted(self, task: Task) -> bool:
        now = time.monotonic()
        return now - self._wanted.get(task, now) > _FORGET

    def _run(self, worker: Worker, task: Task, limit: float) -> Outcome | None:
        """The worker's answer; None if the worker had to be given up."""
        deadline = time.monotonic() + limit
        asked_to_stop = False
        try:
            worker.pipe.send((task, limit))
            while not worker.pipe.poll(0.25):
                late = time.monotonic() - deadline
                if self._closed or late > _GRACE or not worker.process.is_alive():
                    return None
                if self._unwanted(task) and not asked_to_stop:
                    worker.interrupt()
                    asked_to_stop, deadline = True, time.monotonic()
            answer: Outcome = worker.pipe.recv()
            return answer
        except (OSError, EOFError):
            return None


def lane_of(task: Task, *, overrun: bool = False) -> str:
    """Where a task belongs; nobody who waits for epsilon waits for a bound that cannot win."""
    if not (task.heavy or overrun):
        return "quick"
    return "slow" if task.urgency < 3 else "idle"


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

    def wait_until_ready(self) -> None:
        """Wait until it has loaded what it needs (a minute at most)."""
        with contextlib.suppress(OSError, EOFError):
            if self.pipe.poll(60):
                self.pipe.recv()

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
    import lastiterate.report  # noqa: F401  (so that the first picture does not wait for Plotly)

    pipe.send("ready")
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
    try:
        with clock.running(limit):
            return Outcome(find(task))
    except OverrunError:
        return Outcome(overrun=True)
    except LastIterateError as error:
        return Outcome(refused=str(error))
    except MemoryError:
        return Outcome(refused="This needs more memory than the page allows itself.")
    except Exception:
        _log.error("A question of the page failed:\n%s", traceback.format_exc())
        return Outcome(refused="This could not be computed; the terminal has the details.")


class _Clock:
    """Stops a task in the middle, where the system has alarms."""

    def __init__(self) -> None:
        self._counting = False
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: Any) -> None:
        if self._counting:
            self._counting = False
            raise OverrunError

    @contextlib.contextmanager
    def running(self, limit: float) -> Any:
        """Raise OverrunError in here after ``limit`` seconds."""
        self._counting = True
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
