"""What to run, given a budget of privacy and of compute.

Full batches or many small ones, constant or scheduled, with a burst of noise or an average: each
alternative is tuned on a public quadratic model of the loss, calibrated to the same (epsilon,
delta), and listed with its predicted risk. The model only ranks; the privacy of each alternative
is accounted like that of any run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lastiterate._internal.formatting import printed
from lastiterate._internal.progress import Working
from lastiterate.accounting.burst import best_burst, burst_rule, noise_factor
from lastiterate.accounting.calibration import calibrate
from lastiterate.accounting.optimal import optimal_schedule
from lastiterate.accounting.risk import QuadraticModel, Risk
from lastiterate.description import FullBatch, Loss, Shuffled, TailAverage, Training
from lastiterate.description.fields import checked_delta, integer, number

_BATCHES = (10, 40, 100, 400, 1000)
_SMALLEST_BATCH = 10  # records; below that a batch says too little about the loss
_MOST_SCHEDULED = 256


@dataclass(frozen=True)
class Alternative:
    """One way to spend the budget, calibrated to it, and the risk it is expected to end with."""

    name: str
    training: Training
    risk: Risk


@dataclass(frozen=True)
class Recommendation:
    """The alternatives, best first; ``training`` and ``loss`` are what to run."""

    alternatives: tuple[Alternative, ...]
    loss: Loss
    epsilon: float
    delta: float
    distance: float

    @property
    def training(self) -> Training:
        """The run with the least predicted risk."""
        return self.alternatives[0].training

    @property
    def risk(self) -> Risk:
        """Its predicted excess risk."""
        return self.alternatives[0].risk

    def __str__(self) -> str:
        lines = [
            f"epsilon = {printed(self.epsilon)}, delta = {printed(self.delta)}, "
            f"{self.training.adjacency}; "
            "predicted excess risk, least first",
            f"  {'total':>9} {'bias':>9} {'noise':>9}   alternative",
        ]
        lines += [
            f"  {a.risk.total:9.3g} {a.risk.bias:9.3g} {a.risk.noise:9.3g}   {a.name}"
            for a in self.alternatives
        ]
        lines.append(
            "The risks are those of a quadratic model: the i-th eigenvalue is proportional to 1/i, "
            f"their sum is {self.loss.smoothness:g}, the minimum is at distance "
            f"{self.distance:g} from the start, batches add no sampling error. They rank the "
            "alternatives; the guarantee of each holds whatever the data."
        )
        return "\n".join(lines)


def recommend(
    records: int,
    dimension: int,
    epsilon: float,
    delta: float,
    epochs: int,
    gradient_norm: float = 1.0,
    smoothness: float = 0.25,
    adjacency: str = "zero-out",
    *,
    distance: float = 5.0,
) -> Recommendation:
    """Propose batches, schedule, noise, burst and averaging for a convex loss.

    Args:
        records: n.
        dimension: the number of parameters; each receives noise.
        epsilon: the target.
        delta: the probability with which epsilon may fail.
        epochs: passes over the data that can be afforded.
        gradient_norm: no record's gradient is longer, by the loss itself.
        smoothness: of one record's loss (0.25 for logistic regression on rows of norm 1).
        adjacency: "zero-out" or "replace".
        distance: a public guess of how far the minimum is from the start.

    >>> advice = recommend(records=30_000, dimension=50, epsilon=1.0, delta=1e-6, epochs=2)
    >>> advice.training.batches.name, len(advice.alternatives) > 5
    ('shuffled', True)
    >>> from lastiterate import account
    >>> account(advice.training, advice.loss).epsilon(1e-6) <= 1.0
    True
    """
    integer("records", records)
    delta = checked_delta(delta, records)
    integer("dimension", dimension)
    integer("epochs", epochs)
    distance = number("distance", distance, above=0)
    loss = Loss(smoothness=number("smoothness", smoothness, above=0))
    plain = Training(
        records=records,
        steps=epochs,
        step_size=1.0,
        noise=1.0,
        gradient_norm=number("gradient_norm", gradient_norm, above=0),
        batches=FullBatch(),
        adjacency=adjacency,
    )
    model = QuadraticModel(loss, dimension, distance, epsilon, delta)
    with Working("recommendation"):
        found = [_tuned(model, name, run) for name, run in _candidates(plain, epochs)]
        if epochs <= _MOST_SCHEDULED:
            found.append(_scheduled(model, plain))
    found.sort(key=lambda alternative: alternative.risk.total)
    return Recommendation(tuple(found), loss, epsilon, delta, distance)


def _candidates(plain: Training, epochs: int) -> Iterator[tuple[str, Training]]:
    """What is tuned by its step size; a burst is marked by final_noise and chosen later."""
    yield "full batch, constant", plain
    if epochs >= 4:
        window = max(1, 3 * epochs // 4)
        average = plain.replace(release=TailAverage(window))
        yield f"full batch, average of the last {window}", average
    for batches in _BATCHES:
        size = plain.records // batches
        if size < _SMALLEST_BATCH:
            continue
        run = plain.replace(batches=Shuffled(size), steps=epochs * (plain.records // size))
        name = f"shuffled, {plain.records // size} batches of {size}"
        yield f"{name}, constant", run
        yield f"{name}, equalised last epoch", run.replace(schedule="equalised")
        yield f"{name}, final noise burst", run.replace(final_noise=2.0)


def _tuned(model: QuadraticModel, name: str, training: Training) -> Alternative:
    """The best step size on a grid, then the exact noise."""
    assert model.loss.smoothness is not None
    top = 1.9 / model.loss.smoothness
    sizes = np.geomspace(top / 300, top, 16)
    burst = training.final_noise != 1

    def at(size: float) -> Training:
        run = training.replace(step_size=float(size))
        if burst:  # the rule is that of constant steps; an equalised epoch needs little more
            rule = burst_rule(run, model.loss, model.directions[0])
            run = run.replace(final_noise=1.0 if run.schedule else rule)
        return run.scale_noise(noise_factor(run, model.loss, model.epsilon, model.delta))

    risks = [model.risk(at(size)).total for size in sizes]
    best = at(sizes[int(np.argmin(risks))])
    if burst:
        rho = best_burst(best, model.loss, model.epsilon, model.delta, model.directions[0])
        best = best.replace(final_noise=rho)
    best = calibrate(best, model.loss, model.epsilon, model.delta)
    return Alternative(name, best, model.risk(best))


def _scheduled(model: QuadraticModel, training: Training) -> Alternative:
    """Full batch with the optimal schedule."""
    best = optimal_schedule(
        training,
        model.loss,
        model.epsilon,
        model.delta,
        spectrum=model.directions[0],
        start=model.start,
        counts=model.directions[1],
    )
    return Alternative("full batch, optimal schedule", best, model.risk(best))
