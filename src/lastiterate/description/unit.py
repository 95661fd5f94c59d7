"""Whom a guarantee speaks of: how a person's records enter the run.

One record, used from the first step to the last, unless something else is said. Everything that can
be said changes only the impulse that the person causes at each step: several records add up, a
person who joins late or leaves early causes none outside of that time, short gradients cause small
ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from lastiterate._internal.formatting import printed_down
from lastiterate.description.loss import Loss
from lastiterate.description.portable import Portable
from lastiterate.description.training import Training
from lastiterate.description.validation import known_fields, number, whole
from lastiterate.errors import DescriptionError


@dataclass(frozen=True)
class PrivacyUnit(Portable):
    """How often, when and how strongly the data of one person are used.

    The guarantee is for replacing, or zeroing out, *all* records of the person at once.

    Args:
        records: k, how many records the person has at most.
        per_batch: r, at most so many of them are in one batch; None if the loader does not care.
        first_step: the person's records are used from this step on (steps are counted from 0).
        last_step: they are used before this step only; None: to the end.
        gradient_norm: no gradient of the person's records is longer; None: the training's bound.
            Under "replace" the records that take their place keep to it too.

    When a person joins or leaves must not depend on iterates that are kept secret.

    >>> person = PrivacyUnit(records=10, per_batch=1, first_step=100)
    >>> print(person)
    a person with up to 10 records, at most one of them in a batch, used from step 100 on
    >>> PrivacyUnit.from_json(person.to_json()) == person
    True
    """

    records: int = 1
    per_batch: int | None = None
    first_step: int = 0
    last_step: int | None = None
    gradient_norm: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        why = "a guarantee for a person must know how many records the person can have"
        put(self, "records", whole("unit.records", self.records, why))
        if self.per_batch is not None:
            why = "it caps how many records of the person one batch holds"
            most = whole("unit.per_batch", self.per_batch, why)
            put(self, "per_batch", None if most >= self.records else most)
        why = "it is the first step that may use the person's records"
        put(self, "first_step", whole("unit.first_step", self.first_step, why, at_least=0))
        if self.last_step is not None:
            why = "it is the first step that no longer uses the person's records"
            put(
                self,
                "last_step",
                whole("unit.last_step", self.last_step, why, at_least=self.first_step),
            )
        if self.gradient_norm is not None:
            why = "it bounds the gradients of the person's records"
            norm = number("unit.gradient_norm", self.gradient_norm, why, at_least=0.0)
            put(self, "gradient_norm", norm)

    @property
    def default(self) -> bool:
        """Whether this is one record, used from the first step to the last."""
        return self is ONE_RECORD or self == ONE_RECORD

    @property
    def differs(self) -> frozenset[str]:
        """The fields that are not those of one record, used from the first step to the last.

        >>> sorted(PrivacyUnit(records=2, last_step=5).differs)
        ['last_step', 'records']
        """
        return frozenset(self.to_dict())

    @property
    def timed(self) -> bool:
        """Whether some steps do not use the person's records because of when they are there."""
        return self.first_step > 0 or self.last_step is not None

    def covers(self, other: PrivacyUnit, loss: Loss | None = None) -> bool:
        """Whether a guarantee for this person holds for that one too, who is exposed no more.

        Curvature that comes from the data is smaller in steps that do not use a record: what was
        learnt from it before is then forgotten more slowly. So a guarantee for a person who is
        there throughout covers one who is there for a part only if the data curve nothing.

        Args:
            other: whom the guarantee is held against.
            loss: what the guarantee assumes about the loss; None: unknown.

        >>> one = PrivacyUnit()
        >>> PrivacyUnit(records=10).covers(one), PrivacyUnit(last_step=5).covers(one)
        (True, False)
        >>> flat, curved = Loss(smoothness=1.0), Loss(smoothness=1.0, strong_convexity=1.0)
        >>> [PrivacyUnit().covers(PrivacyUnit(last_step=5), loss) for loss in (flat, curved, None)]
        [True, False, False]
        """
        curved = loss is None or loss.strong_convexity > 0
        norm = other.gradient_norm
        # In hidden batches records that are kept apart may cost more than records placed anyhow;
        # for a number between one and all every placement is counted.
        placed = other.records == 1 or other.per_batch == self.per_batch
        if self.per_batch is not None and self.per_batch > 1:
            together = other.records if other.per_batch is None else other.per_batch
            placed = together <= self.per_batch
        return (
            other.records <= self.records
            and placed
            and (self.timed or not other.timed or not curved)
            and other.first_step >= self.first_step
            and (
                self.last_step is None
                or (other.last_step is not None and other.last_step <= self.last_step)
            )
            and (self.gradient_norm is None or (norm is not None and norm <= self.gradient_norm))
        )

    def most_in_a_batch(self, training: Training) -> int:
        """How many records of the person one batch can hold.

        >>> from lastiterate import Cyclic
        >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=Cyclic(3))
        >>> PrivacyUnit(records=5).most_in_a_batch(run)
        3
        """
        most = self.records if self.per_batch is None else self.per_batch
        return min(most, training.batches.largest(training.records))

    def sensitivity(self, training: Training) -> float:
        """How much one record of the person can change the sum of a batch's gradients."""
        if self.gradient_norm is None:
            return float(training.sensitivity)
        own = self.gradient_norm * (2.0 if training.adjacency == "replace" else 1.0)
        return min(own, float(training.sensitivity))

    def curving(self, loss: Loss, training: Training) -> Loss:
        """What every step sees of the loss: the places of a person who is not there curve nothing.

        They are as many as a batch can hold of the person's records, before the first step that
        uses them and after the last.
        """
        return emptied(loss, training, self.most_in_a_batch(training)) if self.timed else loss

    def check(self, training: Training) -> None:
        """Raise if nobody can be exposed to this run in such a way.

        >>> from lastiterate import FullBatch
        >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch())
        >>> PrivacyUnit(records=10).check(run)
        Traceback (most recent call last):
            ...
        lastiterate.errors.DescriptionError: unit.records is 10, but must be at most the \
number of records, 9: a person cannot have more records than there are.
        """
        if self.records > training.records:
            allowed = f"at most the number of records, {training.records}"
            why = "a person cannot have more records than there are"
            raise DescriptionError("unit.records", self.records, allowed, why)
        if self.per_batch is not None:
            self._check_spread(training)
        if self.first_step > training.steps:
            allowed = f"at most the number of steps, {training.steps}"
            why = "nobody can join a run that is over"
            raise DescriptionError("unit.first_step", self.first_step, allowed, why)
        if self.last_step is not None and self.last_step > training.steps:
            allowed = f"at most the number of steps, {training.steps} (None: to the end)"
            why = "a run that is over cannot be left"
            raise DescriptionError("unit.last_step", self.last_step, allowed, why)
        if self.gradient_norm is not None and self.gradient_norm > training.gradient_norm:
            allowed = f"at most the training's gradient_norm, {training.gradient_norm:g}"
            why = "no record of the run has a longer gradient"
            raise DescriptionError("unit.gradient_norm", self.gradient_norm, allowed, why)

    def _check_spread(self, training: Training) -> None:
        batches, per_epoch = training.batches, training.batches_per_epoch
        assert self.per_batch is not None
        if batches.full or per_epoch is None or not batches.fixed_size:
            allowed = "None, or given with batches that pass over the data in epochs"
            why = f"{batches.name} batches cannot keep the records of a person apart"
            raise DescriptionError("unit.per_batch", self.per_batch, allowed, why)
        if self.records > self.per_batch * per_epoch:
            allowed = f"at most per_batch times the {per_epoch} batches of an epoch"
            why = "the others would have to share a batch with more of their own"
            raise DescriptionError("unit.records", self.records, allowed, why)

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values; defaults are left out."""
        fields = dataclasses.fields(self)
        own = {field.name: getattr(self, field.name) for field in fields}
        return {f.name: own[f.name] for f in fields if own[f.name] != f.default}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote."""
        return cls(**known_fields("unit", table, {f.name for f in dataclasses.fields(cls)}))

    def __str__(self) -> str:
        several = f"a person with up to {self.records:,} records"
        return self._said(several if self.records > 1 else "a single record")

    def words(self, training: Training) -> str:
        """Whom the guarantee of this run speaks of.

        >>> from lastiterate import FullBatch
        >>> run = Training(records=9, steps=8, step_size=1.0, noise=1.0, gradient_norm=4.0,
        ...                batches=FullBatch())
        >>> PrivacyUnit(gradient_norm=1.0, last_step=5).words(run)
        'each single record of 9, with gradients no longer than 1, used before step 5 only'
        """
        several = f"each person with up to {self.records:,} of the {training.records:,} records"
        return self._said(
            several if self.records > 1 else f"each single record of {training.records:,}"
        )

    def _said(self, who: str) -> str:
        parts = [who]
        if self.per_batch is not None:
            most = "one" if self.per_batch == 1 else f"{self.per_batch:,}"
            parts.append(f"at most {most} of them in a batch")
        if self.gradient_norm is not None:
            parts.append(f"with gradients no longer than {printed_down(self.gradient_norm, 6)}")
        if self.first_step and self.last_step is not None:
            parts.append(
                f"used from step {self.first_step:,} on and before step {self.last_step:,} only"
            )
        elif self.first_step:
            parts.append(f"used from step {self.first_step:,} on")
        elif self.last_step is not None:
            parts.append(f"used before step {self.last_step:,} only")
        return ", ".join(parts)


ONE_RECORD = PrivacyUnit()


def read_unit(value: Any) -> PrivacyUnit:
    """A unit, or one from its plain form; None is one record from first to last step.

    >>> read_unit({"records": 3})
    PrivacyUnit(records=3, per_batch=None, first_step=0, last_step=None, gradient_norm=None)
    """
    if value is None:
        return ONE_RECORD
    if type(value) is PrivacyUnit:  # a child may count in its own way
        return value
    if isinstance(value, Mapping):
        return PrivacyUnit.from_dict(value)
    allowed, why = "a PrivacyUnit(records=, ...)", "a guarantee says whom it speaks of"
    raise DescriptionError("unit", value, allowed, why)


def emptied(loss: Loss, training: Training, gone: int) -> Loss:
    """What is known of the loss where ``gone`` places of a batch are empty.

    Curvature that comes from the data shrinks to (b - gone)/b of it; an L2 term does not.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=4, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> emptied(Loss(smoothness=1.0, strong_convexity=0.8), run, 1).strong_convexity <= 0.6
    True
    """
    if not loss.strong_convexity:
        return loss
    places = training.batches.divisor(training.records)
    share = max(0.0, places - gone) / places * (1 - 2**-50)  # what three operations round
    return dataclasses.replace(loss, strong_convexity=loss.strong_convexity * share)
