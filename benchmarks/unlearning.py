"""Tables of forgetting: clean steps, sequences and noise on published settings.

The published columns are quoted: result files of Graph-COM/Langevin_unlearning (full batches) and
the formula coded in Graph-COM/SGD_unlearning (radius 0, weak triangle q = 2).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate import Cyclic, FullBatch, Loss, PrivacyUnit, Shuffled, Training, account
from lastiterate.curves import gaussian
from lastiterate.curves.bracket import halved, last_good
from lastiterate.theory.taut_string import taut_string
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
# the same in batches of 128, each record used just before its request: epochs published,
# steps of the string (13.5 epochs), of the string with empty slots (7.6 epochs)
IN_BATCHES = (100, 1188, 671)
# epsilon: sigma for one deletion after one epoch: published and string for batches of 128 (worst
# position, hidden position), published and string for full batches
SIGMA = {
    0.1: (0.039607, 0.003296, 0.002065, 0.472867, 0.039351),
    1.0: (0.004100, 0.000426, 0.000305, 0.048951, 0.005092),
    5.0: (0.000933, 0.000106, 0.000083, 0.011140, 0.001269),
}
# epsilon: noise of the output alone after one step, without noise in training: descent-to-delete as
# that code has it as a baseline (step size 2/(L + m)), exact
OUTPUT_NOISE = {0.1: (30.31, 0.3593), 1.0: (3.101, 0.0465), 5.0: (0.677, 0.0116)}
ENDLESS_OUTPUT_NOISE = 0.5625  # one deletion at every step, epsilon 1
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
        adjacency="replace",
    )
    return run.replace(**changes), Loss(smoothness=0.25, regularization=l2)


def least_sigma(run: Training, loss: Loss, clean: int, epsilon: float, delta: float) -> float:
    """The smallest σ with which one record is forgotten after ``clean`` further steps."""
    longer = run.replace(steps=run.steps + clean)

    def enough(sigma: float) -> bool:
        scaled = longer.replace(noise=math.sqrt(2 * run.step_size) * sigma)  # type: ignore
        return account(scaled, loss, unit=PrivacyUnit(last_step=run.steps)).delta(epsilon) <= delta

    return halved(enough, good=1.0, bad=1e-6, tolerance=1e-6)


def in_batches(run: Training, loss: Loss, epsilon: float, delta: float) -> int:
    """Clean steps of 100 requests, each of a record that the step before the request used."""
    eta, nu = float(run.step_sizes[0]), float(run.noises[0])
    c, s = 1 - eta * loss.regularization, eta * run.impulse
    allowed, every = gaussian.mu(epsilon, delta), run.batches_per_epoch or 1
    impulses, total = np.zeros(run.steps), 0

    def enough(clean: int) -> bool:
        return taut_string(c, np.append(impulses, np.zeros(clean)), nu).mu <= allowed

    for _ in range(100):
        last = len(impulses) - 1
        impulses[last % every :: every] += s
        good = 1
        while not enough(good):
            good *= 2
        clean = 0 if enough(0) else last_good(enough, good, good // 2)
        impulses, total = np.append(impulses, np.zeros(clean)), total + clean
    return total


def output_noise(records: int, epsilon: float, *, endless: bool = False) -> float:
    """The noise of the output alone, one step after a deletion from a run without noise."""
    l2 = 1e-6 * records
    eta = 2 / (0.25 + 2 * l2)
    run, loss = mnist(records, 3000, step_size=eta, noise=0.0)
    if not endless:
        return plan_unlearning(run, loss, None, epsilon, 1 / records, steps=1).noise
    c, lacked = 1 - eta * l2, np.arange(3000)[::-1]  # gone at the last request, used at this step
    loud = np.append(np.zeros(2999), 1.0)
    return taut_string(c, eta * run.impulse * lacked, loud).mu / gaussian.mu(epsilon, 1 / records)


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
                plan = plan_unlearning(run, loss, PrivacyUnit(records=records), epsilon, 1 / n)
                where = f"{records} at once, epsilon {epsilon:g}, {adjacency}: clean steps"
                note(where, printed, math.inf if plan.steps is None else plan.steps, published)
    run, loss = mnist(n, 10_000)
    for size, (published, printed) in IN_GROUPS.items():
        several = plan_requests(
            run, loss, PrivacyUnit(records=size), 1.0, 1 / n, requests=100 // size
        )
        note(f"100 in groups of {size}: clean steps", printed, several.total, published)
    n = 11264
    for adjacency, printed in (("replace", SINGLES[1]), ("zero-out", SINGLES[2])):
        run, loss = mnist(n, 10_000, adjacency=adjacency)
        singles = plan_requests(run, loss, None, 1.0, 1 / n, requests=100)
        note(f"100 single requests, {adjacency}: clean steps", printed, singles.total, SINGLES[0])
    for adjacency, printed in (("replace", IN_BATCHES[1]), ("zero-out", IN_BATCHES[2])):
        run, loss = mnist(n, 30 * 88, batches=Cyclic(128), adjacency=adjacency)
        steps = in_batches(run, loss, 1.0, 1 / n)
        where = f"100 single requests, b = 128, {adjacency}: clean steps (published: of 88)"
        note(where, printed, steps, 88 * IN_BATCHES[0])
    for epsilon, (published, exact) in OUTPUT_NOISE.items():
        name = f"output noise alone, epsilon {epsilon:g}"
        note(name, exact, output_noise(n, epsilon), published)
    note(
        "output noise alone, epsilon 1, for ever",
        ENDLESS_OUTPUT_NOISE,
        output_noise(n, 1.0, endless=True),
    )
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
            value = account(longer, loss, unit=PrivacyUnit(last_step=run.steps)).epsilon(delta)
            note(f"{name}: epsilon after {clean} clean steps", epsilon, value)
    return found
