"""Which batch scheme a PyTorch data loader really runs.

Accounting for Poisson batches while the loader shuffles is the commonest way to report an epsilon
for an algorithm nobody ran. This reads the loader instead of trusting a flag.
"""

from __future__ import annotations

from typing import Any

from lastiterate.description import Batches, Cyclic, FullBatch, Poisson, Reshuffled
from lastiterate.errors import UnsupportedError


def describe_loader(dataloader: Any) -> Batches:
    """The batch scheme that this ``torch.utils.data.DataLoader`` runs.

    - ``shuffle=True``: a new permutation every epoch, `Reshuffled` (its seed must stay secret);
    - no shuffling: `Cyclic`, an order the adversary may know;
    - one batch that holds everything: `FullBatch`;
    - Opacus' Poisson sampler (``DPDataLoader``): `Poisson`.

    Whatever cannot be told, or has no theorem, raises `UnsupportedError` and says what to change.

    >>> import torch  # doctest: +SKIP
    >>> loader = torch.utils.data.DataLoader(range(100), batch_size=10, shuffle=True)
    ... # doctest: +SKIP
    >>> describe_loader(loader)  # doctest: +SKIP
    Reshuffled(size=10)
    """
    from torch.utils import data

    if not isinstance(dataloader, data.DataLoader):
        raise _cannot(f"a {type(dataloader).__name__} is not a torch DataLoader", "pass the loader")
    if isinstance(dataloader.dataset, data.IterableDataset):
        raise _cannot(
            "an IterableDataset decides itself which records come when",
            "use a map-style dataset, or describe the batches by hand",
        )
    sampler = dataloader.batch_sampler
    poisson = _poisson_rate(sampler)
    if poisson is not None:
        return Poisson(poisson)
    if type(sampler) is not data.BatchSampler:
        raise _cannot(
            f"its batch sampler is a {type(sampler).__name__}, whose law is unknown",
            "use shuffle=True with drop_last=True, or Opacus' Poisson loader",
        )
    records: Any = dataloader.dataset
    return _fixed_size(sampler, len(records))


def _poisson_rate(sampler: Any) -> float | None:
    """The sampling rate of Opacus' Poisson sampler, recognised without importing Opacus."""
    if sampler is None or not type(sampler).__module__.startswith("opacus."):
        return None
    if type(sampler).__name__ != "UniformWithReplacementSampler":
        raise _cannot(
            f"Opacus' {type(sampler).__name__} spreads its draws over processes",
            "describe the batches by hand",
        )
    return float(sampler.sample_rate)


def _fixed_size(batches: Any, records: int) -> Batches:
    from torch.utils import data

    order, size = batches.sampler, int(batches.batch_size)
    drawn = len(order)
    if drawn != records:
        raise _cannot(
            f"its sampler draws {drawn} of {records} records per epoch",
            "load exactly the records of the description (wrap them in a Subset)",
        )
    if size >= records:
        _known_order(order)
        return FullBatch()
    if records % size and not batches.drop_last:
        raise _cannot(
            f"{records} records in batches of {size} end in a smaller batch of {records % size}, "
            "where each record weighs more",
            "set drop_last=True or choose a batch size that divides the number of records",
        )
    if isinstance(order, data.SequentialSampler):
        return Cyclic(size)
    _known_order(order)
    return Reshuffled(size)


def _known_order(order: Any) -> None:
    """Raise unless every record comes exactly once per epoch, in sequence or uniformly shuffled."""
    from torch.utils import data

    if isinstance(order, data.RandomSampler) and order.replacement:
        raise _cannot(
            "its sampler draws with replacement, so a record may come twice in a batch",
            "use shuffle=True (without replacement)",
        )
    known = (data.SequentialSampler, data.RandomSampler, data.SubsetRandomSampler)
    if type(order) not in known:
        raise _cannot(
            f"its sampler is a {type(order).__name__}, whose law is unknown", "use shuffle=True"
        )


def _cannot(why: str, do: str) -> UnsupportedError:
    return UnsupportedError(
        f"Cannot tell which batch scheme this loader runs: {why}. An epsilon for other batches "
        f"than those that run is no guarantee; {do}."
    )
