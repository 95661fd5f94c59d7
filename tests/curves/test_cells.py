"""The vectorised primitives of elementary pairs against mpmath, on hostile arguments."""

import math

import mpmath
import numpy as np
import pytest

from lastiterate.curves import pairs
from lastiterate.curves.bracket import crossing
from lastiterate.curves.pairs import SampledPair
from lastiterate.theory.dynamics import counted, weighted_sum

UNIT = 2.0**-52


@pytest.mark.parametrize("centre", [0.0, 1e-9, 0.3, 7.0, 40.0])
def test_masses_between_edges_are_within_their_own_error(centre):
    rng = np.random.default_rng(1)
    near = centre + np.concatenate([[0.0, 5e-324, 1e-300], rng.normal(size=30) * 1e-8])
    wide = np.concatenate([rng.normal(size=40) * 4, rng.uniform(-38, 38, 40), [-1e100, 1e100]])
    tight = 2.0 * (1 + UNIT * np.arange(6))
    edges = np.sort(np.concatenate([[-np.inf], near, wide, tight, [np.inf]]))
    masses, errors = pairs._cells(edges, centre)
    with mpmath.workdps(60):
        below = [mpmath.ncdf(mpmath.mpf(float(x)) - mpmath.mpf(centre)) for x in edges]
        above = [mpmath.ncdf(mpmath.mpf(centre) - mpmath.mpf(float(x))) for x in edges]
        for k, (mass, error) in enumerate(zip(masses.tolist(), errors.tolist(), strict=True)):
            upper = edges[k] + edges[k + 1] > 2 * centre
            exact = above[k] - above[k + 1] if upper else below[k + 1] - below[k]
            # x - centre is rounded before: that is the error of a point, not of a mass.
            moved = UNIT * (abs(centre) + 1) * mpmath.npdf(min(abs(edges[k : k + 2] - centre)))
            assert abs(mass - exact) <= error + moved + mpmath.mpf("1e-300")


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 0.01, 0.3, 0.5, 0.7, 1 - 1e-12])
def test_the_loss_of_a_mixture_has_relative_precision(rate):
    sizes = np.geomspace(1e-300, 650.0, 60)
    losses = np.concatenate([-sizes, [0.0], sizes])
    for values in (losses, np.append(losses, 900.0)):  # the second takes the other branch
        found = pairs._mixed(rate, values)
        with mpmath.workdps(700):
            for loss, value in zip(values.tolist(), found.tolist(), strict=True):
                exact = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(loss)))
                cancelled = 1e-3 if rate > 0.5 else 0.0
                assert abs(value - exact) <= 3e-13 * (abs(exact) + cancelled) + mpmath.mpf("1e-322")


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [(0.01, 1e-9, 1.0), (0.01, 0.2, 0.9), (0.5, 1e-3, 5.0), (0.99, 0.1, 30.0), (1e-6, 2.0, 40.0)],
)
def test_points_of_a_loss_are_exact_to_second_order(rate, low, high):
    """What an error of the point changes of a hockey stick is far below a rounding error."""
    pair = SampledPair(rate, low, high)
    top, bottom = (float(pair.loss(np.array([x]))[0]) for x in (high + 11, -11.0))
    losses = np.linspace(bottom, top, 61)
    points = pair.inverse(losses)

    def exact(x):
        far = mpmath.mpf(rate) * mpmath.exp(high * x - mpmath.mpf(high) ** 2 / 2)
        return mpmath.log((1 - mpmath.mpf(rate)) * mpmath.exp(low * x - low * low / 2) + far)

    with mpmath.workdps(50):
        for loss, point in zip(losses.tolist(), points.tolist(), strict=True):
            x = mpmath.mpf(point)
            slope = mpmath.diff(exact, x)
            error = (exact(x) - mpmath.mpf(loss)) / slope
            rounding = 64 * UNIT * (abs(loss) + high * (abs(point) + high)) / slope
            assert slope * error**2 <= 1e-17 + slope * rounding**2


def test_equal_columns_are_counted_as_sorting_counts_them():
    rng = np.random.default_rng(2)
    for size in (0, 1, 2, 500):
        columns = np.repeat(rng.integers(0, 4, (3, size)).astype(float), 3, axis=1)
        kinds, counts = np.unique(columns, axis=1, return_counts=True)
        found = counted(columns)
        assert np.array_equal(found[0], kinds)
        assert np.array_equal(found[1], counts)


def test_a_weighted_sum_is_that_of_its_products():
    rng = np.random.default_rng(3)
    weights, values = rng.uniform(size=(2, 10_000))
    exact = math.fsum((weights * values).tolist())
    assert weighted_sum(weights, values) == pytest.approx(exact, rel=1e-12)


def test_a_crossing_is_an_end_where_there_is_none():
    assert crossing(lambda x: x - 3.0, -80.0, 90.0) == pytest.approx(3.0, abs=1e-12)
    assert crossing(lambda x: x - 300.0, -80.0, 90.0) == 90.0
    assert crossing(lambda x: x + 300.0, -80.0, 90.0) == -80.0


def test_a_crossing_is_found_between_values_beyond_doubles():
    def steep(x):
        return math.nan if x < -50 else -math.inf if x < 1 else math.inf if x > 2 else x - 1.5

    assert crossing(steep, -80.0, 80.0) == pytest.approx(1.5, abs=1e-12)
    assert crossing(lambda x: math.nan, -80.0, 80.0) == 80.0
    assert crossing(lambda x: math.inf if x > 7 else -math.inf, -80.0, 80.0) == pytest.approx(7.0)
