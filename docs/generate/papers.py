"""Writes reproduce.md: every statement of the five papers, evaluated. As a script, `make papers`:

    python docs/generate/papers.py build/papers

evaluates every row of `lastiterate.published.statements`, prints what each gives, draws all figures
into the folder and writes the page beside them.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lastiterate.published import PAPERS, Statement, statements
from lastiterate.report import FigureData
from lastiterate.report.render import svg

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = {
    "chourasia_ye_shokri": ("Chourasia, Ye & Shokri 2021", "2102.05855"),
    "ye_shokri": ("Ye & Shokri 2022", "2203.05363"),
    "chien_li": ("Chien & Li 2025", "2410.01068"),
    "he_wang_tao": ("He, Wang & Tao 2020", "2007.09371"),
    "heller_fetaya": ("Heller & Fetaya 2022", "2110.05057"),
}
STATUSES = ("sound", "corrected", "refuted", "not computable")
HEAD = """# The papers, statement by statement

Five papers, row by row: every quantity, theorem, lemma, claim, algorithm, figure and table, with the
function that evaluates it. `make papers` evaluates all rows and draws all figures. This page is
written from `lastiterate.published.statements` when the documentation is built.

- **sound**: true as printed.
- **corrected**: true after what the row says was mended.
- **refuted**: false; its call evaluates the counterexample, beside the value of the replacement.
- **not computable**: nothing to evaluate; the row says why.
"""


def resolve(name: str) -> Any:
    """The object of a dotted name; scripts of examples/ are modules of their own."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    first, *rest = name.split(".")
    path: str = first
    found: Any = importlib.import_module(first)
    for part in rest:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


def draws(row: Statement) -> bool:
    """Whether a row is a figure, which takes long."""
    return row.call.endswith(".figures")


def evaluate(row: Statement) -> tuple[Any, Any]:
    """What the call gives, and what the replacement gives where it has arguments."""
    value = resolve(row.call)(**row.arguments) if row.call else None
    other = resolve(row.replacement) if row.replacement else None
    return value, other(**row.replacement_arguments) if row.replacement_arguments else None


def shown(value: Any) -> str:
    """A value in a few characters."""
    if value is None:
        return ""
    if isinstance(value, bool | int | str):
        return str(value)
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Mapping):
        return ", ".join(map(str, value))
    if hasattr(value, "_asdict"):
        return ", ".join(f"{name} {shown(part)}" for name, part in value._asdict().items())
    if hasattr(value, "tolist"):
        return shown(value.tolist())
    if isinstance(value, list | tuple):
        return f"({', '.join(map(shown, value))})"
    return str(value).partition("\n")[0]


def plain(text: str) -> str:
    """Text of the rows as it is: no character of it is markup, and none ends a cell."""
    return "".join(f"&#{ord(c)};" if c in r"\`*_{}[]<>|#&$" else c for c in text)


def counts() -> Iterator[str]:
    """The table of rows by paper and status."""
    yield "| paper | rows | calls | " + " | ".join(STATUSES) + " |"
    yield "|---|" + "---|" * (2 + len(STATUSES))
    for paper in PAPERS:
        rows = statements(paper)
        numbers = [len(rows), sum(bool(row.call) for row in rows)]
        numbers += [sum(row.status == status for row in rows) for status in STATUSES]
        yield f"| [{NAMES[paper][0]}](#{paper}) | " + " | ".join(map(str, numbers)) + " |"


def entries(paper: str, values: Mapping[Statement, tuple[str, str]]) -> Iterator[str]:
    """The table of one paper."""
    yield "| number | status | statement | value | call | instead |"
    yield "|---|---|---|---|---|---|"
    for row in statements(paper):
        text = plain(row.statement) + (f". *{plain(row.reason)}*" if row.reason else "")
        value, other = values[row]
        call = f"`{row.call.removeprefix('lastiterate.')}`" if row.call else ""
        instead = f"`{row.replacement.removeprefix('lastiterate.')}`" if row.replacement else ""
        instead += f": {plain(other)}" if other else ""
        yield f"| {plain(row.number)} | {row.status} | {text} | {plain(value)} | {call} | {instead} |"


def page(values: Mapping[Statement, tuple[str, str]]) -> str:
    """The page, from what every row gave."""
    parts = [HEAD, "\n".join(counts())]
    for paper in PAPERS:
        name, arxiv = NAMES[paper]
        parts.append(f"## {name} {{ #{paper} }}")
        parts.append(
            f"[arXiv:{arxiv}](https://arxiv.org/abs/{arxiv}). Calls without a package are "
            f"in `lastiterate`; what is false or mended: [errata](errata.md)."
        )
        parts.append("\n".join(entries(paper, values)))
    return "\n\n".join(parts) + "\n"


def pages() -> Iterator[tuple[str, str]]:
    """The page for the documentation; figures are drawn by the gallery."""
    values = {
        row: ("[gallery](gallery.md)", "") if draws(row) else tuple(map(shown, evaluate(row)))
        for paper in PAPERS
        for row in statements(paper)
    }
    yield "reproduce.md", page(values).replace("&#91;gallery&#93;(gallery.md)", "gallery")


def main(folder: Path) -> None:
    """Evaluate every row, draw every figure, write the page."""
    folder.mkdir(parents=True, exist_ok=True)
    begun, values, drawn = time.monotonic(), {}, {}
    for paper in PAPERS:
        for row in statements(paper):
            if draws(row) and row.call not in drawn:
                drawn[row.call] = resolve(row.call)()
                for name, figure in drawn[row.call].items():
                    save(folder, name, figure)
            value, other = (drawn[row.call], None) if draws(row) else evaluate(row)
            values[row] = shown(value), shown(other)
            print(f"{NAMES[paper][0]}, {row.number}: {row.status}; {values[row][0]}", flush=True)
    (folder / "reproduce.md").write_text(page(values), encoding="utf-8")
    print("\n".join(counts()))
    print(f"{len(values)} rows, {time.monotonic() - begun:.0f} s: {folder / 'reproduce.md'}")


def save(folder: Path, name: str, figure: FigureData) -> None:
    """A figure as a file."""
    (folder / f"{name}.svg").write_text(svg(figure, name, titled=True), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/papers"))
