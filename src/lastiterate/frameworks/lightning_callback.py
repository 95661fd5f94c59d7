"""A callback for Lightning: the head that the Trainer was to train, with a certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback
from torch import Tensor

from lastiterate.errors import UnsupportedError
from lastiterate.frameworks.private_head import Plan, PrivateHead

# Lightning's own, which average or unfreeze weights, or look at losses to choose what runs.
_CHANGING = {
    "BaseFinetuning",
    "BatchSizeFinder",
    "GradientAccumulationScheduler",
    "LearningRateFinder",
    "ModelPruning",
    "StochasticWeightAveraging",
    "WeightAveraging",
}


class LightningPrivateHead(PrivateHead, Callback):  # type: ignore[misc]
    """Trains the linear head of a LightningModule with a promise, and certifies it.

    ``trainer.fit(module, loader)`` then means: everything but one ``nn.Linear`` is frozen, and that
    layer is trained from 0 by this library's engine, as loader, optimizer, schedulers and number of
    epochs say, with the noise that (epsilon, delta) needs. Lightning makes no update of its own.
    A run that cannot be described, or whose loss is not the mean cross-entropy of the head's
    scores, is refused. Use ``trainer.validate`` afterwards.

    Args:
        epsilon, delta: the promise, for one record.
        feature_bound: what reaches the head is shortened to this length for training. It must not
            be read off the data.
        folder: where certificate.json and report.html go when training ends.
        diameter: parameters are projected on a ball of half this radius around 0, which stops
            epsilon from growing; by default they are not.
        adjacency: "zero-out" or "replace".
        dataset: a label of the data in the certificate.
        labels: reads the labels of a batch; by default its second part, or its entry "labels".

    >>> LightningPrivateHead(epsilon=1.0, delta=1e-5, feature_bound=1.0)  # doctest: +SKIP
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        labels: Callable[[Any], Tensor] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(epsilon, delta, **settings)
        self._labels = labels or labels_of

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before any callback looks at the data."""
        kinds = {kind.__name__ for each in trainer.callbacks for kind in type(each).__mro__}
        found = sorted(kinds & _CHANGING)
        if stage == "fit" and found:
            raise _other(f"the callback {found[0]}")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Everything happens here; then the Trainer is told to stop."""
        _refuse(trainer)
        per_epoch, configured = len(trainer.train_dataloader), trainer.lr_scheduler_configs

        def due(update: int) -> Iterator[Any]:
            epoch, inside = divmod(update, per_epoch)
            for each in configured:
                count = update if each.interval == "step" else epoch
                if (each.interval == "step" or not inside) and count % each.frequency == 0:
                    yield each.scheduler

        def loss(batch: Any) -> Tensor:
            moved = pl_module.transfer_batch_to_device(batch, pl_module.device, 0)
            moved = trainer.precision_plugin.convert_input(moved)
            found = pl_module.training_step(moved, 0)
            mean: Tensor = found["loss"] if isinstance(found, dict) else found
            return mean

        plan = Plan(
            pl_module,
            trainer.train_dataloader,
            trainer.optimizers[0],
            [each.scheduler for each in configured],
            due,
            int(trainer.estimated_stepping_batches),
            loss,
            self._labels,
        )
        with _silent(pl_module):
            self._hand_over(plan)
        trainer.should_stop = True

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """No update of Lightning's own, whoever asks for one."""
        self._no_update()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Certificate and report."""
        self._end()


def labels_of(batch: Any) -> Tensor:
    """The labels of a batch: its second part, or its entry "labels"."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        found: Tensor = batch[1]
        return found
    if "labels" in batch:
        entry: Tensor = batch["labels"]
        return entry
    raise UnsupportedError("Nobody knows where the labels of a batch are: give labels=.")


def _refuse(trainer: Any) -> None:
    """Whatever the engine would not run as the Trainer does."""
    reasons = {
        "several processes": trainer.world_size != 1,
        "accumulate_grad_batches": trainer.accumulate_grad_batches != 1,
        "gradient_clip_val (it clips the sum of a batch, which bounds no record; feature_bound "
        "does)": bool(trainer.gradient_clip_val),
        "min_epochs or min_steps": bool(trainer.min_epochs or trainer.min_steps),
        "a run that goes on from a checkpoint": trainer.global_step > 0,
        "several optimizers, or manual optimization": len(trainer.optimizers) != 1
        or not trainer.lightning_module.automatic_optimization,
        "a part of the batches (limit_train_batches, overfit_batches)": trainer.num_training_batches
        != len(trainer.train_dataloader),
        "reload_dataloaders_every_n_epochs": bool(trainer.reload_dataloaders_every_n_epochs),
        "an endless run (max_epochs=-1)": not math.isfinite(trainer.estimated_stepping_batches),
    }
    found = [reason for reason, there in reasons.items() if there]
    if found:
        raise _other(found[0])


def _other(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"The Trainer is set to something that the described run has not: {what}. An epsilon for "
        "another run than the one that trains is no guarantee: leave it out."
    )


@contextmanager
def _silent(module: Any) -> Iterator[None]:
    """Nothing that is computed from single records is logged."""
    kept = {name: vars(module).get(name) for name in ("log", "log_dict")}
    for name in kept:
        vars(module)[name] = lambda *_, **__: None
    try:
        yield
    finally:
        for name, value in kept.items():
            del vars(module)[name]
            if value is not None:
                vars(module)[name] = value
