"""Propose-test-sample: exact noise, every refusal, the privacy claim by experiment, bad input."""

import itertools
import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.stats import beta as beta_law
from scipy.stats import binomtest, chisquare, norm

from lastiterate.errors import DescriptionError
from lastiterate.noise.decision import decided_around
from lastiterate.sampling import posterior_privacy, propose_test_sample, swapped_for_sgld
from lastiterate.sampling.discrete_laplace import SecureNoise, discrete_laplace, grid_for
from lastiterate.sampling.propose_test_sample import Proposal, exact_product

PUBLIC = {
    "epsilon": 0.5,
    "delta": 0.05,
    "prior_precision": 1.0,
    "noise_precision": 4.0,
    "x_low": 0.9,
    "x_high": 1.0,
    "rho_1": 1.01,
    "rho_2": 0.12,
    "gamma": 0.15,
}


class Script:
    """Noise that is known in advance: the given Laplace numbers in turn, then zeros."""

    def __init__(self, *laplace: int, normal: float = 0.0) -> None:
        self.numbers = itertools.chain(laplace, itertools.repeat(0))
        self.standard_normal = normal

    def laplace(self, rate: Fraction) -> int:
        return next(self.numbers)

    def gaussian(self, mean: Fraction, variance: Fraction) -> int:
        return round(mean + Fraction(math.sqrt(variance) * self.standard_normal))


@cache
def enough(slope: float = 2.0) -> int:
    """The least number of records at which equal slopes pass all tests without noise."""
    proposal = Proposal(**PUBLIC)

    def passes(n: int) -> bool:
        size = n - proposal.offset
        return size > 1 and size >= proposal.least_records(slope, size)

    return bisect_left(range(10**6), True, key=passes)


# -- noise -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(0.3), Fraction(7, 3)])
def test_discrete_laplace_has_its_exact_law(rate) -> None:
    draws = np.array([discrete_laplace(rate) for _ in range(8000)])
    q = math.exp(-rate)
    reach = max(1, int(3 / float(rate)))
    k = np.arange(-reach, reach + 1)
    inner = (1 - q) / (1 + q) * q ** np.abs(k)
    tail = q ** (reach + 1) / (1 + q)
    expected = len(draws) * np.concatenate(([tail], inner, [tail]))
    found = [(draws < -reach).sum(), *((draws == i).sum() for i in k), (draws > reach).sum()]
    assert chisquare(found, expected).pvalue > 1e-5


@pytest.mark.parametrize(
    ("mean", "variance"),
    [
        (Fraction(1, 3), Fraction(2)),
        (Fraction(-7, 2), Fraction(1, 50)),
        (Fraction(2**70) + Fraction(1, 2), Fraction(10, 3)),  # doubles would see multiples of 2^18
    ],
)
def test_rounded_gaussians_have_their_exact_law(mean, variance) -> None:
    noise, middle, deviation = SecureNoise(), round(mean), math.sqrt(variance)
    draws = np.array([noise.gaussian(mean, variance) - middle for _ in range(4000)], float)
    off = float(mean - middle)
    k = np.arange(-math.ceil(2 * deviation) - 1, math.ceil(2 * deviation) + 2)
    edges = norm.cdf((np.append(k, k[-1] + 1) - 0.5 - off) / deviation)
    share = np.concatenate([edges[:1], np.diff(edges), 1 - edges[-1:]])
    found = [(draws < k[0]).sum(), *((draws == i).sum() for i in k), (draws > k[-1]).sum()]
    likely = share * 4000 > 5
    rest = np.array(found)[~likely].sum(), share[~likely].sum()
    observed = np.append(np.array(found)[likely], rest[0])
    expected = 4000 * np.append(share[likely], max(rest[1], 1e-12))
    assert rest[0] <= 4000 * rest[1] + 6 * math.sqrt(4000 * rest[1]) + 6
    scaled = expected[:-1] * observed[:-1].sum() / expected[:-1].sum()
    assert chisquare(observed[:-1], scaled).pvalue > 1e-6


def test_rounded_gaussians_are_decided_at_the_edge() -> None:
    """Where the known bits leave both answers open, more bits of the same numbers are drawn."""
    words = iter([1 << 62, 0, *[0] * 20])
    asked: list[int] = []

    def more() -> int:
        asked.append(next(words))
        return asked[-1]

    with mpmath.workdps(60):  # X·1 + mean + 1/2 is a whole number up to 2^-190
        edge = mpmath.sqrt(2 * mpmath.log(2))
        near = Fraction(int(mpmath.floor(edge * 2**190)), 2**190)
    answer = decided_around(Fraction(1, 2) - near, Fraction(1), more)
    assert answer in (0, 1)
    assert len(asked) >= 6  # 127 known bits were not enough; nothing was drawn anew


def test_products_of_doubles_are_exact() -> None:
    rng = np.random.default_rng(0)
    for spread in (1, 30, 300):
        a, b = (rng.standard_normal(40) * 2.0 ** rng.integers(-spread, spread, 40) for _ in "ab")
        a[0], b[1] = 0.0, 5e-324
        exact = sum(Fraction(u) * Fraction(v) for u, v in zip(a, b, strict=True))
        assert exact_product(a, b) == exact
    assert exact_product(np.zeros(0), np.zeros(0)) == 0


def test_grid_is_a_power_of_two_below_the_sensitivity() -> None:
    for s in (1e-9, 0.3, 1.0, 7.7e11):
        grid = grid_for(s)
        assert math.frexp(grid)[0] == 0.5
        assert s / 2**20 <= grid < s / 2**19


def test_offset_keeps_its_promise() -> None:
    for epsilon, delta in ((0.1, 1e-6), (1.0, 0.01), (3.0, 0.3)):
        p = Proposal(**PUBLIC | {"epsilon": epsilon, "delta": delta})
        q = math.exp(-epsilon)
        assert q ** (p.offset + 1) / (1 + q) <= delta


# -- what is released --------------------------------------------------------------------------


def test_release_is_the_posterior_sample() -> None:
    n = enough() + 200
    rng = np.random.default_rng(0)
    x = rng.uniform(0.9, 1.0, n)
    y = 2 * x
    precision = 1 + 4 * float(x @ x)
    for z in (-1.5, 0.0, 2.0):
        release = propose_test_sample(x, y, **PUBLIC, noise=Script(normal=z))
        exact = 4 * float(x @ y) / precision + z / math.sqrt(precision)
        assert release.value == pytest.approx(exact, abs=1e-5 / math.sqrt(precision))
    assert (release.epsilon, release.delta, release.adjacency) == (2.5, 0.1, "add-remove")
    public = propose_test_sample(x, y, **PUBLIC, public_records=True, noise=Script())
    assert (public.epsilon, public.delta, public.adjacency) == (2.0, 0.1, "replace")


def test_released_values_follow_the_posterior_law() -> None:
    n = enough() + 400
    x, y = np.full(n, 1.0), np.full(n, 2.0)
    precision = 1 + 4.0 * n
    values = [propose_test_sample(x, y, **PUBLIC).value for _ in range(250)]
    kept = np.array([v for v in values if v is not None])
    assert len(kept) > 125
    z = (kept - 8.0 * n / precision) * math.sqrt(precision)
    assert abs(z.mean()) < 5 / math.sqrt(len(kept))
    assert abs(z.std() - 1) < 0.25


def test_outliers_do_not_reach_the_sample() -> None:
    n = enough() + 300
    x, y = np.full(n, 1.0), np.full(n, 2.0)
    y[:40] = 1e9
    clean = 4 * 2.0 * (n - 40) / (1 + 4.0 * (n - 40))
    assert propose_test_sample(x, y, **PUBLIC, noise=Script()).value == pytest.approx(
        clean, rel=1e-6
    )


# -- every refusal is an ordinary value --------------------------------------------------------


def test_refusal_when_the_noisy_size_is_not_positive() -> None:
    n = enough() + 200
    x, y = np.full(n, 1.0), np.full(n, 2.0)
    assert propose_test_sample(x, y, **PUBLIC, noise=Script(-n)).value is None
    assert propose_test_sample([], [], **PUBLIC).value is None  # an empty dataset is a neighbour


def test_refusal_when_no_slope_is_plausible() -> None:
    n = enough() + 200
    x, y = np.full(n, 1.0), np.full(n, 1e12)
    assert propose_test_sample(x, y, **PUBLIC, noise=Script()).value is None
    # even if the noise pretends that there are some: m is 0 and nothing is close
    assert propose_test_sample(x, y, **PUBLIC, noise=Script(0, n, 0, 10 * n)).value is None


def test_refusal_when_too_few_are_close() -> None:
    n = enough()
    x, y = np.full(n, 1.0), np.full(n, 2.0)
    assert propose_test_sample(x, y, **PUBLIC, noise=Script(0, 0, 0, 0)).value is not None
    assert propose_test_sample(x, y, **PUBLIC, noise=Script(0, 0, 0, -1)).value is None
    assert propose_test_sample(x[1:], y[1:], **PUBLIC, noise=Script()).value is None


def test_refusal_when_nobody_is_close_though_the_noise_says_so() -> None:
    n = enough() + 200
    x, y = np.full(n, 1.0), np.full(n, 2.0)
    away = 1 << 24  # cells: moves the centre far beyond the radius
    assert propose_test_sample(x, y, **PUBLIC, noise=Script(0, 0, away, 10 * n)).value is None


def test_negative_centre_is_clamped() -> None:
    n = enough() + 200
    x, y = np.full(n, 1.0), np.zeros(n)
    release = propose_test_sample(x, y, **PUBLIC, noise=Script(0, 0, -(1 << 24)))
    assert release.value == pytest.approx(0.0, abs=1e-3)


# -- privacy -----------------------------------------------------------------------------------


def test_least_records_make_the_posterior_private() -> None:
    """At |W| = n_min the exact posterior over the whole domain is within (epsilon, delta)."""
    rng = np.random.default_rng(1)
    for _ in range(25):
        low = 10 ** rng.uniform(-1, 0.5)
        high = low * (1 + rng.uniform(0.01, 1.5))
        rho_2 = rng.uniform(0.01, 0.2)
        p = Proposal(
            epsilon=10 ** rng.uniform(-1, 0.7),
            delta=10 ** rng.uniform(-6, -0.4),
            prior_precision=10 ** rng.uniform(-1, 2),
            noise_precision=10 ** rng.uniform(-1, 1) / high**2,  # beta x_high^2 > 3 is not used
            x_low=low,
            x_high=high,
            rho_1=1.2,
            rho_2=rho_2,
            gamma=rho_2 + rng.uniform(0.01, 0.1),
        )
        centre, size = 10 ** rng.uniform(-1, 4), 10 ** rng.uniform(1, 7)
        n = math.ceil(p.least_records(centre, size))
        exact = posterior_privacy(
            n,
            p.prior_precision,
            p.noise_precision,
            low,
            high,
            centre,
            size**rho_2,
            adjacency="either",
        ).epsilon(p.delta)
        assert exact <= p.epsilon


def test_sensitivity_of_the_slope_is_attained_and_never_exceeded() -> None:
    rng = np.random.default_rng(2)
    largest, low, high = 50.0, 0.5, 1.5
    worst = 0.0
    for _ in range(3000):
        n = int(rng.integers(2, 8))
        x = rng.choice([low, high, rng.uniform(low, high)], n)
        b = rng.choice([0.0, largest, rng.uniform(0, largest)], n)
        x2, b2 = x.copy(), b.copy()
        x2[0], b2[0] = rng.choice([low, high]), rng.choice([0.0, largest])
        m, other = (v**2 @ w / (v @ v) for v, w in ((x, b), (x2, b2)))
        removed = x[1:] ** 2 @ b[1:] / (x[1:] @ x[1:])
        bound = largest * high**2 / ((n - 1) * low**2 + high**2)
        worst = max(worst, abs(m - other) / bound, abs(m - removed) / bound)
    assert 0.999 < worst <= 1 + 1e-12


def clopper_pearson(hits: int, runs: int, error: float) -> tuple[float, float]:
    low = beta_law.ppf(error, hits, runs - hits + 1) if hits else 0.0
    high = beta_law.ppf(1 - error, hits + 1, runs - hits) if hits < runs else 1.0
    return float(low), float(high)


def contradictions(first, second, epsilon, delta, thresholds) -> int:
    """Events on which the claim is refuted with confidence 1 - 1e-5 (all events together)."""
    events = [lambda v: v is None]
    events += [lambda v, t=t: v is not None and v > t for t in thresholds]
    events += [lambda v, t=t: v is not None and v <= t for t in thresholds]
    count = 0
    for event in events:
        hits = [sum(map(event, values)) for values in (first, second)]
        for a, b in ((0, 1), (1, 0)):
            error = 1e-5 / (4 * len(events))
            least = clopper_pearson(hits[a], len(first), error)[0]
            most = clopper_pearson(hits[b], len(second), error)[1]
            count += least > math.exp(epsilon) * most + delta
    return count


def worst_neighbours():
    """One record decides: n_min is just met with it, and it is the odd one out."""
    n = enough()
    x, y = np.full(n, 1.0), np.full(n, 2.0)
    far = y.copy()
    far[0] = 1e9  # never close: |W| drops by one
    shifted_x, shifted_y = x.copy(), y.copy()
    shifted_x[0], shifted_y[0] = 0.9, 0.9 * 3.0  # close, but at the end of the domain
    return [((x, y), (x, far)), ((x, y), (shifted_x, shifted_y))]


@pytest.mark.parametrize("case", [0, 1])
def test_privacy_claim_survives_an_experiment(case) -> None:
    (x, y), (x2, y2) = worst_neighbours()[case]
    runs = 400
    first, second = (
        [propose_test_sample(a, b, **PUBLIC, public_records=True).value for _ in range(runs)]
        for a, b in ((x, y), (x2, y2))
    )
    released = [v for v in first if v is not None]
    assert runs * 0.05 < len(released) < runs * 0.95  # the test stands on the edge
    thresholds = np.quantile(released, [0.1, 0.5, 0.9])
    assert contradictions(first, second, 4 * 0.5, 2 * 0.05, thresholds) == 0


def test_the_experiment_would_notice_a_test_without_noise() -> None:
    (x, y), (x2, y2) = worst_neighbours()[0]
    rng = np.random.default_rng(3)
    first, second = (
        [
            propose_test_sample(
                a, b, **PUBLIC, public_records=True, noise=Script(normal=rng.standard_normal())
            ).value
            for _ in range(200)
        ]
        for a, b in ((x, y), (x2, y2))
    )
    assert contradictions(first, second, 4 * 0.5, 2 * 0.05, []) > 0


# -- SGLD in the last line ---------------------------------------------------------------------


def test_swapping_the_last_line_for_sgld_breaks_the_claim() -> None:
    demo = swapped_for_sgld(10**10, epsilon=1.0, delta=1e-3)
    assert demo.attained_epsilon > 600 * demo.claimed_epsilon
    assert 0.9 < demo.reaches_the_sample < 1
    assert "not (" in str(demo)


def test_the_claim_holds_for_all_large_n() -> None:
    attained = [
        swapped_for_sgld(10**k, epsilon=0.2, delta=1e-3).attained_epsilon for k in (12, 14, 18, 24)
    ]
    assert attained[0] == pytest.approx(11890, rel=1e-3)
    assert attained == sorted(attained)


def test_defaults_release() -> None:
    """100,000 records of slope 50: the defaults pass nearly always (0.997 by the exact tails)."""
    x = np.full(100_000, 1.0)
    setting = {k: v for k, v in PUBLIC.items() if k not in ("rho_1", "rho_2", "gamma")}
    setting |= {"epsilon": 2.0, "delta": 1e-6}
    released = sum(propose_test_sample(x, 50 * x, **setting).value is not None for _ in range(20))
    assert released >= 18


def test_the_settings_of_equation_34_are_accepted() -> None:
    release = propose_test_sample(
        [1.0] * 50,
        [1.0] * 50,
        epsilon=1.0,
        delta=1e-3,
        prior_precision=1.0,
        noise_precision=3.0,  # beta x_high^2 = 3, which the paper demands to be above 3
        x_low=0.5,
        x_high=1.0,
        rho_1=1.25,
        rho_2=0.45,
        gamma=0.49,
    )
    assert release.value is None


def test_reaching_probability_is_a_lower_bound() -> None:
    """Small enough to run: the real mechanism reaches its last line at least as often."""
    setting = {
        "epsilon": 2.0,
        "delta": 0.01,
        "prior_precision": 1.0,
        "noise_precision": 3.5,
        "x_low": 0.5,
        "x_high": 1.0,
        "rho_1": 1.02,
        "rho_2": 0.03,
        "gamma": 0.06,
    }
    n = 200_000
    demo = swapped_for_sgld(n, slope_exponent=1.005, **setting)
    x, y = np.full(n, 1.0), np.full(n, n**1.005)
    runs = 60
    reached = sum(propose_test_sample(x, y, **setting).value is not None for _ in range(runs))
    assert demo.reaches_the_sample > 0.1
    assert binomtest(reached, runs, demo.reaches_the_sample, "less").pvalue > 1e-4


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.5}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"prior_precision": 0.0}, "prior_precision"),
        ({"noise_precision": 0.0}, "noise_precision"),
        ({"x_low": 0.0}, "x_low"),
        ({"x_low": 1.0}, "x_low"),
        ({"rho_1": 1.0}, "rho_1"),
        ({"rho_1": 1.5}, "rho_1"),
        ({"rho_2": 0.0}, "rho_2"),
        ({"rho_2": 0.5}, "rho_2"),
        ({"gamma": 0.02}, "gamma"),
        ({"gamma": 0.5}, "gamma"),
    ],
)
def test_bad_parameters_are_refused_with_the_reason(change, match) -> None:
    with pytest.raises(DescriptionError, match=match):
        propose_test_sample([1.0], [1.0], **PUBLIC | change)


def test_bad_data_are_refused_with_the_reason_on_request() -> None:
    for x in ([0.5], [1.5], [math.nan]):
        with pytest.raises(DescriptionError, match=r"x must .* in \[0.9, 1\]"):
            propose_test_sample(x, [1.0], **PUBLIC, outside="refuse")
    with pytest.raises(DescriptionError, match=r"^y must"):
        propose_test_sample([1.0], [-1.0], **PUBLIC, outside="refuse")
    with pytest.raises(DescriptionError, match=r"^x must"):
        propose_test_sample([], [], **PUBLIC, public_records=True)
    with pytest.raises(DescriptionError, match="equal length"):
        propose_test_sample([1.0, 1.0], [1.0], **PUBLIC)
    with pytest.raises(DescriptionError, match="outside"):
        propose_test_sample([1.0], [1.0], **PUBLIC, outside="ignore")


def test_bad_data_are_clipped_silently_by_default() -> None:
    n = enough() + 300
    x, y = np.full(n, 1.0), np.full(n, 2.0)
    wild_x, wild_y = x.copy(), y.copy()
    wild_x[:4] = [-5.0, math.nan, math.inf, 7.0]
    wild_y[4:7] = [-3.0, math.nan, math.inf]
    tame_x, tame_y = x.copy(), y.copy()
    tame_x[:2] = 0.9
    tame_y[4:7] = [0.0, 0.0, 1e300]
    values = [
        propose_test_sample(a, b, **PUBLIC, noise=Script(normal=0.3)).value
        for a, b in ((wild_x, wild_y), (tame_x, tame_y))
    ]
    assert values[0] is not None
    assert values[0] == values[1]
