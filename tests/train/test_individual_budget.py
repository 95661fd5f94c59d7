"""Budgets of single records: what the trainer leaves out, and that it is never too little."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from lastiterate import (
    L1,
    Cyclic,
    FullBatch,
    Reshuffled,
    Shuffled,
    Training,
    account,
    certify,
    verify,
)
from lastiterate.audit.shadow import LinearCohort
from lastiterate.errors import UnsupportedError
from lastiterate.losses import Huber, Logistic, Softmax, SquaredError
from lastiterate.noise import SeededSource
from lastiterate.train import MemoryCheckpoint, noisy_descent
from lastiterate.train.budgets import Filtered
from lastiterate.train.gradients import LinearGradients

X = np.random.default_rng(0).standard_normal((20, 3))
X /= np.linalg.norm(X, axis=1, keepdims=True) * np.linspace(1, 4, 20)[:, None]
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
RUN = Training(
    records=20,
    steps=40,
    step_size=0.5,
    noise=0.1,
    gradient_norm=1.0,
    adjacency="zero-out",
    batches=Cyclic(5),
    individual_budget=1.0,
)


def descended(training=RUN, data=X, **settings):
    return noisy_descent(Logistic(), data, training, labels=Y, random_state=3, **settings)


def by_hand(run, budget):
    """The run in plain numbers: every record with what it has spent."""
    source, grid = SeededSource(3), run.arithmetic.grid
    stream = run.batches.rows(run.records, source)
    theta, spent = np.zeros(3), np.zeros(run.records)
    for k in range(run.steps):
        rows = next(stream)
        slopes = -Y[rows] / (1 + np.exp(Y[rows] * (X[rows] @ theta)))
        norms = np.abs(slopes) * np.linalg.norm(X[rows], axis=1)
        costs = (run.step_sizes[k] * norms / 5 / run.noises[k]) ** 2
        counts = spent[rows] + costs <= budget**2
        spent[rows] += counts * costs
        theta = theta - run.step_sizes[k] * (X[rows].T @ (slopes * counts)) / 5
        theta = theta + grid * source.rounded_normal(run.noises[k] / grid, (3,))
    return theta, spent


@pytest.mark.parametrize("batches", [Cyclic(5), Shuffled(5), Reshuffled(5)])
def test_it_runs_what_is_described(batches):
    sizes, noises = np.linspace(0.3, 0.6, 40), np.linspace(0.2, 0.1, 40)
    run = RUN.replace(batches=batches, step_size=sizes, noise=noises, individual_budget=0.7)
    done = descended(run)
    theta, spent = by_hand(done.training, 0.7)
    assert np.allclose(done.parameters, theta, atol=1e-5)
    assert (spent > 0.5 * 0.7**2).any()
    free = descended(run.replace(individual_budget=None)).parameters
    assert np.abs(done.parameters - free).max() > 1e-3  # somebody was left out


def test_enough_changes_nothing_and_nothing_uses_nobody():
    plain, empty = RUN.replace(individual_budget=None), np.zeros_like(X)
    rich, poor = (RUN.replace(individual_budget=mu) for mu in (1e6, 1e-12))
    for data in (X, sp.csr_array(X)):
        assert np.array_equal(descended(rich, data).parameters, descended(plain, data).parameters)
        nobody = descended(plain, empty).parameters
        assert np.array_equal(descended(poor, data).parameters, nobody)


OBJECTIVES = (
    (Logistic(), "none", lambda rng, n: rng.choice([-1.0, 1.0], n)),
    (Logistic(), "gradient", lambda rng, n: rng.choice([-1.0, 1.0], n)),
    (Huber(2.0), "none", lambda rng, n: rng.normal(size=n)),
    (SquaredError(2.0), "margin", lambda rng, n: rng.normal(size=n)),
    (Softmax(3), "none", lambda rng, n: rng.integers(0, 3, n)),
    (Softmax(3), "gradient", lambda rng, n: rng.integers(0, 3, n)),
)


@pytest.mark.parametrize(("objective", "clipping", "labels"), OBJECTIVES)
def test_two_worlds_are_never_farther_apart_than_the_budget(objective, clipping, labels):
    """Along any iterates, computed sums with a record and without it: sum of squares <= mu^2."""
    rng = np.random.default_rng(5)
    left_out = 0
    for _ in range(25):
        n, steps, budget = 6, 12, float(rng.uniform(0.2, 3))
        run = Training(
            records=n,
            steps=steps,
            step_size=rng.uniform(0.1, 1.0, steps),
            noise=rng.uniform(0.1, 0.5, steps),
            gradient_norm=objective.gradient_norm(1.0) * (0.3 if clipping == "gradient" else 1),
            adjacency="zero-out",
            clipping=clipping,
            batches=[FullBatch(), Cyclic(2), Reshuffled(3)][int(rng.integers(3))],
            individual_budget=budget,
        )
        rows = rng.normal(size=(n, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) * rng.uniform(1, 3, (n, 1))
        y, gone = labels(rng, n), int(rng.integers(n))
        without = rows.copy()
        without[gone] = 0.0
        worlds = []
        for data in (rows, without):
            bound = None if clipping == "gradient" else 1.0
            gradients = LinearGradients(objective, data, y, run, 0.0, bound)
            worlds.append(Filtered(gradients, run.replace(arithmetic=gradients.arithmetic(3))))
        stream, spent, free = run.batches.rows(n, SeededSource(1)), 0.0, 0.0
        plain = LinearGradients(objective, rows, y, run, 0.0, bound)
        nobody = LinearGradients(objective, without, y, run, 0.0, bound)
        for k in range(steps):
            theta, batch = rng.normal(0, 2, gradients.shape), next(stream)
            unit = run.step_sizes[k] / run.batches.divisor(n) / run.noises[k]
            one, other = (world.total(theta, batch) for world in worlds)
            spent += (unit * np.linalg.norm(one - other)) ** 2
            apart = plain.total(theta, batch) - nobody.total(theta, batch)
            free += (unit * np.linalg.norm(apart)) ** 2
        assert spent <= budget**2
        left_out += free > budget**2
    assert left_out > 3


def test_a_run_is_certified_and_says_nothing_about_whom_it_left_out():
    run = RUN.replace(proximal=L1(0.01), diameter=8.0, individual_budget=0.5)
    done = noisy_descent(Logistic(), X, run, labels=Y)
    assert not done.experiment
    sealed = certify(done.training, done.loss, 1e-5, parameters=done.parameters)
    assert verify(sealed, parameters=done.parameters).epsilon == sealed.epsilon
    assert account(done.training, done.loss).mu == 0.5
    other = noisy_descent(Logistic(), np.zeros_like(X), run, labels=Y)
    assert other.training == done.training  # what is told does not depend on the data
    assert {f for f in vars(done)} == {f for f in vars(other)}


def test_what_records_round_is_paid_for_too():
    coarse = RUN.replace(individual_budget=0.3)
    fine = descended(coarse).training.arithmetic
    told = coarse.replace(arithmetic=type(fine)(grid=2.0**-6, error=0.01, coordinates=3))
    spent_early = descended(told)
    assert spent_early.training.arithmetic.grid == 2.0**-6
    plain = told.replace(individual_budget=None)
    # 4 g sqrt(3) over the noise alone is 1.08, more than the budget: nobody is ever used
    assert 4 * 2.0**-6 * math.sqrt(3) / 0.1 > 0.3
    nobody = descended(plain, np.zeros_like(X))
    assert np.array_equal(spent_early.parameters, nobody.parameters)


def test_without_noise_nobody_is_used():
    assert not descended(RUN.replace(noise=0.0)).parameters.any()


def test_what_cannot_keep_budgets_refuses():
    def gradient(theta, rows):
        return np.zeros((len(rows), 3))

    for ask in (
        lambda: descended(checkpoint=MemoryCheckpoint()),
        lambda: descended(groups=np.arange(20), per_person=1),
        lambda: descended(data=torch.from_numpy(X)),
        lambda: descended(device="cpu"),
        lambda: noisy_descent(gradient, None, RUN, start=np.zeros(3)),
        lambda: LinearCohort(Logistic(), RUN),
    ):
        with pytest.raises(UnsupportedError, match="individual"):
            ask()
