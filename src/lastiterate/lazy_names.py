"""Names of a package that are loaded when they are first used, so that importing stays quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def loaded_on_use(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: each name comes from its module in ``home``, and stays.

    No module of the package may have one of these names: once loaded, it would stand in its place.

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
