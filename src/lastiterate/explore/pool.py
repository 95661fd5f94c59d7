"""A pool of worker processes that answer the page's questions while the page stays quick.

Three lanes of one worker each: closed forms, searches, and searches that only fill the table. A
request waits a moment for its answers and shows what is there; the page asks again for the rest.
Every task has a deadline, and what nobody asks for any more is dropped, so that neither a hurried
user nor fifty of them can pile up work. Answers are kept, a bounded number of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import Self

from lastiterate.explore.findings import Outcome, Task
from lastiterate.explore.worker import Worker

QUICK_LIMIT = 1.0  # seconds in the quick lane; what takes longer changes lanes
LANES = {"quick": 0, "slow": 5, "idle": 10}  # and how far their workers stand back for others
_FORGET = 2.5  # seconds after which an answer that nobody asked for again is not worth computing
_KEPT = 4096  # answers
_MOST_QUEUED = 512  # tasks of a lane


@dataclass
class _Pending:
    """An answer that is not there yet, and until when somebody wants it."""

    wanted: float
    answer: Future[Outcome] = field(default_factory=Future)

    @property
    def forgotten(self) -> bool:
        return time.monotonic() - self.wanted > _FORGET


class _Lane:
    """One worker, and the thread that hands it one task after the other."""

    def __init__(self, niceness: int) -> None:
        self._niceness = niceness
        self.queued = 0
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.ready = self.thread.submit(self.start)

    def start(self) -> None:
        """A fresh worker, with everything loaded."""
        self.worker = Worker(self._niceness)
        self.worker.wait_until_ready()

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        self.thread.shutdown(wait=False, cancel_futures=True)
        if not self.ready.cancelled():
            self.ready.result()
            self.worker.process.kill()
            self.thread.shutdown(wait=True)
            self.worker.end()


class Pool:
    """The lanes, what is asked of them, and the answers so far.

    >>> with Pool() as pool:
    ...     pool.ask([], patience=0)
    {}
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: OrderedDict[Task, Outcome] = OrderedDict()
        self._pending: dict[Task, _Pending] = {}
        self._closed = False
        self._lanes = {name: _Lane(niceness) for name, niceness in LANES.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, tasks: Iterable[Task], patience: float) -> dict[Task, Outcome | None]:
        """The answers that are there after at most ``patience`` seconds; None for the others."""
        asked = list(tasks)
        until = time.monotonic() + patience
        with self._lock:
            waiting = [self._wanted(task, until) for task in asked if task not in self._answers]
        wait([found.answer for found in waiting if found is not None], timeout=patience)
        with self._lock:
            for task in asked:
                if task in self._answers:
                    self._answers.move_to_end(task)
            return {task: self._answers.get(task) for task in asked}

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait for the workers to have loaded what they need; whether they have."""
        return not wait([lane.ready for lane in self._lanes.values()], timeout=timeout).not_done

    def close(self) -> None:
        """End the workers."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()

    def _wanted(self, task: Task, until: float) -> _Pending | None:
        """The pending answer of a task, asked for now; None where the queue is full."""
        found = self._pending.get(task)
        if found is not None:
            found.wanted = max(found.wanted, until)
            return found
        name = lane_of(task)
        if self._closed or self._lanes[name].queued >= _MOST_QUEUED:
            return None  # the page asks again
        found = self._pending[task] = _Pending(until)
        self._enqueue(name, task, found)
        return found

    def _enqueue(self, name: str, task: Task, pending: _Pending) -> None:
        self._lanes[name].queued += 1
        self._lanes[name].thread.submit(self._work, name, task, pending)

    def _work(self, name: str, task: Task, pending: _Pending) -> None:
        """In the thread of a lane: let its worker answer one task."""
        lane = self._lanes[name]
        with self._lock:
            lane.queued -= 1
            if pending.forgotten:
                del self._pending[task]
                return
        limit = QUICK_LIMIT if name == "quick" else task.limit
        outcome = lane.worker.answer(task, limit, lambda: pending.forgotten)
        if outcome is None and not self._closed:
            lane.worker.end()
            lane.start()
        outcome = outcome or Outcome(overrun=True)
        with self._lock:
            if outcome.overrun and name == "quick" and not self._closed:
                self._enqueue(lane_of(task, overrun=True), task, pending)
                return
            del self._pending[task]
            if not (outcome.overrun and pending.forgotten):  # else given up, not unanswerable
                self._answers[task] = outcome
                while len(self._answers) > _KEPT:
                    self._answers.popitem(last=False)
        pending.answer.set_result(outcome)


def lane_of(task: Task, *, overrun: bool = False) -> str:
    """Where a task belongs; nobody who waits for epsilon waits for a bound that cannot win."""
    if not (task.heavy or overrun):
        return "quick"
    return "slow" if task.urgency < 3 else "idle"
