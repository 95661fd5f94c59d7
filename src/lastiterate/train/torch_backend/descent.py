"""The loop on a device: the same description and the same law as the NumPy backend.

    θ ← project(θ − η_k·(Σ_{i in batch k} g_i(θ)/divisor + regularization·θ) + ν_k·N(0, I))

Parameters are kept in double precision on the device; with a seeded source the batches and the
noise are those of the NumPy backend, number by number. What sums in double precision round is
charged (`summation`); coarser products are experiments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from lastiterate.description import Training
from lastiterate.description.rows import Rows
from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import Source, unpredictable
from lastiterate.noise.seeded import Seed
from lastiterate.progress import shown
from lastiterate.train.checkpoint import Checkpoint
from lastiterate.train.keeping import Keeping, fingerprint
from lastiterate.train.result import Descent, Parameters, concluded, released, shares
from lastiterate.train.settings import centre_of, generator_of, radius_of
from lastiterate.train.summation import linear_arithmetic
from lastiterate.train.torch_backend.draws import Draw, Draws
from lastiterate.train.torch_backend.gradients import DeviceGradients, RowRule, features
from lastiterate.train.torch_backend.kernels import Products
from lastiterate.train.torch_backend.projection import projected
from lastiterate.train.torch_backend.replay import Place, recorded


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
    checkpoint: Checkpoint | None = None,
    device: str | torch.device | None = None,
    products: Products = "double",
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
        checkpoint: `MemoryCheckpoint` or `EncryptedCheckpoint`, as with NumPy.
        device: by default where the data is, else a GPU if there is one.
        products: "double" multiplies and adds in double precision whatever the features are: what
            has a proved error and can be certified. "split" (16-bit features times parameters and
            slopes that are sums of two 16-bit numbers) and "fast" (rounded to one) add in float32:
            quicker, and experiments, unless the features are doubles.
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
    generator = generator_of(noise, random_state)
    l2 = number("regularization", regularization, "it shrinks every update", at_least=0.0)
    where = device_of(data, device)
    gradients = DeviceGradients(
        linear(objective),
        features(data, where),
        labels,
        training,
        l2,
        feature_bound,
        where,
        products=products,
        rows=rows,
    )
    centre = centre_of(start, gradients.shape)
    ball = radius_of(radius, training)
    batches = training.batches.rows(training.records, generator)
    content = () if checkpoint is None else gradients.content()
    run = fingerprint(objective, training, l2, ball, centre, content)
    keeping = Keeping(checkpoint, run, batches, generator, bool(gradients.objection))
    draws = Draws(training, gradients.shape, generator, batches, where)
    final = descend(gradients, draws, training, l2, centre, ball, where, progress, keeping)
    engine = linear_arithmetic(training, objective, int(gradients.shape[0]))
    return concluded(
        final,
        training,
        gradients.loss,
        batches.nonce,
        engine,
        coarse=gradients.objection,
        secure=unpredictable(generator),
        marked=keeping.experiment,
    )


class Total(Protocol):
    """What the loop asks of gradients on a device."""

    def total(self, parameters: Tensor, rows: Rows) -> Tensor:
        """The sum of the (clipped) gradients of the records in ``rows``; float64."""


class Drawing(Protocol):
    """What the loop asks of randomness."""

    def of(self, update: int) -> Draw:
        """The batch and the noise of an update."""


def descend(
    gradients: Total,
    draws: Drawing,
    training: Training,
    l2: float,
    centre: Parameters,
    ball: float,
    device: torch.device,
    progress: bool | None = None,
    keeping: Keeping | None = None,
) -> Parameters:
    """The updates; returns what the description releases."""
    middle = torch.from_numpy(centre.copy()).to(device)
    first, theta, tail = 0, middle.clone(), torch.zeros_like(middle)
    velocity = torch.zeros_like(middle) if training.momentum else None
    if keeping is not None and (kept := keeping.resume()) is not None:
        first = kept.step
        theta, tail = (torch.from_numpy(a.copy()).to(device) for a in (kept.parameters, kept.tail))
        if kept.velocity is not None:
            velocity = torch.from_numpy(kept.velocity.copy()).to(device)
    etas, nus = training.step_sizes, training.noises
    divisor = training.batches.divisor(training.records)
    window, counts = shares(training)
    with full_precision(), _current(device):
        replay = recorded(gradients, draws, training, l2, Place(first, theta, tail, middle, ball))
        if replay is not None:
            theta, tail = replay.theta, replay.tail
        for k in shown("noisy descent", first, training.steps, progress):
            if replay is not None:
                replay.update(k)
            else:
                draw = draws.of(k)
                step = gradients.total(theta, draw.rows) / divisor + l2 * theta
                moved = theta - float(etas[k]) * step
                if draw.noise is not None:
                    moved = moved + float(nus[k]) * draw.noise
                if velocity is not None:
                    velocity = training.momentum * velocity + (theta - moved)
                    moved = theta - velocity
                theta = projected(moved, middle, ball)
                if counts[k]:
                    tail += float(counts[k]) * theta
            if keeping is not None and keeping.due(k + 1, training):
                carried = None if velocity is None else _on_host(velocity)
                keeping.save(k + 1, _on_host(theta), _on_host(tail), carried)
    final = released(_on_host(tail / window if training.steps else theta), training)
    if keeping is not None:
        keeping.end()
    return final


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels and graphs are launched on the current GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _on_host(values: Tensor) -> Parameters:
    """A copy that later updates do not change."""
    copied: Parameters = values.detach().clone().cpu().numpy()
    return copied


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
