"""An audit from below and a guarantee from above: the truth lies between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.description.fields import number
from lastiterate.errors import UnsupportedError
from lastiterate.report.figures.data import FigureData, Series

if TYPE_CHECKING:
    from lastiterate.audit.result import AuditResult


_LABELLED = 6  # looks whose numbers fit above their columns


def audit_bracket(
    result: AuditResult, guarantee_or_certificate: Any = None, delta: float | None = None
) -> FigureData:
    """What the audit refutes, look by look, and what is guaranteed.

    Args:
        result: of `lastiterate.audit.audit`; its looks (epochs) are drawn from left to right.
        guarantee_or_certificate: the claim from above, if there is one.
        delta: where epsilon is read; the audited one if not given.

    >>> from lastiterate.audit.result import AuditResult, Look
    >>> look = Look(0.5, 0.4, 0.0, 1, 3, 50, 4, 50, (0.0, 0.1), (0.0, 0.1))
    >>> audit_bracket(AuditResult("clopper-pearson", 1e-5, 0.95, (look,), 200)).title
    'The audit refutes every claim below epsilon = 0.5'
    """
    delta = result.delta if delta is None else delta
    delta = number("delta", delta, above=0, at_most=1)
    lower = _lower(result, delta)
    upper = None
    if guarantee_or_certificate is not None:
        from lastiterate.audit.result import like_with_like

        like_with_like(guarantee_or_certificate)
        upper = upper_epsilon(guarantee_or_certificate, delta)
    looks, ends = range(1, len(lower) + 1), [0.5, len(lower) + 0.5]
    values = tuple(printed_down(value) for value in lower) if len(lower) <= _LABELLED else ()
    series = [
        Series("audit: at least this", looks, lower, "columns", lower=True, texts=values),
    ]
    if upper is not None and math.isfinite(upper):
        best = [max(lower)] * 2
        name, shaded = "guaranteed: at most this", upper >= max(lower)
        series += [
            Series("", ends, best, role="guide", lower=True),
            Series(
                name,
                ends,
                [upper, upper],
                shaded="previous" if shaded else "",
                texts=("", printed(upper)),
            ),
        ]
    return FigureData(
        _finding(lower, upper, result.hypothesis),
        "look of the audit (epoch or checkpoint)",
        f"epsilon at delta = {printed(delta)}",
        tuple(series),
        f"audit: {result.method}, confidence {result.confidence:g}, {result.models:,} models",
        zero="y",
    )


def _lower(result: AuditResult, delta: float) -> list[float]:
    """What each look refutes at ``delta``."""
    if delta == result.delta:
        return [look.epsilon_lower for look in result.looks]
    return [
        type(result)(
            result.method, result.delta, result.confidence, (look,), result.models, result.searched
        ).epsilon_at(delta)
        for look in result.looks
    ]


def upper_epsilon(claim: Any, delta: float) -> float:
    """The epsilon that a guarantee or a certificate claims at ``delta``."""
    if callable(claim.epsilon):
        return float(claim.epsilon(delta))
    pairs = [(claim.delta, claim.epsilon)]
    pairs += [(claimed, epsilon) for claimed, epsilon in getattr(claim, "curve", ())]
    held = [float(epsilon) for claimed, epsilon in pairs if claimed <= delta]
    if not held:
        raise UnsupportedError(
            f"The certificate claims nothing at delta = {printed(delta)} or below; its smallest "
            f"delta is "
            f"{min(claimed for claimed, _ in pairs):g}. Draw the bracket there."
        )
    return min(held)


def _finding(lower: list[float], upper: float | None, hypothesis: str) -> str:
    least = printed_down(max(lower))
    if upper is None:
        return f"The audit refutes every claim below epsilon = {least}"
    if max(lower) > upper and not hypothesis:
        return f"The audit contradicts the guarantee: at least {least}, claimed {printed(upper)}"
    return f"epsilon is between {least} (audited) and {printed(upper)} (guaranteed)"
