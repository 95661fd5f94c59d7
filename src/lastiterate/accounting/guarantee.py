"""A privacy guarantee: numbers that carry their meaning.

A `Guarantee` answers in (epsilon, delta), Renyi divergence or mu, and says what is protected,
from whom, by which theorem, under which assumptions, who vouches for them, and what is not
covered.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lastiterate._internal.formatting import printed
from lastiterate._internal.notebook import html_table
from lastiterate._internal.plotting import plotted
from lastiterate.curves import gaussian
from lastiterate.curves.interchange import to_dp_accounting
from lastiterate.description import Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.assumptions import Assumption, assumptions, not_covered, provenances
from lastiterate.description.fields import number, warn_of_large_delta
from lastiterate.errors import EstimateWarning
from lastiterate.theory import Bound, Run, Theorem
from lastiterate.theory.ordered_batches import WORST_POSITION, position_mus

REFERENCE_DELTA = 1e-5  # where bounds are ranked when nobody asks for a particular delta

NOT_A_GUARANTEE = (
    "NOT A GUARANTEE: the regularity of the loss was estimated, not proved or declared."
)


@dataclass(frozen=True)
class Guarantee:
    """The tightest sound bound on the privacy of a run.

    Several theorems may bound the same run; each is valid at every delta, so the smallest value
    holds. `theorem` names the one that is tightest at delta = 1e-5; `theorem_at` any other.
    """

    run: Run
    bounds: tuple[Bound, ...]
    lower_reference: Callable[[float], float] = field(compare=False, repr=False)

    @property
    def training(self) -> Training:
        """The run that is covered."""
        return self.run.training

    @property
    def loss(self) -> Loss:
        """What was assumed about the loss."""
        return self.run.loss

    @property
    def unit(self) -> PrivacyUnit:
        """Whom the guarantee is for: one record from first to last step, or what was asked."""
        return self.run.unit

    def epsilon(self, delta: float) -> float:
        """The smallest proved epsilon at this delta.

        >>> from lastiterate import FullBatch, Loss, Training, account
        >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
        ...                batches=FullBatch())
        >>> account(run, Loss(smoothness=1.0)).epsilon(delta=1e-5) < 0.3
        True
        """
        delta = _probability("delta", delta)
        warn_of_large_delta(delta, self.training.records)
        return min(bound.epsilon(delta) for bound in self.bounds)

    def delta(self, epsilon: float) -> float:
        """The smallest proved delta at this epsilon."""
        epsilon = number("epsilon", epsilon, at_least=0)
        return min(bound.delta(epsilon) for bound in self.bounds)

    def rdp(self, order: float) -> float:
        """The smallest proved Renyi divergence of this order."""
        order = number("order", order, above=1)
        return min(bound.rdp(order) for bound in self.bounds)

    def epsilon_quantile(self, quantile: float, delta: float = REFERENCE_DELTA) -> float:
        """The epsilon that this share of the record positions does not exceed.

        In a known order a record that is read early has more noise after it: exact per position.
        Where batches are hidden, or hold everybody, all records have the guarantee's epsilon. For
        several records of a person there is no position, and the guarantee's epsilon is returned.

        >>> from lastiterate import Cyclic, Loss, Training, account
        >>> run = Training(records=1000, steps=100, step_size=1.0, noise=1.0, gradient_norm=2.0,
        ...                batches=Cyclic(10))
        >>> g = account(run, Loss(smoothness=1.0))
        >>> half, most = g.epsilon_quantile(0.5), g.epsilon_quantile(0.9)
        >>> half < most < g.epsilon_quantile(1.0) == g.epsilon(1e-5)
        True
        """
        quantile = number("quantile", quantile, above=0.0, at_most=1.0)
        every = self.epsilon(delta)
        ordered = any(bound.theorem.key == WORST_POSITION.key for bound in self.bounds)
        if not ordered or type(self) is not Guarantee:  # a child may hold more than one run
            return every
        mus = np.sort(position_mus(self.run))
        place = min(math.ceil(quantile * len(mus)), len(mus)) - 1
        return min(every, gaussian.epsilon(float(mus[place]), delta))

    @property
    def mu(self) -> float | None:
        """mu of Gaussian differential privacy; None if no single Gaussian is tightest."""
        return self.best.curve.mu

    def best_at(self, delta: float) -> Bound:
        """The bound that is tightest at this delta."""
        if len(self.bounds) == 1:
            return self.bounds[0]
        return min(self.bounds, key=lambda bound: bound.epsilon(delta))

    @property
    def best(self) -> Bound:
        """The bound that is tightest at delta = 1e-5."""
        return self.best_at(REFERENCE_DELTA)

    @property
    def theorem(self) -> Theorem:
        """The theorem that is tightest at delta = 1e-5."""
        return self.best.theorem

    @property
    def provenance(self) -> str:
        """Who vouches for what the numbers rest on: "proved", "declared" or "estimated".

        The weakest of all provenances counts: that of the loss's regularity where a theorem uses
        it, that of the gradient norm where only the loss itself bounds it (clipping="none"), and
        that of a declared sensitivity.
        """
        return weakest_provenance(
            self.training, self.loss, {bound.theorem.hidden_state for bound in self.bounds}
        )

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Everything the numbers rest on, and who vouches for it."""
        return self._assumed_by(self.best)

    def _assumed_by(self, bound: Bound) -> tuple[Assumption, ...]:
        hidden = bound.theorem.hidden_state
        return assumptions(self.training, self.loss, hidden_state=hidden, unit=self.unit)

    def lower(self, delta: float) -> float:
        """The largest epsilon some loss of the declared class really suffers, when known, else 0.

        Never a guarantee: it shows how much of the bound is needed.
        """
        return max(0.0, self.lower_reference(_probability("delta", delta)))

    def to_dp_accounting(self, interval: float = 1e-4) -> Any:
        """This guarantee as a privacy-loss distribution of dp-accounting, to compose with others.

        Valid for one adjacency only: compose it with mechanisms counted the same way, and with the
        same ``value_discretization_interval`` (1e-4 is dp-accounting's own). Never below this
        guarantee; what dp-accounting adds up later rounds as dp-accounting rounds. Needs the extra
        ``interchange``.

        >>> from dp_accounting.pld import privacy_loss_distribution as pld
        >>> from lastiterate import FullBatch, Loss, Training, account
        >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
        ...                batches=FullBatch())
        >>> histogram = pld.from_laplace_mechanism(10.0)
        >>> both = account(run, Loss(smoothness=1.0)).to_dp_accounting().compose(histogram)
        >>> both.get_epsilon_for_delta(1e-5) < 0.35
        True
        """
        return to_dp_accounting(*(bound.curve for bound in self.bounds), interval=interval)

    def plot(self, delta: float = REFERENCE_DELTA, ax: Any = None) -> Any:
        """Draw epsilon against delta (extra ``report``).

        Args:
            delta: where the title reads epsilon.
            ax: matplotlib Axes to draw on; new ones (``axes.figure``) if not given.
        """
        return plotted("privacy_curve", self, delta, ax=ax)

    def words(self, *deltas: float) -> str:
        """The guarantee in plain words, at each delta; the first one chooses the theorem.

        >>> from lastiterate import FullBatch, Loss, Training, account
        >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
        ...                batches=FullBatch())
        >>> "at delta = 1e-07." in account(run, Loss(smoothness=1.0)).words(1e-7)
        True
        """
        return _paragraph(self, deltas or (REFERENCE_DELTA, 1e-6))

    def __str__(self) -> str:
        return self.words()

    def __repr__(self) -> str:
        return f"<Guarantee: {_finding(self)}, {self.training.adjacency}>"

    def _repr_html_(self) -> str:
        training, best = self.training, self.best
        rows = [
            ("protected", f"{self.unit.words(training)} ({training.adjacency})"),
            ("from whom", f"anybody who sees {_seen(self, (REFERENCE_DELTA,))}"),
            ("by", f"{best.theorem.name} ({best.theorem.status})"),
            ("vouched for", self.provenance),
        ]
        rows += [] if self.mu is None else [("mu", printed(self.mu))]
        warning = NOT_A_GUARANTEE if self.provenance == "estimated" else ""
        return html_table(_numbers(self), rows, warning=warning, details=str(self))


def _probability(field: str, value: float) -> float:
    return number(field, value, above=0.0, at_most=1.0)


def weakest_provenance(training: Training, loss: Loss, hidden_states: Iterable[bool]) -> str:
    """The weakest word among the provenances of theorems that hide the state, or do not."""
    used = {
        each
        for hidden in hidden_states
        for each in provenances(training, loss, hidden_state=hidden).values()
    }
    return next((word for word in ("estimated", "declared") if word in used), "proved")


def warn_if_estimated(training: Training, loss: Loss) -> None:
    """Warn whoever gets a bare number that rests on an estimate; the caller's caller is named."""
    if weakest_provenance(training, loss, (True,)) == "estimated":
        warnings.warn(NOT_A_GUARANTEE, EstimateWarning, stacklevel=3)


def _numbers(guarantee: Guarantee) -> str:
    epsilon = guarantee.best.epsilon(REFERENCE_DELTA)
    return f"epsilon <= {printed(epsilon)} at delta = {printed(REFERENCE_DELTA)}"


def _finding(guarantee: Guarantee) -> str:
    estimated = "NOT A GUARANTEE, " if guarantee.provenance == "estimated" else ""
    return f"{estimated}{_numbers(guarantee)}, {guarantee.theorem.name}"


def _paragraph(guarantee: Guarantee, deltas: tuple[float, ...]) -> str:
    training, best = guarantee.training, guarantee.best_at(deltas[0])
    lines = []
    if guarantee.provenance == "estimated":
        lines.append(NOT_A_GUARANTEE)
    one = guarantee.unit.records == 1
    neighbours = {
        ("replace", True): "replacing one record by any other",
        ("replace", False): "replacing all records of a person by any others",
        ("zero-out", True): "removing one record's contribution (its gradient replaced by zero)",
        (
            "zero-out",
            False,
        ): "removing a person's contribution (all its gradients replaced by zero)",
    }[training.adjacency, one]
    epsilons = ", ".join(
        f"epsilon = {printed(guarantee.epsilon(delta))} at delta = {printed(delta)}"
        for delta in deltas
    )
    lines.append(
        f"What is protected: {guarantee.unit.words(training)}; {neighbours} changes what is "
        f"released by at most {epsilons}."
    )
    lines.append(f"From whom: anybody who sees {_seen(guarantee, deltas)}.")
    lines.append(f"The run: {training}.")
    lines.append(
        f"Why: {best.theorem.name} ({best.theorem.reference}; {best.theorem.status})."
        + (f" {best.note}" if best.note else "")
    )
    if training.clipping == "gradient" and best.theorem.hidden_state:
        lines.append(
            "Clipping is not free: a clipped convex update can drive two runs apart, and the bound "
            "pays for it; a loss whose gradients are bounded by itself would get a smaller number."
        )
    assumed = guarantee._assumed_by(best)
    lines.append("It rests on: " + "; ".join(str(a) for a in assumed) + ".")
    lines.append("Not covered: " + "; ".join(not_covered(training)) + ".")
    return "\n".join(lines)


def _seen(guarantee: Guarantee, deltas: tuple[float, ...]) -> str:
    """What the numbers at these deltas allow others to see."""
    if not any(guarantee.best_at(delta).theorem.hidden_state for delta in deltas):
        return "any or all of the iterates"
    return _released(guarantee.run)


def _released(run: Run) -> str:
    if run.training.release == "last" and run.last_only:
        return "only the last iterate; all intermediate models stay secret"
    parts = []
    if len(run.releases) > 1:
        parts.append("the iterates after steps " + ", ".join(map(str, run.releases[:-1])))
    release = run.training.release
    if isinstance(release, TailAverage):
        parts.append(f"the average of the last {release.window} iterates (or all of them)")
    else:
        parts.append("the last iterate")
    return " and ".join(parts) + "; all other models stay secret"
