"""The interim hump of SGLD: private at the start, private at convergence, not in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lastiterate.printing import printed, printed_down
from lastiterate.report.style import BELOW, FROM_BELOW, SHADE, blank, log_axis, pens

if TYPE_CHECKING:
    from lastiterate.sampling.interim import InterimPrivacy
    from lastiterate.sampling.posterior import PosteriorPrivacy


def interim_hump(interim: InterimPrivacy, posterior: PosteriorPrivacy | None = None) -> Any:
    """Lower bounds on the epsilon of cyclic SGLD after each epoch, over one posterior sample.

    Below the upper line everything is refuted: releasing that iterate is not private there.

    >>> from lastiterate.sampling import interim_privacy
    >>> interim = interim_privacy(17_864_389, 2, 1, 1.8, 17_864_389**1.145578, 30, 1e-3)
    >>> interim.plot().layout.title.text
    'SGLD leaks most after epoch 25: epsilon is at least 3950'
    """
    peak = printed_down(float(np.max(interim.exact)), 3)
    pen = pens()
    title = f"SGLD leaks most after epoch {interim.peak}: epsilon is at least {peak}"
    level = None if posterior is None else posterior.epsilon(interim.delta)
    figure = blank(
        title,
        "epoch",
        f"epsilon at delta = {printed(interim.delta)}",
        "" if level is None else f"one sample of the converged posterior: at most {printed(level)}",
        legend=BELOW,
    )
    shown: list[float] = []
    for name, values in (
        ("SGLD, exact mixture (at least)", interim.exact),
        ("SGLD, Heller & Fetaya's Chernoff bound (at least)", interim.chernoff),
    ):
        own = next(pen)
        figure.add_scatter(
            x=interim.epoch,
            y=np.where(values > 0, values, np.nan),
            name=name,
            mode="lines+markers",
            line=own.line,
            marker=own.markers(15),
            fill="tozeroy" if values is interim.exact else "none",
            fillcolor=SHADE,
            meta=FROM_BELOW,
            customdata=[printed_down(value) for value in values],
            hovertemplate="epoch %{x}: at least %{customdata}",
        )
        shown += [float(value) for value in values if value > 0]
    if level is not None:
        figure.add_scatter(
            x=interim.epoch[[0, -1]],
            y=[level, level],
            mode="lines",
            name="one posterior sample (at most)",
            line=next(pen).line,
            hovertemplate=f"at most {printed(level)}",
        )
        shown.append(level)
    figure.update_yaxes(log_axis(shown))
    return figure
