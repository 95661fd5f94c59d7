"""Tensors run on the torch backend by the same function, the same law, the same checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from lastiterate import (
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
    certify,
)
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses import CappedSoftmax, Logistic, OneVsRest, Softmax
from lastiterate.noise import SeededSource
from lastiterate.train import EncryptedCheckpoint, MemoryCheckpoint, bound_rows, noisy_descent

torch = pytest.importorskip("torch")
from lastiterate.torch import Shards  # noqa: E402
from lastiterate.torch import noisy_descent as torch_descent  # noqa: E402

torch.set_num_threads(1)  # tiny products wait for threads longer than they compute

N, D = 30, 4
SCHEMES = [FullBatch(), Shuffled(7), Reshuffled(8), Poisson(0.3), WithoutReplacement(6)]
LOSSES = [Logistic(), Softmax(3), OneVsRest(Logistic(), 3), CappedSoftmax(4, 0.5)]


def problem(loss):
    rng = np.random.default_rng(1)
    X = bound_rows(rng.standard_normal((N, D)), 1.0)
    outputs = loss.outputs()
    y = rng.integers(0, outputs, N) if outputs > 1 else rng.choice([-1.0, 1.0], N)
    return X, y


def describe(loss, batches, **changes):
    settings = {
        "records": N,
        "steps": 12,
        "step_size": 0.5,
        "noise": 0.05,
        "batches": batches,
        "gradient_norm": loss.gradient_norm(1.0),
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("batches", SCHEMES, ids=repr)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_tensor_runs_what_an_array_runs(loss, batches, noise):
    """Every iterate: runs of 1, 2, ... steps; noise off, and on with one seed."""
    X, y = problem(loss)
    tensor, targets = torch.from_numpy(X), torch.from_numpy(y)
    for steps in (1, 2, 5, 12):
        run = describe(loss, batches, steps=steps, noise=noise)
        same = {"regularization": 0.1, "random_state": 3}
        expected = noisy_descent(loss, X, run, labels=y, **same)
        got = noisy_descent(loss, tensor, run, labels=targets, **same)
        np.testing.assert_allclose(got.parameters, expected.parameters, rtol=1e-12, atol=1e-13)
        short = noisy_descent(
            loss, tensor.float(), run, labels=targets, feature_bound=1.0, rows="shorten", **same
        )
        np.testing.assert_allclose(short.parameters, expected.parameters, rtol=0, atol=2e-6)
        assert got.loss == expected.loss
        assert type(got.parameters) is np.ndarray


@pytest.mark.parametrize(
    "extra",
    [
        {"momentum": 0.7},
        {"release": TailAverage(4, decay=0.6)},
        {"final_noise": 3.0, "batches": Shuffled(6)},
        {"schedule": "equalised", "batches": Shuffled(6), "steps": 15},
        {"diameter": 0.5, "release": TailAverage(3)},
    ],
    ids=str,
)
def test_every_kind_of_run(extra):
    loss = Softmax(3)
    X, y = problem(loss)
    run = describe(loss, **{"batches": FullBatch(), **extra})
    same = {"labels": y, "random_state": 3}
    expected = noisy_descent(loss, X, run, **same).parameters
    got = noisy_descent(loss, torch.from_numpy(X), run, **same).parameters
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    checkpoint = MemoryCheckpoint(every=4)
    data, resumable = torch.from_numpy(X), {"labels": y, "checkpoint": checkpoint}
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(loss, data, run, noise=Stopping(3, 9), **resumable)
    again = noisy_descent(loss, data, run, random_state=0, **resumable).parameters
    np.testing.assert_array_equal(again, got)


def test_which_backend_runs():
    """Seen from outside: only the torch backend knows `rows=`, and only it reads shards."""
    X, y = problem(Logistic())
    run = describe(Logistic(), FullBatch())
    same = {"labels": y, "random_state": 1}
    expected = noisy_descent(Logistic(), X, run, **same).parameters
    long = 5 * X
    for data in (torch.from_numpy(long), Shards(long)):
        got = noisy_descent(Logistic(), data, run, rows="shorten", **same).parameters
        bounded = noisy_descent(Logistic(), bound_rows(long, 1.0), run, **same).parameters
        np.testing.assert_allclose(got, bounded, rtol=1e-9)
    asked = noisy_descent(Logistic(), X, run, device="cpu", **same).parameters
    np.testing.assert_allclose(asked, expected, rtol=1e-12)
    for setting in ({"rows": "shorten"}, {"products": "exact"}):
        with pytest.raises(DescriptionError, match="tensor"):
            noisy_descent(Logistic(), X, run, **same, **setting)
    with pytest.raises(DescriptionError, match="device"):
        noisy_descent(
            lambda theta, rows: np.zeros((len(rows), 2)), None, run, start=np.zeros(2), device="cpu"
        )


def test_a_gradient_function_may_close_over_tensors():
    X, y = problem(Logistic())
    run = describe(Logistic(), Shuffled(5), gradient_norm=1.0)

    def gradients(theta, rows):
        return Logistic().slope(X[rows] @ theta, y[rows])[:, None] * X[rows]

    same = {"start": np.zeros(D), "random_state": 2}
    with_tensor = noisy_descent(gradients, torch.from_numpy(X), run, **same)
    expected = noisy_descent(Logistic(), X, run, labels=y, random_state=2)
    np.testing.assert_allclose(with_tensor.parameters, expected.parameters, rtol=1e-12)


def test_only_what_is_exact_enough_is_certified():
    X, y = problem(Softmax(3))
    data = (0.9 * torch.from_numpy(X)).to(torch.bfloat16)
    run = describe(Softmax(3), FullBatch(), noise=0.5)
    settings = {"labels": y, "feature_bound": 1.0, "rows": "shorten"}
    exact = noisy_descent(Softmax(3), data, run, **settings)
    assert not exact.experiment
    pytest.importorskip("flint")
    assert certify(exact.training, exact.loss, 1e-5).epsilon > 0
    assert exact.training.arithmetic.error > 0
    assert exact.objection == ""
    assert noisy_descent(Softmax(3), data, run, **settings, random_state=1).experiment
    for products in ("split", "fast"):  # added in float32, without a proved error
        with pytest.raises(DescriptionError, match="products"):
            noisy_descent(Softmax(3), data, run, **settings, products=products)


# --- checkpoints -----------------------------------------------------------------------------


class Stopping(SeededSource):
    """A seeded source that is interrupted at its n-th draw of noise."""

    def __init__(self, seed, last):
        super().__init__(seed)
        self._left = last

    def normal(self, shape):
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return super().normal(shape)


@pytest.mark.parametrize("batches", SCHEMES, ids=repr)
@pytest.mark.parametrize("stopped", [2, 5, 11])
def test_resumed_is_uninterrupted(batches, stopped):
    loss = Softmax(3)
    X, y = problem(loss)
    data = torch.from_numpy(X)
    run = describe(loss, batches, release=TailAverage(5), diameter=2.0)
    same = {"labels": y, "regularization": 0.05}
    expected = torch_descent(loss, data, run, random_state=8, **same)
    checkpoint = MemoryCheckpoint(every=2)
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(loss, data, run, noise=Stopping(8, stopped), checkpoint=checkpoint, **same)
    kept = checkpoint.load()
    assert kept.step == stopped // 2 * 2
    resumed = noisy_descent(loss, data, run, random_state=99, checkpoint=checkpoint, **same)
    np.testing.assert_array_equal(resumed.parameters, expected.parameters)
    assert resumed.partition_nonce == kept.nonce
    assert checkpoint.load() is None


def test_either_backend_goes_on_where_the_other_stopped():
    loss = Softmax(3)
    X, y = problem(loss)
    run = describe(loss, Shuffled(7))
    expected = noisy_descent(loss, X, run, labels=y, random_state=8).parameters
    for first, second in ((X, torch.from_numpy(X)), (torch.from_numpy(X), X)):
        checkpoint = MemoryCheckpoint(every=3)
        with pytest.raises(KeyboardInterrupt):
            noisy_descent(loss, first, run, labels=y, noise=Stopping(8, 7), checkpoint=checkpoint)
        got = noisy_descent(loss, second, run, labels=y, random_state=0, checkpoint=checkpoint)
        np.testing.assert_allclose(got.parameters, expected, rtol=1e-12)


def test_another_run_does_not_resume_and_files_are_refused(tmp_path):
    loss = Softmax(3)
    X, y = problem(loss)
    data, run = torch.from_numpy(X), describe(loss, FullBatch())
    checkpoint = MemoryCheckpoint(every=2)
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(loss, data, run, labels=y, noise=Stopping(1, 5), checkpoint=checkpoint)
    for changed in ({"step_size": 0.4}, {"noise": 0.06}):
        with pytest.raises(AssumptionError, match="another run"):
            noisy_descent(loss, data, run.replace(**changed), labels=y, checkpoint=checkpoint)
    with pytest.raises(AssumptionError, match="another run"):
        noisy_descent(loss, data, run, labels=y, start=np.ones((D, 3)), checkpoint=checkpoint)
    with pytest.raises(AssumptionError, match="plain file"):
        noisy_descent(loss, data, run, labels=y, checkpoint=tmp_path / "state")


PROGRAM = """
import sys, numpy as np, torch
from lastiterate import Shuffled, Training
from lastiterate.losses import Softmax
from lastiterate.train import EncryptedCheckpoint, noisy_descent
torch.set_num_threads(1)
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.standard_normal((60, 50)) / 20)
y = torch.from_numpy(rng.integers(0, 3, 60))
run = Training(records=60, steps=int(sys.argv[3]), step_size=0.5, noise=0.01,
               gradient_norm=Softmax(3).gradient_norm(1.0), batches=Shuffled(20))
checkpoint = EncryptedCheckpoint(sys.argv[1], bytes.fromhex(sys.argv[2]), every=1)
print("running", flush=True)
got = noisy_descent(Softmax(3), X, run, labels=y, random_state=4, checkpoint=checkpoint)
print(got.parameters.tobytes().hex())
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(tmp_path):
    """SIGKILL leaves the last whole checkpoint or none: the next attempt is never refused."""
    pytest.importorskip("cryptography")
    path, key = tmp_path / "state", EncryptedCheckpoint.new_key()
    command = [sys.executable, "-c", PROGRAM, str(path), key.hex(), "600"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    steps = []
    for wait in (0.03, 0.1, 0.07):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
        assert process.stdout.readline() == "running\n"
        time.sleep(wait)
        while len(steps) == 2 and not path.exists():  # a busy machine may not have begun
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kept = EncryptedCheckpoint(path, key).load()
        steps.append(0 if kept is None else kept.step)
    assert steps == sorted(steps)
    assert steps[-1] > 0
    done = subprocess.run(command, stdout=subprocess.PIPE, env=env, text=True, check=True)
    assert not path.exists()
    other = [*command[:3], str(tmp_path / "other"), *command[4:]]
    whole = subprocess.run(other, stdout=subprocess.PIPE, env=env, text=True, check=True)
    assert done.stdout == whole.stdout


def strange_tables():
    rows = torch.zeros(4, 2, dtype=torch.float64)
    return {
        "complex": rows + 1j,
        "CSR": rows.to_sparse_csr(),
        "COO": rows.to_sparse(),
        "without values": rows.to("meta"),
        "nested": torch.nested.nested_tensor(list(rows)),
        "quantised": torch.quantize_per_tensor(rows.float(), 0.1, 0, torch.qint8),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("kind", strange_tables())
def test_tensors_that_are_no_tables_are_refused(kind):
    """Not with a traceback, and not by dropping what does not fit (an imaginary part)."""
    models = pytest.importorskip("lastiterate.models")
    table, y = strange_tables()[kind], torch.tensor([1.0, -1.0, 1.0, -1.0])
    run = Training(
        records=4,
        steps=1,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    with pytest.raises(DescriptionError, match="data"):
        noisy_descent(Logistic(), table, run, labels=y)
    for intercept in (False, True):
        model = models.PrivateLogisticRegression(
            delta=1e-3, feature_bound=1.0, fit_intercept=intercept
        )
        with pytest.raises(DescriptionError, match="data"):
            model.fit(table, y)


def test_complex_arrays_are_refused_on_a_device():
    run = Training(
        records=2,
        steps=1,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    with pytest.raises(DescriptionError, match="complex"):
        noisy_descent(Logistic(), np.full((2, 2), 1j), run, labels=[1, -1], device="cpu")
