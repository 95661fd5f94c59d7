"""Cohorts spread over processes and machines through joblib; lost workers are replaced.

An error of the user's own training stops the audit at once. Anything else that goes wrong is taken
for a lost worker: the cohorts that are missing are started again in a fresh pool.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from lastiterate.cluster.connections import not_installed, use_dask, use_ray
from lastiterate.description.fields import integer
from lastiterate.errors import DescriptionError, LastIterateError

RETRIES = 5
"""Consecutive losses without a single finished cohort after which the audit gives up."""

Job = Callable[[Any], Any]


class WorkersLostError(LastIterateError):
    """Workers keep dying; the store keeps what is done."""


class TrainingFailedError(LastIterateError):
    """The function that trains a model raised an error in a worker; the message has its trace."""


def run_cohorts(
    job: Job, cohorts: Sequence[Any], *, backend: str | None, workers: int | None
) -> Iterator[tuple[int, Any]]:
    """(position, job(cohort)) in the order in which they finish.

    Args:
        job: what a worker does with a cohort.
        cohorts: one argument per job.
        backend: None, a backend of joblib ("loky", "threading", ...), "ray" or "dask".
        workers: how many; None: one in this process without a backend, else one per processor
            (or whatever the running cluster has).

    >>> sorted(run_cohorts(sum, [[1, 2], [3]], backend=None, workers=None))
    [(0, 3), (1, 3)]
    """
    if workers is not None:
        integer("workers", workers)
    if backend is None and workers in (None, 1):
        for k, cohort in enumerate(cohorts):
            yield k, job(cohort)
        return
    left = dict(enumerate(cohorts))
    losses = 0
    while left:
        try:
            with _pool(backend or "loky", workers) as pool:
                for k, answer, failure in pool(job, left):
                    if failure is not None:
                        raise TrainingFailedError(f"Training failed in a worker:\n{failure}")
                    yield k, answer
                    del left[k]
                    losses = 0
        except LastIterateError:
            raise
        except Exception as lost:
            losses += 1
            if losses > RETRIES:
                raise WorkersLostError(
                    f"Workers of the backend {backend!r} were lost {losses} times in a row "
                    f"({type(lost).__name__}: {lost}). Check their memory; finished models are "
                    "kept in the store, and the same call goes on from there."
                ) from lost


Answer = tuple[int, Any, str | None]
Pool = Callable[[Job, dict[int, Any]], Iterator[Answer]]


@contextmanager
def _pool(backend: str, workers: int | None) -> Iterator[Pool]:
    """Something that runs jobs; a cluster that was started here is taken down at the end."""
    joblib = _joblib()
    with ExitStack() as stack:
        if backend == "ray":
            use_ray(stack, workers)
        elif backend == "dask":
            use_dask(stack, workers)
        elif backend not in joblib.parallel.BACKENDS:
            names = sorted({*joblib.parallel.BACKENDS, "ray", "dask"})
            why = "models are trained by its workers"
            raise DescriptionError("backend", backend, f"None or one of {', '.join(names)}", why)
        stack.enter_context(joblib.parallel_config(backend, n_jobs=workers or -1))
        # Ray's pool hands its answers back only when all are there: it gets the work in waves.
        wave = 4 * joblib.effective_n_jobs() if backend == "ray" else None
        parallel = stack.enter_context(
            joblib.Parallel(return_as="list" if wave else "generator_unordered", batch_size=1)
        )
        guarded = joblib.delayed(_guarded)

        def run(job: Job, cohorts: dict[int, Any]) -> Iterator[Answer]:
            tasks = [guarded(job, k, cohort) for k, cohort in cohorts.items()]
            for first in range(0, len(tasks), wave or len(tasks)):
                yield from parallel(tasks[first : first + (wave or len(tasks))])

        yield run


def _guarded(job: Job, k: int, cohort: Any) -> Answer:
    """The answer, or the text of the error: errors of pools and of training stay apart."""
    try:
        return k, job(cohort), None
    except Exception:
        return k, None, traceback.format_exc()


def _joblib() -> Any:
    try:
        import joblib
    except ImportError as missing:
        raise not_installed("joblib", "audit") from missing
    return joblib
