"""How a run picks the records of each update: what is accounted is what is drawn.

One frozen class per scheme. Its docstring says what the data loader does and what the adversary
knows. Trainers, samplers and audits draw batches with the `rows` of the same object that the
accountant reads.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, cast, final, get_args

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.fields import (
    LARGEST_INTEGER,
    Stored,
    above,
    boolean,
    check_fields,
    check_rules,
    field_,
    integer,
    known_fields,
    number,
    one_of,
    rows,
)
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError

RUN = "The run"  # panel of flags
Rows = slice | NDArray[Any]
"""One batch: a slice, or indices. Of several runs at once: a slice that they share, indices with
one row a run, or (from coins) a row of True and False for each run."""


class Draws(Protocol):
    """What batches are drawn with: a source of one run, or of several runs side by side.

    Those of several runs return one row a run. Hidden batches must be hidden: where a guarantee
    is to hold, nobody can predict the source.
    """

    def integers(self, bound: int, size: int, /) -> NDArray[np.int64]:
        """Independent uniform draws from 0, ..., bound − 1."""

    def permutation(self, length: int, /) -> NDArray[np.int64]:
        """A uniformly random order of 0, ..., length − 1."""

    def subset(self, length: int, size: int, /) -> NDArray[np.int64]:
        """A uniformly random set of ``size`` of 0, ..., length − 1."""

    def bernoulli(self, rate: float, size: int, /) -> NDArray[np.bool_]:
        """Independent coin flips that come up true with probability ``rate``."""


class RowStream:
    """The rows of update 0, 1, 2, ...; a checkpoint keeps all attributes but the source.

    Attributes:
        step: the number of the next update.
        order: the secret partition or the secret picks in use, if there are any.
        nonce: its name. Two runs with equal nonces share their partition, and must not be
            composed as independent.
        kept: the records that count; the slots of others are empty. None: all of them.
    """

    def __init__(self, scheme: _Scheme, records: int, source: Draws) -> None:
        self._scheme = scheme
        self.records, self.source = records, source
        self.step = 0
        self.order: NDArray[np.int64] | None = None
        self.kept: NDArray[np.bool_] | None = None
        self.nonce = secrets.token_hex(16) if scheme.hidden and scheme.ordered else None

    def __iter__(self) -> RowStream:
        return self

    def __next__(self) -> Rows:
        rows = self._scheme.batch(self)
        self.step += 1
        if self.kept is None:
            return rows
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        return rows[self.kept[rows]]

    def shuffled(self) -> NDArray[np.int64]:
        """Draw the next secret partition: an order of all records, cut into batches.

        Overridden where records of one unit are kept apart (`train.people`).
        """
        return self.source.permutation(self.records)

    def secret_order(self) -> NDArray[np.int64]:
        """Return the order in use; raises if it is not the one that the run began with."""
        if self.order is None or self.order.shape[-1] != self.records:
            raise AssumptionError(
                f"The secret batches of update {self.step:,} are lost, or are those of other "
                "records: with other ones the run would not be the one that is accounted. Keep "
                "`order` in the checkpoint, or start again."
            )
        return self.order


def weighted(rows: Rows, records: int) -> tuple[Rows, NDArray[np.bool_] | None]:
    """Rows of several runs as rows of one shape, and weights (from coins) or None.

    >>> weighted(np.array([[True, False], [True, True]]), 2)[0]
    slice(0, 2, None)
    """
    if isinstance(rows, slice) or rows.dtype != bool:
        return rows, None
    return slice(0, records), rows


class _Scheme:
    """What every scheme answers; the facts are those of the class."""

    name: ClassVar[str]
    full: ClassVar[bool] = False  # every update uses all records
    hidden: ClassVar[bool] = True  # the adversary does not know who is in which batch
    ordered: ClassVar[bool] = False  # passes over the data: a record is at most once in an epoch
    repeated: ClassVar[bool] = False  # every epoch has the same batches in the same order
    fixed_size: ClassVar[bool] = True  # all batches hold equally many records
    moves_other_records: ClassVar[bool] = False  # adding a record changes the positions of others

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

    def of(self, records: int) -> Self:
        """Return the scheme for this many records; raises if it cannot run on them."""
        return self

    def steps(self, epochs: Any, records: int) -> int:
        """Return the number of updates of some epochs; batches drawn at random round up.

        >>> Shuffled(10).steps(2.5, 100), Poisson(0.3).steps(2, 100)
        (25, 7)
        """
        passes = number("epochs", epochs, at_least=0, at_most=LARGEST_INTEGER)
        per_epoch = self.per_epoch(records)
        if per_epoch is None:
            return math.ceil(passes * records / self.divisor(records) * (1 - 1e-12))
        if not (passes * per_epoch).is_integer():
            allowed = f"a multiple of 1/{per_epoch}, so that steps is an integer"
            raise DescriptionError("epochs", epochs, allowed)
        return int(passes * per_epoch)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, such as ``{"scheme": "shuffled", "size": 100}``."""
        own = {name: getattr(self, name) for name, row in rows(self).items() if not row.derived}
        return {"scheme": self.name, **own}

    def rows(self, records: int, source: Draws) -> RowStream:
        """The rows of update 0, 1, 2, ..., drawn from a source of randomness.

        >>> from lastiterate.noise import source
        >>> stream = Cyclic(2).rows(5, source())
        >>> [next(stream) for _ in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(0, 2, None)]
        """
        return RowStream(self.of(records), records, source)

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

    size: int = field_(integer, "Records in one batch.", RUN, flag="batch_size")

    def __post_init__(self) -> None:
        check_fields(self, "batches.")

    def largest(self, records: int) -> int:
        """The size of every batch."""
        return self.size

    def of(self, records: int) -> Self:
        """Return the scheme itself; raises if a batch is larger than the data."""
        allowed = f"<= the number of records, {records}"
        check_rules(self, [(self.size > records, "size", allowed)], "batches.")
        return self


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
        return stream.secret_order()[..., place]


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

    same_every_epoch: bool = field_(
        boolean, "Whether records pick one batch for all epochs.", default=False
    )

    name: ClassVar[str] = "random-allocation"
    ordered: ClassVar[bool] = True
    fixed_size: ClassVar[bool] = False
    moves_other_records: ClassVar[bool] = True

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
        chosen = stream.secret_order() == k
        return np.flatnonzero(chosen) if chosen.ndim == 1 else chosen


@final
@dataclass(frozen=True)
class WithoutReplacement(_Sized):
    """A fresh, secret, uniformly random subset of ``size`` records at every update."""

    name: ClassVar[str] = "without-replacement"
    moves_other_records: ClassVar[bool] = True

    def batch(self, stream: RowStream) -> Rows:
        """A fresh subset."""
        return stream.source.subset(stream.records, self.size)


@final
@dataclass(frozen=True)
class Poisson(_Scheme):
    """Each record joins each batch with probability ``rate``; the divisor is ``rate * records``.

    ``Poisson(batch_size=100)`` gives the expected size of a batch instead; a `Training` replaces it
    by its rate. Until then the rate is NaN.
    """

    rate: Stored[float, float | None] = field_(
        above(0, at_most=1), "Probability that a record joins a Poisson batch.", RUN, default=None
    )
    batch_size: float | None = field_(
        above(0),
        "Expected number of records in a batch.",
        default=None,
        derived=True,
    )

    name: ClassVar[str] = "poisson"
    fixed_size: ClassVar[bool] = False
    moves_other_records: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.batch_size is None):
            raise DescriptionError("batches.rate", self.rate, "given, or else batch_size")
        check_fields(self, "batches.")
        if self.rate is None:
            object.__setattr__(self, "rate", math.nan)

    def of(self, records: int) -> Self:
        """Return the scheme with its rate."""
        if self.batch_size is None:
            return self
        allowed = f"<= the number of records, {records}"
        check_rules(self, [(self.batch_size > records, "batch_size", allowed)], "batches.")
        return type(self)(self.batch_size / records)

    def divisor(self, records: int) -> float:
        """What the sum of gradients is divided by: nominal, never the realised count."""
        return self.of(records).rate * records

    def exact_divisor(self, records: int) -> Fraction:
        """The divisor without rounding."""
        return Fraction(self.of(records).rate) * records

    def share(self, records: int) -> float:
        """The probability that a record is in a batch."""
        return self.of(records).rate

    def batch(self, stream: RowStream) -> Rows:
        """The records that joined; of several runs, a row of True and False for each."""
        coins = stream.source.bernoulli(self.rate, stream.records)
        return np.flatnonzero(coins) if coins.ndim == 1 else coins


Batches = (
    FullBatch | Cyclic | Shuffled | Reshuffled | RandomAllocation | Poisson | WithoutReplacement
)
SCHEMES: dict[str, type[Batches]] = {scheme.name: scheme for scheme in get_args(Batches)}
BATCH_FIELDS: Mapping[str, frozenset[str]] = {
    name: frozenset({"full": (), "poisson": ("rate",)}.get(name, ("size",))) for name in SCHEMES
}


def check_drawn_by(engine: str, batches: Batches) -> None:
    """Raise if this engine does not draw the batches."""
    if isinstance(batches, RandomAllocation):
        raise UnsupportedError(
            f"{engine} does not draw RandomAllocation batches, whose sizes are random and have to "
            "stay secret: train NumPy arrays with noisy_descent, or take Shuffled batches."
        )


def read_batches(field: str, value: Any) -> Batches:
    """Return a scheme, also from a table such as ``{"scheme": "shuffled", "size": 100}``.

    >>> read_batches("batches", {"scheme": "poisson", "rate": 0.01})
    Poisson(rate=0.01)
    """
    if type(value) in SCHEMES.values():  # a subclass could draw other batches
        return cast(Batches, value)
    if not isinstance(value, Mapping):
        allowed = (
            "FullBatch(), Cyclic(size), Shuffled(size), Reshuffled(size), RandomAllocation(size), "
            "Poisson(rate) or WithoutReplacement(size)"
        )
        raise DescriptionError(field, value, allowed)
    names = {name for scheme in SCHEMES.values() for name in rows(scheme)}
    table = known_fields(field, value, {"scheme", *names})
    name = one_of(f"{field}.scheme", table.pop("scheme", None), tuple(SCHEMES))
    own = rows(SCHEMES[name])
    missing = {"size"} & set(own) - set(table)
    if missing or not set(table) <= set(own):
        allowed = f"a table of scheme and {' and '.join(own) or 'nothing else'}"
        raise DescriptionError(field, dict(value), allowed)
    return SCHEMES[name](**table)
