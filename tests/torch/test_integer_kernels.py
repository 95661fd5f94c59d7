"""The integer kernels return the bits of the plain sums: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_return_the_bits_of_the_plain_sums():
    """Every loss, 8 and 16 bits, four and five pieces; on a GPU larger tables too."""
    worker = Path(__file__).with_name("integer_worker.py")
    env = {**os.environ, **({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})}
    done = subprocess.run(
        [sys.executable, str(worker)], env=env, capture_output=True, text=True, check=True
    )
    found = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert found == [0.0] * 4
