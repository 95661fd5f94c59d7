"""Estimators that forget: the same as the engine, whichever way they were asked."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer

from lastiterate import (
    AssumptionError,
    CertificateError,
    DescriptionError,
    FullBatch,
    TargetError,
    Training,
    UnsupportedError,
    compose,
    verify,
)
from lastiterate.losses import Logistic
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
    PrivateStandardScaler,
)
from lastiterate.train import EncryptedCheckpoint, noisy_descent
from lastiterate.train.clean_steps import gone_on
from lastiterate.unlearning import Ledger

X, Y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0) / 5
KEY = EncryptedCheckpoint.new_key()
ASKED = dict(epsilon=8.0, delta=1e-4, steps=60, batch_size=95)


def fitted(ledger, kind=PrivateLogisticRegression, data=X, **changed):
    return kind(**(ASKED | changed)).fit(data, Y, ledger=ledger)


@pytest.mark.parametrize(
    "kind",
    [
        PrivateLogisticRegression,
        PrivateSoftmaxRegression,
        PrivateLinearSVC,
        PrivateRidge,
        PrivateHuberRegressor,
    ],
)
def test_every_estimator_forgets_and_is_certified(kind):
    for budget in (0.0, 0.2):  # replayed, and served from the ledger
        model = fitted(Ledger(budget, noise=0.2, requests=2), kind)
        before, own = model.coef_.copy(), model.certificate_
        done = model.unlearn([3, 77], X, Y, wait=0.0)
        assert done.mu == budget / 0.2
        assert not np.array_equal(before, model.coef_)
        assert verify(model.certificate_, parameters=model.parameters_).epsilon >= 0
        with pytest.raises(CertificateError, match="another hash"):
            verify(model.certificate_, parameters={"coef_": before, "intercept_": 0.0})
        with pytest.raises(CertificateError, match="does not compose"):
            compose([own, model.certificate_])
        model.predict(X)
        erased = X.copy()
        erased[[3, 77]] = 0.0  # the intercept's column must not bring them back
        more = model.unlearn([5], erased, Y, wait=0.0)
        assert (more.models, more.deleted) == (2, 3)
        assert model.certificate_.content["models"] == 2


def test_a_replay_is_the_fit_without_them():
    """With next to no perturbation it is the seeded fit on rows that are empty, intercept too."""
    erased = np.hstack([X, np.ones((len(X), 1))])  # the intercept as a column of one's own
    erased[[3, 77]] = 0.0
    asked = ASKED | dict(random_state=5, feature_bound=20.0)  # no row is longer
    ledger = Ledger(0.0, noise=1e-9)
    model = PrivateLogisticRegression(**asked).fit(X, Y, ledger=ledger)
    model.unlearn([77, 3], X, Y, wait=0.0)
    wide = dict(feature_bound=model._rows.norm, fit_intercept=False)
    other = PrivateLogisticRegression(**(asked | wide)).fit(erased, Y, ledger=Ledger(0.0, 1.0))
    found = np.append(model.coef_, model.intercept_)
    assert np.abs(found - other.coef_).max() < 1e-6
    assert np.abs(found).max() > 0.01
    assert model.certificate_ is None  # seeded


def test_training_on_after_it_is_plain_descent_on_what_remains():
    ledger = Ledger(1.0, noise=1.0)
    model = fitted(ledger, epsilon=math.inf, batch_size=None)
    assert model.certificate_ is None
    model.unlearn(np.arange(10), X, Y, steps=400, delta=1e-5, wait=0.0)
    rest = slice(10, None)
    retrained = PrivateLogisticRegression(
        epsilon=math.inf, steps=3000, regularization=0.1 / len(X) * len(X) / (len(X) - 10)
    ).fit(X[rest], Y[rest])
    near = np.corrcoef(model.decision_function(X), retrained.decision_function(X))[0, 1]
    assert near > 0.99
    assert verify(model.certificate_, parameters=model.parameters_).delta == 1e-5


@pytest.mark.parametrize("data", [X.astype(np.float32), sp.csr_array(X)])
def test_other_matrices(data):
    model = fitted(Ledger(0.2, 0.2, requests=2), data=data)
    model.unlearn([3], data, Y, wait=0.0)
    changed = sp.lil_array(data) if sp.issparse(data) else data.copy()
    changed[3] = 0.0
    assert model.unlearn([4], changed if not sp.issparse(data) else changed.tocsr(), Y).models == 2


def test_it_goes_on_in_another_process_from_its_folder(tmp_path):
    ledger = Ledger(0.2, 0.2, requests=3, folder=tmp_path / "state", key=KEY)
    model = fitted(ledger)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert not hasattr(copied, "ledger_")
        with pytest.raises(AssumptionError, match="No ledger is known here"):
            copied.unlearn([1], X, Y)
    assert ledger.book().memory["key"].encode() not in pickle.dumps(model)
    loaded = Ledger.load(tmp_path / "state", KEY)
    done = copied.unlearn([1], X, Y, ledger=loaded, wait=0.0)
    assert any("state" in line for line in done.remains)
    with pytest.raises(AssumptionError, match="meanwhile"):
        model.unlearn([2], X, Y, wait=0.0)  # the other one was faster; nothing changes
    assert not np.array_equal(model.coef_, copied.coef_)


def test_what_is_refused_leaves_the_model_as_it_is():
    ledger = Ledger(0.2, 0.2)
    model = fitted(ledger)
    before, sealed = model.coef_.copy(), model.certificate_
    moved = X.copy()
    moved[8] *= 1.01
    other = Ledger(0.2, 0.2)
    fitted(other, steps=66)
    mask = np.zeros(len(X), bool)
    for why, asked, data, more in (
        ("another run", [1], moved, {}),
        ("another run", [1], X[::-1], {}),
        ("another run", [1], X, dict(ledger=other)),
        ("deleted", [1, 1], X, {}),
        ("deleted", [-1], X, {}),
        ("deleted", [len(X)], X, {}),
        ("deleted", mask, X, {}),
        ("deleted", [], X, {}),
        ("deleted", [1.0], X, {}),
        ("deleted", 1, X, {}),
        ("steps", [1], X, dict(steps=-1)),
        ("delta", [1], X, dict(delta=0.0)),
        ("wait", [1], X, dict(wait=-1.0)),
        ("ledger", [1], X, dict(ledger=object())),
    ):
        with pytest.raises((AssumptionError, DescriptionError), match=why):
            model.unlearn(asked, data, Y, **more)
    with pytest.raises(ValueError, match="features"):
        model.unlearn([1], X[:, :-1], Y)
    for changed in (dict(feature_bound=9.0), dict(cap=0.4), dict(fit_intercept=False)):
        old = {name: model.get_params()[name] for name in changed}
        with pytest.raises((AssumptionError, DescriptionError)):
            model.set_params(**changed).unlearn([1], X, Y)
        model.set_params(**old)
    assert np.array_equal(model.coef_, before)
    assert model.certificate_ is sealed
    assert ledger.served == 0
    assert model.unlearn([1], X, Y, wait=0.0).models == 1


def test_what_fit_refuses():
    with pytest.raises(UnsupportedError, match="prepare"):
        fitted(Ledger(0.2, 0.2), prepare=PrivateStandardScaler(delta=1e-5))
    with pytest.raises(DescriptionError, match="groups"):
        PrivateLogisticRegression(**ASKED, per_person=2).fit(
            X, Y, groups=np.arange(len(X)) // 2, ledger=Ledger(0.2, 0.2)
        )
    used = Ledger(0.2, 0.2)
    fitted(used)
    with pytest.raises(AssumptionError, match="one run"):
        fitted(used)
    with pytest.raises(DescriptionError, match="Ledger"):
        fitted((0.2, 0.2))
    loud = fitted(Ledger(1e6, 1e-6))
    with pytest.raises(DescriptionError, match="no certificate"):
        loud.unlearn([1], X, Y)
    model = clone(fitted(Ledger(0.2, 0.2)))
    assert not hasattr(model, "ledger_")
    with pytest.raises(AssumptionError, match="No ledger"):
        fitted(None).unlearn([1], X, Y)


def test_a_second_fit_forgets_the_first_ledger():
    model = fitted(Ledger(0.2, 0.2)).fit(X, Y)
    with pytest.raises(AssumptionError, match="No ledger"):
        model.unlearn([1], X, Y)


def test_a_run_of_full_batches_releases_its_last_iterate():
    model = fitted(Ledger(0.2, 0.2), steps=100, batch_size=len(X))
    assert model.training_.release == "last"
    assert "which is what a ledger follows" in str(model.choice_)


def test_nothing_goes_on_from_a_model_that_has_forgotten():
    model = fitted(Ledger(0.2, 0.2))
    model.unlearn([1], X, Y, wait=0.0)
    stream = [(X[:50], Y[:50])]
    new = PrivateLogisticRegression(epsilon=1.0, delta=1e-4, classes=[0, 1])
    with pytest.raises(AssumptionError, match="forgotten"):
        new.fit_stream(stream, batches=1, batch_size=50, continue_from=model)


# ---------------------------------------------------------------------------------- clean steps

FULL = dict(epsilon=8.0, delta=1e-4, steps=60, batch_size=len(X), final_noise=1.0, prepare=None)


def full(**changed):
    return PrivateLogisticRegression(**(FULL | changed)).fit(X, Y)


def test_clean_steps_go_on_with_the_run_on_what_remains():
    """With next to no noise: the noise-free run, whose last steps do not see the deleted."""
    run = Training(
        records=len(X),
        steps=40,
        step_size=0.5,
        noise=1e-12,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    told = dict(labels=np.where(Y == 1, 1.0, -1.0), regularization=0.01)
    first = noisy_descent(Logistic(), rows, run, feature_bound=1.0, **told)
    without = rows.copy()
    without[[3, 77]] = 0.0
    found = gone_on(
        Logistic(),
        without,
        first.training.replace(steps=55),
        40,
        first.parameters,
        feature_bound=1.0,
        radius=math.inf,
        experiment=False,
        **told,
    )
    assert not found.experiment
    assert found.training.steps == 55
    plain = run.replace(noise=0.0, steps=15)
    expected = noisy_descent(Logistic(), without, plain, start=first.parameters, **told)
    assert np.abs(found.parameters - expected.parameters).max() < 1e-9
    other = noisy_descent(Logistic(), rows, plain, start=first.parameters, **told)
    assert np.abs(found.parameters - other.parameters).max() > 1e-5


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateRidge])
def test_clean_steps_are_certified_for_those_who_left(kind):
    model = kind(**FULL).fit(X, Y)
    before = model.coef_.copy()
    plan = model.unlearn([3, 77], X, Y, epsilon=1.0, delta=1e-3)
    assert plan.steps > 0
    assert model.training_.steps == 60 + plan.steps == model.n_iter_
    assert not np.array_equal(model.coef_, before)
    assert model.certificate_.exposure.left == 60
    assert model.certificate_.exposure.records == 2
    assert verify(model.certificate_, parameters=model.parameters_).epsilon <= 1.0
    erased = X.copy()
    erased[[3, 77]] = 0.0
    again = model.unlearn([5], erased, Y, epsilon=1.0, delta=1e-3)
    assert model.erased_ == 3
    assert model.certificate_.exposure.left == 60 + plan.steps
    assert model.training_.steps == 60 + plan.steps + again.steps
    assert verify(model.certificate_, parameters=model.parameters_).epsilon <= 1.0


def test_a_copy_must_be_told_who_is_gone():
    model = full()
    model.unlearn([3, 77], X, Y, epsilon=1.0, delta=1e-3)
    copied = pickle.loads(pickle.dumps(model))
    assert not hasattr(copied, "_gone")
    for erased in (None, [3], [3, 77, 8]):
        with pytest.raises(DescriptionError, match="erased"):
            copied.unlearn([5], X, Y, epsilon=1.0, delta=1e-3, erased=erased)
    with pytest.raises(DescriptionError, match="erased"):
        model.unlearn([5], X, Y, epsilon=1.0, delta=1e-3, erased=[3, 78])
    copied.unlearn([5], X, Y, epsilon=1.0, delta=1e-3, erased=[77, 3])
    assert copied.erased_ == 3
    with pytest.raises(DescriptionError, match="forgotten yet"):
        copied.unlearn([5], X, Y, epsilon=1.0, delta=1e-3)


def test_where_clean_steps_are_refused():
    asked = dict(epsilon=1.0, delta=1e-3)
    with pytest.raises(UnsupportedError, match="full batches"):
        fitted(None, prepare=None).unlearn([1], X, Y, **asked)
    with pytest.raises(UnsupportedError, match="prepare=None"):
        full(prepare="auto").unlearn([1], X, Y, **asked)
    with pytest.raises(UnsupportedError, match="average"):
        full(steps=400, final_noise=None).unlearn([1], X, Y, **asked)
    model = fitted(Ledger(0.2, 0.2), batch_size=len(X), final_noise=1.0)
    for each in (model, pickle.loads(pickle.dumps(model))):
        with pytest.raises(DescriptionError, match="ledger was kept"):
            each.unlearn([1], X, Y, **asked)
    with pytest.raises(TargetError, match="clean steps"):
        full(epsilon=math.inf, final_noise=None).unlearn([1], X, Y, **asked)
    model = full()
    for more in (dict(steps=3), dict(wait=1.0)):
        with pytest.raises(DescriptionError, match="left out"):
            model.unlearn([1], X, Y, **asked, **more)
    changed = copy.deepcopy(model)
    changed.coef_ = changed.coef_ * 1.01
    with pytest.raises(AssumptionError, match="changed"):
        changed.unlearn([1], X, Y, **asked)
    seeded = full(random_state=3)
    seeded.unlearn([1], X, Y, **asked)
    assert seeded.certificate_ is None
    assert model.certificate_.exposure.left is None


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_a_class_that_leaves_with_the_deleted_is_no_secret_of_theirs(epsilon):
    """Classes that were read off the labels: without the deleted there would be one less."""
    three = Y.copy()
    three[[3, 77]] = 2
    asked = ASKED | {"epsilon": epsilon}
    for declared in (None, [0, 1, 2]):
        model = PrivateSoftmaxRegression(**asked, classes=declared)
        model.fit(X, three, ledger=Ledger(0.2, noise=0.2, requests=3))
        before = model.coef_.copy()
        assert before.shape[0] == 3
        model.unlearn([3], X, three, wait=0.0)  # one of two: the class stays
        if declared is None:
            with pytest.raises(AssumptionError, match="classes="):
                model.unlearn([77], X, three, wait=0.0)
            assert model.ledger_.served == 1
        else:
            assert model.unlearn([77], X, three, wait=0.0).models == 2
    clean = ASKED | {"batch_size": len(Y), "final_noise": 1.0, "prepare": None}
    model = PrivateSoftmaxRegression(**clean).fit(X, three)
    with pytest.raises(AssumptionError, match="classes="):
        model.unlearn([3, 77], X, three, epsilon=1.0)
