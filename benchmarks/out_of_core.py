"""Training from files that do not fit in memory: what a pass costs over one read of the bytes.

Parquet files with float32 columns are written, copied once in a secret order and passed over in
batches of 1 %; caches of the system are emptied before every read. OUT_OF_CORE_GB (default 1) says
how large they are, OUT_OF_CORE_FOLDER where they lie: 10 GB take 21 GB of disk and some minutes
(OUT_OF_CORE_GB=10 python -m benchmarks out_of_core).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS, FILES, EPOCHS = 100, 40, 5
BATCHES = 100
PATIENCE = 100  # seconds of reads and passes, after which no other one begins


def write(folder: Path, records: int) -> None:
    """Files with a label that depends on a column."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    values = rng.standard_normal((COLUMNS, records // FILES), dtype=np.float32)
    for k in range(FILES):
        table = {f"x{j}": values[(j + k) % COLUMNS] for j in range(COLUMNS)}
        table["y"] = np.where(table["x0"] > 0, 1, 0)
        path, plain = folder / f"{k:03}.parquet", {"compression": "none", "use_dictionary": False}
        parquet.write_table(pa.table(table), path, row_group_size=1 << 17, **plain)


def measure(folder: str, answer: str) -> None:
    """In a process of its own: how long the shuffle, a read and a pass take, and its memory."""
    from lastiterate import Shuffled, Training
    from lastiterate.losses import CappedLogistic
    from lastiterate.models import PrivateLogisticRegression
    from lastiterate.noise import source
    from lastiterate.train.arrow_files import ArrowFiles
    from lastiterate.train.filed import FiledRecords
    from lastiterate.train.whole_sums import WholeSums

    found: dict[str, Any] = {}
    files = ArrowFiles(f"{folder}/*.parquet", "y")
    reader = PrivateLogisticRegression(1.0, 1e-9, classes=[0, 1])._reader(files.features)
    loss = CappedLogistic(0.5)
    sums = WholeSums(loss, reader.columns, 1.0, loss.gradient_norm(1.0))
    run = Training(
        records=files.records,
        steps=EPOCHS * BATCHES,
        step_size=1.0,
        noise=1.0,
        gradient_norm=0.5,
        batches=Shuffled(files.records // BATCHES),
        adjacency="replace",
    )
    blocks = lambda: (reader.read(X, y) for X, y in files.blocks())  # noqa: E731
    with FiledRecords(blocks, files.records, reader.columns, folder) as records:
        began = time.perf_counter()
        stream = records.arranged(run, sums, source())
        found["shuffle"] = time.perf_counter() - began
        file: Any = records._copy._file  # no name leads to it
        size = os.fstat(file.fileno()).st_size
        found["bytes"] = size
        found["read"], found["pass"], found["pass_cpu"] = [], [], []
        until = time.perf_counter() + PATIENCE
        while len(found["pass"]) < EPOCHS and (time.perf_counter() < until or not found["pass"]):
            cold(file)
            began, room = time.perf_counter(), bytearray(8 << 20)
            file.seek(0)
            while file.readinto(room):
                pass
            found["read"].append(time.perf_counter() - began)
            cold(file)
            began, busy = time.perf_counter(), time.process_time()
            theta = np.zeros(sums.shape)
            for _ in range(BATCHES):
                total = sums.value(records.total(sums, theta, next(stream)))
                theta = theta - total / run.batches.divisor(files.records)
            found["pass"].append(time.perf_counter() - began)
            found["pass_cpu"].append(time.process_time() - busy)
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found["load"] = os.getloadavg()[0]
    Path(answer).write_text(json.dumps(found))


def cold(file: Any) -> None:
    """Nothing of the file is in memory."""
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rows() -> list[dict[str, Any]]:
    size = float(os.environ.get("OUT_OF_CORE_GB", "1"))
    place = os.environ.get("OUT_OF_CORE_FOLDER", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(dir=place))
    try:
        write(folder, int(size * 1e9 / (4 * COLUMNS + 12)))
        fresh = multiprocessing.get_context("spawn")
        process = fresh.Process(target=measure, args=(str(folder), str(folder / "answer")))
        process.start()
        process.join()
        found = json.loads((folder / "answer").read_text())
    finally:
        shutil.rmtree(folder)
    gigabytes = found["bytes"] / 1e9
    read, passed = min(found["read"]), min(found["pass"])
    ratio, memory = passed / read, found["memory"] / 2**30
    rate = f"{gigabytes:.1f} GB, load {found['load']:.1f}"
    busy = min(found["pass_cpu"])
    on_paper = 100 / gigabytes
    return [
        _row(f"one read of the copy, seconds ({rate})", read),
        _row("one pass in batches of 1 %, seconds", passed),
        _row("one pass over one read", ratio, "<= 1.5", ratio <= 1.5),
        _row("processor seconds of a pass", busy),
        _row("the shuffle, once, seconds", found["shuffle"]),
        _row("memory of the process at most, GiB", memory, "<= 1", memory <= 1),
        _row("100 GB on paper: a pass, minutes", passed * on_paper / 60),
        _row("100 GB on paper: the shuffle, minutes", found["shuffle"] * on_paper / 60),
    ]


def _row(name: str, measured: float, goal: str = "", ok: bool | None = None) -> dict[str, Any]:
    return {"name": name, "measured": round(measured, 2), "goal": goal, "ok": ok}


if __name__ == "__main__":
    for row in rows():
        print(row)
