"""Where a refuted composition theorem claims less than the optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from lastiterate.published.composition import ViolatedRegion
from lastiterate.report.style import blank


def violated_region_figure(region: ViolatedRegion, delta: int = 0, slack: int = 0) -> Any:
    """A Plotly map of claimed/optimal delta' over epsilon and rounds; below 1 the claim is false.

    ``delta`` and ``slack`` choose the plane by index.

    >>> from lastiterate.published.composition import violated_region
    >>> region = violated_region([0.1, 1.0], [10, 1000], [1e-5], [1e-6])
    >>> violated_region_figure(region).data[0].z.shape
    (2, 2)
    """
    ratio = region.ratio[:, :, delta, slack]
    false = region.violated[:, :, delta, slack]
    plane = f"delta = {region.deltas[delta]:g}, slack = {region.slacks[slack]:g}"
    figure = blank(
        "He, Wang & Tao 2020, Theorem 4 claims less than the optimum in "
        f"{int(false.sum())} of {false.size} cases",
        "rounds",
        "epsilon per round",
        f"claimed over optimal delta', {plane}",
    )
    figure.add_trace(
        go.Heatmap(
            x=[f"{rounds:g}" for rounds in region.rounds],
            y=[f"{epsilon:g}" for epsilon in region.epsilons],
            z=ratio,
            text=np.where(false, "false", "holds"),
            texttemplate="%{text}",
            colorscale=[[0.0, "#3a3a3a"], [1.0, "#ffffff"]],
            zmin=float(np.nanmin(ratio)),
            zmax=max(1.0, float(np.nanmin(ratio))),
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": "claimed/optimal"}, "outlinewidth": 0},
            hovertemplate="%{x} rounds, epsilon %{y}: claimed/optimal %{z:.3g}<extra></extra>",
        )
    )
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    return figure
