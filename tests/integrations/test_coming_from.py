"""The other side of "Coming from": programs of the page, in environments of the other libraries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from architecture import ROOT

PAGE = ROOT / "docs" / "how-to" / "coming-from.md"
PROGRAM = re.compile(r"^```py title=\"from_(\w+)\.py\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = dict(PROGRAM.findall(PAGE.read_text("utf-8")))
TOO_NEW = {"tensorflow_privacy"} if sys.version_info >= (3, 12) else set()


def test_every_library_of_the_page_has_an_environment() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    listed = makefile.split("PEER_ENVIRONMENTS := ")[1].split("\n")[0].split()
    assert sorted(PROGRAMS) == sorted(listed)


@pytest.mark.parametrize("library", sorted({*PROGRAMS} - TOO_NEW))
def test_it_prints_what_the_page_says(library: str, tmp_path: Path) -> None:
    python = Path(os.environ.get("LASTITERATE_PEERS", ROOT / ".venv-peers"), library, "bin/python")
    if not python.exists():
        pytest.skip(f"{library} has no environment: make test-integrations")
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[library], encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, program], capture_output=True, text=True, timeout=900, cwd=tmp_path, env=clean
    )
    promised = re.findall(r"^print\(.*\)  # (.*)$", PROGRAMS[library], re.MULTILINE)
    assert done.returncode == 0, done.stderr[-2000:]
    assert promised
    assert done.stdout.splitlines() == promised
