"""A training loop of Opacus whose updates are this library's, so that the run can be certified.

The loop stays as it is: batches from a loader, a backward pass, ``optimizer.step()``. But batches
and noise come from our secure source, and an update is that of `noisy_module_descent`: it computes
the gradients of the batch's records again, at parameters that it keeps in doubles on a grid, and
clips and adds them there. Those that the loop made are compared with them and dropped, so nothing
that a loop does can enter an update; a loop that does something else than it says is stopped.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor
from torch.utils.data import TensorDataset

from lastiterate.description import Loss, Training
from lastiterate.description.batches import Rows
from lastiterate.description.fields import integer, number, one_of
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.noise.seeded import Seed
from lastiterate.torch.accountant import same_number
from lastiterate.torch.bounded_heads import BoundedHead
from lastiterate.torch.loader import scheme_of
from lastiterate.torch.module_gradients import LossFunction, ModuleGradients
from lastiterate.torch.opacus_modules import mixing_layer, not_linear, proved_gradient_norm
from lastiterate.torch.plain_sgd import plain_sgd
from lastiterate.train.loop import Draws, Run, Updates, ended
from lastiterate.train.result import Descent
from lastiterate.train.settings import Settings
from lastiterate.train.torch_backend.backend import TorchBackend

_ALIKE = 1e-3  # of a gradient: the loop may compute it in float32, and in another order


class CertifiedOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimizer with secure noise on a grid; `released` can be certified.

    Args:
        model, optimizer, loader: what Opacus' ``make_private`` returned (flat clipping, hooks), for
            plain SGD and a ``TensorDataset`` of inputs and labels. Learning rate, weight decay,
            noise multiplier and clip are read there, and must stay.
        criterion: the loss of the loop; (outputs, labels) -> mean loss.
        loss: what is known about it: `Loss.unknown()`, or a convex one where the output is linear
            in what is trained. You vouch for it, as in `Descent.certificate`.
        steps: the number of updates that will be made, no matter what is seen on the way.
        step_size: one learning rate per update, where a scheduler will change it.
        clipping: "gradient", or "none" for cross-entropy on `BoundedSoftmax`, as in
            `HiddenStateAccountant.describe`.
        adjacency: "zero-out" (as Opacus counts) or "replace".
        random_state: a seed makes an experiment, which has no certificate.

    Take batches from its ``loader``: each is for one update. Every iterate stands in the model
    while the loop runs; a guarantee for the last one holds if no other one, and no loss, is shown.

    >>> optimizer = CertifiedOptimizer(model, optimizer, loader, nn.CrossEntropyLoss(),
    ...                                loss=Loss.unknown(), steps=30)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loader: Any,
        criterion: LossFunction,
        *,
        loss: Loss,
        steps: int,
        step_size: Sequence[float] | None = None,
        clipping: str = "gradient",
        adjacency: str = "zero-out",
        random_state: Seed = None,
    ) -> None:
        _refuse(model, optimizer)
        super().__init__(
            optimizer.original_optimizer,
            noise_multiplier=float(optimizer.noise_multiplier),
            max_grad_norm=float(optimizer.max_grad_norm),
            expected_batch_size=optimizer.expected_batch_size,
            loss_reduction=optimizer.loss_reduction,
        )
        self._model, self.loss, self._told = model, _declared(loss), self._opacus()
        inputs, labels = _tensors(loader, self.params[0].device)
        steps = integer("steps", steps)
        self._rates = self._planned(step_size, steps)
        batches = scheme_of(loader, drawn_there=False)
        expected = float(self.expected_batch_size) if self.loss_reduction == "mean" else 1.0
        divisor = batches.divisor(len(inputs))
        noises = [
            rate * self.noise_multiplier * self.max_grad_norm / expected for rate in self._rates
        ]
        training = Training(
            records=len(inputs),
            steps=steps,
            # Opacus divides by a whole number; the same update per unit of the nominal divisor.
            step_size=_one_or_many([rate * divisor / expected for rate in self._rates]),
            noise=_one_or_many(noises),
            gradient_norm=self.max_grad_norm,
            batches=batches,
            adjacency=adjacency,
            clipping=one_of("clipping", clipping, ("gradient", "none")),
        )
        self._decay = self.loss.regularization * divisor / expected
        self._begin(training, criterion, inputs, labels, random_state)
        self.loader = HandedOut(self._draws, inputs, labels, steps, len(loader))

    def _begin(
        self, training: Training, criterion: Any, inputs: Tensor, labels: Tensor, seed: Seed
    ) -> None:
        network = self._model._module
        self._as_described(0)
        _fits(network, self.loss, training)
        for part in network.modules():
            if isinstance(part, BoundedHead):
                part.started()
        # A copy computes the gradients: whatever happens to the network outside does not matter.
        self._own = copy.deepcopy(self._model).to_standard_module()
        self._gradients = _Compared(self._own, criterion, inputs, labels, training)
        self._gradients.check_independence()
        start = self._gradients.vector().cpu().numpy()
        told = Settings(regularization=self.loss.regularization, start=start, random_state=seed)
        self._run = Run.of(network, training, told, self._gradients)
        self._backend = TorchBackend(inputs.device, self._run.source)
        self._draws = _Awaited(self._run, self._backend)
        self._updates = Updates(self._run, self._gradients, self._draws, self._backend)
        self._done, self._stopped = 0, False
        self._result: Descent | None = None
        self._put()

    def step(self, closure: Any = None) -> None:
        """One update with the batch that the loader handed out last."""
        try:
            if self._stopped:
                raise _stopped("an earlier update was not the described one")
            if closure is not None:
                raise _stopped("a closure may look at the records several times in one update")
            if self._draws.pending is None:
                raise _stopped(
                    "no batch was handed out for this update: take one batch per update from the "
                    "optimizer's loader, and make no more updates than steps"
                )
            self._as_described(self._done)
            self._untouched()
            self._gradients.theirs = self._theirs()
            with self._backend.running():
                self._updates.update(self._done)
        except BaseException:
            self._stopped = True
            raise
        self._done += 1
        self._put()

    def released(self) -> Descent:
        """What the run released, after its last update; it gives the certificate.

        >>> optimizer.released().certificate(1e-5)  # doctest: +SKIP
        """
        if self._stopped:
            raise _stopped("an update was not the described one")
        if self._done != self._run.training.steps:
            raise _stopped(
                f"{self._done} of {self._run.training.steps} updates were made, and a run that "
                "stops because of what it saw is another one"
            )
        self._untouched()
        ours, named = self._own.state_dict(), dict(self._own.named_parameters())
        for name, value in self._model._module.state_dict().items():
            trained = name in named and named[name].requires_grad
            if not trained and not torch.equal(ours[name], value):
                raise _stopped(f"{name} changed during the run, and holds what no noise covers")
        if self._result is None:
            ran = self._run.told(ended(self._updates, self._backend), self._gradients)
            why = not_linear(self._model._module) or ""
            self._result = dataclasses.replace(ran, loss=self.loss, not_convex=why)
        return self._result

    # --- what a loop may not do -----------------------------------------------------------------

    def _planned(self, step_size: Sequence[float] | None, steps: int) -> list[float]:
        why = "how far an update drives two runs apart depends on it"
        if step_size is None:
            rates = {float(group["lr"]) for group in self.param_groups}
            if len(rates) != 1:
                raise UnsupportedError(
                    f"The parameters have several learning rates ({sorted(rates)}): no theorem of "
                    "the ledger takes one per parameter. Use one group of parameters."
                )
            return [number("lr", rates.pop(), above=0.0)] * steps
        rates_told = [number("step_size", one, above=0.0) for one in step_size]
        if len(rates_told) != steps:
            raise DescriptionError("step_size", len(rates_told), f"one for each of {steps}", why)
        return rates_told

    def _opacus(self) -> tuple[Any, ...]:
        """What Opacus' schedulers may change."""
        batch = self.expected_batch_size, self.loss_reduction
        return self.noise_multiplier, self.max_grad_norm, *batch

    def _as_described(self, update: int) -> None:
        """Raise unless Opacus' optimizer would make the described update now."""
        plain_sgd(self.original_optimizer)
        if self._opacus() != self._told:
            raise _stopped(
                f"noise multiplier, clip and batch size are {self._opacus()}, and were {self._told}"
            )
        trained = {id(p) for p in self._model._module.parameters() if p.requires_grad}
        if {id(p) for p in self.params} != trained:
            raise _stopped("the optimizer does not train exactly what needs a gradient")
        wanted: dict[str, Any] = {"lr": self._rates[update], "weight_decay": self._decay}
        for group in self.param_groups:
            for name, value in wanted.items():
                if not same_number(float(group[name]), value):
                    raise _stopped(
                        f"its {name} is {group[name]:g} in update {update}, and {value:g} is what "
                        "was described (step_size= takes one rate per update; weight_decay is "
                        "regularization of the loss)"
                    )
        mixing = mixing_layer(self._model._module)
        if mixing is not None or not self._model.training:
            raise _stopped(f"{mixing or 'the network'} is in a mode that gradients do not fit")

    def _untouched(self) -> None:
        """Raise unless the network is as the last update left it."""
        for name, p in self._model._module.named_parameters():
            if name in self._last and not torch.equal(self._last[name], p.detach()):
                raise _stopped(f"something else than an update changed {name}")

    def _theirs(self) -> Tensor:
        """Gradients of single records that the loop's backward pass left."""
        found = []
        for p in self._model._module.parameters():
            if p.requires_grad:
                each = getattr(p, "grad_sample", None)
                if not isinstance(each, Tensor):
                    raise _stopped(
                        "gradients of one batch are needed for one update: one backward pass "
                        "after zero_grad(), no accumulation"
                    )
                found.append(each.detach().reshape(len(each), -1).double())
        if len({len(each) for each in found}) != 1:
            raise _stopped("gradients of other records than those of the batch came")
        return torch.cat(found, dim=1)

    def _put(self) -> None:
        self._last = self._gradients.shaped(self._updates.theta)
        with torch.no_grad():
            for name, p in self._model._module.named_parameters():
                if name in self._last:
                    p.copy_(self._last[name])

    def signal_skip_step(self, do_skip: bool = True) -> NoReturn:
        """Refused: the engine splits batches itself."""
        raise _stopped(_SPLIT)

    def load_state_dict(self, state_dict: Any) -> NoReturn:
        """Refused: a run is made in one piece."""
        raise _stopped("a run that goes on from a saved state is not the described one")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """No copies: two runs with one beginning are not two runs."""
        raise _stopped("a copy would go on with the same beginning, and be counted as another run")


class HandedOut:
    """The batches of a run in their order, each for one update; as often as ``for`` is started."""

    def __init__(
        self, draws: _Awaited, inputs: Tensor, labels: Tensor, steps: int, length: int
    ) -> None:
        self._draws, self._inputs, self._labels = draws, inputs, labels
        self._left, self._length = steps, length

    def __len__(self) -> int:
        return self._length

    @property
    def dataset(self) -> NoReturn:
        """Refused: whoever asks makes another loader of it, as BatchMemoryManager does."""
        raise _stopped(_SPLIT)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self._length):
            if not self._left:
                return
            rows = self._draws.hand_out()
            self._left -= 1
            index = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            at = torch.from_numpy(np.ascontiguousarray(index)).to(self._inputs.device)
            yield self._inputs[at], self._labels[at]


class _Awaited(Draws):
    """The draws of a run whose batch is known before its update is asked for."""

    pending: Rows | None = None

    def hand_out(self) -> Rows:
        if self.pending is not None:
            raise _stopped(
                "a batch was handed out and no update was made with it. Make one with every batch, "
                "also with an empty one, and take no batch to look at"
            )
        self.pending = super().rows()
        return self.pending

    def rows(self) -> Rows:
        assert self.pending is not None
        rows, self.pending = self.pending, None
        return rows


class _Compared(ModuleGradients):
    """Gradients of a batch, held against those that a loop computed for it."""

    theirs: Tensor
    _seen = 0

    def total(self, vector: Tensor, rows: Rows) -> Tensor:
        self._seen = 0
        total = super().total(vector, rows)
        if self._seen != len(self.theirs):
            raise _stopped(_OTHER)
        return total

    def per_record(self, vector: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        each, norms = super().per_record(vector, index)
        theirs = self.theirs[self._seen : self._seen + len(index)]
        self._seen += len(index)
        if theirs.shape != each.shape:
            raise _stopped(_OTHER)
        apart = torch.linalg.vector_norm(each.double() - theirs, dim=1)
        alike = apart <= _ALIKE * norms.clamp(min=self._training.gradient_norm)
        # What is not finite counts as 0, and a run that ended here would tell of the record.
        endless = ~(norms.isfinite() & theirs.isfinite().all(dim=1))
        if not (alike | endless).all():
            raise _stopped(_OTHER)
        return each, norms


_SPLIT = (
    "its batches would be split (BatchMemoryManager). Take batches from the optimizer's loader: "
    "the gradients of an update are computed in chunks anyway"
)
_OTHER = (
    "its backward pass left other gradients than those of the criterion on the batch that was "
    "handed out (another batch, a part of it, a changed network, augmentation, scaled or mixed "
    "precision?)"
)


def _refuse(model: Any, optimizer: Any) -> None:
    if type(model) is not GradSampleModule or type(optimizer) is not DPOptimizer:
        raise UnsupportedError(
            f"A {type(model).__name__} with a {type(optimizer).__name__} is not what make_private "
            "returns with flat clipping and hooks on one machine. Use it so, or train with "
            "lastiterate.torch.noisy_module_descent."
        )
    for name, p in model.named_parameters():
        if p.dtype not in (torch.float32, torch.float64):
            raise UnsupportedError(
                f"{name} is in {p.dtype}: parameters live on a grid that it does not hold. Use "
                "float32 or float64."
            )


def _declared(loss: Any) -> Loss:
    if not isinstance(loss, Loss):
        why = "regularity decides how fast a run forgets"
        raise DescriptionError("loss", loss, "a Loss, such as Loss.unknown()", why)
    # Nobody here sees that the criterion is the one whose constants were proved.
    return dataclasses.replace(loss, provenance="declared") if loss.provenance == "proved" else loss


def _tensors(loader: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """All records, where the network is."""
    data = getattr(loader, "dataset", None)
    if type(data) is not TensorDataset or len(data.tensors) != 2:
        raise UnsupportedError(
            "Updates read the records themselves, each once and always the same: use a "
            "torch.utils.data.TensorDataset(inputs, labels) without augmentation."
        )
    inputs, labels = data.tensors
    return inputs.detach().clone().to(device), labels.detach().clone().to(device)


def _fits(network: Any, loss: Loss, training: Training) -> None:
    """Raise if the network contradicts what is said about the loss."""
    obstacle = not_linear(network) if loss.convex else None
    if obstacle is not None:
        raise AssumptionError(
            f"The description says that the loss is convex, but {obstacle}: no criterion makes "
            "such a loss convex in its parameters. Train one nn.Linear (after frozen layers in "
            "an nn.Sequential), or declare Loss.unknown() or Loss.nonconvex(smoothness=)."
        )
    if training.clipping == "none":
        bound = proved_gradient_norm(network, loss)
        if training.gradient_norm < bound:
            raise AssumptionError(
                f"clipping='none' needs max_grad_norm of at least {bound:.6g}, the proved bound "
                f"with room for rounding; it is {training.gradient_norm:g}."
            )


def _one_or_many(values: list[float]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else values


def _stopped(why: str) -> AssumptionError:
    return AssumptionError(
        f"This run is not the described one, and has no certificate: {why}. Start again, or train "
        "with lastiterate.torch.noisy_module_descent, which needs no loop."
    )
