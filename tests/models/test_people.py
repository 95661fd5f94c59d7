"""fit(X, y, groups=...): epsilon is for a person with all of their records."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from lastiterate import DescriptionError, PrivacyUnit, UnsupportedError, account, verify
from lastiterate.errors import PrivacyWarning
from lastiterate.models import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateStandardScaler,
    tune,
)

rng = np.random.default_rng(5)
X = rng.normal(size=(2000, 4))
y = (X[:, 0] > 0).astype(int)
OWNERS = np.array([f"person-{i % 400:03d}" for i in range(2000)])  # five records each
BUDGET = {"epsilon": 1.0, "delta": 1e-5, "classes": [0, 1]}


def test_the_certificate_speaks_of_the_person_and_verifies():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PrivateLogisticRegression(**BUDGET, max_records_per_group=5).fit(
            X, y, groups=OWNERS
        )
    person = PrivacyUnit(records=5, per_batch=1)
    assert model.choice_.unit == person
    certificate = model.certificate_
    assert certificate is not None
    assert "a person with up to 5 records, at most one of them in a batch" in str(certificate)
    assert verify(certificate)
    epsilon = account(model.training_, model.loss_, unit=person).epsilon(1e-5)
    assert 0.99 < epsilon <= 1.0
    alone = account(model.training_, model.loss_).epsilon(1e-5)
    assert alone < epsilon  # noise for one record would not have been enough


def test_full_batches_pay_for_every_record_of_a_person():
    model = PrivateLogisticRegression(**BUDGET, max_records_per_group=5, batch_size=2000, steps=20)
    model.fit(X, y, groups=OWNERS)
    assert model.choice_.unit == PrivacyUnit(records=5)
    assert verify(model.certificate_)
    alone = PrivateLogisticRegression(**BUDGET, batch_size=2000, steps=20, prepare=None).fit(X, y)
    ratio = float(model.training_.noises[0] / alone.training_.noises[0])
    assert ratio == pytest.approx(5.0, rel=0.01)


def test_who_has_too_many_is_told_to_the_operator_and_to_nobody_else():
    owners = np.where(np.arange(2000) < 30, "a-heavy-user", OWNERS)
    with pytest.warns(
        PrivacyWarning, match="1 of the people have more than max_records_per_group = 5"
    ):
        model = PrivateLogisticRegression(**BUDGET, max_records_per_group=5).fit(
            X, y, groups=owners
        )
    assert b"heavy" not in pickle.dumps(model)  # before its certificate is sealed, and after
    assert "heavy" not in model.certificate_.to_json()
    assert b"heavy" not in pickle.dumps(model)
    assert model.training_.records == 2000  # nothing published says how many were dropped


def test_other_estimators():
    for model, labels in (
        (
            PrivateRidge(1.0, 1e-5, target_bound=1.0, max_records_per_group=3),
            np.clip(X[:, 1], -1, 1),
        ),
        (PrivateLinearSVC(**BUDGET, max_records_per_group=3), y),
    ):
        with pytest.warns(PrivacyWarning, match="400 of the people"):
            model.fit(X, labels, groups=OWNERS)
        assert "a person with up to 3 records" in str(model.certificate_)


def test_a_probe_takes_groups():
    torch = pytest.importorskip("torch")
    from lastiterate.torch import PrivateLinearProbe

    probe = PrivateLinearProbe(**BUDGET, max_records_per_group=5, device="cpu")
    probe.fit(torch.from_numpy(X), torch.from_numpy(y), groups=OWNERS)
    assert "a person with up to 5 records" in str(probe.certificate_)


def test_both_or_neither():
    with pytest.raises(DescriptionError, match="max_records_per_group"):
        PrivateLogisticRegression(**BUDGET).fit(X, y, groups=OWNERS)
    with pytest.raises(DescriptionError, match="groups"):
        PrivateLogisticRegression(**BUDGET, max_records_per_group=5).fit(X, y)
    with pytest.raises(DescriptionError, match="max_records_per_group"):
        PrivateLogisticRegression(**BUDGET, max_records_per_group=0).fit(X, y, groups=OWNERS)
    with pytest.raises(DescriptionError, match="groups"):
        PrivateLogisticRegression(**BUDGET, max_records_per_group=5).fit(X, y, groups=OWNERS[:-1])


def test_what_is_counted_by_the_record_is_refused():
    model = PrivateLogisticRegression(**BUDGET, max_records_per_group=5)
    with pytest.raises(UnsupportedError, match="by the person"):
        model.fit_stream([(X, y)], batches=1, batch_size=2000)
    with pytest.raises(UnsupportedError, match="max_records_per_group"):
        tune(model, {"cap": [0.5, 1.0]}, X, y)
    with pytest.raises(DescriptionError, match="max_records_per_group"):
        tune(PrivateLogisticRegression(**BUDGET), {"max_records_per_group": [1, 5]}, X, y)
    scaled = PrivateLogisticRegression(
        **BUDGET, max_records_per_group=5, prepare=PrivateStandardScaler(0.1, 1e-6)
    )
    with pytest.raises(UnsupportedError, match="by the person"):
        scaled.fit(X, y, groups=OWNERS)


def test_scikit_learn_routes_groups():
    model = PrivateLogisticRegression(**BUDGET, max_records_per_group=5, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(Normalizer(), model.set_fit_request(groups=True))
        assert routed.fit(X, y, groups=OWNERS)[-1].choice_.unit.records == 5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            found = cross_validate(
                routed,
                X,
                y,
                params={"groups": OWNERS},
                cv=GroupKFold(2),
                return_estimator=True,
                error_score="raise",
            )
    assert [each[-1].choice_.unit.records for each in found["estimator"]] == [5, 5]


def test_more_allowed_than_there_are_and_no_noise():
    few = slice(0, 8)
    model = PrivateLogisticRegression(
        **{**BUDGET, "delta": 1e-3}, max_records_per_group=100, random_state=0
    )
    assert model.fit(X[few], y[few], groups=OWNERS[few]).choice_.unit.records == 8
    free = PrivateLogisticRegression(
        epsilon=np.inf, max_records_per_group=1, classes=[0, 1], steps=50
    )
    with pytest.warns(PrivacyWarning, match="were dropped"):
        free.fit(X, y, groups=OWNERS)
    assert free.certificate_ is None
