"""Chien & Li 2025, Figure 2(a): what Hoelder regularity of a network would buy.

A network of two layers with 64 hidden units on Iris, step 0.1, 200 epochs, clip 1, loss x 0.1, 20
initialisations; `holder_iris.py --out` measured its Hoelder constants along the runs (kept in
results/), and they are put into the setting of Chien & Li's Figure 1. Two pictures. As the paper
describes it, points are uniform in a ball of radius 1: in 500 dimensions all of them lie near the
rim, every exponent gets the same constant, and smoothness (exponent 1) costs least, unlike in Chien
& Li's figure. With distances down to 1/1000 rougher exponents do cost less, as the paper says. The
order that it plots is not named; order 2 is drawn. Measured constants are no guarantee, and
`certify` refuses such a loss.

    python examples/gallery_chien_li_figure2a.py [FOLDER]
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
from gallery import keep, line_figure

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.report import FigureData

RUN = Training(
    records=5,
    steps=200,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    diameter=1.0,
    adjacency="replace",
)
RESULTS = Path(__file__).parent / "results"
ORDER = 2.0


def line(loss: Loss, steps: list[int]) -> tuple[list[int], list[float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it rests on an estimate: the figure says so
        return steps, [account(RUN.replace(steps=t), loss).rdp(ORDER) for t in steps]


def figures(points: int = 16, folder: Path = RESULTS) -> dict[str, FigureData]:
    steps = np.unique(np.linspace(40, RUN.steps, points).round().astype(int)).tolist()
    drawn = {}
    for name in ("chien_li_figure2a", "chien_li_figure2a_distances"):
        found = json.loads((folder / f"{name}.json").read_text())
        lines = {
            f"exponent {p}, constant {constant:.3f}": line(
                Loss.holder(constant=constant, exponent=float(p), provenance="estimated"), steps
            )
            for p, constant in sorted(found["constants"].items(), reverse=True)
        }
        best = min(lines, key=lambda one: lines[one][1][-1]).split(",")[0]
        lines["composition"] = line(Loss.unknown(), steps)
        least = found["smallest"]
        where = "uniform in a ball" if least is None else f"at distances from {least:g} to 1"
        drawn[name] = line_figure(
            lines,
            f"Points {where}: {best} costs least",
            "steps T",
            f"Renyi divergence of order {ORDER:g}",
            subtitle="NOT A GUARANTEE: the constants were estimated on Iris",
        )
    return drawn


if __name__ == "__main__":
    keep(figures(), __doc__)
