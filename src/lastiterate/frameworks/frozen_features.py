"""A network whose last linear layer alone is trained: that layer, and what reaches it.

Each record goes through the frozen part by itself. In a batch its features could depend on others:
on their length by padding, on their statistics, and in their last bits on how many there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.losses import LinearLoss

Array = NDArray[Any]
Step = Callable[[Any], Tensor]  # a batch -> its mean loss, as the trainer computes it

COMPARED = 8  # records that the criterion is compared on
_ALIKE = 1e-3  # relative: it may be computed in float32


def trained_layer(network: nn.Module) -> nn.Linear:
    """The one linear layer that is trained; raises where anything else is, or it is used twice.

    >>> trained_layer(nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 2)))
    Linear(in_features=4, out_features=2, bias=True)
    """
    trained = {id(p): name for name, p in network.named_parameters() if p.requires_grad}
    homes = [
        part
        for part in network.modules()
        if any(id(p) in trained for p in part._parameters.values())
    ]
    if len(homes) != 1 or type(homes[0]) is not nn.Linear or homes[0].out_features < 2:
        raise AssumptionError(
            f"What is trained is {sorted(trained.values())}, and the loss is convex only in one "
            "nn.Linear with a score per class: everything before it must stay as it is. Freeze "
            "the rest (parameters.requires_grad_(False)); for networks that are trained as a whole "
            "use lastiterate.torch.noisy_module_descent."
        )
    head = homes[0]
    if len([p for p in head.parameters() if p.requires_grad]) != len(list(head.parameters())):
        raise UnsupportedError("A part of the head is frozen: train its weight and its bias.")
    return head


def features_of(
    network: nn.Module, head: nn.Linear, step: Step, batches: Iterator[Any]
) -> NDArray[np.float64]:
    """What reaches the head, one row for each of these batches of one record."""
    seen: list[Tensor] = []
    rows: list[Array] = []
    before = digests(network)
    with _looking(head, seen), _evaluating(network), torch.no_grad():
        for one in batches:
            seen.clear()
            step(one)
            if len(seen) != 1 or seen[0].shape != (1, head.in_features):
                raise UnsupportedError(
                    "The head must see one vector of each record, once; it saw shapes "
                    f"{[tuple(x.shape) for x in seen]}. Pool what the network returns before the "
                    "head, and use the head once."
                )
            rows.append(seen[0][0].double().cpu().numpy())
    moved = changed(before, digests(network))
    if moved:
        raise AssumptionError(
            f"The buffer or weight {moved} changed while records went through the frozen network: "
            "later features depend on earlier records, and it would be released with them. Freeze "
            "it."
        )
    return np.stack(rows)


def digests(network: nn.Module) -> dict[str, str]:
    """A digest of every weight and buffer, by name."""
    found = {}
    for name, value in (*network.named_parameters(), *network.named_buffers()):
        bits = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found[name] = hashlib.sha256(bits.numpy().tobytes()).hexdigest()
    return found


def changed(before: dict[str, str], now: dict[str, str]) -> str:
    """What is not as it was, by name; empty if everything is."""
    return ", ".join(sorted(name for name in {*before, *now} if before.get(name) != now.get(name)))


def compare_criterion(
    network: nn.Module,
    head: nn.Linear,
    step: Step,
    batch: Any,
    features: Array,
    labels: Array,
    objective: LinearLoss,
) -> None:
    """Raise if the trainer's loss of this batch of the first records is not the objective's.

    At two places that do not depend on the data. What is certified does not rest on it: the engine
    trains the objective. It is to be what the script says.
    """
    count = min(COMPARED, len(labels))
    X, y = features[:count], labels[:count]
    if head.bias is not None:
        X = np.hstack([X, np.ones((count, 1))])
    rng, scale = np.random.default_rng(0), 1.0 / max(np.linalg.norm(X, axis=1).max(), 1e-9)
    kept = [p.detach().clone() for p in head.parameters()]
    try:
        for _ in range(2):
            theta = rng.normal(0.0, scale, (X.shape[1], head.out_features))
            put(head, theta)
            ours = X.T @ objective.slope(X @ theta, y) / count
            with _evaluating(network), torch.enable_grad():
                told = torch.autograd.grad(step(batch), list(head.parameters()), allow_unused=True)
            theirs = _joined([0 * p if g is None else g for g, p in zip(told, kept, strict=True)])
            if not np.linalg.norm(theirs - ours) <= _ALIKE * np.linalg.norm(ours):
                raise AssumptionError(
                    "The trainer's loss is not the mean cross-entropy of the head's scores: its "
                    "gradients are others, so something comes after the head or the criterion is "
                    "another one, and no theorem says that it is convex. Use "
                    "nn.functional.cross_entropy(head(features), labels)."
                )
    finally:
        with torch.no_grad():
            for p, value in zip(head.parameters(), kept, strict=True):
                p.copy_(value)


def put(head: nn.Linear, parameters: Array) -> None:
    """Set weight and bias from a table of (features and intercept) x scores."""
    table = torch.from_numpy(np.array(parameters))
    with torch.no_grad():
        head.weight.copy_(table[: head.in_features].T)
        if head.bias is not None:
            head.bias.copy_(table[-1])


def held(head: nn.Linear) -> dict[str, Array]:
    """The head's parameters by name, as doubles: what a certificate is bound to."""
    return {name: p.detach().double().cpu().numpy() for name, p in head.named_parameters()}


def _joined(parts: list[Tensor]) -> Array:
    """Weight (and bias) as one table of (features and intercept) x scores."""
    weight, *bias = [part.double().cpu().numpy() for part in parts]
    return np.vstack([weight.T, *bias])


@contextmanager
def _looking(head: nn.Linear, seen: list[Tensor]) -> Iterator[None]:
    handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Dropout and statistics of batches are off."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
