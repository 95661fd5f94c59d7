"""The Triton kernels train the networks that plain products train (where Triton is installed)."""

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
    worker = Path(__file__).with_name("lenet_kernels_worker.py")
    here = str(Path(__file__).parents[2] / "examples")
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, str(worker)], env=env, capture_output=True, text=True, check=True
    )
    found = {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}
    assert found["plain"] < 1e-5
    assert found["clipped"] < 1e-5
    assert abs(found["mean"]) < 5 / 128  # 16,384 draws: five standard errors
    assert abs(found["variance"] - 1) < 5 * 2**0.5 / 128
    assert abs(found["kurtosis"] - 3) < 5 * 96**0.5 / 128
    assert abs(found["correlation"]) < 5 / 128  # the next step's noise is fresh
