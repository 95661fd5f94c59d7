"""The update that a GPU records is the update of the plain loop (recording itself needs a GPU)."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import L1, Cyclic, FullBatch, TailAverage, Training
from lastiterate.losses import (
    BallSoftmax,
    CappedLogistic,
    CappedSoftmax,
    Huber,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.train import MemoryCheckpoint, bound_rows, noisy_descent
from lastiterate.train.loop import Draws, Run, Updates
from lastiterate.train.settings import Settings

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from lastiterate.train.torch_backend import replay  # noqa: E402
from lastiterate.train.torch_backend.backend import TorchBackend  # noqa: E402
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
    return Training(**{"adjacency": "replace", **settings, **changes})


def updates_of(loss, run, products="double"):
    """The loop of a run on the CPU before its first update, and its backend."""
    X, y = problem(loss)
    device = torch.device("cpu")
    given = {"labels": y, "regularization": 0.1, "feature_bound": 1.0, "products": products}
    told = Settings(random_state=3, **given)
    gradients = DeviceGradients.told(loss, X, run, told, device)
    made = Run.of(loss, run, told, gradients)
    backend = TorchBackend(device, made.source)
    return Updates(made, gradients, Draws(made, backend), backend), backend


def plain(loss, run):
    X, y = problem(loss)
    return noisy_descent(
        loss, X, run, labels=y, regularization=0.1, feature_bound=1.0, random_state=3, device="cpu"
    ).parameters


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
@pytest.mark.parametrize("first", [0, 5])
def test_in_place_it_is_the_same_update(loss, first):
    run = describe(loss)
    updates, _ = updates_of(loss, run)
    for k in range(first):
        updates.update(k)
    updates.done = first
    update = replay.InPlace(updates)
    # From another place and back, as after a recording.
    theta, tail = updates.theta.clone(), updates.tail.clone()
    update()
    update.put(theta, tail)
    for k in range(first, run.steps):
        update.draw(k)
        update()
    np.testing.assert_array_equal((updates.tail / 7).numpy(), plain(loss, run))


def test_a_recording_that_fails_has_not_happened(monkeypatch):
    """What was tried before a driver gave up is not a part of the run that goes on without it."""
    run, tried = describe(Logistic()), []

    class Failing:
        def __init__(self, update, theta, tail):
            update()
            tried.append(update)
            raise RuntimeError("out of memory")

    monkeypatch.setattr(DeviceGradients, "resident", True)
    monkeypatch.setattr(replay, "Replay", Failing)
    with pytest.warns(UserWarning, match="launch by launch"):
        got = plain(Logistic(), run)
    assert tried
    monkeypatch.undo()
    np.testing.assert_array_equal(got, plain(Logistic(), run))


def test_only_full_batches_on_a_gpu_are_recorded():
    for batches in (FullBatch(), Cyclic(10)):
        updates, backend = updates_of(Logistic(), describe(Logistic(), batches=batches))
        assert backend.quicker(updates) is None
        updates.gradients = "a network"
        assert backend.quicker(updates) is None


HOST_READS = {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero"}


class HostReads(TorchDispatchMode):
    """Notes operations whose results the host waits for."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in HOST_READS:
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


LOSSES = [
    Logistic(),
    CappedLogistic(0.3),
    Softmax(3),
    CappedSoftmax(3, 0.5),
    BallSoftmax(3, 0.75),
    Huber(0.5),
    SquaredError(1.0),
    SmoothedHinge(0.5),
    SquaredHinge(1.0),
    OneVsRest(Logistic(), 3),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("products", ["double", "exact", "exact8"])
def test_an_update_is_recorded_only_if_the_host_reads_none_of_its_numbers(
    loss, products, monkeypatch
):
    """It is decided before anything is captured: a capture that fails harms the process."""
    if isinstance(loss, BallSoftmax) and products != "double":
        pytest.skip("whole numbers do not know this loss")
    monkeypatch.setattr(DeviceGradients, "resident", True)
    run = describe(loss, batches=FullBatch(), release="last", diameter=20.0)
    updates, _ = updates_of(loss, run, products)
    updates.theta.fill_(2.0)  # slopes are long enough for a ball to act
    update = replay.InPlace(updates)
    with HostReads() as reads:
        update()
    assert replay.recordable(updates) is (not reads.seen), reads.seen
    assert bool(reads.seen) is isinstance(loss, BallSoftmax)


def test_what_cannot_be_recorded_is_never_captured(monkeypatch):
    """A loss in a ball, momentum, a proximal step, batches, and runs of few steps."""
    monkeypatch.setattr(DeviceGradients, "resident", True)
    tried = []
    monkeypatch.setattr(replay, "Replay", lambda *given: tried.append(given))
    ball, plain = BallSoftmax(3, 0.75), Logistic()
    cases = [
        (ball, {}),
        (plain, {"momentum": 0.5, "diameter": float("inf"), "release": "last"}),
        (plain, {"proximal": L1(0.1)}),
        (plain, {"batches": Cyclic(10)}),
        (plain, {"steps": 40, "step_size": 0.1, "noise": 0.1}),
    ]
    for loss, changes in cases:
        updates, backend = updates_of(loss, describe(loss, **changes))
        assert backend.quicker(updates) is None
    assert not tried
    updates, backend = updates_of(plain, describe(plain))
    backend.quicker(updates)
    assert len(tried) == 1


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


@GPU
def test_dropped_records_do_not_come_back_by_recording():
    loss = Logistic()
    X, y = problem(loss)
    told = {"labels": y, "feature_bound": 1.0, "random_state": 3}
    told |= {"groups": np.arange(N) % 4, "max_records_per_group": 2}
    run = describe(loss, noise=0.0)
    got = noisy_descent(loss, X.to("cuda"), run, **told).parameters
    plain = noisy_descent(loss, X, run, **told).parameters
    np.testing.assert_allclose(got, plain, atol=1e-9)
