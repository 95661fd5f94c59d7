"""How results draw themselves: by asking `lastiterate.report`, which holds the figures, by name.

``guarantee.plot()`` is too natural a habit to give up, and Plotly is not part of the core. So this
module, and no other below it, loads the report when a picture is asked for.
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
        report = importlib.import_module("lastiterate.report")
    except ModuleNotFoundError as missing:
        raise UnsupportedError(
            f"Pictures need Plotly ({missing.name} is not installed). Install it with "
            "`pip install 'lastiterate[report]'`; all numbers are there without it."
        ) from None
    return getattr(report, name)(*arguments, **options)
