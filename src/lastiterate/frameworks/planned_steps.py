"""What an optimizer and its schedulers would do, read before anything runs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn, optim

from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.torch.plain_sgd import plain_sgd

Due = Callable[[int], Iterable[Any]]  # after update 1, 2, ...: the schedulers that step then


def weight_decay(optimizer: Any, head: nn.Linear) -> float:
    """The L2 term of plain gradient descent on the head; raises where it is anything else."""
    plain_sgd(optimizer)
    ours = {id(p) for p in head.parameters()}
    told = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    if told != ours:
        raise AssumptionError(
            "The optimizer does not train exactly the head: give it the head's parameters."
        )
    groups = [g for g in optimizer.param_groups if any(p.requires_grad for p in g["params"])]
    decays = {float(group["weight_decay"]) for group in groups}
    rates = {float(group["lr"]) for group in groups}
    if len(decays) != 1 or len(rates) != 1:
        raise UnsupportedError(
            "Weight and bias have different learning rates or weight decays, and the theorems are "
            "for one step size and one L2 term. Put them into one group of the optimizer (the "
            "Trainer of transformers makes two where weight_decay is not 0: pass an optimizer)."
        )
    return decays.pop()


def step_sizes(optimizer: Any, schedulers: list[Any], due: Due, steps: int) -> float | list[float]:
    """The learning rate of every update, by stepping the schedulers ahead, and back again.

    No data are seen meanwhile, so that the rates are public; a scheduler that waits for a metric
    is refused.
    """
    for scheduler in schedulers:
        if isinstance(scheduler, optim.lr_scheduler.ReduceLROnPlateau) or not isinstance(
            scheduler, optim.lr_scheduler.LRScheduler
        ):
            raise UnsupportedError(
                f"A {type(scheduler).__name__} chooses learning rates by what it sees on the way, "
                "which tells of the data. Use a schedule that is fixed before the run."
            )
    groups = [g for g in optimizer.param_groups if any(p.requires_grad for p in g["params"])]
    kept = [copy.deepcopy(scheduler.state_dict()) for scheduler in schedulers]
    before = [dict(group, params=None) for group in optimizer.param_groups]
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that no update was made yet
        try:
            for update in range(1, steps + 1):
                rates.append(float(groups[0]["lr"]))
                for scheduler in due(update):
                    scheduler.step()
        finally:
            for scheduler, state in zip(schedulers, kept, strict=True):
                scheduler.load_state_dict(state)
            for group, state in zip(optimizer.param_groups, before, strict=True):
                group.update({key: value for key, value in state.items() if key != "params"})
    return rates[0] if len(set(rates)) == 1 else rates
