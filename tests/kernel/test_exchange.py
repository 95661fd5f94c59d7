"""Witnesses of the exchange bound: what is taken from them, and what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exchanged_laws import instance
from kernel_runs import as_json, described

from lastiterate import Loss, PrivacyUnit, Reshuffled, Shuffled, Training, account, certify, verify
from lastiterate.kernel.balls import KernelError, arb, precision
from lastiterate.kernel.exchange import check_exchange
from lastiterate.kernel.gaussians import Term
from lastiterate.kernel.paths import HiddenSteps, read_paths
from lastiterate.theory.exchange import EXCHANGE, _strings
from lastiterate.theory.path_witness import paths_table
from lastiterate.theory.run import Run
from lastiterate.theory.taut_string import best

LOSS = Loss(smoothness=1.0, regularization=0.01)


def training(**changes) -> Training:
    fields = dict(
        records=300,
        steps=90,
        step_size=1.0,
        noise=0.1,
        gradient_norm=1.0,
        batches=Shuffled(10),
        adjacency="zero-out",
    )
    return Training(**{"adjacency": "replace", **fields, **changes})


def proved(run: Training, witness, epsilon: float, loss: Loss = LOSS) -> float:
    """delta that the check proves at an epsilon."""
    with precision():
        found = check_exchange(described(run, loss), as_json(witness))
        both = found.delta(arb(epsilon)).min(found.exchanged_delta(arb(epsilon)))
        return float(both)


def exact_witness(run: Training, loss: Loss = LOSS, delta: float = 1e-5):
    witness = dict(EXCHANGE.evaluate(run, loss).at(delta).witness)
    witness["exchange"] = [dict(order) for order in witness["exchange"]]
    return witness


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 30},
        {"steps": 75, "noise": [0.1 + 0.001 * k for k in range(75)]},
        {"diameter": 0.4},
        {"steps": 6000, "noise": 0.3},
    ],
)
def test_what_is_certified_is_what_was_accounted(adjacency, changes, tmp_path) -> None:
    run = training(adjacency=adjacency, **changes)
    certificate = certify(run, LOSS, 1e-5)
    assert certificate.theorem_key == "exchange"
    assert certificate.epsilon == pytest.approx(account(run, LOSS).epsilon(1e-5), rel=1e-4)
    verify(certificate)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_a_unit_with_a_bound_of_its_own_is_certified(adjacency) -> None:
    unit = PrivacyUnit(gradient_norm=0.4)
    certificate = certify(training(adjacency=adjacency), LOSS, 1e-5, unit=unit)
    assert certificate.theorem_key == "exchange"
    assert certificate.epsilon < certify(training(adjacency=adjacency), LOSS, 1e-5).epsilon
    verify(certificate)


def test_releases_and_tail_averages_are_certified() -> None:
    certificate = certify(training(), LOSS, 1e-5, releases=(30, 45))
    assert certificate.theorem_key == "exchange"
    verify(certificate)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("name", "factor"),
    [("pi", 0.99), ("own_pi", 0.99), ("rho", 1.01), ("own_rho", 1.01), ("pi", -1.0)],
)
def test_masses_that_do_not_add_up_are_refused(order, name, factor) -> None:
    run = training()
    witness = exact_witness(run)
    witness["exchange"][order]["masses"][0][name] *= factor
    with pytest.raises(KernelError):
        proved(run, witness, 1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("row", 30), ("row", -1), ("column", 0.5), ("pi", math.nan), ("rho", math.inf)],
)
def test_positions_and_masses_are_checked(name, value) -> None:
    run = training()
    witness = exact_witness(run)
    order = witness["exchange"][0]
    table = order if name in order else order["masses"][0]
    values = table[name].astype(float)
    values[0] = value
    table[name] = values
    with pytest.raises(KernelError):
        proved(run, witness, 1.0)


def test_an_order_cannot_be_left_out() -> None:
    run = training()
    witness = exact_witness(run)
    witness["exchange"] = witness["exchange"][:1]
    with pytest.raises(KernelError, match="order"):
        proved(run, witness, 1.0)


def test_a_pair_that_costs_more_proves_less() -> None:
    run = training(steps=30)
    witness = exact_witness(run)
    epsilon = account(run, LOSS).epsilon(1e-5)
    assert proved(run, witness, epsilon) <= 1.001e-5
    for order in witness["exchange"]:
        order["row"][:], order["column"][:] = 0, 1
    with pytest.raises(KernelError):
        proved(run, witness, epsilon)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(500, 540))
def test_the_check_is_never_below_the_law_over_all_arrangements(seed, adjacency) -> None:
    found = instance(np.random.default_rng(seed), adjacency)
    proof = EXCHANGE.evaluate(found.training, found.loss).at(1e-2)
    for epsilon in (0.1, 0.7, 2.0):
        value = proved(found.training, proof.witness, epsilon, found.loss)
        assert value >= found.pair.delta(epsilon) * (1 - 1e-9) - 1e-13


@pytest.mark.parametrize("seed", range(30))
def test_strings_of_pairs_are_never_below_the_taut_string(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = int(rng.integers(2, 7))
    steps = int(rng.integers(2, 30))
    alike = rng.random() < 0.5
    run = training(
        records=batches,
        batches=Shuffled(1),
        steps=steps,
        step_size=0.7 if alike else rng.uniform(0.1, 1.0, steps).tolist(),
        noise=0.5 if alike else rng.uniform(0.2, 1.0, steps).tolist(),
        diameter=float(rng.choice([math.inf, 1.0])),
    )
    i, j = (int(place) for place in rng.permutation(batches)[:2])
    found = Run(run, LOSS)
    path = _strings(found).path(i, j, (2.0, 1.0), 0, steps)
    with precision():
        kernel = HiddenSteps(described(run, LOSS), 0, steps, batches)
        [cost] = kernel.costs(read_paths(as_json(paths_table([path]))), [{i: arb(2), j: arb(1)}])
    square, c, s = float(cost.upper()), found.steps.c, found.steps.s
    place = np.arange(steps) % batches
    want = best(c, (2.0 * (place == i) + (place == j)) * s, run.noises[:steps], run.diameter)
    assert square >= want.mu**2 * (1 - 1e-9)
    if math.isinf(run.diameter):
        assert square == pytest.approx(want.mu**2, rel=1e-7, abs=1e-250)


def test_a_term_is_right_on_both_sides_of_zero() -> None:
    for shift in (-2.0, -0.3, 0.0, 0.4):
        term = Term(arb(1.44), arb(0.5), arb(0.5) * arb(shift).exp())
        with precision():
            found = float(term.delta(arb(0.3)))
        x, mu = 0.3 + shift, 1.2
        phi = lambda t: 0.5 * math.erfc(-t / math.sqrt(2))  # noqa: E731
        want = 0.5 * (phi(-x / mu + mu / 2) - math.exp(x) * phi(-x / mu - mu / 2))
        assert found == pytest.approx(want, rel=1e-12)
        assert found >= want * (1 - 1e-14)


@pytest.mark.parametrize("batches", [Shuffled(10), Reshuffled(10)])
def test_a_unit_that_joins_late_is_certified_and_costs_no_more(batches) -> None:
    run = training(batches=batches)
    certificate = certify(run, LOSS, 1e-5, unit=PrivacyUnit(first_step=40))
    verify(certificate)
    assert certificate.epsilon <= account(run, LOSS).epsilon(1e-5)
