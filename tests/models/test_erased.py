"""`lastiterate unlearn`: a run's folder forgets records; old or new, and never twice."""

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

from lastiterate import UnsupportedError
from lastiterate.certificate import Certificate, verify
from lastiterate.cli.main import run as command
from lastiterate.frameworks import model_card
from lastiterate.models.erased import ledger_key
from lastiterate.models.saved import TableModel
from lastiterate.unlearning import Ledger

HEADER = "id,age,job,income"
SCHEMA = [
    "--numeric=age=0:100",
    "--category=job=clerk,nurse,none",
    "--drop=id",
    "--classes=low,high",
]


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        command([str(word) for word in words])
    return int(left.value.code or 0)


class Place:
    """A table, and where everything about its run lies."""

    def __init__(self, folder: Path, clean: bool = False) -> None:
        self.clean = clean  # forgets by clean steps, without a ledger
        folder.mkdir(exist_ok=True)
        self.folder, self.run = folder, folder / "run"
        self.table, self.state, self.key = folder / "t.csv", folder / "state", folder / "key"
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

    def train(self, *more: str, noise: str = "0.5", requests: str = "2") -> int:
        kept = ["--ledger", self.state, "--ledger-key", self.key, "--ledger-budget", "0.25"]
        kept += ["--ledger-noise", noise, "--ledger-requests", requests]
        asked = ["--epsilon", "4", "--delta", "1e-4", "--steps", "30"]
        asked += ["--batch-size", "300" if self.clean else "60", "--final-noise", "1"]
        kept = ["--prepare", "none"] if self.clean else kept
        out = ["--out", self.run, "--target", "income"]
        return call("train", self.table, *out, *asked, *SCHEMA, *kept, *more)

    def forget(self, *names: str, epsilon: str = "9", more: tuple[str, ...] = ()) -> int:
        ids = self.folder / "ids.csv"
        ids.write_text("\n".join(["id", *names]) + "\n")
        kept = ["--ledger", self.state, "--ledger-key", self.key, "--wait", "0"]
        kept = ["--table", self.table] if self.clean else kept
        asked = ["--records", ids, "--epsilon", epsilon, "--delta", "1e-4"]
        return call("unlearn", self.run, *asked, *kept, *more)

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.run.iterdir())}

    @property
    def ledger(self) -> Ledger:
        return Ledger.load(self.state, ledger_key(self.key))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    assert made.train() == 0
    return made


def test_a_folder_forgets(place: Place, capsys: Any) -> None:
    before = place.contents()
    assert place.forget("n003", "n077") == 0
    said = capsys.readouterr().out
    after = place.contents()
    assert set(after) == {*before, "certificate.before.json"}
    assert after["certificate.before.json"] == before["certificate.json"]
    trained = TableModel.load(place.run)
    certificate = Certificate.load(place.run / "certificate.json")
    assert verify(certificate, parameters=trained.model.parameters_).epsilon <= 9
    assert (certificate.content["kind"], certificate.content["deleted"]) == ("unlearning", 2)
    assert json.loads(after["run.json"])["erased"] == {"records": 2, "models": 1, "steps": 0}
    assert len(trained.predict(place.table)) == 300
    report = after["report.md"].decode()
    assert "## What was erased, and what that means" in report
    for content in after.values():  # who it was, and where things lie, is not handed on
        assert b"n003" not in content
        assert str(place.folder).encode() not in content
    for told in (str(place.table), str(place.state), "for 1 more requests"):
        assert told in said.replace("\n", "")
    assert call("verify", place.run / "certificate.json") == 0
    audited = ["--data", place.table, "--models", "20", "--seed", "1"]
    assert call("audit", place.run, *audited) == 2  # of the run, which still had them
    old = place.run / "certificate.before.json"
    assert call("audit", place.run, *audited, "--certificate", old) == 0
    assert call("report", place.run, "--output", place.folder / "page.html") == 0
    with pytest.raises(UnsupportedError, match="were erased"):
        model_card(certificate)
    page = (place.folder / "page.html").read_text()
    assert "What was erased, and what that means" in page
    assert "The 2 of 300 records that were erased, all of them together; nobody else." in page
    assert "Each single record" not in page  # those who stay are promised nothing
    assert "Had one record" not in page
    assert place.table.stat().st_mode & 0o777 != 0o600  # the operator's own files are left alone
    for secret in (place.key, place.state / "run.json", place.state / "ledger"):
        assert secret.stat().st_mode & 0o777 == 0o600


def test_asking_again_is_free_and_later_requests_do_not_need_the_erased(place: Place) -> None:
    assert place.forget("n003") == 0
    once = place.contents()
    assert place.forget("n003") == 0
    assert {k: v for k, v in place.contents().items() if k != "certificate.json"} == {
        k: v for k, v in once.items() if k != "certificate.json"
    }
    assert place.ledger.served == 1
    place.rows[3] = ",,,"
    place.write()
    assert place.forget("n005", "n006", more=("--steps", "5")) == 0
    assert (place.ledger.served, place.ledger.gone.tolist()) == (2, [3, 5, 6])
    certificate = Certificate.load(place.run / "certificate.json")
    assert (certificate.content["models"], certificate.content["deleted"]) == (2, 3)
    first = Certificate.load(place.run / "certificate.before.json")
    assert first.content["kind"] == "run"
    assert place.forget("n008") == 2  # its requests are spent
    assert Certificate.load(place.run / "certificate.json") == certificate


def test_what_is_refused_changes_nothing(place: Place, capsys: Any) -> None:
    before = place.contents()

    def refused(said: str, *names: str, **told: Any) -> None:
        capsys.readouterr()
        assert place.forget(*names, **told) == 2
        assert said in capsys.readouterr().err.replace("\n", " ")
        assert place.contents() == before
        assert place.ledger.served == 0

    refused("fixed before the run", "n003", epsilon="0.5")
    refused("not found is not forgotten", "n003", "nobody")
    refused("all that is left", *(row.split(",")[0] for row in place.rows))
    (place.folder / "other.key").write_text("00" * 32)
    refused("no ledger of this key", "n003", more=("--ledger-key", str(place.folder / "other.key")))
    (place.run / "notes.txt").write_text("mine")
    before = place.contents()
    refused("would be lost", "n003")
    (place.run / "notes.txt").unlink()
    before = place.contents()
    kept = place.rows[9]
    place.rows[9] = "n009,18,none,high"
    place.write()
    refused("another run", "n003")
    place.rows[9] = kept
    place.write()
    (place.run / "run.json").write_bytes(
        before["run.json"].replace(b'"records": 300', b'"records": 301')
    )
    before = place.contents()
    refused("was changed", "n003")


@pytest.mark.parametrize(
    "notes", ["{}", "[]", '{"radius": "x"}', '{"radius": "1", "table": 3, "training": {}}', "{"]
)
def test_notes_that_were_changed(place: Place, notes: str) -> None:
    (place.state / "run.json").write_text(notes)
    before = place.contents()
    assert place.forget("n003") == 2
    assert (place.contents(), place.ledger.served) == (before, 0)


def test_a_ledger_of_another_model(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path)
    other.run, other.state = tmp_path / "run2", tmp_path / "state2"
    assert other.train() == 0
    other.state = place.state
    assert other.forget("n003") == 2
    assert place.ledger.served == 0


def test_clean_steps_without_a_ledger(tmp_path: Path, capsys: Any) -> None:
    place = Place(tmp_path, clean=True)
    assert place.train() == 0
    before, first = place.contents(), TableModel.load(place.run).model.training_
    assert place.forget("n003", "n077", more=("--steps", "5")) == 2  # the plan says how many
    assert place.forget("n003", more=("--ledger", str(tmp_path), "--ledger-key", "k")) == 2
    assert place.contents() == before
    capsys.readouterr()
    assert place.forget("n003", "n077", epsilon="1") == 0
    assert "steps on what remains followed" in capsys.readouterr().out.replace("\n", " ")
    trained = TableModel.load(place.run)
    assert trained.model.training_.steps > first.steps
    certificate = Certificate.load(place.run / "certificate.json")
    assert verify(certificate, parameters=trained.model.parameters_).epsilon <= 1
    assert str(certificate.exposure) == "a person with up to 2 records, used before step 30 only"
    after = place.contents()
    assert after["certificate.before.json"] == before["certificate.json"]
    assert all(b"n003" not in content for content in after.values())
    assert call("report", place.run, "--output", tmp_path / "page.html") == 0
    assert place.forget("n003", "n077") == 2  # once
    assert place.contents() == after


def test_clean_steps_where_they_are_not_possible(place: Place, tmp_path: Path) -> None:
    place.clean = True  # its run had a ledger, which would miss a model
    before = place.contents()
    assert place.forget("n003") == 2
    assert place.contents() == before
    short = Place(tmp_path / "short", clean=True)
    assert short.train("--batch-size", "60") == 0  # nobody kept the partition
    assert short.forget("n003") == 2
    del short.rows[7]
    short.write()
    assert short.forget("n003") == 2
    assert "certificate.before.json" not in short.contents()


@pytest.mark.parametrize("state", ["run/state", "."])
def test_the_ledger_is_not_handed_on_with_the_model(tmp_path: Path, state: str) -> None:
    place = Place(tmp_path)
    place.state = tmp_path / state
    assert place.train() == 2
    assert not place.key.exists()
    assert call("train", place.table, "--target", "income", "--epsilon", "1", "--out", place.run,
                *SCHEMA, "--ledger", tmp_path / "s") == 2  # fmt: skip


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
@pytest.mark.parametrize("points", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_is_the_old_or_the_new(tmp_path: Path, points: int) -> None:
    rng = random.Random(points)
    place, twin = Place(tmp_path / "one"), Place(tmp_path / "twin")
    assert place.train() == twin.train() == 0
    whole = killed(twin, 120.0)
    assert twin.ledger.served == 1
    old = place.contents()
    for _ in range(points):
        killed(place, rng.uniform(0.0, 1.1 * whole))
        ledger = place.ledger
        assert ledger.served <= 1  # whatever was killed, one model at most
        if place.run.exists():
            found = place.contents()
            TableModel.load(place.run)  # whole
            assert found == old or ledger.served == 1
            if found != old:
                assert "certificate.before.json" in found
        else:
            assert (place.folder / ".run.unlearn-before").is_dir()  # between two renames
    assert place.forget("n003", "n077") == 0
    assert place.ledger.served == 1
    released = TableModel.load(place.run).model
    found = np.append(released.coef_, released.intercept_)
    assert np.array_equal(np.sort(found), np.sort(place.ledger.released.ravel()))
    assert {path.name for path in place.folder.iterdir()} == {
        "t.csv",
        "run",
        "state",
        "key",
        "ids.csv",
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.parametrize("points", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_between_clean_steps(tmp_path: Path, points: int) -> None:
    rng = random.Random(points)
    place, twin = Place(tmp_path / "one", clean=True), Place(tmp_path / "twin", clean=True)
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
    assert place.ledger.served == 1
    assert not list(place.folder.glob(".run.*"))
