"""What a guarantee says at every delta, and to every test: two pictures of one curve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.curves.renyi import Linear, Renyi
from lastiterate.guarantee import REFERENCE_DELTA, Guarantee
from lastiterate.printing import printed, printed_down
from lastiterate.report.style import (
    FROM_BELOW,
    GREY,
    INK,
    SHADE,
    STEP_AHEAD,
    blank,
    log_axis,
    marked,
    pens,
)

Floats = NDArray[np.float64]

_MANY, _FEW = 121, 7


def privacy_curve(guarantee: Guarantee, delta: float = REFERENCE_DELTA) -> Any:
    """Epsilon against delta: every pair on the line, or above and right of it, is guaranteed.

    The title and the circle are at ``delta``.

    Between two computed deltas the line keeps the epsilon of the smaller one, which holds there.

    Curves that are searched or convolved for every question are computed at a few deltas, marked.

    >>> from lastiterate import FullBatch, Loss, Training, account
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> figure = account(run, Loss(smoothness=1.0)).plot()
    >>> figure.layout.title.text
    'epsilon = 0.2069 at delta = 1e-05 (Shifted interpolation (Bok, Su & Altschuler 2024))'
    """
    quick = _quick(guarantee)
    deltas = np.geomspace(1e-10, 1e-2, _MANY if quick else _FEW)
    epsilons = np.array([guarantee.epsilon(float(each)) for each in deltas])
    reference = guarantee.epsilon(delta)
    figure = blank(
        f"epsilon = {printed(reference)} at delta = {printed(delta)} "
        f"({guarantee.best_at(delta).theorem.name})",
        "epsilon",
        "delta",
        "" if quick else "computed at the marks, joined by steps that hold",
        legend={"x": 0.98, "y": 0.97, "xanchor": "right", "yanchor": "top"},
    )
    mode = "lines" if quick else "lines+markers"
    draw_pairs(figure, epsilons.tolist(), deltas.tolist(), "guaranteed", mode)
    figure.add_scatter(
        x=[reference],
        y=[delta],
        mode="markers",
        name=f"delta = {printed(delta)}",
        marker={"symbol": "circle-open", "size": 13, "color": INK, "line": {"width": 2}},
        hovertemplate=_pair(reference, delta),
    )
    return marked(figure, guarantee.provenance)


def draw_pairs(
    figure: Any, epsilons: list[float], deltas: list[float], name: str, mode: str = "lines"
) -> None:
    """Pairs that hold; between two of them the line keeps the epsilon of the smaller delta."""
    pen = next(pens())
    figure.add_scatter(
        x=epsilons,
        y=deltas,
        name=name,
        mode=mode,
        line={**pen.line, "shape": STEP_AHEAD},
        marker=pen.markers(),
        customdata=[_pair(*pair) for pair in zip(epsilons, deltas, strict=True)],
        hovertemplate="%{customdata}",
    )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(log_axis(deltas))


def _pair(epsilon: float, delta: float) -> str:
    return f"epsilon {printed(epsilon)} at delta {printed(delta)}"


def tradeoff(guarantee: Guarantee) -> Any:
    """The least false negative rate that any membership test can have, at each false positive rate.

    The lower the line, the more can be inferred; on the diagonal nothing can. It is rounded down.

    >>> from lastiterate import FullBatch, Loss, Training, account
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> tradeoff(account(run, Loss(smoothness=1.0))).layout.title.text
    'A test that is wrong 5 % of the time on outsiders misses at least 94.3 % of members'
    """
    rates = np.unique(np.concatenate([np.linspace(0, 1, 101), np.geomspace(1e-6, 0.01, 30)]))
    least = least_false_negatives(guarantee, rates)
    at_five = np.floor(1000 * float(least_false_negatives(guarantee, np.array([0.05]))[0])) / 10
    figure = blank(
        f"A test that is wrong 5 % of the time on outsiders misses at least {at_five:.1f} % of "
        "members",
        "false positive rate",
        "false negative rate",
        legend={"x": 0.98, "y": 0.97, "xanchor": "right", "yanchor": "top"},
    )
    draw_tradeoff(figure, rates, least)
    figure.update_xaxes(range=[-0.01, 1.01])
    figure.update_yaxes(range=[-0.01, 1.03])
    return marked(figure, guarantee.provenance)


def draw_tradeoff(figure: Any, rates: Floats, least: Iterable[float]) -> None:
    """What no test can do better than, and what guessing does."""
    figure.add_scatter(
        x=rates,
        y=least,
        name="no test does better than this",
        mode="lines",
        meta=FROM_BELOW,
        line={**next(pens()).line, "shape": STEP_AHEAD},
        fill="tozeroy",
        fillcolor=SHADE,
        customdata=[printed_down(value) for value in least],
        hovertemplate="false positives %{x:.4g}: false negatives at least %{customdata}",
    )
    figure.add_scatter(
        x=[0, 1],
        y=[1, 0],
        name="guessing: nothing can be inferred",
        mode="lines",
        line={"color": GREY, "dash": "dot", "width": 1.5},
        hoverinfo="name",
    )


def least_false_negatives(guarantee: Guarantee, rates: Floats) -> Floats:
    """The trade-off function of a guarantee at these false positive rates, rounded down."""
    mu = guarantee.mu
    if mu is not None:
        return np.asarray(gaussian.tradeoff(mu, rates))
    top = guarantee.epsilon(1e-6)
    if not math.isfinite(top):
        return np.zeros(len(rates))
    epsilons = np.linspace(0.0, top, _MANY if _quick(guarantee) else _FEW)
    return tradeoff_of_pairs([(e, guarantee.delta(e)) for e in epsilons.tolist()], rates)


def tradeoff_of_pairs(pairs: Iterable[tuple[float, float]], rates: Floats) -> Floats:
    """What some proved pairs (epsilon, delta) say about every test, rounded down.

    Each gives max(1 - delta - e^epsilon x, e^-epsilon (1 - delta - x)) at the false positive rate
    x; the largest over some epsilons never exceeds that over all (Dong, Roth, Su 2022).

    >>> tradeoff_of_pairs([(0.0, 0.1)], np.array([0.0, 0.5])).round(6)
    array([0.9, 0.4])
    """
    least = np.zeros(len(rates))
    for epsilon, delta in pairs:
        if epsilon > 700:  # e^epsilon overflows, and the pair says nothing about a test
            continue
        kept, factor = 1 - delta, math.exp(epsilon) * (1 + 1e-14)
        least = np.maximum(least, np.maximum(kept - factor * rates, (kept - rates) / factor))
    return np.maximum(least - 1e-15, 0.0)


def _quick(guarantee: Guarantee) -> bool:
    """Whether every answer is a formula, not a search."""
    return all(
        bound.curve.mu is not None
        or isinstance(bound.curve, Mixture)
        or (isinstance(bound.curve, Renyi) and isinstance(bound.curve.bound, Linear))
        for bound in guarantee.bounds
    )
