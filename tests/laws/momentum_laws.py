"""Exact laws of linear runs with momentum.

Every record's loss is (λ/2)θ² + a_i θ, so parameters and velocity follow one linear recursion; what
is released is Gaussian given the hidden batches, or a mixture of Gaussians over them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from sampled_laws import Mixtures

from lastiterate import Cyclic, FullBatch, Poisson, RandomAllocation, Reshuffled, Shuffled


def reactions(run, curvature, release=(1.0,)):
    """How far an impulse at each step moves what is released: forwards, one impulse at a time."""
    answer = []
    for pushed in range(run.steps):
        theta = velocity = total = 0.0
        for k, eta in enumerate(run.step_sizes.tolist()):
            push = 1.0 if k == pushed else 0.0
            velocity = run.momentum * velocity + eta * curvature * theta - push
            theta -= velocity
            place = k - run.steps + len(release)
            total += theta * release[place] if place >= 0 else 0.0
        answer.append(total)
    return np.array(answer)


def released_pair(run, curvature, release=(1.0,)):
    """The laws of what is released when one record's a_i changes by the whole sensitivity."""
    moved = reactions(run, curvature, release)
    deviation = math.sqrt(float(np.sum((moved * run.noises) ** 2)))
    pushes = moved * run.step_sizes * run.impulse / deviation
    means, weights = _hidden_means(run, pushes)
    if run.adjacency == "replace":  # the record pushes one way, its replacement the other
        return Mixtures(means / 2, weights, -means / 2, weights)
    return Mixtures(means, weights, np.zeros(1), np.ones(1))


def _hidden_means(run, pushes):
    batches, steps = run.batches, run.steps
    if isinstance(batches, FullBatch):
        return np.array([pushes.sum()]), np.ones(1)
    if isinstance(batches, (Poisson,)) or batches.name == "without-replacement":
        rate = getattr(batches, "rate", None) or batches.size / run.records
        used = np.array(list(itertools.product((0, 1), repeat=steps)))
        return used @ pushes, np.prod(np.where(used, rate, 1 - rate), axis=1)
    per_epoch = run.batches_per_epoch
    epochs = -(-steps // per_epoch)
    anew = isinstance(batches, Reshuffled | RandomAllocation)
    if anew and not getattr(batches, "same_every_epoch", False):
        places = list(itertools.product(range(per_epoch), repeat=epochs))
    else:
        places = [(j,) * epochs for j in range(per_epoch)]
    used = np.zeros((len(places), steps))
    for row, place in zip(used, places, strict=True):
        for epoch, j in enumerate(place):
            if epoch * per_epoch + j < steps:
                row[epoch * per_epoch + j] = 1.0
    means = used @ pushes
    if isinstance(batches, Cyclic):
        means = means[[np.argmax(np.abs(means))]]
    assert isinstance(batches, (Cyclic, Shuffled, Reshuffled, RandomAllocation))
    return means, np.full(len(means), 1 / len(means))
