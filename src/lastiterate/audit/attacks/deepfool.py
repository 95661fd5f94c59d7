r"""Heller & Fetaya's crafted record: pushed over the decision boundary of every reference model.

Heller & Fetaya 2022, section V: find x0 on whose label all reference models agree, move it by
DeepFool (Moosavi-Dezfooli et al. 2016) until all of them misclassify it, keep its label. Models
trained on it learn the label within a few epochs, others do not.

A step of DeepFool at x goes to the nearest linearised boundary: with f the logits, y the label,
over k ≠ y the smallest |f_k − f_y|/‖w‖, w = ∇f_k − ∇f_y, gives the move (|f_k − f_y|/‖w‖²)·w.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.errors import TargetError

Array = NDArray[np.float64]
Logits = Callable[[Array], tuple[Array, Array]]
"""x -> the logits (classes,) and their gradients in x (classes, *x.shape)."""


@dataclass(frozen=True)
class Crafted:
    """The record that was made, and the one it replaces."""

    canary: Array
    label: int
    original: Array
    record: int


def craft(
    references: Sequence[Logits],
    X: ArrayLike,
    *,
    overshoot: float = 0.02,
    rounds: int = 200,
    low: float = -np.inf,
    high: float = np.inf,
    tries: int = 50,
) -> Crafted:
    """A canary from the first record of ``X`` on which the references agree and that can be moved.

    Args:
        references: models trained without the record (see `torch_logits`).
        X: candidates, one row each.
        overshoot: how far beyond the boundary to go.
        rounds: passes over the references before a candidate is given up.
        low, high: the range of a feature.
        tries: candidates that are tried.

    >>> weights = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> made = craft([lambda x: (weights @ x, weights)], np.array([[0.5, 0.3]]))
    >>> made.label, made.canary.round(2).tolist()
    (0, [-0.01, 0.3])
    """
    tried = 0
    for record, x0 in enumerate(np.asarray(X, float)):
        labels = {int(np.argmax(model(x0)[0])) for model in references}
        if len(labels) != 1:
            continue
        label = labels.pop()
        moved = _over_all_boundaries(references, x0, label, overshoot, rounds, low, high)
        if moved is not None:
            return Crafted(moved, label, x0, record)
        tried += 1
        if tried == tries:
            break
    raise TargetError(
        f"No record could be pushed over the boundary of all {len(references)} reference models "
        f"({tried} were tried on which they agree). Use fewer references or more rounds."
    )


def _over_all_boundaries(
    references: Sequence[Logits],
    x0: Array,
    label: int,
    overshoot: float,
    rounds: int,
    low: float,
    high: float,
) -> Array | None:
    x = x0.copy()
    for _ in range(rounds):
        fooled = True
        for model in references:
            logits, slopes = model(x)
            if int(np.argmax(logits)) == label:
                fooled = False
                x = np.clip(x + (1 + overshoot) * _step(logits, slopes, label), low, high)
        if fooled:
            return x
    return None


def _step(logits: Array, slopes: Array, label: int) -> Array:
    """To the nearest linearised boundary."""
    others = np.delete(np.arange(len(logits)), label)
    w = (slopes[others] - slopes[label]).reshape(len(others), -1)
    gaps = np.abs(logits[others] - logits[label]) + 1e-6
    squares = np.maximum(np.einsum("ij,ij->i", w, w), 1e-12)
    k = int(np.argmin(gaps / np.sqrt(squares)))
    return np.asarray((gaps[k] / squares[k] * w[k]).reshape(slopes.shape[1:]))


def torch_logits(network: Callable[[Any], Any], device: Any = None) -> Logits:
    """A PyTorch function from a batch (1, ...) to logits (1, classes)."""
    import torch

    def one(point: Any) -> Any:
        return network(point[None])[0]

    def logits(x: Array) -> tuple[Array, Array]:
        point = torch.as_tensor(x, dtype=torch.float32, device=device)
        point.requires_grad_()
        values = one(point)
        slopes = [torch.autograd.grad(value, point, retain_graph=True)[0] for value in values]
        return (
            values.detach().cpu().double().numpy(),
            torch.stack(slopes).cpu().double().numpy(),
        )

    return logits
