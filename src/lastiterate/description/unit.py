"""The privacy unit of a guarantee: how many records, in which steps, with which gradients.

The default is one record, used from the first step to the last. Everything else changes only the
step sensitivity of the unit: several records add up, a unit that joins late or leaves early causes
none outside of that time, short gradients cause small ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lastiterate._internal.formatting import printed_down
from lastiterate.description.fields import (
    at_least,
    check_fields,
    check_rules,
    documented,
    field_,
    integer,
    integer_from,
)
from lastiterate.description.loss import Loss
from lastiterate.description.serialization import Serializable
from lastiterate.description.training import Training
from lastiterate.errors import DescriptionError

PANEL = "Privacy unit"


@documented
@dataclass(frozen=True)
class PrivacyUnit(Serializable):
    """The records whose joint replacement, or removal, the guarantee is about.

    When a unit joins or leaves must not depend on iterates that are kept secret. Under "replace"
    the records that take its place keep to its ``gradient_norm`` too.

    >>> unit = PrivacyUnit(records=10, per_batch=1, first_step=100)
    >>> print(unit)
    a person with up to 10 records, at most one of them in a batch, used from step 100 on
    >>> PrivacyUnit.from_json(unit.to_json()) == unit
    True
    """

    table_name = "unit"

    records: int = field_(
        integer, "Largest number of records of one unit.", PANEL, default=1, flag="unit_records"
    )
    per_batch: int | None = field_(
        integer, "Largest number of them in one batch; the loader enforces it.", PANEL, default=None
    )
    first_step: int = field_(
        integer_from(0), "The unit is used from this step on (from 0).", PANEL, default=0
    )
    last_step: int | None = field_(
        integer_from(0), "The unit is used before this step only.", PANEL, default=None
    )
    gradient_norm: float | None = field_(
        at_least(0),
        "Bound on the gradients of the unit's records.",
        PANEL,
        default=None,
        flag="own_gradient_norm",
    )

    def __post_init__(self) -> None:
        check_fields(self, "unit.")
        if self.per_batch is not None and self.per_batch >= self.records:
            object.__setattr__(self, "per_batch", None)
        first, last = self.first_step, self.last_step
        early = last is not None and last < first
        check_rules(self, [(early, "last_step", f">= first_step = {first} or None")], "unit.")

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
        """Whether some steps do not use the unit because of its first or last step."""
        return self.first_step > 0 or self.last_step is not None

    def covers(self, other: PrivacyUnit, loss: Loss | None = None) -> bool:
        """Whether a guarantee for this unit holds for the other one too.

        Curvature that comes from the data is smaller in steps that do not use a record: what was
        learnt from it before is then forgotten more slowly. So a guarantee for a unit that is
        present throughout covers one that is present for a part only if the data curve nothing.

        Args:
            other: the unit that the guarantee is held against.
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
        """Return how many records of the unit one batch can hold.

        >>> from lastiterate import Cyclic
        >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=Cyclic(3))
        >>> PrivacyUnit(records=5).most_in_a_batch(run)
        3
        """
        most = self.records if self.per_batch is None else self.per_batch
        return min(most, training.batches.largest(training.records))

    def sensitivity(self, training: Training) -> float:
        """Return how much one record of the unit can change the sum of a batch's gradients."""
        if self.gradient_norm is None:
            return training.sensitivity
        own = self.gradient_norm * (2.0 if training.adjacency == "replace" else 1.0)
        return min(own, training.sensitivity)

    def curving(self, loss: Loss, training: Training) -> Loss:
        """Return what every step sees of the loss: places of an absent unit curve nothing.

        They are as many as a batch can hold of the unit's records, before its first step and after
        its last.
        """
        return emptied(loss, training, self.most_in_a_batch(training)) if self.timed else loss

    def check(self, training: Training) -> None:
        """Raise if this run cannot have such a unit.

        >>> from lastiterate import FullBatch
        >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch())
        >>> PrivacyUnit(records=10).check(run)
        Traceback (most recent call last):
            ...
        lastiterate.errors.DescriptionError: unit.records must be <= the number of records, 9, \
got 10.
        """
        batches, per_epoch = training.batches, training.batches_per_epoch
        n, T, bound = training.records, training.steps, training.gradient_norm
        apart = not batches.full and per_epoch is not None and batches.fixed_size
        spread = self.per_batch is not None
        places = (self.per_batch or n) * (per_epoch or 1)
        late = self.last_step is not None and self.last_step > T
        longer = self.gradient_norm is not None and self.gradient_norm > bound
        rules = [
            (self.records > n, "records", f"<= the number of records, {n}"),
            (spread and not apart, "per_batch", f"None with {batches.name} batches"),
            (self.records > places, "records", f"<= per_batch times {per_epoch} batches an epoch"),
            (self.first_step > T, "first_step", f"<= the number of steps, {T}"),
            (late, "last_step", f"<= the number of steps, {T}, or None"),
            (longer, "gradient_norm", f"<= the training's gradient_norm, {bound:g}"),
        ]
        check_rules(self, rules, "unit.")

    def __str__(self) -> str:
        several = f"a person with up to {self.records:,} records"
        return self._sentence(several if self.records > 1 else "a single record")

    def words(self, training: Training) -> str:
        """Return what the guarantee of this run is about.

        >>> from lastiterate import FullBatch
        >>> run = Training(records=9, steps=8, step_size=1.0, noise=1.0, gradient_norm=4.0,
        ...                batches=FullBatch())
        >>> PrivacyUnit(gradient_norm=1.0, last_step=5).words(run)
        'each single record of 9, with gradients no longer than 1, used before step 5 only'
        """
        several = f"each person with up to {self.records:,} of the {training.records:,} records"
        single = f"each single record of {training.records:,}"
        return self._sentence(several if self.records > 1 else single)

    def _sentence(self, who: str) -> str:
        parts = [who]
        if self.per_batch is not None:
            most = "one" if self.per_batch == 1 else f"{self.per_batch:,}"
            parts.append(f"at most {most} of them in a batch")
        if self.gradient_norm is not None:
            parts.append(f"with gradients no longer than {printed_down(self.gradient_norm, 6)}")
        first = f"from step {self.first_step:,} on" if self.first_step else ""
        last = "" if self.last_step is None else f"before step {self.last_step:,} only"
        if first or last:
            parts.append("used " + " and ".join(filter(None, (first, last))))
        return ", ".join(parts)


ONE_RECORD = PrivacyUnit()


def read_unit(value: Any) -> PrivacyUnit:
    """Return a unit, also from its table; None is one record from first to last step.

    >>> read_unit({"records": 3})
    PrivacyUnit(records=3, per_batch=None, first_step=0, last_step=None, gradient_norm=None)
    """
    if value is None:
        return ONE_RECORD
    if type(value) is PrivacyUnit:  # a subclass may count differently
        return value
    if isinstance(value, Mapping):
        return PrivacyUnit.from_dict(value)
    raise DescriptionError("unit", value, "a PrivacyUnit(records=, ...)")


def emptied(loss: Loss, training: Training, empty: int) -> Loss:
    """Return what is known of the loss where ``empty`` places of a batch are empty.

    Curvature that comes from the data shrinks to (b - empty)/b of it; an L2 term does not.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=4, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> emptied(Loss(smoothness=1.0, strong_convexity=0.8), run, 1).strong_convexity <= 0.6
    True
    """
    if not loss.strong_convexity:
        return loss
    places = training.batches.divisor(training.records)
    share = max(0.0, places - empty) / places * (1 - 2**-50)  # what three operations round
    return dataclasses.replace(loss, strong_convexity=loss.strong_convexity * share)
