"""The loop on a device: the same description and the same law as the NumPy backend.

    θ ← project(θ − η_k·(Σ_{i in batch k} g_i(θ)/divisor + regularization·θ) + ν_k·N(0, I))

Parameters are kept in double precision on the device; with a seeded source the batches and the
noise are those of the NumPy backend, number by number. The guarantee is about this update in
real arithmetic: what products round (see `kernels`) is kept inside the gradient bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lastiterate.description import TailAverage, Training
from lastiterate.description.validation import number
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import Source
from lastiterate.noise.seeded import Seed
from lastiterate.torch.draws import Draw, Draws
from lastiterate.torch.gradients import DeviceGradients, RowRule, features
from lastiterate.torch.kernels import Products
from lastiterate.train.batches import BatchStream
from lastiterate.train.descent import Descent, _generator, _radius, _start
from lastiterate.train.progress import shown


def noisy_descent(
    objective: LinearLoss,
    data: Any,
    training: Training,
    *,
    labels: ArrayLike | Tensor | None = None,
    regularization: float = 0.0,
    start: ArrayLike | None = None,
    feature_bound: float | None = None,
    noise: Source | None = None,
    random_state: Seed = None,
    radius: float | None = None,
    progress: bool | None = None,
    device: str | torch.device | None = None,
    products: Products = "split",
    rows: RowRule = "check",
) -> Descent:
    """Run a description for a linear head with PyTorch.

    Args:
        objective: a loss of `lastiterate.losses`.
        data: features, one row per record: a tensor, an array, `Shards`, or paths of shards. What
            does not fit on the device stays on the host and is streamed in every update.
        training: what to run.
        labels: one per record.
        regularization: coefficient of the data-free L2 term, added outside any clipping.
        start: where to start, and the centre of the projection; it must not depend on the data.
        feature_bound: no row of the data is longer; by default the largest bound for which the
            loss keeps its gradients within training.gradient_norm.
        noise: a source of randomness; by default the secure one.
        random_state: a seed: the run is then an experiment that cannot be certified.
        radius: of the ball that parameters are projected on; at most half of training.diameter.
        progress: show a bar; by default only for long runs on a terminal.
        device: by default where the data is, else a GPU if there is one.
        products: how 16-bit features are multiplied: "split" (parameters and slopes as sums of
            two 16-bit numbers) or "fast" (rounded to one).
        rows: what happens to rows longer than the bound: "check" refuses them, "shorten" shortens
            them, "rescale" gives every row the norm of the bound; all without copying the data.

    >>> from lastiterate import FullBatch
    >>> from lastiterate.losses import Logistic
    >>> X, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0])
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> noisy_descent(Logistic(), X, run, labels=y, regularization=0.1).parameters.round(3)
    array([ 1.177, -1.177])
    """
    generator = _generator(noise, random_state)
    l2 = number("regularization", regularization, "it shrinks every update", at_least=0.0)
    where = device_of(data, device)
    gradients = DeviceGradients(
        linear(objective), features(data, where), labels, training, l2, feature_bound, where,
        products=products, rows=rows,
    )  # fmt: skip
    centre = _start(start, gradients.shape)
    batches = BatchStream(training.batches, training.records, generator)
    draws = Draws(training, gradients.shape, generator, batches, where)
    released = descend(
        gradients, draws, training, l2, centre, _radius(radius, training), where, progress
    )
    return Descent(released, training, gradients.loss, not generator.secure, batches.nonce)


def descend(
    gradients: Any,
    draws: Iterable[Draw],
    training: Training,
    l2: float,
    centre: NDArray[np.float64],
    ball: float,
    device: torch.device,
    progress: bool | None = None,
) -> NDArray[np.float64]:
    """The updates; returns what the description releases.

    ``gradients.total(theta, rows)`` is the sum of a batch's gradients.
    """
    middle = torch.from_numpy(centre.copy()).to(device)
    theta, tail = middle.clone(), torch.zeros_like(middle)
    etas, nus = training.step_sizes, training.noises
    divisor = training.batches.divisor(training.records)
    window = training.release.window if isinstance(training.release, TailAverage) else 1
    each = iter(draws)
    with full_precision():
        for k in shown(0, training.steps, progress):
            draw = next(each)
            theta = theta - float(etas[k]) * (
                gradients.total(theta, draw.rows) / divisor + l2 * theta
            )
            if draw.noise is not None:
                theta = theta + float(nus[k]) * draw.noise
            theta = projected(theta, middle, ball)
            if k >= training.steps - window:
                tail += theta
    released: NDArray[np.float64] = (tail / window if training.steps else theta).cpu().numpy()
    if not np.isfinite(released).all():
        raise AssumptionError(
            "The run diverged: the parameters are not finite, and nothing is released. The step "
            f"size {training.step_size} is too large for this loss, or the data too large."
        )
    released.flags.writeable = False
    return released


def projected(theta: Tensor, centre: Tensor, radius: float) -> Tensor:
    """The nearest point of the ball, without waiting for the device."""
    if math.isinf(radius):
        return theta
    offset = theta - centre
    length = torch.linalg.vector_norm(offset)
    return torch.where(length <= radius, theta, centre + offset * (radius / length))


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32: it would round 32-bit slopes beyond the room that is kept for rounding."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def linear(objective: Any) -> LinearLoss:
    """The objective, if it is one the device can run."""
    if not isinstance(objective, LinearLoss):
        raise DescriptionError(
            "objective",
            objective,
            "a loss of lastiterate.losses",
            "other models run with lastiterate.torch.noisy_module_descent",
        )
    return objective


def device_of(data: Any, device: str | torch.device | None) -> torch.device:
    """Where to run: as asked, else where the data is, else on a GPU if there is one."""
    if device is not None:
        return torch.device(device)
    if isinstance(data, Tensor) and data.device.type != "cpu":
        return data.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
