"""diffprivlib's logistic regression on the same data, in an environment of its own.

It needs scikit-learn < 1.8 and counts pure epsilon under replacement, so its figures stand apart.
Nothing runs on import; on demand: ``python -m benchmarks.diffprivlib_peer``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
SEEDS = 5

# Runs in the other environment: no import from this package.
PROGRAM = """
import sys, time, warnings
import numpy as np
from scipy import sparse
from sklearn.metrics import roc_auc_score
from diffprivlib.models import LogisticRegression
warnings.simplefilter("ignore")
folder, name, seeds = sys.argv[1], sys.argv[2], int(sys.argv[3])
X, Z = (sparse.load_npz(f"{folder}/{name}-{part}.npz").toarray() for part in ("train", "test"))
y, t = (np.load(f"{folder}/{name}-{part}-labels.npy") for part in ("train", "test"))
for epsilon in map(float, sys.argv[4:]):
    accuracy, area, start = [], [], time.perf_counter()
    for seed in range(seeds):
        model = LogisticRegression(epsilon=epsilon, data_norm=1.0, C=1.0, fit_intercept=False,
                                   max_iter=500, random_state=seed).fit(X, y)
        scores = Z @ model.coef_[0]
        accuracy.append(100 * np.mean((scores > 0) == t))
        area.append(100 * roc_auc_score(t, scores))
    seconds = (time.perf_counter() - start) / seeds
    print(f"{name}, eps {epsilon:g}, diffprivlib: accuracy {np.mean(accuracy):.2f} +- "
          f"{np.std(accuracy):.2f}, AUC {np.mean(area):.2f}, {seconds:.1f} s per fit", flush=True)
"""


def main() -> None:
    """Make the environment, hand the data over, print what it measures."""
    from scipy import sparse

    from benchmarks import datasets

    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
        wanted = ["diffprivlib>=0.6.5", "scikit-learn<1.8"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        for data in (datasets.adult(), datasets.census()):
            for part, rows, labels in (
                ("train", data.train, data.labels),
                ("test", data.test, data.test_labels),
            ):
                sparse.save_npz(f"{folder}/{data.name}-{part}.npz", sparse.csr_matrix(rows))
                np.save(f"{folder}/{data.name}-{part}-labels.npy", labels)
            epsilons = [str(epsilon) for epsilon in EPSILONS]
            subprocess.run([python, program, folder, data.name, str(SEEDS), *epsilons], check=True)


if __name__ == "__main__":
    sys.exit(main())
