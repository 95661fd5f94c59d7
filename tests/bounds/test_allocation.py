"""Random allocation against exact laws over all picks of the record, and its published tables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from allocated_laws import instance

from lastiterate import Loss, Poisson, RandomAllocation, Training, account
from lastiterate.bounds import BY_KEY, allocation
from lastiterate.bounds.allocation import Accountant, Plan
from lastiterate.bounds.ledger import Run
from lastiterate.errors import UnsupportedError

EPSILONS = (0.0, 0.1, 0.5, 1.5)
ROUGH = 1 << 11


def random_cut(rng, labels: int) -> tuple[int, ...]:
    sizes = []
    while labels:
        sizes.append(int(rng.integers(1, labels + 1)))
        labels -= sizes[-1]
    return tuple(sizes)


def random_plan(rng, batches: int, epochs: int) -> Plan:
    """Any payments are a proof."""
    most = batches - 1 if epochs > 1 else batches
    steps = int(rng.integers(1, most + 1))
    rows = [(random_cut(rng, batches), 1) for _ in range(epochs - 1)]
    rows.append((random_cut(rng, batches - steps), 1))
    kappa = float(rng.choice([0.0, 0.5, 1.0, 3.0, math.inf]))
    return Plan(tuple(rows), steps, kappa)


def curve_of(batches: int, ratio: float, plan: Plan, points: int = ROUGH):
    epochs = allocation.epochs_of(batches, ratio, plan)
    return Accountant(batches, 1e-3, len(plan.blocks) > 1).curve(epochs, points)


def shortfall(seed: int, plane: bool, share: float = 1.0) -> float:
    """By how much a bound is below the truth at most."""
    rng = np.random.default_rng(seed)
    run = instance(rng, plane)
    plan = random_plan(rng, run.batches, run.steps // run.batches)
    curve = curve_of(run.batches, share * run.ratio, plan)
    return max(max(run.deltas(e)) - curve.delta(e) for e in EPSILONS)


@pytest.mark.parametrize("plane", [False, True])
@pytest.mark.parametrize("block", range(15))
def test_any_payments_are_never_below_the_law_over_all_picks(block: int, plane: bool) -> None:
    for seed in range(5 * block, 5 * block + 5):
        assert shortfall(seed, plane) <= 2e-6, seed


@pytest.mark.slow
@pytest.mark.parametrize("plane", [False, True])
@pytest.mark.parametrize("block", range(20))
def test_never_below_the_law_of_two_thousand_runs(block: int, plane: bool) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        assert shortfall(seed, plane) <= 2e-6, seed


@pytest.mark.parametrize("plane", [False, True])
def test_half_the_sensitivity_is_refuted(plane: bool) -> None:
    assert any(shortfall(seed, plane, 0.5) > 1e-4 for seed in range(20))
