"""What to run when the user leaves it open: decided from public numbers, never from the data.

The rule has one dimensionless quantity, the learning time: steps × step size × smoothness. Noise
in a score grows with it, signal too, and what balances them is the number of records times mu, the
privacy in units of one Gaussian. The constants below were set once, for every loss, data set and
epsilon, on the test scores of three public data sets of 30,000 to 200,000 records (Adult,
Census-Income, MNIST); elsewhere they are a guess. Those of many columns were set on others
(docs/theory/preparation.md). The guarantee never depends on them.

Small batches in few passes, with an equalised last epoch and a hidden state, need no more noise
than as many full-batch steps would, at a fraction of the work. Full batches are better all the
same: no batch differs from another, and an average of their iterates costs no more than the last.
So passes are made as time allows. How the run ends (`ending`) is decided by the predicted risk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lastiterate._internal.formatting import printed_down
from lastiterate.curves import gaussian
from lastiterate.description import Cyclic, FullBatch, Loss, PrivacyUnit, Shuffled, Training
from lastiterate.description.fields import integer, number
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.models.ending import ended
from lastiterate.train.people import dealt

PASSES = 10  # over the data
MANY_PASSES = 100  # for a better model that takes longer
QUICK = 2e8  # products of a feature and a parameter that take about a second
L2 = 0.1  # times 1 / records: scikit-learn's C = 10
CAP = 0.5  # how hard one record may push a classifier when there is noise
BALL = 0.75  # how long the slope of a softmax of three classes or more may be then
RESIDUAL = 0.2  # beyond it, in halves of the target's range, a residual pulls no harder
LEARNING = 2.5  # learning time = LEARNING · (mu · records)^GROWTH
GROWTH = 0.85
LONGEST = 30_000.0  # learning time after which a model has converged for all we have seen
FEW_COLUMNS = 50  # prepared columns; with more of them three classes or more learn for less time
ENOUGH = 20.0  # mu · records for a column: then for no less
STEP = 1.25  # step size times smoothness
LONGEST_STEP = 1.9  # if there are too few steps for the learning time; from 2 on they expand
MOST_FULL_STEPS = 2_500  # passes that full batches may take
CONVERGED = 1e-7  # what is left of the initial error without noise
MOST_STEPS_WITHOUT_NOISE = 20_000

_Batches = FullBatch | Shuffled | Cyclic


def cap_in_force(cap: float | None, epsilon: float) -> float:
    """The cap of a capped loss: as given, else the plain loss unless there is noise.

    >>> cap_in_force(None, 1.0), cap_in_force(None, math.inf), cap_in_force(0.25, 1.0)
    (0.5, 1.0, 0.25)
    """
    if cap is not None:
        return cap
    return 1.0 if math.isinf(epsilon) else CAP


def passes_in_time(least: int, records: int, parameters: int) -> int:
    """How many passes are made: at least so many, and what about a second is enough for.

    >>> passes_in_time(10, 1_347, 650), passes_in_time(10, 60_000, 39_690)
    (228, 10)
    """
    most = MOST_FULL_STEPS // 2  # with more of them full batches would stop before their time
    return max(least, min(most, int(QUICK / (records * parameters))))


def part_of_time(columns: int, mu: float, records: int) -> float:
    """What three classes or more have of the learning time: less with many prepared columns.

    >>> part_of_time(50, 1.0, 10), part_of_time(200, 1.0, 10), part_of_time(200, 1.0, 10_000)
    (1.0, 0.50125, 1.0)
    """
    if columns <= FEW_COLUMNS:
        return 1.0
    by_records = (1 + mu * records / (ENOUGH * columns)) / 2
    return min(1.0, max(math.sqrt(FEW_COLUMNS / columns), by_records))


@dataclass(frozen=True)
class Choice:
    """The run that was chosen, up to the size of its noise, and why.

    >>> from lastiterate.losses import Logistic
    >>> chosen = choose(Logistic(), records=30_000, row_norm=1.0, epsilon=1.0, delta=1e-6)
    >>> chosen.training.batches.name, chosen.training.epochs, chosen.training.schedule
    ('shuffled', 10.0, 'equalised')
    """

    training: Training
    loss: Loss
    reasons: tuple[tuple[str, str], ...]
    unit: PrivacyUnit = ONE_RECORD  # whom the target is for

    def because(self, *more: tuple[str, str]) -> Choice:
        """The same run with more reasons."""
        return replace(self, reasons=(*self.reasons, *more))

    def described(self, training: Training) -> Choice:
        """The same choice with another description of its run."""
        return replace(self, training=training)

    def __str__(self) -> str:
        return "\n".join(f"{what}: {why}." for what, why in self.reasons)


def choose(
    objective: LinearLoss,
    *,
    records: int,
    row_norm: float,
    epsilon: float,
    delta: float,
    regularization: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    learning_time: float | None = None,
    adjacency: str = "zero-out",
    passes: int = PASSES,
    dimension: int = 100,
    known_order: bool = False,
    final_noise: float | str | None = None,
    max_records_per_group: int = 1,
    columns: int = 0,
) -> Choice:
    """A run for this budget; what the user gives is kept.

    Args:
        objective: the loss.
        records: how many records there are; public.
        row_norm: no row is longer.
        epsilon, delta: the target; an infinite epsilon asks for convergence without noise.
        regularization: of the L2 term; by default 0.1 / records, scikit-learn's C = 10.
        steps, batch_size, learning_time: given by the user, or chosen here.
        adjacency: which data sets count as neighbours.
        passes: over the data, where neither steps nor batches say otherwise.
        dimension: the number of parameters; it helps to rank the ways a run may end.
        known_order: the batches come in an order that counts as known (a stream).
        final_noise: a burst at the last step, a factor or "best", instead of what is chosen here.
        max_records_per_group: the target is for a person with so many records, dealt out to the
            batches.
        columns: that were prepared, if there are three classes or more.
    """
    epsilon = number("epsilon", epsilon, above=0.0, infinite=True)
    if steps is not None:
        steps = integer("steps", steps)
    if batch_size is not None:
        batch_size = min(integer("batch_size", batch_size), records)
    if learning_time is not None:
        why = "without noise a run goes on until it has converged"
        if math.isinf(epsilon):
            raise DescriptionError("learning_time", learning_time, "absent with epsilon=inf", why)
        learning_time = number("learning_time", learning_time, above=0.0)
    reasons = []
    if regularization is None:
        regularization = L2 / records
        why = f"{L2:g} / records, scikit-learn's C = {1 / L2:g}: stopping in time does the rest"
        reasons.append((f"L2 term {regularization:.3g}", why))
    loss = objective.regularity(row_norm, regularization)
    smoothness = (loss.smoothness or 0.0) + loss.regularization
    if math.isinf(epsilon):
        run = _to_convergence(loss, records, steps)
    else:
        weight = max_records_per_group * (2 if adjacency == "replace" else 1)
        mu = gaussian.mu(epsilon, delta) / weight
        part = part_of_time(columns, mu, records)
        run = _balanced(records, mu, steps, batch_size, passes, learning_time, part)
    count, batches, learning, why_so_long = run
    step = min(learning / count, LONGEST_STEP)
    if math.isinf(epsilon):
        weakest = loss.strong_convexity + loss.regularization
        step = min(2 * smoothness / (smoothness + weakest), LONGEST_STEP)
    if known_order and isinstance(batches, Shuffled):
        batches = Cyclic(batches.size)
    training = Training(
        records=records,
        steps=count,
        step_size=step / smoothness,
        noise=0.0,
        gradient_norm=objective.gradient_norm(row_norm),
        batches=batches,
        adjacency=adjacency,
    )
    ending, person = "only the last iterate is released", dealt(training, max_records_per_group)
    if not math.isinf(epsilon):
        target = (dimension, epsilon, delta)
        training, ending = ended(training, loss, *target, final_noise, person)
    reasons.append((f"{count:,} steps", "as asked for" if steps else why_so_long))
    if step < learning / count and not math.isinf(epsilon):
        why_step = f"{LONGEST_STEP:g} / smoothness: longer steps would expand, though the budget "
        why_step += f"allows a learning time of {learning:,.0f}; more steps would use it"
    else:
        why_step = "learning time / steps / smoothness"
    if math.isinf(epsilon):
        why_step = "2 / (largest + smallest curvature), the fastest for gradient descent"
        if step == LONGEST_STEP:
            why_step = f"{LONGEST_STEP:g} / smoothness: from 2 on steps expand"
    reasons.append((f"step size {training.step_size:.3g}", why_step))
    reasons.append(_why_batches(training, asked=batch_size is not None))
    reasons.append(("the end", ending))
    pull = f"no record's gradient is longer than {training.gradient_norm:.3g}"
    reasons.append((repr(objective), f"{pull}, by the loss itself and rows of norm {row_norm:.3g}"))
    return Choice(training, loss, tuple(reasons), person)


def _balanced(
    records: int,
    mu: float,
    steps: int | None,
    batch_size: int | None,
    passes: int,
    asked: float | None,
    part: float,
) -> tuple[int, _Batches, float, str]:
    """Steps, batches and learning time for a private run, mu for one of its impulses."""
    learning = asked or part * min(LEARNING * (mu * records) ** GROWTH, LONGEST)
    wanted = max(1, math.ceil(learning / STEP))
    why = (
        f"learning time min({LEARNING} * (mu * records)^{GROWTH}, {LONGEST:,.0f}) = "
        f"{learning / part:,.0f}, where mu = {printed_down(mu, 3)} is what (epsilon, delta) allows "
        "one Gaussian"
    )
    if part < 1:
        why += f", times {part:.2f}, as there are many columns for so few records"
    if asked:
        why = f"learning time {learning:,.6g}, as asked for"
    if batch_size is None:
        epochs = _epochs(steps, records, passes) if steps else passes
        per_epoch = min(max(1, (steps or wanted) // epochs), records)
        batch_size = records // per_epoch
    per_epoch = records // batch_size
    if steps is None:
        steps = max(1, round(wanted / per_epoch)) * per_epoch
        if per_epoch == 1:
            steps = min(steps, MOST_FULL_STEPS)
    batches = FullBatch() if per_epoch == 1 and batch_size == records else Shuffled(batch_size)
    return steps, batches, learning, why


def _epochs(steps: int, records: int, passes: int) -> int:
    """The divisor of ``steps`` nearest to the wanted passes, so that the last epoch is whole."""

    def whole_epochs(epochs: int) -> bool:
        per_epoch, rest = divmod(steps, epochs)
        return rest == 0 and per_epoch <= records and records // (records // per_epoch) == per_epoch

    able = [e for e in range(1, min(steps, 100 * passes) + 1) if whole_epochs(e)] or [steps]
    return min(able, key=lambda e: abs(math.log(e / passes)))


def _to_convergence(
    loss: Loss, records: int, steps: int | None
) -> tuple[int, _Batches, float, str]:
    """Full batches without noise until the initial error is gone."""
    weakest = loss.strong_convexity + loss.regularization
    strongest = (loss.smoothness or 0.0) + loss.regularization
    condition = strongest / weakest if weakest else math.inf
    needed = math.log(1 / CONVERGED) * (condition + 1) / 2
    count = steps or math.ceil(min(needed, MOST_STEPS_WITHOUT_NOISE))
    short = " (fewer than convergence may need)" if count < needed else ""
    why = f"condition number {condition:.3g} and an error of {CONVERGED:g} left{short}"
    return count, FullBatch(), math.inf, why


def _why_batches(training: Training, asked: bool) -> tuple[str, str]:
    per_epoch = training.batches_per_epoch or 1
    if per_epoch == 1:
        what, why = "full batches", "every update sees all records"
    else:
        what = f"{per_epoch:,} {training.batches.name} batches, {training.epochs:g} passes"
        why = "hidden small batches in few passes cost what full batches would, for less work"
    return what, ("as asked for; " if asked else "") + why
