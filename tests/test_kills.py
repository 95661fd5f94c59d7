"""kill -9 at any moment of training, auditing and reporting: nothing is lost, nothing
is released twice.

``python tests/test_kills.py 200`` prints how many processes were killed in what, and what came out.
"""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastiterate import FullBatch, Loss, Shuffled, Training, certify
from lastiterate._internal.atomic_write import write_whole
from lastiterate.audit import Store, audit
from lastiterate.losses import Logistic
from lastiterate.train import EncryptedCheckpoint, noisy_descent

KEY = bytes(range(32))
ROWS = np.random.default_rng(0).standard_normal((20, 3))
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
LABELS = np.where(ROWS[:, 0] > 0, 1.0, -1.0)
RUN = Training(
    records=20,
    steps=60,
    step_size=0.5,
    noise=0.1,
    gradient_norm=1.0,
    adjacency="zero-out",
    batches=Shuffled(5),
)


class Released:
    """Something that a process works on in a folder until it hands out a model, once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.out = folder, folder / "released"

    def hand_out(self, model: np.ndarray) -> None:
        write_whole(self.out, model.tobytes(), replace=False)  # a second one is an error

    def left(self) -> set[str]:
        names = {path.name for path in self.folder.iterdir()} - {"released"}
        return {name for name in names if not name.startswith(".released.")}  # this test's own


class TrainingRun(Released):
    """A run that goes on from its checkpoint; the noise is seeded, so that runs can be compared."""

    step = 0

    def work(self) -> None:
        self.hand_out(self._run(EncryptedCheckpoint(self.folder / "run", KEY, every=1)))

    def _run(self, checkpoint=None) -> np.ndarray:
        given = {"labels": LABELS, "random_state": 5, "progress": False}
        return noisy_descent(Logistic(), ROWS, RUN, checkpoint=checkpoint, **given).parameters

    def after_a_kill(self) -> None:
        kept = EncryptedCheckpoint(self.folder / "run", KEY).load()
        assert kept is None or not self.out.exists(), "a released run could go on"
        if kept is not None:
            assert kept.step >= self.step, "steps were lost"
            self.step = kept.step
        elif not self.out.exists():
            self.step = 0  # not begun; or ended, and nobody has seen the model

    def at_the_end(self) -> None:
        assert self.left() == set()
        assert self.out.read_bytes() == self._run().tobytes()


def noisy_sum(data: list[float], seed: int) -> float:
    return sum(data) + np.random.default_rng(seed).normal()


class Auditing(Released):
    """An audit with a store: whole cohorts, each once."""

    done: frozenset[int] = frozenset()

    def _audited(self, store: Path | None) -> np.ndarray:
        given = {"models": 400, "cohort": 5, "random_state": 3, "progress": False}
        return np.array([audit(noisy_sum, [1, 2], [1], store=store, **given).epsilon_lower])

    def work(self) -> None:
        self.hand_out(self._audited(self.folder / "scores"))

    def after_a_kill(self) -> None:
        if (self.folder / "scores").exists():
            with Store(self.folder / "scores") as store:
                finished = frozenset(store.finished())
            assert len(finished) % 5 == 0, "a part of a cohort was kept"
            assert finished >= self.done, "models were lost"
            self.done = finished

    def at_the_end(self) -> None:
        assert self.out.read_bytes() == self._audited(None).tobytes()
        assert self.left() == {"scores", "scores.key"}


@functools.cache
def pages() -> tuple[Any, ...]:
    """Two reports, and how their pages read."""
    from lastiterate.report.page import Report

    found = []
    for noise in (0.1, 0.2):
        run = RUN.replace(noise=noise, batches=FullBatch())
        with tempfile.TemporaryDirectory() as place:
            certify(run, Loss(smoothness=1.0), delta=1e-5).save(Path(place) / "run.json")
            found.append(Report.of(Path(place) / "run.json"))
    return (*found, {undated(page.html()) for page in found})


def undated(page: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page)


class Reporting(Released):
    """A page that is written over an older one, again and again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        *self.pages, self.texts = pages()
        self.pages[0].save(folder / "page.html")

    def work(self) -> None:
        for page in (*self.pages, *self.pages):
            page.save(self.folder / "page.html")
        self.hand_out(np.zeros(1))

    def after_a_kill(self) -> None:
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        assert undated(page) in self.texts, "a page is not whole"

    def at_the_end(self) -> None:
        self.pages[0].save(self.folder / "page.html")  # and takes away what killed writers left
        assert self.left() == {"page.html"}


JOBS = {
    "training": TrainingRun,
    "auditing": Auditing,
    "reporting": Reporting,
}


def killed_in(kind: str, folder: Path, times: int, seed: int = 1) -> dict[str, int]:
    """Kill so many processes; each job is begun again until it ends, and then a new one begins."""
    rng, longest = random.Random(seed), 0.0
    counts = {"killed": 0, "released": 0, "lasted": 0}
    while counts["killed"] < times:
        job = JOBS[kind](folder / f"{kind}-{counts['released']}")
        while not job.out.exists():
            began = time.monotonic()
            child = os.fork()
            if not child:
                code = 1
                try:
                    job.work()
                    code = 0
                finally:
                    os._exit(code)
            if longest and counts["killed"] < times:  # nobody kills the first: how long it takes
                time.sleep(rng.uniform(0, longest))
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            longest = longest or 1.1 * (time.monotonic() - began)
            counts["killed"] += os.WIFSIGNALED(status)
            counts["lasted"] += os.WIFEXITED(status)
            assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"{kind} was refused"
            job.after_a_kill()
        job.at_the_end()
        counts["released"] += 1
    return counts


forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")


@forking
@pytest.mark.parametrize("kind", JOBS)
def test_killed_a_few_times(kind: str, tmp_path: Path) -> None:
    assert killed_in(kind, tmp_path, 3)["released"] > 0


@forking
@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
def test_killed_fifty_times(kind: str, tmp_path: Path) -> None:
    """A hundred and fifty altogether."""
    assert killed_in(kind, tmp_path, 50, seed=2)["released"] > 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for each in JOBS:
            print(each, killed_in(each, Path(place), int(sys.argv[1]) // len(JOBS)), flush=True)
