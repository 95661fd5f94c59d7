"""An audit from below and a guarantee from above: the truth lies between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lastiterate.description.validation import number
from lastiterate.errors import UnsupportedError
from lastiterate.printing import printed, printed_down
from lastiterate.report.style import BELOW, FROM_BELOW, INK, SHADE, blank, pens

if TYPE_CHECKING:
    from lastiterate.audit.result import AuditResult


def audit_bracket(
    result: AuditResult, guarantee_or_certificate: Any = None, delta: float | None = None
) -> Any:
    """What the audit refutes, look by look, and what is guaranteed.

    Args:
        result: of `lastiterate.audit.audit`; its looks (epochs) are drawn from left to right.
        guarantee_or_certificate: the claim from above, if there is one.
        delta: where epsilon is read; the audited one if not given.

    >>> from lastiterate.audit.result import AuditResult, Look
    >>> look = Look(0.5, 0.4, 0.0, 1, 3, 50, 4, 50, (0.0, 0.1), (0.0, 0.1))
    >>> audit_bracket(AuditResult("clopper-pearson", 1e-5, 0.95, (look,), 200)).layout.title.text
    'The audit refutes every claim below epsilon = 0.5'
    """
    delta = result.delta if delta is None else delta
    delta = number("delta", delta, "epsilon is read there", above=0, at_most=1)
    lower = _lower(result, delta)
    upper = None
    if guarantee_or_certificate is not None:
        from lastiterate.audit.result import like_with_like

        like_with_like(guarantee_or_certificate)
        upper = upper_epsilon(guarantee_or_certificate, delta)
    figure = blank(
        _finding(lower, upper, result.hypothesis),
        "look of the audit (epoch or checkpoint)",
        f"epsilon at delta = {printed(delta)}",
        f"audit: {result.method}, confidence {result.confidence:g}, {result.models:,} models",
        legend=BELOW,
    )
    looks = np.arange(1, len(lower) + 1)
    ends = [0.5, len(lower) + 0.5]
    below, above = (pen for pen, _ in zip(pens(), range(2), strict=False))
    if upper is not None and math.isfinite(upper):
        best = [max(lower)] * 2
        figure.add_scatter(
            x=ends,
            y=best,
            mode="lines",
            showlegend=False,
            hoverinfo="skip",
            line={"color": INK, "width": 0.8},
        )
        figure.add_scatter(
            x=ends,
            y=[upper, upper],
            name="guaranteed: at most this",
            mode="lines",
            line=above.line,
            hovertemplate=f"at most {printed(upper)}",
            fill="tonexty" if upper >= max(lower) else "none",
            fillcolor=SHADE,
        )
    figure.add_bar(
        x=looks,
        y=lower,
        name="audit: at least this",
        width=min(0.6, 0.15 * len(lower) + 0.1),
        marker={"color": below.colour, "line": {"color": INK, "width": 1}},
        meta=FROM_BELOW,
        customdata=[printed_down(value) for value in lower],
        hovertemplate="look %{x}: at least %{customdata}",
    )
    figure.update_xaxes(range=ends, tickformat="d", dtick=max(1, len(lower) // 10))
    top = max([*lower, upper or 0.0, 1e-12])
    figure.update_yaxes(range=[0, 1.1 * (top if math.isfinite(top) else 1.0)])
    return figure


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
