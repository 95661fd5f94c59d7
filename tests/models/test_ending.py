"""How a run ends is decided by the predicted risk, which agrees with what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import Cyclic, DescriptionError, FullBatch, Loss, Shuffled, TailAverage, Training
from lastiterate.losses import Logistic, Softmax
from lastiterate.models import PrivateLogisticRegression
from lastiterate.models.choose import choose
from lastiterate.models.ending import ended

ADULT = {"objective": Logistic(), "records": 32_561, "dimension": 108, "delta": 1e-6}
MNIST = {"objective": Softmax(10), "records": 60_000, "dimension": 7850, "delta": 1e-5}

# Test score in percent (area under the curve, accuracy; three seeds) of the run that `choose`
# describes for so many batches and passes, once with an equalised last epoch, once with a burst.
MEASURED = [
    (ADULT, 0.1, 10, 1, 82.79, 83.56),
    (ADULT, 0.1, 40, 1, 85.19, 85.84),
    (ADULT, 0.1, 40, 3, 87.25, 87.01),
    (ADULT, 0.1, 40, 10, 86.11, 85.78),
    (ADULT, 0.1, 150, 2, 85.28, 82.60),
    (ADULT, 1.0, 10, 1, 82.83, 83.54),
    (ADULT, 1.0, 40, 1, 85.45, 86.20),
    (ADULT, 1.0, 40, 3, 88.06, 88.25),
    (ADULT, 1.0, 40, 10, 89.65, 89.65),
    (ADULT, 1.0, 150, 2, 89.22, 89.33),
    (MNIST, 0.1, 10, 1, 72.80, 73.89),
    (MNIST, 0.1, 40, 1, 77.59, 79.03),
    (MNIST, 0.1, 40, 3, 83.98, 83.99),
    (MNIST, 0.1, 40, 10, 85.05, 84.58),
    (MNIST, 0.1, 150, 2, 84.27, 81.79),
    (MNIST, 1.0, 10, 1, 73.54, 74.44),
    (MNIST, 1.0, 40, 1, 79.03, 80.95),
    (MNIST, 1.0, 40, 3, 84.97, 85.32),
    (MNIST, 1.0, 40, 10, 88.35, 88.42),
    (MNIST, 1.0, 150, 2, 87.44, 87.76),
]


def chosen(data, epsilon, **changes):
    return choose(
        data["objective"],
        records=data["records"],
        row_norm=1.0,
        epsilon=epsilon,
        delta=data["delta"],
        dimension=data["dimension"],
        **changes,
    )


def test_the_rule_follows_the_evidence():
    lost = {"rule": [], "equalised": [], "burst": []}
    for data, epsilon, batches, passes, equalised, burst in MEASURED:
        size = data["records"] // batches
        run = chosen(data, epsilon, batch_size=size, steps=passes * (data["records"] // size))
        taken = equalised if run.training.schedule == "equalised" else burst
        best = max(equalised, burst)
        for name, value in (("rule", taken), ("equalised", equalised), ("burst", burst)):
            lost[name].append(best - value)
    assert max(lost["rule"]) <= 0.7  # points; seeds differ by as much there
    assert np.mean(lost["rule"]) < min(np.mean(lost["equalised"]), np.mean(lost["burst"])) / 4


@pytest.mark.parametrize("data", [ADULT, MNIST])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_averages_only_where_they_won(data, epsilon):
    """Full batches: 10 and 30 steps lost by averaging on all data; 600 and 2500 steps gained."""
    records = data["records"]
    for steps in (10, 30):
        run = chosen(data, epsilon, batch_size=records, steps=steps).training
        assert run.release == "last"
    long = chosen(data, epsilon, batch_size=records).training
    assert long.steps > 500
    assert long.release == TailAverage((long.steps + 1) // 2)


def test_mini_batches_are_never_averaged():
    for epsilon in (0.1, 1.0):
        for batches in (10, 40, 400):
            run = chosen(ADULT, epsilon, batch_size=ADULT["records"] // batches).training
            assert run.release == "last"


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_many_small_batches_are_equalised(epsilon):
    for passes in (1, 3, 10):
        size = MNIST["records"] // 1000
        run = chosen(MNIST, epsilon, batch_size=size, steps=1000 * passes).training
        assert (run.schedule, run.final_noise) == ("equalised", 1.0)


def test_a_broken_last_epoch_gets_a_burst():
    run = chosen(ADULT, 1.0, batch_size=ADULT["records"] // 40, steps=90).training
    assert run.schedule is None
    assert run.final_noise > 1


def test_what_the_user_gives_is_kept():
    size = MNIST["records"] // 1000
    run = chosen(MNIST, 1.0, batch_size=size, steps=3000, final_noise=4.0).training
    assert (run.schedule, run.final_noise) == (None, 4.0)
    best = chosen(MNIST, 1.0, batch_size=size, steps=3000, final_noise="best").training
    assert best.schedule is None
    assert best.final_noise > 10
    with pytest.raises(DescriptionError, match="final_noise"):
        chosen(MNIST, 1.0, final_noise="much")


def test_a_stream_has_a_known_order():
    run = chosen(MNIST, 1.0, batch_size=60, steps=1000, known_order=True).training
    assert run.batches == Cyclic(60)
    assert run.schedule == "equalised"


def test_very_long_runs_are_not_compared():
    loss = Loss(smoothness=0.25)
    run = Training(
        records=10**6,
        steps=10**6,
        step_size=1.0,
        noise=0.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    assert ended(run, loss, 10, 1.0, 1e-6)[0].release == TailAverage(500_000)
    odd = run.replace(batches=Shuffled(3), steps=10**6 + 1)
    assert ended(odd, loss, 10, 1.0, 1e-6) == (odd, "every step alike")


def test_estimators_pass_it_on():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 3)), np.arange(400) % 2
    model = PrivateLogisticRegression(
        1.0, 1e-4, steps=40, batch_size=10, final_noise=9.0, random_state=0
    ).fit(X, y)
    assert model.training_.final_noise == 9.0
    assert "9 times the variance, as asked for" in str(model.choice_)
    plain = PrivateLogisticRegression(1.0, 1e-4, steps=40, batch_size=10, random_state=0)
    assert "predicted risk" in str(plain.fit(X, y).choice_)
