"""How a run picks the records of each update.

One frozen class per scheme. Its docstring says what the data loader does and what the adversary
knows; the accountant never guesses either. Its methods are all that anybody knows about the scheme:
who draws batches draws them with `rows`, who accounts asks the same object.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, cast, final

import numpy as np

from lastiterate.description.rows import Draws, Rows, RowStream
from lastiterate.description.validation import known_fields, number, one_of, whole
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError


class _Scheme:
    """What every scheme answers; the facts are those of the class."""

    name: ClassVar[str]
    full: ClassVar[bool] = False  # every update uses all records
    hidden: ClassVar[bool] = True  # the adversary does not know who is in which batch
    ordered: ClassVar[bool] = False  # passes over the data: a record is at most once in an epoch
    repeated: ClassVar[bool] = False  # every epoch has the same batches in the same order
    fixed_size: ClassVar[bool] = True  # every batch holds as many records as every other
    wandering: ClassVar[bool] = False  # a record that joins moves others to other places

    def largest(self, records: int) -> int:
        """The most records that one batch can hold."""
        return records

    def divisor(self, records: int) -> float:
        """What the sum of gradients is divided by: nominal, never the realised count."""
        return float(self.largest(records))

    def exact_divisor(self, records: int) -> Fraction:
        """The divisor without rounding."""
        return Fraction(self.divisor(records))

    def share(self, records: int) -> float:
        """The probability that a record is in a batch, to the nearest float."""
        return self.divisor(records) / records

    def per_epoch(self, records: int) -> int | None:
        """Updates in one pass over the data; None for batches that are drawn afresh each time."""
        return None

    def dropped(self, records: int) -> int:
        """Records that no batch of an epoch holds."""
        return 0

    def check(self, records: int) -> None:
        """Raise if this scheme cannot run on so many records."""

    def rows(self, records: int, source: Draws) -> RowStream:
        """The rows of update 0, 1, 2, ..., drawn from a source of randomness.

        >>> from lastiterate.noise import source
        >>> stream = Cyclic(2).rows(5, source())
        >>> [next(stream) for _ in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(0, 2, None)]
        """
        return RowStream(self, records, source)

    def batch(self, stream: RowStream) -> Rows:
        """The rows of update number ``stream.step``."""
        raise NotImplementedError


@final
@dataclass(frozen=True)
class FullBatch(_Scheme):
    """Every update uses all records; the divisor is the number of records."""

    name: ClassVar[str] = "full"
    full: ClassVar[bool] = True
    hidden: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    repeated: ClassVar[bool] = True

    def per_epoch(self, records: int) -> int:
        """One: every update is a pass over the data."""
        return 1

    def batch(self, stream: RowStream) -> Rows:
        """Everyone."""
        return slice(0, stream.records)


@dataclass(frozen=True)
class _Sized(_Scheme):
    """Batches of a fixed number of records."""

    size: int

    def __post_init__(self) -> None:
        why = "each update averages over this many records"
        object.__setattr__(self, "size", whole("batches.size", self.size, why))

    def largest(self, records: int) -> int:
        """The size of every batch."""
        return self.size

    def check(self, records: int) -> None:
        """Raise if this scheme cannot run on so many records."""
        if self.size > records:
            allowed = f"at most the number of records, {records}"
            why = "a batch cannot hold more records than there are"
            raise DescriptionError("batches.size", self.size, allowed, why)


@dataclass(frozen=True)
class _Partition(_Sized):
    """Disjoint batches that pass over the data once per epoch.

    When ``size`` does not divide the number of records, the last records of the permutation are
    dropped.
    """

    ordered: ClassVar[bool] = True

    def per_epoch(self, records: int) -> int:
        """Updates in one pass over the data."""
        return records // self.size

    def dropped(self, records: int) -> int:
        """Records that no batch of an epoch holds."""
        return records % self.size

    def batch(self, stream: RowStream) -> Rows:
        """The next of the batches in a row, in the order of the partition if that is secret."""
        k = stream.step % self.per_epoch(stream.records)
        place = slice(k * self.size, (k + 1) * self.size)
        if not self.hidden:
            return place
        if stream.step == 0 or (k == 0 and not self.repeated):
            stream.order = stream.shuffled()
        if stream.order is None or stream.order.shape[-1] != stream.records:
            raise AssumptionError(
                f"The secret partition of update {stream.step:,} is lost, or is one of other "
                "records: with another one the run would not be the one that is accounted. Keep "
                "`order` in the checkpoint, or start again."
            )
        return stream.order[..., place]


@final
@dataclass(frozen=True)
class Cyclic(_Partition):
    """Fixed batches in a fixed order that the adversary knows: the worst position counts."""

    name: ClassVar[str] = "cyclic"
    hidden: ClassVar[bool] = False
    repeated: ClassVar[bool] = True


@final
@dataclass(frozen=True)
class Shuffled(_Partition):
    """One uniformly random partition, drawn before the run and kept secret, then cyclic order."""

    name: ClassVar[str] = "shuffled"
    repeated: ClassVar[bool] = True


@final
@dataclass(frozen=True)
class Reshuffled(_Partition):
    """A new secret uniformly random partition in every epoch."""

    name: ClassVar[str] = "reshuffled"


@final
@dataclass(frozen=True)
class RandomAllocation(_Sized):
    """Every record independently picks one of the ``records // size`` batches of an epoch.

    It picks anew in every epoch or, with ``same_every_epoch``, once for the whole run. No record is
    dropped. How many records a batch holds is random and stays secret; the divisor is ``size``.
    """

    same_every_epoch: bool = False

    name: ClassVar[str] = "random-allocation"
    ordered: ClassVar[bool] = True
    fixed_size: ClassVar[bool] = False
    wandering: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.same_every_epoch, bool):
            why = "it says whether records pick a batch once or in every epoch"
            field = "batches.same_every_epoch"
            raise DescriptionError(field, self.same_every_epoch, "true or false", why)

    def largest(self, records: int) -> int:
        """All records: each can pick the same batch."""
        return records

    def divisor(self, records: int) -> float:
        """What the sum of gradients is divided by: nominal, never the realised count."""
        return float(self.size)

    def share(self, records: int) -> float:
        """The probability that a record is in a batch, to the nearest float."""
        return 1.0 / (records // self.size)

    def per_epoch(self, records: int) -> int:
        """Updates in one pass over the data."""
        return records // self.size

    def batch(self, stream: RowStream) -> Rows:
        """Those that picked this batch; of several runs, a row of True and False for each."""
        batches = self.per_epoch(stream.records)
        k = stream.step % batches
        if stream.step == 0 or (k == 0 and not self.same_every_epoch):
            stream.order = stream.source.integers(batches, stream.records)
        if stream.order is None or stream.order.shape[-1] != stream.records:
            raise AssumptionError(
                f"The secret batches that records picked before update {stream.step:,} are lost, "
                "or are those of other records: with other ones the run would not be the one that "
                "is accounted. Keep `order` in the checkpoint, or start again."
            )
        chosen = stream.order == k
        return np.flatnonzero(chosen) if chosen.ndim == 1 else chosen


@final
@dataclass(frozen=True)
class WithoutReplacement(_Sized):
    """A fresh, secret, uniformly random subset of ``size`` records at every update."""

    name: ClassVar[str] = "without-replacement"
    wandering: ClassVar[bool] = True

    def batch(self, stream: RowStream) -> Rows:
        """A fresh subset."""
        return stream.source.subset(stream.records, self.size)


@final
@dataclass(frozen=True)
class Poisson(_Scheme):
    """Each record joins each batch on its own coin flip; the divisor is ``rate * records``."""

    rate: float

    name: ClassVar[str] = "poisson"
    fixed_size: ClassVar[bool] = False
    wandering: ClassVar[bool] = True

    def __post_init__(self) -> None:
        why = "it is the probability that a record joins a batch"
        rate = number("batches.rate", self.rate, why, above=0.0, at_most=1.0)
        object.__setattr__(self, "rate", rate)

    def divisor(self, records: int) -> float:
        """What the sum of gradients is divided by: nominal, never the realised count."""
        return self.rate * records

    def exact_divisor(self, records: int) -> Fraction:
        """The divisor without rounding."""
        return Fraction(self.rate) * records

    def share(self, records: int) -> float:
        """The probability that a record is in a batch."""
        return self.rate

    def batch(self, stream: RowStream) -> Rows:
        """Those whose coin came up; of several runs, the coins."""
        coins = stream.source.bernoulli(self.rate, stream.records)
        return np.flatnonzero(coins) if coins.ndim == 1 else coins


Batches = (
    FullBatch | Cyclic | Shuffled | Reshuffled | RandomAllocation | Poisson | WithoutReplacement
)
SCHEMES: dict[str, type[Batches]] = {
    scheme.name: scheme
    for scheme in (
        FullBatch,
        Cyclic,
        Shuffled,
        Reshuffled,
        RandomAllocation,
        Poisson,
        WithoutReplacement,
    )
}


def check_drawn_by(engine: str, batches: Batches) -> None:
    """Raise if this engine does not draw the batches."""
    if isinstance(batches, RandomAllocation):
        raise UnsupportedError(
            f"{engine} does not draw RandomAllocation batches, whose sizes are random and have to "
            "stay secret: train NumPy arrays with noisy_descent, or take Shuffled batches."
        )


def read_batches(table: Any) -> Batches:
    """A scheme from its table, such as ``{"scheme": "shuffled", "size": 100}``.

    >>> read_batches({"scheme": "poisson", "rate": 0.01})
    Poisson(rate=0.01)
    """
    if type(table) in SCHEMES.values():
        return cast(Batches, table)
    fields = known_fields("batches", table, {"scheme", "size", "rate", "same_every_epoch"})
    name = one_of(
        "batches.scheme",
        fields.pop("scheme", None),
        tuple(SCHEMES),
        "the privacy of a run depends on how its batches are drawn",
    )
    scheme = SCHEMES[name]
    every = dataclasses.fields(scheme)
    wanted = {f.name for f in every if f.default is dataclasses.MISSING}
    if not wanted <= set(fields) <= {f.name for f in every}:
        allowed = f"a {name} scheme with {' and '.join(wanted) or 'nothing'} beside its name"
        why = "the batch size decides how much one record weighs"
        raise DescriptionError("batches", dict(table), allowed, why)
    return scheme(**fields)
