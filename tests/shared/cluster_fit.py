"""A model on a cluster of two workers, as a program of its own: is it that of one process?

python cluster_fit.py ENGINE KILLS; so many workers are killed at random moments while it trains,
again and again if it has to, for PATIENCE seconds. Prints JSON: whether every model was the same,
bit for bit, how many workers were killed, and every address that a process of ours listened on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from itertools import pairwise
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import pandas as pd
import psutil

from lastiterate import cluster
from lastiterate.models import PrivateLogisticRegression

FEATURES = list("abcde")
PATIENCE = 300  # on a busy machine engines need long for a new worker
CUTS = [0, 700, 700, 701, 1500, 2000]  # an empty part, and one with a single record


def frame() -> pd.DataFrame:
    X = np.random.default_rng(0).normal(size=(CUTS[-1], len(FEATURES)))
    return pd.DataFrame(X, columns=FEATURES).assign(y=np.where(X[:, 0] > 0, "yes", "no"))


def model() -> PrivateLogisticRegression:
    given: dict[str, Any] = {"classes": ["no", "yes"], "steps": 40, "batch_size": 200}
    return PrivateLogisticRegression(2.0, 1e-5, random_state=0, **given)


def dataset(engine: str, tool: Any) -> Any:
    whole = frame()
    parts = [whole[a:b] for a, b in pairwise(CUTS)]
    if engine == "ray":
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        return ray.data.from_pandas(parts)
    if engine == "dask":
        import dask.dataframe as dd

        return dd.concat([dd.from_pandas(part, npartitions=1, sort=False) for part in parts])
    rows = tool.sparkContext.parallelize(range(len(CUTS) - 1), len(CUTS) - 1)
    pieces = [part.to_numpy().tolist() for part in parts]
    schema = ", ".join([*(f"{name} double" for name in FEATURES), "y string"])
    return tool.createDataFrame(rows.flatMap(lambda k: pieces[k]), schema)


def workers(engine: str, tool: Any) -> list[int]:
    """The processes that compute, and nobody else."""
    if engine == "dask":
        return list(tool.run(os.getpid).values())
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            ours = words.startswith(("ray::IDLE", "ray::_do"))
            if engine == "spark":
                daemon = "pyspark.daemon"
                ours = daemon in words and daemon in " ".join(process.parent().cmdline())
        except (psutil.Error, AttributeError):
            continue
        if ours:
            found.append(process.pid)
    return found


def killing(engine: str, tool: Any, wanted: int, done: list[int], over: threading.Event) -> None:
    while len(done) < wanted and not over.is_set():
        time.sleep(random.uniform(0.05, 1.0))
        try:
            found = workers(engine, tool)
            if engine == "dask" and len(found) < 2:
                continue  # a nanny whose worker dies while it starts gives up
            victim = random.choice(found)
            os.kill(victim, signal.SIGKILL)
            done.append(victim)
        except Exception:  # there is no worker just now
            continue


def main() -> None:
    engine, wanted = sys.argv[1], int(sys.argv[2])
    alone = cluster.fit(frame(), model(), label="y")
    same, done, listening = [], [], set()
    with cluster.local(engine, 2) as tool:
        data, began = dataset(engine, tool), time.monotonic()
        while not same or (len(done) < wanted and time.monotonic() - began < PATIENCE):
            over = threading.Event()
            given = (engine, tool, wanted, done, over)
            killer = threading.Thread(target=killing, args=given, daemon=True)
            killer.start()
            found = cluster.fit(data, model(), label="y")
            over.set()
            killer.join()
            same.append(
                found.coef_.tobytes() == alone.coef_.tobytes()
                and found.intercept_.tobytes() == alone.intercept_.tobytes()
                and found.training_ == alone.training_
            )
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                open_ports = process.net_connections("inet")
            except psutil.Error:
                continue
            listening |= {c.laddr.ip for c in open_ports if c.status == psutil.CONN_LISTEN}
    print(json.dumps({"same": same, "kills": len(done), "listening": sorted(listening)}))


if __name__ == "__main__":
    main()
