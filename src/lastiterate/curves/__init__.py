"""Privacy curves: what a release gives away, and the conversions between the ways to say it.

``gaussian``: one Gaussian; ``mixture``: an average of them; ``renyi``: Renyi divergences;
``loss_distribution``: privacy-loss distributions (imported on first use: its library is heavy).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from lastiterate.curves import gaussian, mixture, renyi
from lastiterate.curves.base import Curve

__all__ = ["Curve", "gaussian", "loss_distribution", "mixture", "renyi"]


def __getattr__(name: str) -> ModuleType:
    if name == "loss_distribution":
        return import_module("lastiterate.curves.loss_distribution")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
