"""Numbers at the ends of the range: nothing underflows to "private", nothing divides by zero."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb

from lastiterate import (
    Cyclic,
    FullBatch,
    LastIterateError,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    account,
    calibrate,
    compare,
    plateau,
)
from lastiterate.theory import full_batch as shifted_interpolation
from lastiterate.verifier.balls import precision
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.coupled import Coupled
from lastiterate.verifier.steps import Case
from lastiterate.verifier.witness import pack, unpack

SCHEMES = [FullBatch(), Cyclic(5), Shuffled(5), Reshuffled(5)]
LOSSES = [
    Loss(smoothness=1.0),
    Loss(smoothness=10.0, strong_convexity=10.0),
    Loss.nonconvex(smoothness=1.0),
    Loss.holder(constant=1.0, exponent=0.5),
    Loss.unknown(),
    Loss(smoothness=math.inf),
    Loss(smoothness=0.0, regularization=10.0),
]


def run(batches, **changes):
    fields = dict(records=20, steps=6, step_size=0.1, noise=0.1, gradient_norm=1.0)
    return Training(batches=batches, **{"adjacency": "replace", **fields, **changes})


@pytest.mark.parametrize("batches", SCHEMES)
@pytest.mark.parametrize("diameter", [math.inf, 1.0])
@pytest.mark.parametrize("changes", [{"noise": 1e170}, {"noise": 1e300}, {"gradient_norm": 1e-200}])
def test_a_positive_sensitivity_is_never_free(batches, diameter, changes):
    training = run(batches, diameter=diameter, **changes)
    for loss in LOSSES[:5]:
        guarantee = account(training, loss)
        assert all(bound.curve.mu is None or bound.curve.mu > 0 for bound in guarantee.bounds)
        assert guarantee.delta(0.0) > 0
        assert guarantee.epsilon(1e-320) > 0
        assert guarantee.rdp(2.0) > 0


@pytest.mark.parametrize("batches", SCHEMES)
@pytest.mark.parametrize("changes", [{"step_size": 0.0}, {"gradient_norm": 0.0}, {"steps": 0}])
def test_without_an_impulse_everything_is_free(batches, changes):
    for loss in LOSSES:
        for diameter in (math.inf, 1.0):
            training = run(batches, diameter=diameter, **changes)
            assert account(training, loss).epsilon(1e-5) == 0
            assert compare(training, loss, 1e-5)[0].epsilon == 0


@pytest.mark.parametrize("batches", SCHEMES)
@pytest.mark.parametrize("noise", [0.0, 1e-200, 5e-324])
def test_without_noise_nothing_is_private(batches, noise):
    for loss in LOSSES:
        for diameter in (math.inf, 1.0):
            training = run(batches, diameter=diameter, noise=noise)
            assert account(training, loss).epsilon(1e-5) > 1e100
            assert compare(training, loss, 1e-5)[0].epsilon > 1e100


@pytest.mark.parametrize("smoothness", [math.inf, 1e305, 1e30, 1e9])
def test_poisson_batches_of_a_rough_loss_are_charged_in_full(smoothness):
    """An infinite Lipschitz constant is no path: it used to come out as epsilon = 0."""
    training = run(Poisson(0.3), adjacency="zero-out", diameter=1.0, step_size=[0.1] * 6)
    rough = account(training, Loss(smoothness=smoothness)).epsilon(1e-5)
    assert rough == account(training, Loss.unknown()).epsilon(1e-5) > 0


def test_a_step_that_forgets_everything():
    """c = 0: only the last step counts, in every theorem that applies."""
    loss = Loss(smoothness=10.0, strong_convexity=10.0)  # eta = 0.1
    for batches in SCHEMES:
        found = compare(run(batches), loss, 1e-5)
        assert all(row.epsilon >= 0 for row in found)
    last = account(run(FullBatch(), steps=1), loss).epsilon(1e-5)
    assert account(run(FullBatch()), loss).epsilon(1e-5) == pytest.approx(last, rel=1e-6)


def hostile(rng):
    """A valid description with one or two numbers from the ends of the range."""
    fields = {}
    for name in rng.choice(["step_size", "noise", "gradient_norm", "diameter"], 2):
        power = float(rng.choice([-324, -200, -90, -10, 10, 90, 200]))
        fields[str(name)] = 0.0 if rng.random() < 0.1 else max(10.0**power, 5e-324)
    if rng.random() < 0.3:
        fields["diameter"] = 1.0
    if rng.random() < 0.3:
        fields["noise"] = (0.1 * rng.random(6) ** rng.choice([1, 200])).tolist()
    return run(SCHEMES[rng.integers(4)], clipping=str(rng.choice(["none", "gradient"])), **fields)


def asked_plateau(training, loss):
    """Of full batches: with others a million steps are walked before a run that never settles."""
    return (plateau(training, loss, 1e-5) or 0) if training.batches.repeated else 0


QUESTIONS = [
    lambda training, loss: account(training, loss).epsilon(1e-5),
    lambda training, loss: account(training, loss).delta(1.0),
    lambda training, loss: min(row.epsilon for row in compare(training, loss, 1e-5)),
    asked_plateau,
    lambda training, loss: calibrate(training, loss, epsilon=1.0, delta=1e-5).steps,
]


def check_hostile(seed, count, dear=0):
    """The first few are asked what takes many accounts, too."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        for number in range(count):
            training, loss = hostile(rng), LOSSES[rng.integers(len(LOSSES))]
            for ask in QUESTIONS if number < dear else QUESTIONS[:3]:
                try:
                    answer = ask(training, loss)
                except LastIterateError:
                    continue
                assert answer >= 0, (training, loss)  # and not nan


def test_hostile_numbers_are_answered_or_refused():
    check_hostile(1, 25)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(8))
def test_many_hostile_numbers_are_answered_or_refused(seed, monkeypatch):
    monkeypatch.setattr(shifted_interpolation, "SEARCHED", 40)  # numbers are asked, not patience
    check_hostile(100 + seed, 20, dear=3)


@pytest.mark.parametrize("norm", [0.3, 1.1, 3.3, 70.1])
def test_the_verifier_of_couplings_never_shortens_an_impulse(norm):
    """One record and a step of 1: s = 2K is a double, and stays one or becomes the next."""
    training = Training(
        records=1,
        steps=20,
        step_size=1.0,
        noise=norm,
        gradient_norm=norm,
        diameter=4 * norm,
        batches=FullBatch(),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0)
    bound = next(b for b in account(training, loss).bounds if b.theorem.key == "stopped-coupling")
    with precision():
        check = CHECKS[bound.theorem.key](
            Case(training, loss), unpack(pack(bound.at(1e-3).witness))
        )
    assert 2 * norm <= check.coupled.s <= 2 * norm * (1 + 1e-15)


def test_the_verifiers_survival_is_never_below_the_truth():
    """P(B(rho) > y) = Phi((rho - y)/2nu) - Phi(-(rho + y)/2nu) in ball arithmetic."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        nu = float(rng.uniform(0.2, 2.0))
        problem = Coupled(
            c=float(rng.uniform(0, 1)),
            s=float(10 ** rng.uniform(-9, 0.5)),
            nu=nu,
            diameter=float(10 ** rng.uniform(-2, 1.0)),
            steps=3,
            cells=24,
        )
        with precision(256):
            found, h = problem._survival, arb(problem._width)
            root = arb(2).sqrt()
            for i in range(0, 25, 3):
                rho = arb(problem.c) * i * h + arb(problem.s)
                for k in range(0, 25):
                    near, far = ((rho + sign * k * h) / (2 * arb(nu)) for sign in (-1, 1))
                    exact = ((-near / root).erfc() - (far / root).erfc()) / 2
                    assert arb(float(found[i, k])) >= exact, (problem, i, k)
