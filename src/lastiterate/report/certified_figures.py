"""The pictures of a certificate alone, drawn from pairs that its verifier proved.

For compositions, which have no single run, and for runs whose bound is slow to ask again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lastiterate.certificate import Certificate
from lastiterate.printing import percent, printed
from lastiterate.report.attacker import detection_rate
from lastiterate.report.figures.curves import draw_pairs, draw_tradeoff
from lastiterate.report.style import blank

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
    title = f"epsilon = {printed(certificate.epsilon)} at delta = {printed(certificate.delta)}"
    figure = blank(f"{title}, as certified", "epsilon", "delta")
    draw_pairs(figure, [epsilon for _, epsilon in pairs], [delta for delta, _ in pairs], "proved")
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
    draw_tradeoff(figure, rates, missed)
    return figure
