"""Where a refuted composition theorem claims less than the optimum."""

from __future__ import annotations

from typing import Any

import numpy as np

from lastiterate.published.composition import ViolatedRegion


def violated_region_figure(region: ViolatedRegion, delta: int = 0, slack: int = 0) -> Any:
    """A Plotly map of claimed/optimal delta' over epsilon and rounds; below 1 the claim is false.

    ``delta`` and ``slack`` choose the plane by index.

    >>> from lastiterate.published.composition import violated_region
    >>> region = violated_region([0.1, 1.0], [10, 1000], [1e-5], [1e-6])
    >>> violated_region_figure(region).data[0].z.shape
    (2, 2)
    """
    import plotly.graph_objects as go

    ratio = region.ratio[:, :, delta, slack]
    labels = np.where(region.violated[:, :, delta, slack], "false", "holds")
    figure = go.Figure(
        go.Heatmap(
            x=region.rounds,
            y=region.epsilons,
            z=ratio,
            text=labels,
            texttemplate="%{text}",
            colorscale="Greys",
            colorbar={"title": "claimed/optimal"},
        )
    )
    plane = f"delta = {region.deltas[delta]:g}, slack = {region.slacks[slack]:g}"
    figure.update_layout(
        title=f"HWT Theorem 4: claimed over optimal delta' ({plane})",
        xaxis={"title": "rounds", "type": "log"},
        yaxis={"title": "epsilon per round", "type": "log"},
    )
    return figure
