"""Privacy accounting backwards: which noise, how many steps, how many records, which L2 term?

The answer is always a description whose guarantee was computed and found to meet the target.
Epsilon usually moves one way with each quantity; that speeds the search up but nothing rests on
it: what is returned was evaluated, and so was the neighbour that breaks the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, overload

import numpy as np

from lastiterate._internal.formatting import printed
from lastiterate._internal.progress import Working
from lastiterate.accounting.accountant import account
from lastiterate.accounting.burst import best_burst
from lastiterate.accounting.guarantee import warn_if_estimated
from lastiterate.accounting.optimal import optimal_schedule
from lastiterate.curves.bracket import last_good
from lastiterate.description import (
    Loss,
    PrivacyUnit,
    Schedule,
    TailAverage,
    Training,
)
from lastiterate.description.fields import checked_delta, number, one_of
from lastiterate.description.unit import read_unit
from lastiterate.errors import TargetError, UnsupportedError

TOLERANCE = 1e-3  # the guarantee found is within this part of the target
_AIM = 1 - TOLERANCE / 3
_MOST_STEPS = 2**40  # of a full batch, whose steps cost the accountant nothing
_MOST_LISTED = 2**22  # of a full batch with a burst, whose steps are accounted one by one
_MOST_EPOCHS = 2**13
_MOST_RECORDS = 2**50
_MOST_POSITIONS = 2**20  # batches of an epoch that are accounted one by one


@overload
def calibrate(
    training: Training,
    loss: Loss,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    find: Literal["noise", "steps", "records"] = "noise",
    *,
    final_noise: Literal["best"] | None = None,
    schedule: Literal["optimal"] | None = None,
    unit: PrivacyUnit | None = None,
) -> Training: ...
@overload
def calibrate(
    training: Training,
    loss: Loss,
    epsilon: float,
    delta: float,
    find: Literal["regularization"],
    *,
    unit: PrivacyUnit | None = None,
) -> tuple[Training, Loss]: ...
@overload
def calibrate(
    training: Training,
    loss: Loss,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    find: Literal["regularization"],
    unit: PrivacyUnit | None = None,
) -> tuple[Training, Loss]: ...
def calibrate(
    training: Training,
    loss: Loss,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    find: str = "noise",
    *,
    final_noise: Literal["best"] | None = None,
    schedule: Literal["optimal"] | None = None,
    unit: PrivacyUnit | None = None,
) -> Training | tuple[Training, Loss]:
    """The description whose guarantee meets (epsilon, delta), and only just.

    Args:
        training: the run; the quantity that is looked for is replaced.
        loss: what is known about the loss.
        epsilon: the target. The guarantee found is at most this, and within 0.1 % of it wherever
            the quantity can be tuned so finely.
        delta: the probability with which epsilon may fail.
        find: "noise" (the least; a schedule of noises is scaled), "steps" (the most; whole epochs
            if the description has whole epochs), "records" (the fewest) or "regularization" (the
            least; then the loss is returned as well). For whole numbers the next one would break
            the target.
        final_noise: "best" also chooses the burst of noise at the last step that needs the least
            noise in all (`lastiterate.accounting.best_burst`); for find="noise" and batches that
            pass over the data in order.
        schedule: "optimal" finds the step sizes too (`lastiterate.accounting.optimal_schedule`,
            with its public guesses of spectrum and start); for find="noise" and full batches.
        unit: whom the target is for, as in `account`.

    Raises:
        TargetError: if no value reaches the target; it says which quantity would. Also if any
            number of steps meets it, because epsilon stops growing below the target.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=1000, steps=100, step_size=0.1, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> found = calibrate(run, Loss(smoothness=1.0), epsilon=1.0, delta=1e-6)
    >>> 0.999 <= account(found, Loss(smoothness=1.0)).epsilon(1e-6) <= 1.0
    True
    """
    target = number("epsilon", epsilon, above=0.0)
    delta = checked_delta(delta, None if find == "records" else training.records)
    one_of("find", find, ("noise", "steps", "records", "regularization"))
    warn_if_estimated(training, loss)
    person = read_unit(unit)
    if not person.default:
        _check_person(person, find, final_noise, schedule)
    with Working("calibration"):
        if final_noise is not None:
            one_of("final_noise", final_noise, ("best",))
            one_of("find", find, ("noise",))
            training = training.replace(final_noise=best_burst(training, loss, target, delta))
        if schedule is not None:
            one_of("schedule", schedule, ("optimal",))
            one_of("find", find, ("noise",))
            return optimal_schedule(training, loss, target, delta)
        if find == "noise":
            return _noise(training, loss, target, delta, person)
        if find == "steps":
            return _steps(training, loss, target, delta, person)
        if find == "records":
            return _records(training, loss, target, delta, person)
        return training, _regularization(training, loss, target, delta, person)


def _check_person(person: PrivacyUnit, find: str, burst: str | None, schedule: str | None) -> None:
    """Refuse what is only known for one record, used from the first step to the last."""
    if burst is not None or schedule is not None:
        raise UnsupportedError(
            "The best burst and the optimal schedule are known for one record, used from the first "
            f"step to the last, not for {person}. Calibrate without them."
        )
    if (find == "steps" and person.timed) or (find == "records" and person.records > 1):
        raise UnsupportedError(
            f"find={find!r} changes what {person} means. Calibrate the noise (find='noise')."
        )


def _noise(
    training: Training, loss: Loss, target: float, delta: float, unit: PrivacyUnit
) -> Training:
    silent = training.scale_noise(0.0)
    if account(silent, loss, unit=unit).epsilon(delta) <= target:
        return silent
    base = _some_noise(training)

    # On a bounded domain epsilon is a search over questions for delta: one of them is enough.
    searched = base.batches.full and math.isfinite(base.diameter) and target > 0

    def at(log_factor: float) -> float:
        guarantee = account(base.scale_noise(math.exp(log_factor)), loss, unit=unit)
        if searched:
            return target * (guarantee.delta(target * (1 - TOLERANCE / 3)) / delta)
        return guarantee.epsilon(delta)

    found = _tune(at, target, 0.0, -10.0 if searched else -1.0)
    if found is None:
        raise TargetError(
            f"No amount of noise reaches epsilon = {printed(target)} at delta = "
            f"{printed(delta)}: some step uses "
            "a record and has no noise at all, however the schedule is scaled. Give every step "
            "noise, or leave out (step_size 0) the steps without."
        )
    return base.scale_noise(math.exp(found))


def _some_noise(training: Training) -> Training:
    """The same run with a noise that can be scaled."""
    if np.any(training.noises[:1] > 0) or np.any(training.noises > 0):
        return training
    if isinstance(training.noise, Schedule):
        raise TargetError(
            "The noise schedule is zero at every step, and no factor changes that. Give it a shape "
            "(one number is enough)."
        )
    largest = (
        float(training.step_sizes.max(initial=0.0)) * training.impulse + training.grid_rounding
    )
    return training.replace(noise=largest)


def _tune(at: Callable[[float], float], target: float, start: float, slope: float) -> float | None:
    """A place where at(place) is in [(1 - TOLERANCE) target, target], or as near as jumps allow.

    ``slope``: the usual derivative of log at; safe places lie on the side where it falls. None if
    the target is never met. Regula falsi between a place that meets the target and one that does
    not, with bisection where that is slow.
    """
    side = -math.copysign(1.0, slope)  # the direction that lowers epsilon
    seen: dict[float, float] = {}

    def gap(place: float) -> float:  # <= 0 where the target is met
        if place not in seen:
            value = at(place)
            if value <= target:
                seen[place] = min(math.log(max(value, 1e-300) / (target * _AIM)), 0.0)
                if value < target * (1 - TOLERANCE):
                    seen[place] = min(seen[place], -TOLERANCE / 2)
                else:
                    seen[place] = 0.0
            else:
                seen[place] = min(math.log(value / (target * _AIM)), 60.0)
        return seen[place]

    safe = unsafe = None
    place, stride = start, 1.0
    for _ in range(60):
        value = gap(place)
        if value == 0.0:
            return place
        if value < 0:
            safe = place
        else:
            unsafe = place
        if safe is not None and unsafe is not None:
            break
        guess = abs(value / slope) if abs(value) < 50 else 5.0
        stride = max(guess * 1.02, 1e-4) if stride == 1.0 else 2 * stride
        place += side * stride if value > 0 else -side * stride
        if abs(place - start) > 200:
            break
    if safe is None:
        return None
    if unsafe is None:
        return safe
    low, high, last = gap(safe), gap(unsafe), 0.0
    for _ in range(80):
        if abs(unsafe - safe) < 1e-12 * (1 + abs(safe)):
            break
        share = min(max(low / (low - high), 0.02), 0.98)
        place = safe + (unsafe - safe) * share
        value = gap(place)
        if value == 0.0:
            return place
        if value < 0:  # Illinois: an end that stays twice counts for half
            safe, low, high = place, value, high / 2 if last < 0 else high
        else:
            unsafe, high, low = place, value, low / 2 if last > 0 else low
        last = value
    return safe


def _steps(
    training: Training, loss: Loss, target: float, delta: float, unit: PrivacyUnit
) -> Training:
    if isinstance(training.step_size, Schedule) or isinstance(training.noise, Schedule):
        raise UnsupportedError(
            "find='steps' needs a constant step size and noise: a schedule of one value per step "
            "says nothing about the steps after its end. Describe the run with single values."
        )
    per_epoch = training.batches_per_epoch or 1
    stride = per_epoch if training.steps % per_epoch == 0 else 1
    word = "step" if stride == 1 else f"epoch of {stride} steps"
    window = training.release.window if isinstance(training.release, TailAverage) else 1
    fewest = -(-window // stride)  # the average needs as many steps as its window

    def epsilon(blocks: int) -> float:
        return account(training.replace(steps=blocks * stride), loss, unit=unit).epsilon(delta)

    first = epsilon(fewest)
    if first > target:
        shortest = f"one {word}" if fewest == 1 else f"the {fewest * stride:,} steps of the average"
        raise TargetError(
            f"Not even {shortest} can meet epsilon = {printed(target)} at delta = "
            f"{printed(delta)}: it costs {printed(first)}. More noise (find='noise') or more "
            "records (find='records') would."
        )
    most = _MOST_EPOCHS
    if training.batches.full:
        most = _MOST_STEPS if training.constant else _MOST_LISTED
    most = max(most, fewest)
    good, value, calm = fewest, first, 0
    while True:
        bad = min(2 * good if good > 1 or value * 4 > target else 8, most)
        before, value = value, epsilon(bad)
        if value > target:
            break
        # Within the first epochs, or while epsilon is still 0, standing still means nothing.
        waiting = value == 0 or bad * stride < 4 * per_epoch
        calm = calm + 1 if value <= before * (1 + 1e-6) and not waiting else 0
        if bad == most or calm == 2:
            raise TargetError(
                f"Any number of steps meets epsilon = {printed(target)} at delta = "
                f"{printed(delta)}: epsilon "
                f"is {printed(value)} after {bad * stride:,} steps and no longer grows to the "
                f"target. "
                "Choose steps by what the model needs, or lower the noise (find='noise')."
            )
        good = bad
    blocks = last_good(lambda n: epsilon(n) <= target, good, bad)
    return training.replace(steps=blocks * stride)


def _records(
    training: Training, loss: Loss, target: float, delta: float, unit: PrivacyUnit
) -> Training:
    batches = training.batches
    ordered = batches.ordered and not batches.full
    if ordered and training.schedule is not None:
        raise UnsupportedError(
            "find='records' cannot keep an equalised last epoch whole: more records mean more "
            "batches. Calibrate the noise for the records there are."
        )
    fewest = max(1, getattr(batches, "size", 1))
    most = fewest * _MOST_POSITIONS if ordered else _MOST_RECORDS

    def meets(records: int) -> bool:
        return account(training.replace(records=records), loss, unit=unit).epsilon(delta) <= target

    if meets(fewest):
        return training.replace(records=fewest)
    bad, good = fewest, min(max(2 * fewest, training.records), most)
    while not meets(good):
        if good >= most:
            raise TargetError(
                f"No number of records up to {most:,} reaches epsilon = {printed(target)} at "
                "delta = "
                f"{printed(delta)}: a record that is read late weighs the same however many "
                "others there "
                "are. More noise (find='noise') or larger batches would reach it."
            )
        bad, good = good, min(4 * good, most)
    return training.replace(records=last_good(meets, good, bad))


def _regularization(
    training: Training, loss: Loss, target: float, delta: float, unit: PrivacyUnit
) -> Loss:
    def epsilon(strength: float) -> float:
        return account(training, loss.with_regularization(strength), unit=unit).epsilon(delta)

    without = epsilon(0.0)
    if without <= target:
        return loss.with_regularization(0.0)
    largest = float(training.step_sizes.max(initial=0.0))
    # Beyond 2/step the L2 term itself makes the steps expand: epsilon falls, then rises again.
    grid = [2.0 / largest * 4.0**-k for k in range(16, -1, -1)] if largest > 0 else []
    grid += [share / largest for share in (0.25, 0.75, 1.0)] if largest > 0 else []
    bad, lowest, best = 0.0, without, 0.0
    for strength in sorted(grid):
        value = epsilon(strength)
        if value <= target:
            start = math.log(strength)
            floor = math.log(bad) if bad > 0 else start - 40.0
            place = _between(epsilon, target, start, floor)
            return loss.with_regularization(math.exp(place))
        if value < lowest:
            lowest, best = value, strength
        bad = strength
    raise TargetError(
        f"No L2 term reaches epsilon = {printed(target)} at delta = {printed(delta)}: the best is "
        f"{printed(lowest)} at regularization = {best:.4g}. More noise (find='noise'), "
        "more records, or a bounded domain (diameter) would reach it."
    )


def _between(epsilon: Callable[[float], float], target: float, safe: float, unsafe: float) -> float:
    """The logarithm of a strength that just meets the target, between one that does and one not."""
    while abs(unsafe - safe) > 1e-12:
        middle = (safe + unsafe) / 2
        value = epsilon(math.exp(middle))
        if value > target:
            unsafe = middle
        else:
            safe = middle
            if value >= target * (1 - TOLERANCE):
                break
    return safe
