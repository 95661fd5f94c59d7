"""`lastiterate unlearn`: records are deleted from a run's folder; it is the old or the new one."""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import HANG_SECONDS

from lastiterate._internal.file_lock import held
from lastiterate._internal.folder_replacement import replacement_lock
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
    assert str(certificate.unit) == "a person with up to 2 records, used before step 30 only"
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


@pytest.mark.parametrize("names", [("Ada Byron", "Alan Turing"), ("Ada Byron", '""', "n003")])
def test_names_without_a_header_are_not_shown(
    place: Place, capsys: Any, names: tuple[str, ...]
) -> None:
    before = place.contents()
    capsys.readouterr()
    assert place.forget(*names[1:], header=names[0]) == 2
    said = capsys.readouterr().err
    assert "has no header" in said.replace("\n", " ")
    for secret in (*(name for name in names if name != '""'), *HEADER.split(",")):
        assert secret not in said
    assert place.contents() == before


def test_no_value_of_a_request_is_shown(place: Place, capsys: Any) -> None:
    for names in (("n003", "Ada Byron"), ("n003", '""', "Ada Byron"), ("Ada Byron,Alan",)):
        capsys.readouterr()
        assert place.forget(*names) == 2
        said = capsys.readouterr().err
        assert "Ada" not in said
        assert "n003" not in said


def test_a_second_process_waits_for_the_first(place: Place, capsys: Any) -> None:
    before = place.contents()
    capsys.readouterr()
    with held(replacement_lock(place.run)):
        assert place.forget("n003") == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "Another process unlearns records" in said
    assert "noise" not in said
    assert place.contents() == before


OPEN, OS_OPEN = io.open, os.open
WRITES = (os, "open"), (os, "mkdir"), (os, "rename"), (os, "chmod"), (os, "fsync"), (io, "open")


def test_a_full_disk_at_any_write_is_a_message_and_changes_nothing(
    place: Place, capsys: Any, monkeypatch: Any
) -> None:
    """Every call that may need room fails in turn."""
    before, calls, failed = place.contents(), 0, 0

    def writing(real: Any, *args: Any, **more: Any) -> Any:
        nonlocal calls
        beside = isinstance(args[0], int) or str(args[0]).startswith(f"{place.folder}/")
        reading = real is OPEN and not {"w", "x", "a"} & {*str(args[1:2]), *str(more.get("mode"))}
        reading |= real is OS_OPEN and not args[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)
        if beside and "ids.csv" not in str(args[0]) and not reading:
            calls += 1
            if calls == failed + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **more)

    while True:
        calls = 0
        capsys.readouterr()
        with monkeypatch.context() as patched:
            for module, name in WRITES:
                patched.setattr(module, name, functools.partial(writing, getattr(module, name)))
            code = place.forget("n003")
        failed += 1
        if code == 0 and calls < failed:
            break
        if code == 0:  # what failed was not needed
            for path in place.run.iterdir():
                path.unlink()
            for name, content in before.items():
                (place.run / name).write_bytes(content)
            continue
        assert code == 2
        assert "No space left" in capsys.readouterr().err
        assert place.contents() == before
        assert {path.name for path in place.folder.iterdir()} == {"run", "t.csv", "ids.csv"}
    assert failed > 15
    assert (place.run / "certificate.before.json").exists()


forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")


def killed_at(place: Place, name: str, number: int) -> None:
    """The command in a child that ends at once where it would call os.NAME for the Nth time."""
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        return
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        calls, real = 0, getattr(os, name)

        def counted(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os._exit(9)
            return real(*args, **more)

        setattr(os, name, counted)
        place.forget("n003", "n077")
    finally:
        os._exit(1)


COMMANDS = {
    "predict": lambda place: call("predict", place.run, place.table),
    "export": lambda place: call("export", place.run, place.folder / "m.json"),
    "report": lambda place: call("report", f"{place.run}", "--output", place.folder / "p.html"),
    "verify": lambda place: call("verify", place.run / "certificate.json"),
    "in Python": lambda place: TableModel.load(place.run) and 0,
}


@forking
@pytest.mark.parametrize(
    ("name", "number", "new", "later"),
    [
        ("rename", 1, False, "predict"),
        *(("rename", 2, True, later) for later in COMMANDS),
        ("rmdir", 1, True, "predict"),
    ],
)
def test_any_later_command_finishes_what_a_kill_interrupted(
    place: Place, capsys: Any, name: str, number: int, new: bool, later: str
) -> None:
    old = place.contents()
    killed_at(place, name, number)
    for left in place.folder.glob(".run.*"):
        if left.is_dir():
            assert left.stat().st_mode & 0o777 == 0o700
    assert COMMANDS[later](place) == 0
    assert (place.contents() != old) is new
    assert ("certificate.before.json" in place.contents()) is new
    assert not [path for path in place.folder.glob(".run.*") if path.is_dir()]


@forking
@pytest.mark.parametrize("points", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_is_the_old_or_the_new(tmp_path: Path, points: int) -> None:
    rng = random.Random(points)
    place, twin = Place(tmp_path / "one"), Place(tmp_path / "twin")
    assert place.train() == twin.train() == 0
    whole, states = killed(twin, HANG_SECONDS), [place.contents()]
    for _ in range(points):
        killed(place, rng.uniform(0.0, 1.1 * whole))
        TableModel.load(place.run)  # complete, and finishes what was interrupted
        if place.contents() != states[-1]:
            states.append(place.contents())
    assert len(states) <= 2  # the old one, and one new one


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


def test_a_folder_that_another_process_replaces_is_left_alone(place: Place) -> None:
    (place.folder / ".run.replacement").mkdir()
    with held(replacement_lock(place.run)):
        TableModel.load(place.run)
        assert (place.folder / ".run.replacement").is_dir()
    TableModel.load(place.run)
    assert not (place.folder / ".run.replacement").exists()
