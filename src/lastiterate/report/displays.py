"""Pictures as objects, as scikit-learn users know them: ``Display.from_...`` and ``plot()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lastiterate.accounting import Comparison, compare
from lastiterate.description import Loss, Training
from lastiterate.guarantee import REFERENCE_DELTA
from lastiterate.report.figures.bracket import audit_bracket
from lastiterate.report.figures.comparison import comparison_bars

if TYPE_CHECKING:
    from lastiterate.audit.result import AuditResult


class ComparisonDisplay:
    """Every bound on a run, side by side.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch())
    >>> display = ComparisonDisplay.from_run(run, Loss(smoothness=1.0, strong_convexity=1.0))
    >>> display.comparison[0].theorem.name
    'Shifted interpolation (Bok, Su & Altschuler 2024)'
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @classmethod
    def from_run(cls, training: Training, loss: Loss, delta: float = REFERENCE_DELTA) -> Self:
        """Compare, then draw."""
        display = cls(compare(training, loss, delta))
        display.plot()
        return display

    def plot(self) -> Self:
        """Draw; the figure is in ``figure_``."""
        self.figure_ = comparison_bars(self.comparison)
        return self


class AuditDisplay:
    """An audit from below, and what is guaranteed from above."""

    def __init__(self, result: AuditResult, certificate: Any = None) -> None:
        self.result = result
        self.certificate = certificate

    @classmethod
    def from_result(cls, result: AuditResult, certificate: Any = None) -> Self:
        """Draw an audit, with a certificate or guarantee beside it where there is one."""
        display = cls(result, certificate)
        display.plot()
        return display

    def plot(self) -> Self:
        """Draw; the figure is in ``figure_``."""
        self.figure_ = audit_bracket(self.result, self.certificate)
        return self
