"""One small run for every theorem that a certificate can rest on."""

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

CONVEX = Loss(smoothness=1.0)
STRONG = Loss(smoothness=1.0, strong_convexity=0.5)
RIDGE = Loss(smoothness=1.0, regularization=0.1)
ROUGH = Loss.holder(constant=1.0, exponent=0.5)

_random = np.random.default_rng(5)
SIZES = _random.uniform(0.0, 0.3, 60)
NOISES = _random.uniform(0.02, 0.1, 60)


def run(batches, **changes):
    fields = dict(records=100, steps=60, step_size=0.1, noise=0.05, gradient_norm=1.0)
    return Training(**{"adjacency": "replace", **fields, "batches": batches, **changes})


# name: (training, loss, releases)
RUNS = {
    "full": (run(FullBatch()), STRONG, ()),
    "full, no steps": (run(FullBatch(), steps=0), STRONG, ()),
    "full, restart": (run(FullBatch(), steps=500, diameter=0.2), CONVEX, ()),
    "full, expanding, restart": (
        run(FullBatch(), steps=900, diameter=0.1),
        Loss.nonconvex(smoothness=2.0),
        (),
    ),
    "full, clipped": (run(FullBatch(), clipping="gradient"), RIDGE, ()),
    "full, schedule": (
        run(FullBatch(), step_size=SIZES, noise=NOISES, arithmetic=Arithmetic(error=1e-6)),
        STRONG,
        (),
    ),
    "full, schedule, restart": (
        run(FullBatch(), step_size=SIZES, noise=NOISES, diameter=0.01),
        CONVEX,
        (),
    ),
    "full, rough": (run(FullBatch(), diameter=0.2), ROUGH, ()),
    "full, released": (run(FullBatch(), release=TailAverage(5)), STRONG, (10, 30)),
    "full, unknown": (run(FullBatch()), Loss.unknown(), ()),
    "full, coupled": (
        run(FullBatch(), step_size=0.5, gradient_norm=3.0, diameter=0.1, steps=300),
        CONVEX,
        (),
    ),
    "full, momentum": (run(FullBatch(), momentum=0.9, diameter=0.1), STRONG, (10, 30)),
    "cyclic, momentum": (run(Cyclic(10), momentum=0.9), RIDGE, ()),
    "shuffled, momentum": (run(Shuffled(10), momentum=0.5, final_noise=4.0), RIDGE, ()),
    "reshuffled, momentum": (run(Reshuffled(10), momentum=0.5), RIDGE, ()),
    "Poisson, momentum": (
        run(Poisson(0.1), momentum=0.9, adjacency="zero-out", steps=20),
        RIDGE,
        (),
    ),
    "without replacement, momentum": (run(WithoutReplacement(10), momentum=0.9), RIDGE, ()),
    "exponential average": (run(FullBatch(), release=TailAverage(5, decay=0.5)), STRONG, ()),
    "cyclic": (run(Cyclic(10)), RIDGE, ()),
    "cyclic, partial epoch": (run(Cyclic(10), steps=57), RIDGE, ()),
    "cyclic, bounded": (run(Cyclic(10), diameter=0.05), RIDGE, ()),
    "cyclic, schedule": (run(Cyclic(10), step_size=SIZES, noise=NOISES), RIDGE, ()),
    "cyclic, expanding": (run(Cyclic(10)), Loss.nonconvex(smoothness=1.0), ()),
    "cyclic, rough": (run(Cyclic(50), steps=6, diameter=0.05), ROUGH, ()),
    "cyclic, unknown": (run(Cyclic(10)), Loss.unknown(), ()),
    "shuffled": (run(Shuffled(10)), RIDGE, ()),
    "shuffled, zero-out": (run(Shuffled(10), adjacency="zero-out"), RIDGE, ()),
    "shuffled, schedule, bounded": (
        run(Shuffled(10), step_size=SIZES, noise=NOISES, diameter=0.05),
        RIDGE,
        (),
    ),
    "shuffled, released": (run(Shuffled(10), release=TailAverage(5)), RIDGE, (13, 30)),
    "shuffled, equalised": (run(Shuffled(10), schedule="equalised"), CONVEX, ()),
    "shuffled, unknown": (run(Shuffled(10), steps=57), Loss.unknown(), ()),
    "reshuffled, bounded": (run(Reshuffled(10), diameter=0.03), RIDGE, ()),
    "reshuffled, unknown": (run(Reshuffled(10)), Loss.unknown(), ()),
    "Poisson": (run(Poisson(0.1), adjacency="zero-out", steps=20), RIDGE, ()),
    "Poisson, unknown": (run(Poisson(0.1), adjacency="zero-out"), Loss.unknown(), ()),
    "Poisson, replace": (run(Poisson(0.1), steps=20), RIDGE, ()),
    "Poisson, replace, unknown": (run(Poisson(0.1)), Loss.unknown(), ()),
    "Poisson, replace, close": (run(Poisson(0.1), sensitivity=0.5), Loss.unknown(), ()),
    "without replacement, zero-out": (
        run(WithoutReplacement(10), adjacency="zero-out"),
        Loss.unknown(),
        (),
    ),
    "without replacement": (run(WithoutReplacement(10), steps=20), RIDGE, ()),
    "without replacement, unknown": (run(WithoutReplacement(10)), Loss.unknown(), ()),
}
SLOW_RUNS = {
    "reshuffled": (run(Reshuffled(20), steps=20), RIDGE, ()),
    "reshuffled, partial epoch": (run(Reshuffled(10), steps=57), RIDGE, ()),
    "reshuffled, released": (run(Reshuffled(10), release=TailAverage(5)), RIDGE, (20, 30)),
    "reshuffled, schedule": (run(Reshuffled(10), step_size=SIZES, noise=NOISES), RIDGE, ()),
    "Poisson, deferred": (
        Training(
            records=10_000,
            steps=300,
            step_size=0.1,
            noise=1e-3,
            gradient_norm=1.0,
            batches=Poisson(0.01),
            adjacency="zero-out",
        ),
        Loss(smoothness=1.0, regularization=0.4),
        (),
    ),
    "Poisson, schedule, released": (
        run(Poisson(0.1), adjacency="zero-out", step_size=SIZES, noise=NOISES),
        RIDGE,
        (13, 30),
    ),
    "Poisson, replace, absorbed": (
        run(Poisson(0.1), steps=300),
        Loss(smoothness=1.0, regularization=1.0),
        (),
    ),
    "Poisson, replace, close, schedule, released": (
        run(Poisson(0.1), sensitivity=1.0, step_size=SIZES, noise=NOISES),
        RIDGE,
        (13, 30),
    ),
    "without replacement, zero-out, absorbed": (
        run(WithoutReplacement(10), adjacency="zero-out", steps=200),
        Loss(smoothness=1.0, regularization=1.0),
        (),
    ),
    "without replacement, horizon": (
        run(WithoutReplacement(10), steps=400),
        Loss(smoothness=1.0, regularization=1.0),
        (),
    ),
    "without replacement, schedule, released": (
        run(WithoutReplacement(10), step_size=SIZES, noise=NOISES),
        RIDGE,
        (13, 30),
    ),
}
