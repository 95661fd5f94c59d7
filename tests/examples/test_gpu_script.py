"""Scripts for a bare GPU machine also run without a GPU, with PyTorch, NumPy (and SciPy) alone."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu" / "lenet_sgld.py"

# Everything else that the library may use is made unimportable.
ALONE = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in refused:
            raise ImportError(name)
refused = {"sklearn", "joblib", "pandas", "dp_accounting", "rich", "typer", "matplotlib", *
           filter(None, sys.argv[1].split(","))}
sys.meta_path.insert(0, Refuse())
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(data: Path, refused: str, script: Path, *options: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "LASTITERATE_DATA": str(data),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", ALONE, refused, str(script), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_on_a_processor(tmp_path):
    said = run(tmp_path, "scipy", SCRIPT, "--models", "2", "--steps", "2")
    found = json.loads(said.splitlines()[-1])
    assert found["models"] == 2
    assert found["ms_per_step"] > 0
    assert "random images" in said
    assert "one by one" in said


def images(folder: Path, part: str, records: int) -> None:
    """Easy pictures in the files of MNIST: ten patterns with noise."""
    rng = np.random.default_rng(0)
    patterns = 200 * (rng.random((10, 28, 28)) > 0.6)
    labels = rng.integers(0, 10, records).astype(np.uint8)
    pixels = (patterns[labels] + rng.integers(0, 50, (records, 28, 28))).astype(np.uint8)
    for name, header, content in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
        path = folder / f"{part}-{name}-ubyte.gz"
        path.write_bytes(gzip.compress(bytes(header) + content.tobytes()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["audit_lenet_sgld", "audit_clipped_sgld"])
def test_the_experiment_runs_and_goes_on(tmp_path, name):
    """Trained, scored, audited and written; the second time nothing is trained."""
    (tmp_path / "mnist").mkdir()
    for part, records in (("train", 600), ("t10k", 50)):
        images(tmp_path / "mnist", part, records)
    options = (
        "--models",
        "8",
        "--epochs",
        "2",
        "--records",
        "600",
        "--references",
        "2",
        "--step",
        "0.02",
        "--clip",
        "2.0",
        "--out",
        str(tmp_path / "out"),
        "--test-images",
        "50",
    )
    said = run(tmp_path, "", ROOT / "examples" / f"{name}.py", *options)
    assert "an epoch more" in said
    found = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert found["audit"]["models"] == 8
    assert len(found["audit"]["looks"]) == len(found["accuracy"]) == 2
    assert found["accuracy"][-1] > 0.3  # of ten classes
    if name == "audit_clipped_sgld":
        assert 0 < found["certified"][0] < found["certified"][1]
    again = run(tmp_path, "", ROOT / "examples" / f"{name}.py", *options)
    assert "an epoch more" not in again
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["audit"] == found["audit"]
