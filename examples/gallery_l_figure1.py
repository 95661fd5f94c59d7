"""L (Chien, Li 2025), Figures 1(a) and 1(b): smooth losses on a bounded domain.

L's setting: smoothness and strong convexity 1, gradients of norm at most 2, noise 1, diameter 1,
n = 5, step size 0.1. (a) compares what non-convex, convex and strongly convex losses cost; L's
"output perturbation", alpha D^2/(2 sigma^2), is false for their update (the gradient step moves
before the noise) and is drawn beside the corrected line. (b) compares bounds for strongly convex
losses; quadratic ones attain shifted interpolation (without the projection). Altschuler and
Talwar's bound of (b) is left out: L quote it without its constants.

    python examples/gallery_l_figure1.py [FOLDER] [--png]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gallery import keep

from lastiterate import FullBatch, Loss, Training, compare
from lastiterate.published.hidden_state import output_perturbation_coefficient
from lastiterate.report import line_figure

RUN = Training(
    records=5,
    steps=200,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    diameter=1.0,
)
STRONGLY_CONVEX = Loss(smoothness=1.0, strong_convexity=1.0)
CLASSES = {
    "strongly convex": STRONGLY_CONVEX,
    "convex": Loss(smoothness=1.0),
    "non-convex": Loss.nonconvex(smoothness=1.0),
}
AXES = ("steps T", "Renyi divergence of any order / order")


def bounds(run: Training, loss: Loss) -> dict[str, float]:
    """Every applicable bound: divergence over order (all of them are linear in the order)."""
    return {
        row.theorem.name: row.bound.curve.rdp(2.0) / 2
        for row in compare(run, loss)
        if row.bound is not None
    }


def figures(points: int = 40) -> dict[str, Any]:
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
            "composition": (steps, [row["Composition"] for row in convex]),
            "output perturbation": (steps, [row["Output perturbation"] for row in convex]),
            "the same as published (false)": (steps, [published] * len(steps)),
        },
        "On a bounded domain the loss stops growing, even without convexity",
        *AXES,
        subtitle="L Figure 1(a)",
        logarithmic="xy",
    )
    rows = table["strongly convex"]
    names = (
        "Shifted interpolation",
        "Y Theorem D.6, sharper",
        "L Theorem 3.1",
        "Y Theorem D.6",
        "C Corollary 1",
        "Composition",
    )
    ratio = max(row["L Theorem 3.1"] / row["Shifted interpolation"] for row in rows)
    compared = line_figure(
        {name: (steps, [row[name] for row in rows]) for name in names},
        f"L's bound is up to {100 * (ratio - 1):.1f} % above what quadratic losses really lose",
        *AXES,
        subtitle="L Figure 1(b), strongly convex losses",
        logarithmic="xy",
    )
    return {"l_figure1a": classes, "l_figure1b": compared}


if __name__ == "__main__":
    keep(figures(), __doc__)
