"""The privacy of one posterior sample: published numbers, exact pairs, the corrected lemma."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.published.heller_fetaya import lemma_a1_printed
from lastiterate.sampling import linear_posterior_privacy, posterior_privacy, posterior_records
from lastiterate.sampling.gaussian_pair import hockey_stick, renyi

N = 17_864_389
GAMMA_2 = 1.14557778853


def pair(n, alpha, beta, z, weighted, one, other):
    """(distance, excess) of the posteriors of two explicit datasets, from their definitions.

    Given by sum of x^2 and sum of x y of the common records and the two last records (x, y).
    """
    p = alpha + beta * (z + one[0] ** 2)
    q = alpha + beta * (z + other[0] ** 2)
    mean = beta * (weighted + one[0] * one[1]) / p
    mean_other = beta * (weighted + other[0] * other[1]) / q
    return abs(mean - mean_other) * math.sqrt(q), q / p - 1


@pytest.mark.parametrize(
    ("exponent", "replace", "either", "lemma"),
    [
        (GAMMA_2, ".0379", ".0493", ".332"),
        (1.01, ".0104", ".0113", ".254"),
        (1.22, ".130", ".178", "1.06"),
    ],
)
def test_table_of_exact_posterior_epsilon(exponent, replace, either, lemma) -> None:
    domain = (N, 2, 1, 0.9, 1.8, N**exponent, N**0.1)

    def printed(value: float, like: str) -> str:
        text = f"{value:.{len(like.partition('.')[2])}f}"
        return text.lstrip("0")

    assert printed(posterior_privacy(*domain).epsilon(1e-3), replace) == replace
    both = posterior_privacy(*domain, adjacency="either")
    assert printed(both.epsilon(1e-3), either) == either
    order = 1 + 2 * math.log(1e3) / 0.5  # the order of Claim D.28
    assert printed(both.lemma(order) + math.log(1e3) / (order - 1), lemma) == lemma


def test_exact_epsilon_reaches_one_half_where_the_theory_says() -> None:
    low, high = (
        posterior_privacy(N, 2, 1, 0.9, 1.8, N**g, N**0.1, adjacency="either").epsilon(1e-3)
        for g in (1.2745, 1.2755)
    )
    assert low < 0.5 < high


def domains(rng):
    """Random bounded domains, from hopeless to comfortable."""
    n = int(10 ** rng.uniform(0, 4))
    low = 10 ** rng.uniform(-1, 0.5)
    return {
        "records": n,
        "prior_precision": 10 ** rng.uniform(-1.5, 2),
        "noise_precision": 10 ** rng.uniform(-1.5, 1),
        "x_low": low,
        "x_high": low * (1 + rng.uniform(0, 3) * rng.integers(2)),
        "slope": float(rng.choice([0.0, 1.0, -1.0])) * 10 ** rng.uniform(-1, 3),
        "deviation": 10 ** rng.uniform(-2, 1) * rng.integers(2),
    }


def random_pair(rng, d, absent):
    """Two neighbouring datasets of the domain, interior and corners alike."""
    n = d["records"]

    def between(low, high, size=None):
        u = rng.choice([0.0, 1.0, rng.random()], size=size)
        return low + u * (high - low)

    x = between(d["x_low"], d["x_high"], n - 1)
    y = x * between(d["slope"] - d["deviation"], d["slope"] + d["deviation"], n - 1)
    last = []
    for _ in range(2):
        a = between(d["x_low"], d["x_high"])
        last.append((a, a * between(d["slope"] - d["deviation"], d["slope"] + d["deviation"])))
    if absent:
        last[rng.integers(2)] = (0.0, 0.0)
    return pair(n, d["prior_precision"], d["noise_precision"], float(x @ x), float(x @ y), *last)


def test_certified_bounds_cover_random_datasets_and_are_tight() -> None:
    rng = np.random.default_rng(2)
    for k in range(60):
        domain = domains(rng)
        absent = bool(k % 2)
        p = posterior_privacy(**domain, adjacency="zero-out" if absent else "replace")
        delta, order = 10 ** rng.uniform(-8, -1), 1 + 10 ** rng.uniform(-1, 1.5)
        epsilon, divergence = p.epsilon(delta), p.rdp(order)
        # tight up to the tolerance of the search (1e-4, coarser only where it gives up)
        assert p.attained(delta) <= epsilon <= p.attained(delta) * 1.002 + 1e-9
        assert p.delta(epsilon) <= delta * 1.2  # steep where epsilon is in the hundreds
        for _ in range(25):
            distance, excess = random_pair(rng, domain, absent)
            truth = float(hockey_stick(distance, excess, epsilon))
            assert truth <= delta * (1 + 1e-9) + 1e-13 + 1e-9 * distance
            assert float(renyi(distance, excess, order)) <= divergence * (1 + 1e-9) + 1e-12


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_less_deviation_or_more_delta_never_hurt_epsilon(seed) -> None:
    rng = np.random.default_rng(seed)
    domain = domains(rng) | {"slope": 0.0}
    domain["deviation"] += 0.1
    base = posterior_privacy(**domain).epsilon(1e-4)
    narrower = posterior_privacy(**domain | {"deviation": domain["deviation"] / 2}).epsilon(1e-4)
    assert narrower <= base * (1 + 1e-2) + 1e-9
    assert posterior_privacy(**domain).epsilon(1e-2) <= base * (1 + 1e-2) + 1e-9


def test_corrected_lemma_is_above_the_truth() -> None:
    rng = np.random.default_rng(3)
    checked = 0
    while checked < 150:
        order = 1 + 10 ** rng.uniform(-1, 1.5)
        low = 10 ** rng.uniform(-1, 0.5)
        high = low * (1 + rng.uniform(0, 1.5) * rng.integers(2))
        n = int(1 + 10 * order * high**2 / low**2 * (1 + 10 ** rng.uniform(-3, 2))) + 1
        deviation = n ** rng.uniform(0.01, 0.49)
        alpha, beta = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-1.5, 1.5)
        slope = deviation * 10 ** rng.uniform(0, 3)
        p = posterior_privacy(n, alpha, beta, low, high, slope, deviation, adjacency="either")
        corner = p._renyi(p._corners(), order).max()
        assert p.lemma(order) >= corner
        checked += 1


def test_printed_lemma_a1_is_false_for_large_noise_precision() -> None:
    n = 23
    domain = (n, 0.1, 10.0, 1.0, 1.0, 5 * n**0.3, n**0.3)
    claim = lemma_a1_printed(20.0, domain)
    # one explicit pair of datasets suffices: slopes at opposite ends, x = 1 throughout
    c, dev = domain[5], domain[6]
    distance, excess = pair(n, 0.1, 10.0, n - 1.0, (n - 1) * (c + dev), (0.0, 0.0), (1.0, c - dev))
    assert float(renyi(distance, excess, 20.0)) > 3 * claim
    assert claim == pytest.approx(257.4, abs=0.05)
    assert posterior_privacy(*domain, adjacency="either").rdp(20.0) == pytest.approx(
        835.7, rel=3e-4
    )
    with pytest.raises(AssumptionError, match="more than"):
        posterior_privacy(*domain).lemma(20.0)


def test_lemma_refuses_slopes_of_both_signs() -> None:
    p = posterior_privacy(1000, 1, 1, 1, 1, 0.5, 1.0)
    with pytest.raises(AssumptionError, match="deviation <= slope"):
        p.lemma(2.0)
    assert p.rdp(2.0) > 0


@pytest.mark.parametrize("beta", [0.3, 1.0, 8.0])
@pytest.mark.parametrize(("g1", "g2"), [(0.1, 1.14), (0.2, 0.9), (0.3, 1.3)])
def test_records_of_the_corrected_claim_suffice(beta, g1, g2) -> None:
    for epsilon, delta in ((0.5, 1e-3), (2.0, 1e-5), (6.0, 0.2)):
        n = posterior_records(epsilon, delta, 2, beta, 0.9, 1.8, g2, g1)
        p = posterior_privacy(
            n, 2, beta, 0.9, 1.8, float(n) ** g2, float(n) ** g1, adjacency="either"
        )
        assert p.epsilon(delta) <= epsilon
        order = 1 + 2 * math.log(1 / delta) / epsilon
        assert p.lemma(order) + math.log(1 / delta) / (order - 1) <= epsilon * (1 + 1e-9)


# -- d dimensions --------------------------------------------------------------------------------


def gaussian_renyi(order, mean, cov, other_mean, other_cov) -> float:
    """Renyi divergence of two multivariate Gaussians (Gil et al.)."""
    mixed = order * other_cov + (1 - order) * cov
    if np.linalg.eigvalsh(mixed)[0] <= 0:
        return math.inf
    gap = mean - other_mean
    logs = [np.linalg.slogdet(m)[1] for m in (mixed, cov, other_cov)]
    return 0.5 * order * gap @ np.linalg.solve(mixed, gap) - (
        logs[0] - (1 - order) * logs[1] - order * logs[2]
    ) / (2 * (order - 1))


def posterior(X, y, alpha, beta):
    precision = alpha * np.eye(X.shape[1]) + beta * X.T @ X
    cov = np.linalg.inv(precision)
    return beta * cov @ X.T @ y, cov


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_linear_bound_covers_exact_divergences_in_d_dimensions(adjacency) -> None:
    rng = np.random.default_rng(4)
    finite = 0
    for _ in range(200):
        d, n = int(rng.integers(1, 5)), int(rng.integers(2, 60))
        alpha, beta = 10 ** rng.uniform(-1, 2), 10 ** rng.uniform(-2, 1)
        bound, residual, order = 10 ** rng.uniform(-1, 0.5), 10 ** rng.uniform(-2, 1), 1.5
        centre = rng.standard_normal(d) * rng.integers(2)
        X = rng.standard_normal((n + 1, d))
        X *= (bound * rng.choice([1.0, rng.random()], (n + 1, 1))) / np.linalg.norm(
            X, axis=1, keepdims=True
        )
        # all rows in one direction with aligned residuals: close to the worst case
        if rng.integers(2):
            X = np.abs(X[:, :1]) * np.eye(d)[0]
        y = X @ centre + residual * rng.choice([-1.0, 1.0], n + 1)
        common = np.arange(n - 1)
        least = float(np.linalg.eigvalsh(X[common].T @ X[common])[0]) * rng.integers(2)
        p = linear_posterior_privacy(
            n,
            alpha,
            beta,
            bound * (1 + 1e-9),
            residual * (1 + 1e-9),
            slope_norm=float(np.linalg.norm(centre)) * (1 + 1e-9),
            least_eigenvalue=max(0.0, least * (1 - 1e-9)),
            adjacency=adjacency,
        )
        first = [*common, n - 1]
        second = [*common, n] if adjacency == "replace" else list(common)
        one, other = (posterior(X[i], y[i], alpha, beta) for i in (first, second))
        limit = p.rdp(order)
        finite += math.isfinite(limit)
        assert gaussian_renyi(order, *one, *other) <= limit + 1e-9
        assert gaussian_renyi(order, *other, *one) <= limit + 1e-9
    assert finite > 60


def test_linear_bound_covers_exact_epsilon_in_one_dimension() -> None:
    """One dimension, slope 0: the exact search and the general bound on the same domain."""
    for n, beta, deviation in ((50, 0.1, 0.5), (400, 0.02, 1.0), (3000, 0.05, 0.3)):
        for adjacency in ("zero-out", "replace"):
            exact = posterior_privacy(n, 1.0, beta, 1.0, 1.0, 0.0, deviation, adjacency=adjacency)
            bound = linear_posterior_privacy(
                n, 1.0, beta, 1.0, deviation, least_eigenvalue=n - 1.0, adjacency=adjacency
            )
            assert exact.attained(1e-5) <= bound.epsilon(1e-5)
            assert bound.delta(bound.epsilon(1e-5)) <= 1e-5


def test_linear_zero_out_is_nearly_attained() -> None:
    """All rows and residuals aligned attain the leverage and memory terms of the proof."""
    n, alpha, beta, rho = 200, 1.0, 0.05, 1.0
    bound = linear_posterior_privacy(
        n, alpha, beta, 1.0, rho, least_eigenvalue=n - 1.0, adjacency="zero-out"
    )
    X, y = np.ones((n, 1)), np.full(n, rho)
    y[-1] = -rho
    one, other = posterior(X, y, alpha, beta), posterior(X[:-1], y[:-1], alpha, beta)
    truth = max(gaussian_renyi(2.0, *one, *other), gaussian_renyi(2.0, *other, *one))
    assert truth <= bound.rdp(2.0) <= 1.3 * truth


@pytest.mark.parametrize(
    "change",
    [
        {"records": 0},
        {"prior_precision": 0.0},
        {"noise_precision": math.nan},
        {"x_low": 0.0},
        {"x_low": 3.0},
        {"slope": math.inf},
        {"deviation": -1.0},
        {"adjacency": "add"},
    ],
)
def test_bad_domains_are_refused(change) -> None:
    good = {
        "records": 10,
        "prior_precision": 1.0,
        "noise_precision": 1.0,
        "x_low": 1.0,
        "x_high": 2.0,
        "slope": 1.0,
        "deviation": 0.5,
    }
    with pytest.raises(DescriptionError, match=next(iter(change))):
        posterior_privacy(**{**good, **change})


def test_bad_questions_are_refused() -> None:
    p = posterior_privacy(10, 1, 1, 1, 1, 1, 0.5)
    with pytest.raises(DescriptionError, match="delta"):
        p.epsilon(0.0)
    with pytest.raises(DescriptionError, match="order"):
        p.rdp(1.0)
    with pytest.raises(DescriptionError, match="epsilon"):
        p.delta(-1.0)
    with pytest.raises(DescriptionError, match="deviation_exponent"):
        posterior_records(0.5, 1e-3, 2, 1, 0.9, 1.8, 1.0, 0.5)
    with pytest.raises(DescriptionError, match="slope_exponent"):
        posterior_records(0.5, 1e-3, 2, 1, 0.9, 1.8, 1.5, 0.1)
    with pytest.raises(DescriptionError, match="least_eigenvalue"):
        linear_posterior_privacy(10, 1, 1, 1, 1, least_eigenvalue=-1)
