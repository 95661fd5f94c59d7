"""Puts what was measured (benchmarks/results) into how-it-compares.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "how-it-compares.md"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

NAMES = {
    "ours (defaults)": "**lastiterate, defaults**",
    "DP-SGD, 10 passes, Opacus PRV, best of 3": "DP-SGD, Poisson batches, best of 3 settings",
    "objective perturbation": "objective perturbation",
    "output perturbation": "output perturbation",
    "our run charged by composition": "our run, charged by composition",
}
SCORES = {"Census-Income": "area under the curve, %"}


def rows(name: str) -> list[dict[str, Any]]:
    return list(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"])


def accuracy() -> Iterator[str]:
    """A table a data set: methods down, epsilons across."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    alone: dict[str, str] = {}
    for row in rows("models"):
        if match := re.fullmatch(r"([\w-]+), eps ([\d.]+), (.*)", row["name"]):
            data, epsilon, method = match.groups()
            found.setdefault(data, {}).setdefault(method, {})[epsilon] = row["measured"]
        elif match := re.fullmatch(r"([\w-]+), scikit-learn without privacy", row["name"]):
            alone[match[1]] = row["measured"].split(" ")[0]
    for data, methods in found.items():
        epsilons = sorted({one for values in methods.values() for one in values}, key=float)
        lines = [
            f"### {data}",
            "",
            f"{SCORES.get(data, 'Accuracy, %')}; without privacy {alone[data]}.".capitalize(),
            "",
            "| method | " + " | ".join(f"epsilon {one}" for one in epsilons) + " |",
            "|---" * (len(epsilons) + 1) + "|",
        ]
        for method, name in NAMES.items():
            if values := methods.get(method):
                cells = " | ".join(values.get(one, "–") for one in epsilons)
                lines.append(f"| {name} | {cells} |")
        yield "\n".join(lines)


def speed() -> str:
    """Two ratios: records a second against Opacus, seconds of accounting against dp-accounting."""
    (opacus,) = [row for row in rows("models") if "records/s against Opacus" in row["name"]]
    theirs, ours = (
        next(row["measured"] for row in rows("poisson") if re.match(start, row["name"]))
        for start in ("dp-accounting: plain composition of 10000", "plain composition of 10000")
    )
    return (
        f"- Training a linear model on Adult in batches of 814: {opacus['measured']:.0f} times as "
        "many records a second as Opacus, which computes a gradient per record for any network.\n"
        f"- Composing 10,000 Poisson steps: {ours:.3f} s, dp-accounting {theirs:.3f} s, "
        "epsilon within 0.1 %."
    )


def pages() -> Iterator[tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    for place, measured in (("accuracy", "\n\n".join(accuracy())), ("speed", speed())):
        assert text.count(f"<!-- {place} -->") == 1, place
        text = text.replace(f"<!-- {place} -->", measured)
    yield PAGE.name, text
