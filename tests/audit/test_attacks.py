"""Attacks do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import DescriptionError, FullBatch, Loss, TargetError, Training, account
from lastiterate.audit import audit, audit_scores
from lastiterate.audit.attacks.canaries import blank, mislabelled, replaced
from lastiterate.audit.attacks.deepfool import craft, torch_logits
from lastiterate.audit.attacks.four_features import LinearClassifier
from lastiterate.audit.attacks.thresholds import DirectionScore, LogitScore
from lastiterate.audit.shadow import LinearCohort
from lastiterate.losses import Logistic
from lastiterate.train import noisy_descent


class Softmaxed:
    """A model with predict_proba, as scikit-learn has it."""

    classes_ = np.array(["a", "b", "c"])

    def predict_proba(self, X):
        z = np.exp(X @ np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]]))
        return z / z.sum(axis=1, keepdims=True)


def test_scores_of_all_kinds_of_models():
    x = np.array([1.0, 0.5])
    p = Softmaxed().predict_proba(x[None])[0]
    assert LogitScore(x, "c")(Softmaxed()) == pytest.approx(np.log(p[2] / (1 - p[2])))
    assert LogitScore(x, 1)(lambda z: Softmaxed().predict_proba(z[None])[0]) == pytest.approx(
        np.log(p[1] / (1 - p[1]))
    )
    theta = np.array([2.0, -1.0])
    assert LogitScore(x, -1)(theta) == pytest.approx(-1.5)


def test_the_classifier_finds_a_hidden_direction():
    """Each feature alone says little; their difference says much."""
    rng = np.random.default_rng(0)
    common = rng.normal(0, 5, (2, 3000, 1))
    noise = rng.normal(0, 1, (2, 3000, 2))
    inside = common[0] + noise[0] + [2.0, -2.0]
    outside = common[1] + noise[1]
    alone = audit_scores(inside[:, 0], outside[:, 0], method="gdp").mu_lower
    both = audit_scores(inside, outside, attack=LinearClassifier(), method="gdp").mu_lower
    truth = 4 / np.sqrt(2)
    assert alone < 0.6
    assert 0.85 * truth < both <= truth


def test_the_classifier_pays_for_every_epoch():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2, 400, 5, 4))
    found = audit_scores(*scores, attack=LinearClassifier(), choosing=0.5)
    assert len(found.looks) == 5
    assert found.epsilon_lower < 1


def test_canaries():
    X, y = np.arange(6.0).reshape(3, 2), np.array([0, 0, 1])
    Z, w = mislabelled((X, y), 1)
    assert w.tolist() == [0, 1, 1]
    assert y.tolist() == [0, 0, 1]  # the original is as it was
    assert np.array_equal(Z, X)
    Z, w = blank((X, y), 2, 0)
    assert Z[2].tolist() == [0, 0]
    assert w[2] == 0
    Z, w = replaced((X, y), 0, [9, 9], 1)
    assert Z[0].tolist() == [9, 9]
    with pytest.raises(DescriptionError, match=r"^record must"):
        mislabelled((X, y), 3)
    with pytest.raises(DescriptionError, match=r"^label must"):
        mislabelled((X, np.zeros(3)), 0)


def linear(weights, offsets=0.0):
    """A linear model with one row of weights per class."""
    return lambda x: (weights @ x + offsets, weights)


def test_deepfool_fools_every_reference():
    rng = np.random.default_rng(3)
    W = rng.normal(size=(4, 6))
    models = [linear(W + 0.2 * rng.normal(size=W.shape)) for _ in range(10)]
    X = rng.normal(size=(50, 6))
    made = craft(models, X)
    for model in models:
        assert np.argmax(model(made.original)[0]) == made.label
        assert np.argmax(model(made.canary)[0]) != made.label
    assert np.array_equal(made.original, X[made.record])
    # it stays near: no farther than twice the distance to the farthest single boundary
    near = [
        np.linalg.norm(craft([m], X[made.record : made.record + 1]).canary - made.original)
        for m in models
    ]
    assert np.linalg.norm(made.canary - made.original) < 2 * max(near)


def test_deepfool_gives_up():
    certain = linear(np.zeros((2, 2)), np.array([1.0, 0.0]))
    with pytest.raises(TargetError, match="No record"):
        craft([certain], np.zeros((3, 2)), rounds=3)


def test_deepfool_on_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    networks = [
        torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        for _ in range(2)
    ]
    models = [torch_logits(network) for network in networks]
    X = np.random.default_rng(0).normal(size=(100, 5))
    made = craft(models, X)
    for network in networks:
        with torch.no_grad():
            before, after = network(
                torch.tensor(np.stack([made.original, made.canary]), dtype=torch.float32)
            ).argmax(1)
        assert int(before) == made.label
        assert int(after) != made.label


def test_a_crafted_gradient_attains_the_bound_of_linear_losses():
    """A push where the others push least, seen only at the end: mu of the taut string with c = 1.

    For hidden iterates the strongest record pushes in one direction at every step, with the full
    length that is allowed (Cebere, Bellet, Papernot 2024).
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 3)) * [0.3, 0.3, 0.0]
    run = Training(
        records=10,
        steps=9,
        step_size=1.0,
        noise=0.25,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )

    u = np.array([0.0, 0.0, 1.0])

    def train(push, seed):
        def crafted(parameters, indices):
            rows = X[indices] / 2
            rows[indices == 0] = push
            return rows

        return noisy_descent(crafted, None, run, start=np.zeros(3), random_state=seed).parameters

    found = audit(train, -u, u, models=2000, score=DirectionScore(u), method="gdp", random_state=1)
    truth = account(run, Loss(smoothness=1.0)).mu
    assert truth == pytest.approx(2 / 10 * 9 / (0.25 * 3), rel=1e-6)
    assert 0.85 * truth < found.mu_lower <= truth


def test_a_mislabelled_record_is_seen():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=30) / 3, np.zeros(30)]
    X[0] = [0.0, 1.0]
    y = np.where(X[:, 0] >= 0, 1.0, -1.0)
    run = Training(
        records=30,
        steps=80,
        step_size=2.0,
        noise=0.05,
        gradient_norm=1.5,
        batches=FullBatch(),
        adjacency="replace",
    )
    found = audit(
        LinearCohort(Logistic(), run),
        mislabelled((X, y), 0),
        (X, y),
        models=2000,
        score=LogitScore(X[0], -1.0),
        random_state=0,
        cohort=500,
    )
    assert found.epsilon_lower > 2
    assert not found.contradicts(account(run, Loss(smoothness=0.5625)))


def test_one_run_through_audit():
    """Rows that differ are canaries; the model is the dataset plus noise."""
    rng = np.random.default_rng(0)
    outside = rng.normal(size=(3000, 2))
    inside = outside.copy()
    inside[500:] = outside[500:] + 3.0

    def train(data, seed):
        return data + np.random.default_rng(seed).normal(size=data.shape)

    found = audit(
        train,
        inside,
        outside,
        method="one-run",
        random_state=0,
        score=lambda model: (model - outside)[500:].sum(axis=1),
    )
    # mu = 3 * sqrt(2) per row
    assert 3.5 < found.epsilon_lower < 30
    assert found.models == 1
    assert "Guesses" in str(found)


def test_the_linear_classifier_is_logistic_regression():
    """Against scikit-learn's, on overlapping and on separable features, one of them constant."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    for distance in (0.5, 8.0):
        inside = rng.normal(distance, 1, (60, 4)) * [1, 10, 0.1, 0]
        outside = rng.normal(0, 1, (40, 4)) * [1, 10, 0.1, 0]
        found = LinearClassifier().fit(inside, outside)(np.vstack([inside, outside]))
        both = np.vstack([inside, outside])
        spread = np.where(both.std(axis=0) > 0, both.std(axis=0), 1)
        X, y = (both - both.mean(axis=0)) / spread, np.repeat([1, 0], [60, 40])
        expected = linear_model.LogisticRegression(C=1.0, tol=1e-8, max_iter=2000).fit(X, y)
        np.testing.assert_allclose(found, expected.decision_function(X), rtol=0.01, atol=0.01)
