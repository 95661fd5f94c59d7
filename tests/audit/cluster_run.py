"""An audit on a cluster, as a program of its own: what it found, and who could reach it meanwhile.

python cluster_run.py BACKEND VICTIMS; one worker is killed if VICTIMS is a folder. Prints JSON: the
result, every address that a process of ours listened on, and what a stranger without credentials
got who tried to run code there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import psutil

from lastiterate.audit import audit

STRANGER = {
    "ray": """
import ray
ray.init(address={address!r}, log_to_driver=False)
print("the stranger ran", ray.get(ray.remote(num_cpus=0)(lambda: "code").remote()))
""",
    "dask": """
import distributed
mine = distributed.Security.temporary() if {address!r}.startswith("tls") else None
client = distributed.Client({address!r}, timeout=10, security=mine)
print("the stranger ran", client.submit(lambda: "code").result(timeout=10))
""",
}


class NoisySum:
    """A trainer with cohorts; a worker that finds no victim yet is one."""

    def __init__(self, victims: str = "") -> None:
        self.victims = victims

    def __call__(self, data, seed):
        return float(self.cohort(data, [seed])[0])

    def cohort(self, data, seeds):
        if self.victims:
            try:
                (Path(self.victims) / "victim").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return np.array([sum(data) + np.random.default_rng(s).normal() for s in seeds])


class Meanwhile:
    """Scores in the middle of whose reading the neighbourhood is looked at."""

    def __init__(self, backend: str) -> None:
        self.backend, self.listening, self.stranger = backend, [], ""

    def look(self) -> None:
        ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
        for process in ours:
            try:
                found = process.net_connections("inet")
            except psutil.Error:
                continue
            self.listening += [c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN]
        if self.backend == "ray":
            import ray

            address = ray.get_runtime_context().gcs_address
        else:
            import distributed

            address = distributed.get_client().scheduler.address
        program = STRANGER[self.backend].format(address=address)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=clean,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        self.stranger = done.stdout if done.returncode == 0 else f"refused: {done.stderr[-900:]}"


def main() -> None:
    from lastiterate.audit import fanout

    backend, victims = sys.argv[1:3]
    given = {"models": 90, "cohort": 8, "random_state": 5, "progress": False}
    meanwhile = Meanwhile(backend)
    with fanout._pool(backend, 2):
        meanwhile.look()
    alone = audit(NoisySum(), [1, 2], [1], **given)
    spread = audit(NoisySum(victims), [1, 2], [1], backend=backend, workers=2, **given)
    print(
        json.dumps(
            {
                "same": spread == alone,
                "listening": sorted(set(meanwhile.listening)),
                "stranger": meanwhile.stranger,
            }
        )
    )


if __name__ == "__main__":
    main()
