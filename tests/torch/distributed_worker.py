"""One rank of the distributed tests: run by `torchrun`, or by hand with RANK and WORLD_SIZE set.

With GPUs: ``BACKEND=nccl torchrun --nproc-per-node=N tests/torch/distributed_worker.py agree DIR``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from lastiterate import Cyclic, FullBatch, Poisson, Shuffled, Training
from lastiterate.losses import Softmax
from lastiterate.torch import noisy_descent
from lastiterate.torch.distributed import distributed_descent
from lastiterate.train import bound_rows

N, D, C = 41, 6, 3
LOSS = Softmax(C)
BACKEND = os.environ.get("BACKEND", "gloo")


def problem():
    rng = np.random.default_rng(3)
    return bound_rows(rng.standard_normal((N, D)), 1.0), rng.integers(0, C, N)


def run(batches, noise):
    return Training(records=N, steps=9, step_size=0.7, noise=noise,
                    gradient_norm=LOSS.gradient_norm(1.0), batches=batches)  # fmt: skip


def agree(folder: Path) -> None:
    """Every scheme, noise off and on: the largest distance to the single process."""
    rank, world = dist.get_rank(), dist.get_world_size()
    X, y = problem()
    cuts = np.linspace(0, N, world + 1).astype(int)
    mine = slice(cuts[rank], cuts[rank + 1])
    worst = {}
    for batches in (FullBatch(), Cyclic(10), Shuffled(10), Poisson(0.2)):
        for noise in (0.0, 0.1):
            described = run(batches, noise)
            same = {"regularization": 0.05, "random_state": 11, "device": "cpu"}
            alone = noisy_descent(LOSS, X, described, labels=y, **same)
            # Only rank 0's seed counts; NCCL runs on this rank's GPU.
            same["random_state"] = 11 if rank == 0 else 99
            same["device"] = None if BACKEND == "nccl" else "cpu"
            saved = folder / f"{batches.name}-{noise}.npy"
            got = distributed_descent(LOSS, X[mine], described, labels=y[mine], save=saved, **same)
            error = float(np.abs(got.parameters - alone.parameters).max())
            worst[f"{batches.name} {noise}"] = error
            assert got.loss == alone.loss
            assert got.experiment
            if rank == 0:
                assert np.array_equal(np.load(saved), got.parameters)
    assert max(worst.values()) <= 1e-6, worst
    print(f"rank {rank} of {world}, {dist.get_backend()}: {worst}")
    (folder / f"rank{rank}.json").write_text(json.dumps(worst))


def vanish(folder: Path) -> None:
    """The last rank leaves in the middle of the run without a word."""
    rank, world = dist.get_rank(), dist.get_world_size()
    X, y = problem()
    cuts = np.linspace(0, N, world + 1).astype(int)
    mine = slice(cuts[rank], cuts[rank + 1])
    if rank == world - 1:
        from lastiterate.device import gradients

        total, calls = gradients.DeviceGradients.total, []

        def leaving(self, parameters, rows):
            calls.append(rows)
            if len(calls) == 3:
                os._exit(7)
            return total(self, parameters, rows)

        gradients.DeviceGradients.total = leaving
    distributed_descent(
        LOSS, X[mine], run(FullBatch(), 0.1), labels=y[mine], save=folder / "model.npy",
        patience=20, device="cpu",
    )  # fmt: skip


def refuse(folder: Path) -> None:
    """One rank's data is refused; the others say so instead of waiting."""
    rank, world = dist.get_rank(), dist.get_world_size()
    X, y = problem()
    cuts = np.linspace(0, N, world + 1).astype(int)
    mine = slice(cuts[rank], cuts[rank + 1])
    rows = X[mine] * (5.0 if rank == world - 1 else 1.0)
    described = run(FullBatch(), 0.1)
    distributed_descent(LOSS, rows, described, labels=y[mine], save=folder / "model.npy")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND)
    globals()[sys.argv[1]](Path(sys.argv[2]))
    dist.destroy_process_group()
