"""PyTorch's generator on the GPU after every kind of fit: prints a line for each, "ok" at its end.

    PYTHONPATH=src python3 tests/torch/generator_worker.py

Needs a GPU, PyTorch, NumPy and SciPy; the cases of the probe need scikit-learn. A line that does
not end in "ok" says what failed; the exit status is then 1.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch

from lastiterate import Cyclic, FullBatch, Training
from lastiterate.losses import (
    BallSoftmax,
    CappedSoftmax,
    Huber,
    LinearLoss,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    SquaredHinge,
)
from lastiterate.torch import noisy_descent, noisy_module_descent
from lastiterate.train.torch_backend import replay
from lastiterate.train.torch_backend.gradients import DeviceGradients

N, D = 2000, 16
GPU = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
RECORDED: list[bool] = []  # of every fit since the list was emptied


def table(outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of norm at most 1 on the GPU, and labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    X *= 0.9 / np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(0, outputs, N) if outputs > 1 else rng.choice([-1.0, 1.0], N)
    return torch.from_numpy(X).to(GPU), torch.from_numpy(y)


def describe(loss: LinearLoss, full: bool = True, **changes: object) -> Training:
    """Sixty steps: enough to be recorded."""
    settings = {
        "records": N,
        "steps": 60,
        "step_size": 0.5,
        "noise": 0.01,
        "gradient_norm": loss.gradient_norm(1.0),
        "batches": FullBatch() if full else Cyclic(500),
        "diameter": 40.0,
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


def fit(
    loss: LinearLoss, products: str = "double", full: bool = True, **settings: object
) -> np.ndarray:
    """The parameters of a run on the GPU."""
    X, y = table(loss.outputs())
    same = {"labels": y, "feature_bound": 1.0, "products": products, **settings}
    return noisy_descent(loss, X, describe(loss, full), **same).parameters


def fit_momentum() -> None:
    X, y = table(1)
    run = describe(Logistic(), momentum=0.5, diameter=float("inf"))
    noisy_descent(Logistic(), X, run, labels=y, feature_bound=1.0)


def fit_network() -> None:
    X, y = table(3)
    net = torch.nn.Sequential(torch.nn.Linear(D, 3)).to(GPU)
    run = describe(CappedSoftmax(3, 0.5), clipping="gradient", gradient_norm=1.0)
    criterion = torch.nn.CrossEntropyLoss()
    noisy_module_descent(net, criterion, X.float(), y.to(GPU), run.replace(steps=3))


def fit_probe(**settings: object) -> None:
    from lastiterate.torch import PrivateLinearProbe

    X, y = table(3)
    given = {"epsilon": 2.0, "delta": 1e-5, "classes": [0, 1, 2], "steps": 60, "batch_size": N}
    PrivateLinearProbe(**{**given, **settings}).fit(X.float(), y)


def fail_to_record() -> None:
    """A capture that fails on purpose: the host reads a number, as the loss in a ball does."""
    total = DeviceGradients.total

    def reading(self: DeviceGradients, parameters: torch.Tensor, rows: object) -> torch.Tensor:
        found = total(self, parameters, rows)
        assert found.isfinite().all().item()
        return found

    same = {"random_state": 1}
    expected = fit(CappedSoftmax(3, 0.5), **same)
    assert RECORDED == [True], RECORDED
    RECORDED.clear()
    DeviceGradients.total = reading
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            got = fit(CappedSoftmax(3, 0.5), **same)
    finally:
        DeviceGradients.total = total
    assert any("launch by launch" in str(each.message) for each in said), "it did not fail"
    np.testing.assert_array_equal(got, expected)


def fail_to_record_networks() -> None:
    """Likewise an audit's update of many networks, which draws inside of its graph."""
    from lastiterate.audit.shadow.graphs import recorded

    values = torch.zeros(5, device=GPU)

    def update() -> None:
        values.add_(torch.randn(5, device=GPU) if values.sum().item() < 1e9 else 1.0)

    try:
        recorded(update, [values], 3)
    except RuntimeError:
        return
    raise AssertionError("it did not fail")


def record_networks() -> None:
    """An update that draws inside of its graph leaves the default generator where it was."""
    from lastiterate.audit.shadow.graphs import recorded

    values = torch.zeros(5, device=GPU)
    torch.cuda.manual_seed(11)
    expected = torch.randn(4, device=GPU)
    torch.cuda.manual_seed(11)
    update = recorded(lambda: values.copy_(torch.randn(5, device=GPU)), [values], 3)
    drawn = []
    for _ in range(3):
        update()
        drawn.append(values.clone())
    assert torch.equal(torch.randn(4, device=GPU), expected), "the default generator moved"
    torch.cuda.manual_seed(3)
    for each in drawn:
        assert torch.equal(each, torch.randn(5, device=GPU)), "the seed of the graph is lost"


def unharmed() -> None:
    """Everything a user does next works, and draws what a fresh process would."""
    torch.manual_seed(7)
    first = torch.randn(1000, device="cuda")
    assert float(first.std()) > 0.5
    torch.manual_seed(7)
    assert torch.equal(torch.randn(1000, device="cuda"), first), "manual_seed does not repeat"
    second = torch.randn(1000, device="cuda")
    assert not torch.equal(first, second), "the generator does not advance"
    dropped = torch.nn.Dropout(0.5)(torch.ones(1000, device="cuda"))
    assert 300 < int((dropped == 0).sum()) < 700
    torch.randperm(100, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # raises where the allocator believes that a capture goes on
    assert torch.cuda.current_stream() == torch.cuda.default_stream(), "another current stream"
    # The user's own graph.
    values, graph = torch.zeros(3, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values.add_(torch.randn(3, device="cuda"))
    graph.replay()
    once = values.clone()
    graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(values, 2 * once), "a graph repeats its numbers"


def cases() -> dict[str, tuple[Callable[[], object], bool | None]]:
    """By name: a fit, and whether its update is to be recorded (None: nothing asks)."""
    cap, ball = CappedSoftmax(3, 0.5), BallSoftmax(3, 0.75)
    found: dict[str, tuple[Callable[[], object], bool | None]] = {}
    for products in ("double", "exact", "exact8"):
        for full in (True, False):
            name = f"{products}, {'full batch' if full else 'batches'}"
            found[name] = (lambda p=products, f=full: fit(cap, p, f), full)
    binary = (Logistic(), Huber(0.5), SmoothedHinge(0.5), SquaredHinge(1.0))
    for loss in (*binary, OneVsRest(Logistic(), 3)):
        found[f"{loss!r}"] = (lambda each=loss: fit(each), True)
    found["ball, full batch"] = (lambda: fit(ball), False)
    found["ball, batches"] = (lambda: fit(ball, full=False), False)
    found["momentum"] = (fit_momentum, False)
    found["network"] = (fit_network, None)
    if find_spec("sklearn"):
        found["probe"] = (fit_probe, True)
        found["probe, exact8"] = (lambda: fit_probe(products="exact8"), True)
        found["probe, ball"] = (lambda: fit_probe(ball=0.75), False)
    found["a failed capture"] = (fail_to_record, False)
    found["many networks"] = (record_networks, None)
    found["a failed capture of networks"] = (fail_to_record_networks, None)
    return found


def noted(updates: object) -> object:
    """`replay.recorded`, with a note of what it decided."""
    found = _recorded(updates)
    RECORDED.append(found is not None)
    return found


_recorded = replay.recorded

if __name__ == "__main__":
    if GPU is None:
        sys.exit("There is no GPU.")
    from lastiterate.train.torch_backend import backend

    backend.recorded = noted  # type: ignore[attr-defined]
    wrong = 0
    for name, (job, expected) in cases().items():
        RECORDED.clear()
        said = "ok"
        try:
            job()
            if expected is not None and [expected] != RECORDED:
                said = f"recorded {RECORDED}, not {expected}"
            unharmed()
        except Exception as problem:
            traceback.print_exc()
            said = f"{type(problem).__name__}: {str(problem)[:200]}"
        wrong += said != "ok"
        print(f"{name}: {said}", flush=True)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {wrong} wrong", flush=True)
    sys.exit(wrong > 0)
