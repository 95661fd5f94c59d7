"""One look for every picture: readable in black and white, units on the axes.

Lines differ by dash and marker as well as by colour, so a photocopy loses nothing. The title of a
figure states what it shows; what is a guarantee and what is not is said in the legend.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from lastiterate.guarantee import NOT_A_GUARANTEE

INK = "#1a1a1a"
GREY = "#6b6b6b"
SHADE = "rgba(110, 110, 110, 0.22)"
FAINT = "#e3e3e3"
BAR = "#9db4c0"

_COLOURS = ("#0b3c5d", "#b3541e", "#2f7d4f", "#7a4fa3", "#8c2d2d", "#1f8a9e", "#a37c00", "#4d4d4d")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "triangle-down", "star")


@dataclass(frozen=True)
class Pen:
    """How one line is drawn."""

    colour: str
    dash: str
    symbol: str
    width: float

    @property
    def line(self) -> dict[str, Any]:
        """The line: colour and dash."""
        return {"color": self.colour, "dash": self.dash, "width": self.width}

    def markers(self, at_most: int = 0) -> dict[str, Any]:
        """The markers, some of them if the line has many points."""
        return {
            "color": self.colour,
            "symbol": self.symbol,
            "size": 8,
            "maxdisplayed": at_most,
            "line": {"color": "white", "width": 1},
        }


def pens() -> Iterator[Pen]:
    """Pens in the order they are handed out; the first is the widest: it draws the result.

    >>> first, second = itertools.islice(pens(), 2)
    >>> first.dash, second.dash, first.width > second.width
    ('solid', 'dash', True)
    """
    for k in itertools.count():
        yield Pen(
            _COLOURS[k % len(_COLOURS)],
            _DASHES[k % len(_DASHES)],
            _MARKERS[k % len(_MARKERS)],
            3.0 if k == 0 else 1.7,
        )


_AXIS = {
    "showline": True,
    "linecolor": INK,
    "mirror": True,
    "gridcolor": FAINT,
    "ticks": "outside",
    "ticklen": 4,
    "zeroline": False,
    "exponentformat": "power",
    "automargin": True,
    "title": {"standoff": 12},
}

TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": "Helvetica, Arial, sans-serif", "size": 14, "color": INK},
        "title": {
            "x": 0.02,
            "xanchor": "left",
            "y": 0.96,
            "yanchor": "top",
            "font": {"size": 17},
            "subtitle": {"font": {"size": 13, "color": GREY}},
        },
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 70, "r": 25, "t": 85, "b": 60},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": {
            "bgcolor": "rgba(255,255,255,0.85)",
            "bordercolor": FAINT,
            "borderwidth": 1,
            "font": {"size": 13},
        },
        "hovermode": "closest",
        # Nothing of a privacy report leaves the machine at a slip of the mouse.
        "modebar": {"remove": ["sendChartToCloud", "lasso2d", "select2d"]},
        "colorway": _COLOURS,
    }
)


BELOW = {"orientation": "h", "y": -0.2, "yanchor": "top"}  # a legend under the plot


def blank(title: str, x: str, y: str, subtitle: str = "", **layout: Any) -> go.Figure:
    """An empty figure in the common style, with both axes named."""
    figure = go.Figure()
    figure.update_layout(
        template=TEMPLATE,
        title={"text": title, "subtitle": {"text": subtitle}},
        xaxis_title_text=x,
        yaxis_title_text=y,
        **layout,
    )
    return figure


def marked(figure: go.Figure, provenance: str) -> go.Figure:
    """The figure; if its numbers rest on an estimate, its title and every hover text say so."""
    if provenance == "estimated":
        figure.update_layout(title_text=f"{NOT_A_GUARANTEE}<br>{figure.layout.title.text or ''}")
        for trace in figure.data:
            if getattr(trace, "hovertemplate", None):
                trace.hovertemplate += "<br>NOT A GUARANTEE (estimated)"
    return figure


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis over these values; ticks at 1, 2 and 5 where it is short.

    >>> log_axis([1.0, 30.0])["ticktext"]
    ['0.5', '1', '2', '5', '10', '20', '50']
    >>> log_axis([1.0, 1e6])["dtick"]
    1
    """
    usable = [math.log10(v) for v in values if 0 < v < math.inf]
    if not usable:
        return {"type": "log"}
    low, high = min(usable), max(usable)
    margin = 0.04 * max(high - low, 0.3)
    axis = {"type": "log", "range": [low - margin, high + 2 * margin]}
    if high - low >= 2.5:
        return {**axis, "dtick": max(1, round((high - low) / 8))}
    decades = range(math.floor(low) - 1, math.ceil(high) + 1)
    ticks = [digit * 10.0**k for k in decades for digit in (1, 2, 5)]
    ticks = [tick for tick in ticks if low - 0.5 <= math.log10(tick) <= high + 0.3]
    return {**axis, "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


# What a line bounds from below is marked so, not only called so: its numbers are rounded down.
FROM_BELOW = "from below"
# Between two computed points only the one that promises less is known. Where a quantity grows along
# the axis, a guarantee holds at the next value already, and what is known from below at the last.
STEP_AHEAD, STEP_BEHIND = "vh", "hv"


def upright(figure: go.Figure, x: float, low: float, high: float, name: str) -> None:
    """A thin vertical line with a name in the legend (as data: right on any kind of axis)."""
    figure.add_scatter(
        x=[x, x],
        y=[low, high],
        name=name,
        mode="lines",
        hoverinfo="name",
        line={"color": INK, "dash": "2px,4px", "width": 1.4},
    )
