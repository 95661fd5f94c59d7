"""Pictures of what the rest of the library computes (Plotly, extra ``report``)."""

from lastiterate.report.displays import AuditDisplay, ComparisonDisplay
from lastiterate.report.figures.accuracy import accuracy_against_epsilon
from lastiterate.report.figures.bracket import audit_bracket
from lastiterate.report.figures.comparison import comparison_bars
from lastiterate.report.figures.curves import privacy_curve, tradeoff
from lastiterate.report.figures.forgetting import forgetting
from lastiterate.report.figures.growth import epsilon_growth
from lastiterate.report.figures.hump import interim_hump
from lastiterate.report.figures.lines import line_figure
from lastiterate.report.figures.positions import positions
from lastiterate.report.figures.recommendation import recommendation_bars
from lastiterate.report.figures.string import taut_string
from lastiterate.report.saving import MissingBrowserError, save_figure
from lastiterate.report.violated_region import violated_region_figure

__all__ = [
    "AuditDisplay",
    "ComparisonDisplay",
    "MissingBrowserError",
    "accuracy_against_epsilon",
    "audit_bracket",
    "comparison_bars",
    "epsilon_growth",
    "forgetting",
    "interim_hump",
    "line_figure",
    "positions",
    "privacy_curve",
    "recommendation_bars",
    "save_figure",
    "taut_string",
    "tradeoff",
    "violated_region_figure",
]
