"""Which bins are reached, by noisy shares: against shares that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
