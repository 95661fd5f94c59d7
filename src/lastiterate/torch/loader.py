"""Which batch scheme a PyTorch data loader really runs.

Accounting for Poisson batches while the loader shuffles is the commonest way to report an epsilon
for an algorithm nobody ran. This reads the loader instead of trusting a flag. Samplers of Opacus,
torchdata and accelerate are recognised without importing these packages; what is not recognised
is refused.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Batches, Cyclic, FullBatch, Poisson, Reshuffled
from lastiterate.errors import UnsupportedError

_TYPED = 2**48  # seeds that people type are smaller; one in 2^15 of those drawn at random is


def describe_loader(dataloader: Any) -> Batches:
    """The batch scheme that this ``torch.utils.data.DataLoader`` runs.

    - ``shuffle=True``: a new permutation every epoch, `Reshuffled` (its seed must stay secret);
    - no shuffling: `Cyclic`, an order the adversary may know;
    - one batch that holds everything: `FullBatch`;
    - Opacus' Poisson sampler (``DPDataLoader``): `Poisson`.

    Opacus' ``BatchMemoryManager`` is read through, as its small batches are no updates of their
    own; torchdata's ``StatefulDataLoader`` and loaders prepared by accelerate (which the Trainer
    of transformers does) on one process are read like any other.

    An order drawn from a generator with a seed that can be guessed hides nothing, and as it
    changes from epoch to epoch it is no `Cyclic` order either: a record can be read last in one
    epoch and first in the next one. Whatever cannot be told, or has no theorem, raises
    `UnsupportedError` and says what to change; so does a global seed (``torch.manual_seed``) where
    the order or the coins come from torch's own generator.

    >>> import torch  # doctest: +SKIP
    >>> loader = torch.utils.data.DataLoader(range(100), batch_size=10, shuffle=True)
    ... # doctest: +SKIP
    >>> describe_loader(loader)  # doctest: +SKIP
    Reshuffled(size=10)
    """
    return scheme_of(dataloader, drawn_there=True)


def scheme_of(dataloader: Any, *, drawn_there: bool) -> Batches:
    """As `describe_loader`; where the loader does not draw the batches, its seed does not matter.

    An engine of this library that runs the same scheme draws its batches itself.
    """
    from torch.utils import data

    loader = _plain(dataloader)
    if isinstance(loader.dataset, data.IterableDataset):
        raise _cannot(
            "an IterableDataset decides itself which records come when",
            "use a map-style dataset, or describe the batches by hand",
        )
    if loader.num_workers and not getattr(loader, "in_order", True):
        raise _cannot(
            "with in_order=False its batches come in the order in which the workers finish",
            "leave in_order out",
        )
    records: int = len(loader.dataset)
    if _repeats(loader.dataset):
        raise _cannot(
            "its dataset holds a record more than once, so that one record counts several times",
            "index every record once",
        )
    batches = logical_batches(loader)
    if _is(batches, "opacus.utils.uniform_sampler", "UniformWithReplacementSampler"):
        return _poisson(loader, batches, records, drawn_there)
    if type(batches) is not data.BatchSampler and not _is(
        batches, "torchdata.stateful_dataloader.sampler", "BatchSampler"
    ):
        raise _cannot(
            f"its batch sampler is a {type(batches).__name__}, whose law is unknown",
            "use shuffle=True with drop_last=True on one process, or Opacus' Poisson loader",
        )
    return _fixed_size(batches, records, drawn_there)


def logical_batches(dataloader: Any) -> Any:
    """What draws the batches of the updates, behind Opacus' splitting into smaller ones."""
    batches = dataloader.batch_sampler
    if _is(batches, "opacus.utils.batch_memory_manager", "BatchSplittingSampler"):
        return batches.sampler
    return batches


def _plain(dataloader: Any) -> Any:
    """The loader whose batches are those of its batch sampler, in that order."""
    from torch.utils import data

    if _is(dataloader, "accelerate.data_loader", "DataLoaderShard"):
        if dataloader.skip_batches:
            raise _cannot("it skips the first batches of an epoch", "describe the whole loader")
        return _plain(dataloader.base_dataloader)
    if not isinstance(dataloader, data.DataLoader):
        raise _cannot(f"a {type(dataloader).__name__} is not a torch DataLoader", "pass the loader")
    if (
        type(dataloader) is data.DataLoader
        or _is(dataloader, "opacus.data_loader", "DPDataLoader")
        or _is(dataloader, "torchdata.stateful_dataloader", "StatefulDataLoader")
    ):
        return dataloader
    raise _cannot(
        f"a {type(dataloader).__name__} may deliver other batches than its sampler draws",
        "use torch.utils.data.DataLoader itself, or describe the batches by hand",
    )


def _poisson(loader: Any, coins: Any, records: int, drawn_there: bool) -> Poisson:
    if coins.num_samples != records:
        raise _cannot(
            f"its sampler throws coins for {coins.num_samples} of {records} records",
            "load exactly the records of the description (wrap them in a Subset)",
        )
    if getattr(loader.collate_fn, "rand_on_empty", False):
        raise _cannot(
            "an empty batch is filled with a made-up record, which a single record then replaces: "
            "twice the change that is accounted for",
            "leave rand_on_empty out",
        )
    if drawn_there:
        _secret(coins.generator)
    return Poisson(float(coins.sample_rate))


def _fixed_size(batches: Any, records: int, drawn_there: bool) -> Batches:
    from torch.utils import data

    order, size = batches.sampler, int(batches.batch_size)
    _every_record_once(order, records)
    if size > records and batches.drop_last:
        raise _cannot(
            f"batches of {size} with drop_last=True never come from {records} records",
            f"choose a batch size of at most {records}",
        )
    if size >= records:
        return FullBatch()
    if records % size and not batches.drop_last:
        raise _cannot(
            f"{records} records in batches of {size} end in a smaller batch of {records % size}, "
            "where each record weighs more",
            "set drop_last=True or choose a batch size that divides the number of records",
        )
    if type(order) is data.SequentialSampler:
        return Cyclic(size)
    if not drawn_there:
        return Reshuffled(size)
    if _is(order, "accelerate.data_loader", "SeedableRandomSampler"):
        _secret_seed(
            order.initial_seed,
            "give accelerate a secret data_seed, such as secrets.randbits(62), and keep it from "
            "logs and checkpoints (DataLoaderConfiguration or TrainingArguments: data_seed=), or "
            "set use_seedable_sampler=False",
        )
    else:
        _secret(order.generator)
    return Reshuffled(size)


def _every_record_once(order: Any, records: int) -> None:
    """Raise unless every record comes exactly once per epoch, in sequence or uniformly shuffled."""
    from torch.utils import data

    if type(order) is data.SubsetRandomSampler:
        indices = _positions(order.indices, records)
        if len(np.unique(indices)) != len(indices):
            raise _cannot("its sampler draws a record more than once", "index every record once")
        drawn = len(indices)
    elif type(order) is data.SequentialSampler:
        drawn = len(order)
    elif (
        type(order) is data.RandomSampler
        or _is(order, "torchdata.stateful_dataloader.sampler", "RandomSampler")
        or _is(order, "accelerate.data_loader", "SeedableRandomSampler")
    ):
        if order.replacement:
            raise _cannot(
                "its sampler draws with replacement, so a record may come twice in a batch",
                "use shuffle=True (without replacement)",
            )
        drawn = len(order.data_source)
        if order.num_samples != drawn:
            raise _cannot(
                f"its sampler draws {order.num_samples} times from {drawn} records per epoch",
                "leave num_samples out",
            )
    else:
        raise _cannot(
            f"its sampler is a {type(order).__name__}, whose law is unknown",
            "use shuffle=True on one process",
        )
    if drawn != records:
        raise _cannot(
            f"its sampler draws {drawn} of {records} records per epoch",
            "load exactly the records of the description (wrap them in a Subset)",
        )


# --- who knows the order --------------------------------------------------------------------


def _secret(generator: Any) -> None:
    """Raise if the seed of this generator (None: of torch's own) can be guessed."""
    import torch

    if generator is None:
        _secret_seed(
            torch.initial_seed(),
            "call torch.seed() after torch.manual_seed(), before the loader is described: whoever "
            "knows the seed knows the noise that torch draws, too",
        )
        return
    try:
        seed = generator.initial_seed()
    except RuntimeError:  # a generator without a seed: it reads the system's randomness
        return
    _secret_seed(seed, "leave generator out, or call its method seed() and keep that secret")


def _secret_seed(seed: int, do: str) -> None:
    if _guessable(seed):
        raise _cannot(
            f"its order is drawn with the seed {seed}, which can be guessed: batches are not "
            "secret, and they change from epoch to epoch, which is worse than a fixed order "
            "(Cyclic)",
            f"{do}; or set shuffle=False, which is Cyclic",
        )


def _guessable(seed: int) -> bool:
    """Typed by somebody, or what torch gives a generator that nobody seeded."""
    import torch

    seed %= 2**64  # torch counts negative seeds from the other end
    return min(seed, 2**64 - seed) < _TYPED or seed == torch.Generator().initial_seed()


# --- what the records are -------------------------------------------------------------------


def _repeats(dataset: Any) -> bool:
    """Whether a record occurs twice, as far as torch's own containers tell."""
    from torch.utils import data

    if isinstance(dataset, data.StackDataset):
        parts = dataset.datasets
        each = parts.values() if isinstance(parts, dict) else parts
        return any(_repeats(part) for part in each)
    if not isinstance(dataset, (data.Subset, data.ConcatDataset, data.TensorDataset)):
        return False
    names = _names(dataset, {})
    return len(np.unique(names, axis=0)) != len(names)


def _names(dataset: Any, owners: dict[Any, int]) -> NDArray[np.int64]:
    """Where each record of a dataset really lies: (number of the owner, position there)."""
    from torch.utils import data

    if isinstance(dataset, data.Subset):
        inner = _names(dataset.dataset, owners)
        return inner[_positions(dataset.indices, len(inner))]
    if isinstance(dataset, data.ConcatDataset):
        return np.concatenate([_names(part, owners) for part in dataset.datasets])
    if isinstance(dataset, data.StackDataset) and _repeats(dataset):
        return np.zeros((len(dataset), 2), dtype=np.int64)
    here = np.arange(len(dataset), dtype=np.int64)
    if isinstance(dataset, data.TensorDataset):  # views of one tensor share rows: by address
        first = dataset.tensors[0]
        owner, here = -1, first.data_ptr() + here * (first.stride(0) * first.element_size())
    else:
        owner = owners.setdefault(id(dataset), len(owners))
    return np.stack([np.full_like(here, owner), here], axis=1)


def _positions(indices: Any, records: int) -> NDArray[np.int64]:
    """Indices as positions: those from the end, too."""
    found = np.asarray([int(index) for index in indices], dtype=np.int64)
    if len(found) and (found.min() < -records or found.max() >= records):
        raise _cannot(f"an index lies outside of its {records} records", "correct the indices")
    return np.where(found < 0, found + records, found)


def _is(thing: Any, module: str, name: str) -> bool:
    """Whether a thing is exactly of a class of a package that may not be installed."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and type(thing) is kind


def _cannot(why: str, do: str) -> UnsupportedError:
    return UnsupportedError(
        f"Cannot tell which batch scheme this loader runs: {why}. An epsilon for other batches "
        f"than those that run is no guarantee; {do}."
    )
