"""Predicted risks of tuned runs: the other columns of the tables in docs/theory/schedules.md.

A quadratic with 20 eigenvalues, log-uniform between 1/condition and 1, started at distance 1 in
every direction. A row is met when what is measured is at most the goal, to the digits it is printed
with; floors and linear runs have nothing to tune and must equal it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.own_results import WINDOWS, met, printed_digits
from lastiterate import Loss, Poisson, Shuffled, Training, calibrate
from lastiterate.accounting import burst_rule, log_uniform
from lastiterate.accounting.burst import noise_factor
from lastiterate.accounting.risk import Floats, predicted_risk, responses

# condition, (S/mu)^2: constant noise; tail average of 256 steps at its best noises; the floor
FULL_BATCH = [
    (10, 1e-2, 0.3792, 0.3084, 0.2978),
    (10, 1e-3, 0.0703, 0.0387, 0.0384),
    (10, 1e-4, 0.00924, 0.00401, 0.00398),
    (100, 1e-3, 0.1122, 0.0895, 0.0829),
    (100, 1e-4, 0.0311, 0.0183, 0.0173),
    (100, 1e-5, 0.00637, 0.00231, 0.00221),
    (1000, 1e-5, 0.00974, 0.00629, 0.00570),
]
# condition, (S/mu)^2: average of constant noise, at most 256 steps
AVERAGED = [
    (10, 1e-3, 0.0413),
    (10, 1e-4, 0.00413),
    (100, 1e-3, 0.0938),
    (100, 1e-4, 0.0196),
    (100, 1e-5, 0.00256),
]
# condition, epochs, (impulse per unit step)^2: 40 shuffled batches at (2, 1e-5), step size tuned:
# constant noise, burst by the rule
BURSTS = [
    (10, 5, 1e-2, 0.0155, 0.0061),
    (10, 5, 1e-3, 0.00239, 0.00082),
    (10, 20, 1e-2, 0.00573, 0.00323),
    (10, 20, 1e-3, 0.00083, 0.00035),
    (100, 5, 1e-2, 0.0376, 0.0241),
    (100, 5, 1e-3, 0.00914, 0.00558),
    (100, 20, 1e-2, 0.0199, 0.0153),
    (100, 20, 1e-3, 0.00366, 0.00275),
]
# of an average over the window of a linear run, in units of s^2/nu^2
LINEAR = (25.96, 41.98, 96.24, 173.13, 62.36, 107.42)


def rows() -> list[dict[str, Any]]:
    """Name, goal, measured, and whether the goal is met (to the digits it is printed with)."""
    found = []
    for name, goal, value in _all():
        ok = met(value, goal)
        if name.startswith(("floor", "linear run")):
            ok = round(value, printed_digits(goal)) == goal
        found.append({"name": name, "goal": goal, "measured": float(value), "ok": bool(ok)})
    return found


def _all() -> Iterator[tuple[str, float, float]]:
    for condition, noise, constant, average, floor in FULL_BATCH:
        spectrum = log_uniform(Loss(smoothness=1.0, strong_convexity=1 / condition), 20)
        name = f"condition {condition}, (S/mu)^2={noise:g}"
        yield f"constant noise, {name}", constant, constant_noise(spectrum, noise)
        yield f"tail average of 256 steps, {name}", average, averaged_optimum(spectrum, noise)
        yield f"floor, {name}", floor, float(np.sum(noise * spectrum / (spectrum**2 + noise)) / 2)
    for condition, noise, goal in AVERAGED:
        spectrum = log_uniform(Loss(smoothness=1.0, strong_convexity=1 / condition), 20)
        name = f"average of constant noise, condition {condition}, (S/mu)^2={noise:g}"
        yield name, goal, averaged_constant(spectrum, noise)
    for condition, epochs, square, constant, rule in BURSTS:
        name = f"condition {condition}, {epochs} epochs, impulse^2={square:g}"
        plain, burst = shuffled(condition, epochs, square)
        yield f"shuffled, constant noise, {name}", constant, plain
        yield f"shuffled, burst by the rule, {name}", rule, burst
    for (c, steps, window, _), goal in zip(WINDOWS, LINEAR, strict=True):
        yield f"linear run, c={c:g} T={steps} k={window}", goal, linear_average(c, steps, window)
    yield "Poisson accounting of one pass of 1000 batches: noise multiplier", 0.700, poisson()


def price(c: Floats | float, steps: Floats | int) -> Floats:
    """mu^2 in units of s^2/nu^2: the taut string of equal steps, c < 1."""
    q = np.asarray(c) ** steps
    return np.asarray((1 - q) / (1 + q) * (1 + c) / (1 - c))


def _sizes(spectrum: Floats, count: int) -> Floats:
    cap = 2 / (spectrum[0] + spectrum[-1])
    return np.asarray(np.geomspace(cap / 300, cap, count))


def constant_noise(spectrum: Floats, noise: float) -> float:
    """Last iterate, constant step size and noise, both and the number of steps tuned."""
    steps = np.unique(np.geomspace(1, 20_000, 600).round())
    best = np.inf
    for eta in _sizes(spectrum, 600):
        factor = 1 - eta * spectrum
        left = factor ** steps[:, None]
        variance = eta**2 * noise * price(np.abs(factor).max(), steps)
        series = (1 - left**2) / (1 - factor**2)
        risk = (left**2 @ spectrum + variance * (series @ spectrum)) / 2
        best = min(best, float(risk.min()))
    return best


def averaged_constant(spectrum: Floats, noise: float) -> float:
    """Tail average of constant noise: step size, steps up to 256 and window tuned."""
    best = np.inf
    for steps in (64, 128, 256):
        for share in (0.4, 0.6, 0.75, 0.9):
            window = max(1, round(share * steps))
            for eta in _sizes(spectrum, 40):
                left, weights = responses(
                    np.full(steps, eta), spectrum, np.full(window, 1 / window)
                )
                hidden = price(np.abs(1 - eta * spectrum).max(), steps - window + 1)
                variance = eta**2 * noise * (hidden + window - 1)
                risk = (left**2 @ spectrum + variance * weights.sum()) / 2
                best = min(best, float(risk))
    return best


def averaged_optimum(spectrum: Floats, noise: float, steps: int = 256) -> float:
    """Tail average at the best noises, accounted by composition; step size and window tuned."""
    best = np.inf
    for share in (0.2, 0.4, 0.6, 0.75, 0.9, 1.0):
        window = max(1, round(share * steps))
        for eta in _sizes(spectrum, 40):
            left, weights = responses(np.full(steps, eta), spectrum, np.full(window, 1 / window))
            risk = left**2 @ spectrum + noise * (eta * np.sqrt(weights).sum()) ** 2
            best = min(best, float(risk) / 2)
    return best


def shuffled(condition: int, epochs: int, square: float) -> tuple[float, float]:
    """40 shuffled batches, step size tuned: constant noise, and the burst of the rule."""
    loss = Loss(smoothness=1.0, strong_convexity=1 / condition)
    spectrum = log_uniform(loss, 20)
    found = []
    for burst in (False, True):
        risks = []
        for eta in _sizes(spectrum, 160):
            run = Training(
                records=40,
                steps=40 * epochs,
                step_size=float(eta),
                noise=1.0,
                batches=Shuffled(1),
                gradient_norm=float(np.sqrt(square)),
                adjacency="zero-out",
            )
            if burst:
                run = run.replace(final_noise=burst_rule(run, loss, spectrum))
            run = run.scale_noise(noise_factor(run, loss, 2.0, 1e-5))
            risks.append(predicted_risk(run, loss, spectrum).total)
        found.append(min(risks))
    return found[0], found[1]


def linear_average(c: float, steps: int, window: int) -> float:
    """mu^2 of the average of the last iterates of x -> c x + s + noise."""
    one = np.ones(1)
    _, weights = responses(np.full(steps, 1 - c), one, np.full(window, 1 / window))
    return float(np.sqrt(weights).sum() ** 2 / weights.sum())


def poisson() -> float:
    """What accountants of Poisson batches ask for the same loop."""
    run = Training.dp_sgd(
        records=1000,
        steps=1000,
        step_size=1.0,
        noise_multiplier=1.0,
        clip=1.0,
        batches=Poisson(0.001),
    )
    return float(calibrate(run, Loss.unknown(), epsilon=1.0, delta=1e-6).noises[0])


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:75s} {row['measured']:9.4g}  goal {row['goal']:g}  {row['ok']}")
