"""A fit leaves PyTorch's generator, allocator and stream of the process as they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_random_numbers_on_the_gpu_after_every_kind_of_fit():
    """`torch.randn`, dropout and `manual_seed`, also after a capture that failed on purpose."""
    worker = Path(__file__).with_name("generator_worker.py")
    done = subprocess.run([sys.executable, str(worker)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": ok") >= 15
