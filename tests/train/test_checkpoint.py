"""Stopping and going on: the same run as without a stop, and nothing readable on disk."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from lastiterate import (
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
)
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses import Logistic
from lastiterate.noise import SeededSource
from lastiterate.train import (
    Checkpoint,
    EncryptedCheckpoint,
    MemoryCheckpoint,
    bound_rows,
    noisy_descent,
)
from lastiterate.train.checkpoint import State
from lastiterate.train.gradients import LinearGradients

SCHEMES = [
    FullBatch(),
    Cyclic(4),
    Shuffled(4),
    Reshuffled(5),
    Poisson(0.2),
    WithoutReplacement(6),
]
rng = np.random.default_rng(0)
X = bound_rows(rng.standard_normal((13, 3)), 1.0)
y = rng.choice([-1.0, 1.0], 13)


def describe(batches, **changes):
    settings = {
        "records": 13,
        "steps": 23,
        "step_size": 0.4,
        "noise": 0.05,
        "gradient_norm": 1.0,
        "batches": batches,
        "release": TailAverage(9),
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")


class Stopping:
    """A gradient function that is interrupted in a given update; it may be called several times."""

    def __init__(self, at):
        self.updates, self.at, self.theta = 0, at, None

    def __call__(self, theta, indices):
        self.updates += self.theta is None or not np.array_equal(theta, self.theta)
        self.theta = theta
        if self.updates == self.at:
            raise KeyboardInterrupt
        slope = -y[indices] / (1 + np.exp(y[indices] * (X[indices] @ theta)))
        return slope[:, None] * X[indices]


def checkpoints(folder):
    key = EncryptedCheckpoint.new_key()
    memory = MemoryCheckpoint(every=5)
    return {
        "memory": lambda: memory,
        "file": lambda: EncryptedCheckpoint(Path(folder) / "run.sealed", key, every=5),
    }


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("batches", SCHEMES, ids=str)
@pytest.mark.parametrize("stop", [3, 6, 18, 23])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, batches, kind, stop):
    run = describe(batches)
    start = np.zeros(3)
    whole = noisy_descent(Stopping(None), None, run, start=start, noise=SeededSource(8))
    made = checkpoints(tmp_path)[kind]
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(
            Stopping(stop), None, run, start=start, noise=SeededSource(8), checkpoint=made()
        )
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert kept == (["run.sealed"] if kind == "file" and stop > 5 else [])
    seconds = Stopping(None)
    resumed = noisy_descent(
        seconds, None, run, start=start, noise=SeededSource(8), checkpoint=made()
    )
    if not isinstance(batches, Poisson):  # whose empty batches call nobody
        assert seconds.updates == 23 - (stop - 1) // 5 * 5
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert list(tmp_path.iterdir()) == []  # cleared once the run is over
    assert made().load() is None


def test_a_resumed_run_keeps_its_partition_and_its_name(tmp_path):
    """With the secure source only the partition can be kept: noise is fresh."""
    run = describe(Shuffled(4), noise=0.0, release="last")
    store = MemoryCheckpoint(every=5)
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, run, start=np.zeros(3), checkpoint=store)
    kept = store.load()
    assert kept.step == 5
    assert kept.source is None
    found = noisy_descent(Stopping(None), None, run, start=np.zeros(3), checkpoint=store)
    assert found.partition_nonce == kept.nonce
    theta = np.zeros(3)
    for k in range(run.steps):
        batch = kept.order[4 * (k % 3) : 4 * (k % 3) + 4]
        theta = theta - 0.4 * Stopping(None)(theta, batch).sum(axis=0) / 4
    np.testing.assert_allclose(found.parameters, theta, rtol=1e-12)


def test_a_sealed_file_shows_nothing_and_cannot_be_forged(tmp_path):
    run, path, key = describe(Shuffled(4)), tmp_path / "run", EncryptedCheckpoint.new_key()
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(
            Stopping(9),
            None,
            run,
            start=np.zeros(3),
            checkpoint=EncryptedCheckpoint(path, key, every=5),
        )
    sealed = path.read_bytes()
    state = EncryptedCheckpoint(path, key).load()
    for secret in (state.parameters, state.order, state.tail[:1]):
        assert secret.tobytes() not in sealed
    assert state.nonce.encode() not in sealed
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    with pytest.raises(AssumptionError, match="not written with this key"):
        EncryptedCheckpoint(path, EncryptedCheckpoint.new_key()).load()
    for position in (0, 12, len(sealed) // 2, len(sealed) - 1):
        forged = bytearray(sealed)
        forged[position] ^= 1
        path.write_bytes(bytes(forged))
        with pytest.raises(AssumptionError, match="changed since"):
            EncryptedCheckpoint(path, key).load()
    for cut in (0, 5, 20):
        path.write_bytes(sealed[:cut])
        with pytest.raises(AssumptionError, match="changed since"):
            EncryptedCheckpoint(path, key).load()


def test_two_seals_of_one_state_differ(tmp_path):
    path, key = tmp_path / "run", EncryptedCheckpoint.new_key()
    store = EncryptedCheckpoint(path, key, every=5)
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, describe(Shuffled(4)), start=np.zeros(3), checkpoint=store)
    first = path.read_bytes()
    store.save(store.load())
    assert path.read_bytes()[:12] != first[:12]
    assert store.load().step == 5


@pytest.mark.parametrize("plain", ["run.npz", Path("run.npz"), True])
def test_plain_files_are_refused(plain):
    with pytest.raises(AssumptionError, match="released iterate"):
        noisy_descent(Logistic(), X, describe(FullBatch()), labels=y, checkpoint=plain)
    assert not Path("run.npz").exists()


@pytest.mark.parametrize("key", [b"short", "x" * 32, None])
def test_weak_keys_are_refused(tmp_path, key):
    with pytest.raises(DescriptionError, match="32 bytes") as caught:
        EncryptedCheckpoint(tmp_path / "run", key)
    assert "short" not in str(caught.value)  # keys do not belong in messages


@pytest.mark.parametrize(
    "change",
    [{"noise": 0.06}, {"steps": 24}, {"batches": Shuffled(5)}, {"clipping": "gradient"}],
)
def test_another_run_is_not_resumed(change):
    store = MemoryCheckpoint(every=5)
    run = describe(Shuffled(4))
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, run, start=np.zeros(3), checkpoint=store)
    with pytest.raises(AssumptionError, match="another run"):
        noisy_descent(
            Stopping(None), None, run.replace(**change), start=np.zeros(3), checkpoint=store
        )
    for other in ({"start": np.ones(3)}, {"start": np.zeros(3), "regularization": 0.1}):
        with pytest.raises(AssumptionError, match="another run"):
            noisy_descent(Stopping(None), None, run, checkpoint=store, **other)


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path, key = tmp_path / "run", EncryptedCheckpoint.new_key()
    store = EncryptedCheckpoint(path, key, every=5)
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, describe(Shuffled(4)), start=np.zeros(3), checkpoint=store)
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    state = store.load()
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.save(state)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert path.read_bytes() == before


def test_a_pickled_memory_checkpoint_is_empty():
    import pickle

    store = MemoryCheckpoint(every=5)
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, describe(Shuffled(4)), start=np.zeros(3), checkpoint=store)
    assert store.load() is not None
    assert pickle.loads(pickle.dumps(store)).load() is None


@pytest.mark.skipif(os.name == "nt", reason="signals differ")
def test_ctrl_c_stops_a_long_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = describe(FullBatch(), steps=10**8, release="last")
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Logistic(), X, run, labels=y)
    assert list(tmp_path.iterdir()) == []


def test_other_generators_can_be_kept_too(tmp_path):
    run = describe(Reshuffled(5))

    def source():
        return SeededSource(np.random.Generator(np.random.MT19937(4)))

    whole = noisy_descent(Stopping(None), None, run, start=np.zeros(3), noise=source())
    store = EncryptedCheckpoint(tmp_path / "run", EncryptedCheckpoint.new_key(), every=5)
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, run, start=np.zeros(3), noise=source(), checkpoint=store)
    resumed = noisy_descent(
        Stopping(None), None, run, start=np.zeros(3), noise=source(), checkpoint=store
    )
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)


class Interrupted(Checkpoint):
    """Keeps what it is given where it is told, and stops the run there."""

    def __init__(self, kept):
        super().__init__(kept.every)
        self.kept = kept

    def save(self, state):
        self.kept.save(state)
        raise KeyboardInterrupt

    def load(self):
        return self.kept.load()

    def clear(self):
        self.kept.clear()


def on(backend, **given):
    """A logistic run on either backend."""
    data = X
    if backend == "torch":
        data = pytest.importorskip("torch").from_numpy(X)
    return noisy_descent(Logistic(), data, describe(Shuffled(4)), labels=y, **given)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("before", ["numpy", "torch"])
@pytest.mark.parametrize("after", ["numpy", "torch"])
def test_a_seeded_part_makes_the_whole_run_an_experiment(tmp_path, kind, before, after):
    """On whichever side of whichever checkpoint it was, and on whichever backend."""
    for seeds in (
        [1, None],  # a seeded run that is resumed without its seed
        [1, None, None],  # ... and that twice
        [1, None, None, None],  # ... and again
        [None, 3],  # a secure run that is resumed with a seed
        [None, 1, None],
        [None, None, None],  # nothing was seeded
    ):
        made = checkpoints(tmp_path)[kind]
        for seed in seeds[:-1]:
            with pytest.raises(KeyboardInterrupt):
                on(before, random_state=seed, checkpoint=Interrupted(made()))
        assert made().load().experiment is any(seeds[:-1])
        assert on(after, random_state=seeds[-1], checkpoint=made()).experiment is any(seeds)


def test_sums_without_a_proved_error_before_a_checkpoint_are_not_forgotten(monkeypatch):
    store, run = MemoryCheckpoint(every=5), describe(Shuffled(4))
    monkeypatch.setattr(LinearGradients, "objection", "their sums have no proved error")
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Logistic(), X, run, labels=y, checkpoint=Interrupted(store))
    monkeypatch.undo()
    assert noisy_descent(Logistic(), X, run, labels=y, checkpoint=store).experiment
    assert not noisy_descent(Logistic(), X, run, labels=y, checkpoint=store).experiment


def test_a_checkpoint_that_does_not_say_so_is_not_certified():
    """Such as a file of an older version, or one whose mark is anything but false."""
    store = MemoryCheckpoint(every=5)
    with pytest.raises(KeyboardInterrupt):
        on("numpy", checkpoint=Interrupted(store))
    state = store.load()
    assert State.from_bytes(state.to_bytes()).experiment is False
    archive = dict(np.load(io.BytesIO(state.to_bytes())))
    table = json.loads(archive.pop("table").tobytes())
    for mark in ({}, {"experiment": None}, {"experiment": 0}, {"experiment": "false"}):
        table.pop("experiment", None)
        text = np.frombuffer(json.dumps({**table, **mark}).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, table=text, **archive)
        store.save(State.from_bytes(file.getvalue()))
        assert on("numpy", checkpoint=store).experiment


@pytest.mark.parametrize("kind", ["dense", "single", "sparse", "torch", "shards", "module"])
def test_a_run_goes_on_with_the_same_records_in_the_same_order_only(kind):
    """In another order a record comes twice in an epoch: more than any description counts."""
    run = describe(Cyclic(4))
    store = MemoryCheckpoint(every=5)

    def go(X, y, store=store):
        if kind == "module":
            torch = pytest.importorskip("torch")
            from lastiterate.torch import noisy_module_descent

            net = torch.nn.Linear(X.shape[1], 2)
            with torch.no_grad():
                net.weight.zero_(), net.bias.zero_()
            inputs, labels = torch.tensor(X).float(), torch.tensor((y > 0).astype(int))
            return noisy_module_descent(
                net,
                torch.nn.CrossEntropyLoss(),
                inputs,
                labels,
                run.replace(clipping="gradient"),
                checkpoint=store,
            )
        data = {"dense": X, "single": X.astype(np.float32), "sparse": sp.csr_array(X)}.get(kind)
        if data is None:
            torch = pytest.importorskip("torch")
            from lastiterate.torch import Shards

            data = torch.tensor(X)
            data = Shards(data) if kind == "shards" else data
        return noisy_descent(Logistic(), data, run, labels=y, checkpoint=store)

    short = 0.99 * X
    with pytest.raises(KeyboardInterrupt):
        go(short, y, Interrupted(store))
    assert store.load() is not None
    other = np.where(np.arange(len(y)) == 1, -y, y)
    for rows, labels in ((short[::-1], y[::-1]), (short, other), (-short, y)):
        with pytest.raises(AssumptionError, match="order"):
            go(rows.copy(), labels.copy())
    assert not go(short.copy(), y.copy()).experiment


class Meeting:
    """A gradient function that starts a second run in the middle of the first one."""

    def __init__(self, second):
        self.plain, self.second, self.refused = Stopping(None), second, []

    def __call__(self, theta, indices):
        if not self.refused:
            with pytest.raises(AssumptionError, match="another run") as caught:
                self.second()
            self.refused.append(str(caught.value))
        return self.plain(theta, indices)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_two_runs_on_one_checkpoint_at_once_are_refused(tmp_path, kind):
    """They would share their noise up to the checkpoint, and release twice."""
    run, made = describe(FullBatch()), checkpoints(tmp_path)[kind]

    def go(gradient):
        return noisy_descent(gradient, None, run, start=np.zeros(3), checkpoint=made())

    with pytest.raises(KeyboardInterrupt):
        go(Stopping(9))
    meeting = Meeting(lambda: go(Stopping(None)))
    assert not go(meeting).experiment
    assert "one release" in meeting.refused[0]
    assert list(tmp_path.iterdir()) == []
    go(Stopping(None))  # a run that was refused leaves nothing locked


@forking
@pytest.mark.parametrize("name", ["run.sealed", "link"])
def test_another_process_is_refused_too_under_any_name_of_the_file(tmp_path, name):
    key, run = EncryptedCheckpoint.new_key(), describe(FullBatch())
    (tmp_path / "link").symlink_to(tmp_path / "run.sealed")

    def go(name, gradient):
        store = EncryptedCheckpoint(tmp_path / name, key, every=5)
        return noisy_descent(gradient, None, run, start=np.zeros(3), checkpoint=store)

    def in_a_child():
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                go(name, Stopping(None))
            except AssumptionError:
                code = 7
            finally:
                os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7:
            raise AssumptionError("another run, says the child: one release")

    meeting = Meeting(in_a_child)
    go("run.sealed", meeting)
    assert meeting.refused


@pytest.mark.parametrize("way", ["copied", "moved", "linked"])
def test_a_copy_elsewhere_is_not_resumed(tmp_path, way):
    """Both runs would release what began with the same noise, and each be accounted alone."""
    key, run = EncryptedCheckpoint.new_key(), describe(FullBatch())

    def go(name, gradient):
        store = EncryptedCheckpoint(tmp_path / name, key, every=5)
        return noisy_descent(gradient, None, run, start=np.zeros(3), checkpoint=store)

    with pytest.raises(KeyboardInterrupt):
        go("run", Stopping(9))
    original, copy = tmp_path / "run", tmp_path / "copy"
    {"copied": shutil.copy2, "moved": os.rename, "linked": os.link}[way](original, copy)
    with pytest.raises(AssumptionError, match=r"was written as .*run'.*move it back"):
        go("copy", Stopping(None))
    copy.replace(original)
    seconds = Stopping(None)
    go("run", seconds)
    assert seconds.updates == run.steps - 5


def test_one_file_by_any_way_that_leads_to_it(tmp_path, monkeypatch):
    """A run by a symbolic link replaced the link and left the file, for another run to go on."""
    key, run = EncryptedCheckpoint.new_key(), describe(FullBatch())
    (tmp_path / "link").symlink_to("run")
    monkeypatch.chdir(tmp_path)
    by_link, by_name = (EncryptedCheckpoint(name, key, every=5) for name in ("link", "run"))
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, run, start=np.zeros(3), checkpoint=by_link)
    monkeypatch.chdir("/")
    assert by_name.load().step == 5
    noisy_descent(Stopping(None), None, run, start=np.zeros(3), checkpoint=by_link)
    assert by_name.load() is None
    assert os.listdir(tmp_path) == ["link"]


@forking
def test_a_lock_is_gone_when_its_holder_was_killed(tmp_path):
    """However a process ends, the next run gets the checkpoint."""
    key, run = EncryptedCheckpoint.new_key(), describe(FullBatch())
    store = EncryptedCheckpoint(tmp_path / "run", key, every=5)

    class Killed(Stopping):
        def __call__(self, theta, indices):
            if self.updates == 8:
                os._exit(0)
            return super().__call__(theta, indices)

    pid = os.fork()
    if pid == 0:
        noisy_descent(Killed(None), None, run, start=np.zeros(3), checkpoint=store)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.load().step == 5
    seconds = Stopping(None)
    noisy_descent(seconds, None, run, start=np.zeros(3), checkpoint=store)
    assert seconds.updates == run.steps - 5
    assert list(tmp_path.iterdir()) == []


@forking
def test_a_forked_child_does_not_go_on_from_its_parents_memory():
    """Parent and child would both release what began with the same noise."""
    store, run = MemoryCheckpoint(every=5), describe(FullBatch())
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(Stopping(9), None, run, start=np.zeros(3), checkpoint=store)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            noisy_descent(Stopping(None), None, run, start=np.zeros(3), checkpoint=store)
        except AssumptionError as refusal:
            code = 7 if "forked" in str(refusal) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    noisy_descent(Stopping(None), None, run, start=np.zeros(3), checkpoint=store)
