"""From the description to (c, s, nu): real updates never drive runs farther apart than declared."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
)
from lastiterate.published.ye_shokri import clipped_softmax_contraction
from lastiterate.theory import dynamics


def clip(gradient, norm):
    return gradient * min(1.0, norm / max(np.linalg.norm(gradient), 1e-300))


def quadratic(rng, dimension, low, high):
    """Gradient of a random quadratic with spectrum in [low, high]."""
    basis, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
    hessian = basis * rng.uniform(low, high, dimension) @ basis.T
    shift = rng.normal(size=dimension)
    return lambda x: hessian @ x + shift


def expansion(update, rng, dimension, pairs=30):
    """The largest ratio of distances after and before, over near and far pairs."""
    worst = 0.0
    for _ in range(pairs):
        x = rng.normal(size=dimension) * 3
        y = x + rng.normal(size=dimension) * 10 ** rng.uniform(-5, 1)
        worst = max(worst, np.linalg.norm(update(x) - update(y)) / np.linalg.norm(x - y))
    return worst


def constant(eta, loss, clipping):
    return float(dynamics.contraction(np.array([eta]), loss, clipping)[0])


def test_convex_updates_without_clipping():
    rng = np.random.default_rng(1)
    closest = 0.0
    for _ in range(400):
        low, high = np.sort(rng.uniform(0, 2, 2))
        eta, l2 = rng.uniform(0, 2.5), rng.choice([0.0, 0.3])
        gradient = quadratic(rng, 2, low, high)
        c = constant(eta, Loss(high, low, l2), "none")
        worst = expansion(lambda x, g=gradient: x - eta * (g(x) + l2 * x), rng, 2)  # noqa: B023
        assert worst <= c * (1 + 1e-9)
        closest = max(closest, worst / c)
    assert closest > 0.999


def test_clipped_convex_updates():
    """S4: convex gradients inside the clip, the L2 term outside."""
    rng = np.random.default_rng(2)
    for _ in range(1000):
        smoothness, eta = rng.uniform(0.1, 2), rng.uniform(0.01, 3)
        l2 = rng.choice([0.0, 0.2])
        norm = rng.uniform(0.05, 2)
        direction = rng.normal(size=2)
        direction *= math.sqrt(smoothness) / np.linalg.norm(direction)
        offset = rng.normal(size=2)

        def update(x, d=direction, o=offset, n=norm, e=eta, r=l2):
            return x - e * (clip(d * (d @ x) + o, n) + r * x)

        c = constant(eta, Loss(smoothness, 0.0, l2), "gradient")
        assert expansion(update, rng, 2) <= c * (1 + 1e-9)


def test_the_clipping_constant_is_nearly_attained():
    """f = (w.x)^2/2 + b.x, eta = 1, clip 1: expansion 1.1528 where 2/sqrt(3) is the supremum."""
    w, b = np.array([0.81674, 0.57701]), np.array([1.01, 0.0])
    smoothness = float(w @ w)

    def update(x):
        return x - clip(w * (w @ x) + b, 1.0)

    step = 1e-6
    directions = [np.array([math.cos(t), math.sin(t)]) for t in np.linspace(0, math.pi, 2001)]
    worst = max(
        np.linalg.norm(update(step * d) - update(-step * d)) / (2 * step) for d in directions
    )
    assert worst == pytest.approx(1.1528, abs=2e-3)
    c = constant(1.0, Loss(smoothness), "gradient")
    assert worst <= c <= 2 / math.sqrt(3) + 1e-4


def test_smooth_updates_clipped_or_not():
    rng = np.random.default_rng(3)
    for _ in range(300):
        smoothness, eta, l2 = rng.uniform(0.1, 2), rng.uniform(0.01, 2), rng.choice([0.0, 0.4])
        gradient = quadratic(rng, 2, -smoothness, smoothness)
        norm = rng.choice([0.5, math.inf])
        c = constant(eta, Loss.nonconvex(smoothness=smoothness, regularization=l2), "gradient")

        def update(x, g=gradient, n=norm, e=eta, r=l2):
            return x - e * (clip(g(x), n) + r * x)

        assert expansion(update, rng, 2) <= c * (1 + 1e-9)


def test_margin_clipping_keeps_only_the_curvature_of_the_l2_term():
    """A clipped squared error is flat outside the clip, whatever its strong convexity inside."""
    eta, strong = 0.5, 1.0

    def update(x):
        return x - eta * np.clip(strong * x, -1, 1)

    far = abs(update(7.0) - update(5.0)) / 2.0
    loss = Loss(smoothness=1.0, strong_convexity=strong)
    assert far == pytest.approx(1.0)
    assert constant(eta, loss, "margin") >= far
    assert constant(eta, loss, "none") == pytest.approx(0.5)


def test_hoelder_and_bounded_moduli():
    rng = np.random.default_rng(4)
    run = Training(
        records=1,
        steps=1,
        step_size=0.7,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    etas = np.array([0.7])
    rough = dynamics.modulus(etas, run, Loss.holder(constant=2.0, exponent=0.5))
    blind = dynamics.modulus(etas, run, Loss.unknown())
    for _ in range(500):
        x, y = rng.normal(size=2) * 2
        gradients = [
            np.clip(math.copysign(math.sqrt(abs(v)), v) * math.sqrt(2), -1, 1) for v in (x, y)
        ]
        gap = abs((x - 0.7 * gradients[0]) - (y - 0.7 * gradients[1]))
        assert gap <= float(rough(abs(x - y))[0]) * (1 + 1e-12)
        assert gap <= float(blind(abs(x - y))[0]) * (1 + 1e-12)


def test_three_class_softmax_refutes_contraction_under_clipping():
    """Ye & Shokri 2022, Proposition F.2: an expansion of 1.0368 where 0.98235 is claimed; ours
    covers it.
    """
    x = np.array([3.0, 1.0])  # one feature and the intercept
    target = np.array([1.0, 0.0, 0.0])
    l2, eta, norm = 0.05, 0.352941, 4.139025
    theta = np.array([[0, 0], [1.5, 0.5], [1.98, 0.66]])

    def gradient(weights):
        scores = weights @ x
        p = np.exp(scores - scores.max())
        return np.outer(p / p.sum() - target, x)

    def update(flat):
        weights = flat.reshape(3, 2)
        return (weights - eta * (clip(gradient(weights), norm) + l2 * weights)).ravel()

    assert np.linalg.norm(gradient(theta)) == pytest.approx(4.143168, abs=1e-6)
    h = 1e-4
    columns = [
        (update(theta.ravel() + h * e) - update(theta.ravel() - h * e)) / (2 * h) for e in np.eye(6)
    ]
    worst = np.linalg.norm(np.array(columns).T, 2)
    assert worst == pytest.approx(1.03676, abs=2e-4)
    assert clipped_softmax_contraction(eta, l2) == pytest.approx(0.98235, abs=1e-5)
    assert constant(eta, Loss(smoothness=5.0, regularization=l2), "gradient") >= worst


def test_zero_steps_and_rough_losses():
    assert constant(0.0, Loss(smoothness=math.inf), "none") == 1.0
    assert constant(0.1, Loss(smoothness=math.inf), "none") == math.inf
    assert dynamics.contraction(np.ones(1), Loss.unknown(), "none") is None
    assert dynamics.contraction(np.ones(1), Loss.holder(constant=1, exponent=0.5), "none") is None
    assert constant(0.5, Loss(smoothness=1.0), "none") == 1.0  # exactly, not rounded above


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize(
    "batches",
    [FullBatch(), Cyclic(10), Shuffled(10), Reshuffled(10), Poisson(0.1), WithoutReplacement(10)],
)
def test_every_scheme_has_a_theorem_for_both_neighbours(batches, adjacency):
    run = Training(
        records=100,
        steps=10,
        step_size=0.1,
        noise=1.0,
        gradient_norm=1.0,
        batches=batches,
        adjacency=adjacency,
    )
    assert 0 < account(run, Loss.unknown()).delta(0.0) < 1


def test_a_contraction_is_never_below_what_doubles_cancel():
    """1 - 0.1*10 is 0 in doubles alone; a step without noise would then seem to forget all."""
    rng = np.random.default_rng(0)
    etas = np.concatenate([[0.1, 0.5], 10 ** rng.uniform(-3, 1, 300)])
    for near in (0.0, 1e-15, 1e-9, 1e-3, 0.3):
        for eta in etas:
            l2, smooth = float(1 / eta * (1 + near)), float(rng.choice([0.0, 0.1 * near / eta]))
            known = Loss(smoothness=smooth, regularization=l2)
            found = dynamics.contraction(np.array([eta]), known, "none")
            for curved in (Fraction(l2), Fraction(l2) + Fraction(smooth)):
                assert Fraction(float(found[0])) >= abs(1 - Fraction(float(eta)) * curved)
            alone = dynamics.shrinkage(np.array([eta]), known)[0]
            assert Fraction(float(alone)) >= abs(1 - Fraction(float(eta)) * Fraction(l2))
    exact = Loss(smoothness=0.0, regularization=2.0)
    assert dynamics.contraction(np.array([0.5]), exact, "none")[0] == 0


def test_a_clipped_contraction_is_never_below_what_doubles_cancel():
    rng = np.random.default_rng(1)
    for _ in range(3000):
        eta = float(10 ** rng.uniform(-3, 1))
        left = float(10 ** rng.uniform(-15, -0.01))  # of 1 - eta l2
        l2, smooth = (1 - left) / eta, left * float(rng.uniform(0, 4)) / eta
        known = Loss(smoothness=smooth, regularization=l2)
        found = Fraction(float(dynamics.contraction(np.array([eta]), known, "gradient")[0]))
        shrink = 1 - Fraction(eta) * Fraction(l2)
        bend = Fraction(eta) * Fraction(smooth)
        clipped = bend < 4 * shrink and found**2 * (1 - bend / (4 * shrink)) >= shrink**2
        assert found >= abs(shrink) + bend or clipped


def test_one_minus_a_product_of_doubles_is_above_its_exact_value():
    """Up to the factor that contractions are rounded up by; curvatures beyond all scales."""
    rng = np.random.default_rng(11)
    with np.errstate(over="ignore"):
        for _ in range(200):
            first = 10.0 ** rng.uniform(-307, 307)
            others = first * 10.0 ** rng.uniform(-40, 0, rng.integers(0, 3))
            total = sum(map(Fraction, others.tolist()), Fraction(first))
            near = float(1 / total)
            neighbours = near * (1 + 2.0**-52 * np.arange(-20, 21))
            spread = near * (1 + rng.uniform(-1, 1, 40) * 10.0 ** rng.uniform(-17, -0.31, 40))
            etas = np.concatenate([neighbours, spread])
            found = dynamics.distance_to_one(etas, total)
            for eta, value in zip(etas.tolist(), found.tolist(), strict=True):
                exact = abs(1 - Fraction(eta) * total)
                assert exact <= Fraction(value) * Fraction(dynamics.ROUNDING)
                assert value <= exact * (1 + Fraction(1e-12))


def test_a_contraction_of_zero_is_zero_exactly_where_products_are_one():
    etas = np.array([0.5, 0.25, 0.1, math.nextafter(0.5, 1)])
    found = dynamics.distance_to_one(etas, Fraction(2))
    assert found.tolist() == [0.0, 0.5, 0.8, 2.0**-52]
    assert dynamics.distance_to_one(np.array([2.0**-1074]), Fraction(2) ** 1074).tolist() == [0.0]


def test_a_long_schedule_has_the_contractions_of_its_steps():
    etas = np.random.default_rng(12).uniform(0, 2.5, 40_000)
    for loss, clipping in ((Loss(1.0, 0.3, 0.1), "none"), (Loss(1.0, 0.0, 0.1), "gradient")):
        found = dynamics.contraction(etas, loss, clipping)
        few = range(0, len(etas), 997)
        assert all(found[k] == constant(etas[k], loss, clipping) for k in few)
