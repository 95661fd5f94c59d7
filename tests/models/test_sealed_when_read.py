"""A model's certificate is sealed when it is read, and speaks about the run as it was."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from lastiterate.certificate import Certificate
from lastiterate.errors import DescriptionError
from lastiterate.models import PrivateLogisticRegression, PrivateStandardScaler
from lastiterate.verifier.document import parameters_hash


def data(records: int = 400) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(records, 3))
    return X, (X[:, 0] > 0).astype(int)


def model(**changes: object) -> PrivateLogisticRegression:
    settings = {"feature_bound": 2.0, "steps": 20, "batch_size": 100, "classes": [0, 1]}
    return PrivateLogisticRegression(1.0, 1e-5, **{**settings, **changes})


def released_hash(fitted: PrivateLogisticRegression) -> str:
    return parameters_hash({"coef_": fitted.coef_, "intercept_": fitted.intercept_})


def test_it_is_sealed_once_and_not_before_it_is_read():
    fitted = model().fit(*data())
    assert not isinstance(vars(fitted)["certificate_"], Certificate)
    certificate = fitted.certificate_
    assert isinstance(certificate, Certificate)
    assert certificate.epsilon <= 1.0
    assert fitted.certificate_ is certificate is vars(fitted)["certificate_"]


def test_what_happens_to_the_model_meanwhile_is_not_certified():
    fitted = model().fit(*data())
    run, loss, true = fitted.training_, fitted.loss_, released_hash(fitted)
    fitted.coef_ *= 2
    fitted.training_ = run.replace(noise=run.noise * 100)
    fitted.delta_, fitted.delta, fitted.epsilon = 0.4, 0.4, 1e-3
    certificate = fitted.certificate_
    assert certificate.content["parameters"] == true != released_hash(fitted)
    assert (certificate.training, certificate.loss) == (run, loss)
    assert certificate.delta == 1e-5


@pytest.mark.parametrize("batch_size", [100, None])
def test_copies_of_a_model_seal_the_same_certificate(batch_size):
    fitted = model(batch_size=batch_size).fit(*data())
    others = [copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted)), copy.copy(fitted)]
    assert {other.certificate_.content["sha256"] for other in others} == {
        fitted.certificate_.content["sha256"]
    }
    assert (
        pickle.loads(pickle.dumps(fitted)).certificate_.content["sha256"]
        == fitted.certificate_.content["sha256"]
    )


def test_the_preparation_is_paid_for_too():
    scaler = PrivateStandardScaler(0.5, 1e-6, low=-3.0, high=3.0)
    fitted = model(prepare=scaler).fit(*data())
    assert fitted.certificate_.epsilon > model().fit(*data()).certificate_.epsilon


def test_nothing_is_there_before_a_fit_or_after_one_that_failed():
    one = model()
    assert not hasattr(one, "certificate_")
    with pytest.raises(AttributeError, match="not fitted"):
        _ = one.certificate_
    one.fit(*data())
    assert not hasattr(clone(one), "certificate_")
    with pytest.raises(DescriptionError):
        one.set_params(adjacency="unheard of").fit(*data())
    assert not hasattr(one, "certificate_")


def test_experiments_have_none():
    for changes in ({"random_state": 0}, {"epsilon": np.inf}):
        assert model().set_params(**changes).fit(*data()).certificate_ is None
