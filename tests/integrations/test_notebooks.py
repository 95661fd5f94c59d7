"""The notebooks, executed in a kernel; what they hold in the repository has no output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from architecture import ROOT
from patience import HANG_SECONDS

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SHOWN = {  # in how many cells a result draws itself as HTML
    "accountant.ipynb": 2,
    "audit.ipynb": 1,
    "certified_table.ipynb": 1,
    "probe.ipynb": 1,
}


def test_every_notebook_is_known() -> None:
    assert {path.name for path in NOTEBOOKS} == set(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_output(path: Path) -> None:
    """An output could show records, or numbers that are not true any more."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_shows(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip(
        "nbclient", reason="nbclient is not installed: make test-integrations"
    )
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(
        notebook, timeout=HANG_SECONDS, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [
        output.data["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result" and "text/html" in output.data
    ]
    assert len(shown) == SHOWN[path.name]
    assert all(html.startswith("<div>") for html in shown)
