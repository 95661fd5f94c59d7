"""Rounded Gaussians against their law: what doubles claim, what integers decide, what comes out.

The ideal pair of two words is computed a second time in ball arithmetic (python-flint). Random
tests have false alarms; every threshold here is crossed with probability below 1e-6.
"""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpz
from scipy import stats

from lastiterate.errors import DescriptionError
from lastiterate.noise import SecureSource, SeededSource, decision, unpredictable
from lastiterate.noise.decision import decided
from lastiterate.noise.rounded import NEAR, OFF, TAIL, directions, nearly, radii, rounded_pairs

RARE = 1e-6
ONE = 1 << 63


@pytest.fixture(autouse=True)
def precise():
    before, ctx.prec = ctx.prec, 700
    yield
    ctx.prec = before


def ideal(u: arb, f: arb, sign: int = 1) -> tuple[arb, arb]:
    """The two Gaussians of a uniform u, an angle (π/2)·f and a sign."""
    radius = sign * (-2 * u.log()).sqrt()
    angle = arb.pi() * f / 2
    return radius * angle.cos(), radius * angle.sin()


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def awkward_fractions() -> list[int]:
    """Radius words where the computation changes its ways, and next to them."""
    root = round(math.sqrt(0.5) * 2**63)
    places = [TAIL, ONE - 1 - TAIL, ONE // 2, ONE // 4, ONE * 3 // 4, ONE // 2**13]
    places += [root >> k for k in range(13)] + [ONE - root, ONE - (ONE >> 10)]
    near = [place + step for place in places for step in (-2048, -513, -1, 0, 1, 511, 1024)]
    return [word for word in near if TAIL <= word <= ONE - 1 - TAIL]


def awkward_angles() -> list[int]:
    places = [0, 1 << 61, 1 << 62, 3 << 61, ONE, 5 << 61, 3 << 62, 7 << 61]
    return [(place + step) % 2**64 for place in places for step in (-2049, -1, 0, 1, 700, 2**40)]


def test_doubles_are_as_near_as_they_claim():
    """At both ends of what the words leave open; everything but the scale and its rounding."""
    random = np.random.default_rng(1)
    fractions = awkward_fractions()
    fractions += [int(w) for w in random.integers(TAIL, ONE - TAIL, 1500)]
    fractions += [int(TAIL * 2 ** random.uniform(0, 14 - 1e-9)) for _ in range(500)]
    fractions += [ONE - 1 - int(TAIL * 2 ** random.uniform(0, 14 - 1e-9)) for _ in range(500)]
    angles = awkward_angles()
    angles = (angles * (len(fractions) // len(angles) + 1))[: len(fractions) // 2]
    angles += [int(w) for w in random.integers(0, 2**64, len(fractions) - len(angles), np.uint64)]
    random.shuffle(angles)
    radius = radii(np.array(fractions, np.uint64))
    found = radius * directions(np.array(angles, np.uint64))
    worst = 0.0
    for k, (fraction, angle) in enumerate(zip(fractions, angles, strict=True)):
        for end in (0, 1):
            u, f = arb(fraction + end) / ONE, arb(signed(angle) + end) / ONE
            for value, truth in zip(found[:, k], ideal(u, f), strict=True):
                off = abs(arb(float(value)) - truth) / (arb(float(radius[k])) + NEAR)
                worst = max(worst, float(off.upper()))
    # Two more roundings come with the scale. The proof says 20 units of 2^-53, OFF is 32.
    assert worst <= 18 * 2.0**-53
    assert worst >= 2 * 2.0**-53  # else this test looks in the wrong place


@pytest.mark.parametrize("known", [5, 63 + 64, 63 + 192])
def test_enclosures_hold_the_truth(known):
    """The pieces that decisions are made of, at both ends of what is known, at any precision."""
    random = np.random.default_rng(known)
    p = known + 16
    for _ in range(150):
        u = int.from_bytes(random.bytes(40)) % (1 << known) or 1
        u = max(1, u >> int(random.integers(known)))
        f = int.from_bytes(random.bytes(40)) % (2 << known) - (1 << known)
        low, high = decision._radius(u, known, p)
        (across_low, across_high), (along_low, along_high) = decision._axes(f, known, p)
        for end in (0, 1):
            v = min(arb(u + end) / (1 << known), arb(1))
            radius = (-2 * v.log()).sqrt() if u + end < 1 << known else arb(0)
            angle = arb.pi() * (arb(f + end) / (1 << known)) / 2
            assert low <= radius * fmpz(2) ** p <= high
            assert across_low <= angle.cos() * fmpz(2) ** p <= across_high
            assert along_low <= angle.sin() * fmpz(2) ** p <= along_high
        wide = 2 ** (p - known)  # what is known leaves so much open
        assert across_high - across_low <= 16 * wide
        assert high - low <= 16 * wide * (1 << known) // u + 16 * math.isqrt(wide << p)


def more_of(bits: list[int]):
    """Hands out these words, then zeros."""
    left = iter(bits)
    return lambda: next(left, 0)


def decided_by_balls(scale: float, radius: int, angle: int, later: list[int]) -> tuple[int, int]:
    """The same decision at 700 bits, for uniforms whose bits are known to the end."""
    u, f, known = radius % ONE, signed(angle), 63
    for first, second in zip(later[::2], later[1::2], strict=True):
        u, f, known = (u << 64) | first, (f << 64) | second, known + 64
    sign = -1 if radius >> 63 else 1
    pair = ideal(arb(u) / (1 << known), arb(f) / (1 << known), sign)
    n, d = scale.as_integer_ratio()
    whole = [(n * x / d + arb("0.5")).floor().unique_fmpz() for x in pair]
    assert None not in whole, "700 bits do not decide this"
    return int(whole[0]), int(whole[1])


def test_draws_at_half_integers_are_decided_as_the_uniforms_say():
    """Scales at which the draw of given words lies next to a half-integer, and on either side."""
    random = np.random.default_rng(2)
    seen = 0
    for _ in range(120):
        radius, angle = (int(w) for w in random.integers(0, 2**64, 2, np.uint64))
        later = [int(w) for w in random.integers(0, 2**64, 8, np.uint64)]
        half = int(random.integers(0, 2 ** int(random.integers(1, 40)))) + 0.5
        x = ideal(arb(radius % ONE) / ONE, arb(signed(angle)) / ONE)[int(random.integers(2))]
        scale = abs(half / float(x))
        if scale > 2.0**41:
            continue
        for _ in range(int(random.integers(3))):
            scale = math.nextafter(scale, math.inf)
        truth = decided_by_balls(scale, radius, angle, later)
        assert decided(scale, radius, angle, more_of(later)) == truth
        words = np.array([[radius], [angle]], np.uint64)
        found = rounded_pairs(scale, words[0], words[1], more_of(later))[:, 0]
        assert (int(found[0]), int(found[1])) == truth
        seen += len(nearly(scale, words[0], words[1])[1])
    assert seen > 60  # doubles cannot decide these


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 17.3, 2.0**24, 2.0**33 + 1, 2.0**40, 2.0**42])
def test_what_doubles_decide_is_what_integers_decide(scale):
    random = np.random.default_rng(3)
    words = random.integers(0, 2**64, (2, 1500), np.uint64)
    fractions = np.array([*awkward_fractions(), 0, 1, TAIL - 1, ONE - TAIL, ONE - 1], np.uint64)
    words[0, : len(fractions)] = fractions
    words[0, : len(fractions) : 2] |= np.uint64(ONE)
    later = [[int(w) for w in random.integers(0, 2**64, 4, np.uint64)] for _ in range(1500)]
    found, undecided = nearly(scale, *words)
    assert len(undecided) <= 12 + 1500 * 16 * OFF * scale
    sure = set(range(1500)) - set(undecided.tolist())
    for k in sorted(sure)[:400]:
        radius, angle = (int(w) for w in words[:, k])
        assert decided(scale, radius, angle, more_of(later[k])) == tuple(found[:, k])
        assert decided(scale, radius, angle, lambda: 0) == tuple(found[:, k])
        assert decided(scale, radius, angle, lambda: 2**64 - 1) == tuple(found[:, k])


def test_probabilities_by_enumeration_of_all_cells():
    """Every cell of coarse uniforms rounds to one number, or is counted for both sides.

    Sums of rational numbers on either side of the exact probability: the decision has the law of a
    rounded Gaussian, whatever the bits.
    """
    scale, known = Fraction(3, 2), 7
    p, most = known + 16, 3
    low = {k: Fraction(0) for k in range(-most, most + 1)}
    open_mass = {k: Fraction(0) for k in low}
    radii_ = [decision._radius(u, known, p) for u in range(1, 1 << known)]
    axes = [decision._axes(f, known, p)[0] for f in range(-(1 << known), 1 << known)]
    cell = Fraction(1, 1 << (2 * known + 1)) / 2  # and a fair sign
    outermost = Fraction(1, 1 << known)  # u in the first cell may be anywhere
    for radius in radii_:
        for axis in axes:
            ends = decision._product(radius, axis)
            for sign in (-1, 1):
                first, last = sorted(
                    math.floor(sign * end * scale / (1 << (2 * p)) + Fraction(1, 2)) for end in ends
                )
                for k in range(max(first, -most), min(last, most) + 1):
                    (low if first == last else open_mass)[k] += cell
    for k, least in low.items():
        cdf = [(arb(2 * k + side) / 3 / arb(2).sqrt()).erf() / 2 for side in (-1, 1)]
        exact = float(cdf[1] - cdf[0])
        assert float(least) <= exact <= float(least + open_mass[k] + outermost)
        assert float(open_mass[k]) <= 0.03  # narrow enough to see a wrong law


def chi_square(scale: float, draws: np.ndarray) -> float:
    """The p-value of these draws against exact cell probabilities."""
    most = max(1, math.ceil(4 * scale))
    cells = np.clip(draws, -most, most).astype(int) + most
    edges = (np.arange(-most, most) + 0.5) / scale
    upper = stats.norm.sf(edges)
    probability = np.concatenate([[1.0], upper]) - np.concatenate([upper, [0.0]])
    left = edges <= 0
    probability[:-1][left] = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges[left])]))
    counts, expected = np.bincount(cells, minlength=2 * most + 1), probability * len(draws)
    keep = expected >= 20
    counts = np.append(counts[keep], counts[~keep].sum())
    expected = np.append(expected[keep], expected[~keep].sum())
    if expected[-1] < 20:
        assert stats.poisson.sf(counts[-1] - 1, expected[-1]) > RARE
        counts, expected = counts[:-1], expected[:-1]
    return float(stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("scale", [0.2, 0.7, 1.0, 7.5, 60.0])
@pytest.mark.parametrize("make", [SecureSource, lambda: SeededSource(np.random.default_rng())])
def test_whole_numbers_come_up_as_often_as_they_must(make, scale):
    draws = make().rounded_normal(scale, 400_000)
    assert (draws == np.rint(draws)).all()
    assert chi_square(scale, draws) > RARE


@pytest.mark.parametrize("scale", [2.0**24, 3.0e7 / 7, 2.0**40])
def test_large_scales_have_the_gaussian_law(scale):
    draws = SecureSource().rounded_normal(scale, 200_000) / scale
    assert stats.kstest(draws, "norm").pvalue > RARE
    for power, mean, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((draws**power).mean() - mean) < 5 * math.sqrt(spread / len(draws))
    first, second = draws[:8192].reshape(2, 4096)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / 64
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 5 / 64


def test_tails_are_as_heavy_as_they_must_be():
    """Beyond 4.4 every draw is decided by integers, and as many must come up."""
    draws = np.abs(SecureSource().rounded_normal(2.0**24, 3_000_000)) / 2.0**24
    for cut in (3.0, 4.0, 4.4, 4.41, 4.8):
        test = stats.binomtest(int((draws > cut).sum()), len(draws), 2 * stats.norm.sf(cut))
        assert test.pvalue > RARE, cut


def test_low_bits_are_fair():
    """Residues modulo small powers of two, and of consecutive draws."""
    draws = SecureSource().rounded_normal(2.0**24, 500_000).astype(np.int64)
    for modulus in (2, 8, 256):
        counts = np.bincount(draws % modulus, minlength=modulus)
        assert stats.chisquare(counts).pvalue > RARE
    pairs = (draws[:8192].reshape(2, 4096) % 4).T @ [4, 1]
    assert stats.chisquare(np.bincount(pairs, minlength=16)).pvalue > RARE


@pytest.mark.slow
def test_a_hundred_million_draws():
    scale, source = 2.5, SecureSource()
    most = 16
    counts = np.zeros(2 * most + 1, np.int64)
    for _ in range(100):
        draws = source.rounded_normal(scale, 1_000_000).astype(np.int64)
        counts += np.bincount(np.clip(draws, -most, most) + most, minlength=2 * most + 1)
    upper = stats.norm.sf((np.arange(0, most) + 0.5) / scale)
    right = np.concatenate([upper[:-1] - upper[1:], upper[-1:]])
    probability = np.concatenate([right[::-1], [1 - 2 * upper[0]], right])
    expected = probability * counts.sum()
    keep = expected >= 20
    assert (
        stats.chisquare(
            counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()
        ).pvalue
        > RARE
    )
    assert stats.poisson.sf(counts[~keep].sum() - 1, expected[~keep].sum()) > RARE


def test_the_outermost_cell_goes_on_as_long_as_its_bits_are_zero():
    later = [0, 5, 0, 6, 1 << 63, 7]
    found = decided(1000.0, 0, 12345, more_of(later))
    assert found == decided_by_balls(1000.0, 0, 12345, later)
    assert abs(found[0]) > 1000 * math.sqrt(2 * 190 * math.log(2))  # 190 zeros
    assert decided(5e-324, 0, 12345, more_of(later)) == (0, 0)


def test_a_decision_depends_on_its_words_alone():
    """Flagged draws take bits, and only they; the others keep their words."""
    random = np.random.default_rng(4)
    words = random.integers(0, 2**64, (2, 64), np.uint64)
    words[0, ::8] = 3  # in the tail
    asked = []

    def more() -> int:
        asked.append(1)
        return 1 << 63

    scale = 2.0**24
    whole = rounded_pairs(scale, *words, more)
    assert len(asked) == 2 * 8
    for k in range(64):
        alone = rounded_pairs(scale, *words[:, k : k + 1], lambda: 1 << 63)
        assert (whole[:, k] == alone[:, 0]).all()


@pytest.mark.parametrize("source", [SecureSource(), SeededSource(1)], ids=["secure", "seeded"])
class TestScales:
    def test_tiny_scales_round_to_nothing(self, source):
        for scale in (0.0, 5e-324, 1e-310, 1e-3, 1 / 64):
            draws = source.rounded_normal(scale, 20_000)
            assert not draws.any()
            assert not np.signbit(draws).any()

    def test_a_zero_has_no_sign(self, source):
        draws = source.rounded_normal(0.5, 20_000)
        assert (draws == 0).any()
        assert not np.signbit(draws[draws == 0]).any()

    @pytest.mark.parametrize("scale", [math.nan, math.inf, -1.0, -5e-324, 2.0**43, 10**400])
    def test_others_are_refused(self, source, scale):
        with pytest.raises(DescriptionError, match="scale"):
            source.rounded_normal(scale, 3)

    @pytest.mark.parametrize("scale", [None, "x", True, 1j])
    def test_what_is_no_number_is_refused(self, source, scale):
        with pytest.raises(DescriptionError, match="scale"):
            source.rounded_normal(scale, 3)

    @pytest.mark.parametrize("shape", [0, 1, 2, 7, (3, 5), (8193,), (2, 3, 4), (), (4, 0)])
    def test_shapes(self, source, shape):
        draws = source.rounded_normal(100.0, shape)
        assert draws.shape == np.empty(shape).shape
        assert draws.dtype == np.float64


def test_arrays_of_extreme_words_raise_no_warning():
    words = np.array([0, 1, ONE - 1, ONE, ONE + 1, 2**64 - 1], np.uint64)
    with np.errstate(all="raise"):
        for scale in (0.0, 5e-324, 1.0, 2.0**42):
            found = rounded_pairs(scale, words, words[::-1].copy(), lambda: 1 << 63)
            assert np.isfinite(found).all()


class Child(SecureSource):
    pass


def test_a_source_that_was_tampered_with_is_not_certified(monkeypatch):
    honest = SecureSource()
    assert unpredictable(honest)
    assert unpredictable(copy.copy(honest))
    assert not unpredictable(Child())
    with pytest.raises(AttributeError):
        honest.rounded_normal = lambda scale, shape: np.zeros(shape)
    patched = SecureSource()
    patched._stream = SeededSource(1)
    assert not unpredictable(patched)
    monkeypatch.setattr(SecureSource, "rounded_normal", lambda self, *_: np.zeros(3))
    assert not unpredictable(honest)


def test_a_stream_that_was_tampered_with_is_not_certified(monkeypatch):
    honest = SecureSource()
    monkeypatch.setattr(type(honest._stream), "take", lambda self, count: np.zeros(count, np.uint8))
    assert not unpredictable(honest)
