"""A public preconditioner is the plain run of other coordinates; isotropic noise would not be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.errors import DescriptionError
from lastiterate.losses import Logistic, Softmax
from lastiterate.train import Preconditioner, noisy_descent


def separation(maps, pushes, covariances):
    """mu of the last iterate where both worlds are x <- A x + b + N(0, C): their exact law."""
    d = len(pushes[0])
    mean, spread = np.zeros(d), np.zeros((d, d))
    for A, push, C in zip(maps, pushes, covariances, strict=True):
        mean, spread = A @ mean + push, A @ spread @ A.T + C
    return math.sqrt(mean @ np.linalg.solve(spread, mean))


def instance(rng):
    """A preconditioned quadratic run in two dimensions: P, H, eta, nu, steps, the impulse."""
    P = np.exp(rng.uniform(-3, 3, 2))
    half = np.sqrt(P)
    turn = rng.normal(size=(2, 2))
    curved = turn @ turn.T / 4  # the Hessian that y sees
    eta = float(rng.uniform(0.1, 2.0)) / np.linalg.eigvalsh(curved)[-1]
    steps, nu = int(rng.integers(1, 8)), float(rng.uniform(0.5, 2.0))
    push = rng.normal(size=2)
    return P, curved / np.outer(half, half), eta, nu, steps, push


def test_the_description_of_y_is_never_below_the_law_of_theta():
    """Quadratics whose records differ in a linear term: Gaussian laws, 300 random ones."""
    closest = math.inf
    for seed in range(300):
        P, H, eta, nu, steps, push = instance(np.random.default_rng(seed))
        half = np.sqrt(P)
        A = np.eye(2) - eta * np.diag(P) @ H
        impulse = eta * P * push
        truth = separation([A] * steps, [impulse] * steps, [nu**2 * np.diag(P)] * steps)
        values = np.linalg.eigvalsh(H * np.outer(half, half))
        loss = Loss(smoothness=values[-1], strong_convexity=max(values[0], 0.0))
        run = Training(
            records=1, steps=steps, step_size=eta, noise=nu, batches=FullBatch(),
            gradient_norm=np.linalg.norm(half * push) / 2,
        )  # fmt: skip
        mu = account(run, loss).mu
        assert mu >= truth * (1 - 1e-9)
        closest = min(closest, mu / truth)
    assert closest < 1.01


def test_isotropic_noise_is_another_run_and_hides_less():
    """The same description would be below the truth."""
    P, push, steps, nu = np.array([1.0, 100.0]), np.array([0.0, 1.0]), 5, 3.0
    maps, impulses = [np.eye(2)] * steps, [P * push] * steps
    mu = math.sqrt(steps) * 10.0 / nu  # of y: impulses of length 10
    assert separation(maps, impulses, [nu**2 * np.diag(P)] * steps) == pytest.approx(mu)
    assert separation(maps, impulses, [nu**2 * np.eye(2)] * steps) > 5 * mu


def data(seed=0, n=30, d=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= 4 * np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(rng.uniform(size=n) > 0.5, 1.0, -1.0)


RUN = Training(
    records=30, steps=10, step_size=0.5, noise=0.1, gradient_norm=1.0, batches=FullBatch()
)


def test_scaled_features_and_gradient_functions_are_the_same_run():
    X, y = data()
    P = Preconditioner([4.0, 0.25, 9.0, 1.0])

    def gradients(theta, rows):
        return X[rows] * Logistic().slope(X[rows] @ theta, y[rows])[:, None]

    by_hand = np.zeros(4)
    for _ in range(10):
        by_hand = by_hand - 0.5 * np.array(P.diagonal) * gradients(by_hand, np.arange(30)).mean(0)
    quiet = RUN.replace(noise=0.0)
    told = {"labels": y, "random_state": 0}
    plain = noisy_descent(Logistic(), P.features(X), quiet, labels=y)
    assert np.allclose(P.parameters(plain.parameters), by_hand, atol=1e-12)
    dense = noisy_descent(Logistic(), P.features(X), RUN, **told).parameters
    for other in (sp.csr_matrix(X), sp.coo_matrix(X), torch.from_numpy(X)):
        found = noisy_descent(Logistic(), P.features(other), RUN, **told).parameters
        assert np.allclose(found, dense, atol=1e-6)
    start = P.start(np.zeros(4))
    function = noisy_descent(P.gradients(gradients), None, RUN, start=start, random_state=0)
    assert np.allclose(function.parameters, dense, atol=1e-6)
    table = np.arange(8.0).reshape(4, 2)
    assert np.allclose(P.parameters(P.start(table)), table)
    labels = (y > 0).astype(int)
    several = noisy_descent(
        Softmax(2), P.features(X), RUN.replace(gradient_norm=2.0), labels=labels
    )
    assert P.parameters(several.parameters).shape == (4, 2)


@pytest.mark.parametrize(
    "bad", [[], [0.0], [-1.0], [math.nan], [math.inf], 3.0, "12", [True], None]
)
def test_what_is_no_preconditioner_is_refused(bad):
    with pytest.raises(DescriptionError):
        Preconditioner(bad)


def test_shapes_must_fit():
    X, _ = data()
    P = Preconditioner([1.0, 2.0])
    for wrong in (lambda: P.features(X), lambda: P.parameters(np.zeros(3)), lambda: P.start(1.0)):
        with pytest.raises(DescriptionError):
            wrong()
