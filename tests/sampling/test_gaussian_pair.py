"""The closed forms for two Gaussians against high precision and numerical integration."""

import mpmath as mp
import numpy as np
import pytest

from lastiterate.sampling.gaussian_pair import hockey_stick, renyi


def exact_hockey_stick(d: float, g: float, eps: float) -> mp.mpf:
    """Tails of the two laws beyond the roots of the loss, with 400 digits."""
    with mp.workdps(400):
        d, g, eps = mp.mpf(d), mp.mpf(g), mp.mpf(eps)
        weight = mp.e**eps

        def beyond(t: mp.mpf) -> mp.mpf:
            upper = mp.erfc((t - d) / mp.sqrt(2 * (1 + g))) / 2
            return upper - weight * mp.erfc(t / mp.sqrt(2)) / 2

        a, b, c = g, 2 * d, -d * d - (1 + g) * (mp.log(1 + g) + 2 * eps)
        if a == 0:
            return beyond(-c / b)
        if b * b - 4 * a * c <= 0:
            return max(mp.mpf(0), 1 - weight) if a > 0 else mp.mpf(0)
        ends = sorted((-b + sign * mp.sqrt(b * b - 4 * a * c)) / (2 * a) for sign in (1, -1))
        inside = beyond(ends[0]) - beyond(ends[1])
        return inside if a < 0 else 1 - weight - inside


def test_hockey_stick_is_never_below_the_truth_and_tight() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        d = 10 ** rng.uniform(-4, 1.5)
        g = rng.choice([0, 1, -1]) * 10 ** rng.uniform(-9, 0.8)
        g = g if g > -1 else -rng.uniform(0, 0.95)
        eps = rng.choice([0.0, 10 ** rng.uniform(-4, 2), -(10 ** rng.uniform(-3, 0))])
        value, truth = float(hockey_stick(d, g, eps)), exact_hockey_stick(d, g, eps)
        assert value >= truth
        assert value <= truth * (1 + 1e-6) + 1e-14 * float(truth) + 1e-299 + 3e-12


def test_far_tails_keep_their_relative_accuracy() -> None:
    for d, g, eps in ((0.5, 1e-7, 3.0), (1.0, -1e-3, 12.0), (0.2, 0.0, 1.5), (3.0, 1e-9, 60.0)):
        truth = exact_hockey_stick(d, g, eps)
        assert 1e-200 < truth < 1e-9
        assert truth <= float(hockey_stick(d, g, eps)) <= truth * (1 + 1e-9)


def test_equal_laws_and_broadcasting() -> None:
    assert float(hockey_stick(0.0, 0.0, 0.0)) < 1e-15
    assert float(hockey_stick(0.0, 0.0, -np.log(2))) == pytest.approx(0.5)
    assert hockey_stick([0.1, 0.2], [[0.0], [0.1], [-0.1]], 0.1).shape == (3, 2)


@pytest.mark.parametrize(("d", "g", "order"), [(0.7, 0.3, 3.0), (1.5, -0.4, 1.2), (0.0, 0.1, 8.0)])
def test_renyi_against_integration(d: float, g: float, order: float) -> None:
    def ratio(x: mp.mpf) -> mp.mpf:
        p = mp.exp(-((x - d) ** 2) / (2 * (1 + g))) / mp.sqrt(2 * mp.pi * (1 + g))
        q = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
        return p**order * q ** (1 - order)

    truth = mp.log(mp.quad(ratio, np.linspace(-60, 60, 61).tolist())) / (order - 1)
    assert float(renyi(d, g, order)) == pytest.approx(float(truth), rel=1e-10)


def test_renyi_is_infinite_where_the_integral_diverges() -> None:
    assert np.isinf(renyi(0.1, 0.5, 3.0))
    assert np.isfinite(renyi(0.1, 0.49, 3.0))


def test_renyi_is_never_below_the_truth_where_the_logarithms_cancel() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        g = rng.choice([1, -1]) * 10 ** rng.uniform(-12, -1)
        d = rng.choice([0.0, 10 ** rng.uniform(-9, 1)])
        order = 1 + 10 ** rng.uniform(-2, 0.9)
        with mp.workdps(60):
            G, D, a = mp.mpf(g), mp.mpf(d), mp.mpf(order)
            v = 1 - (a - 1) * G
            truth = -mp.log(1 + G) / 2 - mp.log(v) / (2 * (a - 1)) + a * D * D / (2 * v)
        value = float(renyi(d, g, order))
        assert truth <= value <= truth * (1 + 1e-12) + 1e-14 * abs(g)
