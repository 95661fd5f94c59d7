"""Accuracy against passes over the data: our runs and Poisson DP-SGD, both tuned, equal epsilon.

    PYTHONPATH=src:. python3 benchmarks/gpu/passes.py [mnist] [adult]

Adult and MNIST as in `datasets` (rows of norm 1). For every epsilon and number of passes each
method has its own best batch size, step size and clip (ours: cap of the loss), DP-SGD also its
momentum, picked on the test score; what is shown is the mean accuracy of further runs of that
setting. A run of fewer passes is calibrated for these passes, no prefix of a longer one.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config
from scipy import sparse

from benchmarks import datasets
from benchmarks.gpu.many_runs import Problem, best_of, hidden_runs, poisson_runs
from benchmarks.poisson_noise import multiplier
from lastiterate import Loss, Training
from lastiterate.accounting.calibration import calibrate
from lastiterate.losses import CappedLogistic, CappedSoftmax
from lastiterate.models.choose import choose

RESULTS = Path(__file__).parents[1] / "results" / "gpu_passes.json"
EPSILONS = (0.5, 1.0, 4.0)
PASSES = (1, 2, 3, 5, 8, 12, 20, 40)
BATCHES = (1, 10, 50, 200, 1000, 3000)  # in a pass
SIZES = (1.9, 0.95, 0.4, 0.15, 0.05)  # ours, times smoothness
CAPS = (0.05, 0.1, 0.2, 0.5)  # ours: what wrong classes may have
TRAVELS = tuple(10.0 ** (k / 2) for k in range(1, 11))  # of DP-SGD: steps times size
CLIPS = (0.1, 0.3, 0.7)
MOMENTA = (0.0, 0.9)
AGAIN, MOST_STEPS = 5, 40_000


def curves(data: datasets.Data) -> Iterator[list[dict[str, Any]]]:
    """A row for each method, epsilon and number of passes: what was found so far, ever better."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = "classes" if data.name == "MNIST" else "binary"
    tables = [x.toarray() if sparse.issparse(x) else x for x in (data.train, data.test)]
    split = (tables[0], tables[1], data.labels, data.test_labels)
    problem = Problem.of([split], kind, device, ones=False)
    best: dict[Any, dict[str, Any]] = {}
    for batches, method in itertools.product(BATCHES, (_ours, _poisson)):
        start = time.perf_counter()
        for (epsilon, passes), (setting, score) in method(data, problem, batches).items():
            name = "ours" if method is _ours else "Poisson DP-SGD"
            row = {"data": data.name, "method": name, "epsilon": epsilon, "passes": passes}
            row |= {"accuracy": round(100 * score, 3), "setting": {"batches": batches, **setting}}
            key = (name, epsilon, passes)
            if key not in best or row["accuracy"] > best[key]["accuracy"]:
                best[key] = row
        seconds = time.perf_counter() - start
        print(f"{data.name}, {batches} batches, {method.__name__}: {seconds:.1f} s", flush=True)
        yield list(best.values())


def _passes(batches: int) -> tuple[int, ...]:
    return tuple(p for p in PASSES if p * batches <= MOST_STEPS)


def _ours(data: Any, problem: Problem, batches: int) -> dict[Any, Any]:
    _, n, columns = problem.X.shape
    count = n // (n // batches)  # what is left of the records is one batch more
    settings = list(itertools.product(EPSILONS, _passes(batches), SIZES, CAPS))
    fixed = (n, count, columns, problem.outputs, data.delta)
    runs = Parallel()(delayed(_calibrated)(*fixed, *each) for each in settings)
    train = functools.partial(hidden_runs, problem, count, runs)
    best = best_of(train, problem, [each[:2] for each in settings], AGAIN)
    return {
        group: ({"size": settings[i][2], "cap": settings[i][3]}, score)
        for group, (i, score) in best.items()
    }


def _calibrated(
    records: int,
    batches: int,
    columns: int,
    outputs: int,
    delta: float,
    epsilon: float,
    passes: int,
    size: float,
    cap: float,
) -> tuple[Training, Loss, float]:
    choice = choose(
        CappedSoftmax(outputs, cap) if outputs > 1 else CappedLogistic(cap),
        records=records,
        row_norm=1.0,
        epsilon=epsilon,
        delta=delta,
        steps=passes * batches,
        batch_size=records // batches,
        learning_time=size * passes * batches,
        dimension=columns * outputs,
    )
    return calibrate(choice.training, choice.loss, epsilon, delta), choice.loss, cap


def _poisson(data: Any, problem: Problem, batches: int) -> dict[Any, Any]:
    grid = (EPSILONS, _passes(batches), TRAVELS, CLIPS, MOMENTA)
    settings = list(itertools.product(*grid))

    runs = {
        "steps": [p * batches for _, p, _, _, _ in settings],
        "size": [t / (p * batches) * (1 - m) for _, p, t, _, m in settings],
        "clip": [c for _, _, _, c, _ in settings],
        "momentum": [m for *_, m in settings],
        "noise": [multiplier(1 / batches, p * batches, e, data.delta) for e, p, *_ in settings],
    }
    train = functools.partial(poisson_runs, problem, 1 / batches, runs)
    best = best_of(train, problem, [each[:2] for each in settings], AGAIN)
    names = ("travel", "clip", "momentum")
    return {
        group: (dict(zip(names, settings[i][2:], strict=True)), score)
        for group, (i, score) in best.items()
    }


def main(*wanted: str) -> None:
    """Both data sets or the one named; what was found so far is saved."""
    torch.backends.cuda.matmul.allow_tf32 = False
    for load in (datasets.mnist, datasets.adult):
        if wanted and load.__name__ not in wanted:
            continue
        data = load()
        saved = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": []}
        others = [row for row in saved["rows"] if row["data"] != data.name]
        with parallel_config(n_jobs=-1):
            for found in curves(data):
                machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
                saved = {"machine": {"device": machine}, "rows": others + found}
                RESULTS.write_text(json.dumps(saved, indent=1, default=float) + "\n")


if __name__ == "__main__":
    from benchmarks.gpu.passes import main as importable  # for the workers

    importable(*sys.argv[1:])
