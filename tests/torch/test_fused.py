"""The Triton kernels compute what the plain path computes (where Triton is installed)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_in_the_interpreter():
    worker = Path(__file__).with_name("fused_worker.py")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(worker)], env=env, capture_output=True, text=True, check=True
    )
    found = {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}
    assert found["split"] < 1e-6
    assert found["fast"] < 1e-3
