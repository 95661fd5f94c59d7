"""Per-record gradients of any network, each as short as described, by `torch.func`.

A gradient and its norm are, to the last bit, functions of their record alone: they are computed in
chunks of one size, in which a record has one place (`train.record_places`). Before the run this is
checked on made-up records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lastiterate.description import Arithmetic, Training
from lastiterate.description.batches import Rows
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.torch.retained_state import state_of
from lastiterate.train.record_places import chunk_size, placed
from lastiterate.train.summation import CALLABLE_OVERSHOOT, gradient_arithmetic, least_rows
from lastiterate.train.torch_backend import as_array
from lastiterate.train.torch_backend.norms import chunk_lengths, shortening

LossFunction = Callable[[Tensor, Tensor], Tensor]
_MOST = 1 << 26  # numbers in the gradients that are held at once


class ModuleGradients:
    """Clipped per-record gradients of a network; its trainable parameters as one vector.

    A gradient may be computed in any precision: it is a function of its record. Norms, clipping and
    sums are in double precision.

    Args:
        module, loss, inputs, targets, training, chunk: as in `noisy_module_descent`.
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
        self._computing = module  # what gradients are computed by, and may keep a state
        self._inputs, self._targets = inputs, targets
        named = dict(module.named_parameters())
        self._trained = {name: p for name, p in named.items() if p.requires_grad}
        self._fixed = {name: p.detach() for name, p in named.items() if not p.requires_grad}
        self._fixed.update(dict(module.named_buffers()))
        self.size = sum(p.numel() for p in self._trained.values())
        self._chunk = chunk or max(1, _MOST // max(1, self.size))
        self._places = chunk_size(training, self._chunk)
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

    def at_once(self, vector: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """One gradient per record, as rows: what the network computes in one pass."""
        grads = self._each(self.shaped(vector), inputs, targets)
        return torch.cat([g.reshape(len(inputs), -1) for g in grads.values()], dim=1)

    def per_record(self, vector: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """One gradient per record, as rows, before any clipping, and their norms in double."""
        device = vector.device
        each, norms = None, torch.zeros(len(index), dtype=torch.float64, device=device)
        for at, places, chunk in placed(index.cpu().numpy(), self._places):
            rows = torch.from_numpy(chunk).to(device)
            with repeatable():
                some = self.at_once(vector, self._inputs[rows], self._targets[rows])
            lengths = chunk_lengths(some)
            to, of = torch.from_numpy(at).to(device), torch.from_numpy(places).to(device)
            if each is None:
                each = some.new_empty(len(index), self.size)
            each[to], norms[to] = some[of], lengths[of]
        assert each is not None
        return each, norms

    def check_independence(self) -> None:
        """Raise unless a gradient is the same whoever shares its chunk.

        The records are made up (`_made_up`), so that a refusal tells nothing of private ones. At
        the start a factor of 0 may hide that records are mixed: other parameters are tried, too.
        """
        records, start = self._made_up(), self.vector()
        drawn = torch.randn(self.size, generator=torch.Generator().manual_seed(0))
        for vector in (start, start + 0.1 * drawn.to(start)):
            self._check_at(vector, *records)

    def _check_at(self, vector: Tensor, inputs: Tensor, targets: Tensor) -> None:
        with warnings.catch_warnings(record=True) as said, repeatable():
            warnings.simplefilter("always")
            first = self._bits(vector, inputs[0], targets[0])
        changing = any("have a deterministic" in str(each.message) for each in said)
        stored = state_of(self._computing, self._loss)  # filled in the first pass, it must stay
        for parity in (0, 1):
            shared = torch.arange(self._places, device=vector.device) % 2 == parity
            x, y = inputs[1].clone(), targets[1].clone()
            x[shared], y[shared] = inputs[0][shared], targets[0][shared]
            changing |= not torch.equal(self._bits(vector, x, y)[shared], first[shared])
        changing |= not torch.equal(self._bits(vector, inputs[0], targets[0]), first)
        if changing or state_of(self._computing, self._loss) != stored:
            raise UnsupportedError(_COMPANIONS)

    def _bits(self, vector: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Gradients and norms of a chunk, as whole numbers that are equal where all bits are."""
        with repeatable():
            each = self.at_once(vector, inputs, targets).detach()
        return torch.cat([_as_bits(each), _as_bits(chunk_lengths(each))[:, None]], dim=1)

    def _made_up(self) -> tuple[Tensor, Tensor]:
        """Two chunks of records: inputs and targets.

        Numbers are drawn, those of fewer than 32 bits as well, which no table is read by, and words
        of an embedding; of several sizes, as a loss may be flat at large ones. Other whole numbers,
        whose range only the network knows, are those of the first record in every place: they are
        allowed.
        """
        words = [m.num_embeddings for m in self._module.modules() if isinstance(m, nn.Embedding)]
        source = torch.Generator().manual_seed(0)

        def like(values: Tensor, most: int) -> Tensor:
            shape = (2, self._places, *values.shape[1:])
            whole = not (values.is_floating_point() or values.is_complex())
            most = _SHORT.get(values.dtype, most)
            if whole and not most:
                return values[:1].expand(shape).clone()
            drawn = torch.rand(shape, generator=source, dtype=torch.float64)
            fourths = torch.arange(self._places).reshape(-1, *[1] * (values.dim() - 1)) % 4 + 1
            drawn = (drawn * most ** (fourths / 4)).floor() if whole else drawn
            return drawn.to(values.device, values.dtype)

        inputs, targets = like(self._inputs, min(words, default=0)), like(self._targets, 0)
        if inputs.is_floating_point():  # some far from 0: a layer may act on them alone
            inputs[:, 2::4] *= -30
            inputs[:, 3::4] *= 1000
        return inputs, targets

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
        return self._limited(*self.per_record(vector, index))

    def _limited(self, each: Tensor, norms: Tensor) -> Tensor:
        endless = ~norms.isfinite()
        if self._training.clipping == "gradient":
            # 0 is what clipping makes of it: a run that ended here would tell of the record.
            each = torch.where(endless[:, None], 0.0, each)
        elif not each[endless].isfinite().all():
            raise AssumptionError(_NOT_FINITE)
        factors = self.factors(norms)
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


_NOT_FINITE = "A per-record gradient is not finite: it has no bound."
_COMPANIONS = (
    "The gradient of a record is not the same, to the last bit, in every batch: the network mixes "
    "records, it or the loss remembers earlier ones or draws random numbers (dropout), or its "
    "kernels are not deterministic. Other records must not change what a record contributes. Use "
    "layers that treat records one by one, call eval() on dropout, set "
    "torch.use_deterministic_algorithms(True), or give chunk=1."
)


_SHORT = {torch.bool: 2, torch.uint8: 256, torch.int8: 128, torch.int16: 1 << 15}


@contextmanager
def repeatable() -> Iterator[None]:
    """Kernels that always round alike: those that add in any order may pass a check by chance."""
    kernels, told = torch.backends.cudnn, torch.are_deterministic_algorithms_enabled()
    only = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    with kernels.flags(
        enabled=kernels.enabled, benchmark=False, deterministic=True, allow_tf32=kernels.allow_tf32
    ):
        torch.use_deterministic_algorithms(True, warn_only=only or not told)
        memory.fill_uninitialized_memory = False
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(told, warn_only=only)
            memory.fill_uninitialized_memory = filled


def _as_bits(values: Tensor) -> Tensor:
    """The bits of numbers, as whole numbers."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if values.is_complex():
        values = torch.view_as_real(values).flatten(-2)
    return values.contiguous().view(kinds[values.element_size()]).to(torch.int64)


def _refuse(module: nn.Module, inputs: Tensor, targets: Tensor, training: Training) -> None:
    training.needs_gradient_norm("training")
    if training.clipping == "margin":
        raise UnsupportedError(
            "clipping='margin' needs a loss whose margin is known: use noisy_descent with a loss "
            "of lastiterate.losses, or clipping='gradient'."
        )
    for name, part in module.named_modules():
        instances = isinstance(part, nn.modules.instancenorm._InstanceNorm) and part.training
        tracked = instances and part.running_mean is not None
        if tracked or isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise UnsupportedError(
                f"{name or 'The network'} is a {type(part).__name__}: it mixes the records of a "
                "batch, so no gradient belongs to one record. Use GroupNorm or LayerNorm."
            )
        if getattr(part, "max_norm", None) is not None:
            raise UnsupportedError(
                f"{name or 'The network'} is a {type(part).__name__} with max_norm, which shortens "
                "its weights by the words of a batch: leave max_norm out."
            )
    if not any(p.requires_grad for p in module.parameters()):
        why = "there is nothing to train"
        raise DescriptionError("module", type(module).__name__, "with trainable parameters", why)
    for name, values in (("inputs", inputs), ("targets", targets)):
        if not isinstance(values, Tensor) or len(values) != training.records:
            found: Any = len(values) if hasattr(values, "__len__") else type(values).__name__
            allowed = f"a tensor with one entry for each of training.records = {training.records}"
            raise DescriptionError(name, found, allowed, "what is certified must be what runs")
        if values.is_floating_point() and not values.isfinite().all():
            raise AssumptionError(f"The {name} are not finite: fill or drop such records.")
