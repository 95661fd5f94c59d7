"""The accountant: from a description to the tightest sound guarantee.

It evaluates the theorems of the registry that apply and keeps the tightest bounds. Nothing here
computes a bound; the theorems do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from lastiterate._internal.formatting import printed
from lastiterate._internal.notebook import html_table
from lastiterate._internal.plotting import plotted
from lastiterate._internal.progress import Working
from lastiterate.accounting.guarantee import (
    NOT_A_GUARANTEE,
    REFERENCE_DELTA,
    Guarantee,
    weakest_provenance,
)
from lastiterate.curves.range_of_doubles import OUT_OF_RANGE, within_doubles
from lastiterate.description import Loss, Poisson, PrivacyUnit, RandomAllocation, Training
from lastiterate.description.unit import read_unit
from lastiterate.errors import LastIterateError, UnsupportedError
from lastiterate.theory import BY_KEY, THEOREMS, Bound, Run, Theorem, inapplicable_reason
from lastiterate.theory.run import released_steps


def account(
    training: Training,
    loss: Loss,
    *,
    releases: Iterable[int] = (),
    unit: PrivacyUnit | None = None,
) -> Guarantee:
    """The tightest sound guarantee for what the run releases.

    Args:
        training: the run.
        loss: what is known about the loss of one record.
        releases: steps after which a checkpoint is released as well; the final iterate always is.
        unit: whom the guarantee is for, such as ``PrivacyUnit(records=10)`` for a person with up
            to 10 records; one record, used from the first step to the last, if it is left out.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> g = account(run, Loss(smoothness=1.0, strong_convexity=1.0))
    >>> print(f"{g.epsilon(delta=1e-5):.3f} by {g.theorem.name}")
    1.336 by Shifted interpolation (Bok, Su & Altschuler 2024)
    """
    run = Run(training, loss, released_steps(releases), read_unit(unit))
    bounds = _attempts(candidates(run), run)
    if not bounds:  # what is usually dominated may hold where the better theorem overflows
        bounds = _attempts([t for t in THEOREMS if inapplicable_reason(t, run) is None], run)
    if not bounds and candidates(run):
        raise UnsupportedError(
            f"No theorem gives a bound for this run ({training}): {OUT_OF_RANGE}."
        )
    if not bounds:
        raise UnsupportedError(
            f"No theorem covers {run.unit.words(training)} in this run "
            f"({training}). `compare` says what each one misses."
        )

    def lower(delta: float) -> float:  # prepared when asked for: most runs never are
        from lastiterate.lower import lower_reference

        return within_doubles(lambda: lower_reference(run)(delta), 0.0, overflow="raise")

    return Guarantee(run, tuple(_undominated(bounds)), lower)


def candidates(run: Run) -> list[Theorem]:
    """Sound theorems that apply and are not dominated by another one that applies."""

    @cache
    def applies(key: str) -> bool:
        return inapplicable_reason(BY_KEY[key], run) is None

    # Of a dominated one nothing is asked while one of its betters applies.
    return [t for t in THEOREMS if not any(map(applies, t.dominated_by)) and applies(t.key)]


def _attempts(theorems: Iterable[Theorem], run: Run) -> list[Bound]:
    return [bound for theorem in theorems if (bound := theorem.attempt(run)) is not None]


def _undominated(bounds: list[Bound]) -> list[Bound]:
    """Of several single Gaussians only the smallest says anything."""
    gaussian = [b for b in bounds if b.curve.mu is not None]
    others = [b for b in bounds if b.curve.mu is None]
    if gaussian:
        others.append(min(gaussian, key=lambda b: math.inf if b.curve.mu is None else b.curve.mu))
    return others


@dataclass(frozen=True)
class Row:
    """One theorem's verdict on a run: a bound, or what stands in its way."""

    theorem: Theorem
    bound: Bound | None
    epsilon: float
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """Every bound side by side, tightest first; then the theorems that do not apply, and why."""

    run: Run
    delta: float
    rows: tuple[Row, ...]
    inapplicable: tuple[Row, ...]
    other_algorithms: tuple[Row, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]

    @property
    def provenance(self) -> str:
        """Who vouches for what these bounds rest on: "proved", "declared" or "estimated"."""
        hidden = {row.theorem.hidden_state for row in self.rows}
        return weakest_provenance(self.run.training, self.run.loss, hidden)

    @cached_property
    def random_allocation(self) -> str:
        """What random allocation would give at the same noise, if it is less; else nothing.

        >>> from lastiterate import Shuffled
        >>> run = Training(records=1000, steps=20, step_size=0.1, noise=0.004, gradient_norm=1.0,
        ...                batches=Shuffled(50))
        >>> print(compare(run, Loss(smoothness=1.0)).random_allocation)  # doctest: +ELLIPSIS
        With RandomAllocation(50), ... the same noise would give epsilon = 0.4... instead of ...
        """
        training = self.run.training
        size = round(training.batches.divisor(training.records))
        own = min((row.epsilon for row in self), default=math.inf)
        if training.batches.full or isinstance(training.batches, RandomAllocation) or not own:
            return ""
        try:
            twin = training.replace(batches=RandomAllocation(size))
            other = account(twin, self.run.loss, releases=self.run.releases, unit=self.run.unit)
        except LastIterateError:
            return ""
        epsilon = other.epsilon(self.delta)
        if epsilon >= own:
            return ""
        return (
            f"With RandomAllocation({size}), where every record picks a batch of its own in each "
            f"epoch, the same noise would give epsilon = {printed(epsilon)} instead of "
            f"{printed(own)}."
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw every bound (extra ``report``).

        Args:
            ax: matplotlib Axes to draw on; new ones (``axes.figure``) if not given.
        """
        return plotted("comparison_bars", self, ax=ax)

    def __str__(self) -> str:
        lines = [NOT_A_GUARANTEE] if self.provenance == "estimated" else []
        lines += [f"epsilon at delta = {printed(self.delta)}, {self.run.training}"]
        if not self.run.unit.default:
            lines += [f"for {self.run.unit.words(self.run.training)}"]
        lines += [
            f"  {printed(row.epsilon):>10}  {row.theorem.name} ({row.theorem.status})"
            for row in self
        ]
        for row in self.other_algorithms:
            lines.append(f"  {printed(row.epsilon):>10}  NOT THIS RUN: {row.reason}")
        for row in self.inapplicable:
            lines.append(f"           -  {row.theorem.name}: {row.reason}")
        return "\n".join(filter(None, [*lines, self.random_allocation]))

    def __repr__(self) -> str:
        estimated = "NOT A GUARANTEE, " if self.provenance == "estimated" else ""
        best = (
            f"epsilon <= {printed(self[0].epsilon)}, {self[0].theorem.name}" if self.rows else "-"
        )
        return (
            f"<Comparison: {estimated}{len(self)} bounds at delta = {printed(self.delta)}, {best}; "
            f"{len(self.inapplicable)} theorems do not apply>"
        )

    def _repr_html_(self) -> str:
        head = ("epsilon", "theorem", "status")
        rows = [head, *((printed(r.epsilon), r.theorem.name, r.theorem.status) for r in self)]
        rows += [
            (printed(row.epsilon), "NOT THIS RUN", row.reason) for row in self.other_algorithms
        ]
        return html_table(
            f"epsilon at delta = {printed(self.delta)}, {self.run.training}"
            + ("" if self.run.unit.default else f", for {self.run.unit}"),
            rows,
            warning=NOT_A_GUARANTEE if self.provenance == "estimated" else "",
            details="\n".join(f"{row.theorem.name}: {row.reason}" for row in self.inapplicable),
        )


def compare(
    training: Training,
    loss: Loss,
    delta: float = REFERENCE_DELTA,
    *,
    releases: Iterable[int] = (),
    unit: PrivacyUnit | None = None,
    published: bool = False,
) -> Comparison:
    """Every applicable sound bound, tightest first; what does not apply, and why.

    Args:
        training: the run.
        loss: what is known about the loss of one record.
        delta: where bounds are compared.
        releases: steps after which a checkpoint is released as well.
        unit: the privacy unit; one record if it is left out.
        published: whether bounds of the literature that are never tightest are evaluated too.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> loss = Loss(smoothness=1.0, strong_convexity=1.0)
    >>> len(compare(run, loss)) < len(compare(run, loss, published=True))
    True
    """
    run = Run(training, loss, released_steps(releases), read_unit(unit))
    rows, idle = [], []
    with Working("comparison"):
        for theorem in theorems() if published else THEOREMS:
            reason = inapplicable_reason(theorem, run)
            bound = theorem.attempt(run) if reason is None else None
            if bound is None:
                idle.append(Row(theorem, None, math.inf, reason or OUT_OF_RANGE))
            else:
                rows.append(Row(theorem, bound, bound.epsilon(delta)))
        rows.sort(key=lambda row: row.epsilon)
        return Comparison(run, delta, tuple(rows), tuple(idle), tuple(_poisson_twin(run, delta)))


def _poisson_twin(run: Run, delta: float) -> list[Row]:
    """What most accountants would charge: Poisson batches of the same size, all iterates public."""
    training = run.training
    batches = Poisson(training.batches.share(training.records))
    same = training.batches.full or training.batches == batches or not run.unit.default
    if same or math.isinf(training.gradient_norm):
        return []
    twin = training.replace(
        batches=batches,
        adjacency="zero-out",
        sensitivity=None,
        schedule=None,
        release="last",
        step_size=training.step_sizes if training.schedule else training.step_size,
    )
    other = Run(twin, Loss.unknown())
    for theorem in THEOREMS:
        if inapplicable_reason(theorem, other) is None:
            bound = theorem.attempt(other)
            epsilon = math.inf if bound is None else bound.epsilon(delta)
            note = (
                "Poisson sampling at the same rate, zero-out adjacency, all iterates public, is "
                "what most accountants charge; this loader does not draw Poisson batches"
            )
            return [Row(theorem, None, epsilon, note)]
    return []


def theorems() -> tuple[Theorem, ...]:
    """The registry: every theorem with its name, reference, status, statement and correction.

    Those that can be tightest first, then bounds and refuted claims of the literature.

    >>> {theorem.status for theorem in theorems()} == {"sound", "corrected", "refuted"}
    True
    """
    from lastiterate.published import PUBLISHED

    return (*THEOREMS, *PUBLISHED)
