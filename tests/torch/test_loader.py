"""Real data loaders, real samplers of Opacus, torchdata and accelerate."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Loss, Poisson, Reshuffled, Training, UnsupportedError
from lastiterate import account as accounted
from lastiterate.torch import describe_loader

torch = pytest.importorskip("torch")
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

DATA = TensorDataset(torch.arange(60.0))
ROWS = torch.arange(120.0).reshape(60, 2)


@pytest.fixture(autouse=True)
def nobody_knows_the_seed():
    """Other tests seed torch's global generator."""
    torch.seed()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_what_loaders_really_run():
    assert describe_loader(DataLoader(DATA, batch_size=10)) == Cyclic(10)
    assert describe_loader(DataLoader(DATA, batch_size=10, shuffle=True)) == Reshuffled(10)
    assert describe_loader(DataLoader(DATA, batch_size=60, shuffle=True)) == FullBatch()
    assert describe_loader(DataLoader(DATA, batch_size=99)) == FullBatch()
    ragged = DataLoader(DATA, batch_size=7, shuffle=True, drop_last=True)
    assert describe_loader(ragged) == Reshuffled(7)
    subset = SubsetRandomSampler(range(60))
    assert describe_loader(DataLoader(DATA, batch_size=10, sampler=subset)) == Reshuffled(10)
    workers = DataLoader(DATA, batch_size=10, num_workers=2)
    assert describe_loader(workers) == Cyclic(10)


def test_a_shuffling_loader_draws_a_new_permutation_every_epoch():
    loader = DataLoader(DATA, batch_size=10, shuffle=True)
    epochs = [torch.cat([batch[0] for batch in loader]) for _ in range(2)]
    assert not torch.equal(*epochs)
    assert all(torch.equal(epoch.sort().values, DATA.tensors[0]) for epoch in epochs)


def test_datasets_of_their_own():
    apart = ConcatDataset([Subset(DATA, range(30)), Subset(DATA, range(30, 60))])
    for dataset, size in (
        (Subset(DATA, range(30)), 10),
        (Subset(DATA, torch.arange(30)), 10),
        (Subset(Subset(DATA, range(40)), [0, 5, 7, -1]), 2),
        (apart, 20),
        (ConcatDataset([DATA, TensorDataset(torch.arange(60.0))]), 40),
        (StackDataset(DATA, DATA), 10),
    ):
        loader = DataLoader(dataset, batch_size=size, shuffle=True)
        assert describe_loader(loader) == Reshuffled(size)


# --- who knows the order ------------------------------------------------------------------------


SEEDS = (0, 42, 20261115, -1, 2**31, 2**47)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_can_be_guessed_hides_no_order(seed):
    for settings in (
        {"shuffle": True, "generator": seeded(seed)},
        {"sampler": RandomSampler(DATA, generator=seeded(seed))},
        {"sampler": SubsetRandomSampler(range(60), generator=seeded(seed))},
    ):
        with pytest.raises(UnsupportedError, match="can be guessed"):
            describe_loader(DataLoader(DATA, batch_size=10, **settings))
    opacus = pytest.importorskip("opacus.data_loader")
    with pytest.raises(UnsupportedError, match="can be guessed"):
        describe_loader(opacus.DPDataLoader(DATA, sample_rate=0.1, generator=seeded(seed)))


def test_a_generator_that_nobody_seeded_is_the_same_in_every_process():
    with pytest.raises(UnsupportedError, match="can be guessed"):
        describe_loader(DataLoader(DATA, batch_size=10, shuffle=True, generator=torch.Generator()))


def test_secret_seeds_and_orders_that_do_not_matter():
    secret = torch.Generator()
    secret.seed()
    loader = DataLoader(DATA, batch_size=10, shuffle=True, generator=secret)
    assert describe_loader(loader) == Reshuffled(10)
    # The generator of a loader is not that of a sampler of one's own.
    own = DataLoader(DATA, batch_size=10, sampler=RandomSampler(DATA), generator=seeded())
    assert describe_loader(own) == Reshuffled(10)
    assert describe_loader(DataLoader(DATA, batch_size=10, generator=seeded())) == Cyclic(10)
    whole = DataLoader(DATA, batch_size=60, shuffle=True, generator=seeded())
    assert describe_loader(whole) == FullBatch()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_global_seed_hides_no_order(seed):
    """Without a generator of its own a loader draws from torch's, seeded or not."""
    opacus = pytest.importorskip("opacus.data_loader")
    shuffled = DataLoader(DATA, batch_size=10, shuffle=True)
    hidden = (shuffled, opacus.DPDataLoader(DATA, sample_rate=0.1))
    try:
        torch.manual_seed(seed)
        orders = [torch.cat([batch[0] for batch in shuffled])]
        torch.manual_seed(seed)
        orders.append(torch.cat([batch[0] for batch in shuffled]))
        assert torch.equal(*orders)  # whoever knows the seed knows them
        for loader in hidden:
            with pytest.raises(UnsupportedError, match=r"torch\.seed\(\)"):
                describe_loader(loader)
        assert describe_loader(DataLoader(DATA, batch_size=10)) == Cyclic(10)
        assert describe_loader(DataLoader(DATA, batch_size=60, shuffle=True)) == FullBatch()
    finally:
        torch.seed()
    assert [describe_loader(loader) for loader in hidden] == [Reshuffled(10), Poisson(0.1)]


def test_why_a_known_order_that_changes_is_not_cyclic():
    """Ten batches an epoch, eleven updates; a record read last, then first: an exact law.

    Quadratic losses: both runs are Gaussian with the same variance, and mu is the distance of
    their means in standard deviations.
    """
    noise = np.array([1e-6] * 9 + [0.01] * 2)
    run = Training(
        records=100,
        steps=11,
        step_size=0.1,
        noise=noise,
        gradient_norm=1.0,
        batches=Cyclic(10),
        adjacency="zero-out",
    )
    promised = accounted(run, Loss(smoothness=1.0, strong_convexity=1.0)).mu
    after = 0.9 ** np.arange(10, -1, -1)  # what is left of a step at the end

    def exact(*uses):
        return sum(0.1 / 10 * after[use - 1] for use in uses) / np.linalg.norm(after * noise)

    assert max(exact(1, 11), *(exact(position) for position in range(2, 11))) <= promised
    assert exact(10, 11) > 1.3 * promised


# --- wrappers -----------------------------------------------------------------------------------


def test_opacus_poisson_loader():
    opacus = pytest.importorskip("opacus.data_loader")
    loader = opacus.DPDataLoader.from_data_loader(DataLoader(DATA, batch_size=6))
    assert describe_loader(loader) == Poisson(0.1)
    loader = opacus.DPDataLoader(DATA, sample_rate=0.1, rand_on_empty=True)
    with pytest.raises(UnsupportedError, match="made-up record"):
        describe_loader(loader)


def test_opacus_coins_for_some_records_only():
    samplers = pytest.importorskip("opacus.utils.uniform_sampler")
    coins = samplers.UniformWithReplacementSampler(num_samples=30, sample_rate=0.5)
    with pytest.raises(UnsupportedError, match="30 of 60"):
        describe_loader(DataLoader(DATA, batch_sampler=coins))


def test_opacus_memory_manager_is_read_through():
    managers = pytest.importorskip("opacus.utils.batch_memory_manager")
    from opacus.data_loader import DPDataLoader
    from opacus.optimizers import DPOptimizer

    weight = torch.nn.Parameter(torch.zeros(1))
    stepper = DPOptimizer(
        torch.optim.SGD([weight], lr=1.0),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=20,
    )
    for loader, scheme in (
        (DataLoader(DATA, batch_size=20, shuffle=True), Reshuffled(20)),
        (DataLoader(DATA, batch_size=20), Cyclic(20)),
        (DPDataLoader(DATA, sample_rate=0.25), Poisson(0.25)),
    ):
        with managers.BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=5, optimizer=stepper
        ) as small:
            assert describe_loader(small) == scheme
    ragged = DataLoader(DATA, batch_size=25, shuffle=True)
    with (
        managers.BatchMemoryManager(
            data_loader=ragged, max_physical_batch_size=5, optimizer=stepper
        ) as small,
        pytest.raises(UnsupportedError, match="drop_last"),
    ):
        describe_loader(small)


@pytest.mark.filterwarnings("ignore:'set_vital'")
def test_stateful_loader():
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    loader = torchdata.StatefulDataLoader(DATA, batch_size=10, shuffle=True)
    assert describe_loader(loader) == Reshuffled(10)
    epochs = [torch.cat([batch[0] for batch in loader]) for _ in range(2)]
    assert not torch.equal(*epochs)
    assert all(torch.equal(epoch.sort().values, DATA.tensors[0]) for epoch in epochs)
    assert describe_loader(torchdata.StatefulDataLoader(DATA, batch_size=10)) == Cyclic(10)
    for settings, says in (
        ({"shuffle": True, "generator": seeded()}, "can be guessed"),
        ({"sampler": RandomSampler(DATA, replacement=True)}, "with replacement"),
        ({"sampler": WeightedRandomSampler(torch.ones(60), 60)}, "WeightedRandomSampler"),
    ):
        with pytest.raises(UnsupportedError, match=says):
            describe_loader(torchdata.StatefulDataLoader(DATA, batch_size=10, **settings))


@pytest.mark.filterwarnings("ignore:'set_vital'")
def test_loaders_prepared_by_accelerate():
    accelerate = pytest.importorskip("accelerate")
    from accelerate.utils import DataLoaderConfiguration

    def prepared(loader, **settings):
        config = DataLoaderConfiguration(**settings)
        return accelerate.Accelerator(cpu=True, dataloader_config=config).prepare(loader)

    def shuffled(**settings):
        return DataLoader(DATA, batch_size=10, shuffle=True, **settings)

    assert describe_loader(prepared(shuffled())) == Reshuffled(10)
    assert describe_loader(prepared(DataLoader(DATA, batch_size=10))) == Cyclic(10)
    loader = prepared(shuffled(), use_seedable_sampler=True, data_seed=2**61 + 12345)
    assert describe_loader(loader) == Reshuffled(10)
    epochs = [torch.cat([batch[0] for batch in loader]) for _ in range(2)]
    assert not torch.equal(*epochs)
    assert all(torch.equal(epoch.sort().values, DATA.tensors[0]) for epoch in epochs)
    for loader, says in (
        (prepared(shuffled(), use_seedable_sampler=True, data_seed=42), "secret data_seed"),
        (prepared(shuffled(generator=seeded())), "can be guessed"),
        (accelerate.skip_first_batches(prepared(shuffled()), 2), "SkipBatchSampler"),
        (prepared(shuffled(), dispatch_batches=True), "DataLoaderDispatcher"),
        (prepared(DataLoader(DATA, batch_size=7)), "drop_last"),
    ):
        with pytest.raises(UnsupportedError, match=says):
            describe_loader(loader)
    resumed = prepared(shuffled())
    resumed.skip_batches = 2
    with pytest.raises(UnsupportedError, match="skips the first batches"):
        describe_loader(resumed)
    torch.manual_seed(3)  # what accelerate takes where no data_seed is given
    with pytest.raises(UnsupportedError, match="the seed 3"):
        describe_loader(prepared(shuffled(), use_seedable_sampler=True))
    torch.seed()


@pytest.mark.slow
def test_the_trainer_of_transformers(tmp_path):
    """Its default seed is 42 for everybody."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    def loader(**settings):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=10,
            use_cpu=True,
            report_to=[],
            **settings,
        )
        model = torch.nn.Linear(1, 1)
        return transformers.Trainer(model, arguments, train_dataset=DATA).get_train_dataloader()

    with pytest.raises(UnsupportedError, match="the seed 42"):
        describe_loader(loader())
    assert describe_loader(loader(data_seed=2**61 + 5)) == Reshuffled(10)


# --- what cannot be told ------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(60))


class Odd(BatchSampler):
    pass


class MyOrder(SequentialSampler):
    def __iter__(self):
        return iter([0] * 60)


class MyShuffle(RandomSampler):
    pass


class MyLoader(DataLoader):
    def __iter__(self):
        return iter([[0]] * 6)


def loading(dataset=DATA, size=6, **settings):
    return lambda: DataLoader(dataset, batch_size=size, **settings)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: [1, 2, 3], "not a torch DataLoader"),
        (lambda: MyLoader(DATA, batch_size=10), "MyLoader"),
        (loading(Stream()), "IterableDataset"),
        (loading(size=7, shuffle=True), "drop_last=True"),
        (loading(size=7), "drop_last=True"),
        (loading(size=61, drop_last=True), "never come"),
        (loading(size=61, shuffle=True, drop_last=True), "never come"),
        (loading(sampler=RandomSampler(DATA, replacement=True)), "with replacement"),
        (loading(size=60, sampler=RandomSampler(DATA, replacement=True)), "with replacement"),
        (loading(sampler=WeightedRandomSampler(torch.ones(60), 60)), "WeightedRandomSampler"),
        (loading(sampler=DistributedSampler(DATA, num_replicas=1, rank=0)), "DistributedSampler"),
        (loading(sampler=SubsetRandomSampler(range(30))), "30 of 60"),
        (loading(sampler=SubsetRandomSampler([*range(59), 0])), "more than once"),
        (loading(sampler=SubsetRandomSampler([*range(59), -60])), "more than once"),
        (loading(size=60, sampler=SubsetRandomSampler([0] * 60)), "more than once"),
        (loading(sampler=SubsetRandomSampler([*range(59), 60])), "outside"),
        (loading(sampler=RandomSampler(range(30), num_samples=60)), "60 times from 30"),
        (loading(sampler=RandomSampler(DATA, num_samples=30)), "30 times from 60"),
        (loading(sampler=RandomSampler(range(61))), "61 of 60"),
        (loading(sampler=SequentialSampler(range(30))), "30 of 60"),
        (loading(sampler=list(range(60))), "a list"),
        (loading(sampler=MyOrder(DATA)), "MyOrder"),
        (loading(sampler=MyShuffle(DATA)), "MyShuffle"),
        (loading(Subset(DATA, [0] * 60)), "more than once"),
        (loading(Subset(DATA, [*range(59), -60]), shuffle=True), "more than once"),
        (loading(Subset(Subset(DATA, [*range(30), *range(30)]), range(60))), "more than once"),
        (loading(ConcatDataset([DATA, DATA])), "more than once"),
        (loading(ConcatDataset([DATA, TensorDataset(*DATA.tensors)])), "more than once"),
        (loading(TensorDataset(torch.ones(1, 3).expand(60, 3))), "more than once"),
        (
            loading(
                ConcatDataset([TensorDataset(ROWS[:40]), TensorDataset(ROWS[30:50])]), shuffle=True
            ),
            "more than once",
        ),
        (loading(ConcatDataset([Subset(DATA, range(40)), Subset(DATA, range(20, 40))])), "more"),
        (loading(StackDataset(Subset(DATA, [0] * 60), Subset(DATA, [0] * 60))), "more than once"),
        (loading(shuffle=True, num_workers=2, in_order=False), "in_order"),
        (lambda: DataLoader(DATA, batch_sampler=Odd(RandomSampler(DATA), 6, False)), "Odd"),
        (lambda: DataLoader(DATA, batch_sampler=[[0, 1]] * 30), "list"),
        (lambda: DataLoader(DATA, batch_size=None), "NoneType"),
    ],
)
def test_says_what_it_cannot_tell(make, says):
    with pytest.raises(UnsupportedError, match=says):
        describe_loader(make())
