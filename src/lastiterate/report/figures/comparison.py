"""Every bound on one run, side by side."""

from __future__ import annotations

import math

from lastiterate._internal.formatting import printed
from lastiterate.accounting import Comparison, Row
from lastiterate.lower import lower_reference
from lastiterate.report.figures.data import FigureData, Series


def comparison_bars(comparison: Comparison) -> FigureData:
    """A bar for every applicable bound, tightest on top.

    The dotted line is what some loss of the declared class really suffers; the hollow mark
    is what most accountants would charge for another algorithm (Poisson batches), not for this run.

    >>> from lastiterate import FullBatch, Loss, Training, compare
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> comparison_bars(compare(run, Loss(smoothness=1.0, strong_convexity=1.0))).title
    'epsilon = 1.336 by Shifted interpolation (Bok, Su & Altschuler 2024), the tightest of 2 bounds'
    """
    delta, best = comparison.delta, comparison[0]
    title = f"epsilon = {printed(best.epsilon)} by {best.theorem.name}"
    if len(comparison) > 1:
        title += f", the tightest of {len(comparison)} bounds"
    other = "* another run: Poisson batches of this size"
    series = [
        _bars(comparison.rows, "sound bound"),
        _bars(comparison.other_algorithms, other, " *"),
    ]
    lower = lower_reference(comparison.run)(delta)
    if 0 < lower < math.inf:
        ends = [best.theorem.name, comparison.rows[-1].theorem.name]
        reference = "some loss really suffers this"
        series.append(Series(reference, [lower] * 2, ends, role="guide", lower=True))
    figure = FigureData(
        title,
        f"epsilon at delta = {printed(delta)}",
        "",
        tuple(each for each in series if len(each.x)),
        log="x",
    )
    return figure.marked(comparison.provenance)


def _bars(rows: tuple[Row, ...], name: str, mark: str = "") -> Series:
    finite = [row for row in rows if 0 < row.epsilon < math.inf]
    return Series(
        name,
        [row.epsilon for row in finite],
        [row.theorem.name + mark for row in finite],
        "bars",
        "other" if mark else "bound",
        texts=tuple(printed(row.epsilon) for row in finite),
    )
