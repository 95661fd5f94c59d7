"""The one way up: objects that can draw themselves ask the report room by name.

Lower rooms never import higher ones, and Plotly stays in the report room. ``guarantee.plot()`` is
too natural a habit to give up, so this module, and no other, loads that room when a picture is
asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from lastiterate.errors import UnsupportedError


def picture(name: str, *arguments: Any, **options: Any) -> Any:
    """Call the figure ``name`` of ``lastiterate.report``.

    >>> picture("privacy_curve")
    Traceback (most recent call last):
    ...
    TypeError: privacy_curve() missing 1 required positional argument: 'guarantee'
    """
    try:
        room = importlib.import_module("lastiterate.report")
    except ModuleNotFoundError as missing:
        raise UnsupportedError(
            f"Pictures need Plotly ({missing.name} is not installed). Install it with "
            "`pip install 'lastiterate[report]'`; all numbers are there without it."
        ) from None
    return getattr(room, name)(*arguments, **options)
