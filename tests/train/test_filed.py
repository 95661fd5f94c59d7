"""Records on a disk: a uniformly random order, every record once, nothing left behind."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chi2

from lastiterate import Cyclic, FullBatch, Poisson, Reshuffled, Shuffled, Training
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import Logistic
from lastiterate.noise import source
from lastiterate.train import FiledRecords, MemoryCheckpoint, bound_rows, filed, noisy_descent
from lastiterate.train.scratch import DiskFullError
from lastiterate.train.shuffle import shuffled
from lastiterate.train.whole_sums import WholeSums

N, D = 900, 5
SUMS = WholeSums(Logistic(), D, 1.0, 1.0)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = bound_rows(rng.standard_normal((N, D)), 1.0)
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def pieces(X, y, size=130):
    return lambda: ((X[k : k + size], y[k : k + size]) for k in range(0, len(y), size))


def described(batches, **changes):
    given = {"records": N, "steps": 36, "step_size": 0.5, "noise": 0.01, "gradient_norm": 1.0}
    return Training(**{"adjacency": "replace", **given, "batches": batches, **changes})


@pytest.mark.parametrize("box", [10**6, 100, 40], ids=["in memory", "some boxes", "boxes in boxes"])
def test_all_orders_are_equally_likely(box, tmp_path) -> None:
    draws, rounds = source(), 24 * 50
    rows = [np.arange(3), np.arange(0), np.arange(3, 4)]
    found = Counter(
        tuple(np.concatenate(list(shuffled(rows, 4, draws, str(tmp_path), box))).tolist())
        for _ in range(rounds)
    )
    assert set(found) <= set(permutations(range(4)))
    expected = rounds / 24
    apart = sum((found[p] - expected) ** 2 / expected for p in permutations(range(4)))
    assert apart < chi2.isf(1e-6, 23)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(50), Cyclic(7)], ids=repr)
def test_a_known_order_is_kept(batches, table, tmp_path) -> None:
    """The same run as in memory, but for features that are rounded to 23 bits."""
    X, y = table
    run = described(batches)
    with FiledRecords(pieces(X, y), N, D, tmp_path) as records:
        found = noisy_descent(Logistic(), records, run, random_state=1)
    same = noisy_descent(Logistic(), X, run, labels=y, random_state=1)
    assert found.parameters == pytest.approx(same.parameters, abs=1e-6)
    assert found.training.batches == batches
    assert found.training.arithmetic.grid == same.training.arithmetic.grid
    assert not os.listdir(tmp_path)


def orders(records, run, table):
    """Which record is where in the copy, at the start of every epoch."""
    X, _ = table
    number = {row.tobytes(): k for k, row in enumerate(SUMS.features(X))}
    found = []
    stream = records.arranged(run, SUMS, source())
    for step in range(run.steps):
        rows = next(stream)
        assert rows == slice((step % 18) * 50, (step % 18 + 1) * 50)
        if step % 18 == 0:
            copy = np.concatenate(list(records._copy.all()))
            found.append([number[row.tobytes()] for row in np.ascontiguousarray(copy["X"])])
    return found


def test_one_secret_order_or_a_new_one_in_every_epoch(table, tmp_path) -> None:
    everyone = list(range(N))
    with FiledRecords(pieces(*table), N, D, tmp_path) as records:
        first, second = orders(records, described(Shuffled(50)), table)
        third, fourth = orders(records, described(Reshuffled(50)), table)
    assert first == second
    assert third != fourth
    assert all(sorted(order) == everyone != order for order in (first, third, fourth))
    assert first != third


def test_a_hidden_partition_has_a_name_and_can_be_certified(table) -> None:
    run = described(Shuffled(50))
    with FiledRecords(pieces(*table), N, D) as records:
        done = noisy_descent(Logistic(), records, run)
        again = noisy_descent(Logistic(), records, run)
    assert not done.experiment
    assert done.partition_nonce != again.partition_nonce
    assert done.partition_nonce is not None
    assert (done.parameters != again.parameters).any()


def test_blocks_that_several_threads_read_are_one_sum(table, monkeypatch) -> None:
    monkeypatch.setattr(filed, "_BLOCK", 300)  # some ten rows
    monkeypatch.setattr(filed, "_AT_ONCE", 7)
    X, y = table
    theta = np.linspace(-1.0, 1.0, D)
    with FiledRecords(pieces(X, y), N, D) as records:
        records.arranged(described(Cyclic(50)), SUMS, source())
        for rows in (slice(0, N), slice(5, 6), slice(7, 7), slice(3, N - 1)):
            found = SUMS.value(records.total(SUMS, theta, rows))
            same = SUMS.value(SUMS.of(theta, SUMS.features(X[rows]), y[rows]))
            assert found.tobytes() == same.tobytes()
        os.truncate(records._copy._file.fileno(), 28 * N // 2)
        with pytest.raises(AssumptionError, match="cut short"):
            records.total(SUMS, theta, slice(0, N))


def test_files_that_change_meanwhile_are_refused(table) -> None:
    X, y = table
    for many in (N - 1, 2 * N):
        Z, z = np.resize(X, (many, D)), np.resize(y, many)
        with (
            FiledRecords(pieces(Z, z), N, D) as records,
            pytest.raises(AssumptionError, match="changed"),
        ):
            noisy_descent(Logistic(), records, described(Shuffled(50)))


def test_what_a_disk_cannot_do_is_refused(table, tmp_path) -> None:
    X, y = table
    blocks = pieces(X, y)

    def run(match, error=DescriptionError, blocks=blocks, batches=None, folder=None, **told):
        description = described(batches or Shuffled(50))
        with FiledRecords(blocks, N, D, folder) as records, pytest.raises(error, match=match):
            noisy_descent(told.pop("loss", Logistic()), records, description, **told)

    run("everywhere in the file", UnsupportedError, batches=Poisson(0.1))
    run("a folder that exists", folder=tmp_path / "none")
    run("labels must", labels=y)
    run("checkpoint must", checkpoint=MemoryCheckpoint())
    run("a loss of lastiterate", loss=lambda theta, rows: X[rows], start=np.zeros(D))
    run("columns", blocks=pieces(X[:, :3], y))
    run("NaN", AssumptionError, blocks=pieces(np.where(X > 0.9, np.nan, X), y))
    run("norm above 1", AssumptionError, blocks=pieces(3 * X, y))
    run("labels", blocks=pieces(X, 2 * y))
    with (
        FiledRecords(blocks, N + 1, D) as records,
        pytest.raises(DescriptionError, match="certified"),
    ):
        noisy_descent(Logistic(), records, described(Shuffled(50)))


def test_a_disk_without_room_says_so_before_anything_is_read(tmp_path) -> None:
    def never():
        raise AssertionError("read")

    run = described(Shuffled(50), records=10**13)
    refused = pytest.raises(DiskFullError, match=r"GiB left, and the copy takes .* folder=")
    with FiledRecords(never, 10**13, 100, tmp_path) as records, refused:
        noisy_descent(Logistic(), records, run)


HALF = """
import resource, sys, numpy as np
from lastiterate import Shuffled, Training
from lastiterate.losses import Logistic
from lastiterate.train import FiledRecords, noisy_descent
n, folder, limit = 200_000, sys.argv[1], int(sys.argv[2])
def blocks():
    for k in range(20):
        print("block", flush=True)
        yield np.full((n // 20, 20), 0.1), np.ones(n // 20)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
run = Training(records=n, steps=10**6, step_size=0.5, noise=0.01, gradient_norm=1.0,
               batches=Shuffled(1000))
with FiledRecords(blocks, n, 20, folder) as records:
    noisy_descent(Logistic(), records, run, progress=False)
"""


def test_a_disk_that_becomes_full_says_so(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HALF, str(tmp_path), str(1 << 20)], capture_output=True, text=True
    )
    assert "DiskFullError" in done.stderr
    assert "nothing is left there" in done.stderr
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc")
@pytest.mark.parametrize(
    "blocks", [10, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 19, 20))]
)
def test_a_killed_run_leaves_nothing_and_nobody_sees_it_meanwhile(blocks, tmp_path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", HALF, str(tmp_path), "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        for _ in range(blocks):
            assert running.stdout.readline() == "block\n"
        time.sleep(0.3 if blocks == 20 else 0.0)
        assert not os.listdir(tmp_path)
        modes = []
        for entry in os.scandir(f"/proc/{running.pid}/fd"):
            if str(tmp_path) in os.readlink(entry.path):
                modes.append(stat.S_IMODE(os.stat(entry.path).st_mode))
        assert modes
        assert set(modes) == {0o600}
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
        running.stdout.close()
    assert not os.listdir(tmp_path)


def test_few_files_may_be_open(table, tmp_path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, before[1]))
    try:
        found = list(shuffled([np.arange(10**4)], 10**4, source(), str(tmp_path), box=1000))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert sorted(np.concatenate(found).tolist()) == list(range(10**4))
