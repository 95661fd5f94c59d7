"""Which bins are reached, by noisy shares: against shares that are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.curves import gaussian
from lastiterate.models.preparation import Promise, _ends_of, _one_hot, _shares, found_ranges
from lastiterate.models.reached import RARE, reached

BINS = 131


def noisy(shares: np.ndarray, noise: float, seed: int) -> np.ndarray:
    return shares + noise * np.random.default_rng(seed).standard_normal(shares.shape)


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.06])
def test_noise_far_away_widens_no_range(noise: float) -> None:
    """One column, the targets: a bin that is not there would make the range a thousand times as
    wide; with a limit of three deviations for each bin that was one run in twenty."""
    shares = np.zeros((1, BINS))
    shares[0, 70:74] = 0.1, 0.4, 0.4, 0.1
    found = [np.flatnonzero(reached(noisy(shares, noise, seed), noise)[0]) for seed in range(150)]
    far = np.mean([(each < 68).any() or (each > 75).any() for each in found])
    assert far < 0.02
    assert np.mean([np.isin([71, 72], each).all() for each in found]) > 0.97


def test_a_column_unlike_the_others_is_seen_by_itself() -> None:
    """One number among fifty truths: drawn to what most columns are like it would be a constant."""
    shares = np.zeros((50, BINS))
    shares[:, 65], shares[:, 90] = 0.9, 0.1
    shares[0] = 0.0
    shares[0, 95:97] = 0.5
    for seed in range(20):
        seen = reached(noisy(shares, 0.12, seed), 0.12)
        assert seen[0, 95:97].any()
        assert not seen[0, :90].any()


def test_columns_alike_are_seen_together() -> None:
    """Noise as large as every share: what all columns have is known all the same."""
    shares = np.zeros((100, BINS))
    shares[:, 65], shares[:, 88:92] = 0.4, 0.15
    seen = reached(noisy(shares, 0.15, 0), 0.15)
    assert seen[:, 88:92].mean() > 0.8


@given(st.integers(0, 10**6), st.sampled_from([1e-300, 1e-4, 0.1, 1.0, 1e6]), st.integers(1, 7))
@settings(max_examples=25, deadline=None)
def test_what_is_seen_was_there_or_is_in_a_story(seed: int, noise: float, columns: int) -> None:
    shares = np.random.default_rng(seed).dirichlet(np.full(BINS, 0.05), columns)
    found = reached(noisy(shares, noise, seed), noise)
    assert found.shape == shares.shape
    if noise <= 1e-4:
        many = shares > RARE + 10 * noise
        assert found[many].all()
        few = shares < RARE - 10 * noise
        held = np.where(many, shares, 0).sum(axis=1) > 0.9
        assert not found[few & held[:, None]].any()


@pytest.mark.parametrize(
    ("truths", "numbers"),
    [
        (8, lambda rng: rng.uniform(18, 64, (1000, 2))),
        (5, lambda rng: 50 + 30 * rng.standard_normal((1000, 5))),
        (4, lambda rng: rng.standard_normal((1000, 6)) * 2.0 ** np.arange(-3, 15, 3)),
        (1, lambda rng: 20 * rng.exponential(size=(1000, 9))),
        (9, lambda rng: 1e6 * rng.standard_normal((1000, 1))),
    ],
    ids=["ages", "wide numbers", "powers", "one truth", "one number"],
)
def test_no_truths_get_the_range_of_the_numbers_beside_them(truths: int, numbers: Any) -> None:
    """A column of 0 and 1 got [0, 64] where others are ages; it was then nearly constant, and a
    regression on such columns collapsed. 1,000 records, 10 columns and the targets, epsilon 0.5.
    """
    columns, n = 10, 1000
    weights = np.append(np.ones(columns), math.sqrt(columns))
    promise = Promise(0.5, 1e-5, "zero-out", None, row_norm=2.0)
    epsilon = _shares(n, float(weights @ weights), len(weights), promise)[0]
    noise = float(np.linalg.norm(weights)) / (n * gaussian.mu(epsilon, 1e-5))
    assert 0.05 < noise < 0.1
    X = numbers(np.random.default_rng(0))
    shares = np.zeros((columns, BINS))
    wide = np.asarray(_one_hot(X, np.ones(X.shape[1]), closed=False).mean(axis=0))
    shares[truths:] = wide.reshape(-1, BINS)
    low, high = np.empty((2, 1000))
    for seed in range(1000):
        ones = np.random.default_rng([1, seed]).uniform(0.05, 0.95, truths)
        shares[:truths, BINS // 2], shares[:truths, BINS // 2 + 25] = 1 - ones, ones
        ends = _ends_of(reached(noisy(shares, noise, seed), noise))
        low[seed], high[seed] = ends[0][:truths].min(), ends[1][:truths].max()
    assert (low > -1e-6).all()
    assert (high <= 2.0).all()


def test_the_search_itself_gives_truths_beside_ages_their_range() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(18, 64, (1000, 11))
    X[:, :8] = rng.random((1000, 8)) < rng.uniform(0.1, 0.9, 8)
    for seed in range(30):
        told = (0.25, 1e-5, "zero-out", seed, np.append(np.ones(10), math.sqrt(10)))
        low, high, *_ = found_ranges(X, *told, closed=False)
        assert (low[:8] > -1e-6).all()
        assert (high[:8] <= 2.0).all()
