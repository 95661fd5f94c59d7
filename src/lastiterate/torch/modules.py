"""Noisy descent of any network: per-record gradients by `torch.func`, batches as described.

The update is that of `noisy_descent`; what is proved about the loss is another matter: for most
networks `Loss.unknown()` is the truth, for those of `bounded_heads` there are proved constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lastiterate.description import Training
from lastiterate.description.validation import number
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.noise import Source
from lastiterate.noise.seeded import Seed
from lastiterate.torch.descent import descend
from lastiterate.torch.draws import Draws
from lastiterate.train.batches import BatchStream, Rows
from lastiterate.train.descent import Descent, _generator, _radius

LossFunction = Callable[[Tensor, Tensor], Tensor]
_ROOM = 2.0**-20  # what sums of 32-bit gradients round
_MOST = 1 << 26  # numbers in the gradients that are held at once


class ModuleGradients:
    """Clipped per-record gradients of a network; its trainable parameters as one vector."""

    def __init__(
        self,
        module: nn.Module,
        loss: LossFunction,
        inputs: Tensor,
        targets: Tensor,
        training: Training,
        chunk: int | None = None,
    ) -> None:
        _refuse(module, inputs, targets, training)
        self._module, self._loss, self._training = module, loss, training
        self._inputs, self._targets = inputs, targets
        named = dict(module.named_parameters())
        self._trained = {name: p for name, p in named.items() if p.requires_grad}
        self._fixed = {name: p.detach() for name, p in named.items() if not p.requires_grad}
        self._fixed.update(dict(module.named_buffers()))
        self.size = sum(p.numel() for p in self._trained.values())
        self._chunk = chunk or max(1, _MOST // max(1, self.size))
        each = torch.func.grad(self._one)
        self._each = torch.func.vmap(each, in_dims=(None, 0, 0), randomness="different")

    def _one(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        out = torch.func.functional_call(
            self._module, {**parameters, **self._fixed}, (x.unsqueeze(0),)
        )
        return self._loss(out, y.unsqueeze(0)).reshape(())

    def vector(self) -> Tensor:
        """The trainable parameters, one after another, in double precision."""
        return torch.cat([p.detach().double().reshape(-1) for p in self._trained.values()])

    def shaped(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector as the network's parameters."""
        parts = torch.split(vector, [p.numel() for p in self._trained.values()])
        return {
            name: part.reshape(p.shape).to(p.dtype)
            for (name, p), part in zip(self._trained.items(), parts, strict=True)
        }

    def per_record(self, vector: Tensor, index: Tensor) -> Tensor:
        """One gradient per record, as rows, before any clipping."""
        grads = self._each(self.shaped(vector), self._inputs[index], self._targets[index])
        return torch.cat([g.reshape(len(index), -1) for g in grads.values()], dim=1)

    def total(self, vector: Tensor, rows: Rows) -> Tensor:
        """The sum of the (clipped) gradients of the records in ``rows``."""
        device = self._inputs.device
        chosen = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        index = torch.from_numpy(np.ascontiguousarray(chosen)).to(device)
        total = torch.zeros_like(vector)
        for part in torch.split(index, self._chunk):
            if len(part):
                total += self._limited(self.per_record(vector, part)).double()
        return total

    def _limited(self, each: Tensor) -> Tensor:
        K = self._training.gradient_norm
        norms = torch.linalg.vector_norm(each, dim=1, dtype=torch.float64)
        if not norms.isfinite().all():
            raise AssumptionError("A per-record gradient is not finite: it has no bound.")
        if self._training.clipping == "gradient":
            most = K / (1 + _ROOM)
            factors = (most / norms.clamp(min=most)).to(each.dtype)
            shortened: Tensor = factors @ each
            return shortened
        if (norms > K).any():
            raise AssumptionError(
                f"{int((norms > K).sum())} per-record gradients are longer than "
                f"gradient_norm = {K:g}, which clipping='none' promises. Nothing was released. "
                "Use clipping='gradient' or a larger gradient_norm."
            )
        return each.sum(0)


def noisy_module_descent(
    module: nn.Module,
    loss: LossFunction,
    inputs: Tensor,
    targets: Tensor,
    training: Training,
    *,
    regularization: float = 0.0,
    noise: Source | None = None,
    random_state: Seed = None,
    radius: float | None = None,
    progress: bool | None = None,
    chunk: int | None = None,
) -> Descent:
    """Train a network with noisy gradients, exactly as described.

    Args:
        module: the network, where its parameters are now: the start, and the centre of the
            projection, must not depend on the data. Its trainable parameters are set to what
            is released when the run ends, and not before.
        loss: (outputs, targets) of a batch of one record -> its loss.
        inputs: one per record, on the device of the network.
        targets: one per record.
        training: what to run; clipping is "gradient", or "none" where no gradient is longer.
        regularization: coefficient of the data-free L2 term on the trainable parameters.
        noise, random_state, radius, progress: as in `noisy_descent`.
        chunk: records whose gradients are held at once.

    Returns what was released as one vector; its ``loss`` is None, as nobody vouches for it here.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=4, steps=3, step_size=0.5, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch(), clipping="gradient")
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> done = noisy_module_descent(net, nn.CrossEntropyLoss(), torch.eye(4)[:, :2],
    ...                             torch.tensor([0, 1, 0, 1]), run)
    >>> done.parameters.shape
    (17,)
    """
    generator = _generator(noise, random_state)
    l2 = number("regularization", regularization, "it shrinks every update", at_least=0.0)
    gradients = ModuleGradients(module, loss, inputs, targets, training, chunk)
    start = gradients.vector()
    batches = BatchStream(training.batches, training.records, generator)
    draws = Draws(training, tuple(start.shape), generator, batches, start.device)
    ball = _radius(radius, training)
    centre = start.cpu().numpy()
    released = descend(gradients, draws, training, l2, centre, ball, start.device, progress)
    values = gradients.shaped(torch.from_numpy(released.copy()).to(start.device))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in values:
                parameter.copy_(values[name])
    return Descent(released, training, None, not generator.secure, batches.nonce)


def _refuse(module: nn.Module, inputs: Tensor, targets: Tensor, training: Training) -> None:
    if training.clipping == "margin":
        raise UnsupportedError(
            "clipping='margin' needs a loss whose margin is known: use noisy_descent with a loss "
            "of lastiterate.losses, or clipping='gradient'."
        )
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise UnsupportedError(
                f"{name or 'The network'} is a {type(part).__name__}: it mixes the records of a "
                "batch, so no gradient belongs to one record. Use GroupNorm or LayerNorm."
            )
    if not any(p.requires_grad for p in module.parameters()):
        why = "there is nothing to train"
        raise DescriptionError("module", type(module).__name__, "with trainable parameters", why)
    for name, values in (("inputs", inputs), ("targets", targets)):
        if not isinstance(values, Tensor) or len(values) != training.records:
            found: Any = len(values) if hasattr(values, "__len__") else type(values).__name__
            allowed = f"a tensor with one entry for each of training.records = {training.records}"
            raise DescriptionError(name, found, allowed, "what is certified must be what runs")
