"""Epsilon against the number of steps, for every bound that applies.

The same description is stopped after each number of steps (a schedule of values is cut there). The
last point of every line is the run itself. Bounds that cost more than a closed form are computed
at a few numbers of steps, marked on the line. Between two of them the line keeps the larger value:
with equal steps a longer run never costs less. Where steps differ that is not known, and nothing
is drawn between the marks.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.accounting import account
from lastiterate.accounting.growth import plateau
from lastiterate.accounting.guarantee import REFERENCE_DELTA, Guarantee
from lastiterate.curves import gaussian
from lastiterate.curves.base import Curve
from lastiterate.curves.mixture import Mixture
from lastiterate.curves.renyi import Linear, Renyi
from lastiterate.description import Loss, PrivacyUnit, Schedule, Training
from lastiterate.description.fields import integer, number
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import UnsupportedError
from lastiterate.lower import lower_reference
from lastiterate.report.figures.data import FigureData, Series
from lastiterate.theory import THEOREMS, Bound, Run, Theorem, inapplicable_reason
from lastiterate.theory.coupling import Coupling

_MIXED, _SOME = 24, 8  # points of averages; of Renyi curves and of strings
_FEW = 3  # points of what is searched or convolved
_MARKED = 8  # points that a line has at most to be marked at each
_QUICK_STEPS = 20_000  # of a schedule: its lower reference is a loop over the steps
_CLEAN = 16  # numbers of clean steps that are computed

Line = tuple[Theorem, list[int], list[float]]


def epsilon_growth(
    training: Training,
    loss: Loss,
    delta: float = REFERENCE_DELTA,
    *,
    unit: PrivacyUnit = ONE_RECORD,
    target: float | None = None,
    points: int = 60,
) -> FigureData:
    """Epsilon at ``delta`` after each number of steps, by every applicable bound.

    The plateau is marked where there is one, and what some loss of the declared class really
    suffers is shaded. For records that were deleted before the end (``unit``), epsilon after
    each number of clean steps.

    Args:
        training: the run, its clean steps included; it is stopped after each number of steps.
        loss: what is known about the loss.
        delta: the probability with which epsilon may fail.
        unit: the deleted records; ``last_step`` is the step of the deletion.
        target: an epsilon that the clean steps are to reach, drawn as a level line.
        points: numbers of steps at which closed forms are evaluated.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> figure = epsilon_growth(run, Loss(smoothness=1.0, strong_convexity=1.0))
    >>> figure.title
    'epsilon stops growing after 45 steps: 1.336 instead of 5.053'
    """
    delta = number("delta", delta, above=0, at_most=1)
    points = integer("points", points)
    if not unit.default:
        return _clean_steps(training, loss, delta, unit, target, min(points, _CLEAN))
    guarantee = account(training, loss)
    runs = _Stopped(training, loss)
    applicable = [
        theorem for theorem in THEOREMS if inapplicable_reason(theorem, guarantee.run) is None
    ]
    lines = [_line(theorem, guarantee, runs, delta, points) for theorem in applicable]
    lines.sort(key=lambda line: line[2][-1])
    series = [_series(training, line) for line in lines]
    series += _reference(runs, delta, lines[0][1])
    heights = [value for each in series for value in each.y if 0 < value < math.inf]
    still = _plateau(training, loss, delta)
    if still is not None and still <= training.steps and heights:
        ends = [min(heights), max(heights)]
        series.append(Series(f"plateau: {still:,} steps", [still, still], ends, role="guide"))
    figure = FigureData(
        _finding(guarantee, lines, delta, still),
        "steps T",
        f"epsilon at delta = {printed(delta)}",
        tuple(series),
        _note(lines, _joined(training, lines[0][2])),
        log="xy",
    )
    return figure.marked(guarantee.provenance)


def _clean_steps(
    training: Training,
    loss: Loss,
    delta: float,
    unit: PrivacyUnit,
    target: float | None,
    points: int,
) -> FigureData:
    """Epsilon for deleted records, after each number of clean steps.

    A clean step is the same whether the records were used or not, so it is a post-processing of
    the model before it, and what was proved there still holds. Between two computed points the
    line keeps the larger value.
    """
    if unit.last_step is None or unit.last_step > training.steps:
        raise UnsupportedError(
            "No record was deleted before the end of this run: PrivacyUnit(last_step=) is the step "
            "of the deletion, and the steps after it are clean."
        )
    special = training.schedule, training.correlation, training.release, training.final_noise
    if special != (None, None, "last", 1.0):
        raise UnsupportedError(
            "The last steps of this run are special, so it cannot be stopped earlier: list its "
            "step sizes and noises, and release its last iterate (UnlearningPlan.continued does)."
        )
    most = training.steps - unit.last_step
    some = np.geomspace(1, most + 1, points) - 1 if most else np.zeros(1)
    clean = np.unique(some.round()).astype(int).tolist()
    runs = [stopped(training, unit.last_step + steps) for steps in clean]
    proved = [account(run, loss, unit=unit) for run in runs]
    values = np.minimum.accumulate([each.epsilon(delta) for each in proved]).tolist()
    series = [Series("for the deleted records", clean, values, "steps-post", markers=True)]
    if target is not None:
        level, name = [target, target], f"target: {printed(target)}"
        series.append(Series(name, [0, max(most, 1)], level, role="guide"))
    drawn = [value for value in [*values, target] if value is not None and 0 < value < math.inf]
    far = min(drawn, default=1.0) < 0.1 * max(drawn, default=1.0)
    start, end = printed(values[0]), printed(values[-1])
    figure = FigureData(
        f"{most:,} clean steps bring epsilon from {start} to {end}"
        if most
        else f"epsilon = {start} without a clean step",
        "clean steps after the deletion",
        f"epsilon at delta = {printed(delta)}",
        tuple(series),
        log="y" if far else "",
        zero="x" if far else "xy",
    )
    return figure.marked(proved[-1].provenance)


def stopped(training: Training, steps: int) -> Training:
    """The same description, ended after ``steps`` steps."""
    changes: dict[str, Any] = {"steps": steps}
    for field in ("step_size", "noise"):
        value = getattr(training, field)
        if isinstance(value, Schedule):
            changes[field] = value.values[:steps]
    return training.replace(**changes)


class _Stopped:
    """The run after each number of steps, described once for all theorems."""

    def __init__(self, training: Training, loss: Loss) -> None:
        self.training, self.loss = training, loss
        self._known: dict[int, Run] = {}

    def __getitem__(self, steps: int) -> Run:
        if steps not in self._known:
            self._known[steps] = Run(stopped(self.training, steps), self.loss)
        return self._known[steps]

    def counts(self, points: int) -> list[int]:
        """Numbers of steps, even on a logarithmic axis; whole epochs where there are epochs."""
        total = self.training.steps
        if total == 0:
            return [0]
        first, unit = Run(self.training, self.loss).window, self.training.batches_per_epoch or 1
        grid = np.geomspace(first, total, max(points, 2))
        if total >= 2 * unit:
            grid = np.maximum(np.round(grid / unit), math.ceil(first / unit)) * unit
        whole_steps = np.unique(np.append(np.minimum(grid, total).round(), total))
        return [int(step) for step in whole_steps]


def _line(
    theorem: Theorem, guarantee: Guarantee, runs: _Stopped, delta: float, points: int
) -> Line:
    """Epsilon of one theorem at its numbers of steps; the run's own bound at the end."""
    run = guarantee.run
    known = {bound.theorem.key: bound for bound in guarantee.bounds}
    last = known.get(theorem.key) or theorem.prove(run)
    steps, bounds = [], []
    most = _affordable(last.curve, theorem, run)
    for count in runs.counts(int(min(points, most))):
        if count == run.training.steps:
            steps.append(count)
            bounds.append(last)
        elif inapplicable_reason(theorem, runs[count]) is None:
            steps.append(count)
            bounds.append(theorem.prove(runs[count]))
    # The end is the guarantee's own answer, to the last digit.
    return theorem, steps, [*_epsilons(bounds[:-1], delta), last.epsilon(delta)]


def _affordable(curve: Curve, theorem: Theorem, run: Run) -> float:
    """How many points: any number of a closed form, a few of what is searched or convolved."""
    if theorem.hidden_state and not run.regular:
        return _FEW
    if curve.mu is not None:
        return math.inf if run.steps.constant and run.last_only else _SOME
    if isinstance(curve, Renyi):
        return _SOME if isinstance(curve.bound, Linear) else _FEW
    if isinstance(curve, Coupling):
        return 2  # beyond its start it costs the same at every point
    return _MIXED if isinstance(curve, Mixture) else _FEW


def _joined(training: Training, values: list[float], *, loose: float = 1e-9) -> bool:
    """Whether a line may be drawn between computed points: a longer run never costs less.

    With equal steps the record is used at least as often and as late; where step sizes or noises
    change, or the last steps are special, a later stop can be cheaper than an earlier one.
    """
    alike = training.constant and training.final_noise == 1 and not training.schedule
    rising = all(x <= y * (1 + loose) for x, y in itertools.pairwise(values))
    return alike and rising


def _note(lines: list[Line], joined: bool) -> str:
    parts = []
    if len(lines[0][1]) <= _MARKED < lines[0][1][-1]:
        steps = "joined by steps that hold" if joined else "nothing is said between them"
        parts.append(f"computed at the marks, {steps}")
    return "; ".join(parts)


def _epsilons(bounds: list[Bound], delta: float) -> list[float]:
    mus = [bound.curve.mu for bound in bounds]
    if not mus or None in mus:
        return [bound.epsilon(delta) for bound in bounds]
    return [float(value) for value in gaussian.epsilon(np.array(mus, float), np.array(delta))]


def _series(training: Training, line: Line) -> Series:
    theorem, steps, values = line
    joined = _joined(training, values)
    return Series(
        theorem.name,
        steps,
        values,
        "steps-pre" if joined else "points",
        markers=len(steps) <= _MARKED,
        value=printed(values[-1]),
    )


def _reference(runs: _Stopped, delta: float, steps: list[int]) -> list[Series]:
    """What some loss of the declared class really suffers, shaded down to the axis.

    At the points ``steps`` of the tightest bound where that is affordable. Between two points it
    keeps the smaller value.
    """
    training = runs.training
    full = training.batches.full
    if not (full and (training.constant or training.steps <= _QUICK_STEPS)):
        return []
    closed = full and training.constant and math.isinf(training.diameter)
    if not closed and not _FEW <= len(steps) <= _MARKED:
        steps = runs.counts(_FEW)
    values = [max(0.0, lower_reference(runs[count])(delta)) for count in steps]
    if not any(values):
        return []
    joined = _joined(training, values)
    return [
        Series(
            "some loss really suffers this",
            steps,
            values,
            "steps-post" if joined else "points",
            "reference",
            lower=True,
            shaded="below" if joined else "",
            value=printed_down(values[-1]),
        )
    ]


def _plateau(training: Training, loss: Loss, delta: float) -> int | None:
    closed = training.batches.repeated and math.isinf(training.diameter)
    if not (closed and training.constant and training.steps):
        return None
    return plateau(training, loss, delta)


def _finding(guarantee: Guarantee, lines: list[Line], delta: float, still: int | None) -> str:
    steps, end = guarantee.training.steps, guarantee.epsilon(delta)
    public = [values[-1] for theorem, _, values in lines if not theorem.hidden_state]
    gains = bool(public) and printed(min(public)) != printed(end)
    instead = f" instead of {printed(min(public))}" if gains else ""
    if still is not None and still <= steps:
        return f"epsilon stops growing after {still:,} steps: {printed(end)}{instead}"
    if not instead:
        return f"epsilon = {printed(end)} after {steps:,} steps: hiding the states buys nothing"
    later = f"; it would stop growing after {still:,}" if still is not None else ""
    return f"epsilon = {printed(end)}{instead} after {steps:,} steps{later}"
