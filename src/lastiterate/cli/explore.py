"""`lastiterate explore`: a local page to describe a run and watch its privacy."""

from __future__ import annotations

from typing import Annotated

import typer

from lastiterate.errors import LastIterateError


def explore(
    port: Annotated[int, typer.Option(help="Port on loopback; 0 takes any free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Describe a run with sliders and see what it gives away, on a page of this machine."""
    try:
        from lastiterate.explore.server import serve
    except ImportError:
        raise LastIterateError(
            'The explorer needs dash and waitress. Run: pip install "lastiterate[explore]"'
        ) from None
    serve(port, browser=browser)
