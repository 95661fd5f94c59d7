"""Backends: the same result for the same seeds; lost workers are replaced."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_clusters_give_the_same_result(backend, tmp_path):
    pytest.importorskip({"dask": "distributed"}.get(backend, backend))
    assert run(backend, 2) == run()
    assert run(backend, 2, NoisySum(tmp_path, 1)) == run()
    assert len(list(tmp_path.iterdir())) == 1


def test_progress_is_quiet_without_a_terminal(capsys):
    run()
    assert capsys.readouterr().err == ""
