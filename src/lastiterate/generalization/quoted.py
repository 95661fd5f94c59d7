"""Bounds with fixed constants, as the literature states them.

He, Wang & Tao 2020, Theorem 1 is true (with a new proof) for epsilon below 2. The other three are
quoted from second hand; they are shown for comparison and never chosen.
"""

from __future__ import annotations

import math

from lastiterate.generalization.bound import ONE_SIDED, TWO_SIDED, GeneralizationBound


def he_wang_tao(epsilon: float, delta: float, records: int) -> GeneralizationBound:
    """P(|gap| < 9 epsilon) > 1 - (e^-epsilon delta/epsilon) ln(2/epsilon).

    Assumptions: n >= (2/epsilon^2) ln(16 e^epsilon/delta), 0 < epsilon < 2, 0 < delta.
    Reference: He, Wang & Tao 2020, Theorem 1. Status: sound; the print omits epsilon < 2, and its
    proof covers one side only (``monitor`` at epsilon2 = w = epsilon gives both). Vacuous from
    epsilon = 1/9 on.

    >>> print(he_wang_tao(0.1, 1e-6, 10_000))
    9 epsilon (He, Wang & Tao 2020, Theorem 1; sound), size of the gap of this run: 0.9 except \
with probability \
2.7e-05
    """
    unmet = _conditions(
        ("0 < epsilon < 2", 0.0 < epsilon < 2.0),
        ("delta > 0", delta > 0.0),
        (
            "n >= (2/epsilon^2) ln(16 e^epsilon/delta)",
            _large(records, 2.0, epsilon, 16.0 * math.exp(min(epsilon, 2.0)), delta),
        ),
    )
    failure = math.inf if unmet else math.exp(-epsilon) * delta / epsilon * math.log(2.0 / epsilon)
    return GeneralizationBound(
        "9 epsilon",
        "He, Wang & Tao 2020, Theorem 1",
        "sound",
        TWO_SIDED,
        9.0 * epsilon,
        failure,
        unmet,
    )


def nissim_stemmer(epsilon: float, delta: float, records: int) -> GeneralizationBound:
    """P(gap < 13 epsilon) > 1 - (2 delta/epsilon) ln(2/epsilon), binary loss. Status: unverified.

    Reference: Nissim, Stemmer (2015), as quoted by He, Wang & Tao; sample size condition from
    memory.

    >>> nissim_stemmer(0.05, 1e-7, 100_000).vacuous
    False
    """
    unmet = _conditions(
        ("0 < epsilon < 2", 0.0 < epsilon < 2.0),
        ("delta > 0", delta > 0.0),
        ("n >= (2/epsilon^2) ln(8/delta)", _large(records, 2.0, epsilon, 8.0, delta)),
    )
    failure = math.inf if unmet else 2.0 * delta / epsilon * math.log(2.0 / epsilon)
    return GeneralizationBound(
        "13 epsilon",
        "Nissim, Stemmer 2015, as quoted by He, Wang & Tao",
        "unverified",
        ONE_SIDED,
        13.0 * epsilon,
        failure,
        unmet,
    )


def dwork(epsilon: float, delta: float, records: int) -> GeneralizationBound:
    """P(gap < 4 epsilon) > 1 - 8 delta^epsilon. Status: unverified.

    Reference: Dwork, Feldman, Hardt, Pitassi, Reingold, Roth (2015), as quoted by He, Wang & Tao;
    sample size condition from memory.

    >>> dwork(0.1, 1e-6, 1_000_000).vacuous        # 8 delta^epsilon = 2
    True
    """
    unmet = _conditions(
        ("epsilon > 0", epsilon > 0.0),
        ("delta > 0", delta > 0.0),
        ("n >= (12/epsilon^2) ln(1/delta)", _large(records, 12.0, epsilon, 1.0, delta)),
    )
    failure = math.inf if unmet else 8.0 * delta**epsilon
    return GeneralizationBound(
        "4 epsilon",
        "Dwork et al. 2015, as quoted by He, Wang & Tao",
        "unverified",
        ONE_SIDED,
        4.0 * epsilon,
        failure,
        unmet,
    )


def bassily(epsilon: float, delta: float, records: int) -> GeneralizationBound:
    """P(|gap| < 18 epsilon) > 1 - delta/epsilon. Status: unverified.

    Reference: Bassily, Nissim, Smith, Steinke, Stemmer, Ullman (2016), from memory.

    >>> round(bassily(0.05, 1e-6, 10_000).failure, 9)
    2e-05
    """
    unmet = _conditions(
        ("0 < epsilon < 1/3", 0.0 < epsilon < 1.0 / 3.0),
        ("0 < delta < epsilon/4", 0.0 < delta < epsilon / 4.0),
        (
            "n >= (1/epsilon^2) ln(4 epsilon/delta)",
            _large(records, 1.0, epsilon, 4.0 * epsilon, delta),
        ),
    )
    failure = math.inf if unmet else delta / epsilon
    return GeneralizationBound(
        "18 epsilon",
        "Bassily et al. 2016, from memory",
        "unverified",
        TWO_SIDED,
        18.0 * epsilon,
        failure,
        unmet,
    )


def _large(records: int, factor: float, epsilon: float, scale: float, delta: float) -> bool:
    """n >= (factor/epsilon^2) ln(scale/delta)."""
    if not (epsilon > 0.0 and delta > 0.0):
        return False
    return records * epsilon**2 >= factor * math.log(scale / delta)


def _conditions(*conditions: tuple[str, bool]) -> tuple[str, ...]:
    return tuple(statement for statement, holds in conditions if not holds)
