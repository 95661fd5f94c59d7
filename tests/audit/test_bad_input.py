"""Wrong input: an error that says what and why."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import DescriptionError
from lastiterate.audit import audit, audit_scores, required_models

GOOD = np.arange(20.0)


@pytest.mark.parametrize(
    ("inside", "outside", "options", "message"),
    [
        (GOOD, [], {}, "outside models must"),
        ([], GOOD, {}, "inside models must"),
        (GOOD, [1.0], {}, "outside models must"),
        (np.ones(10), np.ones(10), {}, "1 for every model of both worlds"),
        (np.append(GOOD, np.nan), GOOD, {}, "NaN for 1 of 21 inside models"),
        (GOOD, GOOD, {"delta": 0.0}, "delta must"),
        (GOOD, GOOD, {"delta": 1.0}, "delta must"),
        (GOOD, GOOD, {"delta": float("nan")}, "delta must"),
        (GOOD, GOOD, {"confidence": 1.0}, "confidence must"),
        (GOOD, GOOD, {"confidence": 0.0}, "confidence must"),
        (GOOD, GOOD, {"method": "bayes"}, "method must"),
        (GOOD, GOOD, {"choosing": 0.0}, "choosing must"),
        (GOOD, GOOD, {"searched": 0}, "searched must"),
        (np.ones((5, 2)), np.ones((5, 3)), {}, "shapes"),
        (np.ones((5, 2, 2)), np.ones((5, 2, 2)), {}, "of shape"),
    ],
)
def test_scores(inside, outside, options, message):
    with pytest.raises(DescriptionError, match=message):
        audit_scores(inside, outside, **options)


def never(data, seed):
    raise AssertionError("training must not start")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outside": None}, "outside must"),
        ({"inside": None}, "inside must"),
        ({"models": 1}, "models must"),
        ({"models": 2.5}, "models must"),
        ({"delta": 0}, "delta must"),
        ({"confidence": 1}, "confidence must"),
        ({"method": "magic"}, "method must"),
        ({"backend": "carrier pigeon"}, "backend must"),
        ({"workers": 0}, "workers must"),
        ({"cohort": 0}, "cohort must"),
        ({"random_state": -1}, "random_state must"),
    ],
)
def test_audit(options, message):
    arguments = {"inside": [1], "outside": [2], **options}
    with pytest.raises(DescriptionError, match=message):
        audit(never, **arguments)


def test_scores_that_are_no_numbers():
    with pytest.raises(DescriptionError, match="returned dict"):
        audit(lambda data, seed: {}, [1], [2], models=8)
    with pytest.raises(DescriptionError, match="NaN"):
        audit(lambda data, seed: float("nan"), [1], [2], models=8)
    with pytest.raises(DescriptionError, match="for every model"):
        audit(lambda data, seed: 3.0, [1], [2], models=8)
    with pytest.raises(DescriptionError, match="different shapes"):
        audit(lambda data, seed: np.zeros(1 + seed % 2), [1], [2], models=40, random_state=0)


def test_one_run():
    X = np.zeros((10, 2))
    with pytest.raises(DescriptionError, match=r"^canaries must"):
        audit(never, X, X, method="one-run")
    with pytest.raises(DescriptionError, match="different shapes"):
        audit(never, X, X[:5], method="one-run")
    with pytest.raises(DescriptionError, match="NaN for 10"):
        audit(lambda data, seed: np.full(10, np.nan), X, X + 1, method="one-run")
    with pytest.raises(DescriptionError, match="10 numbers"):
        audit(lambda data, seed: np.zeros(3), X, X + 1, method="one-run")


def test_required_models():
    with pytest.raises(DescriptionError, match=r"^mu must"):
        required_models(0.0, 1.0)
    with pytest.raises(DescriptionError, match=r"^method must"):
        required_models(2.0, 1.0, method="x")
