"""What floats round is part of the description, and is charged."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate import (
    Arithmetic,
    DescriptionError,
    FullBatch,
    Loss,
    Poisson,
    Shuffled,
    Training,
    account,
    certify,
    verify,
)
from lastiterate.description import Origin
from lastiterate.description.assumptions import assumptions
from lastiterate.losses import Logistic
from lastiterate.theory import Run

RUN = {"records": 100, "steps": 30, "step_size": 0.1, "noise": 0.05, "gradient_norm": 1.0}
positive = st.floats(1e-150, 1e100)


def run(batches=None, **settings):
    return Training(batches=batches or FullBatch(), **{"adjacency": "replace", **RUN, **settings})


@given(records=st.integers(1, 2**53), norm=positive, error=st.floats(0, 1e100), rate=positive)
def test_the_impulse_is_never_below_sensitivity_and_twice_the_error(records, norm, error, rate):
    for batches in (FullBatch(), Shuffled(1), Poisson(min(rate, 1.0))):
        one = run(batches, records=records, gradient_norm=norm, arithmetic=Arithmetic(error=error))
        divisor = {"full": Fraction(records), "shuffled": Fraction(1)}.get(
            batches.name, Fraction(min(rate, 1.0)) * records
        )
        exact = Fraction(one.sensitivity) / divisor + 2 * Fraction(error)
        # the accountant multiplies an exact one by its own margin, 1 + 2^-50
        assert Fraction(one.impulse) * (1 + Fraction(1, 2**50)) >= exact
        assert Fraction(one.impulse) <= exact * (1 + Fraction(1, 2**48)) + Fraction(1, 2**1074)
        if error:
            assert Fraction(one.impulse) >= exact


@settings(deadline=None, max_examples=30)
@given(error=st.floats(1e-9, 1e-2), scheme=st.sampled_from([FullBatch(), Shuffled(20)]))
def test_an_error_costs_what_a_longer_gradient_costs(error, scheme):
    """A record that moves the mean by 2e more is one with a gradient that much longer.

    In batches, steps that do not use the record round too: never more than if all were published.
    """
    loss = Loss(smoothness=1.0, regularization=0.1)
    plain = run(scheme, adjacency="zero-out")
    longer = plain.replace(gradient_norm=1.0 + 2 * error * scheme.divisor(100))
    charged = account(plain.replace(arithmetic=Arithmetic(error=error)), loss).epsilon(1e-5)
    truth = account(longer, loss).epsilon(1e-5)
    most = truth if scheme.full else account(longer, Loss.unknown()).epsilon(1e-5)
    assert truth * (1 - 1e-9) <= charged <= most * (1 + 1e-9)
    assert charged > account(plain, loss).epsilon(1e-5)


@given(grid=st.integers(-1074, 200), coordinates=st.integers(1, 2**53))
def test_the_grid_rounding_is_never_below_four_times_grid_and_root(grid, coordinates):
    charged = Arithmetic(grid=math.ldexp(1.0, grid), coordinates=coordinates).grid_rounding
    square = 16 * Fraction(2) ** (2 * grid) * coordinates
    assert Fraction(charged) ** 2 >= square
    assert (Fraction(charged) * (1 - Fraction(1, 2**51)) - Fraction(1, 2**1073)) ** 2 <= square


class Lighter(Arithmetic):
    """A child that charges nothing."""

    grid_rounding = 0.0
    charge = 0.0


def test_a_grid_is_charged_at_every_step_whatever_its_size():
    grid = Arithmetic(grid=2.0**-12, coordinates=9)  # 12 spacings
    sizes = [0.0, 0.1, 0.7]
    one = run(steps=3, step_size=sizes, arithmetic=grid)
    exact = [eta * one.sensitivity / 100 + 12 * 2.0**-12 for eta in sizes]
    assert Run(one, Loss.unknown()).step_sensitivities == pytest.approx(exact, rel=1e-14)
    assert Run(one, Loss.unknown()).rounding_drifts == pytest.approx([12 * 2.0**-12] * 3, rel=1e-14)
    assert np.all(Run(one, Loss.unknown()).step_sensitivities >= exact)


@pytest.mark.parametrize("arithmetic", [Arithmetic(2.0**-30, 1e-9, 784), Arithmetic(0.0, 0.0, 7)])
def test_it_is_written_and_read(arithmetic):
    one = run(arithmetic=arithmetic)
    assert Training.from_json(one.to_json()) == one
    assert Training.from_toml(one.to_toml()) == one
    assert one.to_dict()["arithmetic"]["coordinates"] == arithmetic.coordinates
    assert "coordinates" not in run(arithmetic=Arithmetic(error=1e-9)).to_dict()["arithmetic"]


def test_files_from_before_there_was_a_grid_are_read():
    old = run(arithmetic={"grid": 0.0, "error": 1e-9})
    assert old.arithmetic == Arithmetic(error=1e-9, coordinates=1)


def test_what_rounding_adds_is_no_lower_reference():
    loss = Loss(smoothness=1.0)
    coarse = account(run(arithmetic=Arithmetic(grid=2.0**-10, error=0.01)), loss)
    assert coarse.lower(1e-5) == account(run(), loss).lower(1e-5)


def test_gradients_that_others_compute_are_said_to_round_nothing_more():
    """Hidden states remember what computing a gradient rounds; only linear losses pay for it."""
    run = Training(
        records=9,
        steps=4,
        step_size=0.5,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        diameter=2.0,
        arithmetic=Arithmetic(2.0**-20, 1e-9, 4),
        adjacency="replace",
    )

    def said(loss, training=run, hidden_state=True):
        found = assumptions(training, loss, hidden_state=hidden_state)
        mine = [a for a in found if "computing one gradient rounds" in a.statement]
        assert all(a.vouched_by == "whoever computes them" for a in mine)
        return bool(mine)

    declared, linear = Loss(smoothness=1.0), Logistic().regularity(1.0)
    head = Origin("bounded-softmax", 1.0, 2.0, 3)
    network = Loss(head.constants.smoothness, provenance="proved", origin=head)
    assert network.provenance == linear.provenance == "proved"
    assert said(declared)
    assert said(network)
    assert said(Loss.nonconvex(smoothness=1.0))
    assert said(Loss.holder(constant=1.0, exponent=0.5))
    assert not said(linear)  # charged
    assert not said(Loss.unknown())  # the length of gradients is all that counts
    assert not said(declared, hidden_state=False)  # composition compares at the same parameters
    assert not said(declared, run.replace(arithmetic="exact"))
    certificate = certify(run, declared, delta=1e-5)
    assert "computing one gradient rounds" in " ".join(certificate.assumptions)


def test_it_is_said_in_words():
    loss = Loss(smoothness=1.0)
    text = str(account(run(arithmetic=Arithmetic(error=1.5e-8)), loss))
    assert "arithmetic: adds 3e-09 to every impulse" in text  # step size 0.1
    assert "rounding moves no mean gradient by more than 1.5e-08" in text
    assert "real numbers, not rounded" in str(account(run(), loss))
    grid = account(run(arithmetic=Arithmetic(2.0**-20, 1.5e-8, 64)), loss)
    assert "arithmetic: adds 3.05e-05 to every impulse" in str(grid)  # 32 spacings
    assert "added to multiples of 9.5367431640625e-07 in 64 coordinates" in str(grid)


@pytest.mark.parametrize(
    "wrong",
    [
        "float64",
        None,
        1e-9,
        {"error": -1.0},
        {"error": math.inf},
        {"error": math.nan},
        {"error": True},
        {"error": 0.0, "engine": "fast"},
        {"grid": 0.3},
        {"grid": 3 * 2.0**-20},
        {"grid": -0.5},
        {"grid": math.inf},
        {"grid": 2.0**201},
        {"grid": math.nan},
        {"grid": "0.5"},
        {"grid": True},
        {"coordinates": 0},
        {"coordinates": -3},
        {"coordinates": 2.0},
        {"coordinates": True},
        {"coordinates": 2**53 + 1},
        {"grid": 0.5, "coordinates": None},
        Lighter(grid=0.5),
    ],
)
def test_anything_else_is_refused(wrong):
    with pytest.raises(DescriptionError, match="arithmetic"):
        run(arithmetic=wrong)


@pytest.mark.parametrize("batches", [FullBatch(), Shuffled(10), Poisson(0.1)])
def test_the_verifier_charges_it_too(batches):
    """Its own arithmetic sees the error: a certificate made without it does not hold with it."""
    loss = Loss(smoothness=1.0, regularization=0.1)
    coarse = run(batches, adjacency="zero-out", arithmetic=Arithmetic(error=1e-3))
    certificate = certify(coarse, loss, 1e-5)
    assert verify(certificate).epsilon == certificate.epsilon
    assert certificate.training == coarse
    exact = certify(coarse.replace(arithmetic="exact"), loss, 1e-5)
    assert certificate.epsilon > exact.epsilon * 1.01
    assert json.loads(certificate.to_json())["training"]["arithmetic"] == {
        "grid": 0.0,
        "error": 1e-3,
    }
