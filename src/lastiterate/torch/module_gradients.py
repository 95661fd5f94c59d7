"""Per-record gradients of any network, each as short as described, by `torch.func`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lastiterate.description import Arithmetic, Training
from lastiterate.description.rows import Rows
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.train.summation import CALLABLE_OVERSHOOT, gradient_arithmetic, least_rows
from lastiterate.train.torch_backend import as_array
from lastiterate.train.torch_backend.norms import row_lengths, shortening

LossFunction = Callable[[Tensor, Tensor], Tensor]
_MOST = 1 << 26  # numbers in the gradients that are held at once


class ModuleGradients:
    """Clipped per-record gradients of a network; its trainable parameters as one vector.

    A gradient may be computed in any precision: it is a function of its record. Norms, clipping and
    sums are in double precision.
    """

    objection = ""  # why the sums have no proved error, if so
    per_length = 0.0  # they are what the network computes
    loss = None  # nobody vouches for it

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

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the vector."""
        return (self.size,)

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

    def content(self) -> Iterator[NDArray[Any]]:
        """Targets and inputs in their order."""
        yield as_array(self._targets)
        for some in torch.split(self._inputs, self._chunk):
            yield as_array(some)

    def total(self, vector: Tensor, rows: Rows) -> Tensor:
        """The sum of the (clipped) gradients of the records in ``rows``."""
        device = self._inputs.device
        chosen = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        index = torch.from_numpy(np.ascontiguousarray(chosen)).to(device)
        total = torch.zeros_like(vector)
        for part in torch.split(index, self._chunk):
            if len(part):
                total += self.clipped(vector, part)
        return total

    def arithmetic(self, size: int) -> Arithmetic | None:
        """How far its sums can be off."""
        over = 0.0 if self._training.clipping == "gradient" else CALLABLE_OVERSHOOT
        return gradient_arithmetic(self._training, size, over, self._chunk)

    def clipped(self, vector: Tensor, index: Tensor) -> Tensor:
        """The sum of the clipped gradients of a few records, in double precision."""
        return self._limited(self.per_record(vector, index))

    def _limited(self, each: Tensor) -> Tensor:
        factors = self.factors(row_lengths(each))
        total = torch.zeros(each.shape[1], dtype=torch.float64, device=each.device)
        length = max(least_rows(each.shape[1]), 8)  # held in double precision at once
        for first in range(0, len(each), length):
            some = each[first : first + length].double()
            if factors is not None:
                some *= factors[first : first + length, None]
            total += some.sum(0)
        return total

    def factors(self, norms: Tensor) -> Tensor | None:
        """What every gradient is multiplied by, given its norm in double; None: all stay."""
        K = self._training.gradient_norm
        if not norms.isfinite().all():
            raise AssumptionError("A per-record gradient is not finite: it has no bound.")
        if self._training.clipping == "gradient":
            return shortening(norms, K)
        long = norms > K * (1 + CALLABLE_OVERSHOOT)
        if long.any():
            raise AssumptionError(
                f"A per-record gradient is longer than gradient_norm = {K:g}, which "
                "clipping='none' promises. Nothing was released. Use clipping='gradient' or a "
                "larger gradient_norm."
            )
        return None


def _refuse(module: nn.Module, inputs: Tensor, targets: Tensor, training: Training) -> None:
    training.needs_gradient_norm("training")
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
