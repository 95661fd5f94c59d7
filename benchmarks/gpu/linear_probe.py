"""A private full-batch step on a GPU against what the memory bus allows.

    PYTHONPATH=src python3 benchmarks/gpu/linear_probe.py [--quick] [--only graphs,streaming]

Needs PyTorch with CUDA, Triton, NumPy and SciPy. Prints goal and measured time for: the noise,
features streamed from the host, whole runs with and without a CUDA graph, and a certified step of
1,000,000 x 768 with 10 classes and of 1,281,167 x 768 with 1000 classes.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lastiterate.noise.decision import decided
from lastiterate.train.torch_backend import noise as device_noise
from lastiterate.train.torch_backend import triton_support
from lastiterate.train.torch_backend.kernels import Head, gradient_sum
from lastiterate.train.torch_backend.shards import Shards

GPU = torch.device("cuda")
ROWS: list[dict[str, Any]] = []


def report(name: str, goal: str, measured: str, ok: bool | None, **facts: Any) -> None:
    ROWS.append({"name": name, "goal": goal, "measured": measured, "ok": ok, **facts})
    mark = {True: "ok", False: "MISSED", None: ""}[ok]
    print(f"  {mark:>6}  {name:<58} {measured:<34} {goal}", flush=True)


def timed(job: Callable[[], Any], repeats: int = 20, warm: int = 3) -> float:
    """Median milliseconds by device events."""
    for _ in range(warm):
        job()
    spans = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        job()
        end.record()
        end.synchronize()
        spans.append(start.elapsed_time(end))
    return statistics.median(spans)


def features(records: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Rows of norm about 1, made in blocks so that nothing large is left behind."""
    X = torch.empty((records, columns), dtype=dtype, device=GPU)
    for first in range(0, records, 1 << 17):
        block = X[first : first + (1 << 17)]
        block.copy_(torch.randn(block.shape, device=GPU) / math.sqrt(columns))
    return X


def error(got: torch.Tensor, reference: torch.Tensor) -> float:
    return float((got - reference).norm() / reference.norm())


# --- the noise ---------------------------------------------------------------------------------


def check_noise() -> None:
    """Rounded Gaussians against exact decisions of their bits, their moments, their speed."""
    source = device_noise.DeviceSource(GPU)
    scale, count = 2.0**40, 4000
    drawn = source._drawn(scale, count).cpu().tolist()
    wrong = 0
    for pair in range(count // 2):
        words = device_noise.pair_words(source._key.cpu(), pair // 2, pair % 2)
        told = decided(scale, words[0], words[2], device_noise._bits(words[1], words[3]))
        wrong += (drawn[pair], drawn[count // 2 + pair]) != told
    many = source._drawn(scale, 4_000_000)
    mean, variance = float(many.mean()) / scale, float(many.var()) / scale**2
    ok = not wrong and abs(mean) < 3e-3 and abs(variance - 1) < 5e-3
    measured = f"{wrong}, {mean:+.4f}, {variance:.4f}"
    report("rounded noise: wrong of 4,000, mean, variance", "0, 0, 1", measured, ok)
    span = timed(lambda: source._drawn(scale, 1 << 22))
    rate = (1 << 22) / span * 1e3
    report("rounded noise, 2^22 at once", ">= 1e9 /s", f"{rate:.2g} /s", rate >= 1e9)


# --- ceilings ----------------------------------------------------------------------------------


def ceilings() -> dict[str, float]:
    count = 1 << 30

    def copied() -> float:
        a = torch.randn(count, device=GPU)  # 4 GiB
        b = torch.empty_like(a)
        return timed(lambda: b.copy_(a))

    def multiplied() -> float:
        a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device=GPU) for _ in range(2))
        return timed(lambda: a @ b)

    def sent() -> float:
        host = torch.empty(count, dtype=torch.uint8, pin_memory=True)
        there = torch.empty(count, dtype=torch.uint8, device=GPU)
        return timed(lambda: there.copy_(host, non_blocking=True), 8)

    copy = 2 * 4 * count / copied() / 1e6  # GB/s, read and written
    rate = 2 * 8192**3 / multiplied() / 1e9  # TFLOP/s
    bus = count / sent() / 1e6  # GB/s
    torch.cuda.empty_cache()
    print(
        f"  copy {copy:,.0f} GB/s (read + write), bf16 product {rate:,.0f} TFLOP/s, "
        f"host to device {bus:,.1f} GB/s"
    )
    return {"copy": copy, "rate": rate, "bus": bus}


# --- the steps ----------------------------------------------------------------------------------


def streaming(top: dict[str, float], records: int) -> None:
    columns, outputs = 768, 10
    y = torch.randint(0, outputs, (records,), device=GPU).float()
    head = Head("softmax", outputs, cap=0.5)
    theta = torch.randn(columns, outputs, dtype=torch.float64, device=GPU)
    host = torch.empty((records, columns), dtype=torch.bfloat16, pin_memory=True)
    for first in range(0, records, 1 << 18):
        block = host[first : first + (1 << 18)]
        block.copy_(features(len(block), columns))

    def whole(rows: Shards) -> torch.Tensor:
        total = torch.zeros_like(theta)
        for cut, block in rows.blocks(0, len(rows), GPU):
            total += gradient_sum(block, y[cut], theta, head)
        return total

    def rate(rows: Shards) -> float:
        whole(rows)
        torch.cuda.synchronize()
        start = time.perf_counter()
        whole(rows)
        torch.cuda.synchronize()
        return len(rows) * columns * 2 / (time.perf_counter() - start) / 1e9

    pinned = Shards(host)
    direct = gradient_sum(host.to(GPU), y, theta, head)
    assert error(whole(pinned), direct) < 1e-12
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    speed = rate(pinned)
    peak = torch.cuda.max_memory_allocated() / 1e6
    report(
        "streamed from pinned host memory",
        ">= 70 % of the bus",
        f"{speed:.1f} GB/s = {speed / top['bus']:.0%}, {peak:.0f} MB",
        speed >= 0.7 * top["bus"],
    )
    few = min(records, 1 << 20)
    pageable = torch.empty((few, columns), dtype=torch.bfloat16).copy_(host[:few])
    direct = gradient_sum(pageable.to(GPU), y[:few], theta, head)
    torch.cuda.empty_cache()
    assert error(whole(Shards(pageable)), direct) < 1e-12
    speed = rate(Shards(pageable))
    report(
        "streamed from pageable host memory",
        ">= 70 % of the bus",
        f"{speed:.1f} GB/s = {speed / top['bus']:.0%}",
        speed >= 0.7 * top["bus"],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, pageable[: few // 2].view(torch.int16).numpy().view(np.float16))
        # bfloat16 has no name in .npy, so these are its bits read as float16: only speed counts.
        speed = rate(Shards(path))
        share = speed / top["bus"]
        report(
            "streamed from a memory-mapped .npy (page cache)",
            ">= 70 % of the bus",
            f"{speed:.1f} GB/s = {share:.0%}",
            share >= 0.7,
        )


def whole_runs() -> None:
    """The public function on the GPU against the CPU, where SciPy is there for the losses."""
    from lastiterate import FullBatch, Shuffled, Training
    from lastiterate.losses import Softmax
    from lastiterate.torch import noisy_descent

    loss, n = Softmax(10), 20_000
    X = (features(n, 768).float() * 0.5).to(torch.bfloat16)
    y = torch.randint(0, 10, (n,))
    for batches in (FullBatch(), Shuffled(500)):
        run = Training(
            records=n,
            steps=40,
            step_size=1.0,
            noise=1e-3,
            batches=batches,
            gradient_norm=loss.gradient_norm(1.0),
            adjacency="replace",
        )
        same = {"labels": y, "random_state": 1}
        gpu = noisy_descent(loss, X, run, **same).parameters
        cpu = noisy_descent(loss, X.cpu().double(), run, **same, device="cpu").parameters
        gap = float(np.linalg.norm(gpu - cpu) / np.linalg.norm(cpu))
        report(
            f"noisy_descent, {batches}: GPU against CPU in double",
            "<= 1e-4",
            f"{gap:.1e}",
            gap <= 1e-4,
        )
    X = features(1_000_000, 768)
    y = torch.randint(0, 10, (1_000_000,))
    run = Training(
        records=1_000_000,
        steps=200,
        step_size=1.0,
        noise=1e-5,
        batches=FullBatch(),
        gradient_norm=loss.gradient_norm(2.0),
        adjacency="replace",
    )
    spans = []
    for steps in (100, 100, 1100):  # the first compiles
        start = time.perf_counter()
        noisy_descent(loss, X, run.replace(steps=steps), labels=y, feature_bound=2.0)
        torch.cuda.synchronize()
        spans.append(time.perf_counter() - start)
    each = (spans[2] - spans[1]) * 1e3 / 1000
    report(
        "noisy_descent, 1,000,000 x 768, 10 classes, secure noise, per step",
        "<= 1.0 ms",
        f"{each:.3f} ms",
        each <= 1.0,
    )


def certified(small: int) -> None:
    """Whole runs whose sums and noise are proved, at `noisy_descent`: what one step more costs."""
    from lastiterate import FullBatch, Training
    from lastiterate.losses import Softmax
    from lastiterate.torch import noisy_descent

    cases = [
        (1_000_000, 10, "exact8", 1.0, (100, 1100)),
        (1_000_000, 10, "exact", 1.0, (100, 1100)),
        (1_281_167, 1000, "exact8", 20.0, (50, 350)),
    ]
    for records, outputs, products, goal, counts in cases:
        n = records // small
        loss, X = Softmax(outputs), features(n, 768)
        y = torch.randint(0, outputs, (n,))
        run = Training(
            records=n,
            steps=1,
            step_size=1.0,
            noise=1e-5,
            batches=FullBatch(),
            gradient_norm=loss.gradient_norm(1.0),
            diameter=4.0,
            adjacency="zero-out",
        )
        settings = {
            "labels": y,
            "feature_bound": 1.0,
            "rows": "shorten",
            "products": products,
            "entry_bound": 0.25,
        }
        times = []
        for steps in (counts[0], *counts, *counts):
            torch.cuda.synchronize()
            start = time.perf_counter()
            got = noisy_descent(loss, X, run.replace(steps=steps), **settings)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        few, many = (min(pair) for pair in zip(times[1:3], times[3:], strict=True))
        span, told = (many - few) * 1e3 / (counts[1] - counts[0]), got.training.arithmetic
        assert not got.experiment
        share = told.error * n / run.gradient_norm
        slip = told.slip * n / (run.sensitivity * float(run.step_sizes[0]))
        report(
            f"{n:,} x 768, {outputs} classes, certified step, {products}",
            f"<= {goal:g} ms",
            f"{span:.3f} ms; e {share:.1%}, grid {slip:.0e} of a share",
            span <= goal,
            seconds=times,
        )


def graphs() -> None:
    """The recorded update against the plain loop: the same parameters, and what a step costs."""
    from lastiterate import FullBatch, TailAverage, Training
    from lastiterate.losses import Softmax
    from lastiterate.torch import noisy_descent
    from lastiterate.train.torch_backend import replay

    recorded = replay.WORTH
    cases = [
        (20_000, 10, torch.bfloat16),
        (20_000, 10, torch.float32),
        (20_000, 200, torch.bfloat16),
        (200_000, 10, torch.bfloat16),
    ]
    for n, outputs, dtype in cases:
        loss = Softmax(outputs)
        X, y = features(n, 768, dtype), torch.randint(0, outputs, (n,))
        run = Training(
            records=n,
            steps=150,
            step_size=1.0,
            noise=1e-4,
            batches=FullBatch(),
            gradient_norm=loss.gradient_norm(2.0),
            release=TailAverage(20),
            diameter=5.0,
            adjacency="replace",
        )
        settings = {"labels": y, "feature_bound": 2.0, "regularization": 1e-3}
        held, spans = {}, {}
        for name, worth in (("graph", recorded), ("plain", 10**9)):
            replay.WORTH = worth
            held[name] = [
                noisy_descent(loss, X, described, random_state=seed, **settings).parameters
                for described, seed in ((run.replace(noise=0.0), 0), (run, 1))
            ]
            times = []
            for steps in (200, 2200, 200, 2200):  # secure noise, made on the device
                start = time.perf_counter()
                noisy_descent(loss, X, run.replace(steps=steps), **settings)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
            spans[name] = (times[3] - times[2]) * 1e3 / 2000
        replay.WORTH = recorded
        gap = max(float(np.abs(a - b).max()) for a, b in zip(*held.values(), strict=True))
        what = f"{n:,} x 768, {outputs} classes, {str(dtype)[6:]}"
        report(f"{what}: graph against plain, largest gap", "<= 1e-6", f"{gap:.0e}", gap <= 1e-6)
        report(
            f"{what}: a step by graph, and plain",
            "graph is faster",
            f"{spans['graph']:.4f} ms, {spans['plain']:.4f} ms, "
            f"{spans['plain'] / spans['graph']:.1f}x",
            spans["graph"] < spans["plain"],
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--only", default="", help="sections, with commas between them")
    asked = parser.parse_args()
    small = 10 if asked.quick else 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"Triton {triton_support.AVAILABLE}")
    torch.cuda.init()
    started = time.perf_counter()
    top = ceilings()
    jobs: dict[str, Callable[[], None]] = {
        "noise": check_noise,
        "streaming": lambda: streaming(top, (1 << 22) // small),
        "runs": whole_runs,
        "graphs": graphs,
        "certified": lambda: certified(small),
    }
    for name in asked.only.split(",") if asked.only else jobs:
        job = jobs[name]
        begun = time.perf_counter()
        try:
            job()
        except ImportError as missing:
            print(f"  skipped: {missing}")
        except Exception:
            traceback.print_exc()
            ROWS.append({"name": "a section failed", "goal": "", "measured": "", "ok": False})
        gc.collect()
        torch.cuda.empty_cache()
        print(f"  -- {time.perf_counter() - begun:.1f} s", flush=True)
    print(f"\nfloor, measured, ratio (total {time.perf_counter() - started:.0f} s)")
    for row in ROWS:
        mark = {True: "ok", False: "MISSED", None: ""}[row["ok"]]
        print(f"  {mark:>6}  {row['name']:<66} {row['measured']:<34} {row['goal']}")
    if folder := os.environ.get("OUT"):
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, **top}
        text = json.dumps({"machine": facts, "rows": ROWS}, indent=2)
        Path(folder, "linear_probe.json").write_text(text)
    return 1 if any(row["ok"] is False for row in ROWS) else 0


if __name__ == "__main__":
    sys.exit(main())
