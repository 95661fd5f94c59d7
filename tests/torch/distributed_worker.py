"""One rank of the distributed tests: run by `torchrun`, or by hand with RANK and WORLD_SIZE set.

With GPUs: ``BACKEND=nccl torchrun --nproc-per-node=N tests/torch/distributed_worker.py agree DIR``.
"""

from __future__ import annotations

import json
import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from lastiterate import L1, Cyclic, FullBatch, GroupLasso, Poisson, Shuffled, Training
from lastiterate.errors import AssumptionError
from lastiterate.losses import CappedSoftmax, Huber, Softmax
from lastiterate.noise import source
from lastiterate.torch import noisy_descent
from lastiterate.torch.distributed import distributed_descent
from lastiterate.train import MemoryCheckpoint, bound_rows

N, D, C = 41, 6, 3
LOSS = Softmax(C)
BACKEND = os.environ.get("BACKEND", "gloo")


def problem():
    rng = np.random.default_rng(3)
    return bound_rows(rng.standard_normal((N, D)), 1.0), rng.integers(0, C, N)


def run(batches, noise):
    return Training(
        records=N,
        steps=9,
        step_size=0.7,
        noise=noise,
        gradient_norm=LOSS.gradient_norm(1.0),
        batches=batches,
        adjacency="replace",
    )


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
            if batches.name == "cyclic":
                described = described.replace(proximal=GroupLasso(0.1))
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
        from lastiterate.train.torch_backend import gradients

        total, calls = gradients.DeviceGradients.total, []

        def leaving(self, parameters, rows):
            calls.append(rows)
            if len(calls) == 3:
                os._exit(7)
            return total(self, parameters, rows)

        gradients.DeviceGradients.total = leaving
    distributed_descent(
        LOSS,
        X[mine],
        run(FullBatch(), 0.1),
        labels=y[mine],
        save=folder / "model.npy",
        patience=20,
        device="cpu",
    )


def refuse(folder: Path) -> None:
    """One rank's data is refused; the others say so instead of waiting."""
    rank, world = dist.get_rank(), dist.get_world_size()
    X, y = problem()
    cuts = np.linspace(0, N, world + 1).astype(int)
    mine = slice(cuts[rank], cuts[rank + 1])
    rows = X[mine] * (5.0 if rank == world - 1 else 1.0)
    described = run(FullBatch(), 0.1)
    distributed_descent(LOSS, rows, described, labels=y[mine], save=folder / "model.npy")


DISAGREEMENTS = {  # what the last rank does in another way, and who says what
    "feature bound": {"feature_bound": 0.9},
    "radius": {"radius": 0.4},
    "regularization": {"regularization": 0.06},
    "start": {"start": np.full((D, C), 0.01)},
    "description": {"training": {"noise": 0.2}},
    "description: adjacency": {"training": {"adjacency": "zero-out"}},
    "description: proximal": {"training": {"proximal": L1(0.1)}},
    "loss": {"objective": CappedSoftmax(C, cap=0.9)},
    "products": {"products": "exact"},
    "rows": {"rows": "shorten"},
    "number of columns": {"columns": D - 1, "start": None},
}
REFUSALS = {  # what the last rank must not do at all
    "radius": {"radius": 7.0},
    "start": {"start": np.zeros(2)},
    "start that is not finite": {"start": np.full((D, C), np.nan)},
    "regularization": {"regularization": -1.0},
    "random_state": {"noise": source(), "random_state": 3},
    "patience": {"patience": -1.0},
    "device": {"device": "nowhere"},
    "feature_bound": {"feature_bound": 50.0},
    "data": {"columns": None},
    "checkpoint": {"checkpoint": MemoryCheckpoint()},
    "a setting that does not exist": {"seed": 1},
    "correlation": {"training": {"correlation": (1.0, -0.5)}},
}


def disagree(folder: Path) -> None:
    """One rank runs something else, or refuses: all of them raise, in turn for every setting."""
    rank, world = dist.get_rank(), dist.get_world_size()
    X, y = problem()
    X = X * 0.8
    cuts = np.linspace(0, N, world + 1).astype(int)
    mine = slice(cuts[rank], cuts[rank + 1])
    said = {}
    for name, cases in (("disagree", DISAGREEMENTS), ("refuse", REFUSALS)):
        for case, other in cases.items():
            settings = {
                "objective": LOSS,
                "training": {},
                "columns": D,
                "feature_bound": 0.95,
                "radius": 0.5,
                "regularization": 0.05,
                "start": np.zeros((D, C)),
                "products": "double",
                "rows": "check",
                "device": "cpu",
            }
            if rank == world - 1:
                settings.update(other)
            objective, columns = settings.pop("objective"), settings.pop("columns")
            described = run(FullBatch(), 0.1).replace(diameter=1.0, **settings.pop("training"))
            rows = np.zeros(3) if columns is None else X[mine, :columns]
            if columns != D:
                settings.pop("start")
            try:
                distributed_descent(
                    objective, rows, described, labels=y[mine], save=folder / "m.npy", **settings
                )
                said[f"{name} {case}"] = "nothing"
            except Exception as error:
                said[f"{name} {case}"] = f"{type(error).__name__}: {error}"
    (folder / f"rank{rank}.json").write_text(json.dumps(said))


def another_ball(folder: Path) -> None:
    """The last rank holds its rows, then its parameters, to another bound than the others."""
    rank, world = dist.get_rank(), dist.get_world_size()
    X, y = problem()
    cuts = np.linspace(0, N, world + 1).astype(int)
    mine = slice(cuts[rank], cuts[rank + 1])
    described = run(FullBatch(), 0.1).replace(diameter=1.0)
    said = {}
    for name in ("feature_bound", "radius"):
        settings = {"feature_bound": 0.9, "radius": 0.5, "regularization": 0.05, "device": "cpu"}
        if rank == world - 1:
            settings[name] *= 0.8
        try:
            distributed_descent(LOSS, X[mine] * 0.5, described, labels=y[mine], **settings)
            said[name] = "trained"
        except AssumptionError as error:
            said[name] = str(error)
    (folder / f"rank{rank}.json").write_text(json.dumps(said))


def hostile_worlds():
    """Tables whose sums floats get wrong, and how many of their rows the first rank holds.

    Ends of binades: the first rank's sum ends at a power of two, the second's rows are a little
    more than half of what float64, or float32, resolves there. Cancellation: what the second rank
    adds takes away nearly all that the first has.
    """
    records = 6_000
    for unit in (2.0**-52, 2.0**-23):
        X = np.ones((records, 2))
        X[4096:] = 4096 * unit / 2 * (1 + 2.0**-6)
        yield "edge", X * [[0.8, 0.6]] * (1 - 2.0**-50), 4096
    rng = np.random.default_rng(4)
    X = rng.choice([1.0, 0.5, 2.0**-30, 2.0**-1060, 1 - 2.0**-53], (records, 2)) * 0.7
    X[records // 2 :] = -X[: records // 2] * (1 - 2.0**-40)
    yield "cancellation", X, records // 2
    sizes = 2.0 ** rng.integers(-60, 0, (301, 2))
    yield "all sizes", sizes * rng.choice([-0.9, 0.9], (301, 2)), 150


def hostile(folder: Path) -> None:
    """Neighbouring data sets on two ranks: how far the computed sums are apart, exactly.

    With NCCL, which wants a GPU for every rank, also on one.
    """
    rank, world, found = dist.get_rank(), dist.get_world_size(), []
    device = None if BACKEND == "nccl" else "cpu"
    for name, X, cut in hostile_worlds():
        records = len(X)
        mine = slice(0, cut if world > 1 else records) if rank == 0 else slice(cut, records)
        for batches in (FullBatch(), Cyclic(records // 2), Poisson(0.5)):
            described = Training(
                records=records,
                steps=1,
                step_size=1.0,
                noise=0.0,
                gradient_norm=1.0,
                batches=batches,
                adjacency="zero-out",
            )

            def update(data, mine=mine, described=described):
                labels = np.full(len(data[mine]), -10.0)  # every slope is 1
                settings = {"labels": labels, "random_state": 3, "device": device}
                return distributed_descent(Huber(1.0), data[mine], described, **settings)

            full = update(X)
            assert full.training.arithmetic.error > 0
            got = [Fraction(float(v)) for v in full.parameters]
            off = Fraction(0)
            if isinstance(batches, FullBatch):
                sums = [sum(map(Fraction, column)) for column in X.T.tolist()]
                off = sum((a + b / records) ** 2 for a, b in zip(got, sums, strict=True))
            apart = Fraction(0)
            for k in (0, cut - 1, cut, records - 1):  # of the first rank, and of the second
                other = X.copy()
                other[k] = 0.0
                less = update(other)
                assert less.training == full.training
                pairs = zip(got, less.parameters.tolist(), strict=True)
                apart = max(apart, sum((a - Fraction(b)) ** 2 for a, b in pairs))
            error = Fraction(full.training.arithmetic.error)
            charged = Fraction(full.training.impulse)
            found.append(
                {
                    "case": f"{name}, {records} records, {batches.name}",
                    "within the error": off <= error**2,
                    "within the charge": apart <= charged**2,
                    "of the charge": float(apart / charged**2) ** 0.5,
                }
            )
    (folder / f"rank{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND)
    for what in sys.argv[1].split(","):
        folder = Path(sys.argv[2], what)
        folder.mkdir(exist_ok=True)
        globals()[what](folder)
    dist.destroy_process_group()
