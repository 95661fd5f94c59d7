"""A figure for a page that may be a phone's: its title becomes a heading, its words wrap."""

from __future__ import annotations

import re
import textwrap
from typing import Any

HEIGHT = 360  # two of them fit on a printed page
_UPRIGHT = 38  # letters of a title along a figure of that height
_ACROSS = 32  # letters of a line of the legend, or below the axis, on a phone
_NAME = 17  # letters of the name of a bar: the bar itself needs the rest of a phone


def narrowed(figure: Any) -> tuple[str, str]:
    """Make the figure fit its place; its title and subtitle, which the page shows as text."""
    layout = figure.layout
    heading, detail = (words(text) for text in (layout.title.text, layout.title.subtitle.text))
    figure.update_layout(
        title={"text": "", "subtitle": {"text": ""}},
        autosize=True,
        width=None,
        height=HEIGHT,
        margin={"l": 70, "r": 15, "t": 30, "b": 85},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
    )
    ys = [y for trace in figure.data if trace.y is not None for y in trace.y]
    names = list(dict.fromkeys(y for y in ys if isinstance(y, str)))
    if names:
        figure.update_yaxes(tickvals=names, ticktext=[_wrapped(name, _NAME) for name in names])
    figure.for_each_trace(lambda trace: trace.update(name=_wrapped(trace.name or "", _ACROSS)))
    figure.update_xaxes(title_text=_wrapped(layout.xaxis.title.text or "", _ACROSS))
    figure.update_yaxes(title_text=_wrapped(layout.yaxis.title.text or ""))
    return heading, detail


def words(text: str | None) -> str:
    """A text of the figure without its markup."""
    return " ".join(re.sub(r"<[^>]*>", " ", text or "").split())


def _wrapped(title: str, width: int = _UPRIGHT) -> str:
    """A long title on several lines: it has the height of a figure, or a phone's width."""
    return "<br>".join(textwrap.wrap(title, width)) if "<br>" not in title else title
