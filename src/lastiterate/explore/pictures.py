"""Figures as Plotly draws them in a browser, from the same data as those of the report."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.report.figures.data import FigureData, Series

_INK, _GREY, _GRID, _SHADE = "#1a1a1a", "#5f5f5f", "#e3e3e3", "rgba(110, 110, 110, 0.2)"
_COLOURS = ("#0b5cad", "#c2500a", "#00765a", "#a03c78", "#7a6200", "#5b4bb5", "#b3252f", "#4d4d4d")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SHAPES = {"steps-pre": "vh", "steps-post": "hv"}
_LETTERS = 32  # of a line of text on a phone


def plotly_figure(figure: FigureData) -> dict[str, Any]:
    """Return a figure as Plotly's JSON; title and subtitle are text of the page, in ``meta``.

    >>> line = Series("run", [1, 2], [0.3, 0.4])
    >>> plotly_figure(FigureData("It grows", "steps", "epsilon", (line,)))["data"][0]["y"]
    [0.3, 0.4]
    """
    traces, bounds = [], 0
    for series in figure.series:
        traces.append(_trace(series, bounds))
        bounds += series.role == "bound"
    first_on_top = not any(series.shaded == "previous" for series in figure.series)
    axes = {
        f"{name}axis": _axis(figure, name, _wrapped(label))
        for name, label in (("x", figure.x_label), ("y", figure.y_label))
    }
    layout = {
        "meta": {"heading": figure.title, "detail": figure.subtitle},
        "autosize": True,
        "height": 360,
        "margin": {"l": 70, "r": 15, "t": 30, "b": 85},
        "font": {"family": "Helvetica, Arial, sans-serif", "size": 14, "color": _INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "legend": {
            "orientation": "h",
            "font": {"size": 11},
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "reversed" if first_on_top else "normal",
        },
        **axes,
    }
    return {"data": traces[::-1] if first_on_top else traces, "layout": layout}


def _trace(series: Series, bounds: int) -> dict[str, Any]:
    """One line; ``bounds`` of them came before."""
    line: dict[str, Any] = {"color": _GREY, "width": 1}
    if series.role == "guide":
        line = {"color": _INK, "width": 1.4, "dash": "2px,4px"}
    elif series.role == "bound":
        colour, dash = _COLOURS[bounds % len(_COLOURS)], _DASHES[bounds % len(_DASHES)]
        line = {"color": colour, "dash": dash, "width": 1.7 if bounds else 3.0}
    points, marked = series.shape == "points", series.markers
    rounded = printed_down if series.lower else printed
    return {
        "type": "scatter",
        "name": _wrapped(series.name),
        "x": _plain(series.x),
        "y": _plain(series.y),
        "mode": "markers" if points else "lines+markers" if marked else "lines",
        "line": {**line, "shape": _SHAPES.get(series.shape, "linear")},
        "marker": {"color": line["color"], "size": 8},
        "fill": {"below": "tozeroy", "previous": "tonexty"}.get(series.shaded, "none"),
        "fillcolor": _SHADE,
        "customdata": [rounded(float(value)) for value in series.y],
        "hovertemplate": "%{x}: %{customdata}",
    }


def _plain(values: Iterable[Any]) -> list[float | None]:
    """Numbers that JSON has; Plotly draws nothing where there is none."""
    numbers = np.asarray(list(values)).tolist()
    return [value if math.isfinite(value) else None for value in numbers]


def _axis(figure: FigureData, name: str, title: str) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "title": {"text": title, "standoff": 12},
        "showline": True,
        "linecolor": _GREY,
        "gridcolor": _GRID,
        "zeroline": False,
        "ticks": "outside",
        "automargin": True,
        "exponentformat": "power",
    }
    if name not in figure.log:
        return {**axis, "rangemode": "tozero" if name in figure.zero else "normal"}
    values = [float(value) for series in figure.series for value in getattr(series, name)]
    logs = [math.log10(value) for value in values if 0 < value < math.inf] or [0.0]
    low, high = min(logs), max(logs)
    margin = 0.04 * max(high - low, 0.3)
    axis |= {"type": "log", "range": [low - margin, high + 2 * margin]}
    if high - low >= 2.5:
        return {**axis, "dtick": max(1, round((high - low) / 8))}
    decades = range(math.floor(low) - 1, math.ceil(high) + 1)
    ticks = [digit * 10.0**k for k in decades for digit in (1, 2, 5)]
    return {**axis, "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _wrapped(text: str) -> str:
    return "<br>".join(textwrap.wrap(text, _LETTERS))
