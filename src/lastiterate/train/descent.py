"""The loop: projected noisy gradient descent, exactly as described.

    θ ← project(θ − η_k·(Σ_{i in batch k} g_i(θ)/divisor + regularization·θ) + ν_k·N(0, I))

with the batch scheme, the nominal divisor, the step sizes η, the noises ν, the clipping of the
per-record gradients g_i and the projection of the `Training`. With momentum m the noisy update u_k
moves a velocity, v ← m·v + u_k, and that the parameters, θ ← project(θ − v). Nothing but what it
releases leaves.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.description import Training
from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import Source, unpredictable
from lastiterate.noise.seeded import Seed
from lastiterate.progress import shown
from lastiterate.train.checkpoint import Checkpoint
from lastiterate.train.gradients import (
    CallableGradients,
    GradientFunction,
    Gradients,
    LinearGradients,
)
from lastiterate.train.keeping import Keeping, fingerprint
from lastiterate.train.result import Descent, Parameters, concluded, released, shares
from lastiterate.train.settings import centre_of, generator_of, radius_of
from lastiterate.train.torch_backend import on_device


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
    device: Any = None,
    products: Literal["double", "split", "fast"] = "double",
    rows: Literal["check", "shorten", "rescale"] = "check",
) -> Descent:
    """Run a description, with NumPy or, where the data is a tensor, with PyTorch.

    Args:
        objective: a loss of `lastiterate.losses`, or a function (parameters, indices) -> one
            gradient per record (then ``data`` may be None and ``start`` is needed).
        data: one row per record: an array, a table or a sparse matrix; a torch tensor or
            `lastiterate.torch.Shards`, which run on a device by the same law.
        training: what to run.
        labels: one per record.
        regularization: coefficient of the data-free L2 term, added outside any clipping.
        start: where to start, and the centre of the projection; zero by default. It must not
            depend on the data.
        feature_bound: no row of the data is longer. Rows are checked. By default the largest
            bound for which the loss keeps its gradients within training.gradient_norm.
        noise: a source of randomness; by default the secure one. With a source of your own, a
            subclass of the secure one too, the run is an experiment.
        random_state: a seed: the run is then an experiment that cannot be certified.
        radius: of the ball that parameters are projected on; by default half of
            training.diameter, and never more.
        progress: show a bar; by default only for long runs on a terminal.
        checkpoint: `MemoryCheckpoint` or `EncryptedCheckpoint`: the run goes on from what it
            holds, with the same records in the same order (a gradient function must see to that
            itself). It is cleared when the run ends.
        device, products, rows: only with PyTorch, which a ``device`` asks for by itself; see
            `lastiterate.torch.noisy_descent`.

    Products and sums are in double precision, also where the features are not. What is returned
    says how far they can be off (`Descent.training.arithmetic`): account and certify that
    description, or calibrate one that has it (`lastiterate.train.summation`).

    >>> from lastiterate import FullBatch, Training
    >>> from lastiterate.losses import Logistic
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> noisy_descent(Logistic(), X, run, labels=y, regularization=0.1).parameters.round(3)
    array([ 1.177, -1.177])
    """
    if isinstance(objective, LinearLoss) and (device is not None or on_device(data)):
        from lastiterate.train.torch_backend import descent as torch_descent

        return torch_descent.noisy_descent(
            objective,
            data,
            training,
            labels=labels,
            regularization=regularization,
            start=start,
            feature_bound=feature_bound,
            noise=noise,
            random_state=random_state,
            radius=radius,
            progress=progress,
            checkpoint=checkpoint,
            device=device,
            products=products,
            rows=rows,
        )
    _only_with_torch(device, products, rows)
    generator = generator_of(noise, random_state)
    l2 = number("regularization", regularization, "it shrinks every update", at_least=0.0)
    gradients: Gradients
    if isinstance(objective, LinearLoss):
        gradients = LinearGradients(objective, data, labels, training, l2, feature_bound)
    else:
        gradients = _of_function(objective, data, labels, feature_bound, training)
    centre = centre_of(start, gradients.shape)
    ball = radius_of(radius, training)
    batches = training.batches.rows(training.records, generator)
    content = () if checkpoint is None else gradients.content()
    run = fingerprint(objective, training, l2, ball, centre, content)
    keeping = Keeping(checkpoint, run, batches, generator)

    first, theta, tail = 0, centre.copy(), np.zeros_like(centre)
    velocity = np.zeros_like(centre) if training.momentum else None
    if (kept := keeping.resume()) is not None:
        first, theta, tail = kept.step, kept.parameters.copy(), kept.tail.copy()
        velocity = kept.velocity

    etas, nus = training.step_sizes, training.noises
    divisor = training.batches.divisor(training.records)
    window, counts = shares(training)
    with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported below
        for k in shown("noisy descent", first, training.steps, progress):
            step = gradients.total(theta, next(batches)) / divisor + l2 * theta
            moved = theta - etas[k] * step
            if nus[k] > 0:
                moved += nus[k] * generator.normal(theta.shape)
            if velocity is not None:
                velocity = training.momentum * velocity + (theta - moved)
                moved = theta - velocity
            theta = _project(moved, centre, ball)
            if counts[k]:
                tail += counts[k] * theta
            if keeping.due(k + 1, training):
                keeping.save(k + 1, theta.copy(), tail.copy(), velocity)
    final = released(tail / window if training.steps else theta, training)
    keeping.end()
    return concluded(
        final,
        training,
        gradients.loss,
        batches.nonce,
        gradients.arithmetic(centre.size),
        secure=unpredictable(generator),
        marked=keeping.experiment,
    )


def _project(theta: Parameters, centre: Parameters, radius: float) -> Parameters:
    """The nearest point of the ball."""
    if math.isinf(radius):
        return theta
    offset = theta - centre
    length = float(np.linalg.norm(offset))
    return theta if length <= radius else centre + offset * (radius / length)


def _only_with_torch(device: Any, products: str, rows: str) -> None:
    """Raise rather than ignore what the NumPy backend cannot do."""
    given = [("device", device, None), ("products", products, "double"), ("rows", rows, "check")]
    for name, value, usual in given:
        if value != usual:
            allowed = "left out unless the data is a tensor and the objective a linear loss"
            raise DescriptionError(name, value, allowed, "what is asked for must be what runs")


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
