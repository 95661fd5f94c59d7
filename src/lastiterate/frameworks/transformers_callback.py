"""A callback for the Trainer of transformers: its linear head, with a certificate."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import TrainerCallback

from lastiterate.errors import UnsupportedError
from lastiterate.frameworks.private_head import Plan, PrivateHead


class TransformersPrivateHead(PrivateHead, TrainerCallback):  # type: ignore[misc]
    """Trains the linear head of a model of transformers with a promise, and certifies it.

    ``trainer.train()`` then means: everything but the classifier is frozen, and that is trained
    from 0 by this library's engine, as the arguments, the loader, the optimizer and its schedule
    say, with the noise that (epsilon, delta) needs. The Trainer makes no update of its own; it
    still computes the loss of one batch, and what it reports of that is not covered.

    Set ``optim="sgd"``, ``max_grad_norm=0`` and ``dataloader_drop_last=True``.
    Arguments are those of `LightningPrivateHead`.

    >>> TransformersPrivateHead(epsilon=1.0, delta=1e-5, feature_bound=1.0)  # doctest: +SKIP
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        """Everything happens here; then the Trainer is told to stop."""
        _refuse(args, state)
        network = given["model"]
        # accelerate wraps what it prepares
        optimizer = getattr(given["optimizer"], "optimizer", given["optimizer"])
        scheduler = getattr(given["lr_scheduler"], "scheduler", given["lr_scheduler"])

        def loss(batch: Any) -> Tensor:
            moved = {name: value.to(network.device) for name, value in batch.items()}
            mean: Tensor = network(**moved).loss
            return mean

        plan = Plan(
            network,
            given["train_dataloader"],
            optimizer,
            [scheduler],
            lambda update: [scheduler],
            int(state.max_steps),
            loss,
            lambda batch: batch["labels"],
        )
        self._hand_over(plan)
        control.should_training_stop = True
        return control

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """No update of the Trainer's own."""
        self._no_update()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Certificate and report."""
        self._end()


def _refuse(args: Any, state: Any) -> None:
    """Whatever the engine would not run as the Trainer does."""
    reasons = {
        "several processes": args.world_size != 1 or args.n_gpu > 1,
        "gradient_accumulation_steps": args.gradient_accumulation_steps != 1,
        "max_grad_norm (it clips the sum of a batch, which bounds no record; feature_bound does): "
        "set it to 0": bool(args.max_grad_norm),
        "label_smoothing_factor": bool(args.label_smoothing_factor),
        "a run that goes on from a checkpoint": state.global_step > 0,
        "group_by_length": bool(getattr(args, "group_by_length", False)),
    }
    found = [reason for reason, there in reasons.items() if there]
    if found:
        raise UnsupportedError(
            f"The Trainer is set to something that the described run has not: {found[0]}. An "
            "epsilon for another run than the one that trains is no guarantee: leave it out."
        )
