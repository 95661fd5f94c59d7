"""Plans for one request: do nothing, start again, or clean steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from lastiterate._internal.formatting import printed
from lastiterate._internal.plotting import plotted
from lastiterate._internal.progress import Working
from lastiterate.accounting import account
from lastiterate.accounting.guarantee import (
    NOT_A_GUARANTEE,
    Guarantee,
    warn_if_estimated,
    weakest_provenance,
)
from lastiterate.curves import gaussian
from lastiterate.curves.bracket import safe_end
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.fields import checked_delta, integer, number, one_of
from lastiterate.description.unit import read_unit
from lastiterate.errors import DescriptionError, TargetError
from lastiterate.theory.run import released_steps
from lastiterate.unlearning.going_on import base, going_on, unlearnable
from lastiterate.unlearning.restart import Restart, restart

Reference = Literal["never joined", "retrained"]
REFERENCES = ("never joined", "retrained")
WHY_REFERENCE = "an unlearned model is compared with one that somebody has in mind"
WHAT_IT_SAYS = {
    "never joined": (
        "as if these records had never joined: whoever else is deleted, is deleted in both worlds"
    ),
    "retrained": "as if the whole run had been repeated on what remains after this request",
}
WHO_SAW_NOTHING = (
    "It holds towards somebody who saw no model from before the deletion, and only if nobody's "
    "request was made because of such a model. What was released is not taken back: whoever saw an "
    "earlier model knows what it told (name its step in releases=)."
)
_FARTHEST = 16  # times the run's own steps, at least of 1,000: beyond that everybody starts again
_LOUDEST = 28.0  # log of a multiple of the run's own noise that leaves nothing of the model
_CLOSE = 1e-4  # how near to the smallest noise
_HOPELESS = 1e3  # log of a mu that nothing makes up for


@dataclass(frozen=True)
class UnlearningPlan:
    """How to forget; print it. Made by `plan_unlearning`.

    Attributes:
        training: the run up to the deletion.
        loss: what is known of it.
        deleted: who is forgotten, as records that left after the last step of the run.
        epsilon: of the target.
        delta: of the target.
        reference: what the model is compared with.
        releases: models from before the deletion that count.
        steps: clean steps K; None if 16 times those of the run are not enough.
        noise: of each clean step.
        restart: starting again, beside it.
        nothing: epsilon at ``delta`` of the untouched model for the deleted records (group
            privacy); infinite if no theorem bounds it.
    """

    training: Training
    loss: Loss
    deleted: PrivacyUnit
    epsilon: float
    delta: float
    reference: Reference
    releases: tuple[int, ...]
    steps: int | None
    noise: float
    restart: Restart
    nothing: float

    @property
    def continued(self) -> Training:
        """The run and its clean steps: what to train on, account and certify."""
        if self.steps is None:
            raise TargetError(f"There is no plan of clean steps: {self._none}")
        return going_on(self.training, self.steps, self.noise)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Of the model after the clean steps: the ordinary one, for records that left the run."""
        run, who = self.continued, self.deleted
        return account(run, self.loss, releases=self.releases, unit=who)

    def plot(self, ax: Any = None) -> Any:
        """Draw epsilon after each number of clean steps (extra ``report``).

        Args:
            ax: matplotlib Axes to draw on; new ones (``axes.figure``) if not given.
        """
        run = self.continued, self.loss, self.delta
        return plotted("epsilon_growth", *run, unit=self.deleted, target=self.epsilon, ax=ax)

    @property
    def _none(self) -> str:
        return (
            f"{_most(self.training):,} are not enough for epsilon = {printed(self.epsilon)} at "
            f"delta = {printed(self.delta)}. Start again."
        )

    def __str__(self) -> str:
        again = self.restart
        who = dataclasses.replace(self.deleted, last_step=None)
        lines = [f"Forgetting {who}, after {self.training.steps:,} steps"]
        if weakest_provenance(self.training, self.loss, (True,)) == "estimated":
            lines.insert(0, NOT_A_GUARANTEE)
        enough = " (enough)" if self.nothing <= self.epsilon else ""
        nothing = f"do nothing: epsilon = {printed(self.nothing)}{enough}"
        restart = f"start again: {again}"
        steps = f"{self.steps:,} clean steps" if self.steps is not None else f"none: {self._none}"
        clean = f"clean steps: {steps}, noise {printed(self.noise)}"
        if again.clean_risk is not None:
            clean += f"; predicted risk {again.clean_risk:.4g}"
        choices = [f"BETTER: {restart}", clean] if again.better else [clean, restart]
        lines += [f"  {each}" for each in (nothing, *choices)]
        lines.append(
            f"epsilon = {printed(self.epsilon)}, delta = {printed(self.delta)}, "
            f"{WHAT_IT_SAYS[self.reference]}."
        )
        if self.reference == "retrained":
            lines.append("Earlier requests that were served in this way add up: see plan_requests.")
        if self.training.adjacency == "zero-out":
            lines.append("Their slots stay empty in every batch, and the divisor is kept.")
        else:
            lines.append("Public records take their slots, in the same batches.")
        if self.releases:
            seen = ", ".join(f"{step:,}" for step in self.releases)
            lines.append(f"It counts what the models released after steps {seen} told already.")
        else:
            lines.append(WHO_SAW_NOTHING)
        return "\n".join(lines)


def plan_unlearning(
    training: Training,
    loss: Loss,
    deleted: PrivacyUnit | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    reference: str = "never joined",
    releases: Iterable[int] = (),
    steps: int | None = None,
    spectrum: ArrayLike | None = None,
    start: ArrayLike = 1.0,
) -> UnlearningPlan:
    """Ways to delete records that a run has used: nothing, starting again, or clean steps.

    *Statement.* T steps on all records, K clean ones on what remains: the string of the run with
    the impulses of the deleted up to step T and none after it bounds the distance, in both orders,
    to the same T + K steps on what remains from the start. Where it is attained (full batches, L2)
    no smaller K can be certified by anybody for the declared class.

    Args:
        training: the run up to the deletion, as it was done.
        loss: what is known about the loss of one record.
        deleted: the records to forget, together; one record if it is left out. In a known order
            ``left=`` may name the step after their last use: one that was read early in its epoch
            takes fewer clean steps than the worst place, which counts otherwise.
        epsilon, delta: how near the model must come to the reference.
        reference: "never joined" or "retrained"; for one request the numbers are the same.
            For requests one after the other see `plan_requests`.
        releases: steps after which a model was released that the reader saw, or that somebody's
            request may rest on. Clean steps do not clean those.
        steps: a given number of clean steps; then the smallest noise for them is found.
        spectrum, start: of the quadratic on which the risks beside it are predicted
            (`plan.predicted_risk`).

    >>> from lastiterate import FullBatch
    >>> run = Training(records=1000, steps=500, step_size=0.5, noise=0.01, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out")
    >>> loss = Loss(smoothness=1.0, regularization=0.02)
    >>> plan = plan_unlearning(run, loss, PrivacyUnit(records=20))
    >>> plan.steps, round(plan.nothing, 1), plan.restart.steps
    (394, 157.1, 500)
    """
    warn_if_estimated(training, loss)
    person = read_unit(deleted)
    unlearnable(training, person)
    epsilon = number("epsilon", epsilon, at_least=0.0)
    delta = checked_delta(delta, training.records)
    meant = cast(Reference, one_of("reference", reference, REFERENCES, WHY_REFERENCE))
    seen = released_steps(releases)
    if any(isinstance(step, (int, np.integer)) and step > training.steps for step in seen):
        allowed = f"at most steps = {training.steps}"
        raise DescriptionError("releases", max(seen), allowed, "they came before the deletion")
    last = training.steps if person.last_step is None else person.last_step
    gone = dataclasses.replace(person, last_step=last)

    def epsilon_of(run: Training) -> float:
        with np.errstate(over="ignore"):  # runs without noise: an infinite ratio is an answer
            return account(run, loss, releases=seen, unit=gone).epsilon(delta)

    def excess(run: Training) -> float:
        """How much too far apart it is, as a logarithm of mu; not above 0 if it is enough."""
        found = epsilon_of(run)
        if math.isinf(found):
            return _HOPELESS
        far = math.log(gaussian.mu(found, delta) / gaussian.mu(epsilon, delta))
        return min(far, 0.0) if found <= epsilon else max(far, 5e-324)

    untouched = epsilon_of(training)
    done = untouched <= epsilon
    if not done and training.steps in seen:
        raise TargetError(
            "The model of the deletion itself was released, and told whoever saw it up to epsilon "
            f"= {printed(untouched)} about these records: no later step takes that back, so "
            f"nothing reaches {printed(epsilon)}. Towards somebody who saw no earlier model, and "
            "if no request was made because of one, leave its step out of releases."
        )
    noise = base(training)[1]
    if steps is None:
        with Working("plan"):
            found = 0 if done else _fewest(training, excess)
    else:
        found = integer("steps", steps, at_least=0)

        def clean(nu: float) -> float:
            return excess(going_on(training, found, nu))

        noise = 0.0 if clean(0.0) <= 0 else _least(clean, training)
        if math.isinf(noise):
            raise TargetError(
                f"No noise in {found:,} clean steps reaches epsilon = {printed(epsilon)} at delta "
                f"= {printed(delta)}. Take more steps, or start again."
            )
    with Working("plan"):
        again = restart(training, loss, found, noise, spectrum, start)
    return UnlearningPlan(
        training, loss, gone, epsilon, delta, meant, seen, found, noise, again, untouched
    )


def _most(training: Training) -> int:
    return _FARTHEST * max(training.steps, 1000)


def _fewest(training: Training, excess: Callable[[Training], float]) -> int | None:
    """The smallest number of clean steps; what is returned was asked, and one step less too."""

    @cache
    def at(clean: int) -> float:
        return excess(going_on(training, clean) if clean else training)

    bad, good, most = 0, 1, _most(training)
    while at(good) > 0:
        if good >= most:
            return None
        slope = (at(bad) - at(good)) / (good - bad)
        ahead = at(good) / slope if slope > 0 else math.inf
        farther = good + 1 + int(min(1.05 * ahead, 63 * good))
        bad, good = good, min(max(2 * good, farther), most)
    if good - bad == 1:
        return good
    # Between whole numbers nothing changes, so that ends no farther apart than 1 are neighbours.
    return int(safe_end(lambda clean: at(int(clean)), good, bad, tolerance=1 / good))


def _least(excess: Callable[[float], float], training: Training) -> float:
    """The smallest noise, within 1 part in 10,000 above; infinite if none is enough."""
    eta, own = base(training)
    scale = own or eta * training.impulse or 1.0
    middle = 2 * _LOUDEST  # where logs are counted from: a relative tolerance is then an absolute

    @cache
    def at(log: float) -> float:
        return excess(scale * math.exp(log - middle))

    rising = at(middle) > 0
    last = log = middle
    step = 0.02 + abs(at(log))  # mu is about inverse to the noise
    while (at(log) > 0) == rising:
        if abs(log - middle) > _LOUDEST:
            return math.inf if rising else scale * math.exp(log - middle)
        step = min(step, 6.0)
        last, log = log, log + (step if rising else -step)
        step *= 2
    found = safe_end(at, max(last, log), min(last, log), tolerance=_CLOSE / middle)
    return scale * math.exp(found - middle)
