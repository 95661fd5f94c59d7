"""How the figures of the gallery are drawn and written: every script takes a folder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from lastiterate.report import FigureData, Series

Line = tuple[Sequence[float], Sequence[float]]


def line_figure(
    lines: Mapping[str, Line], title: str, x: str, y: str, *, subtitle: str = "", log: str = ""
) -> FigureData:
    """Named lines, each a pair of coordinates; the first is drawn on top with the widest pen."""
    series = tuple(Series(name, list(xs), list(ys)) for name, (xs, ys) in lines.items())
    return FigureData(title, x, y, series, subtitle, log)


def keep(figures: Mapping[str, FigureData], description: str | None) -> None:
    """Write every figure as PNG into the folder named on the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/gallery"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.plot().figure.savefig(path, dpi=200)
        print(f"{path}: {figure.title}")
