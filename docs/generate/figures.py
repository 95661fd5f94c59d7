"""Draws the figures of gallery.md when the documentation is built, as SVG files."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from lastiterate.report import FigureData
from lastiterate.report.render import svg

EXAMPLES = Path(__file__).parents[2] / "examples"
# On dark pages light and dark change places, and colours stay: every line keeps its contrast.
STYLE = """<style>
svg { background: #fff; }
@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg); } }
</style>"""


def figures() -> dict[str, FigureData]:
    """Return every figure of every script, by its name."""
    sys.path.insert(0, str(EXAMPLES))
    drawn: dict[str, FigureData] = {}
    for path in sorted(EXAMPLES.glob("gallery_*.py")):
        drawn |= importlib.import_module(path.stem).figures()
    return drawn


def pages() -> Iterator[tuple[str, str]]:
    for name, figure in figures().items():
        drawn = svg(figure, name, titled=True)
        yield f"gallery/{name}.svg", drawn.replace("</desc>", f"</desc>\n{STYLE}", 1)
