"""L (Chien, Li 2025), Figure 2(a): what Hoelder regularity of a network would buy.

A network of two layers with 64 hidden units on Iris, step 0.1, 200 epochs, clip 1, loss x 0.1, 20
initialisations; its Hoelder constants are measured along the runs (`holder_iris.py`) and put into
the setting of L's Figure 1. Two pictures. As L describe it, points are uniform in a ball of radius
1: in 500 dimensions all of them lie near the rim, every exponent gets the same constant, and
smoothness (exponent 1) costs least, unlike in L's figure. With distances down to 1/1000, rougher
exponents do cost less, as L say. The order that L plot is not named; order 2 is drawn. Measured
constants are no guarantee, and `certify` refuses such a loss.

    python examples/gallery_l_figure2a.py [FOLDER] [--png]
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gallery import keep
from holder_iris import estimated, run

from lastiterate import Loss, account
from lastiterate.report import line_figure

ORDER = 2.0
SAMPLING = {"": None, "_distances": 1e-3}


def figures(initialisations: int = 20, epochs: int = 200, points: int = 16) -> dict[str, Any]:
    steps = np.unique(np.linspace(20, 200, points).round().astype(int)).tolist()
    drawn = {}
    for name, smallest in SAMPLING.items():
        found = estimated(initialisations, epochs, smallest)
        losses = {f"exponent {p:.1f}, constant {one.smoothness:.3f}": one
                  for p, one in found.losses.items()}  # fmt: skip
        losses["composition"] = Loss.unknown()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # every line rests on an estimate: the figure says so
            lines = {one: (steps, [account(run(t), loss).rdp(ORDER) for t in steps])
                     for one, loss in losses.items()}  # fmt: skip
        best = min(lines, key=lambda one: lines[one][1][-1])
        where = "uniform in a ball" if smallest is None else f"at distances from {smallest:g} to 1"
        drawn[f"l_figure2a{name}"] = line_figure(
            lines, f"Points {where}: {best.split(',')[0]} costs least",
            "steps T", f"Renyi divergence of order {ORDER:g}",
            subtitle="NOT A GUARANTEE: the constants were estimated on Iris",
        ).update_yaxes(range=[0.1, 0.5])  # fmt: skip
    return drawn


if __name__ == "__main__":
    keep(figures(), __doc__)
