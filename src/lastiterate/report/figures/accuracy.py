"""What privacy costs in accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError
from lastiterate.printing import printed
from lastiterate.report.style import blank, log_axis, pens


def accuracy_against_epsilon(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Accuracy against epsilon, one line per model.

    Args:
        rows: tables with ``epsilon`` and ``accuracy`` (a share of 1), and ``model`` where there
            are several. Rows of one model and one epsilon are repetitions: their mean is drawn,
            their range as a bar. ``epsilon = inf`` is a model without privacy: a level line.

    >>> figure = accuracy_against_epsilon([{"epsilon": 0.5, "accuracy": 0.8},
    ...                                    {"epsilon": 1.0, "accuracy": 0.9}])
    >>> figure.layout.title.text
    'At epsilon = 1 the accuracy is 90.0 %'
    """
    table = _by_model(rows)
    private = sorted({e for model in table.values() for e in model if math.isfinite(e)})
    figure = blank("", "epsilon", "accuracy (share of test records)")
    ends = private or [1.0]
    for pen, (name, values) in zip(pens(), table.items(), strict=False):
        at = sorted(e for e in values if math.isfinite(e))
        mean = np.array([np.mean(values[e]) for e in at])
        if at:
            figure.add_scatter(
                x=at,
                y=mean,
                name=name,
                mode="lines+markers",
                line=pen.line,
                marker=pen.markers(),
                error_y={
                    "array": np.array([max(values[e]) for e in at]) - mean,
                    "arrayminus": mean - np.array([min(values[e]) for e in at]),
                    "color": pen.colour,
                    "thickness": 1.2,
                },
                hovertemplate="epsilon %{x}: accuracy %{y:.4f}",
            )
        if math.inf in values:
            level = float(np.mean(values[math.inf]))
            figure.add_scatter(
                x=[ends[0], ends[-1]],
                y=[level, level],
                name=f"{name}, without privacy",
                mode="lines",
                line={**pen.line, "dash": "dot", "width": 1.2},
                hovertemplate="accuracy %{y:.4f}",
            )
    figure.update_xaxes(log_axis(ends))
    figure.update_yaxes(tickformat=".3~")
    figure.update_layout(title_text=_finding(table, private))
    return figure


Table = dict[str, dict[float, list[float]]]


def _by_model(rows: Iterable[Mapping[str, Any]]) -> Table:
    table: Table = {}
    for row in rows:
        for field in ("epsilon", "accuracy"):
            if field not in row:
                why = "a point of this figure is an epsilon and an accuracy"
                raise DescriptionError(f"rows.{field}", None, "given in every row", why)
        epsilon = float(row["epsilon"])
        if not epsilon > 0:
            why = "the axis is logarithmic; math.inf stands for a model without privacy"
            raise DescriptionError("rows.epsilon", epsilon, "above 0", why)
        why = "it is a share of the test records"
        accuracy = number("rows.accuracy", row["accuracy"], why, at_least=0, at_most=1)
        model = table.setdefault(str(row.get("model", "accuracy")), {})
        model.setdefault(epsilon, []).append(accuracy)
    if not table:
        raise DescriptionError("rows", [], "at least one row", "there is nothing to draw")
    return table


def _finding(table: Table, private: list[float]) -> str:
    if not private:
        return "Accuracy without privacy"
    last = private[-1]
    means = {name: np.mean(values[last]) for name, values in table.items() if last in values}
    best = max(means, key=lambda name: means[name])
    of = "the accuracy" if len(table) == 1 else f"the best accuracy ({best})"
    return f"At epsilon = {printed(last)} {of} is {100 * means[best]:.1f} %"
