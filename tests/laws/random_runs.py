"""Random descriptions over every batch scheme and every kind of loss, from a seed."""

from __future__ import annotations

import numpy as np

from lastiterate import (
    Arithmetic,
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
)


def _between(random, low, high):
    """Log-uniform."""
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def random_loss(random):
    kind = random.choice(["convex", "strong", "ridge", "nonconvex", "holder", "unknown"])
    smoothness = _between(random, 1e-3, 30.0)
    l2 = _between(random, 1e-3, 5.0) if random.random() < 0.3 else 0.0
    if kind == "strong":
        strong = float(smoothness * random.uniform(0, 1))
        return Loss(smoothness=smoothness, strong_convexity=strong, regularization=l2)
    if kind == "nonconvex":
        return Loss.nonconvex(smoothness=smoothness, regularization=l2)
    if kind == "holder":
        power = float(random.uniform(0, 1))
        return Loss.holder(constant=smoothness, exponent=power, regularization=l2)
    if kind == "unknown":
        return Loss.unknown(regularization=l2)
    return Loss(smoothness=smoothness, regularization=l2 or (0.1 if kind == "ridge" else 0.0))


def random_run(random, scheme, steps, records=60):
    """(training, loss, releases); step sizes, noises and domains of many orders of magnitude."""
    sizes = random.choice([1, 2, 3, 5, 10, 20, 30])
    batches = {
        "full": FullBatch(),
        "cyclic": Cyclic(int(sizes)),
        "shuffled": Shuffled(int(sizes)),
        "reshuffled": Reshuffled(records // int(random.integers(1, 4))),
        "poisson": Poisson(float(random.uniform(0.01, 1.0))),
        "without-replacement": WithoutReplacement(int(sizes)),
    }[scheme]
    step = _between(random, 1e-3, 1.0)
    noise = step / records * _between(random, 0.3, 30.0) * 10
    if random.random() < 0.5:
        step = step * random.uniform(0, 1, steps) ** random.integers(0, 4)
    if random.random() < 0.5:
        noise = noise * random.uniform(0.2, 1, steps) ** random.integers(0, 4)
    adjacency = str(random.choice(["replace", "zero-out"]))
    loss = random_loss(random)
    hidden = loss.kind in ("convex", "nonconvex")
    bounded = random.random() < (0.3 if hidden else 0.1)
    window = int(random.integers(1, steps + 1)) if random.random() < 0.1 else 1
    releases = ()
    if scheme not in ("reshuffled",) and random.random() < 0.15 and steps > 1:
        releases = tuple(int(k) for k in random.integers(1, steps, 2))
    decay = float(random.uniform(0, 1)) if random.random() < 0.3 else None
    training = Training(
        records=records,
        steps=steps,
        step_size=step,
        noise=noise,
        gradient_norm=_between(random, 0.1, 2.0),
        batches=batches,
        diameter=_between(random, 1e-3, 10.0) if bounded else float("inf"),
        adjacency=adjacency,
        clipping=str(random.choice(["none", "gradient", "margin"])),
        release=TailAverage(window, decay) if window > 1 else "last",
        final_noise=_between(random, 0.1, 30.0) if random.random() < 0.2 else 1.0,
        momentum=float(random.uniform(0, 1)) if random.random() < 0.1 else 0.0,
        arithmetic=Arithmetic(error=_between(random, 1e-12, 1e-2))
        if random.random() < 0.3
        else "exact",
    )
    return sometimes_equalised(random, training), loss, releases


def sometimes_equalised(random, training):
    """Where the last epoch is whole and the step size is one number, sometimes equalised."""
    per_epoch = training.batches_per_epoch
    whole = per_epoch is not None and training.steps % per_epoch == 0
    if whole and isinstance(training.step_size, float) and random.random() < 0.4:
        return training.replace(schedule="equalised")
    return training
