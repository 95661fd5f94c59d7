"""What the explorer says about the best test follows from the whole curve of every bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

pytest.importorskip("dash")

from lastiterate import FullBatch, Loss, Training
from lastiterate.curves.mixture import Mixture
from lastiterate.explore.findings import FALSE_ALARMS, Task, _detected, find
from lastiterate.explore.reading import Description
from lastiterate.theory.full_batch import FULL_BATCH


def attained(mus: np.ndarray) -> float:
    """The best test at FALSE_ALARMS where the position is known, all equally likely."""

    def average(log_ratio: float, sign: float) -> float:
        return float(np.mean(norm.cdf(-log_ratio / mus + sign * mus / 2)))

    return average(brentq(lambda t: average(t, -1.0) - FALSE_ALARMS, -80.0, 80.0, xtol=1e-14), 1.0)


@given(mus=st.lists(st.floats(0.05, 7), min_size=2, max_size=6, unique=True))
def test_the_sentence_is_neither_below_the_curve_nor_far_above(mus: list[float]) -> None:
    curve, truth = Mixture(mus), attained(np.array(mus))
    for delta in (1e-10, 1e-5, 0.1):  # the page's delta does not matter
        found = _detected(curve, delta, curve.epsilon(delta))
        assert truth * (1 - 1e-9) <= found <= 1.01 * truth


def test_one_gaussian_is_said_exactly() -> None:
    run = Training(
        records=10,
        steps=1,
        step_size=1.0,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    about = Description(run, Loss(smoothness=1.0), 1e-5)
    bound = find(Task("bound", about, FULL_BATCH.key))
    truth = norm.sf(norm.isf(FALSE_ALARMS) - 2.0)  # two records' worth of 1/10 over noise 1/10
    assert truth * (1 - 1e-12) <= bound.detected <= truth * (1 + 1e-9)
