"""The store: one row per model, whatever happens in between."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lastiterate import AssumptionError, DescriptionError
from lastiterate.audit import Store, audit
from lastiterate.audit.worlds import model_seed, shadow_scores


def noisy_sum(data, seed):
    return sum(data) + np.random.default_rng(seed).normal()


def run(store=None, models=60, random_state=3, train=noisy_sum, inside=(1, 2), **options):
    return audit(
        train,
        list(inside),
        [1],
        models=models,
        store=store,
        random_state=random_state,
        cohort=7,
        **options,
    )


def counts(path):
    with sqlite3.connect(path) as base:
        return base.execute("SELECT count(*), count(DISTINCT seed) FROM models").fetchone()


def test_a_store_changes_nothing(tmp_path):
    assert run(tmp_path / "a.db") == run()
    assert counts(tmp_path / "a.db") == (60, 60)


def test_a_finished_audit_trains_nothing(tmp_path):
    path = tmp_path / "a.db"
    first = run(path)
    calls = []

    def noisy_sum_again(data, seed):
        calls.append(seed)
        return noisy_sum(data, seed)

    noisy_sum_again.__qualname__, noisy_sum_again.__module__ = "noisy_sum", noisy_sum.__module__
    assert run(path, train=noisy_sum_again) == first
    assert calls == []


def test_an_interrupted_audit_goes_on(tmp_path):
    path = tmp_path / "a.db"
    seen = []

    def noisy_sum_interrupted(data, seed):
        seen.append(seed)
        if len(seen) == 30:
            raise KeyboardInterrupt
        return noisy_sum(data, seed)

    name = noisy_sum_interrupted
    name.__qualname__, name.__module__ = "noisy_sum", noisy_sum.__module__
    with pytest.raises(KeyboardInterrupt):
        run(path, train=name)
    done = counts(path)[0]
    assert 0 < done < 30
    assert run(path) == run()
    assert counts(path) == (60, 60)


def test_entropy_is_kept(tmp_path):
    """Without a seed the store remembers the one it drew."""
    path = tmp_path / "a.db"
    assert run(path, random_state=None) == run(path, random_state=None)
    assert run(path, random_state=None) != run(random_state=None)


def test_another_audit_is_refused(tmp_path):
    path = tmp_path / "a.db"
    run(path)
    with pytest.raises(AssumptionError, match="before the first look"):
        run(path, models=80)
    with pytest.raises(AssumptionError, match="another audit"):
        run(path, inside=(5, 5))
    with pytest.raises(DescriptionError, match="random_state"):
        run(path, random_state=4)


class Scaled:
    """A trainer with a setting."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, data, seed):
        return self.factor * noisy_sum(data, seed)


def test_another_setting_of_the_trainer_is_refused(tmp_path):
    path = tmp_path / "a.db"
    assert run(path, train=Scaled(1.0)) == run(path, train=Scaled(1.0))
    with pytest.raises(AssumptionError, match="another audit"):
        run(path, train=Scaled(2.0))


def test_not_a_store(tmp_path):
    path = tmp_path / "a.db"
    path.write_text("this is no database, and it is longer than a header would be" * 20)
    with pytest.raises(AssumptionError, match="cannot be used"):
        Store(path)


def test_a_failed_write_leaves_nothing(tmp_path):
    with Store(tmp_path / "a.db") as store:
        row = np.zeros(1)
        with pytest.raises(AssumptionError, match="cannot be used"):
            store.add([(0, "inside", 5, row), ("one", "inside", 6, row)])
        assert store.finished() == set()


def written(path):
    """Every byte that somebody who gets the scores' file can read."""
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def test_only_the_owner_reads_scores_and_key(tmp_path):
    path, before = tmp_path / "a.db", os.umask(0)
    try:
        with Store(path) as store:
            store.settle({}, 1)
            for each in tmp_path.iterdir():  # the write-ahead log too
                assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
        path.chmod(0o644)
        Store(path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_hidden_record_cannot_be_tried_out(tmp_path):
    """A digest of the data, or a seed beside its score, told which candidate it was."""
    path, secret = tmp_path / "a.db", 77
    run(path, inside=(1, secret), train=Scaled(1.0), score=Shifted(secret))
    content = written(path)
    for candidate in range(100):
        for guess in ([1, candidate], Shifted(candidate)):
            assert (
                hashlib.sha256(pickle.dumps(guess, protocol=5)).hexdigest().encode() not in content
            )
    seeds = [model_seed(3, k) for k in range(60)]
    for seed in (*seeds, np.random.SeedSequence(3).entropy):
        digits = str(seed)
        assert len(digits) < 4 or digits.encode() not in content
        assert len(digits) < 4 or seed.to_bytes(8, "little") not in content
    values = {float(v) for k in range(60) for v in [scores_of(path)[k]]}
    for seed in seeds[::2]:  # with the seed, one look is enough
        assert noisy_sum([1, secret], seed) - secret in values


def scores_of(path):
    with Store(path) as store:
        return store.scores()


class Shifted:
    """A score that knows the record, as those of saved models do."""

    def __init__(self, record):
        self.record = record

    def __call__(self, value):
        return value - self.record


def test_a_store_without_its_key_says_nothing(tmp_path):
    path, key = tmp_path / "a.db", tmp_path / "a.db.key"
    first = run(path)
    kept = key.read_bytes()
    for wrong in (None, b"", kept[:-1], bytes(32)):
        key.unlink(missing_ok=True)
        if wrong is not None:
            key.write_bytes(wrong)
            key.chmod(0o600)
        with pytest.raises(AssumptionError, match=r"key|another audit"):
            run(path)
    key.write_bytes(kept)
    key.chmod(0o600)
    assert run(path) == first


@pytest.mark.parametrize(
    "change",
    [
        "scores = zeroblob(8)",
        "scores = 0.5",
        "shape = '[1]'",
        "world = 'outside'",
        "number = 1000",
        "checksum = 'ü'",
        "seed = 'x'",
    ],
)
def test_a_row_that_was_changed_is_refused(tmp_path, change):
    path = tmp_path / "a.db"
    run(path)
    with sqlite3.connect(path) as base:
        base.execute(f"UPDATE models SET {change} WHERE number = 4")
    with pytest.raises(AssumptionError, match="not what was written"):
        run(path)


def test_damaged_files_are_refused_in_words(tmp_path):
    path = tmp_path / "a.db"
    first = run(path)
    whole = written(path)
    rng = random.Random(5)
    outcomes = set()
    for _ in range(60):
        broken = bytearray(whole)
        place = rng.randrange(len(whole))
        for k in range(place, min(len(whole), place + rng.choice([1, 40, 4096]))):
            broken[k] ^= rng.randrange(1, 256)
        if rng.random() < 0.2:
            broken = broken[:place]
        path.write_bytes(bytes(broken))
        for log in ("a.db-wal", "a.db-shm"):
            (tmp_path / log).unlink(missing_ok=True)
        try:
            assert run(path) == first  # unused bytes, or rows that were lost and trained again
            outcomes.add("the same")
        except AssumptionError as refused:
            outcomes.add("said" if "store" in str(refused) else str(refused))
    assert outcomes == {"the same", "said"}


def test_a_full_disk_is_said_in_words_and_loses_nothing(tmp_path):
    path = tmp_path / "a.db"
    with Store(path) as store:
        store.settle({"models": 60}, 3)
        pages = store._base.execute("PRAGMA page_count").fetchone()[0]
        store._base.execute(f"PRAGMA max_page_count = {pages + 2}")

        def fill():
            for k in range(100):
                store.add([(k, "inside", k, np.arange(300.0))])

        with pytest.raises(AssumptionError, match=r"full.*Make room: finished models are kept"):
            fill()
        done = store.finished()
        assert 0 < len(done) < 100
    with Store(path) as store:
        assert store.settle({"models": 60}, 4) == 3
        assert store.finished() == done
        store.add([(99, "inside", 99, np.zeros(300))])


def test_processes_that_begin_together_share_one_key(tmp_path):
    def begun(name):
        with Store(tmp_path / name) as store:
            return store.digest(b"the data"), store.settle({}, threading.get_ident())

    for attempt in range(5):
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(begun, [f"{attempt}.db"] * 8))) == 1


def test_a_folder_that_cannot_be_written_is_said_in_words(tmp_path):
    for path in (tmp_path / "missing" / "a.db", tmp_path):
        with pytest.raises(AssumptionError, match="cannot be used"):
            Store(path)


PROGRAM = """
import sys, time, numpy as np
from lastiterate.audit.worlds import shadow_scores
def train(data, seed):
    time.sleep(0.002)
    return data + np.random.default_rng(seed).normal()
shadow_scores(train, 1.0, 0.0, models=600, score=None, backend=None, entropy=11, workers=None,
              cohort=10, store=sys.argv[1], progress=False)
print("finished")
"""


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    """kill -9, fifty times, mid-write or mid-training; then exactly the requested models."""
    path, program = tmp_path / "a.db", tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(path)]
    rng, kills, progress = random.Random(1), 0, [0]
    while kills < 50:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        wait = _imported(process, path, progress[-1]) + rng.uniform(0, 0.04)
        time.sleep(wait)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            path.unlink()  # it won: start again
            progress = [0]
            continue
        if path.exists():
            progress.append(counts(path)[0])
            assert progress[-1] % 10 == 0  # whole cohorts
            assert progress[-1] >= progress[-2]  # nothing is lost
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"finished\n"
    assert counts(path) == (600, 600)
    with Store(path) as store:
        kept = store.scores()
    found = shadow_scores(
        _train,
        1.0,
        0.0,
        models=600,
        score=None,
        backend=None,
        entropy=11,
        workers=None,
        cohort=10,
        store=None,
        progress=False,
    )
    assert [kept[k].tolist() for k in range(0, 600, 2)] == found[0].tolist()
    assert [kept[k].tolist() for k in range(1, 600, 2)] == found[1].tolist()


def _train(data, seed):
    return data + np.random.default_rng(seed).normal()


def _imported(process, path, before):
    """Wait until the process has done something new, so that kills fall into its work."""
    start = time.monotonic()
    while process.poll() is None and time.monotonic() - start < 20:
        try:
            if path.exists() and counts(path)[0] > before:
                return 0.0
        except sqlite3.Error:
            pass
        time.sleep(0.002)
    return 0.0


@pytest.mark.parametrize("which", ["store", "key"])
@pytest.mark.parametrize("trap", ["link", "dangling link", "pipe", "another user's", "open to all"])
def test_what_somebody_laid_out_is_not_used(tmp_path, which, trap):
    """A key that lay there already was taken, and told who had put it there the hidden record."""
    path = tmp_path / ("audit.db" if which == "store" else "audit.db.key")
    victim = tmp_path / "victim"
    if trap == "another user's" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    if trap == "pipe":
        os.mkfifo(path)
    elif trap == "dangling link":
        path.symlink_to(victim)
    else:
        victim.write_bytes(bytes(32) if which == "key" else b"")
        victim.chmod(0o600 if trap != "open to all" else 0o644)
        (path.symlink_to if trap == "link" else path.hardlink_to)(victim)
        if trap == "another user's":
            os.chown(path, 12345, 12345)
    mode = victim.stat().st_mode if victim.exists() else None
    if (which, trap) == ("store", "open to all"):
        Store(path).close()  # it is ours, and empty: closed to others from now on
        assert path.stat().st_mode & 0o777 == 0o600
        return
    with pytest.raises(AssumptionError, match="cannot be used as a store"):
        Store(tmp_path / "audit.db")
    assert (victim.stat().st_mode if victim.exists() else None) == mode


def test_rows_and_seeds_of_another_store_are_refused(tmp_path):
    """Swapped files, a swapped key, an older seed with newer rows."""
    for name, entropy in (("a", 7), ("b", 7)):
        with Store(tmp_path / name) as store:
            store.settle({"models": 2}, entropy)
            store.add([(0, "inside", 11, np.array([0.5]))])
    with Store(tmp_path / "a") as store:
        assert store.scores()[0].tolist() == [0.5]
    shutil.copy(tmp_path / "b", tmp_path / "a")  # the key stays
    with Store(tmp_path / "a") as store, pytest.raises(AssumptionError, match="another key"):
        store.scores()
    with Store(tmp_path / "a") as store, pytest.raises(AssumptionError, match="its seed"):
        store.settle({"models": 2}, 9)


@pytest.mark.parametrize("name", ["entropy", "checksum"])
def test_a_seed_that_was_changed_is_refused(tmp_path, name):
    """A mask alone lets anybody turn a digit of the seed into another one."""
    with Store(tmp_path / "a") as store:
        store.settle({"models": 2}, entropy=1234)
    with sqlite3.connect(tmp_path / "a") as base:
        ((value,),) = base.execute("SELECT value FROM run WHERE name = ?", (name,))
        other = bytes([bytes.fromhex(value)[0] ^ 1, *bytes.fromhex(value)[1:]]).hex()
        base.execute("UPDATE run SET value = ? WHERE name = ?", (other, name))
    with Store(tmp_path / "a") as store, pytest.raises(AssumptionError, match="its seed"):
        store.settle({"models": 2}, entropy=1234)
    with sqlite3.connect(tmp_path / "a") as base:
        base.execute("DELETE FROM run WHERE name = 'checksum'")
    with Store(tmp_path / "a") as store:
        if name == "entropy":
            with pytest.raises(AssumptionError, match="its seed"):
                store.settle({"models": 2}, entropy=1234)
