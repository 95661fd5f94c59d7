"""A linear head against Opacus on one core: records per second and memory, in fresh processes.

Both clip every record's gradient and add noise, from a seeded generator here and from PyTorch's
there, so that the arithmetic is compared; the secure source's time is a row of its own. Time is
processor time of one thread. Where the data sets are, the probe is compared with the NumPy
estimator, end to end and with the same seed.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLUMNS, CLASSES, CLIP = 512, 10, 0.5
RECORDS = 20_000


def problem() -> tuple[Any, Any]:
    """Features of norm 1 in float32, and labels."""
    import torch

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    X = torch.randn((RECORDS, COLUMNS), generator=generator)
    X /= X.norm(dim=1, keepdim=True)
    return X, torch.randint(0, CLASSES, (RECORDS,), generator=generator)


class Memory:
    """Megabytes that a job holds beyond what was there before it, at its worst moment.

    The kernel's own high-water mark of resident memory, set back before the job (Linux only);
    freed memory is given back first, so that the job cannot hide in it.
    """

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _status("VmRSS")

    def more(self) -> float:
        return (_status("VmHWM") - self._before) / 1e3


def _status(field: str) -> float:
    """Kilobytes, from /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(field)).split()[1])


def ours(batch: int, steps: int, seeded: bool) -> tuple[float, float]:
    """Seconds per update, and megabytes beyond the data."""
    from lastiterate import Cyclic, FullBatch, Training
    from lastiterate.losses import Softmax
    from lastiterate.torch import noisy_descent

    X, y = problem()
    batches = FullBatch() if batch == RECORDS else Cyclic(batch)
    seed = 0 if seeded else None

    def run(count: int) -> float:
        described = Training(
            records=RECORDS,
            steps=count,
            step_size=0.5,
            noise=1e-4,
            gradient_norm=CLIP,
            clipping="gradient",
            batches=batches,
            adjacency="zero-out",
        )
        start = time.process_time()
        noisy_descent(Softmax(CLASSES), X, described, labels=y, random_state=seed, device="cpu")
        return time.process_time() - start

    small = Training(
        records=64,
        steps=1,
        step_size=0.5,
        noise=1e-4,
        gradient_norm=CLIP,
        clipping="gradient",
        batches=FullBatch(),
        adjacency="replace",
    )
    noisy_descent(Softmax(CLASSES), X[:64], small, labels=y[:64], random_state=seed, device="cpu")
    memory = Memory()  # with every library loaded and warm
    run(2)
    more = memory.more()
    few, many = (statistics.median(run(count) for _ in range(3)) for count in (1, 1 + steps))
    return (many - few) / steps, more


def opacus(batch: int, steps: int, seeded: bool) -> tuple[float, float]:
    """The same update by Opacus' hooks and optimizer, batches cut beforehand."""
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    warnings.simplefilter("ignore")
    X, y = problem()
    model = GradSampleModule(torch.nn.Linear(COLUMNS, CLASSES, bias=False))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5),
        noise_multiplier=1.0,
        max_grad_norm=CLIP,
        expected_batch_size=batch,
    )
    criterion = torch.nn.CrossEntropyLoss()

    def update(k: int, size: int = batch) -> None:
        first = k * size % (RECORDS - size + 1)
        optimizer.zero_grad()
        criterion(model(X[first : first + size]), y[first : first + size]).backward()
        optimizer.step()

    update(0, 64)
    memory = Memory()
    update(0)
    update(1)
    more = memory.more()
    spans = []
    for k in range(steps):
        start = time.process_time()
        update(k)
        spans.append(time.process_time() - start)
    return statistics.median(spans), more


def end_to_end(name: str) -> list[tuple[str, float, float]]:
    """Test accuracy of the estimator and of the probe, in float32 and bfloat16."""
    import numpy as np
    import torch

    from benchmarks import datasets
    from lastiterate.models import PrivateSoftmaxRegression
    from lastiterate.torch import PrivateLinearProbe

    torch.set_num_threads(1)
    data = getattr(datasets, name)()
    rows, test = (
        np.asarray(part if isinstance(part, np.ndarray) else part.toarray(), np.float32)
        for part in (data.train, data.test)
    )
    settings = {"epsilon": 1.0, "delta": data.delta, "feature_bound": 1.0, "random_state": 0}
    told = PrivateSoftmaxRegression(**settings, fit_intercept=False).fit(rows, data.labels)
    expected = told.score(test, data.test_labels)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        probe = PrivateLinearProbe(**settings, device="cpu")
        probe.fit(torch.from_numpy(rows).to(dtype), data.labels)
        score = float(probe.score(torch.from_numpy(test), data.test_labels))
        found.append((f"{data.name}, {dtype}", float(expected), score))
    return found


def apart(job: Callable[..., Any], *settings: Any) -> Any:
    """In a process of its own, so that peaks do not mix."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(job, settings)


def rows() -> list[dict[str, Any]]:
    """One row a goal."""
    table: list[dict[str, Any]] = []
    for name, batch, steps in (("batch 512", 512, 60), ("full batch", RECORDS, 4)):
        mine, my_memory = apart(ours, batch, 4 * steps, True)
        secure, _ = apart(ours, batch, 4 * steps, False)
        theirs, their_memory = apart(opacus, batch, steps, True)
        ratio = theirs / mine
        table += [
            {
                "name": f"linear head, {name} of {RECORDS:,} x {COLUMNS}, against Opacus",
                "goal": ">= 5x records/s",
                "measured": f"{batch / mine:,.0f} against {batch / theirs:,.0f}/s, {ratio:.1f}x",
                "ok": bool(ratio >= 5),
            },
            {
                "name": f"the same with secure noise, {name}",
                "goal": "",
                "measured": f"{batch / secure:,.0f}/s, {theirs / secure:.1f}x",
                "ok": None,
            },
            {
                "name": f"memory beyond the data, {name}",
                "goal": "less than Opacus",
                "measured": f"{my_memory:.1f} against {their_memory:.1f} MB, "
                f"{their_memory / my_memory:.0f}x",
                "ok": bool(my_memory < their_memory),
            },
        ]
    from benchmarks import datasets

    for name in ("mnist", "census") if datasets.available() else ():
        for what, expected, score in apart(end_to_end, name):
            table.append(
                {
                    "name": f"probe against the NumPy estimator, {what}, epsilon 1",
                    "goal": "within 0.003",
                    "measured": f"{score:.4f} against {expected:.4f}",
                    "ok": bool(abs(score - expected) <= 0.003),
                }
            )
    return table


if __name__ == "__main__":
    for row in rows():
        print(row)
