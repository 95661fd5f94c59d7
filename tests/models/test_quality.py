"""More passes: the same promise, more work, less noise in what was learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from lastiterate import account
from lastiterate.accounting.calibration import calibrate
from lastiterate.errors import DescriptionError
from lastiterate.losses import CappedLogistic
from lastiterate.models import PrivateLogisticRegression, PrivateSoftmaxRegression
from lastiterate.models.choose import MANY_PASSES, PASSES, choose


def test_what_takes_no_time_gets_full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_digits(return_X_y=True)
    X, X_new, y, y_new = train_test_split(X / 16, y, test_size=0.25, random_state=0)
    told = {"classes": range(10), "prepare": None, "random_state": 0}
    full = PrivateSoftmaxRegression(0.5, 1e-5, **told).fit(X, y)
    monkeypatch.setattr("lastiterate.models.choose.QUICK", 0.0)  # as if it took long
    few = PrivateSoftmaxRegression(0.5, 1e-5, **told).fit(X, y)
    assert full.training_.batches.name == "full"
    assert few.training_.epochs == pytest.approx(10, abs=1)
    assert account(full.training_, full.loss_).epsilon(1e-5) <= 0.5
    assert full.score(X_new, y_new) > few.score(X_new, y_new)


@pytest.mark.parametrize(
    ("records", "epsilon", "full"),
    [(400, 1.0, True), (30_000, 1.0, False)],
)
def test_more_passes_learn_more_in_units_of_their_noise(
    records: int, epsilon: float, full: bool
) -> None:
    clear = []
    for passes in (PASSES, MANY_PASSES):
        chosen = choose(
            CappedLogistic(0.5),
            records=records,
            row_norm=1.0,
            epsilon=epsilon,
            delta=1e-5,
            passes=passes,
        )
        run = calibrate(chosen.training, chosen.loss, epsilon, 1e-5)
        clear.append(float(run.step_sizes.sum() / np.sqrt((run.noises**2).sum())))
    assert (run.batches.name == "full") is full
    assert full or run.epochs == pytest.approx(MANY_PASSES, rel=0.05)
    assert clear[1] > clear[0]


@pytest.mark.parametrize("given", [{"steps": 60}, {"batch_size": 20}])
def test_what_the_user_says_stays(given: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.integers(0, 2, 200)
    model = PrivateLogisticRegression(1.0, 1e-5, quality="best", random_state=0, **given).fit(X, y)
    assert model.training_.steps == given.get("steps", model.training_.steps)
    assert "steps" in given or model.training_.batches.size == 20


@pytest.mark.parametrize("quality", ["", "Best", None, 1])
def test_other_qualities_are_refused(quality: Any) -> None:
    model = PrivateLogisticRegression(1.0, 1e-5, quality=quality)
    with pytest.raises(DescriptionError, match="quality"):
        model.fit([[0.0], [1.0]], [0, 1])
    assert not hasattr(model, "prepare_")  # nothing was paid
