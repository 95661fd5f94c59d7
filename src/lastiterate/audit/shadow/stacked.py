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

from lastiterate.audit.shadow.graphs import recorded
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
        device: None: the GPU if there is one, where an update is one CUDA graph.
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
        device: Any = None,
    ) -> None:
        self.build, self.probes = build, np.asarray(probes, np.float32)
        self.steps, self.every = steps, every or steps
        self.step_size, self.noise, self.batch = step_size, noise, batch
        self.clip, self.regularization = clip, regularization
        self.loss = loss
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")

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
        update = self.update(networks[0], parameters, buffers, (X, y), seeds[0])
        seen = vmap(_logits(networks[0]), in_dims=(0, 0, None))
        looks = []
        with torch.no_grad():
            for k in range(1, self.steps + 1):
                update()
                if k % self.every == 0 or k == self.steps:
                    shown = torch.softmax(seen(parameters, buffers, probes), -1)
                    looks.append(shown.double().cpu().numpy())
        found = np.stack(looks, axis=1)
        if not np.isfinite(found).all():
            raise AssumptionError("Networks diverged: use a smaller step_size.")
        return found

    def update(
        self,
        skeleton: torch.nn.Module,
        parameters: dict[str, Tensor],
        buffers: dict[str, Tensor],
        dataset: tuple[Tensor, Tensor],
        seed: int,
    ) -> Callable[[], None]:
        """One simultaneous update of all networks, as a function; a CUDA graph on a GPU."""
        X, y = dataset
        models = len(next(iter(parameters.values())))
        gradients = vmap(self._summed(_logits(skeleton)))
        # On a GPU the default generator, with a state of the graph; elsewhere a private one.
        generator = None if X.is_cuda else torch.Generator(device=X.device).manual_seed(seed)

        def update() -> None:
            rows = torch.randint(len(X), (models, self.batch), generator=generator, device=X.device)
            slopes = gradients(parameters, buffers, X[rows], y[rows])
            for name, value in parameters.items():
                value.mul_(1 - self.step_size * self.regularization)
                value.sub_(slopes[name], alpha=self.step_size / self.batch)
                draw = torch.randn(value.shape, generator=generator, device=X.device)
                value.add_(draw, alpha=self.noise)

        with torch.no_grad():
            return recorded(update, list(parameters.values()), seed) if X.is_cuda else update

    def _summed(self, logits: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """(parameters, buffers, batch, labels) of one network -> its summed gradients."""

        def one_loss(p: Tensor, b: Tensor, x: Tensor, label: Tensor) -> Tensor:
            return self.loss(logits(p, b, x[None])[0], label)

        def batch_loss(p: Tensor, b: Tensor, x: Tensor, labels: Tensor) -> Tensor:
            return vmap(self.loss)(logits(p, b, x), labels).sum()

        transform: Any = grad
        if self.clip is None:
            whole: Callable[..., Tensor] = transform(batch_loss)
            return whole
        each = vmap(transform(one_loss), in_dims=(None, None, 0, 0))
        return lambda p, b, x, labels: self._clipped(each(p, b, x, labels))

    def _built(self, seed: int) -> torch.nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs as well
            return self.build().to(self.device)

    def _clipped(self, each: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sum over records of gradients no longer than ``clip``."""
        square = sum(g.flatten(1).pow(2).sum(1) for g in each.values())
        assert isinstance(square, torch.Tensor)
        assert self.clip is not None
        scale = self.clip / square.sqrt().clamp(min=self.clip)
        return {name: torch.tensordot(scale, g, dims=1) for name, g in each.items()}


def _logits(skeleton: torch.nn.Module) -> Callable[..., Tensor]:
    return lambda p, b, x: functional_call(skeleton, (p, b), (x,))
