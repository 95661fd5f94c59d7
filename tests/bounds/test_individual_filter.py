"""Why no record may be dropped by what it did to a hidden iterate.

A tempting claim: in cyclic batches with non-expansive steps, drop a record once the squares of the
impulses that it really caused exceed M. Paying every impulse evenly until the next use would give
mu^2 = ((M - s^2)_+/B + min(M, s^2)/(B - j))/nu^2 for position j of B. That holds if one record has
such a budget. If all have one, whether *others* are dropped depends on hidden iterates, jumps where
the steps are continuous, and tells to the end what one step knew: the run below is exactly as bad
as if every iterate were public, mu^2 = M/nu^2.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate.curves.gaussian import Gaussian


def final_iterates(with_record, runs, rng, batches=100, size=1000):
    """Two epochs in one dimension, nu = 1, one record moves a step by at most s = 1, M = s^2.

    Batch 0: the record, linear loss. Batch 1: ``size`` copies of a record with the convex and
    smooth loss of slope clip((x - 1/2)/(2w), 0, 1), w = size/4 (so that the step's slope is -1 or
    1). Batch 2: ``size`` records that push to the right by a linear loss. All others do nothing.
    """
    width, budget = size / 4, 1.0
    x = np.zeros(runs)
    spent = np.zeros((3, runs))
    for k in range(2 * batches):
        j = k % batches
        if j < 3:
            bent = np.clip((x - 0.5) / (2 * width), 0, 1)
            norm = (np.full(runs, float(with_record)), bent, np.ones(runs))[j]
            used = spent[j] + norm**2 <= budget
            spent[j] += np.where(used, norm**2, 0)
            x += np.where(used, (1.0, -float(size), float(size))[j] * norm, 0)
        x += rng.normal(size=runs)
    return x


def test_budgets_of_all_records_are_as_bad_as_public_iterates():
    rng, runs = np.random.default_rng(0), 20_000
    here, gone = (final_iterates(present, runs, rng) for present in (True, False))
    seen = np.mean(here > 500) - np.mean(gone > 500)
    public = Gaussian(1.0).delta(0.0)  # mu^2 = M/nu^2
    claimed = Gaussian(1 / math.sqrt(100)).delta(0.0)  # min(M, s^2)/B, the record is in batch 0
    noise = 5 * math.sqrt(0.5 / runs)
    assert seen - noise > 8 * claimed
    assert seen == pytest.approx(public, abs=noise)
