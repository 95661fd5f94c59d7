"""What a run says of itself when it is certified: marks and people that `certify` cannot see."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flint")

from lastiterate import (
    AssumptionError,
    DescriptionError,
    FullBatch,
    Loss,
    PrivacyUnit,
    Shuffled,
    Training,
    account,
    verify,
)
from lastiterate.losses import Logistic
from lastiterate.train import noisy_descent

RNG = np.random.default_rng(5)
X = RNG.uniform(-0.5, 0.5, (24, 3))
Y = np.resize([1.0, -1.0], 24)
RUN = Training(
    records=24,
    steps=12,
    step_size=0.5,
    noise=0.2,
    gradient_norm=1.0,
    batches=Shuffled(4),
    adjacency="zero-out",
)
OWNERS = np.arange(24) // 3


def test_an_experiment_has_no_certificate():
    seeded = noisy_descent(Logistic(), X, RUN, labels=Y, random_state=0)
    with pytest.raises(AssumptionError, match="seeded"):
        seeded.certificate(1e-5)


def test_a_gradient_function_needs_a_loss():
    run = RUN.replace(batches=FullBatch(), clipping="gradient")
    released = noisy_descent(lambda theta, rows: -X[rows], X, run, start=np.zeros(3))
    with pytest.raises(AssumptionError, match="give loss="):
        released.certificate(1e-5)
    assert verify(released.certificate(1e-5, loss=Loss.unknown())).delta == 1e-5


def test_it_speaks_of_the_person_the_run_was_made_for():
    released = noisy_descent(
        Logistic(), X, RUN, labels=Y, groups=OWNERS, max_records_per_group=2, per_batch=1
    )
    certificate = released.certificate(1e-3)
    assert certificate.unit == released.unit == PrivacyUnit(records=2, per_batch=1)
    assert verify(certificate, parameters=released.parameters).epsilon == certificate.epsilon
    told = account(released.training, released.loss, unit=released.unit).epsilon(1e-3)
    assert certificate.epsilon >= told * (1 - 1e-12)
    assert len(released.above) == 8  # and nothing of them is in the file
    with pytest.raises(AssumptionError, match="somebody else"):
        released.certificate(1e-3, unit=PrivacyUnit(records=2))
    with pytest.raises(DescriptionError, match="the run's own loss"):
        released.certificate(1e-3, loss=Loss(smoothness=1.0, strong_convexity=0.5))
