"""Other ways to train the same linear models privately, with the field's own accounting.

Each takes data with rows of norm 1 and returns parameters. Adjacency is zero-out throughout (a
record's contribution removed), so the sensitivity is the gradient bound itself.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from lastiterate import Cyclic, Loss, Poisson, Training
from lastiterate.accounting.calibration import calibrate
from lastiterate.curves import gaussian
from lastiterate.losses import LinearLoss, Logistic, Softmax
from lastiterate.train import noisy_descent

PASSES, RATE = 10, 0.01  # of DP-SGD: as many passes over the data as ours
STEP_SIZES = (6.0, 16.0, 40.0)  # of DP-SGD, to pick from


@functools.cache
def noise_multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Opacus' noise multiplier for Poisson batches, by its PRV accountant."""
    from opacus.accountants.utils import get_noise_multiplier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(
            get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=rate,
                steps=steps,
                accountant="prv",
            )
        )


def dp_sgd(data: Any, epsilon: float, seed: int, step_size: float) -> np.ndarray:
    """Opacus' update: Poisson batches, clipped per-record gradients, PRV accounting."""
    classes = len(np.unique(data.labels))
    loss: LinearLoss = Logistic() if classes == 2 else Softmax(classes)
    clip, steps = (0.5, 0.75)[classes > 2], round(PASSES / RATE)
    run = Training.dp_sgd(
        records=len(data.labels),
        steps=steps,
        step_size=step_size,
        noise_multiplier=noise_multiplier(epsilon, data.delta, RATE, steps),
        clip=clip,
        batches=Poisson(RATE),
    )
    return noisy_descent(
        loss, data.train, run, labels=_labels(data), random_state=seed, progress=False
    ).parameters


def same_loop_poisson(data: Any, epsilon: float, seed: int, ours: Any) -> np.ndarray:
    """The same loop as ours with Poisson batches, every iterate public, PRV accounting.

    No momentum and no batch size of its own: a comparison of noise, not of methods.
    """
    run = ours.training_
    rate = run.batches.size / run.records
    multiplier = noise_multiplier(epsilon, data.delta, rate, run.steps)
    other = Training.dp_sgd(
        records=run.records,
        steps=run.steps,
        step_size=run.step_size,
        noise_multiplier=multiplier,
        clip=run.gradient_norm,
        batches=Poisson(rate),
        clipping="none",
    )
    return _run(data, other, ours, seed)


def same_run_composed(data: Any, epsilon: float, seed: int, ours: Any) -> np.ndarray:
    """Exactly our run, with the noise that composition (every iterate public) asks for."""
    run = ours.training_
    known = run.replace(batches=Cyclic(run.batches.size))
    noise = _composed_noise(known, epsilon, data.delta)
    return _run(data, run.replace(noise=noise), ours, seed)


@functools.cache
def _composed_noise(run: Training, epsilon: float, delta: float) -> float:
    return float(calibrate(run, Loss.unknown(), epsilon, delta).noise)  # type: ignore[arg-type]


def _run(data: Any, run: Training, ours: Any, seed: int) -> np.ndarray:
    return noisy_descent(
        ours._objective(),
        data.train,
        run,
        labels=ours._targets(data.labels),
        regularization=ours.loss_.regularization,
        feature_bound=1.0,
        random_state=seed,
        progress=False,
    ).parameters


def output_perturbation(data: Any, epsilon: float, seed: int, l2: float = 1e-3) -> np.ndarray:
    """The minimiser plus Gaussian noise: one record moves it by at most 1 / (n · l2)."""
    found = _minimise(data, l2, np.zeros(data.train.shape[1]))
    scale = 1 / (len(data.labels) * l2 * gaussian.mu(epsilon, data.delta))
    return found + scale * np.random.default_rng(seed).standard_normal(len(found))


def objective_perturbation(data: Any, epsilon: float, seed: int) -> np.ndarray:
    """Kifer, Smith, Thakurta 2012, Gaussian version: a random linear term and an L2 term.

    Noise of variance L²(8 log(2/δ) + 4ε)/ε² on the sum's gradient, L2 coefficient 2β/ε on the sum.
    """
    n, dimension = data.train.shape
    scale = math.sqrt(8 * math.log(2 / data.delta) + 4 * epsilon) / epsilon
    linear = scale / n * np.random.default_rng(seed).standard_normal(dimension)
    return _minimise(data, 2 * 0.25 / (epsilon * n), linear)


def _minimise(data: Any, l2: float, linear: np.ndarray) -> np.ndarray:
    X, y = data.train, _labels(data)

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = y * (X @ w)
        value = np.logaddexp(0, -margin).mean() + l2 / 2 * w @ w + linear @ w
        return float(value), X.T @ (-y * expit(-margin)) / len(y) + l2 * w + linear

    start = np.zeros(X.shape[1])
    options = {"maxiter": 2000, "gtol": 1e-9}
    return np.asarray(minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x)


def _labels(data: Any) -> np.ndarray:
    if len(np.unique(data.labels)) == 2:
        return np.where(data.labels, 1.0, -1.0)
    return np.asarray(data.labels)
