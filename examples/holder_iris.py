"""What Hoelder regularity would buy: Chien & Li 2025, Figure 2(a).

A network of two layers with 64 hidden units learns Iris; its Hoelder constants are estimated along
20 runs of 200 epochs, and the Renyi divergence of the last iterate is printed against the number
of steps, in the setting of Chien & Li's Figure 1. Estimates are no guarantee, and `certify` refuses
them. `gallery_chien_li_figure2a.py` draws what --out keeps.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import torch
from sklearn.datasets import load_iris
from torch import nn

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.torch import estimate_holder

EXPONENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
STEPS = (1, 5, 10, 20, 50, 100, 200)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 0.1 * nn.functional.cross_entropy(outputs, targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--initialisations", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--order", type=float, default=2.0, help="of the Renyi divergence")
    parser.add_argument("--smallest", type=float, help="least distance; L: uniform in the ball")
    parser.add_argument("--out", type=Path, help="a JSON file for the constants")
    settings = parser.parse_args()

    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)  # Iris is public
    data = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    found = estimate_holder(
        network,
        loss,
        data,
        EXPONENTS,
        steps=settings.epochs,
        initialisations=settings.initialisations,
        seed=0,
        smallest=settings.smallest,
    )
    print(f"{found.points:,} pairs of points; longest mean gradient {found.longest_gradient:.3f}")
    for exponent, one in found.losses.items():
        print(f"  exponent {exponent:.1f}: constant {one.smoothness:.3f} (estimated)")
    if settings.out is not None:
        table = {
            "points": found.points,
            "smallest": settings.smallest,
            "constants": {str(p): one.smoothness for p, one in found.losses.items()},
        }
        settings.out.write_text(json.dumps(table, indent=1) + "\n")

    warnings.simplefilter("ignore")  # every guarantee below rests on an estimate, as said above
    print(f"\nRenyi divergence of order {settings.order:g} against the number of steps")
    curves: dict[str, Loss] = {"composition": Loss.unknown()}
    curves |= {f"exponent {p:.1f}": one for p, one in found.losses.items()}
    print(f"{'T':>6}" + "".join(f"{name:>15}" for name in curves))
    for steps in STEPS:
        run = Training(
            records=5,
            steps=steps,
            step_size=0.1,
            noise=1.0,
            gradient_norm=2.0,
            batches=FullBatch(),
            diameter=1.0,
            adjacency="replace",
        )
        values = [account(run, one).rdp(settings.order) for one in curves.values()]
        print(f"{steps:>6}" + "".join(f"{value:>15.5f}" for value in values))


if __name__ == "__main__":
    main()
