"""A run as theorems see it: the training, the loss, what is released, and the privacy unit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastiterate.description import Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import DescriptionError
from lastiterate.theory import dynamics
from lastiterate.theory.dynamics import Array, Steps
from lastiterate.theory.modulus import Modulus

_MAX_TIMED_STEPS = 50_000_000  # per-step arrays beyond this do not fit an ordinary machine


def released_steps(releases: Iterable[int]) -> tuple[int, ...]:
    """The steps whose iterates are released, as a tuple.

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

    Args:
        training: the run.
        loss: what is known about the loss of one record.
        releases: steps after which a checkpoint is released.
        unit: the privacy unit.
    """

    training: Training
    loss: Loss
    releases: tuple[int, ...] = ()
    unit: PrivacyUnit = ONE_RECORD

    def __post_init__(self) -> None:
        kinds = (("training", Training), ("loss", Loss), ("unit", PrivacyUnit))
        for name, kind in kinds:
            given = getattr(self, name)
            if type(given) is not kind:  # a subclass may define other sensitivities
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
            if self.unit.timed and steps > _MAX_TIMED_STEPS:
                why = "the steps of a person who joins late or leaves early are counted one by one"
                raise DescriptionError("steps", steps, f"at most {_MAX_TIMED_STEPS:,}", why)

    @property
    def batches(self) -> int:
        """Batches of an epoch; 1 where batches do not come in epochs."""
        return self.training.batches_per_epoch or 1

    @property
    def rate(self) -> float:
        """The probability that a record is in a batch."""
        return self.training.batches.share(self.training.records)

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
        """Whether only the last iterate is released."""
        return len(self.releases) == 1 and self.window == 1

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Segments of hidden steps, each ending in a release; then the window, step by step."""
        ends = [t for t in self.releases if t < self.hidden_steps] + [self.hidden_steps]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    @property
    def hidden_segments(self) -> list[tuple[int, int]]:
        """The segments that are not empty."""
        return [(first, last) for first, last in self.segments if last > first]

    @property
    def releases_end_epochs(self) -> bool:
        """Whether every released checkpoint lies at the end of an epoch."""
        return not any(step % self.batches for step in self.releases[:-1])

    @property
    def constant(self) -> bool:
        """Whether all steps are identical for the privacy unit."""
        return self.training.constant and not self.unit.timed

    @cached_property
    def etas(self) -> Array:
        """Step sizes, once if all steps are alike: constant runs of 10^12 steps stay small."""
        training = self.training
        every = training.step_size if self.constant else training.step_sizes
        return np.atleast_1d(np.asarray(every, dtype=float))

    @cached_property
    def curving(self) -> Loss:
        """The loss that every update sees; places of an absent unit are empty."""
        return self.unit.curving(self.loss, self.training)

    def exposed(self, unit: PrivacyUnit) -> Run:
        """The run for another unit, whose places are as empty as this one's are at times."""
        return dataclasses.replace(self, loss=self.curving, unit=unit)

    @property
    def one_record(self) -> Run:
        """The run for a single record of the unit."""
        return self.exposed(dataclasses.replace(self.unit, records=1, per_batch=None))

    @cached_property
    def contraction(self) -> Array | None:
        """c of every step (once if all are alike), or None."""
        return dynamics.contraction(self.etas, self.curving, self.training.clipping)

    @cached_property
    def regular(self) -> bool:
        """Whether every update has a finite Lipschitz constant."""
        return self.contraction is not None and bool(np.all(np.isfinite(self.contraction)))

    def moduli(self, crowding: float = 1.0) -> list[Modulus]:
        """Moduli that every update has, the least first (one number where all steps are alike).

        The weaker ones are those of descriptions that the run's implies: a search is not exact.

        Args:
            crowding: how many times the nominal number of records a batch may have.
        """
        training, diameter = self.training, self.training.diameter
        if math.isinf(diameter):
            return []
        shapes = list(dynamics.implied_moduli(self.etas, training, self.curving, crowding))
        if shapes and shapes[0].linear_up_to(diameter):
            shapes = shapes[:1]  # no weaker one finds a better path
        return [shape.once() for shape in shapes] if self.constant else shapes

    @property
    def expands(self) -> bool:
        """Whether some update may drive two runs apart, or has no known Lipschitz constant."""
        return self.contraction is None or bool(np.any(self.contraction > 1))

    @property
    def curvature(self) -> float:
        """The strong convexity (lambda) that every update sees."""
        data = self.curving.strong_convexity if self.training.clipping == "none" else 0.0
        return data + self.loss.regularization

    @property
    def smoothness(self) -> float:
        """The smoothness (beta) that every update sees."""
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
    def step_sensitivities(self) -> Array:
        """s of every step that uses the record (once if all are alike).

        Of a unit with several records: of one of them, except in full batches, which hold all.
        Steps before the first or after the last use have the rounding drift alone.
        """
        unit = self.unit
        if unit.default:
            return dynamics.step_sensitivities(self.etas, self.training)
        change = unit.sensitivity(self.training)
        if self.training.batches.full:
            change *= unit.records
        s = dynamics.step_sensitivities(self.etas, self.training, change)
        if unit.timed:
            absent = np.ones(len(s), dtype=bool)
            absent[unit.first_step : unit.last_step] = False
            s = np.where(absent, self.rounding_drifts, s)
        return s

    @cached_property
    def rounding_drifts(self) -> Array:
        """What rounding adds at every step that does not use the record (once if all are alike)."""
        return dynamics.rounding_drifts(self.etas, self.training)

    @cached_property
    def steps(self) -> Steps:
        """What the updates do to the distance of two runs; c is infinite if none is known."""
        return self.having()

    def having(self, **values: Array) -> Steps:
        """The steps with other values than the run's own (each once if all steps are alike)."""
        unknown = np.full(len(self.etas), math.inf)
        own = {"c": unknown if self.contraction is None else self.contraction}
        s, drift = self.step_sensitivities, self.rounding_drifts
        every = {**own, "s": s, "rounding_drift": drift, **values}
        if self.constant:
            every = {name: value.reshape(()) for name, value in every.items()}
        return Steps(**every, nu=self.training.noises, count=self.training.steps)
