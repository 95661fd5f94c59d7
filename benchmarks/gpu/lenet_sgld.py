"""Many LeNet-5 models by SGLD at once: milliseconds per simultaneous step, models per hour.

    PYTHONPATH=src python benchmarks/gpu/lenet_sgld.py --models 1000 --steps 200

Needs PyTorch and NumPy alone. On a GPU a step is one CUDA graph; without one the script runs a
few models on the processor. With ``--epochs`` it trains on MNIST (looked for under
$LASTITERATE_DATA, else beside the repository) and prints the accuracy after every epoch.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from lenet.networks import LeNets, LeNetSGLD, probabilities

RECORDS, BATCH = 60_000, 4
GOAL = 2.5  # milliseconds per simultaneous step of 1,000 models on one H200
FOLDER = Path(
    os.environ.get("LASTITERATE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")
)


def mnist(part: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Images in [0, 1] and labels, or None if the files are not here."""
    images = FOLDER / "mnist" / f"{part}-images-idx3-ubyte.gz"
    labels = FOLDER / "mnist" / f"{part}-labels-idx1-ubyte.gz"
    if not (images.exists() and labels.exists()):
        return None
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16)
    digits = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    return pixels.reshape(-1, 28, 28) / np.float32(255), digits.astype(np.int64)


def invented() -> tuple[np.ndarray, np.ndarray]:
    """Random images: enough to measure time."""
    rng = np.random.default_rng(0)
    return rng.random((2_000, 28, 28), dtype=np.float32), rng.integers(0, 10, 2_000)


def waited() -> float:
    """The clock, once the GPU has nothing left to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def together(data: Any, models: int, steps: int, clip: float | None) -> float:
    """Seconds per simultaneous step of all models."""
    train = LeNetSGLD(data[0][:1], steps=steps, batch=BATCH, clip=clip)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = torch.as_tensor(data[0], device=device)
    labels = torch.as_tensor(data[1], device=device)
    nets = LeNets(models, device, torch.float32)
    nets.initialise(range(models))
    update = train.update(nets, images, labels, 0)
    for _ in range(min(10, steps)):
        update()
    start = waited()
    for _ in range(steps):
        update()
    seconds = (waited() - start) / steps
    assert bool(torch.isfinite(nets.flat).all())
    return seconds


class LeNet5(torch.nn.Module):
    """The same network as everybody writes it, for training one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.Conv2d(6, 16, 5)
        sizes = ((400, 120), (120, 84), (84, 10))
        self.full = torch.nn.ModuleList(torch.nn.Linear(*size) for size in sizes)

    def forward(self, x: Any) -> Any:
        h = functional.avg_pool2d(self.one(x[:, None]).tanh(), 2)
        h = functional.avg_pool2d(self.two(h).tanh(), 2).flatten(1)
        return self.full[2](self.full[1](self.full[0](h).tanh()).tanh())


def alone(data: Any, steps: int) -> float:
    """Seconds per step of one model in plain PyTorch."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = torch.as_tensor(data[0], device=device)
    labels = torch.as_tensor(data[1], device=device)
    network = LeNet5().to(device)
    noise = (2 * BATCH * 0.001 / len(images)) ** 0.5
    start = 0.0
    for k in range(steps + 10):
        if k == 10:
            start = waited()
        rows = torch.randint(len(images), (BATCH,), device=device)
        network.zero_grad()
        functional.cross_entropy(network(images[rows]), labels[rows], reduction="sum").backward()
        with torch.no_grad():
            for p in network.parameters():
                p.sub_(p.grad, alpha=0.001).add_(torch.randn_like(p), alpha=noise)
    return (waited() - start) / steps


def accuracies(data: Any, test: Any, models: int, epochs: int, clip: float | None) -> list[float]:
    """Mean test accuracy after every epoch."""
    found: list[float] = []
    epoch = len(data[0]) // BATCH
    train = LeNetSGLD(data[0][:1], steps=epochs * epoch, every=epoch, batch=BATCH, clip=clip)
    start = waited()

    def watch(nets: LeNets) -> None:
        x = torch.as_tensor(test[0], device=nets.flat.device)
        y = torch.as_tensor(test[1], device=nets.flat.device)
        right = 0.0
        for k in range(0, len(x), 20):  # few images at once: every model sees them
            right += float((probabilities(nets, x[k : k + 20]).argmax(-1) == y[k : k + 20]).sum())
        found.append(right / len(x) / nets.models)
        print(f"epoch {len(found)}: accuracy {found[-1]:.4f}, {waited() - start:.0f} s", flush=True)

    train.train(data, range(models), watch)
    return found


def main() -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--models", type=int, default=1000 if cuda else 8)
    parser.add_argument("--steps", type=int, default=200 if cuda else 5)
    parser.add_argument("--epochs", type=int, default=0, help="train on MNIST, print accuracy")
    parser.add_argument("--test-images", type=int, default=2000)
    parser.add_argument("--clip", type=float, default=None)
    given = parser.parse_args()
    data = mnist("train")
    print("data:", "MNIST" if data is not None else "random images (MNIST was not found)")
    data = invented() if data is None else data
    step = together(data, given.models, given.steps, given.clip)
    single = alone(data, given.steps)
    whole = 20 * RECORDS // BATCH  # twenty epochs of MNIST
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if cuda else "CPU (no goal applies)",
        "torch": torch.__version__,
        "models": given.models,
        "ms_per_step": 1e3 * step,
        "ms_per_step_one_model": 1e3 * single,
        "minutes_for_20_epochs_of_mnist": whole * step / 60,
        "models_per_hour": given.models * 3600 / (whole * step),
        "models_per_hour_one_by_one": 3600 / (whole * single),
    }
    if cuda and given.models == 1000 and given.clip is None:
        result["goal_ms"], result["ok"] = GOAL, 1e3 * step <= GOAL
        result["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    for name, value in result.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    speedup = result["models_per_hour"] / result["models_per_hour_one_by_one"]
    print(f"together against one by one: {speedup:.0f}x")
    test = mnist("t10k")
    if given.epochs and test is not None:
        few = (test[0][: given.test_images], test[1][: given.test_images])
        result["accuracy"] = accuracies(data, few, given.models, given.epochs, given.clip)
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
