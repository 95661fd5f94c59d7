"""Certificates of runs with a burst, an average or an optimal schedule verify."""

from __future__ import annotations

import pytest

pytest.importorskip("flint")

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    account,
)
from lastiterate.accounting import optimal_schedule
from lastiterate.certificate import certify, verify

LOSS = Loss(smoothness=1.0, strong_convexity=0.1)


def run(batches, steps=24, **changes):
    return Training(
        records=60,
        steps=steps,
        step_size=0.5,
        noise=0.1,
        gradient_norm=1.0,
        batches=batches,
        **({"adjacency": "replace"} | changes),
    )


RUNS = {
    "burst": run(Shuffled(10), final_noise=9.0),
    "burst, equalised": run(Shuffled(10), final_noise=3.0, schedule="equalised"),
    "burst, average": run(Cyclic(10), final_noise=9.0, release=TailAverage(10)),
    "burst, reshuffled": run(Reshuffled(10), steps=12, final_noise=4.0),
    "quiet end": run(Shuffled(10), final_noise=0.2),
    "average": run(FullBatch(), release=TailAverage(20)),
    "optimal schedule": optimal_schedule(run(FullBatch()), LOSS, 1.0, 1e-5),
}


@pytest.mark.parametrize("name", RUNS)
def test_certificates_verify(name, tmp_path):
    path = tmp_path / "certificate.json"
    certificate = certify(RUNS[name], LOSS, 1e-5)
    certificate.save(path)
    assert verify(path)
    assert certificate.epsilon >= account(RUNS[name], LOSS).epsilon(1e-5) * (1 - 1e-9)
