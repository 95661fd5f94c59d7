"""Scores of a row are the same wherever it stands, where nothing else bounds what they round.

Libraries of linear algebra treat the last rows of a block in another order than the others. With
rows of any length that turns a gradient around: a record that joins a Poisson batch would move the
gradients of others too.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import Arithmetic, FullBatch, Loss, Poisson, Training, WithoutReplacement
from lastiterate.description.assumptions import assumptions
from lastiterate.losses import Logistic, Softmax
from lastiterate.train.gradients import LinearGradients
from lastiterate.train.row_scores import row_scores

COLUMNS = 32


def cancelling(random, theta, count):
    """Rows of about 1e20 whose scores are nothing but rounding."""
    X = random.standard_normal((count, len(theta))) * 1e20
    X -= np.outer(X @ theta, theta) / (theta @ theta)
    return X


def describe(batches, records):
    return Training(
        records=records,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=batches,
        adjacency="zero-out" if isinstance(batches, Poisson) else "replace",
        clipping="gradient",
    )


def engine_of(kind, loss, X, y, run):
    if kind == "numpy":
        return LinearGradients(loss, X, y, run, 0.0, None), lambda theta: theta
    torch = pytest.importorskip("torch")
    from lastiterate.train.torch_backend.gradients import DeviceGradients

    device = torch.device("cpu")
    data = torch.from_numpy(X)
    return DeviceGradients(loss, data, y, run, 0.0, None, device), torch.from_numpy


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_record_that_joins_a_batch_moves_the_sum_by_its_own_gradient_alone(kind, outputs):
    """With one matrix product it was up to four of them, where the certificate counted one."""
    random = np.random.default_rng(0)
    worst = 0.0
    for _ in range(60):
        loss = Logistic() if outputs == 1 else Softmax(3)
        theta = random.standard_normal(COLUMNS if outputs == 1 else (COLUMNS, outputs))
        rows = cancelling(random, theta if outputs == 1 else theta[:, 0], 24)
        y = random.choice([-1.0, 1.0], 24) if outputs == 1 else random.integers(0, 3, 24)
        run = describe(Poisson(0.5), 24)
        gradients, put = engine_of(kind, loss, rows, y, run)
        for count in (5, 8, 16, 20):
            with_it = gradients.total(put(theta), np.arange(count))
            without = gradients.total(put(theta), np.arange(count - 1))
            moved = float(np.linalg.norm(np.asarray(with_it - without)))
            worst = max(worst, moved - 2 * gradients.arithmetic(theta.size).error * 12)
    assert worst <= 1.0


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 33, 100])
def test_a_score_depends_on_its_row_alone(outputs, columns):
    random = np.random.default_rng(columns)
    theta = random.standard_normal(columns if outputs == 1 else (columns, outputs))
    X = random.standard_normal((50, columns)) * 10.0 ** random.integers(-8, 9, (50, columns))
    alone = [row_scores(X[i : i + 1], theta)[0] for i in range(50)]
    for _ in range(20):
        some = random.permutation(50)[: random.integers(1, 50)]
        assert np.array_equal(row_scores(X[some], theta), np.array(alone)[some])
    exact = [math.fsum(row * (theta if outputs == 1 else theta[:, 0])) for row in X]
    sizes = np.abs(X) @ np.abs(theta if outputs == 1 else theta[:, 0])
    off = np.abs(np.array(alone).reshape(50, -1)[:, 0] - exact)
    assert (off <= sizes * 2.0**-53 * (columns + 2)).all()


def test_where_it_is_asked_for():
    """Batches whose places are fixed need it not, nor rows with a bound: scores are charged."""
    X, y = np.eye(4), np.ones(4)
    for batches in (Poisson(0.5), WithoutReplacement(2)):
        assert LinearGradients(Logistic(), X, y, describe(batches, 4), 0.0, None).placeless
        assert not LinearGradients(Logistic(), X, y, describe(batches, 4), 0.0, 1.0).placeless
    assert not LinearGradients(Logistic(), X, y, describe(FullBatch(), 4), 0.0, None).placeless


@pytest.mark.parametrize("batches", [Poisson(0.5), WithoutReplacement(2), FullBatch()], ids=str)
def test_a_guarantee_says_where_it_counts_on_it(batches):
    """Of a function or a network; a linear loss whose rows have a bound is charged instead."""
    run = describe(batches, 4).replace(arithmetic=Arithmetic(grid=2.0**-20))

    def said(loss, run=run):
        return "whichever records share its batch" in " ".join(
            map(str, assumptions(run, loss, hidden_state=False))
        )

    assert said(Loss.unknown()) == (not isinstance(batches, FullBatch))
    assert said(Loss(smoothness=1.0)) == said(Loss.unknown())
    assert not said(Logistic().regularity(1.0))
    assert not said(Loss.unknown(), run.replace(arithmetic="exact"))
