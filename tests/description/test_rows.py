"""What is accounted is what is drawn: the rows of every scheme have exactly the described law."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from lastiterate import (
    Cyclic,
    FullBatch,
    Poisson,
    RandomAllocation,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
)
from lastiterate.description.batches import SCHEMES, read_batches, weighted
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.noise import SecureSource, SeededSource, SideBySide
from lastiterate.sampling.batch_order import SeededDraws, batch_rows, secret_draws

RARE = 1e-6
SOURCES = [SecureSource(), SeededSource(np.random.default_rng())]


def rows(stream, records):
    """The next batch as a plain array."""
    return np.arange(records)[next(stream)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_full_batch_is_everyone_every_time(source):
    stream = FullBatch().rows(7, source)
    for _ in range(3):
        assert rows(stream, 7).tolist() == list(range(7))
    assert stream.nonce is None


def test_cyclic_batches_come_in_their_fixed_order_and_drop_the_last_records():
    stream = Cyclic(3).rows(8, SecureSource())
    seen = [rows(stream, 8).tolist() for _ in range(5)]
    assert seen == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert stream.nonce is None


@pytest.mark.parametrize("scheme", [Shuffled, Reshuffled])
@pytest.mark.parametrize("source", SOURCES)
def test_an_epoch_is_a_partition_without_the_dropped_records(scheme, source):
    n, size = 11, 3
    stream = scheme(size).rows(n, source)
    for _ in range(40):
        epoch = [rows(stream, n) for _ in range(n // size)]
        assert all(len(batch) == size for batch in epoch)
        assert len(np.unique(np.concatenate(epoch))) == n // size * size
    assert len(stream.nonce) == 32


@pytest.mark.parametrize("source", SOURCES)
def test_shuffled_keeps_its_partition_and_reshuffled_does_not(source):
    n, size, per_epoch = 40, 10, 4
    once = Shuffled(size).rows(n, source)
    epochs = [[set(rows(once, n)) for _ in range(per_epoch)] for _ in range(3)]
    assert epochs[0] == epochs[1] == epochs[2]
    again = Reshuffled(size).rows(n, source)
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
        stream = Shuffled(2).rows(5, source)
        way = tuple(tuple(sorted(rows(stream, 5).tolist())) for _ in range(2))
        counts[index[way]] += 1
    assert len(ways) == 30
    assert stats.chisquare(counts).pvalue > RARE


@pytest.mark.parametrize("source", SOURCES)
def test_epochs_of_a_reshuffled_run_are_independent(source):
    """The joint law of one record's positions in two successive epochs is uniform."""
    stream = Reshuffled(2).rows(6, source)
    counts = np.zeros((3, 3))
    for _ in range(5_000):
        first, second = ([0 in rows(stream, 6) for _ in range(3)].index(True) for _ in range(2))
        counts[first, second] += 1
    assert stats.chisquare(counts.ravel()).pvalue > RARE


@pytest.mark.parametrize("source", SOURCES)
def test_poisson_includes_every_record_on_its_own_coin(source):
    n, rate, draws = 4, 0.3, 20_000
    stream = Poisson(rate).rows(n, source)
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
    stream = WithoutReplacement(size).rows(n, source)
    counts = np.zeros((len(ways), len(ways)))
    for _ in range(8_000):
        one, two = (ways[tuple(rows(stream, n).tolist())] for _ in range(2))
        counts[one, two] += 1
    if len(ways) > 1:  # successive batches: every pair equally likely
        assert stats.chisquare(counts.ravel()).pvalue > RARE


def test_every_partition_has_its_own_name():
    names = {Shuffled(2).rows(6, SeededSource(0)).nonce for _ in range(50)}
    assert len(names) == 50


# --- the facts are those of the draws --------------------------------------------------------

N = 11
EVERY = [
    FullBatch(),
    Cyclic(3),
    Shuffled(3),
    Reshuffled(3),
    RandomAllocation(3),
    WithoutReplacement(3),
    Poisson(0.3),
]
each = pytest.mark.parametrize("scheme", EVERY, ids=lambda scheme: scheme.name)


def drawn(scheme, count, source=None):
    """The first batches, as sets."""
    stream = scheme.rows(N, SecureSource() if source is None else source)
    return [frozenset(rows(stream, N).tolist()) for _ in range(count)]


def test_every_scheme_is_looked_at():
    assert {type(scheme) for scheme in EVERY} == set(SCHEMES.values())


@each
def test_hidden_says_whether_two_runs_see_other_batches(scheme):
    one, two = drawn(scheme, 20), drawn(scheme, 20)
    assert (one != two) == scheme.hidden


@each
def test_ordered_says_whether_an_epoch_holds_a_record_at_most_once(scheme):
    epoch = scheme.per_epoch(N)
    assert (epoch is not None) == scheme.ordered
    length = epoch or round(N / scheme.divisor(N))
    epochs = [drawn(scheme, length) for _ in range(40)]
    once = [len(frozenset().union(*batches)) == sum(map(len, batches)) for batches in epochs]
    assert all(once) == scheme.ordered
    if scheme.ordered:
        held = {len(frozenset().union(*batches)) for batches in epochs}
        assert held == {N - scheme.dropped(N)}


@each
def test_repeated_says_whether_epochs_are_alike(scheme):
    length = scheme.per_epoch(N) or 3
    batches = drawn(scheme, 12 * length)
    assert (batches[:length] * 12 == batches) == scheme.repeated
    assert scheme.ordered or not scheme.repeated


@each
def test_sizes_are_as_they_are_said_to_be(scheme):
    batches = drawn(scheme, 4_000)
    sizes = {len(batch) for batch in batches}
    assert (len(sizes) == 1) == scheme.fixed_size
    assert max(sizes) <= scheme.largest(N)
    assert scheme.full == (sizes == {N})
    if scheme.fixed_size:
        assert sizes == {scheme.largest(N)} == {scheme.divisor(N)}
    else:
        assert max(drawn(Poisson(1.0), 2), key=len) == set(range(N))  # everybody, at worst
    if scheme.name in ("poisson", "without-replacement", "full"):
        count = sum(0 in batch for batch in batches)
        assert stats.binomtest(count, len(batches), scheme.share(N)).pvalue > RARE
    share = scheme.divisor(N) / N  # of nobody dropped, where batches do not divide the records
    share = 1 / scheme.per_epoch(N) if isinstance(scheme, RandomAllocation) else share
    assert scheme.share(N) == pytest.approx(share, rel=1e-15)


@each
def test_a_stream_goes_on_where_another_stopped(scheme):
    """A checkpoint keeps step, order and nonce; the source keeps its own state."""
    for stop in range(1, 9):
        source = SeededSource(3)
        whole = scheme.rows(N, SeededSource(3))
        expected = [rows(whole, N).tolist() for _ in range(12)]
        first = scheme.rows(N, source)
        before = [rows(first, N).tolist() for _ in range(stop)]
        later = SeededSource(99)
        later.restore(source.state())
        second = scheme.rows(N, later)
        second.step, second.order, second.nonce = first.step, first.order, first.nonce
        assert before + [rows(second, N).tolist() for _ in range(12 - stop)] == expected


@pytest.mark.parametrize("scheme", [Shuffled(3), Reshuffled(3)])
@pytest.mark.parametrize("order", [None, np.arange(N - 1)])
def test_a_partition_that_is_lost_is_not_drawn_again(scheme, order):
    """In the middle of an epoch a new one would make a run that nobody accounted for."""
    for step in (1, 2, 4, 3):  # an epoch has three updates: a reshuffled one begins at 3
        stream = scheme.rows(N, SecureSource())
        stream.step, stream.order = step, order
        if step == 3 and not scheme.repeated:
            assert len(rows(stream, N)) == 3
            continue
        with pytest.raises(AssumptionError, match="secret batches"):
            next(stream)


# --- several runs at once --------------------------------------------------------------------


@each
def test_runs_side_by_side_draw_what_each_would_draw_alone(scheme):
    together = scheme.rows(N, SideBySide([SeededSource(seed) for seed in range(4)]))
    alone = [scheme.rows(N, SeededSource(seed)) for seed in range(4)]
    for _ in range(9):
        batch, coins = weighted(next(together), N)
        for run, stream in enumerate(alone):
            own = batch if isinstance(batch, slice) else batch[run]
            weights = np.ones(N, bool) if coins is None else coins[run]
            assert np.arange(N)[own][weights[own]].tolist() == rows(stream, N).tolist()


@pytest.mark.parametrize("secret", [True, False])
@pytest.mark.parametrize("scheme", [Shuffled(2), Reshuffled(2), WithoutReplacement(2)])
def test_chains_of_a_sampler_draw_uniform_batches_of_their_own(scheme, secret):
    n, chains = 4, 6_000
    draws = secret_draws(chains) if secret else SeededDraws(np.random.default_rng(), chains)
    (batch, weights), (later, _) = itertools.islice(batch_rows(scheme, n, draws), 0, 4, 2)
    assert weights is None
    assert batch.shape == (chains, 2)
    pairs = {pair: k for k, pair in enumerate(itertools.combinations(range(n), 2))}
    places = [[pairs[tuple(sorted(row))] for row in part.tolist()] for part in (batch, later)]
    assert stats.chisquare(np.bincount(places[0], minlength=6)).pvalue > RARE
    joint = np.bincount(6 * np.array(places[0]) + places[1], minlength=36)
    if scheme.repeated:
        assert np.array_equal(places[0], places[1])
    else:
        assert stats.chisquare(joint).pvalue > RARE


@pytest.mark.parametrize("secret", [True, False])
def test_chains_of_a_sampler_throw_their_own_coins(secret):
    n, chains, rate = 3, 8_000, 0.3
    draws = secret_draws(chains) if secret else SeededDraws(np.random.default_rng(), chains)
    everyone, weights = next(batch_rows(Poisson(rate), n, draws))
    assert everyone == slice(0, n)
    assert weights.shape == (chains, n)
    counts = np.bincount((weights @ [1, 2, 4]).astype(int), minlength=8)
    sizes = np.array([bin(k).count("1") for k in range(8)])
    law = rate**sizes * (1 - rate) ** (n - sizes)
    assert stats.chisquare(counts, chains * law).pvalue > RARE


# --- nobody else's draws ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", SCHEMES.values())
def test_a_child_of_a_scheme_is_refused(kind):
    """It could draw what nobody accounted for."""

    class Sorted(kind):
        def rows(self, records, source):
            return iter(lambda: slice(0, 1), None)

    child = Sorted(*(0.5 if kind is Poisson else 2,) * (kind is not FullBatch))
    for read in (
        lambda b: read_batches("batches", b),
        lambda b: Training(
            records=9,
            steps=4,
            step_size=0.1,
            noise=1.0,
            gradient_norm=1.0,
            batches=b,
            adjacency="replace",
        ),
    ):
        with pytest.raises(DescriptionError, match=r"^batches must"):
            read(child)
