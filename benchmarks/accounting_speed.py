"""CPU seconds, sorts or memory of `account` and its inverses at the user's default call.

Every case runs once in a process of its own, so that nothing is in a cache and its peak memory can
be told apart. A sort is that of 10^6 doubles by NumPy, on the same machine in the same minute.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lastiterate import (
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
    calibrate,
    plateau,
    recommend,
)

DELTA = 1e-5
MANY = 10**6
MOST_MEMORY = 6 << 30  # bytes of address space of one case
CONVEX = Loss(smoothness=1.0)
STRONG = Loss(smoothness=1.0, strong_convexity=0.1)
NONCONVEX = Loss(smoothness=1.0, kind="nonconvex")


class Case(NamedTuple):
    """A call, and the most it should cost in ``unit``."""

    name: str
    goal: float
    unit: str
    work: Callable[[], object]


def _run(batches: Any, **values: Any) -> Training:
    given: dict[str, Any] = {"records": 1000, "gradient_norm": 1.0, "batches": batches}
    return Training(**(given | values))


def _epsilon(training: Training, loss: Loss) -> Callable[[], float]:
    return lambda: account(training, loss).epsilon(DELTA)


def _schedules() -> Iterator[Case]:
    """Arbitrary steps of full batches."""
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.5, 2.0, MANY) * 1e-3

    def full(low: float, high: float, **values: Any) -> Training:
        sizes = rng.uniform(low, high, MANY)
        return _run(FullBatch(), steps=MANY, step_size=sizes, noise=noise, **values)

    quadratic = Loss(smoothness=1.0, strong_convexity=1.0)
    clipped = full(0.1, 1.9, clipping="gradient")
    for name, training, loss in (
        ("convex", full(0.1, 1.9), CONVEX),
        ("strongly convex", full(0.1, 1.9), STRONG),
        ("contractions near cancellation", full(0.9, 1.1), quadratic),
        ("gradients clipped", clipped, CONVEX),
        ("not convex", full(0.0, 1.0), NONCONVEX),
        ("not convex, small steps", full(0.0, 1e-5), NONCONVEX),
        ("convex, bounded domain", full(0.1, 1.9, diameter=1.0), CONVEX),
    ):
        yield Case(f"10^6 arbitrary steps, {name}", 6, "sorts", _epsilon(training, loss))
    bounded = _epsilon(full(0.0, 1.0, diameter=1.0), NONCONVEX)
    yield Case("10^6 arbitrary steps, not convex, bounded domain", 1, "s", bounded)
    yield Case("10^6 arbitrary steps, not convex, bounded domain", 200, "MB", bounded)
    last = _epsilon(
        _run(FullBatch(), steps=10**9, step_size=0.1, noise=0.01, final_noise=4.0), STRONG
    )
    yield Case("10^9 steps with final_noise", 1, "s", last)
    yield Case("10^9 steps with final_noise", 100, "MB", last)


def _epochs() -> Iterator[Case]:
    """Batches that are shuffled."""
    for name, loss in (("convex", CONVEX), ("strongly convex", STRONG)):
        for batches in (10, 100):
            run = _run(
                Reshuffled(10), records=10 * batches, steps=600 * batches, step_size=0.1, noise=0.1
            )
            text = f"reshuffled, 600 epochs of {batches}, {name}"
            yield Case(text, 2.5, "s", _epsilon(run, loss))
            run = run.replace(diameter=1.0, adjacency="replace")
            yield Case(f"{text}, bounded domain, replace", 2.5, "s", _epsilon(run, loss))
        for kind, goal in ((Shuffled, 1.0), (Reshuffled, 3.0)):
            run = _run(kind(10), records=10_000, steps=50_000, step_size=0.1, noise=0.1)
            text = f"{kind.name}, 50 epochs of 1,000, {name}"
            yield Case(text, goal, "s", _epsilon(run, loss))


def _poisson() -> Iterator[Case]:
    """Poisson batches."""
    run = _run(Poisson(0.01), steps=10**5, step_size=0.1, noise=0.01)
    for l2 in (0.1, 0.001):
        loss, text = Loss(smoothness=1.0, regularization=l2), f"convex, L2 {l2:g}"
        yield Case(f"Poisson, 10^5 steps, {text}", 1.5, "s", _epsilon(run, loss))
        for name, work in _inverses(run, loss):
            yield Case(f"Poisson, 10^5 steps, {text}, {name}", 3 - (name[0] == "c"), "s", work)
    bounded = run.replace(diameter=1.0)
    yield Case("Poisson, 10^5 steps, bounded domain", 1.5, "s", _epsilon(bounded, CONVEX))
    for name, work in _inverses(bounded, CONVEX):
        text = f"Poisson, 10^5 steps, bounded domain, {name}"
        yield Case(text, 3 - (name[0] == "c"), "s", work)
    public = run.replace(momentum=0.9)
    yield Case("Poisson composition, 10^5 steps", 1, "PLD", _epsilon(public, CONVEX))
    noises = 0.01 * np.random.default_rng(0).uniform(0.9, 1.1, 10**5)
    public = public.replace(noise=noises)
    yield Case("Poisson composition, 10^5 different steps", 1, "PLD", _epsilon(public, CONVEX))


def _inverses(run: Training, loss: Loss) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "calibrate", lambda: calibrate(run, loss, epsilon=1.0, delta=DELTA)
    yield "plateau", lambda: plateau(run, loss, delta=DELTA)


def _without_replacement() -> Iterator[Case]:
    run = _run(WithoutReplacement(10), steps=10**4, step_size=0.1, noise=0.02)
    noises = 0.02 * np.random.default_rng(0).uniform(0.9, 1.1, 10**4)
    for name, loss, changes in (
        ("convex", CONVEX, {}),
        ("strongly convex", STRONG, {}),
        ("bounded domain", CONVEX, {"diameter": 1.0}),
        ("bounded domain, different steps", CONVEX, {"diameter": 1.0, "noise": noises}),
    ):
        changed = run.replace(**changes)
        yield Case(f"without replacement, 10^4 steps, {name}", 1.5, "s", _epsilon(changed, loss))
        work = next(_inverses(changed, loss))[1]
        yield Case(f"without replacement, 10^4 steps, {name}, calibrate", 3, "s", work)


def _recommended() -> Iterator[Case]:
    def advice() -> object:
        return recommend(records=10**6, dimension=50, epsilon=1.0, delta=1e-8, epochs=10)

    yield Case("recommend for 10^6 records", 3, "s", advice)


def _imported() -> float:
    """CPU seconds of the first import, the best of a few."""
    text = "from lastiterate import account; import time; print(time.process_time())"
    found = [
        float(subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    return min(found)


def _sort() -> float:
    values = np.random.default_rng(0).uniform(size=MANY)
    return min(_seconds(lambda: np.sort(values)) for _ in range(9))


def _pld() -> float:
    """dp-accounting's privacy-loss distribution of the same composition."""
    from dp_accounting.pld import privacy_loss_distribution

    def composed() -> float:
        one = privacy_loss_distribution.from_gaussian_mechanism(1.0, sampling_prob=0.01)
        return float(one.self_compose(10**5).get_epsilon_for_delta(DELTA))

    return min(_seconds(composed) for _ in range(3))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _alone(work: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds, and how many MB of memory more than before, in a process of its own."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def measured() -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        with open("/proc/self/statm") as file:
            before = int(file.read().split()[1]) * page
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        try:
            seconds = _seconds(work)
        except MemoryError:
            return
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        results.put((seconds, max(peak - before, 0) / 1e6))

    process = context.Process(target=measured)
    process.start()
    process.join()
    if results.empty():  # it took too much memory
        return math.inf, math.inf
    answer: tuple[float, float] = results.get()
    return answer


def cases() -> Iterator[Case]:
    """Every case of the table."""
    for some in (_schedules, _epochs, _poisson, _without_replacement, _recommended):
        yield from some()


def rows(wanted: str = "") -> list[dict[str, Any]]:
    """Name, goal, measured, and whether the goal is met; ``wanted``: part of the name."""
    account(_run(FullBatch(), steps=2, step_size=0.1, noise=1.0), CONVEX).epsilon(DELTA)
    units = {"s": 1.0, "sorts": _sort()}
    out = []
    if wanted in "import":
        seconds = _imported()
        out.append(("from lastiterate import account", 0.5, "s", seconds))
    for case in cases():
        if wanted not in case.name:
            continue
        seconds, megabytes = _alone(case.work)
        if case.unit == "PLD" and "PLD" not in units:
            units["PLD"] = _pld()
        value = megabytes if case.unit == "MB" else seconds / units[case.unit]
        out.append((case.name, case.goal, case.unit, value))
        print(f"{case.name:70s} {value:9.3f} {case.unit:6s} goal {case.goal:g}", flush=True)
    return [
        {"name": name, "goal": f"<= {goal:g} {unit}", "measured": value, "ok": value <= goal}
        for name, goal, unit, value in out
    ]


if __name__ == "__main__":
    for row in rows(" ".join(sys.argv[1:])):
        print(f"{row['name']:70s} {row['measured']:9.3f}   goal {row['goal']}")
