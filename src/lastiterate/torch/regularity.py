"""How regular a network looks along its training: estimates, never guarantees.

After Chien & Li 2025, appendix A.13: around every iterate of several runs, draw points in a
ball and take the largest ratio ‖∇f(w) − ∇f(w')‖ / ‖w − w'‖^exponent. A maximum over samples is
below the true constant, so the `Loss` says "estimated": it can be accounted with, to see what
would follow, and can never be certified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lastiterate._internal.progress import shown
from lastiterate.description import Loss
from lastiterate.description.fields import integer, number


@dataclass(frozen=True)
class HolderEstimate:
    """The largest ratio that was seen for every exponent.

    Attributes:
        losses: exponent -> what was estimated, as a `Loss` of provenance "estimated".
        longest_gradient: the longest gradient that was seen, before any clipping.
        points: how many pairs of points were compared.
    """

    losses: dict[float, Loss]
    longest_gradient: float
    points: int


def estimate_holder(
    model: Callable[[], nn.Module],
    loss: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Tensor, Tensor],
    exponents: Iterable[float] = (0.5, 0.75, 1.0),
    *,
    step_size: float = 0.1,
    steps: int = 200,
    clip: float = 1.0,
    points: int = 100,
    radius: float = 1.0,
    smallest: float | None = None,
    initialisations: int = 20,
    seed: int | None = None,
) -> HolderEstimate:
    """Estimate how fast the gradient of the mean loss changes, along full-batch descent.

    Args:
        model: makes a freshly initialised network; called once per initialisation.
        loss: (outputs, targets) of all records -> their mean loss.
        data: (inputs, targets). The mean over these records is what a full-batch step sees; an
            estimate from private records is itself private, so use public ones.
        exponents: of the distance, between 0 and 1.
        step_size, steps, clip: of the descent; the mean gradient is shortened to ``clip``.
        points, radius: how many are compared with every iterate, uniform in a ball around it. In
            many dimensions nearly all of a ball lies near its rim, so with the paper's radius of 1
            all exponents get the same constant;
        smallest: draws distances between this and ``radius`` instead, evenly on a logarithmic
            scale, which tells exponents apart.
        initialisations: runs over which the maximum is taken.
        seed: of the initialisations and the points.

    >>> data = torch.randn(20, 3), torch.arange(20) % 2
    >>> found = estimate_holder(lambda: nn.Linear(3, 2), nn.CrossEntropyLoss(), data, [1.0],
    ...                         steps=3, initialisations=2)
    >>> found.losses[1.0].provenance
    'estimated'
    """
    wanted = [
        number(
            "exponents",
            one,
            at_least=0.0,
            at_most=1.0,
        )
        for one in exponents
    ]
    integer("points", points)
    integer("initialisations", initialisations)
    number("radius", radius, above=0.0)
    if smallest is not None:
        number("smallest", smallest, above=0.0, at_most=radius)
    inputs, targets = data
    worst = dict.fromkeys(wanted, 0.0)
    longest = 0.0
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        for _ in shown("initialisations", 0, initialisations):
            gradient, weights = _flat(model(), loss, inputs, targets)
            many = torch.func.vmap(gradient)
            for _ in range(steps):
                around = weights + _around(points, len(weights), radius, smallest).to(weights)
                all_gradients = many(torch.cat([weights[None], around]))
                here = all_gradients[0]
                change = torch.linalg.vector_norm(all_gradients[1:] - here, dim=1)
                distance = torch.linalg.vector_norm(around - weights, dim=1)
                for exponent in wanted:
                    ratio = float((change / distance**exponent).max())
                    worst[exponent] = max(worst[exponent], ratio)
                longest = max(longest, float(torch.linalg.vector_norm(all_gradients, dim=1).max()))
                length = float(torch.linalg.vector_norm(here))
                weights = weights - step_size * here * min(1.0, clip / max(length, 1e-30))
    losses = {
        exponent: Loss.holder(constant=constant, exponent=exponent, provenance="estimated")
        for exponent, constant in worst.items()
    }
    return HolderEstimate(losses, longest, initialisations * steps * points)


def _flat(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The gradient of the mean loss as a function of one vector, and where it starts."""
    named = {name: p.detach() for name, p in module.named_parameters()}
    sizes = [p.numel() for p in named.values()]

    def value(vector: Tensor) -> Tensor:
        parts = torch.split(vector, sizes)
        shaped = {
            name: part.reshape(p.shape)
            for (name, p), part in zip(named.items(), parts, strict=True)
        }
        return loss(torch.func.functional_call(module, shaped, (inputs,)), targets)

    gradient: Callable[[Tensor], Tensor] = torch.func.grad(value)
    return gradient, torch.cat([p.reshape(-1) for p in named.values()])


def _around(points: int, dimension: int, radius: float, smallest: float | None) -> Tensor:
    """Uniform in a ball (radius·u^(1/dimension) away), or at distances even on a log scale."""
    direction = torch.randn(points, dimension)
    direction /= torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    u = torch.rand(points, 1)
    if smallest is None:
        return direction * (radius * u ** (1 / dimension))
    return direction * (radius * (smallest / radius) ** u)
