"""How a run ends: the last iterate or an average, an equalised last epoch or a burst of noise.

Each way is calibrated to the same (epsilon, delta) on the public quadratic model of `recommend`,
and the one with the least predicted risk is taken. The model agrees with what was measured on three
public data sets (docs/theory/schedules.md): many small batches are equalised, few large ones in one
pass get a burst unless noise dominates, short full-batch runs release the last iterate and long
ones an average. Averages of mini-batch runs lost in all settings, and are never proposed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastiterate.accounting.burst import best_burst, noise_factor
from lastiterate.accounting.calibration import calibrate
from lastiterate.accounting.risk import QuadraticModel
from lastiterate.description import Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.fields import one_of
from lastiterate.description.unit import ONE_RECORD

DISTANCE = 5.0  # from the start to the minimum, a public guess
FEW_BATCHES = 200  # in an epoch; with more of them equalising won or tied wherever it was tried
FEW_A_RECORD = 50  # batches for every record of a person; with more of them likewise
LONG = 10_000  # steps beyond which the comparison takes longer than it is worth


def ended(
    training: Training,
    loss: Loss,
    dimension: int,
    epsilon: float,
    delta: float,
    final_noise: float | str | None = None,
    person: PrivacyUnit = ONE_RECORD,
) -> tuple[Training, str]:
    """The run with its best ending, and why; ``final_noise`` (a factor, or "best") is kept."""
    model = QuadraticModel(loss, dimension, DISTANCE, epsilon, delta)
    run = training.replace(noise=1.0)  # what noise it needs is found for each ending
    if final_noise is not None:
        if isinstance(final_noise, str):
            why = "it multiplies the variance of the last step's noise"
            one_of("final_noise", final_noise, ("best",))
            final_noise = _burst(run, model)
        return training.replace(
            final_noise=final_noise
        ), f"{_burst_text(final_noise)}, as asked for"
    found = dict(_endings(run, model, person))
    if len(found) > 1:
        risks = {why: _risk(each, model, person) for why, each in found.items()}
        why = min(risks, key=lambda each: risks[each])
        best = found[why]
        others = ", ".join(f"{each}: {risk:.3g}" for each, risk in risks.items() if each != why)
        why += f" (predicted risk {risks[why]:.3g}; {others})"
    else:
        why, best = next(iter(found.items()))
    return best.replace(noise=training.noise), why


def _endings(
    run: Training, model: QuadraticModel, person: PrivacyUnit
) -> Iterator[tuple[str, Training]]:
    per_epoch = run.batches_per_epoch or 1
    if per_epoch == 1:
        average = run.replace(release=TailAverage((run.steps + 1) // 2))
        if run.steps <= LONG:
            yield "only the last iterate is released", run
        if run.steps > 1:
            yield "the average of the second half of the iterates is released", average
        return
    whole = run.steps % per_epoch == 0
    if whole:
        why = "the last epoch's steps shrink so that every position costs the same"
        yield why, run.replace(schedule="equalised")
    few = FEW_BATCHES if person.records == 1 else FEW_A_RECORD * person.records
    short = run.steps <= LONG and (per_epoch <= few or not whole)
    if short and person.records > 1:  # a burst is chosen for one record; equal steps hide several
        yield "every step alike", run
    elif short:
        rho = _burst(run, model)
        yield _burst_text(rho), run.replace(final_noise=rho)
    elif not whole:
        yield "every step alike", run


def _burst(run: Training, model: QuadraticModel) -> float:
    return best_burst(run, model.loss, model.epsilon, model.delta, model.directions[0])


def _burst_text(rho: float) -> str:
    return f"the last step's noise has {rho:.3g} times the variance" if rho != 1 else "no burst"


def _risk(run: Training, model: QuadraticModel, person: PrivacyUnit) -> float:
    if person.records > 1:
        found = calibrate(run, model.loss, model.epsilon, model.delta, unit=person)
        return model.risk(found).total
    needed = noise_factor(run, model.loss, model.epsilon, model.delta)
    return model.risk(run.scale_noise(needed)).total
