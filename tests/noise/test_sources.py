"""Randomness against its law: Gaussians, batches, and bytes that are never handed out twice.

Random tests have false alarms; every threshold here is crossed with probability below 1e-6.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import pickle
import sys
import threading

import numpy as np
import pytest
from scipy import stats

from lastiterate.errors import DescriptionError
from lastiterate.noise import SecureSource, SeededSource, source, unpredictable
from lastiterate.noise import stream as stream_module
from lastiterate.noise.stream import SecretStream, secret_bytes

RARE = 1e-6
SOURCES = [SecureSource, lambda: SeededSource(np.random.default_rng())]


def test_the_default_is_secure_and_a_seed_is_not():
    assert source().secure
    assert not source(3).secure
    assert not source(np.random.default_rng(3)).secure
    assert not source(np.random.RandomState(3)).secure


@pytest.mark.parametrize("make", SOURCES)
def test_gaussians_have_the_gaussian_law(make):
    z = make().normal(400_000)
    assert z.dtype == np.float64
    assert stats.kstest(z, "norm").pvalue > RARE
    n, deviations = len(z), 5.0  # two-sided 6e-7
    assert abs(z.mean()) < deviations / math.sqrt(n)
    assert abs((z**2).mean() - 1) < deviations * math.sqrt(2 / n)
    assert abs((z**3).mean()) < deviations * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < deviations * math.sqrt(96 / n)


@pytest.mark.parametrize("make", SOURCES)
def test_tails_are_as_heavy_as_they_must_be(make):
    z = np.abs(make().normal(1_000_000))
    for cut in (2.0, 3.0, 4.0, 4.5):
        expected = 2 * stats.norm.sf(cut)
        test = stats.binomtest(int((z > cut).sum()), len(z), expected)
        assert test.pvalue > RARE, cut


def test_every_sample_of_the_sum_counts():
    """The two rows that share their samples are independent, in radius and in sign."""
    rows = SecureSource()._sums(200_000)
    a, b = rows
    for f, g in itertools.product((lambda x: x, np.abs, np.square, np.sign), repeat=2):
        assert abs(np.corrcoef(f(a), g(b))[0, 1]) < 5 / math.sqrt(len(a))
    radius = (a**2 + b**2) / 2
    assert stats.kstest(radius, "expon").pvalue > RARE
    assert stats.kstest(np.arctan2(a, b), "uniform", args=(-math.pi, 2 * math.pi)).pvalue > RARE


@pytest.mark.parametrize("shape", [0, 1, 2, 7, (3, 5), (2049,), (2, 3, 4), ()])
def test_shapes(shape):
    z = SecureSource().normal(shape)
    assert z.shape == np.empty(shape).shape
    assert np.isfinite(z).all()


def test_successive_and_neighbouring_draws_are_uncorrelated():
    noise = SecureSource()
    draws = np.concatenate([noise.normal(k) for k in [1, 3, 2048, 100, 5000] * 30])
    for lag in (1, 2, 1024, 2048):
        correlation = np.mean(draws[lag:] * draws[:-lag])
        assert abs(correlation) < 5 / math.sqrt(len(draws) - lag)


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000])
def test_integers_are_uniform(make, bound):
    counts = np.bincount(make().integers(bound, 60_000), minlength=bound)
    assert len(counts) == bound
    if bound > 1:
        assert stats.chisquare(counts).pvalue > RARE


def test_integers_stay_uniform_where_rejection_is_frequent():
    """Two copies of 3·2^61 leave a quarter of all words over; without rejection 0 comes up more."""
    bound = (1 << 63) - 1  # the largest bound of int64 indices
    z = SecureSource().integers(bound, 20_000) / bound
    assert stats.kstest(z, "uniform").pvalue > RARE
    third = SecureSource().integers(3 * (1 << 61), 20_000) // (1 << 61)
    assert stats.chisquare(np.bincount(third, minlength=3)).pvalue > RARE


@pytest.mark.parametrize("make", SOURCES)
def test_permutations_are_uniform(make):
    noise = make()
    index = {order: k for k, order in enumerate(itertools.permutations(range(4)))}
    counts = np.zeros(24)
    for _ in range(12_000):
        counts[index[tuple(noise.permutation(4).tolist())]] += 1
    assert stats.chisquare(counts).pvalue > RARE


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
def test_subsets_are_uniform_and_sorted(make, size):
    noise = make()
    index = {chosen: k for k, chosen in enumerate(itertools.combinations(range(5), size))}
    counts = np.zeros(len(index))
    for _ in range(4_000):
        counts[index[tuple(noise.subset(5, size).tolist())]] += 1
    if len(counts) > 1:
        assert stats.chisquare(counts).pvalue > RARE


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("rate", [1e-4, 0.013, 0.5, 1 / 3, 0.99, 3 / 65536])
def test_coin_flips_come_up_at_their_rate(make, rate):
    hits = make().bernoulli(rate, 2_000_000)
    assert hits.dtype == np.bool_
    assert stats.binomtest(int(hits.sum()), len(hits), rate).pvalue > RARE


def test_rates_below_the_first_sixteen_bits_are_kept():
    """Where only the later bits decide: about 40 of 5 million, and never none."""
    rate = 0.5 / 65536
    hits = int(SecureSource().bernoulli(rate, 5_000_000).sum())
    assert stats.binomtest(hits, 5_000_000, rate).pvalue > RARE


def test_certain_and_impossible_coins():
    for make in SOURCES:
        assert make().bernoulli(1.0, 1000).all()
        assert not make().bernoulli(0.0, 1000).any()


def test_words_are_whole_and_large_draws_match_small_ones():
    noise = SecureSource()
    for count in (1, 3, 8191, 16_383, 16_384, 50_000):
        words = noise._words(count)
        assert words.shape == (count,)
        assert words.flags.aligned
        bits = np.unpackbits(words.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(bits)) + (count < 10)


def test_bytes_are_uniform():
    counts = np.bincount(secret_bytes(1 << 20), minlength=256)
    assert stats.chisquare(counts).pvalue > RARE


def test_without_the_cipher_the_operating_system_is_asked(monkeypatch):
    monkeypatch.setattr(stream_module, "Cipher", None)
    noise = SecureSource()
    assert stats.kstest(noise.normal(50_000), "norm").pvalue > RARE
    assert sorted(noise.permutation(50).tolist()) == list(range(50))
    assert noise.integers(3 * (1 << 61), 100).max() < 3 * (1 << 61)


def test_streams_are_independent():
    a, b = SecureSource().normal(100_000), SecureSource().normal(100_000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(len(a))
    assert len(np.intersect1d(a, b)) == 0


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_a_copy_draws_other_noise(duplicate):
    original = SecureSource()
    original.normal(3)  # so that bytes are waiting in the buffer
    twin = duplicate(original)
    assert twin.secure
    assert len(np.intersect1d(original.normal(1000), twin.normal(1000))) == 0
    assert SecretStream().__reduce__() == (SecretStream, ())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_child_never_sees_its_parents_bytes():
    """Child, grandchild and parent draw from what was one stream with bytes in its buffer."""
    noise = SecureSource()
    noise.normal(3)
    readers = []
    for depth in (1, 2):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                if depth == 2 and (inner := os.fork()):
                    os.waitpid(inner, 0)
                    os._exit(0)
                os.write(write, noise._stream.take(4096).tobytes())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as file:
            readers.append(file.read())
        os.waitpid(pid, 0)
    parent = noise._stream.take(4096).tobytes()
    assert [len(r) for r in readers] == [4096, 4096]
    words = [set(np.frombuffer(d, np.uint64).tolist()) for d in (*readers, parent)]
    for a, b in itertools.combinations(words, 2):
        assert not a & b


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_fork_while_another_thread_draws_does_not_block_the_child():
    stream = SecretStream()
    stream.take(8)
    lock = stream._of_this_process().lock
    lock.acquire()  # as if another thread were drawing
    pid = os.fork()
    if pid == 0:
        os._exit(0 if len(stream.take(8)) == 8 else 1)
    lock.release()
    assert os.waitpid(pid, 0)[1] == 0


def test_threads_never_share_bytes():
    stream, taken = SecretStream(), []

    def draw():
        mine = [stream.take(8).view(np.uint64)[0] for _ in range(5000)]
        taken.append(mine)

    threads = [threading.Thread(target=draw) for _ in range(4)]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns in the middle of everything
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(patience)
    words = [w for mine in taken for w in mine]
    assert len(words) == 20_000
    assert len(set(words)) == len(words)


def test_seeded_draws_repeat_and_go_on_from_their_state():
    a, b = SeededSource(5), SeededSource(5)
    assert np.array_equal(a.normal(9), b.normal(9))
    kept = a.state()
    expected = a.normal(4), a.permutation(6), a.subset(9, 3), a.bernoulli(0.4, 7)
    b.restore(kept)
    for x, y in zip(
        expected, (b.normal(4), b.permutation(6), b.subset(9, 3), b.bernoulli(0.4, 7)), strict=True
    ):
        assert np.array_equal(x, y)


def test_the_secure_source_keeps_no_state():
    assert SecureSource().state() is None


def with_stream(stream):
    drawn = SecureSource()
    drawn._stream = stream
    return drawn


class OwnStream(SecretStream):
    def take(self, count):
        return np.zeros(count, np.uint8)


def test_a_source_whose_methods_were_replaced_is_not_vouched_for():
    zeros = SecretStream()
    zeros.take = lambda count: np.zeros(count, np.uint8)
    for drawn in (with_stream(zeros), with_stream(OwnStream()), with_stream(None)):
        assert not unpredictable(drawn)
    for name in ("normal", "permutation", "_words"):
        with pytest.raises(AttributeError):
            setattr(SecureSource(), name, np.zeros)
    used = SecureSource()
    used.normal(5)
    assert unpredictable(used)
    assert unpredictable(copy.deepcopy(used))


@pytest.mark.parametrize("seed", ["a", -1, 1.5, {}, object()])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(DescriptionError, match="random_state"):
        source(random_state=seed)
