"""Every bound on one run, side by side."""

from __future__ import annotations

import math
from typing import Any

from lastiterate.accounting import Comparison, Row
from lastiterate.bounds.lower import lower_reference
from lastiterate.printing import printed, printed_down
from lastiterate.report.style import BAR, BELOW, FROM_BELOW, INK, blank, log_axis, marked

_HEIGHT_OF_A_BAR = 34  # pixels


def comparison_bars(comparison: Comparison) -> Any:
    """A bar for every applicable bound, tightest on top.

    The dotted line is what some loss of the declared class really suffers; the hatched bar is
    what most accountants would charge for another algorithm (Poisson batches), not for this run.

    >>> from lastiterate import FullBatch, Loss, Training, compare
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch())
    >>> compare(run, Loss(smoothness=1.0, strong_convexity=1.0)).plot().layout.title.text
    'epsilon = 1.336 by Shifted interpolation (Bok, Su & Altschuler 2024), the tightest of 9 bounds'
    """
    delta, best = comparison.delta, comparison[0]
    plot = _HEIGHT_OF_A_BAR * (len(comparison) + len(comparison.other_algorithms)) + 20
    figure = blank(
        f"epsilon = {printed(best.epsilon)} by {best.theorem.name}"
        + (f", the tightest of {len(comparison)} bounds" if len(comparison) > 1 else ""),
        f"epsilon at delta = {printed(delta)}",
        "",
        legend={**BELOW, "y": -55 / plot},
        bargap=0.3,
        height=plot + 185,
        margin={"t": 85, "b": 100},
    )
    _bars(figure, comparison.rows, "sound bound", "")
    _bars(figure, comparison.other_algorithms, "* another run: Poisson batches of this size", "/")
    lower = lower_reference(comparison.run)(delta)
    shown = [row.epsilon for row in (*comparison.rows, *comparison.other_algorithms)]
    if 0 < lower < math.inf:
        figure.add_scatter(
            x=[lower, lower],
            y=[_name(comparison.rows[-1]), _name(best)],
            mode="lines",
            name="some loss really suffers this",
            meta=FROM_BELOW,
            hovertemplate=f"at least {printed_down(lower)}",
            line={"color": INK, "dash": "2px,4px", "width": 2},
        )
        shown.append(lower)
    axis = log_axis(shown)
    if "range" in axis:  # bars start at the left edge, numbers stand right of them
        low, high = axis["range"]
        axis["range"] = [low - 0.25 * (high - low), high + 0.2 * (high - low)]
    figure.update_xaxes(axis)
    figure.update_yaxes(autorange="reversed", ticks="", showgrid=False)
    return marked(figure, comparison.provenance)


def _name(row: Row) -> str:
    return row.theorem.name


def _bars(figure: Any, rows: tuple[Row, ...], name: str, pattern: str) -> None:
    finite = [row for row in rows if 0 < row.epsilon < math.inf]
    if finite:
        figure.add_bar(
            x=[row.epsilon for row in finite],
            y=[_name(row) + (" *" if pattern else "") for row in finite],
            orientation="h",
            name=name,
            text=[printed(row.epsilon) for row in finite],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: epsilon %{text}",
            marker={
                "color": BAR,
                "line": {"color": INK, "width": 1},
                "pattern": {"shape": pattern, "fgcolor": INK},
            },
        )
