"""The GPU benchmark also runs without a GPU, with PyTorch and NumPy alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu" / "lenet_sgld.py"

# Everything else that the library may use is made unimportable.
ALONE = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"scipy", "sklearn", "joblib", "pandas", "dp_accounting", "rich"}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_it_runs_on_a_processor(tmp_path):
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT / "src"), "LASTITERATE_DATA": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-c", ALONE, str(SCRIPT), "--models", "2", "--steps", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["models"] == 2
    assert found["ms_per_step"] > 0
    assert "random images" in done.stdout
    assert "one by one" in done.stdout
