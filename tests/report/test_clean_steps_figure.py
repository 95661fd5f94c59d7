"""Epsilon against clean steps: every point and everything between is what `account` proves."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    PrivacyUnit,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    account,
)
from lastiterate.report import epsilon_growth
from lastiterate.report.figures.growth import stopped
from lastiterate.unlearning import plan_unlearning

RUN = Training(
    records=60,
    steps=30,
    step_size=0.5,
    noise=0.5,
    gradient_norm=4.0,
    batches=FullBatch(),
    adjacency="zero-out",
)
LOSS = Loss(smoothness=1.0, regularization=0.05)


def planned(plan):
    """The figure that ``plan.plot()`` draws."""
    return epsilon_growth(plan.continued, LOSS, plan.delta, unit=plan.deleted, target=plan.epsilon)


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(6), Shuffled(6)])
def test_the_line_is_never_below_what_is_proved(batches):
    run = RUN.replace(batches=batches, noise=0.2, final_noise=3.0)
    plan = plan_unlearning(run, LOSS, None, 0.3, 1e-3)
    assert plan.steps
    line = planned(plan).series[0]
    assert line.shape == "steps-post"  # keeps the value of the point before
    assert line.x[-1] == plan.steps
    assert line.y[-1] <= 0.3
    for clean in range(plan.steps + 1):
        drawn = line.y[np.searchsorted(line.x, clean, side="right") - 1]
        longer = stopped(plan.continued, run.steps + clean)
        proved = account(longer, LOSS, unit=plan.deleted).epsilon(1e-3)
        assert drawn >= proved * (1 - 1e-9)


def test_its_title_says_what_it_shows():
    plan = plan_unlearning(RUN, LOSS, PrivacyUnit(records=60), 1.0, 1e-3)
    title = planned(plan).title
    assert plan.plot().figure.get_suptitle().replace("\n", " ") == title
    assert title.startswith(f"{plan.steps} clean steps bring epsilon from")
    here = epsilon_growth(RUN, LOSS, 1e-3, unit=PrivacyUnit(last_step=30))
    assert here.title.endswith("without a clean step")


def test_refusals():
    gone = PrivacyUnit(last_step=20)
    with pytest.raises(UnsupportedError, match="No record was deleted"):
        epsilon_growth(RUN, LOSS, unit=PrivacyUnit(records=2))
    for run in (RUN.replace(final_noise=2.0), RUN.replace(release=TailAverage(3))):
        with pytest.raises(UnsupportedError, match="special"):
            epsilon_growth(run, LOSS, unit=gone)
    estimated = Loss(smoothness=1.0, regularization=0.05, provenance="estimated")
    assert "NOT A GUARANTEE" in epsilon_growth(RUN, estimated, unit=gone).title
