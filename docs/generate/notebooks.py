"""Shows the notebooks of examples/ as pages, with what they print when they are executed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"


def pages(quick: bool = False) -> Iterator[tuple[str, str]]:
    """One page a notebook; quickly: without running it, so without output."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8")) if quick else executed(path)
        source = f"*This page is the notebook `examples/notebooks/{path.name}`, executed.*"
        head, *rest = (part for cell in notebook["cells"] for part in shown(cell))
        title, _, words = head.partition("\n")
        parts = [title, source, words.strip(), *rest]
        yield f"notebooks/{path.stem}.md", "\n\n".join(filter(None, parts)) + "\n"


def executed(path: Path) -> dict[str, Any]:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    return dict(notebook)


def shown(cell: dict[str, Any]) -> Iterator[str]:
    """The Markdown of a cell: its words, or its code and what that put out."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            yield f'<div class="notebook-output">{"".join(data["text/html"])}</div>'
        else:
            text = "".join(output.get("text") or data["text/plain"])
            yield f"```text\n{text.rstrip()}\n```"
