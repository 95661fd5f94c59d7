"""Our own results: each number of the tables in docs/theory/schedules.md, measured again.

Bounded domains (coupling), optimal schedules, the final noise burst, windows of released iterates,
the equalising last epoch. A row is met when what is measured is at most the goal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from lastiterate import Cyclic, FullBatch, Loss, Shuffled, TailAverage, Training, account
from lastiterate.accounting import best_burst, log_uniform, optimal_schedule
from lastiterate.accounting.burst import noise_factor
from lastiterate.accounting.calibration import calibrate
from lastiterate.accounting.risk import predicted_risk
from lastiterate.curves import gaussian
from lastiterate.theory.coupling import Coupling, CouplingProblem
from lastiterate.theory.taut_string import constant_curve

# D, s, T, c: epsilon at delta = 1e-5, nu = 1
BOUNDED = [
    (20, 0.05, 4000, 1.0, 5.240),
    (10, 0.1, 1000, 1.0, 5.550),
    (5, 0.2, 70, 1.0, 6.373),
    (5, 0.1, 70, 1.0, 3.239),
    (5, 0.4, 50, 1.0, 12.113),
    (10, 0.2, 240, 1.0, 10.558),
    (2, 0.5, 14, 1.0, 8.203),
    (2.5, 0.1, 20, 1.0, 1.760),
    (1, 0.1, 20, 1.0, 1.177),
    (5, 1.0, 24, 1.0, 26.448),
    (10, 0.5, 300, 1.0, 24.009),
    (5, 0.1, 300, 0.99, 3.094),
    (5, 0.1, 300, 0.95, 2.333),
]
# condition, (S/mu)^2: total risk of the optimal schedule with 64 steps
SCHEDULES = [
    (10, 1e-2, 0.3223),
    (10, 1e-3, 0.0460),
    (10, 1e-4, 0.00492),
    (100, 1e-3, 0.0952),
    (100, 1e-4, 0.0217),
    (100, 1e-5, 0.00343),
    (1000, 1e-5, 0.00751),
]
# condition, epochs, step size: noise risk with the best burst, constant noise = 1
BURSTS = [(10, 5, 0.05, 0.268), (10, 10, 0.2, 0.325), (100, 10, 0.05, 0.438), (100, 20, 0.2, 0.683)]
# c, T, window: mu^2 in units of s^2/nu^2
WINDOWS = [
    (0.9, 60, 10, 27.82),
    (0.9, 60, 30, 46.60),
    (0.97, 120, 60, 106.95),
    (0.99, 200, 100, 192.14),
    (0.97, 120, 1, 62.36),
    (0.97, 120, 120, 120.0),
]


def rows() -> list[dict[str, Any]]:
    """Name, goal, measured, and whether the goal is met (to the digits it is printed with)."""
    return [
        {"name": name, "goal": goal, "measured": float(measured), "ok": bool(met(measured, goal))}
        for name, goal, measured in _all()
    ]


def met(measured: float, goal: float) -> bool:
    """Whether the goal is met to the digits it is printed with."""
    return round(measured, printed_digits(goal)) <= goal


def printed_digits(goal: float) -> int:
    """Digits after the point."""
    return -int(Decimal(repr(goal)).as_tuple().exponent)


def _all() -> Iterator[tuple[str, float, float]]:
    yield from _bounded()
    yield from _schedules()
    yield from _bursts()
    yield from _windows()
    yield from _equalised()


def _bounded() -> Iterator[tuple[str, float, float]]:
    for D, s, steps, c, goal in BOUNDED:
        begin = time.perf_counter()
        string = float(constant_curve(c, s, 1.0, steps, D))
        found = Coupling(CouplingProblem.of(c, s, 1.0, D, steps), string).epsilon(1e-5)
        seconds = time.perf_counter() - begin
        taut = gaussian.epsilon(string, 1e-5)
        name = f"coupling, D={D:g} s={s:g} T={steps} c={c:g} (taut string {taut:.3f})"
        yield name, goal, found
        if steps == 4000:
            yield "    its seconds", 20.0, seconds


def _schedules() -> Iterator[tuple[str, float, float]]:
    mu = gaussian.mu(1.0, 1e-5)
    for condition, noise, goal in SCHEDULES:
        loss = Loss(smoothness=1.0, strong_convexity=1 / condition)
        spectrum = log_uniform(loss, 20)
        run = Training(
            records=1,
            steps=64,
            step_size=1.0,
            noise=1.0,
            gradient_norm=float(np.sqrt(noise) * mu),
            adjacency="zero-out",
            batches=FullBatch(),
        )
        begin = time.perf_counter()
        best = optimal_schedule(run, loss, 1.0, 1e-5, spectrum=spectrum)
        seconds = time.perf_counter() - begin
        risk = predicted_risk(best, loss, spectrum).total
        yield f"optimal schedule, condition {condition}, (S/mu)^2={noise:g}", goal, risk
        hidden = account(best, loss).mu
        published = np.sqrt(np.sum((best.step_sizes * best.impulse / best.noises) ** 2))
        assert hidden is not None
        yield "    taut string over composition, minus 1", 1e-9, abs(hidden / published - 1)
        yield "    its seconds", 1.0, seconds


def _bursts() -> Iterator[tuple[str, float, float]]:
    for condition, epochs, step, goal in BURSTS:
        loss = Loss(smoothness=1.0, strong_convexity=1 / condition)
        spectrum = log_uniform(loss, 20)
        run = Training(
            records=40,
            steps=40 * epochs,
            step_size=step,
            noise=1.0,
            gradient_norm=0.5,
            batches=Shuffled(1),
            adjacency="replace",
        )
        rho = best_burst(run, loss, 2.0, 1e-5, spectrum)

        def noise_risk(
            trial: Training, loss: Loss = loss, spectrum: np.ndarray = spectrum
        ) -> float:
            scaled = trial.scale_noise(noise_factor(trial, loss, 2.0, 1e-5))
            return predicted_risk(scaled, loss, spectrum).noise

        plain = noise_risk(run)
        name = f"burst, condition {condition}, {epochs} epochs, step {step:g} (rho {rho:.1f})"
        yield name, goal, noise_risk(run.replace(final_noise=rho)) / plain
        known = noise_risk(run.replace(batches=Cyclic(1))) / plain
        yield "    known order, no burst", 1.62, known


def _windows() -> Iterator[tuple[str, float, float]]:
    for c, steps, window, goal in WINDOWS:
        run = Training(
            records=1,
            steps=steps,
            step_size=1 - c,
            noise=1 - c,
            gradient_norm=0.5,
            batches=FullBatch(),
            release=TailAverage(window),
            adjacency="replace",
        )
        mu = account(run, Loss(smoothness=1.0, strong_convexity=1.0)).mu
        assert mu is not None
        yield f"window, c={c:g} T={steps} k={window}", goal, mu * mu


def _equalised() -> Iterator[tuple[str, float, float]]:
    run = Training(
        records=1000,
        steps=1000,
        step_size=1.0,
        noise=1.0,
        gradient_norm=1.0,
        adjacency="zero-out",
        batches=Shuffled(1),
        schedule="equalised",
    )
    found = calibrate(run, Loss(smoothness=1.0), epsilon=1.0, delta=1e-6)
    yield "equalised, one pass of 1000 batches: noise multiplier", 0.134, float(found.noises[0])


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:75s} {row['measured']:9.4g}  goal {row['goal']:g}  {row['ok']}")
