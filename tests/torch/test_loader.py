"""Real data loaders, real Opacus samplers."""

from __future__ import annotations

import pytest

from lastiterate import Cyclic, FullBatch, Poisson, Reshuffled, UnsupportedError
from lastiterate.torch import describe_loader

torch = pytest.importorskip("torch")
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

DATA = TensorDataset(torch.arange(60.0))


def test_what_loaders_really_run():
    assert describe_loader(DataLoader(DATA, batch_size=10)) == Cyclic(10)
    assert describe_loader(DataLoader(DATA, batch_size=10, shuffle=True)) == Reshuffled(10)
    assert describe_loader(DataLoader(DATA, batch_size=60, shuffle=True)) == FullBatch()
    ragged = DataLoader(DATA, batch_size=7, shuffle=True, drop_last=True)
    assert describe_loader(ragged) == Reshuffled(7)
    subset = SubsetRandomSampler(range(60))
    assert describe_loader(DataLoader(DATA, batch_size=10, sampler=subset)) == Reshuffled(10)


def test_a_shuffling_loader_draws_a_new_permutation_every_epoch():
    loader = DataLoader(DATA, batch_size=10, shuffle=True)
    epochs = [torch.cat([batch[0] for batch in loader]) for _ in range(2)]
    assert not torch.equal(*epochs)
    assert all(torch.equal(epoch.sort().values, DATA.tensors[0]) for epoch in epochs)


def test_opacus_poisson_loader():
    opacus = pytest.importorskip("opacus.data_loader")
    loader = opacus.DPDataLoader.from_data_loader(DataLoader(DATA, batch_size=6))
    assert describe_loader(loader) == Poisson(0.1)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(60))


class Odd(BatchSampler):
    pass


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: [1, 2, 3], "not a torch DataLoader"),
        (lambda: DataLoader(Stream(), batch_size=10), "IterableDataset"),
        (lambda: DataLoader(DATA, batch_size=7, shuffle=True), "drop_last=True"),
        (
            lambda: DataLoader(DATA, batch_size=6, sampler=RandomSampler(DATA, replacement=True)),
            "with replacement",
        ),
        (
            lambda: DataLoader(
                DATA, batch_size=6, sampler=WeightedRandomSampler(torch.ones(60), 60)
            ),
            "WeightedRandomSampler",
        ),
        (
            lambda: DataLoader(
                DATA, batch_size=6, sampler=DistributedSampler(DATA, num_replicas=1, rank=0)
            ),
            "DistributedSampler",
        ),
        (
            lambda: DataLoader(DATA, batch_size=6, sampler=SubsetRandomSampler(range(30))),
            "30 of 60",
        ),
        (
            lambda: DataLoader(DATA, batch_sampler=Odd(RandomSampler(DATA), 6, False)),
            "Odd",
        ),
        (lambda: DataLoader(DATA, batch_size=None), "NoneType"),
    ],
)
def test_says_what_it_cannot_tell(make, says):
    with pytest.raises(UnsupportedError, match=says):
        describe_loader(make())


def test_subsets_are_datasets_of_their_own():
    loader = DataLoader(Subset(DATA, range(30)), batch_size=10, shuffle=True)
    assert describe_loader(loader) == Reshuffled(10)
