"""What a theorem is, and when it applies to a run.

A theorem is one row of data: key, name, reference, status, statement, the batch schemes it is
stated for, the features of a run that it supports, and the function that evaluates it. Whether it
applies is decided here, from `schemes` and `supports`; a row adds only what is special about it
(`limits`). The rows are listed in `lastiterate.theory.THEOREMS` and
`lastiterate.published.PUBLISHED`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from lastiterate.curves.base import Curve
from lastiterate.curves.range_of_doubles import OUT_OF_RANGE, within_doubles
from lastiterate.curves.searched import Searched
from lastiterate.description import Batches, Loss, PrivacyUnit, Training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.theory.run import Run

Status = Literal["sound", "corrected", "refuted"]


@dataclass(frozen=True)
class Proof:
    """A curve, and the witness with which somebody else can check exactly this curve.

    Args:
        curve: the bound.
        witness: what an independent check needs.
        gap: by how much the epsilon that is checked may be larger, because it is computed coarser.
        note: a sentence for people.
        search: where parameters are chosen for each delta, the proof that is used there.
    """

    curve: Curve
    witness: Mapping[str, Any] = field(default_factory=dict, compare=False)
    gap: float = 0.05
    note: str = ""
    search: Callable[[float], Proof] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def searched(cls, search: Callable[[float], Proof]) -> Proof:
        """A proof whose parameters are chosen for the delta that is asked."""
        found = lru_cache(maxsize=64)(search)
        return cls(Searched(lambda delta: found(delta).curve), search=found)


@dataclass(frozen=True)
class Bound:
    """What a theorem says about a run: a curve that holds at every epsilon and delta."""

    theorem: Theorem
    proof: Proof

    @property
    def curve(self) -> Curve:
        """The curve."""
        return self.proof.curve

    @property
    def witness(self) -> Mapping[str, Any]:
        """What an independent check needs, where it does not depend on delta."""
        return self.proof.witness

    @property
    def note(self) -> str:
        """A sentence for people, or nothing."""
        return self.proof.note

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
        search = self.proof.search
        if search is None:
            return self.proof
        proof = within_doubles(lambda: search(delta), None)
        if proof is None:
            raise UnsupportedError(f"{self.theorem.name} proves nothing here: {OUT_OF_RANGE}.")
        return proof


@dataclass(frozen=True, eq=False, repr=False)
class Theorem:
    """A statement that may bound the privacy of a run.

    Args:
        key: its name in files and in code; never changes.
        name: its name for people.
        reference: where it is proved.
        statement: what it says.
        schemes: the batches it is stated for.
        bound: evaluates it; None for a refuted claim.
        status: "sound", "corrected" (its print had to be mended) or "refuted".
        supports: the features of a run (`FEATURES`) that it covers; it applies to no run that has
            others.
        needs: the features that a run must have.
        limits: why else it does not apply to a run, or None.
        assumptions: what it rests on.
        correction: what was corrected, or what to use instead of a refuted claim.
        counterexample: of a refuted claim.
        hidden_state: whether intermediate iterates must stay secret.
        dominated_by: keys of theorems that, where they apply, are never worse.
    """

    key: str
    name: str
    reference: str
    statement: str
    schemes: tuple[type[Batches], ...] = ()
    bound: Callable[[Run], Proof] | None = None
    status: Status = "sound"
    supports: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    limits: Callable[[Run], str | None] | None = None
    assumptions: tuple[str, ...] = ()
    correction: str = ""
    counterexample: str = ""
    hidden_state: bool = True
    dominated_by: tuple[str, ...] = ()

    def prove(self, run: Run) -> Bound:
        """The bound of a run that the theorem applies to."""
        if self.bound is None:
            raise AssumptionError(f"{self.name} is refuted: {self.counterexample}.")
        return Bound(self, self.bound(run))

    def attempt(self, run: Run) -> Bound | None:
        """The bound, or None where its numbers leave the range of doubles."""
        return within_doubles(lambda: self.prove(run), None)

    def evaluate(
        self,
        training: Training,
        loss: Loss,
        releases: tuple[int, ...] = (),
        unit: PrivacyUnit = ONE_RECORD,
    ) -> Bound:
        """The bound for this run, or an AssumptionError that says what is missing.

        Args:
            training: the run.
            loss: what is known about the loss of one record.
            releases: steps after which a checkpoint is released as well.
            unit: the privacy unit.
        """
        run = Run(training, loss, releases, unit)
        reason = inapplicable_reason(self, run)
        if reason is not None:
            raise AssumptionError(f"{self.name} does not apply: {reason}.")
        bound = self.attempt(run)
        if bound is None:
            raise UnsupportedError(f"{self.name} proves nothing here: {OUT_OF_RANGE}.")
        return bound

    def __repr__(self) -> str:
        return f"<{self.name} ({self.reference}): {self.status}>"


class Feature(NamedTuple):
    """Something that a run may have and a theorem may not cover."""

    present: Callable[[Run], bool]
    unsupported: str  # why a theorem that does not support it does not apply
    needed: str = ""  # why a theorem that needs it does not apply


# In this order: the first that is missing is named.
FEATURES: dict[str, Feature] = {
    "no steps": Feature(
        lambda run: run.training.steps == 0, "there is no step, so there is nothing to hide"
    ),
    "momentum": Feature(
        lambda run: bool(run.training.momentum),
        "with momentum the hidden state is the pair (parameters, velocity), whose update does not "
        "keep two runs together: only composition covers it",
    ),
    "correlated noise": Feature(
        lambda run: run.training.correlation is not None,
        "it does not cover noise that later steps take back in part",
        "it is about noise that later steps take back in part",
    ),
    "records": Feature(
        lambda run: run.unit.records > 1,
        "it speaks of a single record, and not of {unit} (unit: records)",
        "it is about several records of one person",
    ),
    **{
        name: Feature(
            lambda run, name=name: name in run.unit.differs,  # type: ignore[misc]
            "it speaks of one record, used from the first step to the last, and not of {unit} "
            f"(unit: {name})",
        )
        for name in ("per_batch", "first_step", "last_step", "gradient_norm")
    },
    "replace": Feature(
        lambda run: run.training.adjacency == "replace", "it is stated for zero-out adjacency"
    ),
    "zero-out": Feature(
        lambda run: run.training.adjacency == "zero-out", "it is stated for replace adjacency"
    ),
    "proximal": Feature(
        lambda run: run.training.proximal is not None,
        "it is not stated for updates that a proximal step follows",
    ),
    "grid": Feature(
        lambda run: bool(run.training.grid_rounding),
        "it speaks of real numbers, and these parameters are rounded to a grid",
    ),
    "rounding": Feature(
        lambda run: not run.training.batches.full and bool(np.any(run.rounding_drifts > 0)),
        "it has no term for what sums round at steps that do not use the record",
    ),
    "releases": Feature(lambda run: not run.last_only, "more than the last iterate is released"),
    "schedules": Feature(
        lambda run: not run.steps.constant, "it is stated for constant step size and noise"
    ),
    "no Lipschitz constant": Feature(
        lambda run: not run.regular,
        "it needs a smooth loss: updates must have a Lipschitz constant",
    ),
    "expansion": Feature(
        lambda run: run.expands,
        "it needs non-expansive updates (convex, no gradient clipping, small steps)",
    ),
}

ADJACENCIES = frozenset({"replace", "zero-out"})
PRESENCE = frozenset({"first_step", "last_step", "gradient_norm"})  # other sensitivities, no more
UNIT_FIELDS = PRESENCE | {"records", "per_batch"}
# What theorems support together: equal updates that do not expand, computed with rounding; any
# Lipschitz updates; any updates; and all of these with all iterates public.
NON_EXPANSIVE = ADJACENCIES | {"proximal", "grid", "rounding"}
LIPSCHITZ = NON_EXPANSIVE | {"schedules", "expansion"}
ANY_UPDATE = LIPSCHITZ | {"no Lipschitz constant"}
PUBLIC = ANY_UPDATE | {"no steps", "momentum", "releases"}


def inapplicable_reason(theorem: Theorem, run: Run) -> str | None:
    """Why a theorem carries no guarantee for a run; None if it does.

    >>> from lastiterate import FullBatch
    >>> from lastiterate.theory import BY_KEY
    >>> run = Training(records=5, steps=9, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch())
    >>> inapplicable_reason(BY_KEY["exchange"], Run(run, Loss(smoothness=1.0)))
    'it is stated for shuffled batches'
    """
    if theorem.status == "refuted":
        return "it is refuted; no guarantee may rest on it"
    if not isinstance(run.training.batches, theorem.schemes):
        return f"it is stated for {' or '.join(scheme.name for scheme in theorem.schemes)} batches"
    return within_doubles(lambda: _missing(theorem, run), OUT_OF_RANGE)


def _missing(theorem: Theorem, run: Run) -> str | None:
    for name, feature in FEATURES.items():
        if name in theorem.needs and not feature.present(run):
            return feature.needed
        if name not in theorem.supports and name not in theorem.needs and feature.present(run):
            return feature.unsupported.format(unit=run.unit)
    return None if theorem.limits is None else theorem.limits(run)
