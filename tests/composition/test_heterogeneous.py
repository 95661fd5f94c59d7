"""The certified bracket: around the truth, and tight."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from lastiterate.composition import heterogeneous, optimal
from lastiterate.errors import DescriptionError


def subsets(epsilons: list[float], deltas: list[float], target: float) -> mpmath.mpf:
    """The sum over all subsets (Murtagh, Vadhan), in 40 digits."""
    with mpmath.workdps(40):
        e = [mpmath.mpf(x) for x in epsilons]
        whole, total = mpmath.fsum(e), mpmath.mpf(0)
        for chosen in itertools.product((0, 1), repeat=len(e)):
            inside = mpmath.fsum(x for x, c in zip(e, chosen, strict=True) if c)
            total += max(0, mpmath.exp(inside) - mpmath.exp(target + whole - inside))
        tail = total / mpmath.fprod(1 + mpmath.exp(x) for x in e)
        return 1 - mpmath.fprod(1 - mpmath.mpf(d) for d in deltas) * (1 - tail)


@pytest.mark.parametrize("seed", range(60))
def test_brackets_the_sum_over_subsets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounds = int(rng.integers(2, 9))
    epsilons = rng.uniform(0.1, 1.0, rounds).tolist()
    deltas = (10 ** rng.uniform(-9, -3, rounds)).tolist()
    target = float(rng.uniform(0.0, 0.5) * sum(epsilons))
    truth = subsets(epsilons, deltas, target)
    lower, upper = heterogeneous(epsilons, deltas, target)
    assert lower <= truth <= upper
    # few atoms: the one nearest the target may lose a part of the grid, not of its square
    assert upper <= truth * (1 + mpmath.mpf("1e-3"))
    assert lower >= truth * (1 - mpmath.mpf("2e-2"))  # the grid


def convolved(epsilons: list[float], target: float) -> float:
    """All 2^T losses of T randomised responses, one by one."""
    loss, mass = np.zeros(1), np.ones(1)
    for e in epsilons:
        honest = 1 / (1 + math.exp(-e))
        loss = np.concatenate((loss + e, loss - e))
        mass = np.concatenate((mass * honest, mass * (1 - honest)))
    above = loss > target
    return math.fsum(mass[above] * -np.expm1(target - loss[above]))


def test_accuracy_of_the_upper_bound() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        epsilons = rng.uniform(0.05, 2.0, 16).tolist()
        target = float(rng.uniform(0.0, 0.5) * sum(epsilons))
        truth = convolved(epsilons, target)
        lower, upper = heterogeneous(epsilons, [0.0] * 16, target)
        assert lower <= truth * (1 + 1e-13)
        assert truth * (1 - 1e-13) <= upper <= truth * (1 + 1.6e-6)


def test_upper_bound_converges_like_the_square_of_the_grid() -> None:
    rng = np.random.default_rng(7)
    epsilons, deltas = rng.uniform(0.1, 1.0, 9).tolist(), [0.0] * 9
    truth = float(subsets(epsilons, deltas, 1.0))
    excess = [heterogeneous(epsilons, deltas, 1.0, grid=h).upper / truth - 1 for h in (0.05, 0.005)]
    assert 0 < excess[1] < excess[0] / 30


@pytest.mark.parametrize("target", [0.0, 0.5, 2.999, 3.0, 10.0])
def test_equal_rounds_meet_the_exact_value(target: float) -> None:
    lower, upper = heterogeneous([0.1] * 30, [1e-7] * 30, target)
    exact = optimal(0.1, 1e-7, 30, target)
    # ``optimal`` itself is rounded up by a few parts in 1e14
    assert lower <= exact
    assert upper >= exact * (1 - 1e-12)
    assert upper - lower <= 1e-10 * exact


@pytest.mark.parametrize("target", [4.0, 9.0, 14.0])
def test_equal_rounds_off_the_grid_bracket_the_exact_value(target: float) -> None:
    # a walk long enough for the Hoeffding window to cut
    lower, upper = heterogeneous([0.0501234] * 1500, [0.0] * 1500, target, grid=1e-3)
    exact = optimal(0.0501234, 0.0, 1500, target)
    assert lower < exact < upper
    assert upper < exact * 1.02


def test_two_thousand_rounds() -> None:
    epsilons = np.random.default_rng(0).uniform(0.02, 0.08, 2000).tolist()
    heterogeneous(epsilons[:10], [1e-8] * 10, 1.0)
    lower, upper = heterogeneous(epsilons, [1e-8] * 2000, 10.0, grid=1e-3)
    finer = heterogeneous(epsilons, [1e-8] * 2000, 10.0, grid=2.5e-4)
    assert lower < finer.lower < finer.upper < upper
    assert upper < finer.upper * 1.01


def test_rounds_that_hide_everything_or_nothing() -> None:
    assert heterogeneous([0.0, 0.0], [0.0, 0.0], 0.0) == (0.0, 0.0)
    lower, upper = heterogeneous([0.0, 0.3], [0.5, 0.0], 0.3)
    assert lower <= 0.5 <= upper <= 0.5 * (1 + 1e-12)
    assert heterogeneous([0.1], [1.0], 0.0).upper == 1.0


def test_lists_must_match() -> None:
    with pytest.raises(DescriptionError, match="deltas"):
        heterogeneous([0.1, 0.2], [0.0], 0.1)
    with pytest.raises(DescriptionError, match="epsilons"):
        heterogeneous([], [], 0.1)
