"""Every way to write a run down, against the exact law of linear losses.

Gradients that do not depend on the parameters: the last iterate is Gaussian, and one record moves
its mean by the sum of its impulses. The law is computed from the arguments, not from the run.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Loss, Shuffled, TailAverage, Training, account
from lastiterate.curves import gaussian


def described(rng):
    """A run, and (impulse, noise) of every step from the arguments it was described with."""
    n, steps = int(rng.integers(2, 40)), int(rng.integers(1, 12))
    eta, size = float(10 ** rng.uniform(-2, 0)), float(10 ** rng.uniform(-1, 1))
    etas = eta * rng.uniform(0.2, 1.0, steps) if rng.random() < 0.5 else np.full(steps, eta)
    given = etas if np.ptp(etas) else eta
    spread = float(10 ** rng.uniform(-1, 1))
    common = {"records": n, "steps": steps, "step_size": given}
    if rng.random() < 0.3:
        common["release"] = TailAverage(int(rng.integers(1, steps + 1)))
    kind = rng.choice(["plain", "langevin", "dp_sgd", "equalised", "burst"])
    nus = np.full(steps, size * spread / n)
    if kind == "langevin":
        run = Training.langevin(
            sigma=spread / n, gradient_sensitivity=size, **({"adjacency": "replace"} | common)
        )
        return run, etas * size / n, np.sqrt(2 * etas) * spread / n
    if kind == "dp_sgd":
        run = Training.dp_sgd(noise_multiplier=spread, clip=size, batches=FullBatch(), **common)
        return run, etas * size / n, etas * spread * size / n
    common |= {"noise": float(nus[0]), "gradient_norm": size, "batches": FullBatch()}
    if kind == "equalised":
        run = Training(**{"adjacency": "replace", **common, "step_size": eta}, schedule="equalised")
        return run, np.full(steps, eta * 2 * size / n), nus
    if kind == "burst":
        nus[-1] *= 3.0
        return (
            Training(**({"adjacency": "replace"} | common), final_noise=9.0),
            etas * 2 * size / n,
            nus,
        )
    return Training(**({"adjacency": "replace"} | common)), etas * 2 * size / n, nus


def check_linear(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        run, impulses, noises = described(rng)
        exact = impulses.sum() / math.sqrt(float(noises @ noises))
        for loss in (Loss(smoothness=0.0), Loss(smoothness=0.5), Loss.unknown()):
            guarantee = account(run, loss)
            for epsilon in (0.1, 1.0):
                truth = gaussian.delta(exact * (1 - 1e-9), epsilon)
                assert guarantee.delta(epsilon) >= truth * (1 - 1e-9), (run, loss)


def test_every_constructor_is_above_the_law_of_linear_losses():
    check_linear(1, 40)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(4))
def test_every_constructor_many_times(seed):
    check_linear(100 + seed, 1000)


@pytest.mark.parametrize("scheme", [Cyclic, Shuffled])
def test_mini_batches_of_dp_sgd(scheme):
    """One epoch, the record last: nothing hides its only impulse but the last noise."""
    run = Training.dp_sgd(
        records=12, steps=4, step_size=0.3, noise_multiplier=1.5, clip=2.0, batches=scheme(3)
    )
    alone = gaussian.delta(1 / 1.5 * (1 - 1e-12), 0.5)
    share = 1.0 if scheme is Cyclic else 1 / 4
    assert account(run, Loss(smoothness=0.0)).delta(0.5) >= share * alone
