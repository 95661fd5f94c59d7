"""The taut string itself: what arrived, against the noise that can pay for it.

Every step brings sensitivity s and noise variance nu^2. Carried to the end of the run (later
updates shrink both), their running totals are a curve; what has been paid may never exceed what
has arrived, and all must be paid at the end. The cheapest payment is the greatest convex minorant:
a string pulled tight below the curve. Its slopes are the price, mu^2 = sum of slope^2 x variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.formatting import printed
from lastiterate.accounting.guarantee import weakest_provenance
from lastiterate.description import Loss, Training
from lastiterate.errors import UnsupportedError
from lastiterate.report.figures.data import FigureData, Series
from lastiterate.theory import Run, Theorem, dynamics, inapplicable_reason
from lastiterate.theory import taut_string as strings
from lastiterate.theory.dynamics import once
from lastiterate.theory.full_batch import FULL_BATCH
from lastiterate.theory.ordered_batches import HIDDEN_POSITION, WORST_POSITION, position_mus
from lastiterate.theory.positions import position_sensitivities
from lastiterate.theory.taut_string import best_restart, constant, constant_restart

Floats = NDArray[np.float64]

_POINTS = 400
_MOST_STEPS = 2_000_000  # per-step vectors beyond this are not built for a picture
_FORGOTTEN = 40  # memories 1/(1-c) after which a step counts for e^-40 of what it was


@dataclass(frozen=True)
class String:
    """Points of the picture: running totals carried to the end, from (0, 0)."""

    variance: Floats
    arrived: Floats
    paid: Floats
    mu: float
    restart: int = 0


def taut_string(training: Training, loss: Loss) -> FigureData:
    """Cumulative sensitivity against cumulative noise variance, with the string below it.

    Cyclic and shuffled batches show the worst position of the record; a tail average shows the
    steps before its window. On a bounded domain the string may start late, from the diameter.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=50, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch())
    >>> [series.name for series in taut_string(run, Loss(smoothness=1.0)).series]
    ['paid: the taut string', 'arrived: sensitivity so far']
    """
    run = Run(training, loss)
    _refuse(run)
    if training.batches.full:
        position, batches = 0, 1
        string = _constant(run) if run.steps.constant else _per_step(run, run.steps.s)
    else:
        mus = position_mus(run)
        position, batches = int(np.argmax(mus)), len(mus)
        string = _per_step(run, position_sensitivities(run.steps.s, batches, position))
    x = string.variance.tolist()
    figure = FigureData(
        _finding(string, run, position, batches),
        "noise variance so far, carried to the end (parameter units²)",
        "sensitivity so far (parameter units)",
        (
            Series("paid: the taut string", x, string.paid.tolist()),
            Series("arrived: sensitivity so far", x, string.arrived.tolist(), shaded="previous"),
        ),
        _where(string, position, batches),
        zero="xy",
    )
    return figure.marked(weakest_provenance(training, loss, (True,)))


def _refuse(run: Run) -> None:
    training = run.training
    if not training.batches.repeated:
        raise UnsupportedError(
            f"There is no single string for {training.batches.name} batches: the steps that use "
            "the record are random, and each draw has its own. Draw the same run with FullBatch, "
            "Cyclic or Shuffled batches, or look at epsilon_growth."
        )
    theorems: dict[str, Theorem] = {
        "full": FULL_BATCH,
        "cyclic": WORST_POSITION,
        "shuffled": HIDDEN_POSITION,
    }
    reason = inapplicable_reason(theorems[training.batches.name], run)
    if reason is None and not run.regular:
        reason = "distances are not carried to the end by a factor: the update has no Lipschitz "
        reason += "constant (give a smoothness, or look at epsilon_growth)"
    if reason is None and not np.any(once(run.steps.nu) > 0):
        reason = "without noise nothing can be paid"
    if reason is not None:
        raise UnsupportedError(f"This run has no taut string to draw: {reason}.")


def _finding(string: String, run: Run, position: int, batches: int) -> str:
    used = run.steps[position : run.hidden_steps : batches]
    at_once = dynamics.at_once(used.s, used.nu)
    if string.mu > at_once * (1 - 1e-6):
        return f"Nothing to save: every step pays for itself, mu = {printed(string.mu)}"
    return f"The taut string costs mu = {printed(string.mu)}; paying at once {printed(at_once)}"


def _where(string: String, position: int, batches: int) -> str:
    parts = []
    if batches > 1:
        parts.append(f"record in batch {position + 1:,} of {batches:,}, the worst position")
    if string.restart:
        parts.append(f"from step {string.restart:,} on, starting at the diameter")
    return "; ".join(parts)


# --- constant steps: closed forms ---------------------------------------------------------------


def _constant(run: Run) -> String:
    """Equal steps: one chord where updates do not expand, the curve itself where they do."""
    training, steps = run.training, run.hidden_steps
    c, s, nu = run.steps.one
    common = constant(c, s, nu, steps)
    restarted = constant_restart(c, s, nu, steps, training.diameter)
    if common <= restarted:
        string = _carried(c, s, nu, steps, 0.0)
        paid = string.paid if c <= 1 else string.arrived
        return String(string.variance, string.arrived, paid, common)
    left = best_restart(c, s, nu, steps, training.diameter)
    if c > 1:
        steps_left = (np.full(left, c), np.full(left, s), np.full(left, nu))
        walked = strings.taut_string(*steps_left, training.diameter)
        return _totals(*steps_left, walked.shifts, training.diameter, walked.mu, steps - left)
    string = _carried(c, s, nu, left, training.diameter)
    return String(string.variance, string.arrived, string.paid, restarted, steps - left)


def _carried(c: float, s: float, nu: float, steps: int, start: float) -> String:
    """Totals after some of the steps, and the chord; c > 1 is carried to the first step."""
    third = _POINTS // 3
    some = np.geomspace(1, steps, third)
    after = np.unique(np.concatenate([[0], some, steps - some, np.linspace(0, steps, third)]))
    after = np.unique(after.round())
    ratio, offset = (c, steps - after) if c <= 1 else (1 / c, np.zeros(len(after)))
    arrived = s * _geometric(ratio, after) * _power(ratio, offset)
    arrived += np.where(after > 0, start * (_power(c, np.array(float(steps))) if c <= 1 else c), 0)
    variance = nu**2 * _geometric(ratio**2, after) * _power(ratio**2, offset)
    chord = variance * (arrived[-1] / variance[-1])
    return String(variance, arrived, np.minimum(chord, arrived), math.nan)


def _geometric(q: float, terms: Floats) -> Floats:
    if q in (0.0, 1.0):
        return np.asarray(terms if q == 1 else np.minimum(terms, 1.0))
    return np.asarray(np.expm1(terms * math.log(q)) / (q - 1))


def _power(q: float, exponent: Floats) -> Floats:
    with np.errstate(under="ignore"):
        return np.asarray(np.power(q, exponent))


# --- any steps ----------------------------------------------------------------------------------


def _per_step(run: Run, impulses: Floats) -> String:
    """The string of these impulses, walked step by step."""
    training, steps, end = run.training, run.steps, run.hidden_steps
    first = 0
    if steps.constant and steps.c[0] < 1:  # whole epochs that have been forgotten
        kept = math.ceil(_FORGOTTEN / (1 - float(steps.c[0])))
        unit = training.batches_per_epoch or 1
        first = max((end - kept) // unit - 1, 0) * unit
    if end - first > _MOST_STEPS:
        raise UnsupportedError(
            f"The picture is drawn step by step, up to {_MOST_STEPS:,} of them; this run has "
            f"{end:,}. Describe a shorter one: the shape is the same."
        )
    span = slice(first, end)
    c, nu = steps.c[span], steps.nu[span]
    if math.isfinite(training.diameter):
        string = strings.best(c, impulses[span], nu, training.diameter)
    else:
        string = strings.taut_string(c, impulses[span], nu)
    cut = slice(string.restart, None)
    restart = first + string.restart if string.restart else 0
    return _totals(
        c[cut], impulses[span][cut], nu[cut], string.shifts[cut], string.start, string.mu, restart
    )


def _totals(
    c: Floats, s: Floats, nu: Floats, shifts: Floats, start: float, mu: float, restart: int
) -> String:
    """Running totals, each step carried to wherever the factor is largest (the end if c <= 1)."""
    with np.errstate(divide="ignore"):
        after = np.append(np.cumsum(np.log(c)[::-1])[::-1], 0.0)  # log of c_k ... c_end
    top = float(after[1:].max())
    with np.errstate(under="ignore"):
        carry = np.exp(after[1:] - top)
        begin = start * math.exp(min(float(after[0]) - top, 700.0))
    variance = np.append(0.0, np.cumsum((carry * nu) ** 2))
    arrived = np.append(0.0, begin + np.cumsum(carry * s))
    paid = np.minimum(np.append(0.0, np.cumsum(carry * shifts)), arrived)
    keep = _few(variance, arrived, paid)
    return String(variance[keep], arrived[keep], paid[keep], mu, restart)


def _few(*curves: Floats) -> NDArray[np.intp]:
    """Some hundred points, even along every axis, both ends of every jump included."""
    count = len(curves[0])
    if count <= _POINTS:
        return np.arange(count)
    chosen = [np.array([0, count - 1])]
    for values in curves:
        levels = np.linspace(float(values[0]), float(values[-1]), _POINTS // 6)
        at = np.clip(np.searchsorted(values, levels), 1, count - 1)
        chosen += [at - 1, at]
    return np.unique(np.concatenate(chosen))
