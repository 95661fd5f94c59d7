"""Reference tables of exposed runs: hidden groups and how long they take, rounds of local steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lastiterate import (
    Exposure,
    Loss,
    Reshuffled,
    Shuffled,
    Training,
    account,
    certify,
    compare,
    verify,
)
from lastiterate.bounds.cycle_law import Placement, cycle_law
from lastiterate.bounds.positions import constant_position_mus
from lastiterate.bounds.superposed_groups import superposed_law
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import fractional
from lastiterate.federated import Federation, account_federated

# (batches, size, epochs, delta): k: known k mu, known spread, hidden in one batch, free, spread, G4
GROUPS = {
    (1000, 60, 1, 1e-6): {
        1: (2.254, 2.254, 1.354, 1.354, 1.354, 1.354),
        2: (4.887, 3.308, 3.140, 1.488, 1.477, 1.606),
        5: (14.451, 5.551, 10.205, 1.747, 1.667, 2.239),
        10: (35.566, 8.306, 27.176, 2.171, 1.903, 3.207),
    },
    (40, 1500, 5, 1e-5): {
        2: (4.626, 3.265, 3.622, 2.393, 2.104, 2.606),
        5: (14.029, 6.326, 11.589, 4.594, 4.218, 5.912),
        10: (35.386, 11.480, 30.562, 9.212, 8.916, 12.384),
    },
}
NAMES = ("known, k mu", "known, spread (G2)", "hidden, one batch", "free", "spread", "G4, spread")
RATIO = 0.5  # s / nu
# (c, batches, epochs, ratio): G4, the cycle law at c = 1, k mu known; two records, spread
CONTRACTING = {
    (0.9999, 40, 50, 2 / 3): (7.509, 7.202, 9.905),
    (0.99, 40, 20, 0.5): (2.537, 3.218, 4.584),
    (0.95, 20, 30, 0.5): (2.638, 5.727, 4.462),
}
# (clients, rounds, local steps, step, L2, noise over H eta K): against outsiders, against clients
LOCAL_STEPS = {
    (100, 200, 10, 0.1, 0.05, 8): (3.253, 8.365),
    (100, 500, 20, 0.05, 0.02, 10): (4.328, 11.345),
    (1000, 100, 5, 0.1, 0.1, 5): (5.567, 9.755),
}
# power of (1 - x): insiders and outsiders of one pass of 1000 hidden positions
CORRELATED = {0.5: (4.195, 1.455), 1.0: (186.191, 2.254)}


def cycle_epsilon(placement: Placement, epochs: int, ratio: float, delta: float) -> float:
    """Epsilon by the cycle law."""
    law = cycle_law(placement, delta)
    base = (epochs - 1) * placement.records**2 / placement.batches
    return Mixture(ratio * np.sqrt(base + law.costs) * (1 + 1e-15), law.weights).epsilon(delta)


def superposed_epsilon(
    mus: np.ndarray[Any, np.dtype[np.float64]], size: int, records: int, delta: float
) -> float:
    """Epsilon by superposition, no two records in one batch."""
    law = superposed_law(mus, size, records, delta, spread=True)
    return Mixture(law.costs, law.weights).epsilon(delta)


def rows() -> list[dict[str, Any]]:
    """Measurements of this module."""
    found: list[dict[str, Any]] = []

    def note(name: str, printed: float, value: float) -> None:
        ok = round(value, 3) <= printed
        goal = f"{printed} or smaller"
        found.append(
            {"name": name, "goal": goal, "measured": value, "ratio": value / printed, "ok": ok}
        )

    def timed(name: str, limit: float, seconds: float) -> None:
        goal, ratio = f"<= {limit} s", seconds / limit
        found.append(
            {"name": name, "goal": goal, "measured": seconds, "ratio": ratio, "ok": ratio <= 1}
        )

    for (batches, size, epochs, delta), table in GROUPS.items():
        mus = constant_position_mus(1.0, RATIO, 1.0, epochs * batches, batches)
        for k, printed in table.items():
            spread_square = (epochs - 1) * k**2 / batches + k
            start = time.process_time()
            superposed = superposed_epsilon(mus, size, k, delta)
            middle = time.process_time()
            spread = cycle_epsilon(Placement(batches, k, size, True), epochs, RATIO, delta)
            end = time.process_time()
            values = (
                Gaussian(k * float(mus.max())).epsilon(delta),
                Gaussian(RATIO * math.sqrt(spread_square)).epsilon(delta),
                Mixture(k * mus).epsilon(delta),
                cycle_epsilon(Placement(batches, k, size, False), epochs, RATIO, delta),
                spread,
                superposed,
            )
            for name, goal, value in zip(NAMES, printed, values, strict=True):
                note(f"{k} records, {batches} batches: {name}, epsilon", goal, value)
            if (batches, k) == (1000, 10):
                timed("cycle law, 1000 batches, 10 records spread, seconds", 10, end - middle)
                free = time.process_time() - end
                timed("cycle law, 1000 batches, 10 records free, seconds", 10, free)
                timed("superposition, 1000 batches, 10 records, seconds", 2, middle - start)
    for (c, batches, epochs, ratio), (four, three, known) in CONTRACTING.items():
        mus = constant_position_mus(c, ratio, 1.0, epochs * batches, batches)
        where = f"2 records, c = {c}, {batches} batches"
        note(f"{where}: G4, epsilon", four, superposed_epsilon(mus, 1, 2, 1e-5))
        placement = Placement(batches, 2, 1, True)
        note(f"{where}: G3, epsilon", three, cycle_epsilon(placement, epochs, ratio, 1e-5))
        note(f"{where}: known, epsilon", known, Gaussian(2 * float(mus.max())).epsilon(1e-5))
    for (clients, rounds, steps, eta, l2, z), (outside, inside) in LOCAL_STEPS.items():
        clip = Federation.local_reach(1.0, eta, steps, l2)
        federated = account_federated(
            clients,
            clients,
            rounds,
            clip,
            z * steps * eta / clip,
            adjacency="zero-out",
            local_step=eta,
            local_steps=steps,
            loss=Loss(smoothness=1.0, regularization=l2),
            clipping="none",
        )
        where = f"{rounds} rounds of {steps} local steps"
        note(f"{where}: outsiders, epsilon", outside, federated.epsilon(1e-5, "outsiders"))
        note(f"{where}: clients, epsilon", inside, federated.epsilon(1e-5))
    for power, (inside, outside) in CORRELATED.items():
        run = Training(
            records=1000,
            steps=1000,
            step_size=1.0,
            noise=2.0,
            gradient_norm=1.0,
            adjacency="zero-out",
            batches=Shuffled(1),
            correlation=fractional(power, 1000),
        )
        by = {row.theorem.key: row.epsilon for row in compare(run, Loss(smoothness=1.0), 1e-6)}
        where = f"noise (1 - x)^{power:g}, one pass of 1000"
        note(f"{where}: insiders, epsilon", inside, by["correlated-composition"])
        note(f"{where}: outsiders, epsilon", outside, by["correlated-last-iterate"])
    _described(note, timed)
    return found


def _described(note: Callable[..., None], timed: Callable[..., None]) -> None:
    """What users call: 10 records in one pass of 1000 hidden batches."""
    run = Training(
        records=60_000,
        steps=1000,
        step_size=1.0,
        noise=1.0,
        gradient_norm=15.0,
        batches=Shuffled(60),
    )
    loss, spread = Loss(smoothness=1.0), Exposure(10, per_batch=1)
    for name, person, printed in (("spread", spread, 1.903), ("free", Exposure(10), 2.171)):
        cycle_law.cache_clear()
        start = time.process_time()
        epsilon = account(run, loss, exposure=person).epsilon(1e-6)
        accounted = time.process_time()
        certificate = certify(run, loss, 1e-6, exposure=person)
        sealed = time.process_time()
        verify(certificate)
        checked = time.process_time() - sealed
        where = f"1000 batches, 10 records {name}"
        note(f"account, {where}, epsilon", printed, epsilon)
        note(f"certificate, {where}, epsilon", round(1.02 * printed, 3), certificate.epsilon)
        timed(f"account, {where}, seconds", 10, accounted - start)
        timed(f"certify, {where}, seconds", 20, sealed - accounted)
        timed(f"verify, {where}, seconds", 10, checked)
    anew = run.replace(batches=Reshuffled(60), steps=5000)
    epsilon = account(anew, loss, exposure=spread).epsilon(1e-6)
    note("5 epochs reshuffled, 10 records spread, epsilon (known order 22.425)", 2.839, epsilon)
