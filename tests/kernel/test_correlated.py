"""Correlated noise: never below the exact law of linear runs, whatever their contraction."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate.kernel.balls import KernelError, precision
from lastiterate.kernel.correlated import check_correlated
from lastiterate.kernel.run import read_run


def described(scheme="cyclic", *, size=5, releases=(), loss=None, unit=None, **changes):
    batches = {"scheme": scheme} if scheme == "full" else {"scheme": scheme, "size": size}
    training = {
        **{"records": 20, "steps": 6, "step_size": 0.5, "noise": 0.1, "gradient_norm": 1.0},
        **{"adjacency": "zero-out", "correlation": [1.0, -0.4, -0.2], "batches": batches},
        **changes,
    }
    training = {name: value for name, value in training.items() if value is not None}
    return read_run(
        {
            "training": training,
            "loss": loss or {"smoothness": 1.0, "provenance": "declared"},
            "releases": list(releases),
            **({} if unit is None else {"unit": unit}),
        }
    )


def random_run(rng, scheme):
    size = int(rng.choice([5, 7, 10, 20]))
    taken = rng.dirichlet(np.ones(int(rng.integers(1, 5)))) * rng.choice([0.3, 0.9, 1.0 - 1e-12])
    correlation = [1.0, *(-taken).tolist()]
    steps = int(rng.integers(1, 12))
    run = described(scheme, size=size, steps=steps, correlation=correlation)
    batches = 1 if scheme == "full" else 20 // size
    impulse = 0.5 / (20 if scheme == "full" else size) / 0.1
    lower = sum(
        coefficient * np.eye(steps, k=-d) for d, coefficient in enumerate(correlation) if d < steps
    )
    return run, lower, batches, impulse


def columns(steps, batches, j):
    used = np.zeros(steps)
    used[j::batches] = 1
    return used


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.parametrize("hidden", [False, True])
def test_never_below_the_exact_law(hidden, seed):
    rng = np.random.default_rng(seed)
    scheme = ("full", "cyclic", "shuffled")[seed % 3]
    run, lower, batches, impulse = random_run(rng, scheme)
    with precision():
        found = [float(square) for square in check_correlated(run, {}, hidden)]
    steps, truths = run.steps, []
    for j in range(min(batches, steps)):
        used = impulse * columns(steps, batches, j)
        if hidden:  # x -> c x + its impulse + noise, with signs that may change
            c = rng.choice([1.0, 0.9, -1.0]) * np.ones(steps)
            later = np.array([np.prod(c[k + 1 :]) for k in range(steps)])
            signs = rng.choice([-1.0, 1.0], steps) if seed % 2 else np.sign(later)
            exact = abs(later @ (used * signs)) / np.linalg.norm(later @ lower)
        else:
            exact = np.linalg.norm(np.linalg.solve(lower, used))
        truths.append(exact**2)
    if scheme == "shuffled":
        assert len(found) == batches
        assert all(a >= b * (1 - 1e-9) for a, b in zip(found, truths, strict=False))
    else:
        assert len(found) == 1
        assert found[0] >= max(truths) * (1 - 1e-9)
        if not hidden:
            assert found[0] == pytest.approx(max(truths), rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "hidden", "reason"),
    [
        ({"correlation": None}, False, "independent"),
        ({"scheme": "reshuffled"}, False, "reshuffled"),
        ({"arithmetic": {"grid": 2.0**-20}}, False, "not those of the theorem"),
        ({"arithmetic": {"error": 1e-3}}, True, "not those of the theorem"),
        ({"unit": {"records": 2}}, False, "not those of the theorem"),
        ({"steps": 0}, False, "no step"),
        ({"steps": 100_001}, False, "more than"),
        ({"releases": [3]}, True, "more than the last iterate"),
        ({"release": {"tail_average": 2}}, True, "more than the last iterate"),
        ({"step_size": 5.0}, True, "apart"),
        ({"loss": {"kind": "unknown", "provenance": "declared"}}, True, "apart"),
    ],
    ids=str,
)
def test_other_runs_are_refused(changes, hidden, reason):
    with precision(), pytest.raises(KernelError, match=reason):
        check_correlated(described(**changes), {}, hidden)


@pytest.mark.parametrize("witness", [{"z": [1.0]}, [], None, "", {"mu": 0.0}], ids=str)
def test_a_witness_that_says_anything_is_refused(witness):
    with precision(), pytest.raises(KernelError):
        check_correlated(described(), witness, hidden=False)


def test_noise_without_size_protects_nothing():
    with precision():
        assert not check_correlated(described(noise=0.0), {}, hidden=False)[0].is_finite()
