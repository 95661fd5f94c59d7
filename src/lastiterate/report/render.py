"""Draws figures with matplotlib, as Axes or as SVG.

Figures are made as objects, without pyplot, a display or the user's rcParams. Lines differ by dash
and marker as well as by colour, so that a print in black and white loses nothing.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from lastiterate._internal.formatting import escaped
from lastiterate.report.figures.data import FigureData, Series

INK, GREY, GRID, SHADE = "#1a1a1a", "#5f5f5f", "#e3e3e3", "#6e6e6e"

_COLOURS = ("#0b5cad", "#c2500a", "#00765a", "#a03c78", "#7a6200", "#5b4bb5", "#b3252f", "#4d4d4d")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))
_MARKERS = ("o", "s", "D", "^", "X", "P", "v", "*")
_WIDTH, _HEIGHT, _ROW = 5.0, 2.55, 0.17  # inches: of a figure, of its axes, of a row of text
_LETTERS = 56  # of a line of text across a figure
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # of text on top of lines
_MOST = 1e250  # larger numbers are not drawn
_MANY_POINTS = 8  # marked points of a line that has more

_STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.handlelength": 2.6,
    "legend.labelspacing": 0.3,
    "svg.fonttype": "none",
}
_PROCESS_WIDE = ("backend", "interactive", "toolbar", "webagg", "tk.", "macosx", "figure.hooks")


@dataclass(frozen=True)
class _Pen:
    colour: str
    dash: Any
    marker: str
    width: float


def _pens(series: Iterable[Series]) -> list[_Pen]:
    """The pen of every series; the first bound is the result and has the widest."""
    pens, bounds = [], 0
    for each in series:
        if each.role == "bound":
            k, bounds = bounds, bounds + 1
            dash, marker = _DASHES[k % len(_DASHES)], _MARKERS[k % len(_MARKERS)]
            pens.append(_Pen(_COLOURS[k % len(_COLOURS)], dash, marker, 1.4 if k else 2.4))
        elif each.role == "guide":
            pens.append(_Pen(INK, (0, (1.5, 2.5)), "o", 1.1))
        else:
            pens.append(_Pen(GREY, "-", "o", 1.0))
    return pens


def draw(figure: FigureData, ax: Axes | None = None) -> Axes:
    """Draw a figure on these axes, or on new ones in the library's style."""
    if ax is None:
        with _style():
            return _drawn(figure, titled=True)
    _contents(figure, ax)
    ax.set_title(_wrapped(figure.title), fontsize="medium")
    ax.set_ylabel(figure.y_label)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(fontsize="small")
    return ax


def svg(figure: FigureData, name: str, *, titled: bool = False) -> str:
    """Return a figure as an SVG element, the same bytes for the same numbers.

    Args:
        figure: what to draw.
        name: prefix of the element's identifiers, unique in a page.
        titled: whether the title is part of the picture; it is always part of the text
            alternative.
    """
    with _style({"svg.hashsalt": name}):
        canvas: Any = _drawn(figure, titled=titled).figure
        out = io.StringIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _cleaned(out.getvalue(), figure, name)


def _style(more: dict[str, Any] | None = None) -> AbstractContextManager[None]:
    """Matplotlib's defaults and ours, whatever the user has set."""
    defaults: Any = {
        key: value
        for key, value in matplotlib.rcParamsDefault.items()
        if not key.startswith(_PROCESS_WIDE)
    }
    return matplotlib.rc_context(defaults | _STYLE | (more or {}))


def _drawn(figure: FigureData, *, titled: bool) -> Axes:
    """New axes whose height fits the legend."""
    legend = [line for each in figure.series for line in _label(each).splitlines()]
    bars = len(_bar_names(figure.series))
    axes = 0.55 + 0.36 * bars if bars else _HEIGHT
    title = _wrapped(figure.title, 50) if titled else ""
    subtitle = _wrapped(figure.subtitle) if titled and figure.subtitle else ""
    rows = len(legend) + len(title.splitlines()) + len(subtitle.splitlines())
    canvas = Figure(figsize=(_WIDTH, axes + 0.6 + _ROW * rows), layout="constrained")
    ax = canvas.add_subplot()
    _contents(figure, ax)
    if titled:
        canvas.suptitle(title, x=0.012, ha="left", fontsize=11, fontweight="bold")
    above = "\n".join(filter(None, (subtitle, figure.y_label)))
    ax.set_title(above, loc="left", fontsize=9.5, color=GREY)
    known = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    labels = [label for each in figure.series if (label := _label(each)) in known]
    if labels:
        handles = [known[label] for label in labels]
        canvas.legend(handles, labels, loc="outside lower left")
    return ax


def _label(series: Series) -> str:
    """The legend's text: result and name, on as many lines as it needs."""
    return _wrapped(f"{series.value}  {series.name}" if series.value else series.name, 50)


def _wrapped(text: str, width: int = _LETTERS) -> str:
    return "\n".join(textwrap.wrap(escaped(text), width))


def _bar_names(series: Iterable[Series]) -> list[str]:
    return [name for each in series if each.shape == "bars" for name in each.y]


# --- what is inside the axes ----------------------------------------------------------------------


def _contents(figure: FigureData, ax: Axes) -> None:
    names = _bar_names(figure.series)
    rows = {name: row for row, name in enumerate(names)}
    _scale(figure, ax, rows)
    ax.grid(color=GRID, linewidth=0.7, axis="x" if rows else "both")
    ax.set_axisbelow(True)
    ax.set_xlabel(figure.x_label)
    pens = _pens(figure.series)
    order = list(zip(figure.series, pens, strict=True))
    for k, (series, pen) in enumerate(order):
        if series.shape == "bars":
            _bars(ax, series, pen, rows)
        elif rows:
            ax.axvline(
                series.x[0], color=pen.colour, linestyle=pen.dash, lw=1.4, label=_label(series)
            )
        elif series.shape == "columns":
            _columns(ax, series, pen)
        else:
            _line(ax, series, pen, z=3 + (len(order) - k) / 100)
            previous = figure.series[k - 1].y if series.shaded == "previous" else None
            _shade(ax, series, previous)


def _line(ax: Axes, series: Series, pen: _Pen, z: float) -> None:
    points = series.shape == "points"
    every = max(1, math.ceil(len(series.x) / _MANY_POINTS))
    last = max(len(series.x) - 1, 0)
    hollow = points and series.role == "guide"
    marked = points or series.markers or (series.role == "bound" and bool(series.value))
    ax.plot(
        _drawable(series.x),
        _drawable(series.y),
        label=_label(series) or "_",
        color=pen.colour,
        linestyle="none" if points else pen.dash,
        linewidth=pen.width,
        drawstyle=series.shape if series.shape.startswith("steps") else "default",
        marker=pen.marker if marked else "",
        markevery=1 if points or series.markers else [*range(0, last, every), last],
        markersize=9 if hollow else 5,
        markerfacecolor="none" if hollow else pen.colour,
        markeredgecolor=pen.colour if points else "white",
        markeredgewidth=1.4 if points else 0.5,
        zorder=z,
        clip_on=not points,
    )
    for x, y, text in zip(series.x, series.y, series.texts, strict=False):
        ax.annotate(text, (x, y), (-3, 3), textcoords="offset points", ha="right", va="bottom")


def _shade(ax: Axes, series: Series, previous: Any) -> None:
    if series.shaded:
        step: Any = {"steps-pre": "pre", "steps-post": "post"}.get(series.shape)
        base: Any = ax.get_ylim()[0]
        color: Any = {"color": SHADE, "alpha": 0.2, "linewidth": 0}
        if previous is not None:
            base = _drawable(previous)
        ax.fill_between(
            _drawable(series.x), _drawable(series.y), base, step=step, zorder=2, **color
        )


def _columns(ax: Axes, series: Series, pen: _Pen) -> None:
    """Columns from 0, with their numbers above."""
    width = min(0.6, 0.15 * len(series.x) + 0.1)
    ax.bar(series.x, series.y, width, color=pen.colour, label=_label(series), zorder=3)
    for x, y, text in zip(series.x, series.y, series.texts, strict=False):
        ax.annotate(text, (x, y), (0, 2), textcoords="offset points", ha="center", va="bottom")
    ax.set_xticks(range(1, len(series.x) + 1, max(1, len(series.x) // 10)))


def _bars(ax: Axes, series: Series, pen: _Pen, rows: dict[str, int]) -> None:
    """A line to a point for every bound: its name above, its number at the end."""
    start = ax.get_xlim()[0]
    at = [rows[name] for name in series.y]
    other = series.role == "other"
    ax.hlines(at, start, series.x, color=pen.colour, linewidth=2.2, linestyle=":" if other else "-")
    ax.plot(
        series.x,
        at,
        "o",
        color=pen.colour,
        markerfacecolor="white" if other else pen.colour,
        label=_label(series),
        zorder=4,
    )
    for x, row, name, text in zip(series.x, at, series.y, series.texts, strict=True):
        bold: Any = {"fontweight": "bold"} if row == 0 and not other else {}
        place: Any = {"textcoords": "offset points", "bbox": _BEHIND, **bold}
        ax.annotate(name, (start, row), (3, 5), va="bottom", fontsize=9, **place)
        ax.annotate(text, (x, row), (7, -0.5), va="center", zorder=5, **{**place, "bbox": None})


def _scale(figure: FigureData, ax: Axes, rows: dict[str, int]) -> None:
    """Limits, which are those of the finite values, and ticks."""
    for name, axis, limit in (("x", ax.xaxis, ax.set_xlim), ("y", ax.yaxis, ax.set_ylim)):
        if name == "y" and rows:
            limit(len(rows) - 0.55, -0.75)
            ax.set_yticks([])
            ax.spines["left"].set_visible(False)
            continue
        values = [v for each in figure.series for v in _drawable(getattr(each, name)).tolist()]
        finite = [v for v in values if math.isfinite(v) and (v > 0 or name not in figure.log)]
        low, high = (min(finite), max(finite)) if finite else (0.1, 1.0)
        if name in figure.log:
            decades = math.log10(high) - math.log10(low)
            margin = 0.04 * max(decades, 0.3)
            left, right = (6 * margin, 7 * margin) if rows else (margin, margin)
            if name == "x":
                ax.set_xscale("log")
            else:
                ax.set_yscale("log")
            limit(max(low * 10**-left, 1 / _MOST), high * 10**right)
            subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
            axis.set_major_locator(LogLocator(subs=subs, numticks=8))
            axis.set_major_formatter(FuncFormatter(_power if low < 1e-4 else _number))
            axis.set_minor_locator(NullLocator())
        else:
            span = (high - low) or abs(high) or 1.0
            columns = any(each.shape == "columns" for each in figure.series)
            floor = 0.0 if name in figure.zero else low - 0.03 * span
            limit(floor, high + (0.12 if columns and name == "y" else 0.03) * span)
            if max(abs(low), abs(high)) < 1e6:
                axis.set_major_formatter(FuncFormatter(_number))


def _drawable(values: Any) -> NDArray[np.float64]:
    """Numbers that are drawn: infinite ones, and those whose axis would overflow, are left out."""
    numbers = np.asarray(values, float)
    return np.where(np.abs(numbers) <= _MOST, numbers, np.nan)


def _number(value: float, _place: int) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.6g}"


def _power(value: float, _place: int) -> str:
    exponent = round(math.log10(value))
    return f"1e{exponent}" if math.isclose(value, 10.0**exponent) else f"{value:g}"


# --- SVG ------------------------------------------------------------------------------------------

_FONT = "system-ui, 'Helvetica Neue', 'Liberation Sans', Arial, 'DejaVu Sans', sans-serif"


def _cleaned(text: str, figure: FigureData, name: str) -> str:
    """Only the drawing, with a text alternative and without styles that reach beyond it."""
    [box] = re.findall(r'viewBox="([^"]*)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "inherit", body)
    title, words = (html.escape(escaped(text)) for text in (figure.title, _described(figure)))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box}" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'font-family="{_FONT}" stroke-linejoin="round" stroke-linecap="butt">\n'
        f'<title id="{name}-title">{title}</title>\n'
        f'<desc id="{name}-desc">{words}</desc>'
    )
    return head + re.sub(r"\n\s*", "\n", body).rstrip() + "\n"


def _described(figure: FigureData) -> str:
    """The text alternative: axes and lines."""
    names = "; ".join(
        f"{each.name} ({each.value})" if each.value else each.name
        for each in figure.series
        if each.name
    )
    axes = f"{figure.y_label or 'Bounds'} against {figure.x_label}"
    note = f" {figure.subtitle}." if figure.subtitle else ""
    return f"{axes}. Lines: {names}.{note}"
