"""Writes all pages of the documentation into a folder, for whichever builder comes after:

    python docs/generate build/docs [--without gallery ...]

The pages of docs/ are copied, those that come from the code and from measurements are written beside
them. What was there before goes, so that no page outlives its source.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
from pathlib import Path

DOCS = Path(__file__).parents[1]
PARTS = ("ledger", "reference", "gallery")


def write(folder: Path, parts: tuple[str, ...] = PARTS) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("generate", "__pycache__"))
    for part in parts:
        for name, text in importlib.import_module(part).pages():
            page = folder / name
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write all pages of the documentation.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", choices=PARTS, nargs="*", default=[])
    chosen = parser.parse_args()
    write(chosen.folder, tuple(part for part in PARTS if part not in chosen.without))
