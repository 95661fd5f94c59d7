"""Witnesses of the exchange bound of reshuffled batches: what is taken from them, what is not."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from exchanged_laws import reshuffled_instance
from kernel_runs import as_json, described

from lastiterate import (
    Loss,
    PrivacyUnit,
    Reshuffled,
    TailAverage,
    Training,
    account,
    certify,
    verify,
)
from lastiterate.kernel import exchange
from lastiterate.kernel.balls import KernelError, arb, precision
from lastiterate.kernel.exchange import check_reshuffled_exchange
from lastiterate.kernel.gaussians import Term
from lastiterate.kernel.paths import HiddenSteps, read_paths
from lastiterate.theory.exchange import Segments
from lastiterate.theory.path_witness import paths_table
from lastiterate.theory.reshuffled_exchange import RESHUFFLED_EXCHANGE
from lastiterate.theory.run import Run
from lastiterate.theory.taut_string import taut_string

LOSS = Loss(smoothness=1.0, regularization=0.01)
DELTA = 1e-5


def training(**changes) -> Training:
    fields = dict(
        records=8,
        steps=16,
        step_size=1.0,
        noise=2.0,
        gradient_norm=1.0,
        batches=Reshuffled(1),
        adjacency="zero-out",
    )
    return Training(**{"adjacency": "replace", **fields, **changes})


def proved(run: Training, witness, epsilon: float, loss: Loss = LOSS) -> float:
    """delta that the check proves at an epsilon."""
    with precision():
        found = check_reshuffled_exchange(described(run, loss), as_json(witness))
        return float(found.delta(arb(epsilon)).min(found.exchanged_delta(arb(epsilon))))


def exact_witness(run: Training, loss: Loss = LOSS, delta: float = DELTA):
    witness = dict(RESHUFFLED_EXCHANGE.evaluate(run, loss).at(delta).witness)
    return copy.deepcopy({**witness, "exchange": dict(witness["exchange"])})


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 8},
        {"steps": 13},
        {"steps": 24, "noise": [2 + 0.01 * k for k in range(24)]},
        {"diameter": 0.8},
        {"release": TailAverage(3)},
    ],
)
def test_what_is_certified_is_what_was_accounted(adjacency, changes) -> None:
    run = training(adjacency=adjacency, **changes)
    certificate = certify(run, LOSS, DELTA)
    assert certificate.theorem_key == "reshuffled-exchange"
    assert certificate.epsilon == pytest.approx(account(run, LOSS).epsilon(DELTA), rel=2e-3)
    verify(certificate)


def test_releases_and_units_with_a_bound_of_their_own_are_certified() -> None:
    run, unit = training(steps=24), PrivacyUnit(gradient_norm=0.4)
    certificate = certify(run, LOSS, DELTA, releases=(8,), unit=unit)
    assert certificate.theorem_key == "reshuffled-exchange"
    assert certificate.epsilon < certify(run, LOSS, DELTA, releases=(8,)).epsilon
    verify(certificate)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("name", "factor"),
    [("pi", 0.99), ("own_pi", 0.99), ("rho", 1.01), ("own_rho", 1.01), ("pi", -1.0)],
)
def test_masses_that_do_not_add_up_are_refused(order, name, factor) -> None:
    run = training()
    witness = exact_witness(run)
    witness["exchange"]["orders"][order]["masses"][0][name] *= factor
    with pytest.raises(KernelError):
        proved(run, witness, 1.0)


def test_masses_of_another_cost_or_order_cannot_be_left_out() -> None:
    run = training()
    for tamper, message in (
        (lambda found: found["orders"].pop(), "orders"),
        (lambda found: found["orders"][0]["masses"].pop(), "masses"),
        (lambda found: found.update(costs=[-1.0]), "cost"),
        (lambda found: found.update(costs=[]), "cost"),
    ):
        witness = exact_witness(run)
        tamper(witness["exchange"])
        with pytest.raises(KernelError, match=message):
            proved(run, witness, 1.0)


def test_smaller_costs_of_earlier_epochs_prove_no_more() -> None:
    """Each cost moves up to a value of the witness; the last value grows to the largest cost."""
    run = training()
    epsilon = account(run, LOSS).epsilon(DELTA)
    assert proved(run, exact_witness(run), epsilon) <= 1.001 * DELTA
    for factor in (0.0, 0.5, 0.9):
        witness = exact_witness(run)
        witness["exchange"]["costs"] = np.array(witness["exchange"]["costs"]) * factor
        assert proved(run, witness, epsilon) > 1.01 * DELTA


def test_levels_are_priced_by_the_check() -> None:
    run = training()
    epsilon = account(run, LOSS).epsilon(DELTA)
    witness = exact_witness(run)
    for level in (0.0, 3.0):
        levels = np.array(witness["exchange"]["levels"])
        levels[1] = level
        changed = {**witness, "exchange": {**witness["exchange"], "levels": levels}}
        if level == 0.0:
            assert proved(run, changed, epsilon) > 1.01 * DELTA
        else:  # the paths of the last epoch begin below
            with pytest.raises(KernelError, match="begins"):
                proved(run, changed, epsilon)
    for levels in ([0.0, 0.5, 0.5], [0.5, 0.5], [0.0, -0.5, 0.0], [0.0, math.nan, 0.0], []):
        witness = exact_witness(run)
        witness["exchange"]["levels"] = levels
        with pytest.raises(KernelError):
            proved(run, witness, epsilon)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(500, 520))
def test_the_check_is_never_below_the_law_over_all_arrangements(seed, adjacency) -> None:
    found = reshuffled_instance(np.random.default_rng(seed), adjacency)
    proof = RESHUFFLED_EXCHANGE.evaluate(found.training, found.loss).at(1e-2)
    for epsilon in (0.1, 0.7, 2.0):
        value = proved(found.training, proof.witness, epsilon, found.loss)
        assert value >= found.pair.delta(epsilon, 800) * (1 - 1e-9) - 1e-13


@pytest.mark.parametrize("seed", range(20))
def test_strings_of_the_last_epoch_are_taut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = int(rng.integers(2, 7))
    last = int(rng.integers(1, batches + 1))
    steps = batches + last
    alike = rng.random() < 0.5
    run = training(
        records=batches,
        steps=steps,
        step_size=0.7 if alike else rng.uniform(0.1, 1.0, steps).tolist(),
        noise=0.5 if alike else rng.uniform(0.2, 1.0, steps).tolist(),
    )
    i, j = (int(place) for place in rng.permutation(batches)[:2])
    level = float(rng.uniform(0, 2))
    found = Run(run, LOSS)
    cut = Segments(found.steps[batches:], batches, ((0, last),), math.inf, level)
    path = cut.path(i, j, (2.0, 1.0), 0, last)
    path = path._replace(steps=[step + batches for step in path.steps])
    with precision():
        kernel = HiddenSteps(described(run, LOSS), batches, steps, batches)
        paths = read_paths(as_json(paths_table([path])))
        [cost] = kernel.costs(paths, [{i: arb(2), j: arb(1)}], reached=level)
    square, c, s = float(cost.upper()), found.steps.c[batches:], found.steps.s[batches:]
    place = np.arange(last)
    jumps = np.append(level, (2.0 * (place == i) + (place == j)) * s)
    nu = np.append(1e-9, run.noises[batches:steps])
    want = taut_string(np.append(1.0, c), jumps, nu).mu ** 2
    assert square == pytest.approx(want, rel=1e-7)


def test_similar_terms_become_one_that_is_no_smaller() -> None:
    rng = np.random.default_rng(1)
    with precision():
        terms = [
            Term(arb(1 + 0.01 * float(a)), arb(0.01 * float(b)), arb(0.01 * float(d)))
            for a, b, d in rng.uniform(0.5, 1, (200, 3))
        ]
        few = exchange._merged(terms)
        assert len(few) < len(terms)
        for epsilon in (0.1, 1.0, 3.0):
            exact, merged = (
                float(sum((t.delta(arb(epsilon)) for t in each), arb(0))) for each in (terms, few)
            )
            assert exact <= merged * (1 + 1e-12) <= exact * 1.05
    assert math.isclose(float(sum(t.pi for t in few)), float(sum(t.pi for t in terms)))
