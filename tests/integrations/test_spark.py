"""Spark with two workers is one process, bit for bit, also where workers are killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import cluster_fit
import pytest

pytest.importorskip("pyspark")

CHANGES = """
import cluster_fit
from lastiterate import cluster
from lastiterate.errors import AssumptionError
if __name__ == "__main__":
    with cluster.local("spark", 2) as session:
        from pyspark.sql import functions
        random = cluster_fit.dataset("spark", session).withColumn("a", functions.expr("uuid()"))
        random = random.withColumn("a", functions.expr("cast(conv(left(a, 8), 16, 10) as double)"))
        from lastiterate.cluster import engines
        class Forgetful(engines.SparkWorkers):
            def ask(self, job, rows):
                self._held.unpersist(blocking=True)
                return super().ask(job, rows)
        engines.SparkWorkers = Forgetful
        try:
            cluster.fit(random, cluster_fit.model(), label="y")
        except AssumptionError as refused:
            print("other records than before" in str(refused))
"""


def program(*words: str) -> str:
    if shutil.which("java") is None:
        pytest.skip("there is no Java; see scripts/install-java")
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_workers_killed_at_ten_random_moments_change_nothing() -> None:
    found = json.loads(program(cluster_fit.__file__, "spark", "10"))
    assert found["kills"] == 10
    assert found["same"]
    assert all(found["same"])
    assert set(found["listening"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_a_frame_that_is_random_anew_is_refused(tmp_path) -> None:
    """What an executor lost is computed again, and has other records."""
    path = tmp_path / "changes.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(cluster_fit.__file__)[:-14]!r})\n{CHANGES}"
    )
    assert program(str(path)) == "True"
