"""Exact laws of runs on an interval with random batches: every batch is enumerated.

x -> clip(x - eta (sum of the batch's gradients / divisor + l2 x) + N(0, nu^2)) on [0, D]. A scheme
is a list of (weight, batches of the next steps): one step for fresh batches, an epoch for others.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import ndtr

from lastiterate import (
    FullBatch,
    Poisson,
    RandomAllocation,
    Reshuffled,
    Shuffled,
    WithoutReplacement,
)


def blocks(batches, records):
    """(weight, batches) of all outcomes of one step or epoch."""
    everyone = range(records)
    if isinstance(batches, FullBatch):
        return [(1.0, [frozenset(everyone)])]
    if isinstance(batches, Poisson):
        found = []
        for size in range(records + 1):
            weight = batches.rate**size * (1 - batches.rate) ** (records - size)
            found += [(weight, [frozenset(x)]) for x in itertools.combinations(everyone, size)]
        return found
    size, count = batches.size, records // batches.size
    if isinstance(batches, WithoutReplacement):
        subsets = list(itertools.combinations(everyone, size))
        return [(1 / len(subsets), [frozenset(x)]) for x in subsets]
    if isinstance(batches, RandomAllocation):
        picks = list(itertools.product(range(count), repeat=records))
        return [
            (1 / len(picks), [frozenset(i for i in everyone if pick[i] == j) for j in range(count)])
            for pick in picks
        ]
    orders = [tuple(everyone)]
    if isinstance(batches, (Shuffled, Reshuffled)):
        orders = list(itertools.permutations(everyone))
    found = {}
    for order in orders:
        parts = tuple(frozenset(order[j * size : (j + 1) * size]) for j in range(count))
        found[parts] = found.get(parts, 0.0) + 1 / len(orders)
    return [(weight, list(parts)) for parts, weight in found.items()]


def law(run, l2, gradients, start, cells):
    """Masses of the last iterate in the atoms 0 and D and in cells; None is a zeroed record."""
    D, records = run.diameter, run.records
    edges = np.linspace(0, D, cells + 1)
    points = np.concatenate([[0.0], (edges[1:] + edges[:-1]) / 2, [D]])
    known = {}

    def kernel(batch, k):
        eta, nu = float(run.step_sizes[k]), float(run.noises[k])
        if (batch, eta, nu) not in known:
            total = sum(
                (gradients[i](points) for i in batch if gradients[i] is not None), 0 * points
            )
            mean = points - eta * (total / run.batches.divisor(records) + l2 * points)
            below = ndtr((edges - mean[:, None]) / nu)
            known[batch, eta, nu] = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return known[batch, eta, nu]

    outcomes = blocks(run.batches, records)
    epoch = len(outcomes[0][1])
    mass = np.zeros(len(points))
    mass[int(np.argmin(np.abs(points - start)))] = 1.0
    if isinstance(run.batches, Shuffled) and not isinstance(run.batches, Reshuffled):
        found = np.zeros(len(points))
        for weight, parts in outcomes:
            one = mass
            for k in range(run.steps):
                one = one @ kernel(parts[k % epoch], k)
            found += weight * one
        return found
    for first in range(0, run.steps, epoch):
        after = np.zeros(len(points))
        for weight, parts in outcomes:
            one = mass
            for k in range(first, min(first + epoch, run.steps)):
                one = one @ kernel(parts[k - first], k)
            after += weight * one
        mass = after
    return mass


def truth_from_below(run, l2, worlds, start, epsilons):
    """delta of the worse order at each epsilon: two grids, their difference taken off twice."""

    def deltas(cells):
        p, q = (law(run, l2, world, start, cells) for world in worlds)
        return np.array(
            [
                max(np.maximum(a - math.exp(e) * b, 0).sum() for a, b in ((p, q), (q, p)))
                for e in epsilons
            ]
        )

    coarse, fine = deltas(60), deltas(120)
    return fine - 2 * np.abs(fine - coarse)
