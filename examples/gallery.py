"""Where the figures of the gallery are written: every script takes a folder and ``--png``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lastiterate.report import save_figure


def keep(figures: Mapping[str, Any], description: str | None) -> None:
    """Write every figure into the folder named on the command line, as HTML or PNG."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/gallery"))
    parser.add_argument("--png", action="store_true", help="pictures (needs Chromium), not HTML")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        path = save_figure(figure, given.folder / f"{name}.{'png' if given.png else 'html'}")
        print(f"{path}: {figure.layout.title.text}")
