"""What a guarantee or a certificate says at every delta, and to every test."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.formatting import percent, printed
from lastiterate.accounting.guarantee import REFERENCE_DELTA, Guarantee
from lastiterate.certificate import Certificate
from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.curves.renyi import Linear, Renyi
from lastiterate.report.attacker import detection_rate
from lastiterate.report.figures.data import FigureData, Series

Floats = NDArray[np.float64]
Pairs = Iterable[tuple[float, float]]

_MANY, _FEW = 121, 7
_SMALLEST_RATE = 1e-4
_LARGEST_DELTA = 0.1  # pairs with a larger delta are not drawn


def privacy_curve(
    source: Guarantee | Certificate, delta: float = REFERENCE_DELTA, *, proved: Pairs = ()
) -> FigureData:
    """Epsilon against delta: every pair on the line, or above and right of it, is guaranteed.

    Between two computed deltas the line keeps the epsilon of the smaller one, which holds there.
    Curves that are searched or convolved for every question are computed at a few deltas, marked.

    Args:
        source: a guarantee; or a certificate, of which the proved pairs are drawn.
        delta: where the title reads epsilon; a certificate has its own.
        proved: pairs (delta, epsilon) that the certificate proves.

    >>> from lastiterate import FullBatch, Loss, Training, account
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> privacy_curve(account(run, Loss(smoothness=1.0))).title
    'epsilon = 0.2069 at delta = 1e-05 (Shifted interpolation (Bok, Su & Altschuler 2024))'
    """
    if isinstance(source, Certificate):
        pairs = sorted(pair for pair in proved if 0 < pair[0] <= _LARGEST_DELTA)
        at = f"epsilon = {printed(source.epsilon)} at delta = {printed(source.delta)}"
        return _curve(f"{at}, as certified", pairs, "proved")
    quick = _quick(source)
    deltas = np.geomspace(1e-10, 1e-2, _MANY if quick else _FEW).tolist()
    reference = source.epsilon(delta)
    at = f"epsilon = {printed(reference)} at delta = {printed(delta)}"
    figure = _curve(
        f"{at} ({source.best_at(delta).theorem.name})",
        [(each, source.epsilon(each)) for each in deltas],
        "guaranteed",
        markers=not quick,
    )
    mark = Series(f"delta = {printed(delta)}", [reference], [delta], "points", "guide")
    few = "" if quick else "computed at the marks, joined by steps that hold"
    return replace(figure, subtitle=few, series=(*figure.series, mark)).marked(source.provenance)


def _curve(
    title: str, pairs: list[tuple[float, float]], name: str, markers: bool = False
) -> FigureData:
    line = Series(
        name,
        [epsilon for _, epsilon in pairs],
        [delta for delta, _ in pairs],
        "steps-pre",
        markers=markers,
    )
    return FigureData(title, "epsilon", "delta", (line,), log="y", zero="x")


def tradeoff(source: Guarantee | Certificate, *, proved: Pairs = ()) -> FigureData:
    """The least false negative rate that any membership test can have, at each false positive rate.

    The lower the line, the more can be inferred; on the diagonal nothing can. It is rounded down.

    Args:
        source: a guarantee; or a certificate, of which the proved pairs are used.
        proved: pairs (delta, epsilon) that the certificate proves.

    >>> from lastiterate import FullBatch, Loss, Training, account
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> tradeoff(account(run, Loss(smoothness=1.0))).title
    'A test that is wrong 5 % of the time on outsiders misses at least 94.3 % of members'
    """
    if isinstance(source, Certificate):
        pairs, mu = list(proved), source.mu
        rates = np.concatenate([np.geomspace(_SMALLEST_RATE, 0.1, 40), np.linspace(0, 1, 51)])
        rates = np.unique(rates)
        least = np.array([1 - detection_rate(rate, pairs, mu) for rate in rates.tolist()])
        found = percent(detection_rate(0.05, pairs, mu))
        title = f"A test that accuses 5 % wrongly finds at most {found} of the members"
        return _tradeoff(title, rates, least)
    rates = np.unique(np.concatenate([np.linspace(0, 1, 101), np.geomspace(1e-6, 0.01, 30)]))
    at_five = float(least_false_negatives(source, np.array([0.05]))[0])
    missed = np.floor(1000 * at_five) / 10
    title = "A test that is wrong 5 % of the time on outsiders misses at least "
    figure = _tradeoff(
        f"{title}{missed:.1f} % of members", rates, least_false_negatives(source, rates)
    )
    return figure.marked(source.provenance)


def _tradeoff(title: str, rates: Floats, least: Floats) -> FigureData:
    name = "no test does better than this"
    line = Series(name, rates.tolist(), least.tolist(), "steps-pre", lower=True, shaded="below")
    guess = Series("guessing: nothing can be inferred", [0, 1], [1, 0], role="guide")
    axes = "false positive rate", "false negative rate"
    return FigureData(title, *axes, (line, guess), zero="xy")


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
