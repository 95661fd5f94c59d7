"""Workers: answers are kept, overruns end, the dead are replaced, nobody waits for ever."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest
from patience import HANG_SECONDS

from lastiterate import FullBatch, Loss, Poisson, Training
from lastiterate.errors import UnsupportedError
from lastiterate.explore import findings, worker
from lastiterate.explore.findings import Bounded, Outcome, Task, tasks
from lastiterate.explore.pool import Pool, lane_of
from lastiterate.explore.reading import Description
from lastiterate.explore.worker import OverrunError, Worker

RUN = Training(
    records=60_000,
    steps=10**6,
    step_size=0.05,
    noise=0.0005,
    gradient_norm=10.0,
    batches=Poisson(0.025),
    adjacency="zero-out",
)
ENDLESS = Description(RUN, Loss(smoothness=0.25, regularization=0.002), 1e-5)


def search(limit: float) -> Task:
    """A search that takes minutes."""
    return Task("bound", ENDLESS, "poisson-deferral", heavy=True, limit=limit)


def quick(noise: float) -> Task:
    run = Training(
        records=100,
        steps=10,
        step_size=0.1,
        noise=noise,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    return Task("bound", Description(run, Loss(smoothness=1.0), 1e-5), "taut-string")


def test_a_search_without_end_is_ended(pool: Pool) -> None:
    task = search(limit=0.5)
    outcome = pool.ask([task], HANG_SECONDS)[task]
    assert outcome is not None
    assert outcome.overrun
    assert outcome.value is None


def test_quick_answers_do_not_wait_for_searches(pool: Pool) -> None:
    slow = search(limit=60)
    assert pool.ask([slow], 0.1)[slow] is None
    task = quick(0.31)
    outcome = pool.ask([task], HANG_SECONDS)[task]
    assert outcome is not None
    assert isinstance(outcome.value, Bounded)
    assert pool.ask([slow], 0)[slow] is None  # still searching


def test_what_nobody_asks_for_is_dropped(pool: Pool) -> None:
    task = search(limit=HANG_SECONDS)
    pool.ask([task], 0.1)
    end = time.monotonic() + HANG_SECONDS
    while task in pool._pending and time.monotonic() < end:
        time.sleep(0.2)
    assert task not in pool._pending
    assert task not in pool._answers  # given up, not answered: somebody may ask again


def test_answers_are_kept(pool: Pool) -> None:
    task = quick(0.32)
    first = pool.ask([task], HANG_SECONDS)[task]
    assert first is not None
    assert pool.ask([task], 0)[task] is first


def test_refusals_travel_as_words(pool: Pool) -> None:
    description = Description(RUN.replace(steps=10), Loss.unknown(), 1e-5)
    task = Task("string", description)
    outcome = pool.ask([task], HANG_SECONDS)[task]
    assert outcome is not None
    assert outcome.refused
    assert "Traceback" not in outcome.refused


def test_a_dead_worker_is_replaced() -> None:
    with Pool() as pool:
        assert pool.wait_until_ready(HANG_SECONDS)
        before = quick(0.33)
        assert pool.ask([before], HANG_SECONDS)[before] is not None
        task = search(limit=15)
        pool.ask([task], 0.3)
        import multiprocessing

        killed = 0
        for child in multiprocessing.active_children():
            if child.name.startswith("explore-"):
                assert child.pid is not None
                os.kill(child.pid, signal.SIGKILL)
                killed += 1
        assert killed >= 3
        after = quick(0.34)
        end = time.monotonic() + HANG_SECONDS
        while time.monotonic() < end:
            outcome = pool.ask([after], 2)[after]
            if outcome is not None and not outcome.overrun:
                break
        assert outcome is not None
        assert isinstance(outcome.value, Bounded)


class LatePipe:
    """A pipe on which nothing comes for as long as somebody first waits."""

    def __init__(self, *messages: object) -> None:
        self.messages = [*messages]
        self.waited = 0

    def poll(self, timeout: float) -> bool:
        self.waited += 1
        return self.waited > 1

    def recv(self) -> object:
        return self.messages.pop(0)

    def send(self, message: object) -> None: ...


class Living:
    def is_alive(self) -> bool:
        return True


def test_a_worker_that_is_ready_late_gives_outcomes_as_answers() -> None:
    """Its "ready" was taken as the first answer, and the threads of the pool ended on it."""
    slow = Worker.__new__(Worker)
    answer = Outcome(refused="an answer")
    slow.pipe, slow.process = LatePipe("ready", answer, "ready"), Living()  # type: ignore[assignment]
    slow.wait_until_ready()
    assert slow.answer(quick(0.5), 30, lambda: False) is answer
    assert slow.answer(quick(0.5), 30, lambda: False) is None  # no outcome: it is replaced


class NeverReady(Worker):
    """A worker that ends while it loads."""

    def __init__(self, niceness: int = 0) -> None:
        super().__init__(niceness)
        self.process.kill()


def test_a_worker_that_cannot_start_is_an_error_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lastiterate.explore.pool.Worker", NeverReady)
    with Pool() as pool:
        assert not pool.wait_until_ready(600)
        task = quick(0.35)
        outcome = pool.ask([task], 600)[task]
        assert outcome is not None
        assert "could not be started" in outcome.refused
        monkeypatch.setattr("lastiterate.explore.pool.Worker", Worker)
        again = pool.ask([task], 600)[task]
        assert again is not None
        assert isinstance(again.value, Bounded)


def test_lanes() -> None:
    about = quick(1.0).about
    assert isinstance(about, Description)
    assert {lane_of(task) for task in tasks(about)} <= {"quick"}
    assert lane_of(search(1)) == "slow"
    assert lane_of(Task("bound", about, "x", heavy=True, urgency=3)) == "idle"


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarms here")
def test_an_interrupted_worker_lives_on() -> None:
    worker = Worker()
    worker.wait_until_ready()
    worker.pipe.send((search(limit=HANG_SECONDS), HANG_SECONDS))
    time.sleep(0.5)
    worker.interrupt()
    assert worker.pipe.poll(HANG_SECONDS)
    assert worker.pipe.recv().overrun
    worker.interrupt()  # nothing is running: ignored
    worker.pipe.send((quick(0.4), HANG_SECONDS))
    assert worker.pipe.poll(HANG_SECONDS)
    assert isinstance(worker.pipe.recv().value, Bounded)
    worker.end()


def test_nothing_is_taken_of_a_task_that_was_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """NumPy turned the alarm into errors of its own, which were kept and printed as findings."""

    def spinning() -> None:
        until = time.monotonic() + HANG_SECONDS
        while time.monotonic() < until:
            pass

    def another_error(_: Task) -> None:
        try:
            spinning()
        except OverrunError:
            raise TypeError("Cannot compare structured arrays") from None

    def refusal(_: Task) -> None:
        try:
            spinning()
        except OverrunError:
            raise UnsupportedError("no such thing") from None

    def half_a_result(_: Task) -> float:
        with contextlib.suppress(OverrunError):
            spinning()
        return 0.5

    def passed_over_twice(_: Task) -> None:
        with contextlib.suppress(OverrunError):
            spinning()
        with contextlib.suppress(OverrunError):
            spinning()
        spinning()

    def own_error(_: Task) -> None:
        raise TypeError("of the finder itself")

    before = signal.getsignal(signal.SIGALRM)
    try:
        clock = worker._Clock()
        for finder in (another_error, refusal, half_a_result, passed_over_twice):
            monkeypatch.setitem(findings._FINDERS, "stopped", finder)
            outcome = worker._answer(Task("stopped", b""), 0.1, clock)
            assert outcome == Outcome(overrun=True), finder
        assert not caplog.records
        monkeypatch.setitem(findings._FINDERS, "stopped", own_error)
        assert worker._answer(Task("stopped", b""), HANG_SECONDS, clock).refused
        assert "of the finder itself" in caplog.text
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
