"""The exchange bound against the exact law over all arrangements, and its published tables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from exchanged_laws import instance

from lastiterate import Loss, PrivacyUnit, Shuffled, Training, account
from lastiterate.theory import exchange
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.exchange import EXCHANGE, Segments, coupled_labels, exchanged_sizes
from lastiterate.theory.ordered_batches import HIDDEN_POSITION
from lastiterate.theory.positions import constant_position_mus
from lastiterate.theory.taut_string import taut_string

SIZES = {"replace": ((1.0, 1.0),), "zero-out": ((2.0, 1.0), (1.0, 2.0))}
EPSILONS = (0.05, 0.3, 1.0, 2.5)


def shortfall(found, epsilon: float) -> float:
    """By how much the bound is below the truth, relative to it."""
    truth = found.pair.delta(epsilon)
    return truth - account(found.training, found.loss).delta(epsilon) * (1 + 1e-9)


def check(seed: int, adjacency: str) -> None:
    found = instance(np.random.default_rng(seed), adjacency)
    for epsilon in EPSILONS:
        assert shortfall(found, epsilon) <= 1e-13, (seed, epsilon)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(60))
def test_never_below_the_law_over_all_arrangements(seed: int, adjacency: str) -> None:
    check(seed, adjacency)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("block", range(20))
def test_never_below_the_law_of_two_thousand_runs(block: int, adjacency: str) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        check(seed, adjacency)


def below_the_truth(adjacency: str) -> bool:
    return any(
        shortfall(instance(np.random.default_rng(seed), adjacency), epsilon) > 1e-6
        for seed in range(150)
        for epsilon in EPSILONS
    )


@pytest.mark.parametrize(
    ("adjacency", "sizes"),
    [
        ("zero-out", ((1.0, 1.0),)),
        ("zero-out", ((1.0, 2.0),)),
        ("replace", ((0.5, 0.5),)),
    ],
)
def test_smaller_sensitivities_are_refuted(monkeypatch, adjacency, sizes) -> None:
    monkeypatch.setattr(exchange, "exchanged_sizes", lambda training, unit: sizes)
    assert below_the_truth(adjacency)


TABLE = [  # batches, s/nu, joint convexity, replace, zero-out; one pass, c = 1, delta = 1e-5
    (20, 1.0, 3.616, 1.986, 3.521),
    (50, 2.0, 7.995, 4.701, 7.995),
    (50, 1.0, 3.352, 1.300, 3.038),
    (50, 0.5, 1.464, 0.501, 0.746),
    (100, 1.0, 3.140, 0.907, 2.534),
    (200, 0.5, 1.237, 0.243, 0.341),
    (1000, 1.0, 2.330, 0.240, 0.650),
    (1000, 0.5, 0.937, 0.101, 0.123),
]


def epsilon_of(adjacency: str, batches: int, ratio: float, epochs: int = 1, c: float = 1.0):
    steps = batches * epochs
    mus = constant_position_mus(c, ratio, 1.0, steps, batches)
    strings = Segments(Steps(c, ratio, 1.0, steps), batches, ((0, steps),), math.inf)
    return coupled_labels(strings, mus, SIZES[adjacency], 1e-5).curve.epsilon(1e-5)


@pytest.mark.parametrize(("batches", "ratio", "average", "replace", "zero_out"), TABLE)
def test_one_pass(batches, ratio, average, replace, zero_out) -> None:
    assert epsilon_of("replace", batches, ratio) <= replace * 1.01
    assert epsilon_of("zero-out", batches, ratio) <= zero_out * 1.01


@pytest.mark.parametrize(
    ("batches", "epochs", "c", "epsilon"),
    [(100, 10, 1.0, 1.662), (100, 10, 0.99, 0.900), (100, 10, 0.95, 0.582), (20, 20, 0.98, 2.922)],
)
def test_several_epochs(batches, epochs, c, epsilon) -> None:
    assert epsilon_of("replace", batches, 1.0, epochs, c) <= epsilon * 1.01


def training(**changes) -> Training:
    fields = dict(
        records=500,
        steps=50,
        step_size=1.0,
        noise=0.1,
        gradient_norm=0.5,
        batches=Shuffled(10),
        adjacency="replace",
    )
    return Training(**{"adjacency": "replace", **fields, **changes})


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("steps", [7, 50, 120])
@pytest.mark.parametrize("ridge", [0.0, 0.01])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_never_above_the_average_over_positions(adjacency, steps, ridge, delta) -> None:
    run, loss = training(steps=steps, adjacency=adjacency), Loss(regularization=ridge, smoothness=1)
    average = HIDDEN_POSITION.evaluate(run, loss).curve.epsilon(delta)
    assert EXCHANGE.evaluate(run, loss).curve.epsilon(delta) <= average * (1 + 1e-12)


def test_an_equalised_schedule_is_one_gaussian() -> None:
    run, loss = training(), Loss(smoothness=1.0)
    run = run.replace(schedule="equalised", steps=50)
    found = account(run, loss)
    assert found.mu == HIDDEN_POSITION.evaluate(run, loss).curve.mu


def test_a_release_adds_the_strings_of_the_same_pair() -> None:
    steps = np.ones(12)
    strings = Segments(Steps(1.0, 1.0, 1.0, 12), 4, ((0, 5), (5, 12)), math.inf)
    square = strings.pair_squares(np.array([1]), np.array([3]), (2.0, 1.0))[0]
    used = 2.0 * (np.arange(12) % 4 == 1) + (np.arange(12) % 4 == 3)
    parts = [taut_string(1.0, used[a:b] * steps[a:b], 1.0).mu ** 2 for a, b in ((0, 5), (5, 12))]
    assert square == pytest.approx(sum(parts), rel=1e-8)
    assert square >= sum(parts) * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_strings_of_pairs_are_taut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches, steps = int(rng.integers(2, 8)), int(rng.integers(2, 40))
    c, s, nu = rng.uniform(0.5, 1.2, steps), rng.uniform(0, 2, steps), rng.uniform(0.2, 2, steps)
    i, j = rng.permutation(batches)[:2]
    strings = Segments(Steps(c, s, nu, steps), batches, ((0, steps),), math.inf)
    found = strings.pair_squares(np.array([i]), np.array([j]), (2.0, 1.0))[0]
    place = np.arange(steps) % batches
    want = taut_string(c, (2.0 * (place == i) + (place == j)) * s, nu).mu ** 2
    assert found == pytest.approx(want, rel=1e-7)
    assert found >= want * (1 - 1e-9)


@pytest.mark.parametrize("c", [1.0, 0.999, 0.9])
def test_long_runs_of_equal_steps_are_never_below_their_string(c: float) -> None:
    batches, epochs = 5, 2 * exchange.EXACT_EPOCHS
    steps = batches * epochs
    strings = Segments(Steps(c, 1.0, 1.0, steps), batches, ((0, steps),), math.inf)
    for i, j in ((0, 3), (3, 0), (4, 1), (1, 4)):
        found = strings.pair_squares(np.array([i]), np.array([j]), (1.0, 2.0))[0]
        place = np.arange(steps) % batches
        want = taut_string(c, 1.0 * (place == i) + 2.0 * (place == j), 1.0).mu ** 2
        assert want * (1 - 1e-9) <= found <= want * (1 + 1e-7)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_a_smaller_bound_of_the_unit_never_costs_more(adjacency) -> None:
    run, loss = training(adjacency=adjacency), Loss(smoothness=1.0)
    assert exchanged_sizes(run, PrivacyUnit()) == SIZES[adjacency]
    norms = [0.5 * share for share in (1.0, 0.99, 0.7, 0.3, 0.01)]
    found = [account(run, loss, unit=PrivacyUnit(gradient_norm=n)).epsilon(1e-5) for n in norms]
    assert found[0] == pytest.approx(account(run, loss).epsilon(1e-5), rel=1e-9)
    assert all(a >= b * (1 - 1e-3) for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(40))
def test_a_unit_with_a_bound_of_its_own_is_never_below_its_law(seed, adjacency) -> None:
    found = instance(np.random.default_rng(seed), adjacency, share=0.4)
    unit = PrivacyUnit(gradient_norm=0.4 * found.training.gradient_norm)
    for epsilon in EPSILONS:
        bound = account(found.training, found.loss, unit=unit).delta(epsilon)
        assert bound * (1 + 1e-9) >= found.pair.delta(epsilon) - 1e-13


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(40))
def test_a_unit_that_is_present_at_times_is_never_below_its_law(seed, adjacency) -> None:
    steps = instance(np.random.default_rng(seed), adjacency).training.steps
    joined, left = (steps // 3, None) if seed % 2 else (0, max(2 * steps // 3, 1))
    found = instance(np.random.default_rng(seed), adjacency, 1.0, joined, left)
    unit = PrivacyUnit(first_step=joined, last_step=left)
    for epsilon in EPSILONS:
        bound = account(found.training, found.loss, unit=unit).delta(epsilon)
        assert bound * (1 + 1e-9) >= found.pair.delta(epsilon) - 1e-13
