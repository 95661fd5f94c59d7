"""Chien & Li 2025, Figures 1(a) and 1(b): smooth losses on a bounded domain.

The setting: smoothness and strong convexity 1, gradients of norm at most 2, noise 1, diameter 1,
n = 5, step size 0.1. (a) compares what non-convex, convex and strongly convex losses cost; the
paper's "output perturbation", alpha D^2/(2 sigma^2), is true in this setting and false in general
(the gradient step moves before the noise); it is drawn beside the line that always holds. (b)
compares bounds for strongly convex losses; quadratic ones attain shifted interpolation (without the
projection). The paper quotes Altschuler and Talwar's bound without its constants: theirs is drawn
with the constants of their argument, the diameter and half of the noise for each part.

    python examples/gallery_chien_li_figure1.py [FOLDER]
"""

from __future__ import annotations

import numpy as np
from gallery import keep, line_figure

from lastiterate import FullBatch, Loss, Training, compare, theorems
from lastiterate.published.chien_li import altschuler_talwar, output_perturbation_coefficient
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
STRONGLY_CONVEX = Loss(smoothness=1.0, strong_convexity=1.0)
CLASSES = {
    "strongly convex": STRONGLY_CONVEX,
    "convex": Loss(smoothness=1.0),
    "non-convex": Loss.nonconvex(smoothness=1.0),
}
NAMES = {theorem.key: theorem.name for theorem in theorems()}
AXES = ("steps T", "Renyi divergence of any order / order")


def bounds(run: Training, loss: Loss) -> dict[str, float]:
    """Every applicable bound: divergence over order (all of them are linear in the order)."""
    return {
        row.theorem.key: row.bound.curve.rdp(2.0) / 2
        for row in compare(run, loss, published=True)
        if row.bound is not None
    }


def figures(points: int = 40) -> dict[str, FigureData]:
    steps = np.unique(np.geomspace(1, RUN.steps, points).round().astype(int)).tolist()
    table = {
        name: [bounds(RUN.replace(steps=t), loss) for t in steps] for name, loss in CLASSES.items()
    }
    tightest = {
        f"{name}, exact optimum": (steps, [min(row.values()) for row in rows])
        for name, rows in table.items()
    }
    published = output_perturbation_coefficient(RUN.diameter, 1.0)
    convex = table["convex"]
    classes = line_figure(
        {
            **tightest,
            "composition": (steps, [row["gaussian-composition"] for row in convex]),
            "output perturbation": (steps, [row["output-perturbation"] for row in convex]),
            "the same as published (true here, not in general)": (steps, [published] * len(steps)),
        },
        "On a bounded domain the loss stops growing, even without convexity",
        *AXES,
        subtitle="Chien & Li 2025, Figure 1(a)",
        log="xy",
    )
    rows = table["strongly convex"]
    keys = (
        "taut-string",
        "ye-shokri-2022-d6-sharper",
        "chien-li-2025-3.1",
        "ye-shokri-2022-d6",
        "chourasia-ye-shokri-2021-corollary-1",
        "gaussian-composition",
    )
    ratio = max(row["chien-li-2025-3.1"] / row["taut-string"] for row in rows)
    drawn = {NAMES[key]: (steps, [row[key] for row in rows]) for key in keys}
    eta = float(RUN.step_sizes[0])
    c, s = 1 - eta, eta * RUN.sensitivity / RUN.records
    theirs = [altschuler_talwar(c, s, 1.0, t, RUN.diameter) for t in steps]
    compared = line_figure(
        drawn | {"Altschuler & Talwar 2022 (constants of their argument)": (steps, theirs)},
        f"The paper's bound is up to {ratio - 1:.1%} above what quadratic losses really lose",
        *AXES,
        subtitle="Chien & Li 2025, Figure 1(b), strongly convex losses",
        log="xy",
    )
    return {"chien_li_figure1a": classes, "chien_li_figure1b": compared}


if __name__ == "__main__":
    keep(figures(), __doc__)
