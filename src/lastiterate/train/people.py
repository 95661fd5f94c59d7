"""Whose record it is: nobody counts with more than so many, and they are spread over the batches.

Who is dropped and who is dealt where is drawn from the column of owners and secure randomness
alone, never from what a record says. Two neighbouring tables have the same column of owners (the
rows of one person say something else, or nothing), so both are drawn by one law; given what was
drawn, the runs differ by the person's own records in each batch, and delta is the average over it.
Only where this person's records come to lie matters: that other people's places depend on theirs
does not. Dropped records leave their slot empty, and the divisor is the nominal one: nothing that
is published depends on how many were dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import PrivacyUnit, Training
from lastiterate.description.batches import Draws, RowStream
from lastiterate.description.fields import integer
from lastiterate.errors import DescriptionError

WHOSE = "a guarantee for people must know whose record each row is"


@dataclass(frozen=True, eq=False)
class People:
    """Who owns each record of a run, and how much of it one person may be.

    ``owners``: the place of each record's owner in ``names``.
    """

    owners: NDArray[np.int64]
    names: NDArray[Any]
    unit: PrivacyUnit

    @classmethod
    def of(
        cls,
        groups: Any,
        training: Training,
        max_records_per_group: Any,
        per_batch: int | None = None,
    ) -> People:
        """The people of a run; raises if somebody's records cannot be kept apart as asked."""
        names, owners = _owners(groups, training.records)
        both_or_none(groups, max_records_per_group)
        most = min(max_records_per_group, training.records)
        asked = PrivacyUnit(records=most, per_batch=per_batch)
        asked.check(training)
        spread = asked.per_batch is not None and training.batches.hidden
        people = cls(owners, names, dealt(training, most) if spread else asked)
        if people.unit.per_batch is not None and not spread:
            people._check_order(training)
        return people

    @property
    def above(self) -> tuple[Any, ...]:
        """Who has more records than one person may have."""
        counts = np.bincount(self.owners, minlength=len(self.names))
        above: list[Any] = self.names[counts > self.unit.records].tolist()
        return tuple(above)

    def rows(self, training: Training, source: Draws) -> RowStream:
        """The batches of a run, with empty slots for whom there are too many records of.

        >>> from lastiterate import Shuffled
        >>> from lastiterate.noise import source
        >>> run = Training(records=8, steps=2, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=Shuffled(4))
        >>> stream = People.of(list("aaabcdef"), run, 2, per_batch=1).rows(run, source())
        >>> [int(np.sum(next(stream) < 3)) for _ in range(2)]
        [1, 1]
        """
        stream = _Dealt(training, source, self)
        stream.kept = self._drawn(source)
        return stream

    def _drawn(self, source: Draws) -> NDArray[np.bool_] | None:
        """Who counts: of everybody's records as many as allowed, uniformly; None: all of them."""
        if not self.above:
            return None
        order = source.permutation(len(self.owners))
        together = order[np.argsort(self.owners[order], kind="stable")]
        owner = self.owners[together]
        first = np.searchsorted(owner, owner)  # where the owner's records begin
        kept = np.zeros(len(order), dtype=bool)
        kept[together[np.arange(len(order)) - first < self.unit.records]] = True
        return kept

    def content(self) -> Iterable[NDArray[Any]]:
        """What must not change when a run goes on from a checkpoint."""
        yield self.owners
        yield np.array([self.unit.records, self.unit.per_batch or 0])

    def _check_order(self, training: Training) -> None:
        """Batches in a known order are the rows as they come: look, and do not move them."""
        per_epoch = training.batches_per_epoch or 1
        size = training.batches.largest(training.records)
        batch = np.repeat(np.arange(per_epoch), size)
        pairs = batch * len(self.names) + self.owners[: len(batch)]
        most = int(np.unique(pairs, return_counts=True)[1].max(initial=0))
        if most > (self.unit.per_batch or most):
            found = f"{self.unit.per_batch}, with {most} records of one person in a batch"
            why = "batches in a known order are taken from the rows as they come"
            allowed = "kept by the order of the rows, or given with shuffled batches, which spread"
            raise DescriptionError("per_batch", found, allowed, why)


def both_or_none(groups: Any, max_records_per_group: Any) -> None:
    """Raise unless owners and the most records of one of them are given together, or neither."""
    if max_records_per_group is not None:
        integer(
            "max_records_per_group",
            max_records_per_group,
        )
    if (groups is None) != (max_records_per_group is None):
        name, other = "max_records_per_group", "groups"
        if groups is None:
            name, other = other, name
        why = "together they say whose records count, and how many of them"
        allowed = (
            f"given with {other}, as in Model(max_records_per_group=10).fit(X, y, groups=owners)"
        )
        raise DescriptionError(name, None, allowed, why)


def dealt(training: Training, max_records_per_group: int) -> PrivacyUnit:
    """Whom a run speaks of whose records are dealt to its batches like cards.

    Neighbours go to different batches, so a person with k records has at most ⌈k/B⌉ in one.

    >>> from lastiterate import Shuffled
    >>> run = Training(records=8, steps=2, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=Shuffled(4))
    >>> print(dealt(run, 3))
    a person with up to 3 records, at most 2 of them in a batch
    """
    per_epoch = training.batches_per_epoch or 1
    together = training.batches.full or training.batches_per_epoch is None
    return PrivacyUnit(
        max_records_per_group,
        per_batch=None if together else -(-max_records_per_group // per_epoch),
    )


class _Dealt(RowStream):
    """Batches to which a person's records are dealt like cards, where that was asked for.

    A uniform order of all rows decides who is left over when batches do not divide them; the
    others are laid out with everybody's records side by side, and card i goes to heap i mod B.
    So j records of a person lie in j different heaps (every heap once more for every B of them),
    and as the heaps are then taken in a uniform order, in a uniformly random set of j batches,
    in exchangeable order. Every single record's batch is uniform, as in a plain shuffle.
    """

    def __init__(self, training: Training, source: Draws, people: People) -> None:
        super().__init__(training.batches, training.records, source)
        self._people, self._heaps = people, training.batches_per_epoch or 1
        self._size = training.batches.largest(training.records)

    def shuffled(self) -> NDArray[np.int64]:
        """The next secret partition."""
        order = self.source.permutation(self.records)
        if self._people.unit.per_batch is None:
            return order
        cards, rest = np.split(order, [self._heaps * self._size])
        owner = self._people.owners
        if self.kept is not None:  # an empty slot is nobody's
            owner = np.where(self.kept, owner, len(self._people.names))
        cards = cards[np.argsort(owner[cards], kind="stable")]
        heaps = cards.reshape(self._size, self._heaps).T
        return np.concatenate([heaps[self.source.permutation(self._heaps)].ravel(), rest])


def _owners(groups: Any, records: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The names of all owners, and who of them owns each record; raises unless all are known."""
    allowed = f"the owner of each of the {records} records, none of them missing"
    try:
        given = np.asarray(groups)
        found = f"of shape {given.shape} and type {given.dtype}"
        if given.shape == (records,) and given.dtype.kind in "biufUSO":
            found = "with owners that are missing"
            single = np.asarray(groups, dtype=object).tolist()  # among texts NaN becomes "nan"
            if not np.ma.getmaskarray(groups).any() and all(map(_named, single)):
                names, owners = np.unique(given, return_inverse=True)
                found = "with owners that cannot be sorted"  # somebody would be two people
                if given.dtype.kind != "O" or len(set(names.tolist())) == len(names):
                    return names, owners.astype(np.int64)
    except (TypeError, ValueError) as error:
        found = f"of type {type(groups).__name__} ({error})"
    raise DescriptionError("groups", found, allowed, WHOSE)


def _named(owner: Any) -> bool:
    return owner is not None and bool(owner == owner)
