"""Many models at once are the same models as one by one."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import (
    AssumptionError,
    Cyclic,
    DescriptionError,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    WithoutReplacement,
)
from lastiterate.audit.shadow import LinearCohort
from lastiterate.losses import CappedLogistic, Huber, Logistic, Softmax, SquaredHinge
from lastiterate.train import noisy_descent

RNG = np.random.default_rng(0)
N, D = 24, 3
X = RNG.standard_normal((N, D))
X /= 1.01 * np.linalg.norm(X, axis=1)[:, None]
Y = np.where(RNG.random(N) < 0.5, 1.0, -1.0)


def describe(batches, **changes):
    options = {"records": N, "steps": 30, "step_size": 0.7, "noise": 0.0, "gradient_norm": 1.0}
    return Training(**{"adjacency": "replace", **options, **changes}, batches=batches)


@pytest.mark.parametrize(
    ("loss", "changes"),
    [
        (Logistic(), {}),
        (Logistic(), {"clipping": "gradient", "gradient_norm": 0.3}),
        (Logistic(), {"clipping": "margin", "gradient_norm": 0.3}),
        (Logistic(), {"diameter": 0.8}),
        (Logistic(), {"release": TailAverage(7)}),
        (Logistic(), {"step_size": list(np.linspace(0.1, 1, 30))}),
        (CappedLogistic(0.4), {}),
        (CappedLogistic(0.4), {"clipping": "gradient", "gradient_norm": 0.3}),
        (CappedLogistic(0.4), {"clipping": "margin", "gradient_norm": 0.6}),
        (Huber(threshold=1.0), {}),
        (Huber(threshold=1.0), {"clipping": "gradient", "gradient_norm": 0.3}),
        (SquaredHinge(clip=1.0), {"clipping": "margin"}),
    ],
)
@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(5)])
def test_without_noise_it_is_noisy_descent(loss, changes, batches):
    run = describe(batches, **changes)
    bound = {"feature_bound": 1.0} if run.clipping == "margin" else {}
    expected = noisy_descent(loss, X, run, labels=Y, regularization=0.1, **bound).parameters
    train = LinearCohort(loss, run, regularization=0.1, dtype=np.float64, **bound)
    found = train.cohort((X, Y), [1, 2])
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-11, atol=1e-13)
    quick = LinearCohort(loss, run, regularization=0.1, **bound)
    np.testing.assert_allclose(quick((X, Y), 1), expected, rtol=0, atol=1e-5)


SCHEMES = [FullBatch(), Cyclic(5), Shuffled(5), Reshuffled(5), WithoutReplacement(5), Poisson(0.2)]


@pytest.mark.parametrize("batches", SCHEMES)
def test_a_model_depends_on_its_seed_alone(batches):
    train = LinearCohort(Logistic(), describe(batches, noise=0.3, steps=13), dtype=np.float64)
    together = train.cohort((X, Y), [5, 6, 7])
    assert len({tuple(row) for row in together.tolist()}) == 3
    np.testing.assert_allclose(train((X, Y), 6), together[1], rtol=1e-12)
    np.testing.assert_allclose(train.cohort((X, Y), [7, 5]), together[[2, 0]], rtol=1e-12)


@pytest.mark.parametrize("loss", [Logistic(), CappedLogistic(0.4), Huber(threshold=0.5)])
@pytest.mark.parametrize("clipping", ["none", "gradient", "margin"])
def test_hidden_batches_take_the_steps_of_noisy_descent(loss, clipping):
    """All records in one hidden batch: whatever the order, it is the full batch."""
    changes = {} if clipping == "none" else {"clipping": clipping, "gradient_norm": 0.3}
    bound = {"feature_bound": 1.0} if clipping == "margin" else {}
    full, hidden = (describe(b, **changes) for b in (FullBatch(), Shuffled(N)))
    expected = noisy_descent(loss, X, full, labels=Y, **bound).parameters
    found = LinearCohort(loss, hidden, dtype=np.float64, **bound).cohort((X, Y), [1, 2])
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("batches", SCHEMES)
@pytest.mark.parametrize("loss", [CappedLogistic(0.4), Huber(threshold=0.5)])
@pytest.mark.parametrize("clipping", ["none", "gradient"])
def test_every_model_may_have_rows_of_its_own(batches, loss, clipping):
    """Together as each alone on its rows."""
    run = describe(batches, noise=0.3, steps=9, clipping=clipping, gradient_norm=0.3)
    train = LinearCohort(loss, run, regularization=0.1, dtype=np.float64)
    own = X * np.array([1.0, -0.5, 0.3])[:, None, None]
    together = train.cohort((own, Y), [5, 6, 7])
    alone = [train((rows, Y), seed) for rows, seed in zip(own, (5, 6, 7), strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-11, atol=1e-13)
    with pytest.raises(DescriptionError, match="rows of both"):
        train.cohort((own, Y), [5, 6])


@pytest.mark.parametrize("decay", [None, 0.6])
def test_averages_weigh_the_last_iterates(decay):
    """Against the weighted sum of the last iterates of shorter runs."""
    run = describe(Cyclic(5), steps=12)
    iterates = [LinearCohort(Logistic(), run.replace(steps=k))((X, Y), 0) for k in range(8, 13)]
    weights = np.full(5, 0.2)
    if decay is not None:
        weights = [decay**4, *((1 - decay) * decay**k for k in (3, 2, 1, 0))]
    found = LinearCohort(Logistic(), run.replace(release=TailAverage(5, decay)))((X, Y), 0)
    np.testing.assert_allclose(found, np.dot(weights, iterates), rtol=1e-5, atol=1e-6)


def test_momentum():
    """Against the recursion written out."""
    run = describe(FullBatch(), steps=9, momentum=0.8)
    theta = velocity = np.zeros(D)
    for _ in range(9):
        slopes = -Y / (1 + np.exp(Y * (X @ theta)))
        velocity = 0.8 * velocity + 0.7 * (slopes @ X / N + 0.1 * theta)
        theta = theta - velocity
    found = LinearCohort(Logistic(), run, regularization=0.1, dtype=np.float64)((X, Y), 0)
    np.testing.assert_allclose(found, theta, rtol=1e-12)


@pytest.mark.parametrize("batches", SCHEMES)
def test_the_law_is_that_of_noisy_descent(batches):
    """Mean and spread of 4,000 vectorised models against 400 single ones."""
    run = describe(batches, noise=0.2, steps=10)
    many = LinearCohort(Logistic(), run).cohort((X, Y), range(4000))
    few = np.array(
        [noisy_descent(Logistic(), X, run, labels=Y, random_state=s).parameters for s in range(400)]
    )
    error = few.std(axis=0) * np.sqrt(1 / 400 + 1 / 4000)
    assert np.all(np.abs(many.mean(axis=0) - few.mean(axis=0)) < 4.5 * error)
    np.testing.assert_allclose(many.std(axis=0), few.std(axis=0), rtol=0.16)


def test_hidden_partitions_differ_between_models_and_hold_within_a_run():
    """Linear gradients that name their record: with no noise the last iterate tells the order."""
    run = describe(Shuffled(6), steps=4, noise=0.0, step_size=1.0)
    data = (np.diag(np.linspace(0.1, 1, N)), np.ones(N))
    models = LinearCohort(Logistic(), run.replace(steps=4)).cohort(data, range(50))
    moved = (models > 0).sum(axis=1)
    assert np.all(moved == N)  # one epoch: every record once
    one = LinearCohort(Logistic(), run.replace(steps=1)).cohort(data, range(50))
    assert np.all((one > 0).sum(axis=1) == 6)
    assert len({tuple(row) for row in (one > 0).tolist()}) > 40


def test_refusals():
    with pytest.raises(UnsupportedError, match="noisy_descent"):
        LinearCohort(Softmax(3), describe(FullBatch()))
    with pytest.raises(DescriptionError, match="feature_bound"):
        LinearCohort(Logistic(), describe(FullBatch(), clipping="margin"))
    with pytest.raises(DescriptionError, match="dataset"):
        LinearCohort(Logistic(), describe(FullBatch()))((X[:5], Y[:5]), 0)
    run = describe(FullBatch(), step_size=1e200, noise=1e200, steps=90)
    with pytest.raises(AssumptionError, match="diverged"):
        LinearCohort(Huber(threshold=1.0), run, regularization=1.0)((X, Y), 0)
