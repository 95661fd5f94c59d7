"""Weights of records and classes: scikit-learn's meaning, exact laws, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression, Ridge

from lastiterate import Cyclic, FullBatch, Loss, Training, account
from lastiterate.certificate import verify
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.losses import Huber, Logistic, SquaredError
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)
from lastiterate.models.saved import TableModel, write_files
from lastiterate.train import MemoryCheckpoint, noisy_descent

L2 = 0.01


@pytest.fixture(scope="module")
def cancer() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    X = X / np.abs(X).max(axis=0)
    rng = np.random.default_rng(0)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y, rng.uniform(0, 7, len(y))


def _plain(kind: Any, **more: Any) -> Any:
    return kind(math.inf, regularization=L2, feature_bound=1.5, fit_intercept=False, **more)


# --- what they mean ---------------------------------------------------------------------------


def test_without_noise_a_weighted_model_is_scikit_learns(cancer: Any) -> None:
    X, y, weights = cancer
    model = _plain(PrivateLogisticRegression, class_weight={0: 3.0}, max_sample_weight=7.0)
    model.fit(X, y, sample_weight=weights)
    C = 1 / (len(y) * L2)
    theirs = LogisticRegression(
        C=C, class_weight={0: 3.0}, fit_intercept=False, tol=1e-10, max_iter=10**4
    )
    expected = theirs.fit(X, y, sample_weight=weights).coef_
    assert model.coef_ == pytest.approx(expected, abs=5e-3)
    assert np.abs(theirs.fit(X, y).coef_ - expected).max() > 0.1  # weights matter here
    model.set_params(regularization=None, steps=1).fit(X, y, sample_weight=weights)
    assert model.loss_.regularization * 21 == pytest.approx(0.1 / len(y), rel=1e-12)


def test_weighted_softmax_and_ridge_are_scikit_learns() -> None:
    X, y = load_iris(return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    weight = {0: 0.5, 2: 4.0}
    model = _plain(PrivateSoftmaxRegression, class_weight=weight).fit(X, y)
    C = 1 / (len(y) * L2)
    theirs = LogisticRegression(
        C=C, class_weight=weight, fit_intercept=False, tol=1e-10, max_iter=10**4
    )
    assert model.coef_ == pytest.approx(theirs.fit(X, y).coef_, abs=1e-2)
    weights = np.random.default_rng(0).uniform(0, 3, len(y))
    ridge = _plain(PrivateRidge, max_sample_weight=3.0, target_bound=5.0)
    ridge.fit(X, y, sample_weight=weights)
    theirs = Ridge(alpha=len(y) * L2, fit_intercept=False).fit(X, y, sample_weight=weights)
    assert ridge.coef_ == pytest.approx(theirs.coef_, abs=1e-3)


def test_an_l1_term_is_weighed_against_the_same_losses() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 6))
    y, weights = (X @ [4, 2, -2, 0, 0, 0] > 0).astype(int), rng.uniform(0, 7, 300)
    model = _plain(PrivateLogisticRegression, penalty="l1", max_sample_weight=7.0)
    theta = model.set_params(steps=5000).fit(X, y, sample_weight=weights).coef_[0]
    signs = 2 * y - 1
    pull = X.T @ (weights * Logistic().slope(X @ theta, signs)) / len(y)
    assert 0 < (theta == 0).sum() < len(theta)
    assert pull[theta != 0] == pytest.approx(-L2 * np.sign(theta[theta != 0]), abs=5e-4)
    assert (np.abs(pull[theta == 0]) <= L2).all()


@pytest.mark.parametrize("batch_size", [40, 10**9])
def test_the_heaviest_records_alone_are_the_unweighted_run(batch_size: int, cancer: Any) -> None:
    X, y, _ = cancer
    told: dict[str, Any] = {"delta": 1e-4, "batch_size": batch_size, "random_state": 1}
    plain = PrivateLogisticRegression(1.0, regularization=L2 / 8, **told).fit(X, y)
    heavy = PrivateLogisticRegression(
        1.0, regularization=L2, max_sample_weight=4.0, class_weight={0: 2, 1: 2}, **told
    ).fit(X, y, sample_weight=np.full(len(y), 4.0))
    assert np.array_equal(heavy.coef_, plain.coef_)
    assert heavy.training_ == plain.training_
    assert heavy.loss_ == plain.loss_


@pytest.mark.parametrize("batch_size", [40, 10**9])
def test_records_of_weight_zero_do_nothing(batch_size: int, cancer: Any) -> None:
    X, y, weights = cancer
    weights = np.where(weights < 3, 0.0, weights)
    other = np.where(weights[:, None] == 0, X[::-1], X)
    one, two, three = (
        PrivateLogisticRegression(
            1.0, 1e-4, batch_size=batch_size, max_sample_weight=7.0, random_state=1, prepare=None
        ).fit(data, y, sample_weight=given)
        for data, given in ((X, weights), (other, weights), (other, None))
    )
    assert np.array_equal(one.coef_, two.coef_)
    assert not np.array_equal(two.coef_, three.coef_)


def test_a_stream_weighs_classes(cancer: Any) -> None:
    X, y, _ = cancer

    def streamed(data: Any, **more: Any) -> Any:
        model = PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1], random_state=0, **more)
        pairs = ((data[k : k + 50], y[k : k + 50]) for k in range(0, 500, 50))
        return model.fit_stream(pairs, batches=10, batch_size=50)

    other = np.where(y[:, None] == 0, X[::-1], X)
    one, two = (streamed(data, class_weight={0: 0.0, 1: 5.0}) for data in (X, other))
    assert np.array_equal(one.coef_, two.coef_)
    assert np.array_equal(streamed(X).coef_, streamed(X, class_weight={}).coef_)
    assert not np.array_equal(streamed(X).coef_, one.coef_)


# --- what they cost ---------------------------------------------------------------------------


def _stick(p: tuple[float, float], q: tuple[float, float], epsilon: float) -> float:
    """The hockey-stick divergence of two Gaussians (mean, deviation), from below; both orders."""
    far = 12 * max(p[1], q[1])
    edges = np.linspace(min(p[0], q[0]) - far, max(p[0], q[0]) + far, 4000)
    P, Q = (np.diff(ndtr((edges - mean) / deviation)) for mean, deviation in (p, q))
    over = [np.maximum(a - math.exp(epsilon) * b - 1e-15, 0).sum() for a, b in ((P, Q), (Q, P))]
    return float(max(over))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_exact_laws_of_weighted_runs_are_within_their_guarantee(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, steps, l2 = int(rng.integers(2, 6)), int(rng.integers(1, 12)), float(rng.choice([0.0, 0.1]))
    batches = rng.choice([FullBatch(), Cyclic(1)])
    X = rng.uniform(0.5, 1, (n, 1)) * rng.choice([-1, 1], (n, 1))
    y = rng.choice([-99.0, 99.0], n)  # no residual is within the clip: losses are linear
    weights = rng.choice([0.0, 0.3, 1.0, rng.uniform()], n)
    run = Training(
        records=n,
        steps=steps,
        step_size=float(rng.uniform(0.1, 1.5)),
        noise=0.0,
        gradient_norm=0.3,
        batches=batches,
        adjacency="zero-out",
        clipping="margin",
    )
    gone, noise = int(rng.integers(n)), 0.15
    without = X.copy()
    without[gone] = 0.0
    deviation = noise * math.sqrt(sum((1 - run.step_size * l2) ** (2 * k) for k in range(steps)))
    laws = [
        (
            float(
                noisy_descent(
                    SquaredError(0.3),
                    data,
                    run,
                    labels=y,
                    feature_bound=1.0,
                    regularization=l2,
                    weights=weights,
                ).parameters[0]
            ),
            deviation,
        )
        for data in (X, without)
    ]
    told = account(
        run.replace(noise=noise), Loss(smoothness=1.0, regularization=l2, provenance="proved")
    )
    for epsilon in (0.1, 1.0, 3.0):
        assert _stick(*laws, epsilon) <= told.delta(epsilon) * (1 + 1e-9)


def test_the_heaviest_weight_costs_all_that_is_charged_and_others_their_share() -> None:
    n, steps, clip = 4, 25, 0.25
    run = Training(
        records=n,
        steps=steps,
        step_size=1.0,
        noise=0.0,
        gradient_norm=clip,
        batches=FullBatch(),
        adjacency="zero-out",
        clipping="margin",
    )
    X, noise = np.ones((n, 1)), 0.7
    charged = account(run.replace(noise=noise), Loss(smoothness=1.0, provenance="proved")).mu
    for weight in (1.0, 0.5, 0.125):
        moved = [
            noisy_descent(
                Huber(clip),
                np.where(np.arange(n)[:, None] == 0, kept, X),
                run.replace(clipping="none"),
                labels=np.full(n, 99.0),
                feature_bound=1.0,
                weights=np.array([weight, 1, 1, 1]),
            ).parameters[0]
            for kept in (1.0, 0.0)
        ]
        mu = (moved[0] - moved[1]) / (noise * math.sqrt(steps))
        assert mu == pytest.approx(weight * charged, rel=1e-9)


@pytest.mark.parametrize("batch_size", [None, 10**9])
def test_a_weighted_model_has_a_certificate_that_verifies(
    batch_size: Any, cancer: Any, tmp_path: Any
) -> None:
    X, y, weights = cancer
    model = PrivateLogisticRegression(
        1.0, 1e-4, classes=[0, 1], class_weight={1: 2.0}, max_sample_weight=7.0
    )
    model.set_params(batch_size=batch_size).fit(X, y, sample_weight=weights)
    assert model.certificate_.epsilon <= 1.0
    model.certificate_.save(tmp_path / "certificate.json")
    assert verify(tmp_path / "certificate.json")
    assert "weights up to 14" in str(model.choice_)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [
        [1.5, 1.0, 1.0],
        [-0.125, 1.0, 1.0],
        [math.nan, 1.0, 1.0],
        [math.inf, 1.0, 1.0],
        ["1.5", 1, 1],
        [1.5j, 1.0, 1.0],
        [1.0, 1.0],
        [[1.0], [1.0], [1.0]],
        1.0,
        "balanced",
    ],
)
def test_weights_that_are_none_are_refused_and_not_shown(weights: Any) -> None:
    X, y = [[1.0], [0.5], [0.0]], [1, 0, 1]
    with pytest.raises(DescriptionError, match="weight") as refused:
        PrivateLogisticRegression(1.0, 1e-4, classes=[0, 1]).fit(X, y, sample_weight=weights)
    assert not any(text in str(refused.value) for text in ("1.5", "0.125", "nan", "inf"))
    run = Training(
        records=3,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    with pytest.raises(DescriptionError, match="weights"):
        noisy_descent(Logistic(), X, run, labels=[1, -1, 1], weights=weights)


@pytest.mark.parametrize(
    "weight", [{7: 1.0}, {0: -1.0}, {0: math.inf}, {0: "a"}, {0: 0, 1: 0}, [1.0, 2.0], 3.0]
)
def test_class_weights_that_are_none_are_refused(weight: Any) -> None:
    with pytest.raises(DescriptionError, match="class_weight"):
        PrivateLogisticRegression(1.0, 1e-4, class_weight=weight).fit([[1.0], [0.0]], [0, 1])


def test_balanced_would_count_the_classes_and_is_refused() -> None:
    model = PrivateLogisticRegression(1.0, 1e-4, class_weight="balanced")
    with pytest.raises(UnsupportedError, match="nothing pays for"):
        model.fit([[1.0], [0.0]], [0, 1])


@pytest.mark.parametrize("most", [0.0, -1.0, math.inf, math.nan, "2", None])
def test_a_maximum_is_a_number(most: Any) -> None:
    model = PrivateHuberRegressor(1.0, 1e-4, max_sample_weight=most)
    with pytest.raises(DescriptionError, match="max_sample_weight"):
        model.fit([[1.0], [0.0]], [0, 1], sample_weight=[1, 1])


def test_what_would_train_or_repeat_the_run_without_its_weights_is_refused(
    cancer: Any, tmp_path: Any
) -> None:
    X, y, weights = cancer
    told: dict[str, Any] = {"classes": [0, 1], "max_sample_weight": 7.0}
    model = PrivateLogisticRegression(1.0, 1e-4, batch_size=10**9, final_noise=1.0, **told)
    with pytest.raises(UnsupportedError, match="NumPy backend"):
        model.fit(torch.from_numpy(X), y, sample_weight=weights)
    model.fit(X, y, sample_weight=weights)
    with pytest.raises(UnsupportedError, match="without weights"):
        model.unlearn([0], X, y, epsilon=1.0)
    with pytest.raises(UnsupportedError, match="weights"):
        write_files(tmp_path, TableModel(None, model), "", {}, None)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_other_weights_is_refused(cancer: Any) -> None:
    X, y, weights = cancer
    run = Training(
        records=len(y),
        steps=9,
        step_size=1.0,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    labels, store = np.where(y == 1, 1.0, -1.0), MemoryCheckpoint(every=2)

    class Broken(Logistic):
        calls = 0

        def slope(self, scores: Any, y: Any) -> Any:
            Broken.calls += 1
            if Broken.calls == 6:
                raise InterruptedError
            return super().slope(scores, y)

    given: dict[str, Any] = {"labels": labels, "checkpoint": store, "random_state": 0}
    with pytest.raises(InterruptedError):
        noisy_descent(Broken(), X, run, weights=weights / 7, **given)
    with pytest.raises(Exception, match=r"other records|another run"):
        noisy_descent(Broken(), X, run, weights=weights / 8, **given)
    noisy_descent(Broken(), X, run, weights=weights / 7, **given)
