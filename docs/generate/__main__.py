"""Writes all pages of the documentation into a folder, for whichever builder comes after:

    python docs/generate build/docs [--quick]

The pages of docs/ are copied, those that come from the code and from measurements are written
beside them. What was there before goes, so that no page outlives its source. ``--quick`` draws no
figures and runs no notebooks.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import compares
import measured
import notebooks
import papers
import reference
import theorem_pages

DOCS = Path(__file__).parents[1]


def pages(quick: bool) -> Iterator[tuple[str, str]]:
    yield from theorem_pages.pages()
    yield from reference.pages()
    yield from compares.pages()
    yield from measured.pages()
    yield from papers.pages()
    yield from notebooks.pages(quick)
    if not quick:
        import figures

        yield from figures.pages()


def write(folder: Path, quick: bool) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("generate", "__pycache__"))
    for name, text in pages(quick):
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write all pages of the documentation.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="no figures, no output of notebooks")
    chosen = parser.parse_args()
    write(chosen.folder, chosen.quick)
