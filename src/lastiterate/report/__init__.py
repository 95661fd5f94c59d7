"""Figures of what the rest of the library computes, and the page to file (extra ``report``).

Each function returns the figure's numbers and text; its ``plot()`` draws them with matplotlib.
"""

from lastiterate.report.figures.audit import audit_bracket
from lastiterate.report.figures.comparison import comparison_bars
from lastiterate.report.figures.curve import privacy_curve, tradeoff
from lastiterate.report.figures.data import FigureData, Series
from lastiterate.report.figures.growth import epsilon_growth
from lastiterate.report.figures.string import taut_string

__all__ = [
    "FigureData",
    "Series",
    "audit_bracket",
    "comparison_bars",
    "epsilon_growth",
    "privacy_curve",
    "taut_string",
    "tradeoff",
]
