"""Who vouches: "proved" is derived again, a smaller sensitivity is a named declaration."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import (
    Certificate,
    FullBatch,
    Loss,
    Training,
    account,
    certify,
    compose,
    verify,
)
from lastiterate.description import Origin
from lastiterate.description.loss import NAMES
from lastiterate.errors import CertificateError, DescriptionError
from lastiterate.losses import (
    BallSoftmax,
    CappedLogistic,
    CappedSoftmax,
    Huber,
    LinearLoss,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.report.page import Report


def run(**changes: Any) -> Training:
    fields: dict[str, Any] = {
        "records": 100,
        "steps": 10,
        "step_size": 0.1,
        "noise": 0.1,
        "gradient_norm": 1.0,
        "batches": FullBatch(),
    }
    return Training(**({"adjacency": "replace"} | fields | changes))


limits = st.floats(1e-3, 1e3)
caps = st.floats(1e-3, 1.0)
binary = st.one_of(
    st.just(Logistic()),
    st.builds(SmoothedHinge, limits),
    st.builds(SquaredHinge, limits),
    st.builds(CappedLogistic, caps),
)
library_losses = st.one_of(
    binary,
    st.builds(Huber, limits),
    st.builds(SquaredError, limits),
    st.builds(OneVsRest, binary, st.integers(2, 9)),
    st.builds(Softmax, st.integers(2, 9)),
    st.builds(CappedSoftmax, st.integers(2, 9), caps),
    st.builds(BallSoftmax, st.integers(2, 9), caps),
)


# --- "proved" ------------------------------------------------------------------------------------


@given(library_losses, st.floats(1e-3, 1e3))
def test_every_loss_of_the_library_is_derived_again(loss: LinearLoss, R: float) -> None:
    """Two derivations, written twice, agree to the last bit that a double has."""
    known, origin = loss.regularity(R, 0.1), loss.origin(R)
    assert origin is not None
    assert known.provenance == "proved"
    smooth, norm = loss.smoothness(R), loss.gradient_norm(R)
    exact = origin.constants
    assert Fraction(smooth) >= exact.smoothness >= Fraction(smooth) * (1 - Fraction(1, 2**51))
    assert (
        Fraction(norm) ** 2 >= exact.squared_norm >= Fraction(norm) ** 2 * (1 - Fraction(1, 2**50))
    )
    for other in (Loss.from_json(known.to_json()), Loss.from_toml(known.to_toml())):
        assert other == known
        assert other.provenance == "proved"
    smaller = math.nextafter(smooth * (1 - 2**-50), 0.0)
    assert Loss(smaller, provenance="proved", origin=origin).provenance == "declared"
    short = run(gradient_norm=math.nextafter(norm * (1 - 2**-49), 0.0))
    assert account(short, known).provenance == "declared"
    assert account(short.replace(gradient_norm=norm), known).provenance == "proved"


def measured_slope(loss: LinearLoss, scores: np.ndarray) -> float:
    """The longest slope that scores of all sizes show."""
    labels = loss.targets(np.zeros(len(scores)) if scores.ndim > 1 else np.ones(len(scores)))
    slope = loss.slope(scores.copy(), labels)
    return float(np.abs(slope).max() if slope.ndim == 1 else np.linalg.norm(slope, axis=1).max())


@given(library_losses, st.integers(0, 2**32 - 1))
def test_derived_constants_hold_for_what_is_trained(loss: LinearLoss, seed: int) -> None:
    """The truth: slopes of random scores are never longer than the origin says (R = 1)."""
    origin = loss.origin(1.0)
    assert origin is not None
    scale = 10.0 ** np.random.default_rng(seed).uniform(-3, 4)
    shape = 50 if loss.outputs() == 1 else (50, loss.outputs())
    scores = np.random.default_rng(seed).normal(size=shape) * scale
    longest = measured_slope(loss, scores)
    assert longest**2 <= float(origin.constants.squared_norm) * (1 + 1e-9)


@pytest.mark.parametrize(
    "loss",
    [
        Loss(0.25, provenance="proved"),
        Loss(0.25, 0.1, provenance="proved", origin=Origin("logistic", 1.0)),
        Loss(0.2, provenance="proved", origin=Origin("logistic", 1.0)),
        Loss.nonconvex(smoothness=0.2, provenance="proved", origin=Origin("logistic", 1.0)),
        Loss.holder(constant=9.0, exponent=0.5, provenance="proved"),
        Loss.from_toml('smoothness = 1.0\nprovenance = "proved"\n'),
        Loss.from_json('{"smoothness": 1.0, "provenance": "proved"}'),
    ],
)
def test_a_typed_word_proves_nothing(loss: Loss) -> None:
    assert loss.provenance == "declared"
    assert loss.origin is None
    guarantee = account(run(), loss)
    assert guarantee.provenance == "declared"
    assert "proved by this library" not in str(guarantee)
    certificate = certify(run(), loss, 1e-5)
    assert certificate.content["loss"]["provenance"] == "declared"
    assert certificate.provenances["regularity"] != "proved"
    assert not any("proved by" in text for text in certificate.assumptions)


def test_a_subclass_inherits_no_proof() -> None:
    class Steeper(Logistic):
        def slope(self, scores: Any, y: Any) -> Any:
            return 100 * super().slope(scores, y)

    class Wilder(OneVsRest):
        pass

    assert Steeper().regularity(1.0).provenance == "declared"
    assert OneVsRest(Steeper(), 3).regularity(1.0).provenance == "declared"
    assert Wilder(Logistic(), 3).regularity(1.0).provenance == "declared"


def test_the_guarantee_names_the_loss_that_proves() -> None:
    guarantee = account(run(gradient_norm=2.0), Logistic().regularity(2.0))
    assert guarantee.provenance == "proved"
    assert "proved by this library for the logistic loss, features of norm at most 2.0" in str(
        guarantee
    )


def test_a_ball_must_hold_the_parameters() -> None:
    origin = Origin("bounded-softmax", 1.0, 1.0, 2)
    smoothness = float(origin.constants.smoothness) * (1 + 1e-12)
    loss = Loss.nonconvex(smoothness=smoothness, provenance="proved", origin=origin)
    assert loss.provenance == "proved"
    assert account(run(gradient_norm=2.0, diameter=2.0), loss).provenance == "proved"
    for diameter in (2.1, math.inf):
        assert account(run(gradient_norm=2.0, diameter=diameter), loss).provenance == "declared"
    # A ball around a start of norm 1/2 that lies in the ball of radius 1 has radius 1/2.
    elsewhere = Origin("bounded-softmax", 1.0, 1.0, 2, start=0.5)
    loss = Loss.nonconvex(smoothness=smoothness, provenance="proved", origin=elsewhere)
    for diameter, word in ((1.0, "proved"), (1.0 + 1e-15, "declared"), (2.0, "declared")):
        assert account(run(gradient_norm=2.0, diameter=diameter), loss).provenance == word
    certificate = certify(run(gradient_norm=2.0, diameter=1.0), loss, 1e-5)
    assert verify(Certificate.from_json(certificate.to_json()))
    assert certificate.provenances["regularity"] == "proved"
    nearer = {**certificate.content["loss"]["origin"], "start": 0.6}
    with pytest.raises(CertificateError):
        verify(resealed(certificate, loss={**certificate.content["loss"], "origin": nearer}))


@pytest.mark.parametrize("start", [-1.0, 1.1, math.nan, "0", [0.0]])
def test_a_start_outside_of_its_ball_is_refused(start: Any) -> None:
    with pytest.raises(DescriptionError, match=r"origin\.start"):
        Origin("bounded-softmax", 1.0, 1.0, 2, start=start)
    with pytest.raises(DescriptionError, match=r"origin\.start"):
        Origin("logistic", 1.0, start=0.0)


def resealed(certificate: Certificate, **changes: Any) -> Certificate:
    content = {k: v for k, v in certificate.content.items() if k != "sha256"}
    return Certificate.sealed({**content, **changes})


def test_certificates_derive_it_again() -> None:
    training = run(gradient_norm=2.0)
    proved = certify(training, Logistic().regularity(2.0), 1e-5)
    assert proved.provenances == {
        "regularity": "proved",
        "gradient_norm": "proved",
        "sensitivity": "implied",
    }
    assert verify(Certificate.from_json(proved.to_json()))
    declared = certify(training, Loss(1.0), 1e-5)
    lies = [
        {"loss": {**declared.content["loss"], "provenance": "proved"}},
        {"loss": proved.content["loss"]},
        {"provenance": proved.content["provenance"]},
        {"assumptions": proved.content["assumptions"]},
        {"provenance": {}},
        {"provenance": {**declared.provenances, "regularity": 1}},
    ]
    for lie in lies:
        with pytest.raises(CertificateError):
            verify(resealed(declared, **lie))
    origins: list[Any] = [
        {"name": "logistic", "feature_bound": 2.1},  # proves less than is claimed
        {"name": "wishful", "feature_bound": 2.0},
        {"name": "logistic", "feature_bound": 2.0, "limit": 0.1},
        {"name": "logistic"},
        {"name": "logistic", "feature_bound": "2"},
        [],
        "logistic",
    ]
    for origin in origins:
        with pytest.raises(CertificateError):
            verify(resealed(proved, loss={**proved.content["loss"], "origin": origin}))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [5e-324, 1e-160, 1.0, 1e160, 1.7e308])
def test_extreme_origins_are_derived_or_refused(name: str, number: float) -> None:
    for limit in (None, 5e-324, 1.0, 1e300):
        for classes in (None, 2, 10**9):
            try:
                constants = Origin(name, number, limit, classes).constants
            except DescriptionError:
                continue
            assert constants.smoothness >= 0
            assert constants.squared_norm >= 0


# --- a declared sensitivity ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.5])
def test_a_smaller_sensitivity_is_named_wherever_a_number_is(value: float, tmp_path: Path) -> None:
    training = run(sensitivity=value)
    guarantee = account(training, Loss(1.0))
    words = f"at most {value!r} (replace), less than the 2.0 that gradient_norm and adjacency imply"
    (named,) = [a for a in guarantee.assumptions if words in a.statement]
    assert named.vouched_by == "declared by the user"
    assert words in str(guarantee)
    assert guarantee.provenance == "declared"
    assert "(declared)" in str(training)
    certificate = certify(training, Loss(1.0), 1e-5)
    assert verify(certificate)
    assert certificate.provenances["sensitivity"] == "declared"
    assert words in str(certificate)
    assert certificate.declarations == compose([certificate, certificate]).declarations[:1]
    softer = [text for text in certificate.assumptions if words not in text]
    for lie in (
        {"assumptions": softer},
        {"provenance": {**certificate.provenances, "sensitivity": "implied"}},
    ):
        with pytest.raises(CertificateError):
            verify(resealed(certificate, **lie))
    certificate.save(tmp_path / "certificate.json")
    page = Report.of(tmp_path / "certificate.json").html()
    assert "Declared by the user, not proved" in page
    assert f"at most {value!r} (replace)" in page


def test_an_implied_sensitivity_is_not_named() -> None:
    for training in (
        run(),
        run(sensitivity=2.0),
        run(sensitivity=0.5).replace(adjacency="zero-out"),
    ):
        certificate = certify(training, Loss(1.0), 1e-5)
        assert certificate.declarations == ()
        assert certificate.provenances["sensitivity"] == "implied"
        assert "changes the sum of gradients" not in str(certificate)


def test_composition_rests_on_the_norm_too() -> None:
    """No step of this run forgets anything, and composition alone counts: K needs a provenance."""
    guarantee = account(run(clipping="none"), Loss.unknown())
    assert guarantee.theorem.key == "gaussian-composition"
    assert guarantee.provenance == "declared"
    assert account(run(clipping="gradient"), Loss.unknown()).provenance == "proved"
    assert json.loads(run().to_json()).get("sensitivity") is None
