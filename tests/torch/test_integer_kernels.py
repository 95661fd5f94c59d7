"""The integer kernels return the bits of the plain sums: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

NO_TRITON = importlib.util.find_spec("triton") is None
NO_GPU = not torch.cuda.is_available()


@pytest.mark.skipif(NO_TRITON or not NO_GPU, reason="needs Triton, and no GPU")
def test_kernels_in_the_interpreter():
    worker = Path(__file__).with_name("integer_worker.py")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(worker)], env=env, capture_output=True, text=True, check=True
    )
    found = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert found == [0.0] * 4


@pytest.mark.skipif(NO_TRITON or NO_GPU, reason="needs a GPU")
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("radius", [0.5, 3.0, 1e5])
def test_kernels_on_a_gpu(bits, radius):
    from integer_worker import CASES, difference

    large = [
        ("softmax", 10, False, 768, 5000, 0.5, math.inf),
        ("softmax", 1000, False, 768, 700, 0.5, math.inf),
        ("softmax", 33, False, 100, 140_000, 1.0, math.inf),
        ("logistic", 1, False, 300, 70_000, 1.0, math.inf),
    ]
    for case in [*CASES, *large]:
        assert difference(case, bits, radius, torch.device("cuda")) == 0.0, case
