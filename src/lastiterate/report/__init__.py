"""Pictures of what the other rooms compute (Plotly, extra ``report``)."""

from lastiterate.report.violated_region import violated_region_figure

__all__ = ["violated_region_figure"]
