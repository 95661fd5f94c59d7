"""Tables of forgetting: clean steps, sequences and noise on published settings.

The published columns are quoted: result files of Graph-COM/Langevin_unlearning (full batches) and
the formula coded in Graph-COM/SGD_unlearning (radius 0, weak triangle q = 2).
"""

from __future__ import annotations

import math
from typing import Any

from lastiterate import Cyclic, Exposure, FullBatch, Loss, Shuffled, Training, account
from lastiterate.curves.bracket import halved
from lastiterate.unlearning import plan_requests, plan_unlearning

# (deleted at once, epsilon): published K, string with replaced records, with empty slots
AT_ONCE = {
    (10, 1.0): (581, 11, 0),
    (100, 1.0): (1491, 60, 45),
    (1000, 1.0): (2331, 109, 94),
    (100, 0.1): (21281, 104, None),
}
IN_GROUPS = {5: (19717, 245), 10: (8739, 200), 20: (5058, 150)}  # of 100: published, string
SINGLES = (886, 358, 178)  # 100 single deletions: published, string, empty slots
# epsilon: sigma for one deletion after one epoch: published and string for batches of 128 (worst
# position, hidden position), published and string for full batches
SIGMA = {
    0.1: (0.039607, 0.003296, 0.002065, 0.472867, 0.039351),
    1.0: (0.004100, 0.000426, 0.000305, 0.048951, 0.005092),
    5.0: (0.000933, 0.000106, 0.000083, 0.011140, 0.001269),
}
LAST_RECORD = {0: 2.254, 1: 1.544, 10: 0.616, 100: 0.188}  # one pass of 1000: epsilon after K
README_RUN = {0: 4.339, 1: 3.745, 40: 3.111, 2000: 1.877}  # 50 epochs, weak L2


def mnist(records: int, steps: int, sigma: float = 0.03, **changes: Any) -> tuple[Training, Loss]:
    """MNIST 3 v 8 as the published code trains it: rows of norm 1, noise √(2η)σ."""
    l2 = 1e-6 * records
    eta = 1 / (0.25 + l2)
    run = Training(
        records=records,
        steps=steps,
        step_size=eta,
        noise=math.sqrt(2 * eta) * sigma,
        gradient_norm=1.0,
        batches=FullBatch(),
    )
    return run.replace(**changes), Loss(smoothness=0.25, regularization=l2)


def least_sigma(run: Training, loss: Loss, clean: int, epsilon: float, delta: float) -> float:
    """The smallest σ with which one record is forgotten after ``clean`` further steps."""
    longer = run.replace(steps=run.steps + clean)

    def enough(sigma: float) -> bool:
        scaled = longer.replace(noise=math.sqrt(2 * run.step_size) * sigma)  # type: ignore
        return account(scaled, loss, exposure=Exposure(left=run.steps)).delta(epsilon) <= delta

    return halved(enough, good=1.0, bad=1e-6, tolerance=1e-6)


def rows() -> list[dict[str, Any]]:
    """Measurements of this module."""
    found: list[dict[str, Any]] = []

    def note(name: str, printed: float, value: float, published: float | None = None) -> None:
        digits = 0 if isinstance(printed, int) else len(str(printed).split(".")[1])
        goal = f"{printed} or smaller" + (f"; published {published}" if published else "")
        ok = round(value, digits) <= printed
        found.append({"name": name, "goal": goal, "measured": value, "ok": ok})

    n = 11982
    for (records, epsilon), (published, replaced, emptied) in AT_ONCE.items():
        for adjacency, printed in (("replace", replaced), ("zero-out", emptied)):
            if printed is not None:
                run, loss = mnist(n, 10_000, adjacency=adjacency)
                plan = plan_unlearning(run, loss, Exposure(records=records), epsilon, 1 / n)
                where = f"{records} at once, epsilon {epsilon:g}, {adjacency}: clean steps"
                note(where, printed, math.inf if plan.steps is None else plan.steps, published)
    run, loss = mnist(n, 10_000)
    for size, (published, printed) in IN_GROUPS.items():
        several = plan_requests(run, loss, Exposure(records=size), 1.0, 1 / n, requests=100 // size)
        note(f"100 in groups of {size}: clean steps", printed, several.total, published)
    n = 11264
    for adjacency, printed in (("replace", SINGLES[1]), ("zero-out", SINGLES[2])):
        run, loss = mnist(n, 10_000, adjacency=adjacency)
        singles = plan_requests(run, loss, None, 1.0, 1 / n, requests=100)
        note(f"100 single requests, {adjacency}: clean steps", printed, singles.total, SINGLES[0])
    for epsilon, (small, worst, hidden, whole, full) in SIGMA.items():
        for name, batches, printed, published, steps, clean in (
            ("b = 128, worst position", Cyclic(128), worst, small, 30 * 88, 88),
            ("b = 128, hidden position", Shuffled(128), hidden, small, 30 * 88, 88),
            ("full batch", FullBatch(), full, whole, 3000, 1),
        ):
            run, loss = mnist(n, steps, batches=batches)
            sigma = least_sigma(run, loss, clean, epsilon, 1 / n)
            note(f"sigma after one epoch, epsilon {epsilon:g}, {name}", printed, sigma, published)
    once = Training(
        records=1000,
        steps=1000,
        step_size=1.0,
        noise=1.0,
        gradient_norm=0.5,
        batches=Cyclic(1),
        adjacency="zero-out",
    )
    weak = once.replace(
        records=60_000,
        steps=2000,
        step_size=0.05,
        noise=0.0005,
        gradient_norm=5.0,
        batches=Cyclic(1500),
        adjacency="replace",
    )
    for name, run, loss, delta, table in (
        ("one pass, last record", once, Loss(smoothness=1.0), 1e-6, LAST_RECORD),
        ("50 epochs", weak, Loss(smoothness=1.0, regularization=0.002), 1e-5, README_RUN),
    ):
        for clean, epsilon in table.items():
            longer = run.replace(steps=run.steps + clean)
            value = account(longer, loss, exposure=Exposure(left=run.steps)).epsilon(delta)
            note(f"{name}: epsilon after {clean} clean steps", epsilon, value)
    return found
