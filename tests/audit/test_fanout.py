"""Backends: the same result for the same seeds; lost workers are replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import HANG_SECONDS

from lastiterate.audit import audit
from lastiterate.audit.fanout import TrainingFailedError, WorkersLostError, run_cohorts


class NoisySum:
    """A trainer with cohorts, in the form that workers receive."""

    def __init__(self, victims: Path | None = None, deaths: int = 0) -> None:
        self.victims, self.deaths = victims, deaths

    def __call__(self, data, seed):
        return float(self.cohort(data, [seed])[0])

    def cohort(self, data, seeds):
        if self.victims is not None:
            for k in range(self.deaths):
                try:
                    (self.victims / str(k)).touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return np.array([sum(data) + np.random.default_rng(s).normal() for s in seeds])


def run(backend=None, workers=None, train=None):
    return audit(
        train or NoisySum(),
        [1, 2],
        [1],
        models=90,
        cohort=8,
        random_state=5,
        backend=backend,
        workers=workers,
    )


def fails(cohort):
    raise ValueError("the data are upside down")


def test_processes_give_the_same_result(tmp_path):
    assert run(workers=2) == run()
    # a worker that is killed in the middle is replaced
    assert run(workers=2, train=NoisySum(tmp_path, 2)) == run()
    assert len(list(tmp_path.iterdir())) == 2


def test_threads_give_the_same_result():
    assert run("threading", 2) == run()


def test_errors_of_training_are_not_retried():
    with pytest.raises(TrainingFailedError, match="upside down"):
        list(run_cohorts(fails, [1, 2], backend="threading", workers=2))
    with pytest.raises(ValueError, match="upside down"):
        list(run_cohorts(fails, [1, 2], backend=None, workers=None))


@pytest.mark.slow
def test_hopeless_workers_are_given_up(tmp_path):
    with pytest.raises(WorkersLostError, match="same call goes on"):
        run(workers=2, train=NoisySum(tmp_path, 1000))


def program(*arguments, **environment):
    """A program of its own: clusters settle what they listen on once per process."""
    here = Path(__file__).parent / "cluster_run.py"
    return subprocess.run(
        [sys.executable, *(arguments if arguments[0] == "-c" else (str(here), *arguments))],
        env={k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_clusters_give_the_same_result_and_serve_nobody_else(backend, tmp_path):
    """Ray listened on every interface, and either one ran a stranger's code."""
    pytest.importorskip({"dask": "distributed"}.get(backend, backend))
    done = program(backend, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["same"]
    assert (tmp_path / "victim").exists()
    assert found["listening"]
    assert set(found["listening"]) <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert found["stranger"].startswith("refused: ")
    why = {"ray": "Failed to connect to Ray cluster", "dask": "CommClosedError"}[backend]
    assert why in found["stranger"]


ONE = "from lastiterate.audit.fanout import run_cohorts as run\n"
GO = 'print(list(run(sum, [[1]], backend="ray", workers=1)))'


@pytest.mark.slow
def test_ray_joins_named_clusters_only(tmp_path):
    pytest.importorskip("ray")
    early = program("-c", "import ray\n" + ONE + GO)  # it has settled where it listens
    assert "AssumptionError: A Ray cluster that is started now would listen on" in early.stderr
    auto = program("-c", ONE + GO, RAY_ADDRESS="auto")
    assert "RAY_ADDRESS is 'auto'" in auto.stderr
    users = "import ray\nray.init(num_cpus=1, log_to_driver=False)\n" + ONE + GO
    own = program("-c", users, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    assert own.stdout.strip() == "[(0, 1)]", own.stderr[-3000:]
    assert "Ray keeps nobody out who reaches its ports" in own.stderr


def test_progress_is_quiet_without_a_terminal(capsys):
    run()
    assert capsys.readouterr().err == ""
