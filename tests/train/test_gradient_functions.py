"""What a gradient function computes of a record is the same, to the last bit, in every batch."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import FullBatch, Loss, Poisson, Training, WithoutReplacement, account
from lastiterate.curves import gaussian
from lastiterate.train import noisy_descent
from lastiterate.train.gradients import CallableGradients

N, COLUMNS, HIDDEN = 256, 57, 129
rng = np.random.default_rng(1)
X = rng.standard_normal((N, COLUMNS))
FIRST = rng.standard_normal((COLUMNS, HIDDEN)) / 8
SECOND = rng.standard_normal(HIDDEN) / 8


def scores(rows):
    return np.tanh(X[rows] @ FIRST) @ SECOND


LABELS = scores(np.arange(N))


def steep(theta, rows):
    """Turns around where a score differs from its label in the last bit."""
    return np.where(scores(rows) == LABELS[rows], 1.0, -1.0)[:, None]


def describe(batches, **changes):
    fields = dict(records=N, steps=1, step_size=1.0, noise=1.0 / N, gradient_norm=1.0)
    fields |= dict(batches=batches, clipping="gradient", adjacency="zero-out")
    return Training(**{"adjacency": "replace", **fields, **changes})


def test_the_certified_delta_holds_where_a_function_amplifies_what_is_rounded():
    """One Poisson step with all records, with and without the first: the law is exact."""
    run = describe(Poisson(1.0))
    gradients = CallableGradients(steep, run)
    theta = np.zeros(1)
    assert (steep(theta, np.arange(1, N)) < 0).any()  # products of other sizes round otherwise
    here, gone = (gradients.total(theta, np.arange(first, N)) for first in (0, 1))
    moved = run.step_size * float(np.linalg.norm(here - gone)) / N
    certified = account(run.replace(arithmetic=gradients.arithmetic(1)), Loss.unknown())
    for epsilon in (0.0, 0.5, 2.0):
        assert certified.delta(epsilon) >= gaussian.delta(moved / run.noise, epsilon)


@pytest.mark.parametrize("batches", [Poisson(0.3), WithoutReplacement(64)])
def test_a_gradient_does_not_depend_on_the_batch(batches):
    gradients, theta, seen = CallableGradients(steep, describe(batches)), np.zeros(1), {}
    for _ in range(20):
        for size in (1, 7, 64, N):
            rows = rng.permutation(N)[:size]
            for i, value in zip(rows, gradients._each(theta, rows)[:, 0], strict=True):
                assert seen.setdefault(i, value) == value


def test_records_that_fill_up_a_chunk_change_nothing():
    """Also where their gradients are too long, or no numbers."""

    def own(theta, rows):
        each = np.full((len(rows), 1), np.inf)
        each[rows >= N // 2] = 1.0
        return each

    gradients = CallableGradients(own, describe(Poisson(0.5), clipping="none"))
    rows = np.arange(N // 2, N)
    assert gradients.total(np.zeros(1), rows)[0] == N // 2


def test_full_batches_are_given_to_the_function_at_once():
    asked = []

    def own(theta, rows):
        asked.append(len(rows))
        return np.zeros((len(rows), 1))

    noisy_descent(own, None, describe(FullBatch(), steps=3), start=np.zeros(1))
    assert asked == [N] * 3
