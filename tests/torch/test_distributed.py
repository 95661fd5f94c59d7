"""Several real processes: the law of one, and no model when one of them is lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import HANG_SECONDS

torch = pytest.importorskip("torch")

WORKER = Path(__file__).with_name("distributed_worker.py")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def ranks(world: int, what: str, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Processes that nobody supervises: what one rank sees when another one dies."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = []
    for rank in range(world):
        env = {**os.environ, **address, "RANK": str(rank), "WORLD_SIZE": str(world)}
        command = [sys.executable, str(WORKER), what, str(folder)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=env, text=True, **pipes))
    done = []
    for process in started:
        out, _ = process.communicate(timeout=HANG_SECONDS)
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out))
    return done


def said(folder: Path, world: int) -> list[Any]:
    """What each rank has written down."""
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]


def agreeing(folder: Path, world: int) -> None:
    for rank, found in enumerate(said(folder, world)):
        for scheme, error in found.items():
            assert error <= 1e-6, (rank, scheme, error)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes that did one thing after the other: starting them takes longest."""
    folder = tmp_path_factory.mktemp("two")
    done = ranks(2, "agree,hostile,disagree", folder)
    assert [p.returncode for p in done] == [0, 0], done[0].stdout + done[1].stdout
    return folder


def test_two_processes_are_one_run(two):
    agreeing(two / "agree", 2)


def test_neighbours_on_ranks_are_no_farther_apart_than_is_charged(two):
    """Sums at the edge of a binade and sums that cancel, in rational numbers."""
    no_farther_apart(said(two / "hostile", 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_neighbours_with_nccl_are_no_farther_apart_than_is_charged(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKEND", "nccl")
    (done,) = ranks(1, "hostile", tmp_path)
    assert done.returncode == 0, done.stdout
    no_farther_apart(said(tmp_path / "hostile", 1))


def no_farther_apart(ranks: list[Any]) -> None:
    first, *others = ranks
    assert all(other == first for other in others)  # every rank has the same bits
    for found in first:
        assert found["within the error"], found
        assert found["within the charge"], found
    assert max(found["of the charge"] for found in first) > 1 - 1e-6  # nothing to spare


@pytest.mark.slow
def test_three_processes_under_torchrun(tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=3",
        str(WORKER),
        "agree",
        str(tmp_path),
    ]
    subprocess.run(command, check=True, timeout=HANG_SECONDS, capture_output=True)
    agreeing(tmp_path / "agree", 3)


def test_a_lost_rank_ends_the_run_without_a_model(tmp_path):
    survivor, lost = ranks(2, "vanish", tmp_path)
    assert lost.returncode == 7
    assert survivor.returncode == 1
    assert (
        "LostRankError: The run ended on rank 0 during the updates: another rank" in survivor.stdout
    )
    assert "no model was written" in survivor.stdout
    assert list((tmp_path / "vanish").iterdir()) == []


@pytest.mark.slow
def test_a_rank_whose_data_is_refused_tells_the_others(tmp_path):
    first, second, third = ranks(3, "refuse", tmp_path)
    assert "AssumptionError" in third.stdout
    assert "rows with a norm above" in third.stdout
    for other in (first, second):
        assert other.returncode == 1
        assert "a rank refused it. rank 2: AssumptionError" in other.stdout
    assert list((tmp_path / "refuse").iterdir()) == []


@pytest.mark.slow  # two of the disagreements below, in a pair of processes of their own
def test_ranks_with_another_feature_bound_or_radius_do_not_train(tmp_path):
    """The certificate would state the bounds of one rank for the records of all."""
    done = ranks(2, "another_ball", tmp_path)
    assert [p.returncode for p in done] == [0, 0], done[0].stdout + done[1].stdout
    first, last = said(tmp_path / "another_ball", 2)
    assert first == last
    for name, words in first.items():
        assert words.startswith("The ranks disagree on: "), words
        assert name.replace("_", " ") in words


def test_ranks_that_run_something_else_are_refused_everywhere(two):
    """Feature bound, radius, start and all else that a certificate rests on."""
    folder = two / "disagree"
    first, last = said(folder, 2)
    assert len(first) > 15
    for case in first:
        what, name = case.split(" ", 1)
        if what == "disagree":
            assert first[case] == last[case], case
            assert first[case].startswith("AssumptionError: The ranks disagree on: "), first[case]
            assert name.split(":")[0] in first[case]
        else:
            assert first[case].startswith("LostRankError: The run was not started"), first[case]
            assert last[case].split(":")[0] in first[case].partition("rank 1: ")[2], last[case]
            assert "LostRankError" not in last[case]
    assert not (folder / "m.npy").exists()
