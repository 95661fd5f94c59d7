"""What a figure shows, as numbers and text, apart from how it is drawn.

The report and ``plot()`` draw it with matplotlib (`lastiterate.report.render`), the explorer with
Plotly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lastiterate.accounting.guarantee import NOT_A_GUARANTEE
from lastiterate.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Shape = Literal["line", "steps-pre", "steps-post", "points", "columns", "bars"]


@dataclass(frozen=True)
class Series:
    """One line, or one group of points or bars.

    Attributes:
        name: its text in the legend; "" if it has no entry there.
        x: horizontal coordinates.
        y: vertical coordinates; names where the shape is "bars".
        shape: how points are joined. Between two computed points only one value holds:
            "steps-pre" keeps that of the next point, "steps-post" that of the last one.
        role: "bound" has its own colour, "reference" is grey, "guide" thin and dotted, "other"
            hollow, because it is no claim about this run.
        lower: whether it is a bound from below, whose numbers are rounded down.
        markers: whether the computed points are marked.
        shaded: the area that is shaded: "below" the line, or up to the "previous" series.
        value: the result of this line, shown before its name.
        texts: a label for every point; none if empty.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    shape: Shape = "line"
    role: Literal["bound", "reference", "guide", "other"] = "bound"
    lower: bool = False
    markers: bool = False
    shaded: Literal["", "below", "previous"] = ""
    value: str = ""
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureData:
    """A figure before it is drawn: title, axes and series.

    Attributes:
        title: what the figure shows, as a sentence.
        x_label: name and unit of the horizontal axis.
        y_label: name and unit of the vertical axis.
        series: the lines; the first is the result and is drawn on top.
        subtitle: a second line under the title.
        log: axes that are logarithmic: "", "x", "y" or "xy".
        zero: axes that begin at 0.

    >>> figure = FigureData("It grows", "steps", "epsilon", (Series("run", [1, 2], [0.3, 0.4]),))
    >>> figure.series[0].y
    [0.3, 0.4]
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    subtitle: str = ""
    log: str = ""
    zero: str = ""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw with matplotlib; needs no display.

        Args:
            ax: where to draw; a new figure (``axes.figure``) if not given.
        """
        axes: Axes = _render().draw(self, ax)
        return axes

    def _repr_svg_(self) -> str:
        """Return the figure for a notebook."""
        return str(_render().svg(self, "figure", titled=True))

    def marked(self, provenance: str) -> FigureData:
        """Return the figure; if its numbers rest on an estimate, the title says so."""
        if provenance != "estimated":
            return self
        return dataclasses.replace(self, title=f"{NOT_A_GUARANTEE}: {self.title}")


def _render() -> Any:
    """Return the module that draws with matplotlib, which is not part of the core."""
    try:
        from lastiterate.report import render
    except ModuleNotFoundError as missing:
        raise MissingExtraError("A figure", missing.name, "report") from None
    return render
