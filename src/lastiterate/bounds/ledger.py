"""What a theorem is to this library.

Each theorem is an object with its statement, assumptions, reference and status. It looks at a run
and either names what stands in its way or returns a bound: a curve, with the witness that lets
somebody else check it. Refuted theorems are kept for study and can never be asked for a bound.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from lastiterate.bounds import dynamics
from lastiterate.bounds.steps import Array, Steps
from lastiterate.curves.base import Curve
from lastiterate.curves.range_of_doubles import OUT_OF_RANGE, within_doubles
from lastiterate.curves.searched import Searched
from lastiterate.description import Batches, Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError

Status = Literal["sound", "corrected", "refuted"]
PRESENCE = frozenset(
    {"first_step", "last_step", "gradient_norm"}
)  # of a unit: other impulses, no more
_MOST_TIMED = 50_000_000  # per-step arrays beyond this do not fit an ordinary machine


def released_steps(releases: Iterable[int]) -> tuple[int, ...]:
    """The steps that somebody named, one after another.

    >>> released_steps([3, 5])
    (3, 5)
    """
    try:
        return tuple(releases)
    except TypeError:
        why = "each names an iterate that leaves"
        raise DescriptionError(
            "releases", releases, "a list of steps, such as (500,)", why
        ) from None


@dataclass(frozen=True)
class Run:
    """A training, its loss and the steps after which an iterate is released (the last included).

    ``unit``: whom a guarantee is asked for.
    """

    training: Training
    loss: Loss
    releases: tuple[int, ...] = ()
    unit: PrivacyUnit = ONE_RECORD

    def __post_init__(self) -> None:
        kinds = (("training", Training), ("loss", Loss), ("unit", PrivacyUnit))
        for name, kind in kinds:
            given = getattr(self, name)
            if type(given) is not kind:  # a child may count in its own way
                found, why = f"of type {type(given).__name__}", "it is what a theorem speaks of"
                allowed = f"a {kind.__name__}, as in account(training, loss)"
                raise DescriptionError(name, found, allowed, why)
        steps = self.training.steps
        for step in released_steps(self.releases):
            if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
                why = "releases are counted in updates"
                raise DescriptionError("releases", step, "whole numbers", why)
            if not 1 <= step <= steps:
                why = "only iterates of the run exist"
                raise DescriptionError("releases", step, f"between 1 and steps = {steps}", why)
        object.__setattr__(self, "releases", tuple(sorted({*map(int, self.releases), steps})))
        if self.unit is not ONE_RECORD:
            self.unit.check(self.training)
            if self.unit.timed and steps > _MOST_TIMED:
                why = "the steps of a person who joins late or leaves early are counted one by one"
                raise DescriptionError("steps", steps, f"at most {_MOST_TIMED:,}", why)

    @property
    def window(self) -> int:
        """How many of the last iterates are released: 1, or the window of a tail average."""
        release = self.training.release
        return release.window if isinstance(release, TailAverage) else 1

    @property
    def hidden_steps(self) -> int:
        """The steps up to the first iterate of the window; every later one is released too."""
        return self.training.steps - self.window + 1

    @property
    def last_only(self) -> bool:
        """Whether nothing but the last iterate leaves."""
        return len(self.releases) == 1 and self.window == 1

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Stretches of hidden steps, each ending in a release; then the window, step by step."""
        ends = [t for t in self.releases if t < self.hidden_steps] + [self.hidden_steps]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    @property
    def constant(self) -> bool:
        """Whether every step is the same, for the person too whom the run is exposed to."""
        return self.training.constant and not self.unit.timed

    @cached_property
    def etas(self) -> Array:
        """Step sizes, once if all steps are alike: constant runs of 10^12 steps stay small."""
        training = self.training
        every = training.step_size if self.constant else training.step_sizes
        return np.atleast_1d(np.asarray(every, dtype=float))

    @cached_property
    def curving(self) -> Loss:
        """What every update sees of the loss: places of a person who is not there are empty."""
        return self.unit.curving(self.loss, self.training)

    def exposed(self, person: PrivacyUnit) -> Run:
        """The run for somebody else, whose places are as empty as this person's are at times."""
        return dataclasses.replace(self, loss=self.curving, unit=person)

    @cached_property
    def contraction(self) -> Array | None:
        """c of every step (once if all are alike), or None."""
        return dynamics.contraction(self.etas, self.curving, self.training.clipping)

    @property
    def regular(self) -> bool:
        """Whether every update has a finite Lipschitz constant."""
        return self.contraction is not None and bool(np.all(np.isfinite(self.contraction)))

    @property
    def curvature(self) -> float:
        """λ: the strong convexity that every update sees."""
        data = self.curving.strong_convexity if self.training.clipping == "none" else 0.0
        return data + self.loss.regularization

    @property
    def roughness(self) -> float:
        """β: the smoothness that every update sees."""
        return (self.loss.smoothness or 0.0) + self.loss.regularization

    @property
    def capped(self) -> bool:
        """Whether bounded gradients say more than the Lipschitz constant somewhere on the domain.

        (c - |1 - eta r|) D > 2 eta K. Elsewhere the string of the Lipschitz constants is exact.
        """
        if self.contraction is None or math.isinf(self.training.diameter):
            return False
        excess = self.contraction - dynamics.shrinkage(self.etas, self.loss)
        with np.errstate(over="ignore"):
            gained = excess * self.training.diameter > dynamics.reach(self.etas, self.training)
        return bool(np.any(gained))

    @cached_property
    def impulses(self) -> Array:
        """s of every step that uses the record (once if all are alike).

        Of a person with several records: of one of them, except in full batches, which hold all.
        Steps before the person joined or after the person left only drift.
        """
        unit = self.unit
        if unit.default:
            return dynamics.impulses(self.etas, self.training)
        change = unit.sensitivity(self.training)
        if self.training.batches.full:
            change *= unit.records
        s = dynamics.impulses(self.etas, self.training, change)
        if unit.timed:
            absent = np.ones(len(s), dtype=bool)
            absent[unit.first_step : unit.last_step] = False
            s = np.where(absent, self.drifts, s)
        return s

    @cached_property
    def drifts(self) -> Array:
        """What rounding adds at every step that does not use the record (once if all are alike)."""
        return dynamics.drifts(self.etas, self.training)

    @cached_property
    def steps(self) -> Steps:
        """What the updates do to the distance of two runs; c is infinite if none is known."""
        return self.having()

    def having(self, **values: Array) -> Steps:
        """The steps with other values than the run's own (each once if all steps are alike)."""
        unknown = np.full(len(self.etas), math.inf)
        own = {"c": unknown if self.contraction is None else self.contraction}
        every = {**own, "s": self.impulses, "drift": self.drifts, **values}
        if self.constant:
            every = {name: value.reshape(()) for name, value in every.items()}
        return Steps(**every, nu=self.training.noises, count=self.training.steps)


@dataclass(frozen=True)
class Proof:
    """A curve, and the witness with which somebody else can check exactly this curve.

    ``gap``: by how much the epsilon that is checked may be larger, because it is computed coarser.
    """

    curve: Curve
    witness: Mapping[str, Any] = field(default_factory=dict)
    gap: float = 0.05


@dataclass(frozen=True)
class Bound:
    """What a theorem says about a run.

    ``curve`` answers every question. Where a proof has free parameters they are searched for each
    delta; `at` returns what was found, so that nobody has to search twice.
    """

    theorem: Theorem
    curve: Curve
    witness: Mapping[str, Any] = field(default_factory=dict, compare=False)
    note: str = ""
    search: Callable[[float], Proof] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def searched(cls, theorem: Theorem, search: Callable[[float], Proof]) -> Bound:
        """A bound whose parameters are chosen for the delta that is asked."""
        found = lru_cache(maxsize=64)(search)
        return cls(theorem, Searched(lambda delta: found(delta).curve), search=found)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon proved at this delta; infinite beyond the range of doubles."""
        return within_doubles(lambda: self.curve.epsilon(delta), math.inf)

    def delta(self, epsilon: float) -> float:
        """The smallest delta proved at this epsilon; 1 beyond the range of doubles."""
        return within_doubles(lambda: self.curve.delta(epsilon), 1.0)

    def rdp(self, order: float) -> float:
        """The smallest proved Renyi divergence; infinite beyond the range of doubles."""
        return within_doubles(lambda: self.curve.rdp(order), math.inf)

    def at(self, delta: float) -> Proof:
        """The proof that is used at this delta."""
        search = self.search
        if search is None:
            return Proof(self.curve, self.witness)
        proof = within_doubles(lambda: search(delta), None)
        if proof is None:
            raise UnsupportedError(f"{self.theorem.name} proves nothing here: {OUT_OF_RANGE}.")
        return proof


class Theorem(ABC):
    """A statement that may bound the privacy of a run."""

    key: ClassVar[str]  # names it in files and in code; never changes
    name: ClassVar[str]  # for people
    reference: ClassVar[str]
    status: ClassVar[Status] = "sound"
    statement: ClassVar[str]
    schemes: ClassVar[tuple[type[Batches], ...]] = ()  # the batches it is stated for
    assumptions: ClassVar[tuple[str, ...]] = ()
    correction: ClassVar[str] = ""
    hidden_state: ClassVar[bool] = True  # whether it needs intermediate iterates to stay secret
    momentum: ClassVar[bool] = False  # whether it covers runs with momentum: only composition does
    correlated: ClassVar[bool] = False  # whether it is about noise that later steps take back
    rounding: ClassVar[bool] = False  # whether it charges rounding at every step, and grids
    covers: ClassVar[frozenset[str]] = frozenset()  # fields of a unit that it knows about
    several: ClassVar[bool] = False  # whether it is about several records of one person alone
    dominated_by: ClassVar[
        tuple[str, ...]
    ] = ()  # keys of theorems that, where they apply, are never worse

    @abstractmethod
    def objection(self, run: Run) -> str | None:
        """Why it says nothing about this run, whose batches are of its schemes; None if it does."""

    @abstractmethod
    def prove(self, run: Run) -> Bound:
        """The bound, once nothing stands in its way."""

    def attempt(self, run: Run) -> Bound | None:
        """The bound, or None where its numbers leave the range of doubles."""
        return within_doubles(lambda: self.prove(run), None)

    def obstacle(self, run: Run) -> str | None:
        """What keeps the theorem from carrying a guarantee for this run, or None."""
        if self.status == "refuted":
            return "it is refuted; no guarantee may rest on it"
        if run.training.steps == 0 and self.hidden_state:
            return "there is no step, so there is nothing to hide"
        if run.training.momentum and not self.momentum:
            return (
                "with momentum the hidden state is the pair (parameters, velocity), whose update "
                "does not keep two runs together: only composition covers it"
            )
        if not isinstance(run.training.batches, self.schemes):
            return f"it is stated for {' or '.join(s.name for s in self.schemes)} batches"
        if (run.training.correlation is not None) != self.correlated:
            own = "that later steps take back in part"
            return f"it is about noise {own}" if self.correlated else f"it knows no noise {own}"
        if self.several and run.unit.records == 1:
            return "it is about several records of one person"
        if not (run.unit.default or run.unit.differs <= self.covers):
            return self._unknown_unit(run)
        if not self.rounding and self.hidden_state:
            if run.training.proximal is not None:
                return "it is not stated for updates that a proximal step follows"
            if run.training.slip:
                return "it speaks of real numbers, and these parameters are rounded to a grid"
            if not run.training.batches.full and np.any(run.drifts > 0):
                return "it has no room for what sums round at steps that do not use the record"
        return within_doubles(lambda: self.objection(run), OUT_OF_RANGE)

    def _unknown_unit(self, run: Run) -> str:
        unknown = sorted(run.unit.differs - self.covers)
        known = f"; of a unit it covers {', '.join(sorted(self.covers))}" if self.covers else ""
        return (
            f"it speaks of one record, used from the first step to the last, and not of "
            f"{run.unit} (unit: {', '.join(unknown)}){known}"
        )

    def applies(self, training: Training, loss: Loss) -> bool:
        """Whether the theorem covers this run and may carry a guarantee."""
        return self.obstacle(Run(training, loss)) is None

    def bound(
        self,
        training: Training,
        loss: Loss,
        releases: tuple[int, ...] = (),
        unit: PrivacyUnit = ONE_RECORD,
    ) -> Bound:
        """The bound for this run, or an AssumptionError that says what is missing."""
        run = Run(training, loss, releases, unit)
        reason = self.obstacle(run)
        if reason is not None:
            raise AssumptionError(f"{self.name} does not apply: {reason}.")
        bound = self.attempt(run)
        if bound is None:
            raise UnsupportedError(f"{self.name} proves nothing here: {OUT_OF_RANGE}.")
        return bound

    def __repr__(self) -> str:
        return f"<{self.name} ({self.reference}): {self.status}>"
