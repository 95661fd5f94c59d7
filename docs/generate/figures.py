"""Draws the figures of gallery.md when the documentation is built: small pages, one Plotly."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from lastiterate.report.saving import CONFIG

EXAMPLES = Path(__file__).parents[2] / "examples"
# On dark pages light and dark change places, and colours stay: every line keeps its contrast.
DARK = """<style>
@media (prefers-color-scheme: dark) {
  html { background: #000; }
  .plotly-graph-div { filter: invert(1) hue-rotate(180deg); }
}
</style>"""


def figures() -> dict[str, Any]:
    """Every figure of every script, by its name."""
    sys.path.insert(0, str(EXAMPLES))
    drawn: dict[str, Any] = {}
    for path in sorted(EXAMPLES.glob("gallery_*.py")):
        drawn |= importlib.import_module(path.stem).figures()
    return drawn


def pages() -> Iterator[tuple[str, str]]:
    yield "gallery/plotly.min.js", get_plotlyjs()
    for name, figure in figures().items():
        figure.update_layout(height=460, autosize=True)
        page = figure.to_html(include_plotlyjs="directory", config=CONFIG)
        yield f"gallery/{name}.html", page.replace("<head>", f"<head>{DARK}", 1)
