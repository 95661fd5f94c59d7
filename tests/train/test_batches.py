"""The index stream of every batch scheme has exactly the described law."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from lastiterate import Cyclic, FullBatch, Poisson, Reshuffled, Shuffled, WithoutReplacement
from lastiterate.noise import SecureSource, SeededSource
from lastiterate.train.batches import BatchStream

RARE = 1e-6
SOURCES = [SecureSource(), SeededSource(np.random.default_rng())]


def rows(stream, records):
    """The next batch as a plain array."""
    return np.arange(records)[next(stream)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_full_batch_is_everyone_every_time(source):
    stream = BatchStream(FullBatch(), 7, source)
    for _ in range(3):
        assert rows(stream, 7).tolist() == list(range(7))
    assert stream.nonce is None


def test_cyclic_batches_come_in_their_fixed_order_and_drop_the_last_records():
    stream = BatchStream(Cyclic(3), 8, SecureSource())
    seen = [rows(stream, 8).tolist() for _ in range(5)]
    assert seen == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert stream.nonce is None


@pytest.mark.parametrize("scheme", [Shuffled, Reshuffled])
@pytest.mark.parametrize("source", SOURCES)
def test_an_epoch_is_a_partition_without_the_dropped_records(scheme, source):
    n, size = 11, 3
    stream = BatchStream(scheme(size), n, source)
    for _ in range(40):
        epoch = [rows(stream, n) for _ in range(n // size)]
        assert all(len(batch) == size for batch in epoch)
        assert len(np.unique(np.concatenate(epoch))) == n // size * size
    assert len(stream.nonce) == 32


@pytest.mark.parametrize("source", SOURCES)
def test_shuffled_keeps_its_partition_and_reshuffled_does_not(source):
    n, size, per_epoch = 40, 10, 4
    once = BatchStream(Shuffled(size), n, source)
    epochs = [[set(rows(once, n)) for _ in range(per_epoch)] for _ in range(3)]
    assert epochs[0] == epochs[1] == epochs[2]
    again = BatchStream(Reshuffled(size), n, source)
    epochs = [[set(rows(again, n)) for _ in range(per_epoch)] for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]  # equal with probability 1e-21


@pytest.mark.parametrize("source", SOURCES)
def test_partitions_are_uniform(source):
    """Five records, batches of two: 30 equally likely ordered pairs of disjoint batches."""
    ways = [
        (a, b)
        for a, b in itertools.product(itertools.combinations(range(5), 2), repeat=2)
        if not set(a) & set(b)
    ]
    index = {way: k for k, way in enumerate(ways)}
    counts = np.zeros(len(ways))
    for _ in range(6_000):
        stream = BatchStream(Shuffled(2), 5, source)
        way = tuple(tuple(sorted(rows(stream, 5).tolist())) for _ in range(2))
        counts[index[way]] += 1
    assert len(ways) == 30
    assert stats.chisquare(counts).pvalue > RARE


@pytest.mark.parametrize("source", SOURCES)
def test_epochs_of_a_reshuffled_run_are_independent(source):
    """The joint law of one record's positions in two successive epochs is uniform."""
    stream = BatchStream(Reshuffled(2), 6, source)
    counts = np.zeros((3, 3))
    for _ in range(5_000):
        first, second = ([0 in rows(stream, 6) for _ in range(3)].index(True) for _ in range(2))
        counts[first, second] += 1
    assert stats.chisquare(counts.ravel()).pvalue > RARE


@pytest.mark.parametrize("source", SOURCES)
def test_poisson_includes_every_record_on_its_own_coin(source):
    n, rate, draws = 4, 0.3, 20_000
    stream = BatchStream(Poisson(rate), n, source)
    counts = np.zeros(2**n)
    for _ in range(draws):
        batch = rows(stream, n)
        assert (np.diff(batch) > 0).all()
        counts[int((2**batch).sum())] += 1
    sizes = np.array([bin(k).count("1") for k in range(2**n)])
    law = rate**sizes * (1 - rate) ** (n - sizes)
    assert stats.chisquare(counts, draws * law).pvalue > RARE


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_without_replacement_draws_fresh_uniform_subsets(source, size):
    n = 5
    ways = {way: k for k, way in enumerate(itertools.combinations(range(n), size))}
    stream = BatchStream(WithoutReplacement(size), n, source)
    counts = np.zeros((len(ways), len(ways)))
    for _ in range(8_000):
        one, two = (ways[tuple(rows(stream, n).tolist())] for _ in range(2))
        counts[one, two] += 1
    if len(ways) > 1:  # successive batches: every pair equally likely
        assert stats.chisquare(counts.ravel()).pvalue > RARE


def test_every_partition_has_its_own_name():
    names = {BatchStream(Shuffled(2), 6, SeededSource(0)).nonce for _ in range(50)}
    assert len(names) == 50
