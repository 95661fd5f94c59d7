"""Two workers of Ray and of Dask are one process, bit for bit, also where workers are killed.

Spark: tests/integrations/test_spark.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import cluster_fit
import pytest


def program(engine: str, kills: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, cluster_fit.__file__, engine, str(kills)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_workers_killed_at_ten_random_moments_change_nothing(engine: str) -> None:
    pytest.importorskip({"dask": "distributed"}.get(engine, engine))
    found = program(engine, 10)
    assert found["kills"] >= 1  # 10 unless the machine is too busy to replace them
    assert found["same"]
    assert all(found["same"])
    assert set(found["listening"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
