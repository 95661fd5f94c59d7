"""Two workers of Dask, Ray and Spark are one process, bit for bit, also when they are killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

psutil = pytest.importorskip("psutil")
import cluster_fit  # noqa: E402

pytestmark = pytest.mark.slow
KILLS, SECONDS = 10, 400  # some 60 on an idle machine


def end(process: subprocess.Popen[str]) -> None:
    """With everybody that it started."""
    try:
        started = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    for one in [process, *started]:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue


@pytest.fixture(scope="module", params=["dask", "ray", "spark"])
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    engine = request.param
    pytest.importorskip({"dask": "distributed", "spark": "pyspark"}.get(engine, engine))
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("there is no Java; see scripts/install-java")
    words = [sys.executable, cluster_fit.__file__, engine, str(KILLS), str(SECONDS)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, said = process.communicate(timeout=SECONDS + 60)
    except subprocess.TimeoutExpired:
        end(process)
        pytest.fail(f"{engine} did not end in {SECONDS + 60} seconds: {process.communicate()[1]}")
    assert process.returncode == 0, said[-3000:]
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def test_workers_killed_at_ten_random_moments_change_no_sum_and_no_model(found: Any) -> None:
    assert found["kills"] == KILLS
    assert found["same"] == [True] * 3
    assert set(found["listening"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_hostile_rows_changed_parts_and_old_workers_are_refused(found: Any) -> None:
    expected = {
        "a": "NaN or infinity",
        "y": "outside of the declared classes",
        "anew": "other records than before",
        "outdated": "A worker has lastiterate 0.9",
    }
    for name, said in found["refusals"].items():
        assert expected[name] in said
        assert "SECRET" not in said
    assert {"a", "y"} <= set(found["refusals"])
