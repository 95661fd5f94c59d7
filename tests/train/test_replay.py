"""The update that a GPU records is the update of the plain loop (recording itself needs a GPU)."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, TailAverage, Training
from lastiterate.losses import Logistic, Softmax
from lastiterate.noise import SeededSource
from lastiterate.train import MemoryCheckpoint, bound_rows, noisy_descent

torch = pytest.importorskip("torch")
from lastiterate.train.torch_backend import replay  # noqa: E402
from lastiterate.train.torch_backend.draws import Draws  # noqa: E402
from lastiterate.train.torch_backend.gradients import DeviceGradients  # noqa: E402

N, D = 40, 5
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def problem(loss, seed=0):
    rng = np.random.default_rng(seed)
    X = bound_rows(rng.standard_normal((N, D)), 0.99)
    outputs = loss.outputs()
    y = rng.integers(0, outputs, N) if outputs > 1 else rng.choice([-1.0, 1.0], N)
    return torch.from_numpy(X), torch.from_numpy(y)


def describe(loss, **changes):
    steps = 60
    settings = {
        "records": N,
        "steps": steps,
        "step_size": list(np.linspace(0.1, 0.9, steps)),
        "noise": [0.0, 0.1, 0.05] * 20,
        "gradient_norm": loss.gradient_norm(1.0),
        "batches": FullBatch(),
        "release": TailAverage(7),
        "diameter": 1.5,
    }
    return Training(**{**settings, **changes})


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
@pytest.mark.parametrize("first", [0, 5])
def test_in_place_it_is_the_same_update(loss, first):
    X, y = problem(loss)
    run, l2 = describe(loss), 0.1
    device = torch.device("cpu")
    gradients = DeviceGradients(loss, X, y, run, l2, 1.0, device)
    source = SeededSource(3)
    draws = Draws(run, gradients.shape, source, run.batches.rows(N, source), device)
    centre = torch.zeros(gradients.shape, dtype=torch.float64)
    place = replay.Place(0, centre.clone(), centre.clone(), centre, run.diameter / 2)
    update = replay.InPlace(gradients, draws, run, l2, place)
    for k in range(first):
        update.draw(k)
        update()
    # From another place and back, as after a recording.
    place = replay.Place(first, update.theta.clone(), update.tail.clone(), centre, 0.75)
    update()
    update.put(place)
    for k in range(first, run.steps):
        update.draw(k)
        update()
    expected = noisy_descent(
        loss, X, run, labels=y, regularization=l2, feature_bound=1.0, random_state=3, device="cpu"
    )
    np.testing.assert_array_equal((update.tail / 7).numpy(), expected.parameters)


def test_only_full_batches_on_a_gpu_are_recorded():
    X, y = problem(Logistic())
    device = torch.device("cpu")
    zero = torch.zeros(D, dtype=torch.float64)
    place = replay.Place(0, zero.clone(), zero.clone(), zero, 1.0)
    for batches in (FullBatch(), Cyclic(10)):
        run = describe(Logistic(), batches=batches)
        gradients = DeviceGradients(Logistic(), X, y, run, 0.0, 1.0, device)
        source = SeededSource(3)
        draws = Draws(run, gradients.shape, source, run.batches.rows(N, source), device)
        assert replay.recorded(gradients, draws, run, 0.0, place) is None
        assert replay.recorded("a network", draws, run, 0.0, place) is None


@GPU
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Softmax(100)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_recorded_run_is_the_plain_one(loss, dtype, monkeypatch):
    X, y = problem(loss)
    run, data = describe(loss), X.to("cuda", dtype)
    same = {"labels": y, "feature_bound": 1.0, "random_state": 3, "rows": "shorten"}
    kept = MemoryCheckpoint(every=17)
    got = noisy_descent(loss, data, run, checkpoint=kept, **same).parameters
    monkeypatch.setattr(replay, "WORTH", 10**9)
    plain = noisy_descent(loss, data, run, **same).parameters
    np.testing.assert_array_equal(got, plain)


@GPU
def test_secure_noise_is_drawn_anew_by_every_replay():
    loss = Logistic()
    X, y = torch.zeros((N, 4000), dtype=torch.bfloat16, device="cuda"), problem(loss)[1]
    run = describe(loss, step_size=1e-3, noise=1.0, release="last", diameter=float("inf"))
    got = noisy_descent(loss, X, run, labels=y, feature_bound=1.0).parameters
    assert abs(got.std() / np.sqrt(run.steps) - 1) < 0.1  # repeated noise would give √steps times
