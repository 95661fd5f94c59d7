"""A pool of worker processes that answer the page's questions while the page stays quick.

Three lanes of one worker each: closed forms, searches, and searches that only fill the table. A
request waits a moment for its answers and shows what is there; the page asks again for the rest.
Every task has a deadline, and what nobody asks for any more is dropped, so that neither a hurried
user nor fifty of them can pile up work. Answers are kept, a bounded number of bytes of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import Full, PriorityQueue
from threading import Event, Lock, Thread
from typing import Self

from lastiterate.explore.findings import Outcome, Task
from lastiterate.explore.worker import Worker

QUICK_LIMIT = 1.0  # seconds in the quick lane; what takes longer changes lanes
LANES = {"quick": 3, "slow": 8, "idle": 12}  # and how far workers stand back for the page itself
_FORGET = 2.5  # seconds after which an answer that nobody asked for again is not worth computing
_KEPT = 4096  # answers
_KEPT_BYTES = 32 << 20  # of those answers and of the files that they are about
_MOST_QUEUED = 512  # tasks of a lane
_QUEUED_BYTES = 32 << 20  # of files that wait to be looked at
_NO_WORKER = Outcome(
    refused="The process that computes this could not be started; the terminal has the details. "
    "Change a number to try again, or start the explorer again."
)


@dataclass
class _Pending:
    """An answer that is not there yet, and until when somebody wants it."""

    wanted: float
    answer: Future[Outcome] = field(default_factory=Future)

    @property
    def forgotten(self) -> bool:
        return time.monotonic() - self.wanted > _FORGET


class _Lane:
    """A queue, most urgent first, one worker, and the thread between them."""

    def __init__(self, niceness: int) -> None:
        self._niceness = niceness
        self._order = count()  # among equals, who came first
        self._queue: PriorityQueue[tuple[int, int, Callable[[], None] | None]]
        self._queue = PriorityQueue(_MOST_QUEUED)
        self.ready = Event()  # the first worker has loaded everything, or died
        self.alive = False  # whether the worker can answer
        self.worker = Worker(niceness)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, urgency: int, work: Callable[[], None]) -> bool:
        """Queue what is to be done in the lane's thread; False where the queue is full."""
        try:
            self._queue.put_nowait((urgency, next(self._order), work))
        except Full:
            return False
        return True

    def start(self) -> None:
        """A fresh worker in the place of the one before, with everything loaded unless it dies."""
        self.worker.end()
        self.worker = Worker(self._niceness)
        self.alive = self.worker.wait_until_ready()

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        self.worker.process.kill()
        self._queue.put((-1, 0, None))  # before everything else
        self._thread.join(timeout=5)

    def _run(self) -> None:
        self.alive = self.worker.wait_until_ready()
        self.ready.set()
        while (work := self._queue.get()[2]) is not None:
            work()
        self.worker.end()


class Pool:
    """The lanes, what is asked of them, and the answers so far.

    Args:
        slack: how many times longer than usual a task of the slower lanes may take, for busy
            machines.

    >>> with Pool() as pool:
    ...     pool.ask([], patience=0)
    {}
    """

    def __init__(self, slack: float = 1.0) -> None:
        self._slack = slack
        self._lock = Lock()
        self._answers: OrderedDict[Task, Outcome] = OrderedDict()
        self._bytes = 0  # of the answers
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
            found = {task: self._answers.get(task) for task in asked}
            for task in found:
                if found[task] is _NO_WORKER:
                    self._answers.pop(task, None)  # shown once: the next question tries again
            return found

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait for the workers to have loaded what they need; whether they have."""
        end = time.monotonic() + timeout
        lanes = self._lanes.values()
        return all(lane.ready.wait(end - time.monotonic()) and lane.alive for lane in lanes)

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
        found = _Pending(until)
        queued = sum(each.weight for each in self._pending) if task.weight else 0
        if queued + task.weight > _QUEUED_BYTES:
            return None
        if self._closed or not self._enqueue(lane_of(task), task, found):
            return None  # the page asks again
        self._pending[task] = found
        return found

    def _enqueue(self, name: str, task: Task, pending: _Pending) -> bool:
        return self._lanes[name].put(task.urgency, partial(self._work, name, task, pending))

    def _work(self, name: str, task: Task, pending: _Pending) -> None:
        """In the thread of a lane: let its worker answer one task."""
        lane = self._lanes[name]
        with self._lock:
            if pending.forgotten:
                del self._pending[task]
                return
        limit = QUICK_LIMIT if name == "quick" else task.limit * self._slack
        if not lane.alive and not self._closed:
            lane.start()
        outcome: Outcome | None = _NO_WORKER
        if lane.alive:
            outcome = lane.worker.answer(task, limit, lambda: pending.forgotten)
            if outcome is None and not self._closed:
                lane.start()
        outcome = outcome or Outcome(overrun=True)
        with self._lock:
            slower = lane_of(task, overrun=True)
            if outcome.overrun and name == "quick" and self._enqueue(slower, task, pending):
                return
            del self._pending[task]
            given_up = name == "quick" or pending.forgotten  # and not: it cannot be answered
            if not (outcome.overrun and given_up):
                self._keep(task, outcome)
        pending.answer.set_result(outcome)

    def _keep(self, task: Task, outcome: Outcome) -> None:
        self._answers[task] = outcome
        self._bytes += task.weight + outcome.weight
        while len(self._answers) > 1 and (len(self._answers) > _KEPT or self._bytes > _KEPT_BYTES):
            oldest, answer = self._answers.popitem(last=False)
            self._bytes -= oldest.weight + answer.weight


def lane_of(task: Task, *, overrun: bool = False) -> str:
    """Where a task belongs; nobody who waits for epsilon waits for a bound that cannot win."""
    if not (task.heavy or overrun):
        return "quick"
    return "slow" if task.urgency < 3 else "idle"
