"""The pictures of a certificate alone, drawn from pairs that its verifier proved.

For compositions, which have no single run, and for runs whose bound is slow to ask again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lastiterate.certificate import Certificate
from lastiterate.printing import percent, printed, printed_down
from lastiterate.report.attacker import detection_rate
from lastiterate.report.style import FROM_BELOW, GREY, SHADE, STEP_AHEAD, blank, log_axis, pens

_SMALLEST_RATE = 1e-4
_LARGEST_DELTA = 0.1  # a promise that fails more often is none


def certified_curve(certificate: Certificate, proved: Iterable[tuple[float, float]]) -> Any:
    """Epsilon against delta: the pairs (delta, epsilon) that were proved.

    >>> from lastiterate import FullBatch, Loss, Training, certify
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> certificate = certify(run, Loss(smoothness=1.0), delta=1e-5)
    >>> certified_curve(certificate, [(1e-5, certificate.epsilon)]).layout.title.text
    'epsilon = 0.2069 at delta = 1e-05, as certified'
    """
    pairs = sorted(pair for pair in proved if 0 < pair[0] <= _LARGEST_DELTA)
    deltas = [delta for delta, _ in pairs]
    title = f"epsilon = {printed(certificate.epsilon)} at delta = {printed(certificate.delta)}"
    figure = blank(f"{title}, as certified", "epsilon", "delta")
    pen = next(pens())
    figure.add_scatter(
        x=[epsilon for _, epsilon in pairs],
        y=deltas,
        name="proved",
        mode="lines",
        line={**pen.line, "shape": STEP_AHEAD},
        customdata=[f"epsilon {printed(e)} at delta {printed(d)}" for d, e in pairs],
        hovertemplate="%{customdata}",
    )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(log_axis(deltas))
    return figure


def certified_attack(certificate: Certificate, proved: Iterable[tuple[float, float]]) -> Any:
    """The least false negative rate of any membership test, by what the certificate proves.

    >>> from lastiterate import FullBatch, Loss, Training, certify
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> certificate = certify(run, Loss(smoothness=1.0), delta=1e-5)
    >>> certified_attack(certificate, [(1e-5, certificate.epsilon)]).layout.title.text
    'A test that accuses 5 % wrongly finds at most 5.69 % of the members'
    """
    pairs, mu = list(proved), certificate.mu
    rates = np.unique(
        np.concatenate([np.geomspace(_SMALLEST_RATE, 0.1, 40), np.linspace(0, 1, 51)])
    )
    missed = [1 - detection_rate(rate, pairs, mu) for rate in rates.tolist()]
    found = percent(detection_rate(0.05, pairs, mu))
    figure = blank(
        f"A test that accuses 5 % wrongly finds at most {found} of the members",
        "false positive rate",
        "false negative rate",
    )
    pen = next(pens())
    figure.add_scatter(
        x=rates,
        y=missed,
        name="no test does better than this",
        mode="lines",
        meta=FROM_BELOW,
        line={**pen.line, "shape": STEP_AHEAD},
        fill="tozeroy",
        fillcolor=SHADE,
        customdata=[printed_down(value) for value in missed],
        hovertemplate="false positives %{x:.4g}: false negatives at least %{customdata}",
    )
    figure.add_scatter(
        x=[0, 1],
        y=[1, 0],
        name="guessing: nothing can be inferred",
        mode="lines",
        line={"color": GREY, "dash": "dot", "width": 1.5},
    )
    return figure
