"""`lastiterate unlearn`: records are deleted from a run's folder; it is the old or the new one."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastiterate.certificate import Certificate, verify
from lastiterate.cli.main import run as command
from lastiterate.models.saved import TableModel

HEADER = "id,age,job,income"
SCHEMA = [
    "--numeric=age=0:100",
    "--category=job=clerk,nurse,none",
    "--drop=id",
    "--classes=low,high",
]
FULL = ("--batch-size", "300", "--final-noise", "1", "--prepare", "none")


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        command([str(word) for word in words])
    return int(left.value.code or 0)


class Place:
    """A table, and where everything about its run lies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.run, self.table = folder, folder / "run", folder / "t.csv"
        rng = np.random.default_rng(0)
        jobs = rng.choice(["clerk", "nurse", "none"], 300)
        ages = rng.integers(18, 90, 300)
        self.rows = [
            f"n{k:03d},{age},{job},{'high' if age > 50 and job != 'none' else 'low'}"
            for k, (age, job) in enumerate(zip(ages, jobs, strict=True))
        ]
        self.write()

    def write(self) -> None:
        self.table.write_text("\n".join([HEADER, *self.rows]) + "\n")

    def train(self, *more: str) -> int:
        asked = ["--epsilon", "4", "--delta", "1e-4", "--steps", "30", *FULL]
        out = ["--out", self.run, "--target", "income"]
        return call("train", self.table, *out, *asked, *SCHEMA, *more)

    def forget(self, *names: str, header: str = "id", more: tuple[str, ...] = ()) -> int:
        ids = self.folder / "ids.csv"
        ids.write_text("\n".join([header, *names]) + "\n")
        asked = ["--records", ids, "--epsilon", "1", "--delta", "1e-4", "--table", self.table]
        return call("unlearn", self.run, *asked, *more)

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.run.iterdir())}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    assert made.train() == 0
    return made


def test_records_are_deleted_from_a_folder(place: Place, capsys: Any) -> None:
    before, first = place.contents(), TableModel.load(place.run).model.training_
    capsys.readouterr()
    assert place.forget("n003", "n077") == 0
    said = capsys.readouterr().out
    after = place.contents()
    assert set(after) == {*before, "certificate.before.json"}
    assert after["certificate.before.json"] == before["certificate.json"]
    trained = TableModel.load(place.run)
    assert trained.model.training_.steps > first.steps
    certificate = Certificate.load(place.run / "certificate.json")
    assert verify(certificate, parameters=trained.model.parameters_).epsilon <= 1
    assert str(certificate.exposure) == "a person with up to 2 records, used before step 30 only"
    assert json.loads(after["run.json"])["erased"] == {"records": 2}
    assert len(trained.predict(place.table)) == 300
    report = after["report.md"].decode()
    assert "## What was erased, and what that means" in report
    assert "steps on what remains followed" in report
    for alternative in ("do nothing: epsilon = ", "start again: 30 steps", "clean steps: "):
        assert alternative in report
    for content in after.values():  # who it was, and where things lie, is not handed on
        assert b"n003" not in content
        assert str(place.folder).encode() not in content
    assert str(place.table) in said.replace("\n", "")
    assert call("verify", place.run / "certificate.json") == 0
    assert call("report", place.run, "--output", place.folder / "page.html") == 0


def test_json_names_the_alternatives(place: Place, capsys: Any) -> None:
    capsys.readouterr()
    assert place.forget("n003", "n077", more=("--json",)) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["deleted"], found["records"], found["start_again"]) == (2, 300, 30)
    assert found["nothing"] > found["epsilon"]
    assert found["epsilon"] <= 1


def test_a_second_request_is_refused_by_what_is_possible(place: Place, capsys: Any) -> None:
    assert place.forget("n003") == 0
    after = place.contents()
    capsys.readouterr()
    assert place.forget("n005") == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "deleted from this run folder already" in said
    assert "Train again on what remains" in said
    assert "--ledger" not in said
    assert place.contents() == after


def test_what_is_refused_changes_nothing(place: Place, capsys: Any) -> None:
    before = place.contents()

    def refused(said: str, *names: str, **told: Any) -> None:
        capsys.readouterr()
        assert place.forget(*names, **told) == 2
        assert said in capsys.readouterr().err.replace("\n", " ")
        assert place.contents() == before

    refused("not found", "n003", "nobody")
    refused("at least one record must remain", *(row.split(",")[0] for row in place.rows))
    (place.run / "notes.txt").write_text("mine")
    before = place.contents()
    refused("would be lost", "n003")
    (place.run / "notes.txt").unlink()
    before = place.contents()
    kept = place.rows.pop(7)
    place.write()
    refused("records that were trained on", "n003")
    place.rows.insert(7, kept)
    place.write()
    (place.run / "run.json").write_bytes(
        before["run.json"].replace(b'"records": 300', b'"records": 301')
    )
    before = place.contents()
    refused("was changed", "n003")


def test_small_batches_cannot_take_clean_steps(tmp_path: Path, capsys: Any) -> None:
    place = Place(tmp_path)
    assert place.train("--batch-size", "60") == 0  # the partition was not stored
    before = place.contents()
    assert place.forget("n003") == 2
    assert place.contents() == before


def test_an_experiment_stays_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.train("--seed", "1") == 0
    assert place.forget("n003") == 0
    assert TableModel.load(place.run).model.certificate_ is None
    assert not (place.run / "certificate.json").exists()


def killed(place: Place, seconds: float) -> float:
    """The command in a child, which is killed after so long unless it is done; how long it took."""
    begun, child = time.monotonic(), os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            place.forget("n003", "n077")
        finally:
            os._exit(0)
    while time.monotonic() < begun + seconds:
        if os.waitpid(child, os.WNOHANG)[0]:
            return time.monotonic() - begun
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return seconds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.parametrize("points", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_is_the_old_or_the_new(tmp_path: Path, points: int) -> None:
    rng = random.Random(points)
    place, twin = Place(tmp_path / "one"), Place(tmp_path / "twin")
    assert place.train() == twin.train() == 0
    whole, states = killed(twin, 120.0), [place.contents()]
    for _ in range(points):
        killed(place, rng.uniform(0.0, 1.1 * whole))
        if not place.run.exists():
            (place.folder / ".run.unlearn-before").rename(place.run)
        if place.contents() != states[-1]:
            states.append(place.contents())
        TableModel.load(place.run)  # whole
    assert len(states) <= 2  # the old one, and one new one


def test_a_name_that_was_lost_between_two_renames_comes_back(place: Place) -> None:
    place.run.rename(place.folder / ".run.unlearn-before")
    (place.folder / ".run.unlearn-after").mkdir()
    assert place.forget("n003") == 0
    assert not list(place.folder.glob(".run.*"))
