r"""Many networks of any architecture at once: parameters stacked, `torch.func.vmap` over models.

    θ ← θ − step_size·(Σ_{i in batch} g_i(θ)/batch + regularization·θ) + noise·N(0, I)

with batches drawn uniformly with replacement by each model for itself. With ``clip`` every
record's gradient is shortened to it (vmap over models and over records).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from lastiterate.errors import AssumptionError

Tensor = Any


class StackedCohort:
    """Trains cohorts of networks; a dataset is (X, y).

    What it returns per model are class probabilities at the probes: (looks, probes, classes).

    Args:
        build: makes one network with random weights (torch's global generator is seeded for it).
        probes: inputs at which the models are observed.
        steps, step_size, batch: of the updates.
        noise: standard deviation added to the parameters in one update.
        clip: bound on each record's gradient.
        regularization: coefficient of the data-free L2 term.
        every: updates between two observations; by default only the end is observed.
        loss: (logits of one record, label) -> number.
        device: where to train.
    """

    def __init__(
        self,
        build: Callable[[], torch.nn.Module],
        probes: Any,
        *,
        steps: int,
        step_size: float,
        noise: float,
        batch: int,
        clip: float | None = None,
        regularization: float = 0.0,
        every: int | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
        device: str = "cpu",
    ) -> None:
        self.build, self.probes = build, np.asarray(probes, np.float32)
        self.steps, self.every = steps, every or steps
        self.step_size, self.noise, self.batch = step_size, noise, batch
        self.clip, self.regularization = clip, regularization
        self.loss, self.device = loss, device

    def __call__(self, dataset: Any, seed: int) -> Any:
        """One model's probabilities."""
        return self.cohort(dataset, [seed])[0]

    def cohort(self, dataset: Any, seeds: Sequence[int]) -> Any:
        """(models, looks, probes, classes): what the probes showed."""
        X = torch.as_tensor(np.asarray(dataset[0], np.float32), device=self.device)
        y = torch.as_tensor(np.asarray(dataset[1]), device=self.device).long()
        probes = torch.as_tensor(self.probes, device=self.device)
        networks = [self._built(seed) for seed in seeds]
        stacked: Any = stack_module_state
        parameters, buffers = stacked(networks)
        parameters = {name: value.detach() for name, value in parameters.items()}
        skeleton = networks[0]
        generator = torch.Generator(device=self.device).manual_seed(seeds[0])
        looks = []

        def logits(p: Tensor, b: Tensor, x: Tensor) -> Tensor:
            return functional_call(skeleton, (p, b), (x,))

        def one_loss(p: Tensor, b: Tensor, x: Tensor, label: Tensor) -> Tensor:
            return self.loss(logits(p, b, x[None])[0], label)

        def batch_loss(p: Tensor, b: Tensor, x: Tensor, labels: Tensor) -> Tensor:
            return vmap(self.loss)(logits(p, b, x), labels).sum()

        transform: Any = grad
        if self.clip is None:
            gradients = vmap(transform(batch_loss))
        else:
            each = vmap(transform(one_loss), in_dims=(None, None, 0, 0))

            def clipped(p: Tensor, b: Tensor, x: Tensor, labels: Tensor) -> Tensor:
                return self._clipped(each(p, b, x, labels))

            gradients = vmap(clipped)
        with torch.no_grad():
            for k in range(1, self.steps + 1):
                rows = torch.randint(
                    len(X), (len(seeds), self.batch), generator=generator, device=self.device
                )
                slopes = gradients(parameters, buffers, X[rows], y[rows])
                for name, value in parameters.items():
                    value.mul_(1 - self.step_size * self.regularization)
                    value.sub_(slopes[name], alpha=self.step_size / self.batch)
                    draw = torch.randn(value.shape, generator=generator, device=self.device)
                    value.add_(draw, alpha=self.noise)
                if k % self.every == 0 or k == self.steps:
                    seen = vmap(logits, in_dims=(0, 0, None))(parameters, buffers, probes)
                    looks.append(torch.softmax(seen, -1).double().cpu().numpy())
        found = np.stack(looks, axis=1)
        if not np.isfinite(found).all():
            raise AssumptionError("Networks diverged: use a smaller step_size.")
        return found

    def _built(self, seed: int) -> torch.nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build().to(self.device)

    def _clipped(self, each: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sum over records of gradients no longer than ``clip``."""
        square = sum(g.flatten(1).pow(2).sum(1) for g in each.values())
        assert isinstance(square, torch.Tensor)
        assert self.clip is not None
        scale = self.clip / square.sqrt().clamp(min=self.clip)
        return {name: torch.tensordot(scale, g, dims=1) for name, g in each.items()}
