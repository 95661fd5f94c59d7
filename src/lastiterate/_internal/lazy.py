"""Names of a package that are loaded when they are first used, so that importing stays quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lastiterate.errors import MissingExtraError


def loaded_on_use(
    package: str, home: Mapping[str, str], extras: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """A package's ``__getattr__``: each name comes from its module in ``home``, and stays.

    No module of the package may have one of these names: once loaded, it would stand in its place.

    Args:
        package: its name.
        home: name -> the module that defines it.
        extras: library -> the optional extra that brings it; a missing one raises
            `MissingExtraError`.

    >>> load = loaded_on_use("lastiterate", {"Loss": "lastiterate.description"})
    >>> load("Loss").__name__
    'Loss'
    """

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(home[name])
        except ModuleNotFoundError as missing:
            extra = (extras or {}).get((missing.name or "").partition(".")[0])
            if extra is None:
                raise
            raise MissingExtraError(f"{package}.{name}", missing.name, extra) from None
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load
