"""What each way to spend the budget is expected to cost in risk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lastiterate.printing import printed
from lastiterate.report.style import BAR, INK, blank

if TYPE_CHECKING:
    from lastiterate.plan.recommendation import Recommendation


def recommendation_bars(advice: Recommendation) -> Any:
    """A bar per alternative, the best on top: what is left of the start, then what the noise adds.

    >>> from lastiterate import recommend
    >>> advice = recommend(records=2000, dimension=10, epsilon=1.0, delta=1e-5, epochs=2)
    >>> figure = recommendation_bars(advice)
    >>> len(figure.data[0].x) == len(advice.alternatives)
    True
    """
    worst_first = advice.alternatives[::-1]
    names = [alternative.name for alternative in worst_first]
    best = advice.alternatives[0]
    figure = blank(
        f"Least predicted risk: {best.name}",
        "predicted excess risk (quadratic model)",
        "",
        f"epsilon = {printed(advice.epsilon)}, delta = {printed(advice.delta)}, "
        f"{advice.training.adjacency}; a ranking, not a guarantee",
        barmode="stack",
        height=160 + 26 * len(names),
        legend={"x": 0.99, "y": 0.99, "xanchor": "right", "yanchor": "top"},
    )
    parts = {
        "bias: what is left of the start": ([a.risk.bias for a in worst_first], BAR, ""),
        "noise": ([a.risk.noise for a in worst_first], "white", "/"),
    }
    for part, (values, colour, shape) in parts.items():
        figure.add_bar(
            x=values,
            y=names,
            orientation="h",
            name=part,
            marker={
                "color": colour,
                "line": {"color": INK, "width": 1},
                "pattern": {"shape": shape, "fgcolor": INK, "bgcolor": "white"},
            },
            hovertemplate="%{y}: %{x:.3g}",
        )
    totals = [a.risk.total for a in worst_first]
    figure.add_scatter(
        x=totals,
        y=names,
        mode="text",
        text=[f" {total:.3g}" for total in totals],
        textposition="middle right",
        showlegend=False,
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.update_xaxes(range=[0.0, 1.12 * max(totals)])
    return figure
