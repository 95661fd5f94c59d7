"""The loop: projected noisy gradient descent, exactly as described.

    θ ← project(θ − η_k·(Σ_{i in batch k} g_i(θ)/divisor + regularization·θ) + ν_k·N(0, I))

with the batch scheme, the nominal divisor, the step sizes η, the noises ν, the clipping of the
per-record gradients g_i and the projection of the `Training`. Nothing but what it releases leaves.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.description import Loss, TailAverage, Training
from lastiterate.description.validation import number
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import Source, source
from lastiterate.noise.seeded import Seed
from lastiterate.train.batches import BatchStream
from lastiterate.train.checkpoint import Checkpoint, State, usable
from lastiterate.train.gradients import (
    CallableGradients,
    GradientFunction,
    Gradients,
    LinearGradients,
    Parameters,
)
from lastiterate.train.progress import shown


@dataclass(frozen=True)
class Descent:
    """What a run released, and what ran.

    Attributes:
        parameters: what the description releases: the last iterate or the tail average; shape
            (features,) or (features, outputs); read-only.
        training: the description that ran.
        loss: what is proved about the loss (None for a gradient function).
        experiment: the randomness was seeded, so no certificate may be given.
        partition_nonce: names the hidden partition; None where batches have none.
    """

    parameters: Parameters
    training: Training
    loss: Loss | None
    experiment: bool
    partition_nonce: str | None


def noisy_descent(
    objective: LinearLoss | GradientFunction,
    data: Any,
    training: Training,
    *,
    labels: ArrayLike | None = None,
    regularization: float = 0.0,
    start: ArrayLike | None = None,
    feature_bound: float | None = None,
    noise: Source | None = None,
    random_state: Seed = None,
    radius: float | None = None,
    progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
) -> Descent:
    """Run a description.

    Args:
        objective: a loss of `lastiterate.losses`, or a function (parameters, indices) -> one
            gradient per record (then ``data`` may be None and ``start`` is needed).
        data: one row per record; an array, a table or a sparse matrix.
        training: what to run.
        labels: one per record.
        regularization: coefficient of the data-free L2 term, added outside any clipping.
        start: where to start, and the centre of the projection; zero by default. It must not
            depend on the data.
        feature_bound: no row of the data is longer. Rows are checked. By default the largest
            bound for which the loss keeps its gradients within training.gradient_norm.
        noise: a source of randomness; by default the secure one.
        random_state: a seed: the run is then an experiment that cannot be certified.
        radius: of the ball that parameters are projected on; by default half of
            training.diameter, and never more.
        progress: show a bar; by default only for long runs on a terminal.
        checkpoint: `MemoryCheckpoint` or `EncryptedCheckpoint`: the run goes on from what it
            holds. It is cleared when the run ends.

    >>> from lastiterate import FullBatch, Training
    >>> from lastiterate.losses import Logistic
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> noisy_descent(Logistic(), X, run, labels=y, regularization=0.1).parameters.round(3)
    array([ 1.177, -1.177])
    """
    generator = _generator(noise, random_state)
    l2 = number("regularization", regularization, "it shrinks every update", at_least=0.0)
    gradients: Gradients
    if isinstance(objective, LinearLoss):
        gradients = LinearGradients(objective, data, labels, training, l2, feature_bound)
    else:
        gradients = _of_function(objective, data, labels, feature_bound, training)
    centre = _start(start, gradients.shape)
    ball = _radius(radius, training)
    batches = BatchStream(training.batches, training.records, generator)
    store = usable(checkpoint)
    run = _fingerprint(objective, training, l2, ball, centre)

    theta, tail = centre.copy(), np.zeros_like(centre)
    first = 0
    if store is not None and (kept := store.load()) is not None:
        _same_run(kept, run)
        first, theta, tail = kept.step, kept.parameters.copy(), kept.tail.copy()
        batches.step, batches.order, batches.nonce = kept.step, kept.order, kept.nonce
        generator.restore(kept.source)

    etas, nus = training.step_sizes, training.noises
    divisor = training.batches.divisor(training.records)
    window = training.release.window if isinstance(training.release, TailAverage) else 1
    with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported below
        for k in shown(first, training.steps, progress):
            step = gradients.total(theta, next(batches)) / divisor + l2 * theta
            theta = theta - etas[k] * step
            if nus[k] > 0:
                theta += nus[k] * generator.normal(theta.shape)
            theta = _project(theta, centre, ball)
            if k >= training.steps - window:
                tail += theta
            if store is not None and (k + 1) % store.every == 0 and k + 1 < training.steps:
                state = (theta.copy(), tail.copy(), batches.order, batches.nonce, generator.state())
                store.save(State(run, k + 1, *state))
    released = tail / window if training.steps else theta
    if not np.isfinite(released).all():
        raise AssumptionError(
            "The run diverged: the parameters are not finite, and nothing is released. The step "
            f"size {training.step_size} is too large for this loss, or the data too large."
        )
    if store is not None:
        store.clear()
    released.flags.writeable = False
    return Descent(released, training, gradients.loss, not generator.secure, batches.nonce)


def _project(theta: Parameters, centre: Parameters, radius: float) -> Parameters:
    """The nearest point of the ball."""
    if math.isinf(radius):
        return theta
    offset = theta - centre
    length = float(np.linalg.norm(offset))
    return theta if length <= radius else centre + offset * (radius / length)


def _generator(noise: Source | None, random_state: Seed) -> Source:
    if noise is None:
        return source(random_state)
    if random_state is not None:
        why = "one run has one source of randomness"
        raise DescriptionError("random_state", random_state, "absent when noise is given", why)
    return noise


def _of_function(
    objective: Any, data: Any, labels: Any, feature_bound: float | None, training: Training
) -> CallableGradients:
    if not callable(objective):
        raise DescriptionError(
            "objective",
            objective,
            "a loss of lastiterate.losses or a function (parameters, indices) -> gradients",
            "the run needs one gradient per record",
        )
    for name, value in (("labels", labels), ("feature_bound", feature_bound)):
        if value is not None:
            why = "a gradient function already knows its data"
            raise DescriptionError(name, "given", "absent with a gradient function", why)
    if data is not None and _length(data) != training.records:
        why = "what is certified must be what runs"
        allowed = f"training.records = {training.records} rows, or None"
        raise DescriptionError("data", f"{_length(data)} rows", allowed, why)
    return CallableGradients(objective, training)


def _length(data: Any) -> int:
    return int(data.shape[0]) if hasattr(data, "shape") else len(data)


def _start(start: ArrayLike | None, shape: tuple[int, ...] | None) -> Parameters:
    if start is None:
        if shape is None:
            why = "a gradient function does not say how many parameters there are"
            raise DescriptionError("start", None, "given with a gradient function", why)
        return np.zeros(shape)
    centre = np.array(start, dtype=np.float64)
    if shape is not None and centre.shape != shape:
        why = "there is one parameter per feature and output"
        raise DescriptionError("start", f"of shape {centre.shape}", f"of shape {shape}", why)
    if not np.isfinite(centre).all():
        why = "a run starts somewhere"
        raise DescriptionError("start", "not finite", "finite numbers", why)
    return centre


def _radius(radius: float | None, training: Training) -> float:
    if radius is None:
        return training.diameter / 2
    why = "the guarantee counts on the diameter of the set that parameters are projected on"
    half = training.diameter / 2
    return number("radius", radius, why, at_least=0.0, at_most=half, infinite=True)


def _fingerprint(
    objective: LinearLoss | Callable[..., Any],
    training: Training,
    regularization: float,
    radius: float,
    start: Parameters,
) -> str:
    """What must not change between a checkpoint and its resumption."""
    kind = repr(objective) if isinstance(objective, LinearLoss) else "a gradient function"
    facts = [training.to_dict(), kind, regularization, repr(radius), start.tolist()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _same_run(kept: State, run: str) -> None:
    if kept.run != run:
        raise AssumptionError(
            "The checkpoint belongs to another run (another description, loss, regularization or "
            "start): going on from it would be a run that nobody described. Use the same "
            "arguments, or a fresh checkpoint."
        )
