"""Heller & Fetaya 2022: posterior sampling as printed, for study only."""

from __future__ import annotations

import math
from typing import Protocol

from lastiterate.errors import AssumptionError
from lastiterate.published.setting import theorem
from lastiterate.theory.registry import Theorem


class Posterior(Protocol):
    """What Lemma A.1 reads of `lastiterate.sampling.PosteriorPrivacy`."""

    @property
    def records(self) -> int:
        """n."""

    @property
    def noise_precision(self) -> float:
        """beta."""

    @property
    def x_low(self) -> float:
        """x_l."""

    @property
    def x_high(self) -> float:
        """x_h."""

    def lemma_value(self, order: float) -> float:
        """The value that the lemma claims, whatever its condition."""


def proposition_iii_4(order: float, epsilon: float, delta: float) -> float:
    """Proposition III.4 (Mironov 2017): (ν, ε)-RDP is (ε + log(1/δ)/(ν-1), δ)-DP.

    >>> round(proposition_iii_4(11.0, 0.5, 1e-5), 4)
    1.6513
    """
    return epsilon + math.log(1 / delta) / (order - 1)


def lemma_a1_printed(order: float, posterior: Posterior) -> float:
    """Lemma A.1 with its printed condition on n. REFUTED for noise_precision > 1.

    The printed n > 1 + 10 (x_high^2/x_low^2) order/noise_precision lets the variances differ too
    much; ``posterior.lemma(order)`` has the corrected condition.

    >>> from lastiterate.sampling import posterior_privacy
    >>> n = 23
    >>> p = posterior_privacy(n, 0.1, 10, 1, 1, 5 * n**0.3, n**0.3, adjacency="either")
    >>> round(lemma_a1_printed(20, p), 1), round(p.rdp(20), 1)
    (257.4, 835.8)
    """
    ratio = posterior.x_high**2 / posterior.x_low**2
    needed = max(1 + 10 * ratio * order / posterior.noise_precision, 1 + order * ratio)
    if not posterior.records > needed:
        raise AssumptionError(
            f"Heller & Fetaya 2022, Lemma A.1 needs more than {needed:g} records, and there "
            f"are {posterior.records}."
        )
    return posterior.lemma_value(order)


ROWS: tuple[Theorem, ...] = (
    theorem(
        "heller-fetaya-2022-a1",
    ),
)
