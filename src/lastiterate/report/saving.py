"""Figures on disk: HTML and JSON always, PNG, SVG and PDF where there is a browser.

Kaleido draws static pictures with Chromium. It is told to fetch nothing from the network. A file
is written whole or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.whole_files import write_whole

_STATIC = (".png", ".svg", ".pdf")
_SIZE = (900, 540)  # pixels, where the figure does not say
_SHARPNESS = 2  # dots of a PNG per pixel
CONFIG = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True}


class MissingBrowserError(UnsupportedError):
    """A static picture was asked for and there is no Chromium to draw it."""


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a figure; the ending of the name says how: html, json, png, svg or pdf.

    HTML files carry Plotly with them and open offline. PNG, SVG and PDF need Kaleido and a
    Chromium or Chrome that is on the path, or that the environment variable BROWSER_PATH names.

    >>> import tempfile
    >>> from lastiterate.report import accuracy_against_epsilon
    >>> figure = accuracy_against_epsilon([{"epsilon": 1.0, "accuracy": 0.9}])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(figure, Path(folder) / "accuracy.html").name
    'accuracy.html'
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind == ".html":
        content = figure.to_html(config=CONFIG, include_plotlyjs=True).encode()
    elif kind == ".json":
        content = figure.to_json().encode()
    elif kind in _STATIC:
        content = _drawn(figure, kind.removeprefix("."))
    else:
        allowed = "a name that ends in .html, .json, .png, .svg or .pdf"
        raise DescriptionError("path", str(path), allowed, "the ending says how to write it")
    write_whole(path, content)
    return path


def _drawn(figure: Any, kind: str) -> bytes:
    """The picture, drawn by a browser."""
    try:
        import kaleido
        from kaleido.errors import BrowserFailedError, ChromeNotFoundError
    except ModuleNotFoundError:
        raise UnsupportedError(
            f"A {kind} picture needs Kaleido. Install it with `pip install 'lastiterate[report]'`, "
            "or save the figure as .html."
        ) from None
    table = figure.to_plotly_json()
    layout = table.get("layout", {})
    options = {
        "format": kind,
        "width": layout.get("width") or _SIZE[0],
        "height": layout.get("height") or _SIZE[1],
        "scale": _SHARPNESS if kind == "png" else 1,
    }
    try:
        # No formulas here, so no MathJax: it would be fetched from the network.
        return bytes(kaleido.calc_fig_sync(table, opts=options, kopts={"mathjax": False}))
    except (ChromeNotFoundError, BrowserFailedError, FileNotFoundError, PermissionError) as reason:
        raise MissingBrowserError(
            f"A {kind} picture is drawn by Chromium or Chrome, which could not be started "
            f"({type(reason).__name__}). Install it (`apt install chromium`), name it in the "
            "environment variable BROWSER_PATH, or save the figure as .html."
        ) from None
