"""Names of a package that are loaded when they are first used, so that importing stays quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def loaded_on_use(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: each name comes from its module in ``home``, and stays.

    Staying is not only for speed: loading a function ``audit`` from a module ``audit`` leaves the
    module under that name, and the function must win.

    >>> load = loaded_on_use("lastiterate", {"Loss": "lastiterate.description"})
    >>> load("Loss").__name__
    'Loss'
    """

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
