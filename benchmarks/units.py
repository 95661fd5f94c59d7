"""Reference tables of exposed runs: hidden groups and how long they take, rounds of local steps.

`unit_streams` has those of streams and personal numbers; one command prints both:
``python -m benchmarks unit unit_streams``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import brentq

from lastiterate import (
    Loss,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
    Training,
    account,
    certify,
    compare,
    verify,
)
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import fractional
from lastiterate.federated import Federation, account_federated
from lastiterate.theory.correlated import Toeplitz
from lastiterate.theory.cycle_law import Placement, cycle_law
from lastiterate.theory.groups import superposed_law
from lastiterate.theory.positions import constant_position_mus
from lastiterate.theory.taut_string import taut_string

# (batches, size, epochs, delta): k: known k mu, known spread, generic group bound, hidden in one
# batch, free, spread, G4
GROUPS = {
    (1000, 60, 1, 1e-6): {
        1: (2.254, 2.254, 1.354, 1.354, 1.354, 1.354, 1.354),
        2: (4.887, 3.308, 3.258, 3.140, 1.488, 1.477, 1.606),
        5: (14.451, 5.551, 13.094, 10.205, 1.747, 1.667, 2.239),
        10: (35.566, 8.306, 48.2, 27.176, 2.171, 1.903, 3.207),
    },
    (40, 1500, 5, 1e-5): {
        2: (4.626, 3.265, 3.767, 3.622, 2.393, 2.104, 2.606),
        5: (14.029, 6.326, 14.888, 11.589, 4.594, 4.218, 5.912),
        10: (35.386, 11.480, 53.8, 30.562, 9.212, 8.916, 12.384),
    },
}
NAMES = (
    "known, k mu",
    "known, spread (G2)",
    "generic group bound",
    "hidden, one batch",
    "free",
    "spread",
    "G4, spread",
)
RATIO = 0.5  # s / nu
# (c, batches, epochs, ratio): enumerated strings, G4, the cycle law at c = 1, k mu known; two
# records, spread
CONTRACTING = {
    (0.9999, 40, 50, 2 / 3): (7.175, 7.509, 7.202, 9.905),
    (0.99, 40, 20, 0.5): (2.057, 2.537, 3.218, 4.584),
    (0.95, 20, 30, 0.5): (2.120, 2.638, 5.727, 4.462),
}
# (batches, size, records), ratio 1, one epoch: the mean of mu^2, delta at epsilon 1
SMALL = {
    (6, 2, 2): (1.1060606061, 0.1414428766),
    (6, 1, 3): (1.935, 0.2742942898),
    (5, 3, 3): (2.46, 0.3381545274),
    (8, 1, 4): (2.4908163265, 0.3486408150),
}
# (clients, rounds, local steps, step, L2, noise over H eta K): the round's factor, epsilon against
# outsiders, against clients
LOCAL_STEPS = {
    (100, 200, 10, 0.1, 0.05, 8): (0.95111, 3.253, 8.365),
    (100, 500, 20, 0.05, 0.02, 10): (0.98019, 4.328, 11.345),
    (1000, 100, 5, 0.1, 0.1, 5): (0.95099, 5.567, 9.755),
}
# power of (1 - x): the variance of X_T, mu^2 (nu/s)^2 of insiders (first, last record) and of
# outsiders (first, last), epsilon of insiders and of outsiders; one pass of 1000 hidden positions
CORRELATED = {
    0.0: (1000, 1, 1, 0.001, 1, 2.254, 1.354),
    0.5: (3.265, 3.265, 1, 0.306, 1, 4.195, 1.455),
    1.0: (1, 1000, 1, 1, 1, 186.191, 2.254),
}


def cycle_epsilon(placement: Placement, epochs: int, ratio: float, delta: float) -> float:
    """Epsilon by the cycle law."""
    law = cycle_law(placement, delta)
    base = (epochs - 1) * placement.records**2 / placement.batches
    return Mixture(ratio * np.sqrt(base + law.costs) * (1 + 1e-15), law.weights).epsilon(delta)


def enumerated(
    batches: int, size: int, records: int, epochs: int, c: float, ratio: float
) -> Mixture:
    """The strings of all placements of a person's records, each as likely as another."""
    mus = []
    for places in combinations(range(batches * size), records):
        held = np.bincount(np.array(places) // size, minlength=batches)
        mus.append(taut_string(c, ratio * np.tile(held, epochs), 1.0).mu)
    return Mixture(np.array(mus))


def generic_epsilon(alone: Mixture, records: int, delta: float) -> float:
    """What k steps from one record to the next make of its curve: (k e, d (1 + e^e + ...))."""

    def too_much(epsilon: float) -> float:
        steps = math.expm1(records * epsilon) / math.expm1(epsilon)
        return math.log(steps * max(alone.delta(epsilon), 1e-300) / delta)

    return records * float(brentq(too_much, 1e-6, 50.0))


def superposed_epsilon(
    mus: np.ndarray[Any, np.dtype[np.float64]], size: int, records: int, delta: float
) -> float:
    """Epsilon by superposition, no two records in one batch."""
    law = superposed_law(mus, size, records, delta, spread=True)
    return Mixture(law.costs, law.weights).epsilon(delta)


def rows() -> list[dict[str, Any]]:
    """Measurements of this module."""
    found: list[dict[str, Any]] = []

    def note(name: str, printed: float, value: float, digits: int = 3) -> None:
        ok = round(value, digits) <= printed
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
                generic_epsilon(Mixture(mus), k, delta),
                Mixture(k * mus).epsilon(delta),
                cycle_epsilon(Placement(batches, k, size, False), epochs, RATIO, delta),
                spread,
                superposed,
            )
            for name, goal, value in zip(NAMES, printed, values, strict=True):
                digits = 1 if goal in (48.2, 53.8) else 3  # as the table prints them
                note(f"{k} records, {batches} batches: {name}, epsilon", goal, value, digits)
            if (batches, k) == (1000, 10):
                timed("cycle law, 1000 batches, 10 records spread, seconds", 10, end - middle)
                free = time.process_time() - end
                timed("cycle law, 1000 batches, 10 records free, seconds", 10, free)
                timed("superposition, 1000 batches, 10 records, seconds", 2, middle - start)
    for (c, batches, epochs, ratio), (each, four, three, known) in CONTRACTING.items():
        mus = constant_position_mus(c, ratio, 1.0, epochs * batches, batches)
        where = f"2 records, c = {c}, {batches} batches"
        exact = enumerated(batches, 1, 2, epochs, c, ratio)
        note(f"{where}: enumerated strings, epsilon", each, exact.epsilon(1e-5))
        note(f"{where}: G4, epsilon", four, superposed_epsilon(mus, 1, 2, 1e-5))
        placement = Placement(batches, 2, 1, True)
        note(f"{where}: G3, epsilon", three, cycle_epsilon(placement, epochs, ratio, 1e-5))
        note(f"{where}: known, epsilon", known, Gaussian(2 * float(mus.max())).epsilon(1e-5))
    for (batches, size, k), (mean, delta) in SMALL.items():
        law = enumerated(batches, size, k, 1, 1.0, 1.0)
        where = f"{k} records, {batches} batches of {size}, enumerated"
        note(f"{where}: mean mu^2", mean, float(law.weights @ law.mus**2), 10)
        note(f"{where}: delta at epsilon 1", delta, law.delta(1.0), 10)
    for (clients, rounds, steps, eta, l2, z), (factor, outside, inside) in LOCAL_STEPS.items():
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
        loss = federated.federation.one_step()
        assert isinstance(loss, Loss)
        note(f"{where}: factor of a round", factor, 1 - eta * loss.regularization, 5)
        note(f"{where}: outsiders, epsilon", outside, federated.epsilon(1e-5, "outsiders"))
        note(f"{where}: clients, epsilon", inside, federated.epsilon(1e-5))
    _correlated(note)
    _described(note, timed)
    return found


def _correlated(note: Callable[..., None]) -> None:
    """Noise whose steps take back some of the noise before them."""
    for power, (variance, *squares, inside, outside) in CORRELATED.items():
        noise = Toeplitz(fractional(power, 1000), 1000)
        public, hidden = noise.insiders(1000), noise.outsiders(1000)
        where = f"noise (1 - x)^{power:g}, one pass of 1000"
        note(f"{where}: variance of the last iterate", variance, float(noise.still_to_come[-1]))
        found = (public[0], public[-1], hidden[0], hidden[-1])
        whose = ("insiders, first", "insiders, last", "outsiders, first", "outsiders, last")
        for name, printed, value in zip(whose, squares, found, strict=True):
            note(f"{where}: {name} record, mu^2 (nu/s)^2", printed, float(value))
        run = Training(
            records=1000,
            steps=1000,
            step_size=1.0,
            noise=2.0,
            gradient_norm=1.0,
            adjacency="zero-out",
            batches=Shuffled(1),
            correlation=noise.coefficients,
        )
        for seen, hidden_state, printed in (
            ("insiders", False, inside),
            ("outsiders", True, outside),
        ):
            rows = compare(run, Loss(smoothness=1.0), 1e-6)
            best = min(row.epsilon for row in rows if row.theorem.hidden_state == hidden_state)
            note(f"{where}: {seen}, epsilon", printed, best)


def _described(note: Callable[..., None], timed: Callable[..., None]) -> None:
    """What users call: 10 records in one pass of 1000 hidden batches."""
    run = Training(
        records=60_000,
        steps=1000,
        step_size=1.0,
        noise=1.0,
        gradient_norm=15.0,
        batches=Shuffled(60),
        adjacency="replace",
    )
    loss, spread = Loss(smoothness=1.0), PrivacyUnit(10, per_batch=1)
    for name, person, printed in (("spread", spread, 1.903), ("free", PrivacyUnit(10), 2.171)):
        cycle_law.cache_clear()
        start = time.process_time()
        epsilon = account(run, loss, unit=person).epsilon(1e-6)
        accounted = time.process_time()
        certificate = certify(run, loss, 1e-6, unit=person)
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
    epsilon = account(anew, loss, unit=spread).epsilon(1e-6)
    note("5 epochs reshuffled, 10 records spread, epsilon (known order 22.425)", 2.839, epsilon)
