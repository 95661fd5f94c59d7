"""How a run picks the records of each update.

One frozen class per scheme. Its docstring says what the data loader does and what the adversary
knows; the accountant never guesses either.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from lastiterate.description.portable import known_fields
from lastiterate.description.validation import number, one_of, whole
from lastiterate.errors import DescriptionError


@dataclass(frozen=True)
class FullBatch:
    """Every update uses all records; the divisor is the number of records."""

    name: ClassVar[str] = "full"

    def divisor(self, records: int) -> float:
        """What the sum of gradients is divided by: nominal, never the realised count."""
        return float(records)

    def per_epoch(self, records: int) -> int:
        """Updates in one pass over the data."""
        return 1

    def check(self, records: int) -> None:
        """Raise if this scheme cannot run on so many records."""


@dataclass(frozen=True)
class _Sized:
    """Batches of a fixed number of records."""

    size: int

    name: ClassVar[str]

    def __post_init__(self) -> None:
        why = "each update averages over this many records"
        object.__setattr__(self, "size", whole("batches.size", self.size, why))

    def divisor(self, records: int) -> float:
        """What the sum of gradients is divided by: nominal, never the realised count."""
        return float(self.size)

    def check(self, records: int) -> None:
        """Raise if this scheme cannot run on so many records."""
        if self.size > records:
            raise DescriptionError(
                "batches.size",
                self.size,
                f"at most the number of records, {records}",
                "a batch cannot hold more records than there are",
            )


@dataclass(frozen=True)
class _Partition(_Sized):
    """Disjoint batches that pass over the data once per epoch.

    When ``size`` does not divide the number of records, the last records of the permutation are
    dropped.
    """

    def per_epoch(self, records: int) -> int:
        """Updates in one pass over the data."""
        return records // self.size

    def dropped(self, records: int) -> int:
        """Records that no batch of an epoch holds."""
        return records % self.size


@dataclass(frozen=True)
class Cyclic(_Partition):
    """Fixed batches in a fixed order that the adversary knows: the worst position counts."""

    name: ClassVar[str] = "cyclic"


@dataclass(frozen=True)
class Shuffled(_Partition):
    """One uniformly random partition, drawn before the run and kept secret, then cyclic order."""

    name: ClassVar[str] = "shuffled"


@dataclass(frozen=True)
class Reshuffled(_Partition):
    """A new secret uniformly random partition in every epoch."""

    name: ClassVar[str] = "reshuffled"


@dataclass(frozen=True)
class WithoutReplacement(_Sized):
    """A fresh, secret, uniformly random subset of ``size`` records at every update."""

    name: ClassVar[str] = "without-replacement"


@dataclass(frozen=True)
class Poisson:
    """Each record joins each batch on its own coin flip; the divisor is ``rate * records``."""

    rate: float

    name: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        why = "it is the probability that a record joins a batch"
        rate = number("batches.rate", self.rate, why, above=0.0, at_most=1.0)
        object.__setattr__(self, "rate", rate)

    def divisor(self, records: int) -> float:
        """What the sum of gradients is divided by: nominal, never the realised count."""
        return self.rate * records

    def check(self, records: int) -> None:
        """Raise if this scheme cannot run on so many records."""


Batches = FullBatch | Cyclic | Shuffled | Reshuffled | Poisson | WithoutReplacement
SCHEMES: dict[str, type[Batches]] = {
    scheme.name: scheme
    for scheme in (FullBatch, Cyclic, Shuffled, Reshuffled, Poisson, WithoutReplacement)
}


def read_batches(table: Any) -> Batches:
    """A scheme from its table, such as ``{"scheme": "shuffled", "size": 100}``.

    >>> read_batches({"scheme": "poisson", "rate": 0.01})
    Poisson(rate=0.01)
    """
    if isinstance(table, tuple(SCHEMES.values())):
        return cast(Batches, table)
    fields = known_fields("batches", table, {"scheme", "size", "rate"})
    name = one_of(
        "batches.scheme",
        fields.pop("scheme", None),
        tuple(SCHEMES),
        "the privacy of a run depends on how its batches are drawn",
    )
    scheme = SCHEMES[name]
    wanted = {f.name for f in dataclasses.fields(scheme)}
    if set(fields) != wanted:
        raise DescriptionError(
            "batches",
            dict(table),
            f"a {name} scheme with {' and '.join(wanted) or 'nothing'} beside its name",
            "the batch size decides how much one record weighs",
        )
    return scheme(**fields)
