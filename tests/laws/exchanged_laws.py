"""Exact laws of shuffled and reshuffled linear runs: all arrangements of a few records.

The update is x -> c'_k x - (eta_k / b) sum of the batch's gradients + N(0, nu_k^2) with constant
gradients of length at most K, so the last iterate is a mixture of Gaussians over arrangements.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from exact_laws import Pair

from lastiterate import Loss, Reshuffled, Shuffled, Training


@dataclass(frozen=True)
class Instance:
    """A description, and the exact pair of laws of one run that it covers."""

    training: Training
    loss: Loss
    pair: Pair


def arrangements(records: int, size: int) -> list[tuple[int, ...]]:
    """The batch of every record in each arrangement, -1 where it is dropped; all equally likely."""
    batches = records // size
    places = [k // size if k // size < batches else -1 for k in range(records)]
    return sorted(set(itertools.permutations(places)))


def instance(
    rng: np.random.Generator,
    adjacency: str,
    share: float = 1.0,
    joined: int = 0,
    left: int | None = None,
) -> Instance:
    """A random run of a few records, whose other gradients often oppose the record's.

    ``share``: the record's own bound, in units of the run's.  Before ``first_step`` and from
    ``last_step`` on its gradient is 0.
    """
    size = int(rng.choice([1, 1, 2]))
    batches = int(rng.integers(2, 6 if size == 1 else 4))
    records = size * batches + (int(rng.integers(0, size)) if size > 1 else 0)
    steps = int(rng.integers(1, 3 * batches + 1))
    norm = float(rng.uniform(0.3, 3.0))
    if rng.random() < 0.4:
        etas, noise = np.full(steps, 0.5), np.full(steps, float(rng.uniform(0.3, 2.0)))
        schedule = {"step_size": 0.5, "noise": float(noise[0])}
    else:
        etas, noise = rng.uniform(0.1, 1.0, steps), rng.uniform(0.3, 2.0, steps)
        schedule = {"step_size": etas.tolist(), "noise": noise.tolist()}
    ridge = float(rng.choice([0.0, 0.2, 0.9]))
    training = Training(
        records=records,
        steps=steps,
        gradient_norm=norm,
        batches=Shuffled(size),
        adjacency=adjacency,
        **schedule,
    )
    c = 1 - etas * ridge
    multiplier = c * rng.choice([1.0, 1.0, 1.0, 0.5, 0.0, rng.uniform()], steps)
    others = norm * rng.choice([-1.0, -1.0, -1.0, 0.0, 1.0, rng.uniform(-1, 1)], records - 1)
    if rng.random() < 0.5:
        others[:] = -norm
    mine = share * norm, (-share * norm if adjacency == "replace" else 0.0)
    carried = np.append(np.cumprod(multiplier[::-1])[::-1][1:], 1.0)
    spread = float(np.sqrt(np.sum((carried * noise) ** 2)))
    times = np.arange(steps)
    present = (times >= joined) & (times < (steps if left is None else left))
    means = []
    for own in mine:
        law = []
        for place, *places in arrangements(records, size):
            totals = np.zeros(batches)
            for other, gradient in zip(places, others, strict=True):
                if other >= 0:
                    totals[other] += gradient
            summed = totals[times % batches] + own * (present & (times % batches == place))
            law.append(-np.sum(carried * etas * summed) / size)
        means.append(np.array(law) / spread)
    weights = np.full(len(means[0]), 1 / len(means[0]))
    return Instance(training, Loss(smoothness=0.5, regularization=ridge), Pair(*means, weights))


def reshuffled_instance(
    rng: np.random.Generator, adjacency: str, share: float = 1.0, opposed: float = 0.5
) -> Instance:
    """A random run of a few records with a new partition in every epoch.

    ``share``: the record's own bound, in units of the run's. ``opposed``: how often all other
    gradients oppose the record's.
    """
    size = int(rng.choice([1, 1, 1, 2]))
    batches = int(rng.integers(2, 5)) if size == 1 else 2
    records = size * batches + (int(rng.integers(0, size)) if size > 1 else 0)
    most = {2: 4, 3: 3, 4: 2, 5: 1}[records]  # epochs that are enumerated
    if size == 1 and rng.random() < 0.1:
        batches = records = 5
        most = 1
    steps = int(rng.integers(1, most * batches + 1))
    if rng.random() < 0.4:
        steps = most * batches
    norm = float(rng.uniform(0.3, 3.0))
    if rng.random() < 0.4:
        etas, noise = np.full(steps, 0.5), np.full(steps, float(rng.uniform(0.3, 2.0)))
        schedule = {"step_size": 0.5, "noise": float(noise[0])}
    else:
        etas, noise = rng.uniform(0.1, 1.0, steps), rng.uniform(0.3, 2.0, steps)
        schedule = {"step_size": etas.tolist(), "noise": noise.tolist()}
    ridge = float(rng.choice([0.0, 0.2, 0.9]))
    training = Training(
        records=records,
        steps=steps,
        gradient_norm=norm,
        batches=Reshuffled(size),
        adjacency=adjacency,
        **schedule,
    )
    multiplier = (1 - etas * ridge) * rng.choice([1.0, 1.0, 1.0, 0.5, 0.0, rng.uniform()], steps)
    others = norm * rng.choice([-1.0, -1.0, -1.0, 0.0, 1.0, rng.uniform(-1, 1)], records - 1)
    if rng.random() < opposed:
        others[:] = -norm
    mine = share * norm, (-share * norm if adjacency == "replace" else 0.0)
    carried = np.append(np.cumprod(multiplier[::-1])[::-1][1:], 1.0)
    spread = float(np.sqrt(np.sum((carried * noise) ** 2)))
    pushes = carried * etas / size / spread
    means, places = [], arrangements(records, size)
    for own in mine:
        gradients, law = np.append(own, others), np.zeros(1)
        for first in range(0, steps, batches):
            push = pushes[first : first + batches]
            used = np.array(places)[:, :, None] == np.arange(len(push))
            law = np.add.outer(law, -(gradients @ used) @ push).ravel()
        means.append(law)
    weights = np.full(len(means[0]), 1 / len(means[0]))
    return Instance(training, Loss(smoothness=0.5, regularization=ridge), Pair(*means, weights))
