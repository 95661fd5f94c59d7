"""Freeze the epsilons of 500 random descriptions, and compare a later version with them.

    python scripts/golden_epsilons.py freeze golden.json
    python scripts/golden_epsilons.py compare golden.json [--only WORD] [--sample N]

`compare` fails if an epsilon is larger by more than 1e-9 relative, or if a run that was covered is
covered no more. The file holds plain tables, with the adjacency of every run, so that neither a
renamed class nor a changed default moves what is compared.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lastiterate
from lastiterate import Loss, Training, account
from lastiterate.errors import DescriptionError, LastIterateError

DELTAS = (1e-5, 1e-8)
RUNS = 500
SEED = 20261119
LONGEST = 20.0  # seconds for one run; slower ones are drawn again
TOLERANCE = 1e-9
SCHEMES = (
    "full",
    "cyclic",
    "shuffled",
    "reshuffled",
    "random-allocation",
    "poisson",
    "without-replacement",
)
OLD_UNIT_NAMES = {"first_step": "joined", "last_step": "left"}


def unit_of(table: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword argument of `account` for a privacy unit, in this version's names."""
    if hasattr(lastiterate, "PrivacyUnit"):
        return {"unit": lastiterate.PrivacyUnit(**table)}
    old = {OLD_UNIT_NAMES.get(name, name): value for name, value in table.items()}
    return {"exposure": lastiterate.Exposure(**old)}


def draw_loss(rng: random.Random) -> dict[str, Any]:
    """Return a random loss of one of the four kinds."""
    kind = rng.choice(("convex", "convex", "strong", "nonconvex", "holder", "unknown"))
    table: dict[str, Any] = {"kind": "convex" if kind == "strong" else kind}
    if kind != "unknown":
        table["smoothness"] = round(10 ** rng.uniform(-1, 0.6), 4)
    if kind == "strong":
        table["strong_convexity"] = round(table["smoothness"] * rng.uniform(0.01, 1), 6)
    if kind == "holder":
        table["exponent"] = rng.choice((0.0, 0.25, 0.5, 0.9, 1.0))
    if rng.random() < 0.4:
        table["regularization"] = round(10 ** rng.uniform(-3, 0), 5)
    return table


def draw_batches(rng: random.Random, scheme: str) -> tuple[dict[str, Any], int]:
    """Return a random scheme with its number of records."""
    table: dict[str, Any] = {"scheme": scheme}
    if scheme == "full":
        return table, rng.randint(1, 500)
    if scheme == "poisson":
        table["rate"] = rng.choice((0.01, 0.05, 0.2, 0.5, 1.0))
        return table, rng.randint(5, 500)
    table["size"] = rng.choice((1, 2, 5, 10))
    if scheme == "random-allocation" and rng.random() < 0.5:
        table["same_every_epoch"] = True
    return table, table["size"] * rng.randint(1, 12) + rng.choice((0, 0, 1))


def draw_steps(rng: random.Random, table: dict[str, Any], scheme: str) -> int:
    """Return a number of updates: some epochs, perhaps the last one incomplete."""
    if scheme in ("full", "poisson", "without-replacement"):
        return rng.choice((1, 2, 7, 20, 60))
    per_epoch = max(1, table["records"] // table["batches"]["size"])
    more = rng.randint(0, per_epoch - 1) if rng.random() < 0.2 else 0
    return per_epoch * rng.randint(1, 5) + more


def draw_run(rng: random.Random, scheme: str) -> dict[str, Any]:
    """Return a random description as plain tables."""
    batches, records = draw_batches(rng, scheme)
    run: dict[str, Any] = {"records": records, "batches": batches}
    steps = run["steps"] = draw_steps(rng, run, scheme)
    divisor = {"full": records, "poisson": batches.get("rate", 1) * records}
    step = 10 ** rng.uniform(-1.5, 0.3)
    run["step_size"] = round(step, 5)
    run["gradient_norm"] = rng.choice((0.5, 1.0, 5.0))
    run["adjacency"] = rng.choice(("replace", "zero-out"))
    move = step * run["gradient_norm"] / divisor.get(scheme, batches.get("size", 1))
    run["noise"] = float(f"{move * 10 ** rng.uniform(-0.3, 0.8):.4g}")
    run["clipping"] = rng.choice(("none", "gradient", "margin"))
    for name in ("step_size", "noise"):
        if rng.random() < 0.15:
            run[name] = [round(run[name] * rng.uniform(0.3, 1), 9) for _ in range(steps)]
    draw_options(rng, run, move)
    unit = draw_unit(rng, run)
    releases = [rng.randint(1, steps - 1)] if steps > 2 and rng.random() < 0.12 else []
    return {"training": run, "loss": draw_loss(rng), "unit": unit, "releases": releases}


def draw_options(rng: random.Random, run: dict[str, Any], move: float) -> None:
    """Add what most runs do not have."""
    steps = run["steps"]
    if rng.random() < 0.4:
        run["diameter"] = float(f"{move * 10 ** rng.uniform(-0.5, 1.5):.4g}")
    if rng.random() < 0.1:
        run["sensitivity"] = run["gradient_norm"] * rng.choice((0.1, 0.5, 0.9))
    if rng.random() < 0.1:
        run["final_noise"] = rng.choice((0.5, 4.0, 25.0))
    if rng.random() < 0.1:
        run["arithmetic"] = {"grid": 2.0**-30, "error": 1e-9, "coordinates": 5}
    if rng.random() < 0.1:
        run["schedule"] = "equalised"
    draw = rng.random()
    if draw < 0.06:
        run["release"] = {"tail_average": rng.randint(1, steps)}
    elif draw < 0.1:
        run["momentum"] = 0.9
    elif draw < 0.14:
        run["correlation"] = [1.0, -0.5, -0.125]
    elif draw < 0.18:
        run["proximal"] = rng.choice(({"kind": "l1", "weight": 0.01}, {"kind": "box"}))


def draw_unit(rng: random.Random, run: dict[str, Any]) -> dict[str, Any]:
    """Return a privacy unit: one record throughout for three runs of four."""
    draw, steps = rng.random(), run["steps"]
    if draw < 0.75:
        return {}
    unit: dict[str, Any] = {}
    if draw < 0.87:
        unit["records"] = rng.randint(1, min(4, run["records"]))
        unit |= {"per_batch": 1} if rng.random() < 0.4 else {}
    if draw > 0.83:
        unit["first_step"] = rng.randint(0, steps // 2)
        unit["last_step"] = rng.randint(unit["first_step"], steps)
    if draw > 0.96:
        unit["gradient_norm"] = run["gradient_norm"] * 0.5
    return unit


def draws() -> Iterator[dict[str, Any]]:
    """Yield random descriptions, the schemes in turn."""
    rng = random.Random(SEED)
    number = 0
    while True:
        yield draw_run(rng, SCHEMES[number % len(SCHEMES)])
        number += 1


def evaluate(run: dict[str, Any]) -> dict[str, Any]:
    """Return the epsilons of a description, None where no theorem covers it; may raise."""
    training, loss = Training.from_dict(run["training"]), Loss.from_dict(run["loss"])
    unit = unit_of(run["unit"])
    started = time.process_time()
    try:
        guarantee = account(training, loss, releases=run["releases"], **unit)
        found = {f"{delta:g}": guarantee.epsilon(delta) for delta in DELTAS}
    except DescriptionError:
        raise
    except LastIterateError as error:
        return {"epsilon": None, "error": type(error).__name__}
    seconds = round(time.process_time() - started, 2)
    return {"epsilon": found, "theorem": guarantee.theorem.key, "seconds": seconds}


def _answer(run: dict[str, Any], results: Any) -> None:
    try:
        results.put(evaluate(run))
    except DescriptionError as error:
        results.put({"invalid": str(error)})


def evaluate_within(run: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return what `evaluate` does, or that it was invalid or too slow."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    worker = context.Process(target=_answer, args=(run, results))
    worker.start()
    worker.join(seconds)
    if worker.is_alive():
        worker.terminate()
        worker.join()
        return {"invalid": "slow"}
    return results.get() if not results.empty() else {"invalid": f"exit {worker.exitcode}"}


def freeze(path: Path) -> int:
    """Write the epsilons of this version."""
    kept: list[dict[str, Any]] = []
    rejected: dict[str, int] = {}
    for run in draws():
        found = evaluate_within(run, LONGEST)
        if "invalid" in found:
            reason = found["invalid"].split(",")[0].split(" is ")[0]
            rejected[reason] = rejected.get(reason, 0) + 1
            continue
        if found["epsilon"] is None and sum(k["epsilon"] is None for k in kept) > RUNS // 12:
            continue
        kept.append(run | found)
        if len(kept) == RUNS:
            break
    path.write_text(json.dumps({"version": lastiterate.__version__, "runs": kept}, indent=1))
    print(f"{len(kept)} runs written to {path}; drawn again: {rejected}", file=sys.stderr)
    return 0


def worse(old: float, new: float) -> bool:
    """Return whether an epsilon grew by more than the tolerance."""
    return not new <= old * (1 + TOLERANCE) and not (math.isinf(old) and math.isinf(new))


def compare(path: Path, only: str | None, sample: int | None) -> int:
    """Print every epsilon that grew; return 1 if there are any."""
    runs = list(enumerate(json.loads(path.read_text())["runs"]))
    if only is not None:
        runs = [(k, run) for k, run in runs if only in json.dumps(run)]
    if sample is not None and sample < len(runs):
        runs = random.Random(SEED).sample(runs, sample)
    failed = smaller = 0
    for k, run in runs:
        try:
            now = evaluate(run)
        except DescriptionError as error:
            now = {"epsilon": None, "error": str(error)}
        old, new = run["epsilon"], now["epsilon"]
        if old is None:
            continue
        if new is None:
            failed += 1
            print(f"run {k}: was {old} by {run['theorem']}, now {now['error']}")
            continue
        for delta, before in old.items():
            if worse(before, new[delta]):
                failed += 1
                print(
                    f"run {k}, delta {delta}: {before!r} by {run['theorem']} became {new[delta]!r} "
                    f"by {now['theorem']} ({new[delta] / before - 1 if before else math.inf:+.3g})"
                )
            smaller += new[delta] < before * (1 - TOLERANCE)
    print(f"{len(runs)} runs compared: {failed} larger or lost, {smaller} smaller")
    return 1 if failed else 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("command", choices=("freeze", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", help="compare runs whose table contains this text")
    parser.add_argument("--sample", type=int, help="compare this many runs, chosen by a fixed seed")
    given = parser.parse_args()
    if given.command == "freeze":
        return freeze(given.file)
    return compare(given.file, given.only, given.sample)


if __name__ == "__main__":
    sys.exit(main())
