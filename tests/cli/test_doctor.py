"""`lastiterate doctor` tries what it says, and notices what would void the proofs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_SECONDS

import lastiterate

DOCTOR = "from lastiterate.cli.main import run; run(['doctor', '--json'])"


def examined(before: str = "") -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-c", f"{before}\n{DOCTOR}"],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_engines_that_are_here_earn_certificates() -> None:
    code, found = examined()
    assert code == 0
    assert found["version"] == lastiterate.__version__
    assert found["engines"]["NumPy"] == found["engines"]["PyTorch, cpu"] == "certified"
    assert found["extras"]["cli"]["typer"]
    assert found["healthy"]


@pytest.mark.parametrize(
    ("before", "engine", "word"),
    [
        ("import sys; sys.modules['flint'] = None", "NumPy", "pip install"),
        ("import torch; assert torch.set_flush_denormal(True)", "arithmetic", "taken for 0"),
        ("import sys; sys.path.insert(0, '{broken}')", "PyTorch, cpu", "libtorch is missing"),
    ],
    ids=["no verifier", "small numbers flushed", "PyTorch broken"],
)
def test_what_would_void_a_certificate_is_said(
    before: str, engine: str, word: str, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libtorch is missing')")
    code, found = examined(before.format(broken=tmp_path))
    assert code == 3
    assert word in found["engines"][engine]
    assert not found["healthy"]
