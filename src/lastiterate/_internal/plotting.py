"""How results draw themselves: through `lastiterate.report`, which holds the figures, by name.

matplotlib is not part of the core, and `lastiterate.report` is a higher layer. So this module, and
no other below it, loads the report when a figure is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any


def plotted(name: str, *arguments: Any, ax: Any, **options: Any) -> Any:
    """Draw the figure ``name`` of ``lastiterate.report`` on these axes, or on new ones.

    >>> plotted("privacy_curve", ax=None)
    Traceback (most recent call last):
    ...
    TypeError: privacy_curve() missing 1 required positional argument: 'source'
    """
    report = importlib.import_module("lastiterate.report")
    return getattr(report, name)(*arguments, **options).plot(ax)
