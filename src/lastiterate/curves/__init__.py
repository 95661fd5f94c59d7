"""Privacy curves: what a release gives away, and the conversions between the ways to say it.

``gaussian``: one Gaussian; ``mixture``: an average of them; ``renyi``: Renyi divergences;
``loss_distribution``: privacy-loss distributions.
"""

from __future__ import annotations

from lastiterate.curves import gaussian, loss_distribution, mixture, renyi
from lastiterate.curves.base import Curve

__all__ = ["Curve", "gaussian", "loss_distribution", "mixture", "renyi"]
