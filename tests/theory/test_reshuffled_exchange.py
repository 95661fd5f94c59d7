"""The exchange bound of reshuffled batches: exact laws over all arrangements, published tables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from exchanged_laws import reshuffled_instance

from lastiterate import Loss, PrivacyUnit, Reshuffled, Shuffled, TailAverage, Training, account
from lastiterate.theory import reshuffled_exchange
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.exchange import EXCHANGE, Segments
from lastiterate.theory.reshuffled import BOUNDARY_POLICY
from lastiterate.theory.reshuffled_exchange import RESHUFFLED_EXCHANGE
from lastiterate.theory.taut_string import taut_string

EPSILONS = (0.05, 0.3, 1.0, 2.5)
CELLS = 800


def shortfalls(seed: int, adjacency: str, **options) -> list[float]:
    """By how much the bound is below the truth at a few epsilons."""
    rng = np.random.default_rng(seed)
    found = reshuffled_instance(rng, adjacency, **options)
    curve = RESHUFFLED_EXCHANGE.evaluate(found.training, found.loss)
    proof = curve.at(10 ** -rng.uniform(0.5, 5))  # masses of any delta bound all epsilons
    return [
        found.pair.delta(epsilon, CELLS) - proof.curve.delta(epsilon) * (1 + 1e-9)
        for epsilon in EPSILONS
    ]


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(60))
def test_never_below_the_law_over_all_arrangements(seed: int, adjacency: str) -> None:
    assert max(shortfalls(seed, adjacency)) <= 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("block", range(20))
def test_never_below_the_law_of_two_thousand_runs(block: int, adjacency: str) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        assert max(shortfalls(seed, adjacency)) <= 1e-13, seed


def refuted(adjacency: str, seeds: int = 150) -> bool:
    """Whether some exact law is above what a wrong theorem says."""
    return any(max(shortfalls(seed, adjacency, opposed=1.0)) > 1e-6 for seed in range(seeds))


@pytest.mark.parametrize(
    ("adjacency", "sizes"),
    [
        ("zero-out", ((1.0, 1.0),)),
        ("zero-out", ((1.0, 2.0),)),
        ("replace", ((0.5, 0.5),)),
    ],
)
def test_smaller_sensitivities_are_refuted(monkeypatch, adjacency, sizes) -> None:
    monkeypatch.setattr(reshuffled_exchange, "exchanged_sizes", lambda training, unit: sizes)
    assert refuted(adjacency)


def test_a_last_epoch_from_a_common_start_is_refuted(monkeypatch) -> None:
    def from_zero(steps, batches, cuts, diameter, level):
        return Segments(steps, batches, cuts, diameter)

    monkeypatch.setattr(reshuffled_exchange, "Segments", from_zero)
    assert refuted("replace")


def test_earlier_epochs_that_cost_nothing_are_refuted(monkeypatch) -> None:
    values = reshuffled_exchange._values

    def free(prices, epsilon, most):
        x, w = values(prices, epsilon, most)
        return 1e-9 * x, w

    monkeypatch.setattr(reshuffled_exchange, "_values", free)
    assert refuted("replace")


TABLE = [  # batches, epochs, c, s/nu, replace, zero-out; delta = 1e-5, without distributions
    (50, 2, 1.0, 0.5, 0.627, 0.844),
    (50, 5, 1.0, 1.0, 1.850, 3.233),
    (100, 5, 0.99, 0.5, 0.365, 0.524),
    (100, 5, 0.99, 1.0, 0.929, 2.542),
    (100, 20, 0.99, 0.5, 0.366, 0.525),
    (20, 20, 0.98, 0.5, 1.130, 1.373),
    (20, 20, 0.98, 1.0, 2.644, 3.819),
]


def of_batches(batches: int, steps: int, ratio: float, c: float, adjacency: str, **changes):
    """A run whose steps have a sensitivity of ``ratio`` in units of the noise."""
    fields = dict(
        records=batches,
        steps=steps,
        step_size=1.0,
        noise=1 / ratio,
        gradient_norm=0.5 if adjacency == "replace" else 1.0,
        batches=Reshuffled(1),
        adjacency=adjacency,
    )
    return Training(**{"adjacency": "replace", **fields, **changes}), Loss(
        smoothness=1.0, regularization=1 - c
    )


@pytest.mark.parametrize(("batches", "epochs", "c", "ratio", "replace", "zero_out"), TABLE)
def test_table(batches, epochs, c, ratio, replace, zero_out) -> None:
    for adjacency, epsilon in (("replace", replace), ("zero-out", zero_out)):
        run = of_batches(batches, batches * epochs, ratio, c, adjacency)
        assert RESHUFFLED_EXCHANGE.evaluate(*run).curve.epsilon(1e-5) <= epsilon * 1.01


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 7},
        {"steps": 30},
        {"steps": 25},
        {"diameter": 0.4},
        {"steps": 20, "release": TailAverage(3)},
        {"steps": 20, "release": TailAverage(13)},
        {"steps": 20, "noise": np.linspace(1, 2, 20).tolist()},
    ],
)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_never_above_the_boundary_policy(adjacency, changes, delta) -> None:
    rest = {name: value for name, value in changes.items() if name != "steps"}
    run = of_batches(10, changes.get("steps", 30), 1.0, 0.99, adjacency, **rest)
    policy = BOUNDARY_POLICY.evaluate(*run).curve.epsilon(delta)
    assert RESHUFFLED_EXCHANGE.evaluate(*run).curve.epsilon(delta) <= policy


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_one_epoch_is_one_hidden_partition(adjacency) -> None:
    run, loss = of_batches(20, 20, 1.0, 1.0, adjacency)
    once = EXCHANGE.evaluate(run.replace(batches=Shuffled(1)), loss).curve.epsilon(1e-5)
    found = RESHUFFLED_EXCHANGE.evaluate(run, loss).curve.epsilon(1e-5)
    assert found == pytest.approx(once, rel=5e-3)


def test_the_boundary_policy_is_replaced_where_the_exchange_applies() -> None:
    run, loss = of_batches(10, 30, 1.0, 1.0, "replace")
    assert account(run, loss).theorem.key == "reshuffled-exchange"
    timed = account(run, loss, unit=PrivacyUnit(first_step=10))
    assert timed.theorem.key == "reshuffled-exchange"
    assert account(run, loss, releases=(10,)).theorem.key == "reshuffled-exchange"
    inside = account(run, loss, releases=(7,))
    assert [bound.theorem.key for bound in inside.bounds] == ["gaussian-composition"]


@pytest.mark.parametrize("seed", range(20))
def test_strings_from_a_level_are_taut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = int(rng.integers(2, 8))
    steps = int(rng.integers(1, batches + 1))
    c, s, nu = rng.uniform(0.5, 1.2, steps), rng.uniform(0, 2, steps), rng.uniform(0.2, 2, steps)
    level = float(rng.uniform(0, 3))
    strings = Segments(Steps(c, s, nu, steps), batches, ((0, steps),), math.inf, level)
    place = np.arange(steps)
    for i, j in itertools.permutations(range(batches), 2):
        found = strings.pair_squares(np.array([i]), np.array([j]), (2.0, 1.0))[0]
        jumps = (2.0 * (place == i) + (place == j)) * s
        # A step with hardly any noise that brings the two runs to the level.
        want = taut_string(np.append(1.0, c), np.append(level, jumps), np.append(1e-9, nu)).mu ** 2
        assert found == pytest.approx(want, rel=1e-7)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(20))
def test_a_unit_with_a_bound_of_its_own_is_never_below_its_law(seed, adjacency) -> None:
    found = reshuffled_instance(np.random.default_rng(seed), adjacency, share=0.4)
    unit = PrivacyUnit(gradient_norm=0.4 * found.training.gradient_norm)
    proof = RESHUFFLED_EXCHANGE.evaluate(found.training, found.loss, unit=unit).at(1e-2)
    for epsilon in EPSILONS:
        bound = proof.curve.delta(epsilon) * (1 + 1e-9)
        assert bound >= found.pair.delta(epsilon, CELLS) - 1e-13


def test_a_thousand_batches_in_fifty_epochs() -> None:
    run = of_batches(1000, 50_000, 1.0, 1.0, "replace")
    assert RESHUFFLED_EXCHANGE.evaluate(*run).curve.epsilon(1e-5) < 0.9


def test_a_release_costs_what_it_does_where_later_epochs_restart_from_the_diameter() -> None:
    noise = [1.0] * 4 + [10.0] * 12
    run, loss = of_batches(4, 16, 1.0, 1.0, "replace", diameter=1.0, noise=noise)
    alone = run.replace(steps=4, noise=noise[:4])
    first = BOUNDARY_POLICY.evaluate(alone, loss).curve.epsilon(1e-5)
    both = BOUNDARY_POLICY.evaluate(run, loss, (4,)).curve.epsilon(1e-5)
    assert both >= first > 0
