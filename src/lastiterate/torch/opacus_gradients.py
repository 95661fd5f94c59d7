"""Clipped gradients by Opacus: its layers' hooks, or ghost clipping.

Ghost clipping (Li, Tramer, Liang and Hashimoto 2022) computes the norm of every record's gradient
without the gradient, and a second backward pass of the weighted losses gives the clipped sum. For
layers that see a sequence the norm is a sum that can cancel, so its rounding has no bound: there
Opacus makes each layer's gradients, takes their norms and drops them (fast gradient clipping).
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.torch.module_gradients import ModuleGradients

# What a sum of some thousand squares rounds.
_ROOM = {torch.float32: 2.0**-12, torch.float64: 2.0**-40}
_GHOST = (
    "Ghost clipping adds the gradients of a batch inside of a backward pass, where what it rounds "
    "has no proved bound: use per_record='hooks' or per_record='func'."
)
_ASKED = 8  # records that are compared


class OpacusGradients(ModuleGradients):
    """The same sums as `ModuleGradients`, on a copy of the network with Opacus' hooks."""

    def __init__(self, plain: ModuleGradients, *, ghost: bool) -> None:
        self.__dict__.update(plain.__dict__)
        _refuse(plain._module, plain._inputs)
        self._ghost = ghost
        self._copy = self._computing = copy.deepcopy(plain._module)
        self._weights = [p for p in self._copy.parameters() if p.requires_grad]
        self._hooked = _hooked(self._copy, ghost, plain._inputs[:1])
        self.objection = _GHOST if ghost else ""
        self._losses = torch.func.vmap(
            lambda out, y: plain._loss(out.unsqueeze(0), y.unsqueeze(0)).reshape(())
        )
        self._compare(plain)

    def at_once(self, vector: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """One gradient per record, as rows: what the network computes in one pass."""
        _backward(self._forward(vector, inputs, targets).sum())
        each = [p.grad_sample.reshape(len(inputs), -1) for p in self._weights]  # type: ignore[attr-defined]
        return torch.cat(each, dim=1)

    def clipped(self, vector: Tensor, index: Tensor) -> Tensor:
        """The sum of the clipped gradients of a few records."""
        if not self._ghost:
            return super().clipped(vector, index)
        losses = self._forward(vector, self._inputs[index], self._targets[index])
        _backward(losses.sum(), again=True)
        norms = self._hooked.get_norm_sample().detach().double()
        if not norms.isfinite().all():  # here one of them would reach the sum of all
            raise AssumptionError("A per-record gradient is not finite: it has no bound.")
        clips = self._training.clipping == "gradient"
        room = _ROOM.get(losses.dtype, 2.0**-4)
        factors = self.factors(norms * (1 + room) if clips else norms)
        if factors is not None:
            for p in self._weights:
                p.grad = None
            self._hooked.disable_hooks()
            _backward((losses * factors.to(losses.dtype)).sum())
            self._hooked.enable_hooks()
        sums = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._weights]
        return torch.cat([each.reshape(-1) for each in sums]).double()

    def _forward(self, vector: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The losses of the records at these parameters."""
        with torch.no_grad():
            for p, value in zip(self._weights, self.shaped(vector).values(), strict=True):
                p.copy_(value)
                p.grad = None
                p.grad_sample = None  # type: ignore[attr-defined]
                p.__dict__.pop("_norm_sample", None)  # a norm of other records must not be used
        torch.clear_autocast_cache()  # it holds the weights of the update before
        losses: Tensor = self._losses(self._hooked(inputs), targets)
        return losses

    def _compare(self, plain: ModuleGradients) -> None:
        """Raise if Opacus and `torch.func` disagree on a few records.

        They are made up: a refusal tells nothing of private ones. Ghost clipping, whose runs are
        experiments, is compared on sums of the first ones.
        """
        vector = plain.vector()
        try:
            if self._ghost:
                index = torch.arange(min(_ASKED, len(self._inputs)), device=self._inputs.device)
                told, found = plain.clipped(vector, index), self.clipped(vector, index)
            else:
                inputs, targets = (drawn[0] for drawn in plain._made_up())
                near = torch.arange(len(inputs), device=inputs.device) % 4 < 2  # others saturate
                few = inputs[near][:_ASKED], targets[near][:_ASKED]
                told, found = plain.at_once(vector, *few), self.at_once(vector, *few)
        except (NotImplementedError, RuntimeError, AttributeError, TypeError) as problem:
            raise _cannot(f"Opacus says: {problem}") from problem
        if float((found - told).norm()) > 1e-3 * float(told.norm()) + 1e-12:
            raise _cannot("its gradients differ from those of torch.func")


def _backward(value: Tensor, again: bool = False) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's on hooks of inputs that need no gradient
        value.backward(retain_graph=again)  # type: ignore[no-untyped-call]


def _hooked(module: nn.Module, ghost: bool, one: Tensor) -> Any:
    try:
        from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    except ImportError as missing:
        raise UnsupportedError(
            "per_record='hooks' and 'ghost' need the package `opacus`; per_record='func' needs "
            "nothing more."
        ) from missing
    try:
        if not ghost:
            return GradSampleModule(module, loss_reduction="sum")
        return GradSampleModuleFastGradientClipping(
            module, loss_reduction="sum", use_ghost_clipping=not _sequences(module, one)
        )
    except NotImplementedError as problem:
        raise _cannot(f"Opacus says: {problem}") from problem


def _sequences(module: nn.Module, one: Tensor) -> bool:
    """Whether a layer with ghost norms sees more than one vector of a record."""
    seen = []

    def look(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append(isinstance(layer, nn.Embedding) or inputs[0].dim() > 2)

    layers = [m for m in module.modules() if isinstance(m, (nn.Linear, nn.Embedding))]
    handles = [layer.register_forward_hook(look) for layer in layers]
    with torch.no_grad():
        module(one)
    for handle in handles:
        handle.remove()
    return any(seen)


def _refuse(module: nn.Module, inputs: Tensor) -> None:
    if not module.training:
        raise UnsupportedError(
            "Opacus' hooks work on networks in training mode: call module.train() first, or use "
            "per_record='func'."
        )
    words = any(isinstance(part, nn.Embedding) for part in module.modules())
    if inputs.dtype in (torch.int32, torch.int64) and not words:
        raise UnsupportedError(
            f"The inputs are {inputs.dtype} and the network has no nn.Embedding: nobody knows what "
            "records could be made up to check that it mixes none. Pass them as floats, or use "
            "per_record='func'."
        )
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            raise UnsupportedError(
                f"{name or 'The network'} is a {type(part).__name__}, whose draws cannot be "
                "compared before the run. Use per_record='func'."
            )


def _cannot(why: str) -> UnsupportedError:
    return UnsupportedError(
        f"Opacus does not clip the gradients of this network: {why}. Use per_record='func'."
    )
