"""Any path proves something true: full and cyclic runs against their exact laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernel_runs import as_json, described

from lastiterate import Cyclic, FullBatch, Loss, Training
from lastiterate.kernel.balls import KernelError, precision
from lastiterate.kernel.positions import check_full_batch, check_worst_position
from lastiterate.theory import BY_KEY


def random_run(rng):
    """A run of linear losses, its description, and mu of its last iterate at the worst position."""
    size, batches = (int(x) for x in rng.integers(1, 5, 2))
    full = rng.random() < 0.5
    steps = int(rng.integers(1, 3 * batches + 6))
    equal = rng.random() < 0.5
    etas = np.full(steps, 0.5) if equal else rng.uniform(0.05, 1.0, steps)
    noise = np.full(steps, 0.4) if equal else rng.uniform(0.2, 1.0, steps)
    ridge, norm = float(rng.choice([0.0, 0.3])), float(rng.uniform(0.2, 2.0))
    run = Training(
        records=size * batches,
        steps=steps,
        step_size=0.5 if equal else etas.tolist(),
        noise=0.4 if equal else noise.tolist(),
        gradient_norm=norm,
        adjacency=str(rng.choice(["replace", "zero-out"])),
        diameter=float(rng.choice([math.inf, 1e6])),
        batches=FullBatch() if full else Cyclic(size),
    )
    c = 1 - etas * ridge
    later = np.append(np.cumprod(c[::-1])[::-1][1:], 1.0)
    change = norm * (2 if run.adjacency == "replace" else 1) / (size * batches if full else size)
    moved = etas * change * later
    positions = [moved.sum()] if full else [moved[j::batches].sum() for j in range(batches)]
    return (
        run,
        Loss(smoothness=0.5, regularization=ridge),
        max(positions) / np.sqrt(((noise * later) ** 2).sum()),
    )


def proved(run, loss, witness) -> float:
    """mu that the kernel finds."""
    check = check_full_batch if run.batches.full else check_worst_position
    with precision():
        return float(check(described(run, loss), as_json(witness)).squares[0].sqrt().upper())


def found(run, loss):
    key = "taut-string" if run.batches.full else "worst-position"
    return BY_KEY[key].evaluate(run, loss)


@pytest.mark.parametrize("seed", range(120))
def test_no_path_proves_less_than_the_exact_law(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run, loss, exact = random_run(rng)
    bound = found(run, loss)
    witness = as_json(bound.witness)
    assert proved(run, loss, witness) >= exact * (1 - 1e-12)
    assert proved(run, loss, witness) <= bound.curve.mu * (1 + 1e-9)
    paths = witness["families"][0]["paths"]
    honest = np.array(found(run, loss).witness["families"][0]["paths"]["z"])
    for _ in range(3):
        paths["z"] = (honest * rng.uniform(0, 2, len(honest))).tolist()
        try:
            assert proved(run, loss, witness) >= exact * (1 - 1e-12)
        except KernelError:  # a start below the diameter
            assert math.isfinite(run.diameter)


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0, -1e-300, 1e308, "inf", None, True])
@pytest.mark.parametrize("name", ["lengths", "steps", "z"])
def test_paths_of_other_numbers_are_refused_or_prove_no_less(name, value) -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        run, loss, exact = random_run(rng)
        witness = as_json(found(run, loss).witness)
        numbers = found(run, loss).witness["families"][0]["paths"][name]
        for place in (0, len(numbers) - 1):
            changed = [value if k == place else float(x) for k, x in enumerate(numbers)]
            witness["families"][0]["paths"][name] = changed
            try:
                assert proved(run, loss, witness) >= exact * (1 - 1e-12)
            except KernelError:
                continue
            assert name == "z"  # only distances may be others
