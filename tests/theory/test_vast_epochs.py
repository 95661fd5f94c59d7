"""Epochs with more batches than a machine has memory get a number, or a refusal that says why."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import (
    Cyclic,
    Loss,
    Reshuffled,
    Shuffled,
    Training,
    account,
    certify,
    compare,
    verify,
)
from lastiterate.curves import gaussian
from lastiterate.errors import LastIterateError

VAST = 2**53
DELTA = 1e-20
LOSSES = [Loss(smoothness=1.0), Loss.unknown()]


def described(batches, **changes):
    fields = dict(records=VAST, steps=5, step_size=0.1, noise=0.1, gradient_norm=1.0)
    return Training(**{"adjacency": "replace", **fields, "batches": batches, **changes})


@pytest.mark.parametrize("diameter", [math.inf, 1.0])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("steps", [0.1, [0.1, 0.09, 0.08, 0.07, 0.06]])
def test_each_scheme_is_accounted(loss, diameter, steps):
    """Five steps of a vast epoch: one of them may use the record, once, with s/nu = 0.2."""
    known, hidden, fresh = (
        account(described(scheme(10), diameter=diameter, step_size=steps), loss).epsilon(DELTA)
        for scheme in (Cyclic, Shuffled, Reshuffled)
    )
    once = gaussian.epsilon(0.2, DELTA)
    assert once * (1 - 1e-9) <= known <= once * (1 + 1e-9)
    assert fresh == pytest.approx(known, rel=1e-9)
    # Five of 2^53/10 positions use the record, once each: the delta of all others is 0.
    mus = 2.0 * np.broadcast_to(steps, 5)
    average = sum(gaussian.delta(float(mu), hidden) for mu in mus) / (VAST // 10)
    assert average == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize("scheme", [Cyclic, Shuffled, Reshuffled])
def test_comparing_answers_and_certifying_says_what_is_too_much(scheme):
    run = described(scheme(10))
    assert 0 < compare(run, LOSSES[0], DELTA)[0].epsilon < 2
    if scheme is Reshuffled:  # composition needs no positions
        assert verify(certify(run, LOSSES[0], delta=DELTA)).epsilon < 3
    else:
        with pytest.raises(LastIterateError, match="10,000,000 positions"):
            certify(run, LOSSES[0], delta=DELTA)


@pytest.mark.parametrize("steps", [3, 7, 12])
@pytest.mark.parametrize("constant", [True, False])
def test_shares_of_positions_are_those_of_a_list_of_all(steps, constant):
    """The average over all positions, one by one."""
    sizes = np.linspace(0.1, 0.05, steps)
    run = described(
        Shuffled(2), records=10, steps=steps, step_size=0.1 if constant else sizes.tolist()
    )
    costs = np.zeros(5)
    for k in range(steps):
        costs[k % 5] += ((0.1 if constant else sizes[k]) * 2 / 2 / 0.1) ** 2
    curve = account(run, Loss.unknown())
    for epsilon in (0.5, 1.0, 2.0):
        average = np.mean([gaussian.delta(math.sqrt(cost), epsilon) for cost in costs])
        assert curve.delta(epsilon) == pytest.approx(average, rel=1e-9)
        assert curve.delta(epsilon) >= average * (1 - 1e-12)
