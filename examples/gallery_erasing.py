"""Forgetting 100 of 11,264 records of MNIST 3 v 8, beside starting again.

(a) Epsilon against clean full-batch steps, for replaced records, as the published code trains
(noise sqrt(2 eta) 0.03, L2 1e-6 n). (b) Test accuracy after the deletion, epsilon = 1:
`benchmarks/erasing.py` measured it (10 noises) and keeps it in `benchmarks/results`.

    python examples/gallery_erasing.py [FOLDER]
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from gallery import keep, line_figure

from lastiterate import Exposure, FullBatch, Loss, Training
from lastiterate.report import FigureData, epsilon_growth

MEASURED = Path(__file__).parents[1] / "benchmarks" / "results" / "erasing_accuracy.json"
RECORDS = 11_264


def run(clean: int) -> tuple[Training, Loss]:
    l2 = 1e-6 * RECORDS
    eta = 1 / (0.25 + l2)
    training = Training(
        records=RECORDS,
        steps=10_000 + clean,
        step_size=eta,
        noise=math.sqrt(2 * eta) * 0.03,
        gradient_norm=1.0,
        batches=FullBatch(),
    )
    return training, Loss(smoothness=0.25, regularization=l2)


def figures(points: int = 40, clean: int = 100) -> dict[str, FigureData]:
    gone = Exposure(records=100, left=10_000)
    fall = epsilon_growth(
        *run(clean), 1 / (10 * RECORDS), exposure=gone, target=1.0, points=points
    )
    measured = json.loads(MEASURED.read_text(encoding="ascii"))["0.001"]
    ways = {
        "ledger, noise first": "noise first, ledger",
        "start again": "start again",
        "plan (worst case), noise first": "noise first, worst case",
        "plan (worst case), noise last": "noise last, worst case",
    }
    lines = {name: (range(1, 101), measured[key][1:]) for name, key in ways.items()}
    first, again = measured["noise first, ledger"], measured["start again"]
    same = next(k for k, value in enumerate(again) if value >= first[1])
    quality = line_figure(
        lines,
        f"One step with the ledger is as good as {same} steps of a restart",
        "steps after the deletion",
        "test accuracy",
        subtitle="MNIST 3 v 8, 100 of 11,264 records, L2 0.001, epsilon = 1",
        log="x",
    )
    return {"erasing_epsilon": fall, "erasing_accuracy": quality}


if __name__ == "__main__":
    keep(figures(), __doc__)
