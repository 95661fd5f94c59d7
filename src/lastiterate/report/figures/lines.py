"""Any named lines, in the style of all other figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lastiterate.errors import DescriptionError
from lastiterate.report.style import blank, log_axis, pens

Line = tuple[Sequence[float], Sequence[float]]


def line_figure(
    lines: Mapping[str, Line],
    title: str,
    x: str,
    y: str,
    *,
    subtitle: str = "",
    logarithmic: Iterable[str] = (),
) -> Any:
    """Named lines; the first is drawn on top with the widest pen.

    Args:
        lines: name -> (points on the x axis, values).
        title: what the figure shows, as a sentence.
        x: name and unit of the x axis.
        y: name and unit of the y axis.
        subtitle: a second line under the title.
        logarithmic: which axes are: "x", "y" or both.

    >>> figure = line_figure({"one": ([1, 2], [3, 4])}, "It grows", "steps", "epsilon")
    >>> figure.data[0].name
    'one'
    """
    axes = set(logarithmic)
    if not axes <= {"x", "y"}:
        allowed = "a choice of 'x' and 'y'"
        raise DescriptionError("logarithmic", sorted(axes), allowed, "a figure has these axes")
    figure = blank(title, x, y, subtitle, legend_traceorder="reversed")
    for pen, (name, (xs, ys)) in reversed(list(zip(pens(), lines.items(), strict=False))):
        figure.add_scatter(
            x=list(xs),
            y=list(ys),
            name=name,
            mode="lines+markers",
            line=pen.line,
            marker=pen.markers(8),
            # All digits: nobody knows here whether up or down is the safe side.
            customdata=[repr(float(value)) for value in ys],
            hovertemplate="%{x:.4g}: %{customdata}",
        )
    if "x" in axes:
        figure.update_xaxes(log_axis([v for xs, _ in lines.values() for v in xs]))
    if "y" in axes:
        figure.update_yaxes(log_axis([v for _, ys in lines.values() for v in ys]))
    return figure
