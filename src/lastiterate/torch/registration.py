"""Tells Opacus of our accountant, as soon as Opacus is there, and never loads it for that.

Scripts import Opacus before or after this package, and many that import this package never use it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_REGISTRY = "opacus.accountants"


class _Registering(MetaPathFinder):
    """Finds Opacus' accountants as anybody would, and registers ours when they are loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec("opacus.accountants", path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: Any) -> None:
                load(module)
                _load()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


def register_when_loaded() -> None:
    """Register the accountant now if Opacus is loaded, else when it is."""
    if _REGISTRY in sys.modules:
        _load()
    elif not any(isinstance(finder, _Registering) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Registering())


def _load() -> None:
    """Our accountant registers itself; where it is just being imported, it will."""
    import_module("lastiterate.torch.accountant")
