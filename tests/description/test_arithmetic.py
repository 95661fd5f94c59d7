"""What floats round is part of the description, and is charged."""

from __future__ import annotations

import json
import math
from fractions import Fraction

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

RUN = {"records": 100, "steps": 30, "step_size": 0.1, "noise": 0.05, "gradient_norm": 1.0}
positive = st.floats(1e-150, 1e100)


def run(batches=None, **settings):
    return Training(batches=batches or FullBatch(), **{**RUN, **settings})


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


def test_what_rounding_adds_is_no_lower_reference():
    loss = Loss(smoothness=1.0)
    coarse = account(run(arithmetic=Arithmetic(error=0.01)), loss)
    assert coarse.lower(1e-5) == account(run(), loss).lower(1e-5)


def test_it_is_said_in_words():
    loss = Loss(smoothness=1.0)
    text = str(account(run(arithmetic=Arithmetic(error=1.5e-8)), loss))
    assert "arithmetic: adds 3e-09 to every impulse" in text  # step size 0.1
    assert "rounding moves no mean gradient by more than 1.5e-08" in text
    assert "real numbers, not rounded" in str(account(run(), loss))


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
        {"grid": 0.5, "error": 0.0},
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
