"""Estimators that delete records by clean steps: the same as the engine."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer

from lastiterate import (
    AssumptionError,
    DescriptionError,
    FullBatch,
    TargetError,
    Training,
    UnsupportedError,
    verify,
)
from lastiterate.losses import Logistic
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)
from lastiterate.train import noisy_descent
from lastiterate.train.clean_steps import gone_on

X, Y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0) / 5
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
def test_clean_steps_are_certified_for_those_who_left(kind):
    model = kind(**FULL).fit(X, Y)
    before = model.coef_.copy()
    plan = model.unlearn([3, 77], X, Y, epsilon=1.0, delta=1e-3)
    assert plan.steps > 0
    assert model.training_.steps == 60 + plan.steps == model.n_iter_
    assert not np.array_equal(model.coef_, before)
    assert model.certificate_.unit.last_step == 60
    assert model.certificate_.unit.records == 2
    assert verify(model.certificate_, parameters=model.parameters_).epsilon <= 1.0
    erased = X.copy()
    erased[[3, 77]] = 0.0
    again = model.unlearn([5], erased, Y, epsilon=1.0, delta=1e-3)
    assert model.erased_ == 3
    assert model.certificate_.unit.last_step == 60 + plan.steps
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
    with pytest.raises(DescriptionError, match="no earlier request deleted"):
        copied.unlearn([5], X, Y, epsilon=1.0, delta=1e-3)


def test_where_clean_steps_are_refused():
    asked = dict(epsilon=1.0, delta=1e-3)
    with pytest.raises(UnsupportedError, match="full batches"):
        full(batch_size=95).unlearn([1], X, Y, **asked)
    with pytest.raises(UnsupportedError, match="prepare=None"):
        full(prepare="auto").unlearn([1], X, Y, **asked)
    with pytest.raises(UnsupportedError, match="average"):
        full(steps=400, final_noise=None).unlearn([1], X, Y, **asked)
    with pytest.raises(TargetError, match="clean steps"):
        full(epsilon=math.inf, final_noise=None).unlearn([1], X, Y, **asked)
    model = full()
    for indices in ([1, 1], [-1], [len(X)], np.zeros(len(X), bool), [], [1.0], 1, ["Ada"]):
        with pytest.raises(DescriptionError, match="indices") as refused:
            model.unlearn(indices, X, Y, **asked)
        assert "Ada" not in str(refused.value)
    with pytest.raises(DescriptionError, match="at least one record"):
        model.unlearn(np.arange(len(X)), X, Y, **asked)
    with pytest.raises(ValueError, match="features"):
        model.unlearn([1], X[:, :-1], Y, **asked)
    changed = copy.deepcopy(model)
    changed.coef_ = changed.coef_ * 1.01
    with pytest.raises(AssumptionError, match="changed"):
        changed.unlearn([1], X, Y, **asked)
    seeded = full(random_state=3)
    seeded.unlearn([1], X, Y, **asked)
    assert seeded.certificate_ is None
    assert model.certificate_.unit.last_step is None


@pytest.mark.parametrize("data", [X.astype(np.float32), sp.csr_array(X)])
def test_other_matrices(data):
    model = PrivateLogisticRegression(**FULL).fit(data, Y)
    model.unlearn([3], data, Y, epsilon=1.0, delta=1e-3)
    changed = data.tolil() if sp.issparse(data) else data.copy()
    changed[3] = 0.0
    changed = changed.tocsr() if sp.issparse(data) else changed
    model.unlearn([4], changed, Y, epsilon=1.0, delta=1e-3)
    assert model.erased_ == 2


def test_a_class_that_leaves_with_the_deleted_is_no_secret_of_theirs():
    """Classes that were read off the labels: without the deleted there would be one less."""
    three = Y.copy()
    three[[3, 77]] = 2
    asked = dict(epsilon=1.0, delta=1e-3)
    for declared in (None, [0, 1, 2]):
        model = PrivateSoftmaxRegression(**FULL, classes=declared).fit(X, three)
        model.unlearn([3], X, three, **asked)  # one of two: the class stays
        if declared is None:
            with pytest.raises(AssumptionError, match="classes="):
                model.unlearn([77], X, three, **asked)
        else:
            model.unlearn([77], X, three, **asked)
            assert model.erased_ == 2


def test_nothing_continues_from_a_model_whose_certificate_is_for_the_deleted():
    model = full()
    model.unlearn([1], X, Y, epsilon=1.0, delta=1e-3)
    new = PrivateLogisticRegression(epsilon=1.0, delta=1e-4, classes=[0, 1])
    with pytest.raises(AssumptionError, match="deleted"):
        new.fit_stream([(X[:50], Y[:50])], batches=1, batch_size=50, continue_from=model)
