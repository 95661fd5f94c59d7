"""Bursts, averages and schedules on real data, at equal (epsilon, delta), five seeds each.

Adult and Census-Income (logistic regression, area under the ROC curve) and MNIST (softmax,
accuracy). Every method gets the step size that the public quadratic model of `recommend` chooses,
and the noise that `calibrate` finds; nothing is tuned on the data.

    python examples/own_results_real_data.py [--data adult] [--seeds 5] [--workers 2]
                                             [--methods burst] [--batches 40]

The data are looked for in $LASTITERATE_DATA. A table is written to benchmarks/results/; with
--methods only these columns of it are measured anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the runs themselves are spread over cores

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import datasets

from lastiterate import FullBatch, Shuffled, TailAverage, Training, account
from lastiterate.accounting.recommendation import Alternative, QuadraticModel
from lastiterate.losses import Logistic, Softmax
from lastiterate.train import noisy_descent

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
EPSILONS = (0.1, 0.5, 1.0)
BATCHES = (40, 1000)
EPOCHS = (1, 3, 10)
FULL_STEPS = {"adult": 30, "census": 30, "mnist": 10}
DISTANCE = 5.0  # a public guess of how far the minimum is


@cache
def loaded(name: str) -> datasets.Data:
    """The data set, once per process; images in single precision, a hair inside the unit ball."""
    data = getattr(datasets, name)()
    if name == "mnist":
        images = [(part * (1 - 1e-6)).astype(np.float32) for part in (data.train, data.test)]
        data = dataclasses.replace(data, train=images[0], test=images[1])
    return data


def objective(name: str) -> Logistic | Softmax:
    return Softmax(10) if name == "mnist" else Logistic()


def methods(
    name: str, epsilon: float, only: Sequence[str] = (), sizes: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Every setting of one data set and one epsilon, tuned on the public model and calibrated."""
    data = loaded(name)
    records, features = data.train.shape
    loss = objective(name).regularity(1.0)
    outputs = 10 if name == "mnist" else 1
    model = QuadraticModel(loss, features * outputs, DISTANCE, epsilon, data.delta)
    plain = Training(
        records=records,
        steps=FULL_STEPS[name],
        step_size=1.0,
        noise=1.0,
        batches=FullBatch(),
        gradient_norm=objective(name).gradient_norm(1.0),
        adjacency="zero-out",
    )
    found = []

    def add(batches: str, epochs: int, method: str, tuned: Callable[[], Alternative]) -> None:
        if (only and method not in only) or (sizes and batches not in sizes):
            return
        training = tuned().training
        assert account(training, loss).epsilon(data.delta) <= epsilon
        place = {"data": data.name, "key": name, "epsilon": epsilon, "batches": batches}
        found.append({**place, "epochs": epochs, "method": method, "training": training})

    steps = FULL_STEPS[name]
    add("full", steps, "constant", partial(model.tuned, "", plain))
    average = plain.replace(release=TailAverage(3 * steps // 4))
    add("full", steps, "tail average", partial(model.tuned, "", average))
    add("full", steps, "optimal schedule", partial(model.scheduled, plain))
    for count in BATCHES:
        size = records // count
        per_epoch = records // size
        for epochs in EPOCHS:
            run = plain.replace(batches=Shuffled(size), steps=epochs * per_epoch)
            add(str(count), epochs, "constant", partial(model.tuned, "", run))
            burst = run.replace(final_noise=2.0)
            add(str(count), epochs, "burst", partial(model.tuned, "", burst))
            equal = run.replace(schedule="equalised")
            add(str(count), epochs, "equalised", partial(model.tuned, "", equal))
            both = equal.replace(final_noise=2.0)
            add(str(count), epochs, "equalised + burst", partial(model.tuned, "", both))
            if count == 40 and epochs > 1:
                tail = run.replace(release=TailAverage(per_epoch // 2))
                add(str(count), epochs, "tail average", partial(model.tuned, "", tail))
    return found


def score(job: tuple[str, Training, int]) -> float:
    """Train once, test once: AUC for two classes, accuracy for ten."""
    name, training, seed = job
    data = loaded(name)
    labels = data.labels if name == "mnist" else np.where(data.labels, 1.0, -1.0)
    fitted = noisy_descent(
        objective(name),
        data.train,
        training,
        labels=labels,
        random_state=seed,
        feature_bound=1.0,
        progress=False,
    ).parameters
    margins = data.test @ fitted
    if name == "mnist":
        return float(np.mean(np.argmax(margins, axis=1) == data.test_labels))
    return area_under_curve(np.ravel(margins), data.test_labels)


def area_under_curve(margins: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive outranks a negative (no ties among noisy margins)."""
    ranks = np.empty(len(margins))
    ranks[np.argsort(margins)] = np.arange(1, len(margins) + 1)
    ones = int(positive.sum())
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(ranks) - ones)))


def main() -> None:
    """Tune, run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", default=["adult", "census", "mnist"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", nargs="*", default=[], help="columns; by default all")
    parser.add_argument("--batches", nargs="*", default=[], help="full, 40, 1000; by default all")
    options = parser.parse_args()
    begin = time.perf_counter()
    rows = kept() if options.methods or options.batches else []
    chosen = [options.methods] * 3, [options.batches] * 3
    with ProcessPoolExecutor(options.workers) as pool:
        for name in options.data:
            cases = [c for part in pool.map(methods, [name] * 3, EPSILONS, *chosen) for c in part]
            jobs = [(name, c["training"], seed) for c in cases for seed in range(options.seeds)]
            scores = np.reshape(list(pool.map(score, jobs, chunksize=5)), (len(cases), -1))
            for case, own in zip(cases, scores, strict=True):
                training = case.pop("training")
                deviation = float(own.std(ddof=1)) if len(own) > 1 else math.nan
                case |= {"mean": float(own.mean()), "deviation": deviation}
                case |= {"scores": own.tolist(), "final_noise": training.final_noise}
                rows = [row for row in rows if place(row) != place(case)] + [case]
            print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
            save(rows)
    print(table(rows))


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Which cell of the table a row belongs to."""
    return tuple(row[key] for key in ("data", "epsilon", "batches", "epochs", "method"))


def kept() -> list[dict[str, Any]]:
    """What was measured before."""
    file = RESULTS / "own_results_real_data.json"
    return json.loads(file.read_text()) if file.exists() else []


def save(rows: list[dict[str, Any]]) -> None:
    """The table for people, every score for machines."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "own_results_real_data.md").write_text(table(rows) + "\n")
    (RESULTS / "own_results_real_data.json").write_text(json.dumps(rows, indent=1) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    """One line per setting, one column per method: mean and standard deviation, in percent."""
    names = [
        "constant",
        "burst",
        "equalised",
        "equalised + burst",
        "tail average",
        "optimal schedule",
    ]
    lines = ["| data | epsilon | batches | epochs | " + " | ".join(names) + " |"]
    lines.append("|" + "---|" * (4 + len(names)))
    places = list(dict.fromkeys((r["data"], r["epsilon"], r["batches"], r["epochs"]) for r in rows))
    for place in places:
        here = {
            r["method"]: r
            for r in rows
            if (r["data"], r["epsilon"], r["batches"], r["epochs"]) == place
        }
        best = max(r["mean"] for r in here.values())
        cells = []
        for name in names:
            row = here.get(name)
            cell = f"{100 * row['mean']:.1f} ± {100 * row['deviation']:.1f}" if row else ""
            cells.append(f"**{cell}**" if row and row["mean"] == best else cell)
        lines.append("| " + " | ".join([*map(str, place), *cells]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
