"""Hundreds of private runs of a linear model as one tensor program: a column of parameters each.

`poisson_runs` is DP-SGD as the field runs it (Poisson batches, per-record clipping, momentum),
`hidden_runs` the updates of a `Training` of this library with shuffled or full batches. Runs share
their batches, never their noise. Features are (splits, records, columns), and so are all results'
first axes. Runs that are done before the others stand still.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Problem:
    """Training and test records of some splits; numbers, or whole numbers for classes."""

    X: Tensor
    y: Tensor
    X_new: Tensor
    y_new: Tensor
    kind: str  # "binary", "classes" or "numbers"
    outputs: int

    @classmethod
    def of(cls, splits: list[Any], kind: str, device: str, ones: bool = True) -> Problem:
        """From tuples as of `Task.split`, and a column of ones."""
        parts = []
        for part in range(4):
            table = np.stack([split[part] for split in splits])
            if part < 2 and ones:
                table = np.concatenate([table, np.ones((*table.shape[:2], 1))], axis=2)
            whole = part >= 2 and kind == "classes"
            parts.append(torch.tensor(table, device=device).to(torch.long if whole else None))
            if not whole:
                parts[-1] = parts[-1].float()
        X, X_new, y, y_new = parts
        outputs = int(y.max()) + 1 if kind == "classes" else 1
        return cls(X, y, X_new, y_new, kind, outputs)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """The derivative of the plain loss; scores are (splits, records, runs, outputs)."""
        if self.kind == "classes":
            slope = torch.softmax(scores, -1)
            where = y[:, :, None, None].expand(*scores.shape[:3], 1)
            return slope.scatter_add_(-1, where, -torch.ones_like(where, dtype=slope.dtype))
        if self.kind == "binary":
            scores = torch.sigmoid(scores)
        return scores - y[:, :, None, None]

    def scores(self, W: Tensor) -> Tensor:
        """Accuracy or R squared on the test records: (splits, runs)."""
        runs = W.shape[2] // self.outputs
        found = (self.X_new @ W).unflatten(2, (runs, self.outputs))
        if self.kind == "classes":
            return (found.argmax(-1) == self.y_new[:, :, None]).float().mean(1)
        y = self.y_new[:, :, None]
        if self.kind == "binary":
            return ((found[..., 0] > 0) == (y > 0.5)).float().mean(1)
        error = ((found[..., 0] - y) ** 2).mean(1)
        return 1 - error / ((y - y.mean(1, keepdim=True)) ** 2).mean(1)


def poisson_runs(
    problem: Problem, rate: float, runs: dict[str, Any], chosen: list[int], seed: int
) -> Tensor:
    """DP-SGD with every iterate public; each run has steps, size, clip, momentum and noise.

    The update is in units of the clipping length: size · (sum of clipped gradients / clip + noise
    · N(0, I)) / (rate · records).
    """
    X, y, k = problem.X, problem.y, problem.outputs
    splits, n, d = X.shape
    draws = torch.Generator(X.device).manual_seed(seed)
    told = {name: torch.tensor(np.take(runs[name], chosen), device=X.device) for name in runs}
    clip = told["clip"].float()
    size, momentum, noise, count = (
        told[name].float().repeat_interleave(k) for name in ("size", "momentum", "noise", "steps")
    )
    lengths = X.norm(dim=2)
    W = torch.zeros(splits, d, len(size), device=X.device)
    V = torch.zeros_like(W)
    expected = rate * n
    largest = min(n, math.ceil(expected + 6 * math.sqrt(expected) + 6))
    for step in range(int(count.max())):
        batch, labels, length = X, y, lengths
        if rate < 1:
            coins = torch.rand(splits, n, generator=draws, device=X.device)
            coins, place = coins.topk(largest, dim=1, largest=False)
            batch = X.gather(1, place[:, :, None].expand(-1, -1, d))
            labels, length = y.gather(1, place), lengths.gather(1, place)
            chosen = coins < rate
        slope = problem.slope((batch @ W).unflatten(2, (-1, k)), labels)
        pull = slope.norm(dim=3) if k > 1 else slope[..., 0].abs()
        factor = 1 / torch.maximum(clip, pull.mul_(length[:, :, None]))
        if rate < 1:
            factor *= chosen[:, :, None]
        gradient = batch.mT @ slope.mul_(factor[..., None]).flatten(2)
        gradient += noise * torch.randn(W.shape, generator=draws, device=X.device)
        V = momentum * V + gradient / expected
        W -= size * (step < count) * V
    return W


def hidden_runs(
    problem: Problem, batches: int, every: list[Any], chosen: list[int], seed: int
) -> Tensor:
    """The updates of (`Training`, `Loss`, cap of the loss) with batches that pass over the data."""
    runs = [every[i] for i in chosen]
    X, y, k = problem.X, problem.y, problem.outputs
    splits, n, d = X.shape
    draws = torch.Generator(X.device).manual_seed(seed)

    def told(values: Any, repeats: int = k) -> Tensor:
        return torch.tensor(values, device=X.device).float().repeat_interleave(repeats, -1)

    sizes, noises = np.zeros((2, max(run.steps for run, *_ in runs), len(runs)))
    for place, (run, *_) in enumerate(runs):
        sizes[: run.steps, place], noises[: run.steps, place] = run.step_sizes, run.noises
    size, noise, steps = told(sizes), told(noises), told([run.steps for run, *_ in runs])
    window = told([getattr(run.release, "window", 1) for run, *_ in runs])
    shrink, cap = told([loss.regularization for _, loss, _ in runs]), told([c for *_, c in runs], 1)
    W = torch.zeros(splits, d, len(runs) * k, device=X.device)
    kept = torch.zeros_like(W)
    length = n // batches
    order = torch.rand(splits, n, generator=draws, device=X.device).argsort(1)
    X, y = X.gather(1, order[:, :, None].expand(-1, -1, d)), y.gather(1, order)
    for step in range(len(size)):
        part = slice(step % batches * length, (step % batches + 1) * length)
        slope = problem.slope((X[:, part] @ W).unflatten(2, (-1, k)), y[:, part])
        wrong = slope.abs().sum(3) / min(k, 2)  # what the wrong classes have
        slope *= (cap / torch.maximum(wrong, cap))[..., None]
        W = W - size[step] * (X[:, part].mT @ slope.flatten(2) / length + shrink * W)
        W += noise[step] * torch.randn(W.shape, generator=draws, device=X.device)
        kept += W * ((step < steps) & (step >= steps - window)) / window
    return kept


def best_of(
    train: Callable[[list[int], int], Tensor], problem: Problem, groups: list[Any], again: int
) -> dict[Any, tuple[int, float]]:
    """For each group of runs the best on the test score, and its score with new noise.

    The setting is picked on the test score; the score that counts is the mean of further runs of
    it, so that the luckiest noise of hundreds is not taken for a method.
    """
    first = problem.scores(train(list(range(len(groups))), 0)).nan_to_num(-9.0, -9.0, -9.0).mean(0)
    chosen = {
        group: max((i for i, g in enumerate(groups) if g == group), key=lambda i: float(first[i]))
        for group in dict.fromkeys(groups)
    }
    repeated = [run for run in chosen.values() for _ in range(again)]
    more = problem.scores(train(repeated, 1)).nan_to_num(-9.0, -9.0, -9.0).mean(0)
    means = more.view(-1, again).mean(1).tolist()
    return {group: (run, mean) for (group, run), mean in zip(chosen.items(), means, strict=True)}
