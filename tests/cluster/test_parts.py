"""Parts of a data set: counted once each, whoever answers twice, and the same in any division."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lastiterate import account, cluster
from lastiterate.cluster.engines import Alone
from lastiterate.cluster.parts import Keep, SpreadRecords
from lastiterate.errors import (
    AssumptionError,
    DescriptionError,
    LastIterateError,
    UnsupportedError,
)
from lastiterate.models import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)

pa = pytest.importorskip("pyarrow")

N, FEATURES = 600, ["a", "b", "c"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    kind = np.array(["x", "y", "z"])[X.argmax(axis=1)]
    return pd.DataFrame(X, columns=FEATURES).assign(kind=kind)


def model(kind: Any = PrivateSoftmaxRegression, **changes: Any) -> Any:
    given = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0, "steps": 24, "batch_size": 100}
    if kind is PrivateSoftmaxRegression:
        given["cap"] = 0.5
    if kind is not PrivateRidge:
        given["classes"] = ["x", "y", "z"]
    return kind(**{**given, **changes})


def spread(workers: Any, told: Any, label: str = "kind") -> Any:
    """As `cluster.fit` does, on workers of our own."""
    reader = told._reader(FEATURES)
    records = SpreadRecords(workers, Keep(reader, reader.sums, FEATURES, label))
    return told._fit_elsewhere(records, FEATURES)


def cut(frame: pd.DataFrame, cuts: list[int]) -> list[pd.DataFrame]:
    ends = [0, *cuts, len(frame)]
    return [frame[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (PrivateSoftmaxRegression, {}),
        (PrivateLogisticRegression, {"feature_bound": 1.5}),
        (PrivateLinearSVC, {"fit_intercept": False}),
        (PrivateSoftmaxRegression, {"batch_size": N, "steps": 5}),
    ],
)
def test_any_division_is_the_same_model(kind: Any, more: Any, frame: Any) -> None:
    alone = cluster.fit(frame, model(kind, **more), label="kind")
    for cuts in ([], [300], [0, 1, 1, 599], [7, 150, 151, 400]):
        parts: list[Any] = [*cut(frame, cuts), frame[:0].astype({"a": object})]  # as engines do
        other = spread(Alone(parts), model(kind, **more))
        assert other.coef_.tobytes() == alone.coef_.tobytes()
        assert other.training_ == alone.training_
    table = cluster.fit(pa.Table.from_pandas(frame), model(kind, **more), label="kind")
    assert table.coef_.tobytes() == alone.coef_.tobytes()


def test_it_is_the_model_of_fit_and_certified(frame: Any) -> None:
    """But for features that are rounded to 23 bits."""
    found = cluster.fit(frame, model(), label="kind")
    same = model(prepare=None).fit(frame[FEATURES], frame["kind"])
    assert found.coef_ == pytest.approx(same.coef_, abs=1e-5)
    assert found.training_.batches == same.training_.batches
    secret = cluster.fit(frame, model(random_state=None), label="kind")
    assert secret.certificate_.epsilon <= 2.0
    assert account(secret.training_, secret.loss_).epsilon(1e-5) <= 2.0
    numbers = cluster.fit(frame[FEATURES], model(PrivateRidge), label="a")
    assert list(numbers.feature_names_in_) == ["b", "c"]


class Twice(Alone):
    """Every part answers twice, the last first, as after a retry whose first answer was late."""

    def ask(self, job: Any, rows: Any) -> Any:
        yield from reversed(list(super().ask(job, rows)))
        yield from super().ask(job, rows)


class Silent(Alone):
    """One part is lost."""

    def ask(self, job: Any, rows: Any) -> Any:
        return list(super().ask(job, rows))[1:]


class Anew(Alone):
    """A part is computed again, and has its records in another order, or others."""

    def ask(self, job: Any, rows: Any) -> Any:
        frames = [frame.sample(frac=1, random_state=1) for frame in self._frames]
        self._held = [KEEP[0](k, frame) for k, frame in enumerate(frames)]
        return super().ask(job, rows)

    def keep(self, job: Any) -> Any:
        KEEP[:] = [job]
        return super().keep(job)


class Recut(Alone):
    """A retry divides the same records in another way."""

    def ask(self, job: Any, rows: Any) -> Any:
        whole = pd.concat(self._frames)
        self._held = [KEEP[0](k, frame) for k, frame in enumerate(cut(whole, [250, 300]))]
        return super().ask(job, rows)

    def keep(self, job: Any) -> Any:
        KEEP[:] = [job]
        return super().keep(job)


class Late(Alone):
    """The answers of the update before."""

    before: Any = None

    def ask(self, job: Any, rows: Any) -> Any:
        now = list(super().ask(job, rows))
        late, self.before = self.before or now, now
        return [old._replace(counted=new.counted) for old, new in zip(late, now, strict=True)]


class Unlike(Twice):
    """A second answer with another sum, as other processors give."""

    def ask(self, job: Any, rows: Any) -> Any:
        found = list(super().ask(job, rows))
        return [*found[:-1], found[-1]._replace(total=found[-1].total + 1)]


class Doubtful(Alone):
    """A part is kept twice, the second time with other records."""

    def keep(self, job: Any) -> Any:
        found = super().keep(job)
        return [*found, found[0]._replace(digest=b"other")]


class Fewer(Alone):
    """A part forgets records of the batch."""

    def ask(self, job: Any, rows: Any) -> Any:
        return super().ask(job, {part: some[:-1] for part, some in rows.items()})


KEEP: list[Any] = []


def test_an_answer_that_comes_twice_counts_once(frame: Any) -> None:
    alone = cluster.fit(frame, model(), label="kind")
    found = spread(Twice(cut(frame, [200, 300])), model())
    assert found.coef_.tobytes() == alone.coef_.tobytes()


@pytest.mark.parametrize("workers", [Silent, Anew, Fewer, Recut, Late, Unlike, Doubtful])
def test_records_that_are_lost_or_others_end_the_run(workers: Any, frame: Any) -> None:
    told = model()
    with pytest.raises(AssumptionError, match="Nothing was released"):
        spread(workers(cut(frame, [200, 300])), told)
    assert not hasattr(told, "coef_")


@pytest.mark.parametrize("when", ["keep", "ask"])
def test_workers_with_other_versions_are_refused(when: str, frame: Any) -> None:
    class Other(Alone):
        """Its workers were given the job by somebody with another NumPy."""

        def keep(self, job: Any) -> Any:
            return super().keep(replace(job, made_with="NumPy 1") if when == "keep" else job)

        def ask(self, job: Any, rows: Any) -> Any:
            return super().ask(replace(job, made_with="NumPy 1"), rows)

    with pytest.raises(
        AssumptionError, match=f"has lastiterate .*{np.__version__}.*NumPy 1: .*same"
    ):
        spread(Other(cut(frame, [200])), model())


@pytest.mark.parametrize(
    "hurt",
    [
        {"a": np.nan},
        {"b": -np.inf},
        {"a": "SECRET"},
        {"a": [1.0, "SECRET"] * 50},
        {"b": [["SECRET"]] * 100},
        {"kind": "SECRET"},
        {"kind": [None, "SECRET"] * 50},
        {"c": None},
    ],
    ids=[f"hurt {k}" for k in range(8)],
)
def test_hostile_rows_in_one_part_end_the_run(hurt: Any, frame: Any) -> None:
    told, pieces = model(), cut(frame, [200, 300])
    pieces[1] = pieces[1].assign(**hurt)
    with pytest.raises(LastIterateError) as said:
        spread(Alone(pieces), told)
    assert "SECRET" not in f"{said.value} {said.value.__cause__} {said.value.__context__}"
    assert not hasattr(told, "coef_")


def test_a_part_with_other_columns_ends_the_run(frame: Any) -> None:
    first, last = cut(frame, [200])
    for other in (last.drop(columns="b"), last.rename(columns={"kind": "sort"})):
        with pytest.raises(AssumptionError, match="Nothing was released"):
            spread(Alone([first, other]), model())


def test_what_cannot_be_trained_on_is_refused(frame: Any) -> None:
    def refused(match: str, error: Any = DescriptionError, data: Any = frame, **how: Any) -> str:
        label, told = how.pop("label", "kind"), how.pop("told", None)
        with pytest.raises(error, match=match) as said:
            cluster.fit(data, told or model(**how), label=label)
        return str(said.value)

    refused("one of its columns", label="none")
    refused("an estimator", told=object())
    refused("a Dataset of Ray", data=[[1.0]])
    refused("declared in advance", classes=None)
    refused("in memory", UnsupportedError, max_records_per_group=2)
    refused("leave it out", UnsupportedError, class_weight={"x": 2.0})
    refused("outside of the declared", classes=["x", "y"])
    refused("empty", data=frame[:0])
    said = refused("'a'.*numbers", data=frame.assign(a="SECRET"))
    assert "SECRET" not in said
    refused("missing values", AssumptionError, data=frame.assign(kind=[None, *frame["kind"][1:]]))
    holes = frame.assign(a=frame["a"].where(frame["a"] < 2))
    refused("missing values|NaN", ValueError, data=holes)
    refused("infinity|NaN", ValueError, data=frame.assign(a=np.inf))
    for engine, workers in (("flink", 2), ("dask", 0)):
        with pytest.raises(DescriptionError), cluster.local(engine, workers):
            pass
