"""Ray, Dask and Spark, and one process: each keeps parts on its workers and asks them.

The engines replace workers that are lost and compute again what was on them; `parts` sees to it
that nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from lastiterate.cluster.connections import asks_for_credentials, warn_of_ray
from lastiterate.cluster.parts import Answer, Ask, Fact, Failed, Held, Keep, Workers
from lastiterate.description.batches import Rows
from lastiterate.errors import AssumptionError, DescriptionError, LastIterateError

_RETRIES = 20  # of one piece of work whose worker was lost


def columns_of(dataset: Any) -> list[str]:
    """The names of its columns."""
    if callable(getattr(dataset, "schema", None)):  # Ray reads files for it
        return list(dataset.schema().names)
    names = getattr(dataset, "column_names", None)
    return list(dataset.columns if names is None else names)


def workers_of(dataset: Any) -> Workers:
    """The engine of this data set."""
    home, kind = type(dataset).__module__.partition(".")[0], type(dataset).__name__
    if home == "ray" and kind in ("Dataset", "MaterializedDataset"):
        return RayWorkers(dataset)
    if home.startswith("dask") and kind == "DataFrame":
        return DaskWorkers(dataset)
    if home == "pyspark" and kind == "DataFrame":
        return SparkWorkers(dataset)
    if (home, kind) in (("pandas", "DataFrame"), ("pyarrow", "Table")):
        return Alone([dataset])
    raise DescriptionError(
        "dataset",
        f"{type(dataset).__module__}.{kind}",
        "a Dataset of Ray, a DataFrame of Dask, Spark or pandas, or a Table of Arrow",
        "its parts are summed where they lie",
    )


class Alone(Workers):
    """All parts in this process: what every cluster equals, bit for bit."""

    def __init__(self, frames: list[Any]) -> None:
        self._frames = frames
        self._held: list[Held | Failed] = []

    def keep(self, job: Keep) -> list[Fact | Failed]:
        self._held = [job(k, frame) for k, frame in enumerate(self._frames)]
        return [_fact(held) for held in self._held]

    def ask(self, job: Ask, rows: dict[int, Rows]) -> Iterator[Answer | Failed]:
        for part, some in rows.items():
            yield job(self._held[part], some)


def _fact(held: Held | Failed) -> Fact | Failed:
    return held if isinstance(held, Failed) else held.fact


def _do(job: Callable[..., Any], *what: Any) -> Any:
    """Ray and Dask know functions by their names."""
    return job(*what)


class RayWorkers(Workers):
    """Blocks of a Ray data set in its object store, summed by tasks."""

    def __init__(self, dataset: Any) -> None:
        import ray

        self._ray, self._dataset = ray, dataset
        if not asks_for_credentials():
            warn_of_ray(ray.get_runtime_context().gcs_address)
        task: Any = ray.remote(_do)
        self._task = task.options(max_retries=_RETRIES)
        self._held: list[Any] = []

    def keep(self, job: Keep) -> list[Fact | Failed]:
        shared = self._ray.put(job)
        blocks = self._dataset.to_arrow_refs()
        self._held = [self._task.remote(shared, k, block) for k, block in enumerate(blocks)]
        fact = self._ray.put(_fact)
        facts: list[Fact | Failed] = self._ray.get([self._task.remote(fact, h) for h in self._held])
        return facts

    def ask(self, job: Ask, rows: dict[int, Rows]) -> Iterable[Answer | Failed]:
        shared = self._ray.put(job)
        asked = [self._task.remote(shared, self._held[part], some) for part, some in rows.items()]
        found: list[Answer | Failed] = self._ray.get(asked)
        return found


class DaskWorkers(Workers):
    """Partitions of a Dask data frame in the memory of its workers."""

    def __init__(self, frame: Any) -> None:
        import distributed

        get: Any = distributed.get_client
        try:
            self._client: Any = get()
        except ValueError:
            raise DescriptionError(
                "dataset",
                "a data frame of Dask without a cluster",
                "one with a distributed.Client (lastiterate.cluster.local('dask') starts one)",
                "its parts are summed where they lie",
            ) from None
        self._frame = frame
        self._held: list[Any] = []

    def keep(self, job: Keep) -> list[Fact | Failed]:
        frames = self._client.compute(list(self._frame.to_delayed()))
        told = {"pure": False, "retries": _RETRIES}
        self._held = [
            self._client.submit(_do, job, k, frame, **told) for k, frame in enumerate(frames)
        ]
        facts = [self._client.submit(_fact, held, **told) for held in self._held]
        found: list[Fact | Failed] = self._client.gather(facts)
        return found

    def ask(self, job: Ask, rows: dict[int, Rows]) -> list[Answer | Failed]:
        told = {"pure": False, "retries": _RETRIES}
        asked = [
            self._client.submit(_do, job, self._held[part], some, **told)
            for part, some in rows.items()
        ]
        found: list[Answer | Failed] = self._client.gather(asked)
        return found


class SparkWorkers(Workers):
    """Partitions of a Spark data frame, kept by its executors as one row each."""

    def __init__(self, frame: Any) -> None:
        self._frame, self._held = frame, frame

    def keep(self, job: Keep) -> list[Fact | Failed]:
        from pyspark import StorageLevel

        columns = "part int, digest binary, X binary, y binary, failed string"
        kept = self._frame.mapInArrow(_keeping(job), columns)
        self._held = kept.persist(StorageLevel.MEMORY_AND_DISK)
        told = "part", "octet_length(y) div 8 as records", "digest", "failed"
        return [_told(row, _fact_of) for row in self._held.selectExpr(*told).collect()]

    def ask(self, job: Ask, rows: dict[int, Rows]) -> list[Answer | Failed]:
        columns = (
            "part int, records long, digest binary, question long, counted long, total binary, "
            "failed string"
        )
        shared = self._frame.sparkSession.sparkContext.broadcast((job, rows))
        try:
            found = self._held.mapInArrow(_asking(shared), columns).collect()
        finally:
            shared.destroy()
        shape = (2, 3, job.sums.columns, job.sums.objective.outputs())
        return [_told(row, lambda one: _answer_of(one, shape)) for row in found]


def _told(row: Any, read: Callable[[Any], Any]) -> Any:
    return read(row) if row["failed"] is None else Failed(AssumptionError(row["failed"]))


def _fact_of(row: Any) -> Fact:
    return Fact(row["part"], row["records"], bytes(row["digest"]))


def _answer_of(row: Any, shape: tuple[int, ...]) -> Answer:
    total = np.frombuffer(row["total"], np.int64).reshape(shape)
    return Answer(_fact_of(row), row["question"], row["counted"], total)


def _row(**cells: Any) -> Any:
    """One row of a batch of Arrow; whatever is not given is missing."""
    import pyarrow

    kinds = {int: pyarrow.int64(), bytes: pyarrow.binary(), str: pyarrow.string()}
    kinds_of = {"part": pyarrow.int32()}
    arrays = {
        name: pyarrow.array([value], kinds_of.get(name, kinds[kind]))
        for name, (kind, value) in cells.items()
    }
    return pyarrow.RecordBatch.from_pydict(arrays)


def _failed(found: Held | Answer | Failed) -> str | None:
    """Why; the words of other people's errors may show cells."""
    if not isinstance(found, Failed):
        return None
    if isinstance(found.error, LastIterateError):
        return str(found.error)
    return f"A worker could not read its part of the data set: {type(found.error).__name__}."


def _keeping(job: Keep) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def keep(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        found, context = list(batches), TaskContext.get()
        if not found or context is None:
            return
        held = job(context.partitionId(), pyarrow.Table.from_batches(found))
        whole = None if isinstance(held, Failed) else held
        yield _row(
            part=(int, context.partitionId()),
            digest=(bytes, whole and whole.fact.digest),
            X=(bytes, whole and whole.X.tobytes()),
            y=(bytes, whole and whole.y.astype(np.float64).tobytes()),
            failed=(str, _failed(held)),
        )

    return keep


def _asking(shared: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        job, rows = shared.value
        for row in (row for batch in batches for row in batch.to_pylist()):
            if row["part"] not in rows:
                continue
            y = np.frombuffer(row["y"])
            X = np.frombuffer(row["X"], np.float32).reshape(len(y), job.sums.columns)
            fact = Fact(row["part"], len(y), row["digest"])
            found = job(Held(fact, X, job.sums.objective.targets(y)), rows[fact.part])
            answer = None if isinstance(found, Failed) else found
            yield _row(
                part=(int, fact.part),
                records=(int, fact.records),
                digest=(bytes, fact.digest),
                question=(int, answer and answer.question),
                counted=(int, answer and answer.counted),
                total=(bytes, answer and answer.total.tobytes()),
                failed=(str, _failed(found)),
            )

    return ask
