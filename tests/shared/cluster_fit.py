"""A model on a cluster of two workers, as a program of its own: is it that of one process?

python cluster_fit.py ENGINE KILLS SECONDS; so many workers are killed (SIGKILL) at random moments:
while they read a part, add it up, send an answer, or wait for the next. Prints JSON: whether every
sum of every update and every model was the same, bit for bit, how many were killed, every address
that a process of ours listened on, and what was said about data sets and workers that must be
refused. After so many seconds it ends with an error.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.update(RAY_worker_niceness="0")  # else new workers starve on a busy machine

import numpy as np
import pandas as pd
import psutil

from lastiterate import cluster
from lastiterate.cluster import engines, fitting, parts
from lastiterate.errors import LastIterateError
from lastiterate.models import PrivateLogisticRegression

FEATURES, STEPS = list("abcde"), 20
PER_FIT = 4  # workers that are killed while one model is trained
CUTS = [0, 700, 700, 701, 1500, 2000]  # an empty part, and one with a single record


def frame() -> pd.DataFrame:
    X = np.random.default_rng(0).normal(size=(CUTS[-1], len(FEATURES)))
    return pd.DataFrame(X, columns=FEATURES).assign(y=np.where(X[:, 0] > 0, "yes", "no"))


def model() -> PrivateLogisticRegression:
    given: dict[str, Any] = {"classes": ["no", "yes"], "steps": STEPS, "batch_size": 200}
    return PrivateLogisticRegression(2.0, 1e-5, random_state=0, **given)


def dataset(engine: str, tool: Any, pieces: list[pd.DataFrame] | None = None) -> Any:
    whole = frame()
    pieces = pieces or [whole[a:b] for a, b in pairwise(CUTS)]
    if engine == "ray":
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        return ray.data.from_pandas(pieces)
    if engine == "dask":
        import dask.dataframe as dd

        return dd.concat([dd.from_pandas(part, npartitions=1, sort=False) for part in pieces])
    rows = tool.sparkContext.parallelize(range(len(pieces)), len(pieces))
    cells = [part.to_numpy().tolist() for part in pieces]
    schema = ", ".join([*(f"{name} double" for name in FEATURES), "y string"])
    return tool.createDataFrame(rows.flatMap(lambda k: cells[k]), schema)


def obey(folder: str) -> None:
    """Whoever takes an order dies soon: in this work, in what comes after it, or idle."""
    draw = random.SystemRandom()
    for order in [name for name in os.listdir(folder) if name.startswith("order")]:
        if os.getpid() in killed(folder):
            return
        try:
            os.rename(f"{folder}/{order}", f"{folder}/{order[5:]}-{os.getpid()}")
        except FileNotFoundError:  # somebody else was faster
            continue
        die = (os.getpid(), signal.SIGKILL)
        threading.Timer(draw.choice([0.0, draw.uniform(0, 0.03)]), os.kill, die).start()


@dataclass(frozen=True)
class MortalKeep(parts.Keep):
    folder: str

    def __call__(self, part: int, frame: Any) -> Any:
        obey(self.folder)
        return super().__call__(part, frame)


@dataclass(frozen=True)
class MortalAsk(parts.Ask):
    folder: str

    def __call__(self, held: Any, rows: Any) -> Any:
        obey(self.folder)
        return super().__call__(held, rows)


class Mortal(parts.Workers):
    """Workers of an engine, of whom some are ordered to die while a model is trained."""

    def __init__(self, inner: Any, tool: Any, folder: str, moments: Collection[int]) -> None:
        self.inner, self.tool, self.folder, self.moments, self.now = inner, tool, folder, moments, 0

    def keep(self, job: Any) -> Any:
        self.order()
        return self.inner.keep(MortalKeep(**vars(job), folder=self.folder))

    def ask(self, job: Any, rows: Any) -> Any:
        self.order()
        return self.inner.ask(MortalAsk(**vars(job), folder=self.folder), rows)

    def order(self) -> None:
        if self.now in self.moments:
            while hasattr(self.tool, "cluster") and not settled(self.tool, killed(self.folder)):
                time.sleep(0.05)
            open(f"{self.folder}/order{time.monotonic_ns()}", "x").close()
        self.now += 1


def killed(folder: str) -> list[int]:
    """Who took an order."""
    return [int(name.split("-")[1]) for name in os.listdir(folder) if "-" in name]


def settled(client: Any, before: list[int]) -> bool:
    """Whether both workers of Dask run and know it: a nanny gives up on one that dies earlier."""
    found = [nanny.process for nanny in client.cluster.workers.values()]
    if len(found) < 2:
        raise RuntimeError("Dask gave up a worker, and starts no other one")
    return all(p and p.status.name == "running" and p.pid not in [None, *before] for p in found)


class Noted(parts.SpreadRecords):
    """Notes the sum of every update, as whole numbers."""

    sums: list[list[int]] = []  # noqa: RUF012

    def total(self, *asked: Any) -> Any:
        found = super().total(*asked)
        high, low = found.astype(object)
        self.sums.append((high * 2**32 + low).ravel().tolist())
        return found


def trained(data: Any) -> tuple[Any, ...]:
    Noted.sums = []
    found = cluster.fit(data, model(), label="y")
    return found.coef_.tobytes(), found.intercept_.tobytes(), found.training_, Noted.sums


def too_late(*_: Any) -> None:
    raise TimeoutError("workers were not replaced in time, or an answer never came")


def listening() -> list[str]:
    """Addresses where this process and its children can be reached."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            ports = process.net_connections("inet")
        except psutil.Error:
            continue
        found |= {port.laddr.ip for port in ports if port.status == psutil.CONN_LISTEN}
    return sorted(found)


def dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


class Forgetful(engines.SparkWorkers):
    """Computes its parts again for every update, as after the loss of an executor."""

    def ask(self, job: Any, rows: Any) -> Any:
        self._held.unpersist(blocking=True)
        return super().ask(job, rows)


def anew(part: pd.DataFrame) -> pd.DataFrame:
    return part.assign(a=np.random.default_rng().normal(size=len(part)))


def outdated() -> None:
    parts.__version__ = "0.9"


def refusal(data: Any, workers: Any = engines.workers_of) -> str:
    fitting.workers_of = workers
    try:
        cluster.fit(data, model(), label="y")
    except LastIterateError as said:
        return str(said)
    return "trained"


def refusals(engine: str, tool: Any, folder: str) -> dict[str, str]:
    """Of rows in one part, of parts that are others when computed again, and of old workers."""
    whole, found = frame(), {}
    for name, hurt in {"a": np.inf, "y": "SECRET"}.items():
        bad = whole.assign(**{name: whole[name].where(whole.index != 1600, hurt)})
        pieces = [bad[a:b] for a, b in pairwise(CUTS)]
        found[name] = refusal(dataset(engine, tool, pieces))
    if engine == "spark":
        data = dataset(engine, tool)
        drawn = data.mapInPandas(lambda batches: map(anew, batches), data.schema)
        found["anew"] = refusal(drawn, Forgetful)
    if engine == "dask":  # parts go with their workers
        lost = lambda data: Mortal(engines.workers_of(data), tool, folder, [1, 2, 3])  # noqa: E731
        found["anew"] = refusal(dataset(engine, tool).map_partitions(anew), lost)
        tool.run(outdated, workers=list(tool.scheduler_info()["workers"])[:1])
        found["outdated"] = refusal(dataset(engine, tool))
    return found


def main() -> None:
    engine, wanted = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(int(sys.argv[3]))
    fitting.SpreadRecords = Noted  # type: ignore[misc]
    alone, same = trained(frame()), []
    with tempfile.TemporaryDirectory() as folder, cluster.local(engine, 2) as tool:
        data = dataset(engine, tool)
        for left in range(wanted, 0, -PER_FIT):
            moments = random.sample(range(STEPS + 1), min(left, PER_FIT))
            mortal = Mortal(engines.workers_of(data), tool, folder, moments)
            fitting.workers_of = lambda _, mortal=mortal: mortal
            same.append(trained(data) == alone)
        time.sleep(0.1)
        gone = [pid for pid in killed(folder) if dead(pid)]
        found: dict[str, Any] = {"same": same, "kills": len(gone), "listening": listening()}
        found["refusals"] = refusals(engine, tool, folder)
    print(json.dumps(found))


if __name__ == "__main__":
    import cluster_fit  # workers find the classes above by that name

    cluster_fit.main()
