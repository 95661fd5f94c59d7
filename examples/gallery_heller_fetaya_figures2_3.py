"""Heller & Fetaya 2022, Figures 2 and 3: attacks on LeNet-5 trained by SGLD, per epoch.

Drawn from what `audit_lenet_sgld.py` and `audit_clipped_sgld.py` write (audit.json; results/ keeps
a run of each on one GPU: 1,000 models for 12 epochs, 400 clipped ones for 6). Heller & Fetaya's
crafted record is not published, so the heights cannot be compared, only the shape: without clipping
the attack begins to work as the models fit, with clipping it finds nothing. Heller & Fetaya plot
each epoch as if it were the only one looked at; the best of those is no 90 % bound, so the
corrected line is drawn too. Their ceiling of 4.89 does not belong to 500 models (a perfect attack
on 250 + 250 proves 4.42).

    python examples/gallery_heller_fetaya_figures2_3.py [FOLDER]
"""

from __future__ import annotations

import json
from pathlib import Path

from gallery import keep, line_figure

from lastiterate.audit import AuditResult
from lastiterate.report import FigureData

RESULTS = Path(__file__).parent / "results"


def figures(folder: Path = RESULTS) -> dict[str, FigureData]:
    drawn = {}
    for name in ("heller_fetaya_figure2", "heller_fetaya_figure3"):
        report = json.loads((folder / f"{name}.json").read_text())
        result = AuditResult.from_dict(report["audit"])
        epochs = list(range(1, len(result.looks) + 1))
        lines = {
            "audit, all epochs paid for (at least)": (
                epochs,
                [k.epsilon_lower for k in result.looks],
            ),
            "each epoch alone, as Heller & Fetaya plot": (epochs, report["each_epoch_alone"]),
        }
        if "certified" in report:
            lines["certificate (at most)"] = epochs, report["certified"]
        models, found = f"{result.models:,} LeNet-5 models", result.epsilon_lower
        drawn[name] = line_figure(
            lines,
            f"{models}: epsilon is at least {int(1000 * found) / 1000:g}"
            if found
            else f"{models} with clipped gradients: the attack finds nothing",
            "epoch",
            f"epsilon at delta = {result.delta:g}",
            subtitle=f"confidence {result.confidence:g}, MNIST, SGLD with batches of 4",
        )
        drawn[f"{name}_accuracy"] = line_figure(
            {"accuracy": (epochs, report["accuracy"])},
            f"Accuracy reaches {100 * max(report['accuracy']):.1f} %",
            "epoch",
            "accuracy (share of test images)",
            subtitle=models,
        )
    return drawn


if __name__ == "__main__":
    keep(figures(), __doc__)
